//! Memory shares of models on a device.

use std::fmt;

use super::fit::{Fit, Room, size};
use muster_engine::runtime::SharedWeights;

/// Parts of the memory that was free on a device before models were loaded.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Shares {
    pub place: String,
    pub free_bytes: u64,
    pub weight_bytes: u64,
    pub kv_bytes: u64,
    /// The pages of all models.
    pub pages: usize,
    pub workspace_bytes: u64,
    /// `owner.keep_free`.
    pub kept_bytes: u64,
    pub left_bytes: u64,
}

impl Shares {
    /// Shares of these models. Shared weights count once.
    pub fn of<'a>(
        room: &Room,
        models: impl Iterator<Item = (&'a Fit, &'a [SharedWeights])>,
    ) -> Self {
        let mut seen: Vec<&SharedWeights> = Vec::new();
        let mut shares = Self {
            place: room.place.clone(),
            free_bytes: room.free_bytes,
            kept_bytes: room.kept_bytes.min(room.free_bytes),
            ..Self::default()
        };
        for (fit, shared) in models {
            let (again, new): (Vec<_>, Vec<_>) = shared.iter().partition(|it| seen.contains(it));
            let again: u64 = again.iter().map(|it| it.bytes).sum();
            shares.weight_bytes += fit.weight_bytes.saturating_sub(again);
            shares.kv_bytes += fit.kv_bytes;
            shares.pages += fit.pages();
            shares.workspace_bytes += fit.workspace_bytes();
            seen.extend(new);
        }
        let taken_bytes = shares.weight_bytes + shares.kv_bytes + shares.workspace_bytes;
        shares.left_bytes = room.left_bytes().saturating_sub(taken_bytes);
        shares
    }
}

impl fmt::Display for Shares {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [free, weights, kv, workspace, kept, left] = [
            self.free_bytes,
            self.weight_bytes,
            self.kv_bytes,
            self.workspace_bytes,
            self.kept_bytes,
            self.left_bytes,
        ]
        .map(size);
        let Self { place, pages, .. } = self;
        write!(
            f,
            "{place}: {free} free = {weights} weights + {kv} KV cache ({pages} pages) + {workspace} workspace + {kept} keep_free + {left} left"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::super::fit::{Needs, Wishes, fit};
    use super::*;
    use muster_engine::runtime::DeviceChoice;

    const MIB: u64 = 1 << 20;

    fn gpu(free_mib: u64) -> Room {
        Room {
            device: DeviceChoice::Cuda(0),
            place: "GPU 0".to_owned(),
            free_bytes: free_mib * MIB,
            kept_bytes: 512 * MIB,
        }
    }

    #[test]
    fn the_shares_of_models_are_all_of_the_memory() {
        let room = gpu(8192);
        let text = Needs {
            weight_bytes: 2048 * MIB,
            kv_bytes_per_token: 64 << 10,
            workspace_bytes: 300 * MIB,
            scratch_bytes_per_token: 0,
            context: 8192,
            runs_one_job: false,
        };
        let wishes = Wishes {
            max_running: 16,
            ..Wishes::default()
        };
        let text = fit(text, wishes, &room).unwrap();
        let drawing = fit(Needs::beside(1000 * MIB, 400 * MIB), wishes, &room).unwrap();
        let none: &[SharedWeights] = &[];
        let shares = Shares::of(&room, [(&text, none), (&drawing, none)].into_iter());
        assert_eq!(shares.weight_bytes, 3048 * MIB);
        assert_eq!((shares.kv_bytes, shares.pages), (1024 * MIB, 512));
        let sum = shares.weight_bytes + shares.kv_bytes + shares.workspace_bytes;
        assert_eq!(sum + shares.kept_bytes + shares.left_bytes, room.free_bytes);
        assert_eq!(
            shares.to_string(),
            "GPU 0: 8.0 GiB free = 3.0 GiB weights + 1.0 GiB KV cache (512 pages) + 956.0 MiB workspace + 512.0 MiB keep_free + 2.6 GiB left"
        );
    }

    #[test]
    fn convolutions_take_their_rows_on_a_gpu() {
        let (large, small) = (Needs::beside(MIB, 400 * MIB), Needs::beside(MIB, MIB));
        let workspace = |needs, room: &Room| {
            let fitted = fit(needs, Wishes::default(), room).unwrap();
            fitted.workspace_bytes() / MIB
        };
        let (there, here) = (
            gpu(4096),
            Room {
                device: DeviceChoice::Cpu,
                ..gpu(4096)
            },
        );
        assert_eq!(
            (workspace(large, &here), workspace(large, &there)),
            (400, 656)
        );
        assert_eq!((workspace(small, &here), workspace(small, &there)), (1, 9));
        assert!(fit(large, Wishes::default(), &gpu(512 + 500)).is_err());
        let least = Fit::least_bytes(&large, &Wishes::default(), there.device);
        assert_eq!(least, 657 * MIB);
    }
}
