//! The time of the last user input, from files that every user may read: access times of terminals, interrupts of the i8042
//! controller, and `urbnum` of USB keyboards and mice, which grows with each of their reports.
//!
//! Event devices in `/dev/input` need root and keep no times. Bluetooth devices have no such counter.

use std::fmt;
use std::fs;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;
use std::time::{Duration, Instant, SystemTime};

/// Class of human interface devices.
const HUMAN_INTERFACE: &str = "03";
/// Boot protocols of keyboards and mice.
const KEYBOARD_OR_MOUSE: [&str; 2] = ["01", "02"];

/// Follows the counters over time.
#[derive(Debug, Default)]
pub struct InputWatch {
    /// The last counts, and the time of their last change, if there was one.
    last: Option<(InputCounts, Option<Instant>)>,
}

/// The sources of user input that can be read on this machine.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct InputSources {
    pub terminals: usize,
    /// Keyboard and mouse of the i8042 controller, as in notebooks.
    pub has_i8042: bool,
    pub usb_devices: usize,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct InputCounts {
    interrupts: Option<u64>,
    /// Number of devices, and the sum of their request counts.
    usb: (usize, u64),
}

impl InputWatch {
    /// Time since the last input. `None` without a source, or without input since the first call.
    pub fn idle(&mut self) -> Option<Duration> {
        let now = InputCounts::read(Path::new("/"));
        let used = self.used(now, Instant::now());
        let keyboard = used.map(|at| at.elapsed());
        terminals().into_iter().chain(keyboard).min()
    }

    fn used(&mut self, counts: InputCounts, now: Instant) -> Option<Instant> {
        let at = match self.last {
            None => None,
            Some((last, at)) if last == counts => at,
            Some(_) => Some(now),
        };
        self.last = Some((counts, at));
        at
    }
}

impl InputSources {
    pub fn read() -> Self {
        let counts = InputCounts::read(Path::new("/"));
        Self {
            terminals: terminals().len(),
            has_i8042: counts.interrupts.is_some(),
            usb_devices: counts.usb.0,
        }
    }

    pub fn are_none(&self) -> bool {
        *self == Self::default()
    }

    /// Whether a keyboard or mouse is among them.
    pub fn have_keyboards(&self) -> bool {
        self.has_i8042 || self.usb_devices > 0
    }
}

impl fmt::Display for InputSources {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} terminals", self.terminals)?;
        if self.has_i8042 {
            out.write_str(", keyboard and mouse of the i8042 controller")?;
        }
        match self.usb_devices {
            0 => Ok(()),
            1 => out.write_str(", 1 USB keyboard or mouse"),
            count => write!(out, ", {count} USB keyboards and mice"),
        }
    }
}

impl InputCounts {
    fn read(root: &Path) -> Self {
        let interrupts = fs::read_to_string(root.join("proc/interrupts")).ok();
        Self {
            interrupts: interrupts.as_deref().and_then(keyboard_interrupts),
            usb: usb_requests(root),
        }
    }
}

/// All interrupts of the i8042 controller.
fn keyboard_interrupts(interrupts: &str) -> Option<u64> {
    let lines = interrupts.lines().filter(|line| line.contains("i8042"));
    let counts = lines.map(|line| {
        let numbers = line.split_whitespace().skip(1);
        let numbers = numbers.map_while(|number| number.parse::<u64>().ok());
        numbers.sum::<u64>()
    });
    counts.reduce(|sum, count| sum + count)
}

/// USB devices with a keyboard or a mouse, and the sum of their request counts. The kernel submits a new request after
/// each report, and devices report changes only.
fn usb_requests(root: &Path) -> (usize, u64) {
    let folder = root.join("sys/bus/usb/devices");
    let entries = fs::read_dir(&folder).into_iter().flatten().flatten();
    // Interfaces are named by their device: `1-2.4:1.0`.
    let mut devices: Vec<String> = entries
        .filter(|entry| is_keyboard_or_mouse(&entry.path()))
        .filter_map(|entry| {
            let name = entry.file_name();
            Some(name.to_str()?.split_once(':')?.0.to_owned())
        })
        .collect();
    devices.sort_unstable();
    devices.dedup();
    let count = |device: &String| {
        let text = fs::read_to_string(folder.join(device).join("urbnum")).ok()?;
        text.trim().parse::<u64>().ok()
    };
    let counts: Vec<u64> = devices.iter().filter_map(count).collect();
    (counts.len(), counts.iter().sum())
}

fn is_keyboard_or_mouse(interface: &Path) -> bool {
    let read = |name: &str| fs::read_to_string(interface.join(name)).unwrap_or_default();
    read("bInterfaceClass").trim() == HUMAN_INTERFACE
        && KEYBOARD_OR_MOUSE.contains(&read("bInterfaceProtocol").trim())
}

/// Time since the last access of each terminal.
fn terminals() -> Vec<Duration> {
    let folders = ["/dev/pts", "/dev"];
    let entries = folders
        .into_iter()
        .flat_map(|folder| fs::read_dir(folder).into_iter().flatten().flatten());
    let is_terminal = |path: &Path| {
        let name = path
            .file_name()
            .and_then(|name| name.to_str())
            .unwrap_or("");
        let number = match path.starts_with("/dev/pts") {
            true => Some(name),
            false => name.strip_prefix("tty"),
        };
        number.is_some_and(|it| !it.is_empty() && it.bytes().all(|byte| byte.is_ascii_digit()))
    };
    let now = SystemTime::now();
    entries
        .map(|entry| entry.path())
        .filter(|path| is_terminal(path))
        .filter_map(|path| fs::metadata(path).ok())
        .filter(|metadata| metadata.file_type().is_char_device())
        .filter_map(|metadata| metadata.accessed().ok())
        .map(|used| now.duration_since(used).unwrap_or_default())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interrupts_of_the_keyboard_are_summed() {
        let text = "            CPU0       CPU1\n  1:       9        11   IO-APIC    1-edge      i8042\n\
                     12:        2         3   IO-APIC   12-edge      i8042\n 16:  7 7  IO-APIC  xhci\n";
        assert_eq!(keyboard_interrupts(text), Some(25));
        assert_eq!(keyboard_interrupts(" 16:  7 7  xhci\n"), None);
    }

    #[test]
    fn usb_keyboards_and_mice_are_counted_and_other_devices_are_not() {
        let folder = tempfile::tempdir().unwrap();
        let devices = folder.path().join("sys/bus/usb/devices");
        let interface = |name: &str, class: &str, protocol: &str| {
            let interface = devices.join(name);
            fs::create_dir_all(&interface).unwrap();
            fs::write(interface.join("bInterfaceClass"), format!("{class}\n")).unwrap();
            fs::write(
                interface.join("bInterfaceProtocol"),
                format!("{protocol}\n"),
            )
            .unwrap();
        };
        let device = |name: &str, requests: u64| {
            fs::create_dir_all(devices.join(name)).unwrap();
            fs::write(devices.join(name).join("urbnum"), format!("{requests}\n")).unwrap();
        };
        // A receiver of both, a disk, and a power supply that reports by itself.
        interface("1-1:1.0", "03", "01");
        interface("1-1:1.1", "03", "02");
        interface("1-2:1.0", "08", "50");
        interface("1-3:1.0", "03", "00");
        for (name, requests) in [("1-1", 40), ("1-2", 9000), ("1-3", 70)] {
            device(name, requests);
        }
        let counts = InputCounts::read(folder.path());
        assert_eq!((counts.usb, counts.interrupts), ((1, 40), None));
        let sources = InputSources {
            usb_devices: 1,
            ..InputSources::default()
        };
        assert_eq!(sources.to_string(), "0 terminals, 1 USB keyboard or mouse");

        let mut watch = InputWatch::default();
        let began = Instant::now();
        let later = began + Duration::from_secs(5);
        assert_eq!(watch.used(counts, began), None, "its last use is unknown");
        device("1-2", 9999);
        let same = InputCounts::read(folder.path());
        assert_eq!(watch.used(same, later), None);
        device("1-1", 41);
        let used = InputCounts::read(folder.path());
        assert_eq!(watch.used(used, later), Some(later));
        let afterwards = later + Duration::from_secs(5);
        assert_eq!(watch.used(used, afterwards), Some(later));
    }
}
