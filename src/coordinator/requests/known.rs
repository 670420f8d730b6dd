//! Known models: those of a list, and those online. Other names are made up by clients, without limit.

use std::sync::Arc;

use super::Requests;
use crate::names::Names;
use crate::switchboard::Overview;
use muster_protocol::legacy::image::reference;

#[derive(Debug, Clone, Default)]
pub struct Known {
    names: Names,
    online: Arc<Overview>,
}

impl Known {
    /// By the model's id.
    pub fn knows(&self, model: &str) -> bool {
        self.names.listed(model).is_some()
            || reference::knows(model)
            || self.online.model(model).is_some()
    }

    /// The ids of known models, and whether there are unknown ones.
    pub fn sort(&self, models: &[String]) -> (Vec<Arc<str>>, bool) {
        let ids = models.iter().map(|name| self.names.id(name));
        let (known, strange): (Vec<_>, Vec<_>) = ids.partition(|id| self.knows(id));
        (known, !strange.is_empty())
    }
}

impl Requests {
    /// The models of `names`, and those online.
    pub fn known_models(&self, names: &Names) -> Known {
        Known {
            names: names.clone(),
            online: self.0.switchboard.overview(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{Known, Names};
    use crate::switchboard::{ModelOnline, Overview};
    use muster_protocol::job::{Capabilities, Formats, Kind, MemoryStay};

    #[test]
    fn what_is_listed_or_served_is_known_and_nothing_else() {
        let served = ModelOnline {
            name: "served".into(),
            kinds: Kind::Text.into(),
            formats: Formats::default(),
            capabilities: Capabilities::default(),
            modalities: Vec::new(),
            context: 4096,
            reach: None,
            size: None,
            voices: std::sync::Arc::default(),
            clip: None,
            details: std::sync::Arc::default(),
            workers: 1,
            slots: 1,
            running: 0,
            free: 1,
            answer_time: Duration::ZERO,
            queued: 0,
            stay: MemoryStay::default(),
        };
        let known = Known {
            names: Names::of([("tiny", ["Org/Tiny"])]),
            online: Overview {
                models: vec![served],
                ..Overview::default()
            }
            .into(),
        };
        let sort = |models: &[&str]| {
            let models: Vec<String> = models.iter().map(ToString::to_string).collect();
            known.sort(&models)
        };
        let both = vec!["tiny".into(), "served".into()];
        assert_eq!(sort(&["Org/Tiny", "served"]), (both, false));
        assert_eq!(sort(&["served", "x1", "x2"]), (vec!["served".into()], true));
        assert_eq!(sort(&[]), (Vec::new(), false));
    }
}
