//! Where a client wants to be called: looked at before anything is accepted, as far as its words tell. Where a name
//! leads is looked at when it is called.

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
