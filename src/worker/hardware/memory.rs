//! Main memory: that of the machine, or the limit of a control group.

use std::fs;
use std::path::{Path, PathBuf};

use super::Memory;

pub fn read() -> Memory {
    read_below(Path::new("/"))
}

/// Like `read`, with the system's files below another root.
fn read_below(root: &Path) -> Memory {
    let machine = machine(&fs::read_to_string(root.join("proc/meminfo")).unwrap_or_default());
    groups(root)
        .iter()
        .filter_map(|group| group.limit())
        .fold(machine, |memory, limit| Memory {
            total_bytes: memory.total_bytes.min(limit.total_bytes),
            available_bytes: memory.available_bytes.min(limit.available_bytes),
        })
}

fn machine(meminfo: &str) -> Memory {
    let field = |name: &str| {
        let line = meminfo
            .lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        let kib = line.and_then(|line| {
            line.trim()
                .trim_end_matches("kB")
                .trim()
                .parse::<u64>()
                .ok()
        });
        kib.unwrap_or(0).saturating_mul(1024)
    };
    Memory {
        total_bytes: field("MemTotal"),
        available_bytes: field("MemAvailable"),
    }
}

/// A control group that may limit us, and how its version names things.
struct Group {
    folder: PathBuf,
    names: &'static Names,
}

struct Names {
    limit: &'static str,
    usage: &'static str,
    /// In `memory.stat`: cached file contents that the kernel can reclaim.
    cache: &'static str,
}

const VERSION_1: Names = Names {
    limit: "memory.limit_in_bytes",
    usage: "memory.usage_in_bytes",
    cache: "total_inactive_file",
};
const VERSION_2: Names = Names {
    limit: "memory.max",
    usage: "memory.current",
    cache: "inactive_file",
};

/// Our control groups and all their parents, of which the lowest limit counts. In a container the kernel's path may be
/// outside the visible tree; then the visible root is our group.
fn groups(root: &Path) -> Vec<Group> {
    let ours = fs::read_to_string(root.join("proc/self/cgroup")).unwrap_or_default();
    let mut groups = Vec::new();
    for line in ours.lines() {
        let mut fields = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (fields.next(), fields.next()) else {
            continue;
        };
        let (mount, names) = match controllers {
            "" => (root.join("sys/fs/cgroup"), &VERSION_2),
            _ if controllers.split(',').any(|name| name == "memory") => {
                (root.join("sys/fs/cgroup/memory"), &VERSION_1)
            }
            _ => continue,
        };
        let folder = mount.join(path.trim_start_matches('/'));
        let above = folder
            .ancestors()
            .take_while(|folder| folder.starts_with(&mount));
        groups.extend(above.map(|folder| Group {
            folder: folder.to_owned(),
            names,
        }));
    }
    groups
}

impl Group {
    /// `None` without a limit: no file, or the word `max`.
    fn limit(&self) -> Option<Memory> {
        let limit = self.number(self.names.limit)?;
        let used = self
            .number(self.names.usage)
            .unwrap_or(0)
            .saturating_sub(self.cache());
        Some(Memory {
            total_bytes: limit,
            available_bytes: limit.saturating_sub(used),
        })
    }

    fn number(&self, file: &str) -> Option<u64> {
        fs::read_to_string(self.folder.join(file))
            .ok()?
            .trim()
            .parse()
            .ok()
    }

    fn cache(&self) -> u64 {
        let stat = fs::read_to_string(self.folder.join("memory.stat")).unwrap_or_default();
        let mut fields = stat.lines().filter_map(|line| line.split_once(' '));
        let cache = fields.find(|(name, _)| *name == self.names.cache);
        cache
            .and_then(|(_, bytes)| bytes.trim().parse().ok())
            .unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MEMINFO: &str = "MemTotal:        1000 kB\nMemFree: 10 kB\nMemAvailable:     800 kB\n";

    /// The memory of a system that has these files besides its `meminfo`.
    fn memory(files: &[(&str, &str)]) -> (u64, u64) {
        let root = tempfile::tempdir().unwrap();
        for (file, text) in files.iter().chain(&[("proc/meminfo", MEMINFO)]) {
            let path = root.path().join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let memory = read_below(root.path());
        (memory.total_bytes / 1024, memory.available_bytes / 1024)
    }

    #[test]
    fn without_control_groups_the_machine_counts() {
        assert_eq!(memory(&[]), (1000, 800));
    }

    #[test]
    fn the_tightest_group_above_us_counts() {
        let files = [
            ("proc/self/cgroup", "0::/a/b\n"),
            ("sys/fs/cgroup/a/b/memory.max", "max\n"),
            ("sys/fs/cgroup/a/memory.max", "512000\n"),
            ("sys/fs/cgroup/a/memory.current", "307200\n"),
            (
                "sys/fs/cgroup/a/memory.stat",
                "anon 1\ninactive_file 102400\n",
            ),
        ];
        assert_eq!(memory(&files), (500, 300));
    }

    #[test]
    fn version_1_counts_too_and_its_huge_number_is_no_limit() {
        let cgroup = ("proc/self/cgroup", "5:cpu,memory:/job\n");
        let limit = "sys/fs/cgroup/memory/job/memory.limit_in_bytes";
        assert_eq!(memory(&[cgroup, (limit, "204800\n")]), (200, 200));
        assert_eq!(
            memory(&[cgroup, (limit, "9223372036854771712\n")]),
            (1000, 800)
        );
    }

    #[test]
    fn in_a_container_the_visible_root_is_our_group() {
        let files = [
            ("proc/self/cgroup", "0::/host/pod/x\n"),
            ("sys/fs/cgroup/memory.max", "102400\n"),
        ];
        assert_eq!(memory(&files), (100, 100));
    }
}
