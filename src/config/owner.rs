//! `[owner]`: limits in favour of the machine's owner.

use std::time::Duration;

use super::hours::Hours;
use super::page::{KudosWorth, PageAddress};
use super::raw::Raw;
use super::setting::settings;
use super::units::{Size, show_duration};
use super::value::{Place, Value};

settings! {
    /// Resources kept for the owner of the machine, and when the worker is paused. While a rule holds, no jobs are taken, running ones are handed back, and no model is in memory.
    pub struct OwnerConfig = "owner" {
        /// Device memory that models never use. Raise it to work on the same machine.
        keep_free: Size where (0..=1 << 50) = "512 MiB",
        /// Hours in which jobs are taken, in the machine's own time: ["22:00-07:00"], or ["mon-fri 18:00-08:00", "sat,sun"]. Set it to lend the machine at night.
        hours: Option<Hours>; unset "at any hour",
        /// Programs that have the machine to themselves, by the names that `ps` shows. Set it to games, for instance.
        pause_for: Vec<String> = [],
        /// Memory of a GPU that other programs may use, all together. Set it where other programs compute on the same GPU.
        others_gpu_memory: Option<Size> where (0..=1 << 50); unset "any",
        /// Share of the processors, in percent, that other programs may use. Set it to stay out of the way of other work.
        others_load: Option<usize> where (1..=100); unset "any",
        /// How long ago a keyboard, a mouse or a terminal of this machine must have been used. Set it on a machine that people sit at.
        idle_for: Option<Duration> where (1..=86400); unset "jobs are taken while people work",
        /// Temperature of a GPU in degrees Celsius from which on the worker rests. Set it for the sake of noise or hardware.
        most_heat: Option<usize> where (30..=110); unset "as hot as the driver allows",
        /// Watts that the GPUs and processors of this machine may draw together, as far as they can be read. To keep to it, models rest between steps; they stay in memory, and jobs take longer. Set it for the sake of noise, heat or the bill.
        most_watts: Option<usize> where (10..=1000000); unset "as much as the hardware allows",
        /// For how long no rule may hold before jobs are taken again. Raise it where programs come and go.
        resume_after: Duration where (0..=86400) = "30s",
        /// Price of a kilowatt-hour, in any currency. With it `worker status` shows the cost of today's energy.
        energy_price: Option<EnergyPrice>; unset "the cost of energy is not shown",
        /// Worth of 1000 kudos in the currency of energy_price. With it the owner's page shows earnings less the cost of energy.
        kudos_worth: Option<KudosWorth>; unset "earnings are shown in kudos",
        /// Loopback address of the owner's page, or false for none. Change it where another program uses the port.
        page: PageAddress = "127.0.0.1:7861",
    }
}

/// An amount of any currency for a kilowatt-hour.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct EnergyPrice(pub f64);

impl Value for EnergyPrice {
    fn wanted() -> String {
        "a price of a kilowatt-hour from 0 to 1000000, such as 0.3".to_owned()
    }

    fn parse(raw: &Raw, _: &Place<'_>) -> Result<Self, String> {
        amount(raw).map(Self).ok_or_else(String::new)
    }

    fn show(&self) -> Option<String> {
        Some(self.0.to_string())
    }
}

/// An amount of a currency, at most a million.
pub(super) fn amount(raw: &Raw) -> Option<f64> {
    let amount = match raw {
        Raw::Whole(amount) => *amount as f64,
        Raw::Fraction(amount) => *amount,
        Raw::Untyped(text) => text.trim().parse().ok()?,
        _ => return None,
    };
    (0.0..=1e6).contains(&amount).then_some(amount)
}

impl OwnerConfig {
    /// Whether any rule needs measurements of the machine.
    pub fn has_rules(&self) -> bool {
        self.most_watts.is_some()
            || self.hours.is_some()
            || !self.pause_for.is_empty()
            || self.others_gpu_memory.is_some()
            || self.others_load.is_some()
            || self.idle_for.is_some()
            || self.most_heat.is_some()
    }

    /// The configured rules, in the syntax of the file.
    pub fn rules(&self) -> Vec<String> {
        let programs = (!self.pause_for.is_empty()).then(|| self.pause_for.join(", "));
        let all = [
            ("hours", self.hours.as_ref().map(ToString::to_string)),
            ("pause_for", programs),
            (
                "others_gpu_memory",
                self.others_gpu_memory.map(|size| size.to_string()),
            ),
            (
                "others_load",
                self.others_load.map(|most| format!("{most} %")),
            ),
            ("idle_for", self.idle_for.map(show_duration)),
            ("most_heat", self.most_heat.map(|most| format!("{most} °C"))),
            (
                "most_watts",
                self.most_watts.map(|most| format!("{most} W")),
            ),
        ];
        let set = all.into_iter();
        set.filter_map(|(key, value)| Some(format!("owner.{key} = {}", value?)))
            .collect()
    }
}
