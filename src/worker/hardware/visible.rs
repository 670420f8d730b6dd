//! The GPUs that CUDA shows to this process, and their order: by environment variables, with CUDA's rules. Pure.
//!
//! NVML lists every GPU by its bus position. `main` makes CUDA use the same order, unless the owner sets another; then
//! CUDA hides GPUs that `CUDA_VISIBLE_DEVICES` does not list, and renumbers the others.

/// Environment variables about GPUs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CudaEnvironment {
    /// `CUDA_VISIBLE_DEVICES`: numbers, the beginnings of UUIDs, or the UUID of a slice.
    pub visible: Option<String>,
    /// `CUDA_DEVICE_ORDER`.
    pub order: Option<String>,
}

impl CudaEnvironment {
    pub fn read() -> Self {
        let read = |name| std::env::var_os(name).map(|text| text.to_string_lossy().into_owned());
        Self {
            visible: read("CUDA_VISIBLE_DEVICES"),
            order: read("CUDA_DEVICE_ORDER"),
        }
    }

    /// The selected slice (MIG) of a GPU. CUDA then shows only this slice.
    pub fn slice(&self) -> Option<&str> {
        let first = self.visible.as_deref()?.split(',').next()?.trim();
        first.starts_with("MIG-").then_some(first)
    }

    /// The indices in NVML's order of the GPUs that CUDA shows, in CUDA's order. Entries after an invalid or repeated
    /// one are ignored.
    pub fn shown(&self, uuids: &[Option<String>]) -> Vec<usize> {
        let Some(visible) = &self.visible else {
            return (0..uuids.len()).collect();
        };
        let mut shown = Vec::new();
        for entry in visible.split(',') {
            match card(entry.trim(), uuids) {
                Some(index) if !shown.contains(&index) => shown.push(index),
                _ => break,
            }
        }
        shown
    }

    /// Notes for the owner about these variables.
    pub fn notes(&self, shown: &[usize], cards: usize) -> Vec<String> {
        let mut notes = Vec::new();
        if let Some(order) = self.order.as_deref().filter(|&order| order != BY_BUS)
            && cards > 1
        {
            notes.push(format!(
                "CUDA_DEVICE_ORDER is {order:?}, but GPUs are listed by PCI bus: jobs may run on another GPU than listed; set CUDA_DEVICE_ORDER to {BY_BUS}"
            ));
        }
        if let Some(visible) = &self.visible
            && !shown.iter().copied().eq(0..cards)
        {
            notes.push(match shown.len() {
                0 => format!(
                    "CUDA_VISIBLE_DEVICES is {visible:?} and hides every GPU; models run on the CPU"
                ),
                some => format!(
                    "CUDA_VISIBLE_DEVICES is {visible:?}: {some} of {cards} GPUs are used, numbered in this order"
                ),
            });
        }
        notes
    }
}

const BY_BUS: &str = "PCI_BUS_ID";

/// The GPU of an entry: by its number, or by a unique prefix of its UUID.
fn card(entry: &str, uuids: &[Option<String>]) -> Option<usize> {
    if !entry.starts_with("GPU-") {
        return entry.parse().ok().filter(|&index| index < uuids.len());
    }
    let begins =
        |uuid: &Option<String>| uuid.as_deref().is_some_and(|uuid| uuid.starts_with(entry));
    let mut named = (0..uuids.len()).filter(|&index| begins(&uuids[index]));
    named.next().filter(|_| named.next().is_none())
}

#[cfg(test)]
mod tests {
    use super::CudaEnvironment;

    fn visible(text: &str) -> CudaEnvironment {
        CudaEnvironment {
            visible: Some(text.to_owned()),
            order: None,
        }
    }

    fn check(text: &str, wanted: &[usize]) {
        let uuids = ["GPU-aa10-1", "GPU-aa20-2", "GPU-bb30-3"].map(|uuid| Some(uuid.to_owned()));
        assert_eq!(visible(text).shown(&uuids), wanted, "{text:?}");
    }

    #[test]
    fn cards_are_named_by_number_and_counted_in_that_order() {
        check("0,1,2", &[0, 1, 2]);
        check("2, 0", &[2, 0]);
        check("1", &[1]);
        assert_eq!(CudaEnvironment::default().shown(&[None, None]), [0, 1]);
    }

    #[test]
    fn cards_are_named_by_as_much_of_their_uuid_as_is_their_own() {
        check("GPU-bb30-3,GPU-aa10", &[2, 0]);
        check("GPU-b,0", &[2, 0]);
        check("GPU-aa,2", &[]);
        check("GPU-cc", &[]);
    }

    #[test]
    fn nothing_counts_after_what_names_no_card() {
        check("", &[]);
        check("-1", &[]);
        check("1,-1,0", &[1]);
        check("0,3,1", &[0]);
        check("0,1,1,2", &[0, 1]);
        check("MIG-1,0", &[]);
    }

    #[test]
    fn a_slice_is_shown_alone() {
        let slice = |text: &str| visible(text).slice().map(str::to_owned);
        assert_eq!(slice("MIG-1, MIG-2").as_deref(), Some("MIG-1"));
        assert_eq!(slice(" MIG-1,0").as_deref(), Some("MIG-1"));
        for text in ["0,MIG-1", "GPU-aa10-1", ""] {
            assert_eq!(slice(text), None);
        }
        assert_eq!(CudaEnvironment::default().slice(), None);
    }

    #[test]
    fn the_owner_is_told_only_of_what_differs() {
        let notes = |text: &str, shown: &[usize]| visible(text).notes(shown, 2);
        assert!(notes("0,1", &[0, 1]).is_empty());
        assert_eq!(
            notes("1", &[1]),
            ["CUDA_VISIBLE_DEVICES is \"1\": 1 of 2 GPUs are used, numbered in this order"]
        );
        assert_eq!(
            notes("", &[]),
            ["CUDA_VISIBLE_DEVICES is \"\" and hides every GPU; models run on the CPU"]
        );
        let by_speed = CudaEnvironment {
            visible: None,
            order: Some("FASTEST_FIRST".to_owned()),
        };
        assert!(
            by_speed.notes(&[0, 1], 2)[0].starts_with("CUDA_DEVICE_ORDER is \"FASTEST_FIRST\"")
        );
        assert!(by_speed.notes(&[0], 1).is_empty());
    }
}
