//! A webhook call: three attempts of three seconds each (F-117 of the AI Horde API).

use std::time::Duration;

use tokio::time::sleep;
use tracing::debug;

use super::Call;
use crate::egress::{Egress, EgressError, Limits};

const ATTEMPTS: u32 = 3;
/// Pause after the first attempt, doubled after the second.
const PAUSE: Duration = Duration::from_secs(1);

/// Whether the call was accepted. The address is private and never logged.
pub async fn deliver(egress: &Egress, call: &Call) -> bool {
    for attempt in 1..=ATTEMPTS {
        let body = call.body.clone();
        match egress.post_json(&call.address, body, Limits::WEBHOOK).await {
            Ok(status) if status < 400 => return true,
            Err(error) if !may_change(error) => {
                debug!("webhook rejected: {error}");
                return false;
            }
            Ok(status) => debug!("webhook attempt {attempt} returned HTTP status {status}"),
            Err(error) => debug!("webhook attempt {attempt} failed: {error}"),
        }
        if attempt < ATTEMPTS {
            sleep(PAUSE * attempt).await;
        }
    }
    false
}

fn may_change(error: EgressError) -> bool {
    matches!(error, EgressError::Unreachable | EgressError::TooSlow(_))
}
