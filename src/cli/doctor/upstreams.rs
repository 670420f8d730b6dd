//! The programs that serve models of the configuration: whether each answers and has its model.

use super::Check;
use crate::config::Config;
use crate::daemon::upstream_states;

pub async fn checks(config: &Config) -> Vec<Check> {
    const NAME: &str = "other programs";
    let states = upstream_states(config).await.into_iter();
    let checks = states.map(|state| match state.model {
        Ok(model) => Check::ok(
            NAME,
            format!(
                "{} is served by {} at {}: context of {} tokens, {} jobs at once",
                state.name,
                model.software(),
                state.url,
                model.context,
                model.jobs
            ),
        ),
        Err(why) => Check::fail(
            NAME,
            format!("{} is not served by {}: {why}", state.name, state.url),
            "start the program, and check url, api and model in its section",
        ),
    });
    checks.collect()
}
