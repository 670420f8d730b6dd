//! Messages of a coordinator to its workers: repeated with every pop until they expire, and logged once.

use muster_protocol::legacy::popped::Told;

/// Messages of one answer that are read at all.
const MOST: usize = 50;

/// Ids of the messages in the last reply.
#[derive(Debug, Default)]
pub struct Heard(Vec<String>);

impl Heard {
    /// The messages that were not in the last reply.
    pub fn news(&mut self, told: Vec<Told>) -> Vec<Told> {
        let ids = told.iter().take(MOST).map(|told| told.id.clone()).collect();
        let before = std::mem::replace(&mut self.0, ids);
        let told = told.into_iter().take(MOST);
        told.filter(|told| !before.contains(&told.id)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::Heard;
    use muster_protocol::legacy::popped::Told;

    #[test]
    fn a_message_is_news_once_for_as_long_as_it_is_told() {
        let mut heard = Heard::default();
        let mut news = |ids: &[&str]| {
            let told = ids.iter().map(|id| Told {
                id: (*id).to_owned(),
                origin: "moderators".to_owned(),
                text: "update, please".to_owned(),
            });
            let news = heard.news(told.collect()).into_iter();
            news.map(|told| told.id).collect::<Vec<_>>()
        };
        assert_eq!(news(&["a"]), ["a"]);
        assert_eq!(news(&["a", "b"]), ["b"]);
        assert!(news(&["b"]).is_empty());
        assert_eq!(news(&["a"]), ["a"]);
        assert_eq!(news(&["x"; 100]).len(), 50);
    }
}
