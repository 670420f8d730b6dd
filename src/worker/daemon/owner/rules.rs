//! The rules of `[owner]`: from the state of the machine to the reasons why it takes no jobs.

use std::time::{Duration, Instant};

use muster_config::{OwnerConfig, Size, show_duration};

/// The machine at one moment. A value that could not be read is absent, and no rule holds because of it.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct MachineUse {
    /// Days since Monday and minutes since midnight, in local time.
    pub time: Option<(usize, u32)>,
    /// Names of running programs.
    pub programs: Vec<String>,
    /// The proportion of processor time that other programs used since the last check, from 0 to 1.
    pub others_load: Option<f64>,
    /// Since a keyboard, a mouse or a terminal was used.
    pub idle: Option<Duration>,
    pub gpus: Vec<GpuUse>,
    /// Mean power of GPUs and processors since the last check.
    pub watts: Option<f64>,
}

#[derive(Debug, Clone, Default, PartialEq)]
pub struct GpuUse {
    /// The memory that other programs have.
    pub others_bytes: u64,
    pub celsius: Option<u32>,
}

/// Tracks the rules over time: a reason stays for `resume_after` after it ends.
#[derive(Debug, Default)]
pub struct Rules {
    /// The reasons that were true last, and when.
    last: Option<(Instant, Vec<String>)>,
}

impl Rules {
    /// The reasons to take no jobs now.
    pub fn reasons(
        &mut self,
        config: &OwnerConfig,
        now: Instant,
        machine: &MachineUse,
    ) -> Vec<String> {
        let reasons = reasons(config, machine);
        if !reasons.is_empty() {
            self.last = Some((now, reasons.clone()));
            return reasons;
        }
        let last = self
            .last
            .take_if(|(at, _)| now.saturating_duration_since(*at) >= config.resume_after);
        drop(last);
        match &self.last {
            Some((_, reasons)) => {
                let wait = show_duration(config.resume_after);
                let gone = |reason: &String| format!("until {wait} after: {reason}");
                reasons.iter().map(gone).collect()
            }
            None => Vec::new(),
        }
    }
}

fn reasons(config: &OwnerConfig, machine: &MachineUse) -> Vec<String> {
    let mut reasons = Vec::new();
    if let (Some(hours), Some((day, minute))) = (&config.hours, machine.time)
        && !hours.contain(day, minute)
    {
        reasons.push(format!("outside owner.hours ({hours})"));
    }
    let running = |name: &&String| {
        machine
            .programs
            .iter()
            .any(|program| is_program(program, name))
    };
    if let Some(name) = config.pause_for.iter().find(running) {
        reasons.push(format!("while {name} runs (owner.pause_for)"));
    }
    if let (Some(most), Some(load)) = (config.others_load, machine.others_load) {
        let percent = (load * 100.0).round() as usize;
        if percent > most {
            reasons.push(format!(
                "other programs use {percent} % of the processors (owner.others_load = {most})"
            ));
        }
    }
    if let (Some(wanted), Some(idle)) = (config.idle_for, machine.idle)
        && idle < wanted
    {
        let wanted = show_duration(wanted);
        reasons.push(format!(
            "a keyboard, a mouse or a terminal was used within the last {wanted} (owner.idle_for)"
        ));
    }
    for (at, gpu) in machine.gpus.iter().enumerate() {
        if let Some(most) = config.others_gpu_memory
            && gpu.others_bytes > most.bytes
        {
            let used = Size {
                bytes: gpu.others_bytes >> 20 << 20,
            };
            reasons.push(format!(
                "other programs use {used} of GPU {at} (owner.others_gpu_memory = {most})"
            ));
        }
        if let (Some(most), Some(celsius)) = (config.most_heat, gpu.celsius)
            && celsius as usize >= most
        {
            reasons.push(format!(
                "GPU {at} has {celsius} °C (owner.most_heat = {most})"
            ));
        }
    }
    reasons
}

/// The kernel cuts names after fifteen bytes.
fn is_program(running: &str, name: &str) -> bool {
    let cut = name.len().min(15);
    running == name || (name.is_char_boundary(cut) && running == &name[..cut])
}

#[cfg(test)]
mod tests {
    use muster_config::{Hours, PageAddress};

    use super::*;

    fn config() -> OwnerConfig {
        OwnerConfig {
            keep_free: Size { bytes: 0 },
            hours: Hours::parse_all(&["22:00-07:00".to_owned()]),
            pause_for: vec!["game".to_owned(), "a-name-of-more-than-fifteen".to_owned()],
            others_gpu_memory: Some(Size { bytes: 1 << 30 }),
            others_load: Some(50),
            idle_for: Some(Duration::from_secs(600)),
            most_heat: Some(80),
            most_watts: None,
            resume_after: Duration::from_secs(30),
            energy_price: None,
            kudos_worth: None,
            page: PageAddress(None),
        }
    }

    type MachineChange = fn(&mut MachineUse);

    /// At night, with an unattended machine.
    fn night() -> MachineUse {
        MachineUse {
            time: Some((2, 23 * 60)),
            programs: vec!["sh".to_owned()],
            others_load: Some(0.1),
            idle: Some(Duration::from_secs(3600)),
            gpus: vec![GpuUse {
                others_bytes: 1 << 29,
                celsius: Some(60),
            }],
            watts: None,
        }
    }

    #[test]
    fn each_rule_has_its_reason() {
        assert_eq!(reasons(&config(), &night()), [""; 0]);
        assert_eq!(reasons(&config(), &MachineUse::default()), [""; 0]);
        let changes: [(MachineChange, &str); 7] = [
            (
                |machine| machine.time = Some((2, 12 * 60)),
                "outside owner.hours (22:00-07:00)",
            ),
            (
                |machine| machine.programs.push("game".to_owned()),
                "while game runs",
            ),
            (
                |machine| machine.programs.push("a-name-of-more-".to_owned()),
                "while a-name-of-more-than-fifteen runs",
            ),
            (
                |machine| machine.others_load = Some(0.51),
                "use 51 % of the processors",
            ),
            (
                |machine| machine.idle = Some(Duration::from_secs(599)),
                "within the last 10",
            ),
            (
                |machine| machine.gpus[0].others_bytes = (1 << 30) + 1,
                "use 1 GiB of GPU 0",
            ),
            (
                |machine| machine.gpus[0].celsius = Some(80),
                "GPU 0 has 80 °C",
            ),
        ];
        for (change, wanted) in changes {
            let mut machine = night();
            change(&mut machine);
            let found = reasons(&config(), &machine);
            assert!(
                matches!(found.as_slice(), [one] if one.contains(wanted)),
                "{found:?}"
            );
        }
    }

    /// A week of nights, with a game on each evening: jobs are taken when no game runs, and not at once after it.
    #[test]
    fn a_week_is_followed_minute_by_minute() {
        let (mut rules, begin) = (Rules::default(), Instant::now());
        let config = OwnerConfig {
            resume_after: Duration::from_secs(300),
            ..config()
        };
        let mut open = 0;
        for minute in 0..7 * 24 * 60_u32 {
            let (day, of_day) = ((minute / 1440) as usize, minute % 1440);
            let mut machine = night();
            machine.time = Some((day, of_day));
            let plays = (1290..1350).contains(&of_day);
            if plays {
                machine.programs.push("game".to_owned());
            }
            let now = begin + Duration::from_secs(u64::from(minute) * 60);
            let reasons = rules.reasons(&config, now, &machine);
            let is_night = !(420..1320).contains(&of_day);
            let may_be_open = is_night && !plays;
            assert!(may_be_open || !reasons.is_empty(), "{day} {of_day}");
            open += u32::from(reasons.is_empty());
        }
        // The last minute of the game begins at 22:29, and five minutes later there are 86 left of the day.
        assert_eq!(open, 7 * (86 + 420));
    }
}
