//! The check of a webhook's URL before a request is accepted: syntax only. DNS is checked when the webhook is called.

use crate::egress::{Schemes, check_words};
use muster_protocol::legacy::webhook::check_address;
use muster_protocol::legacy::{Code, Refusal};

pub fn check(address: Option<&str>) -> Result<(), Refusal> {
    let Some(address) = address else {
        return Ok(());
    };
    check_address("webhook", address)?;
    let looked_at = check_words(address, Schemes::Https);
    looked_at.map_err(|error| Refusal::new(Code::BadRequest, format!("webhook: {error}")))
}
