//! The address of the owner's page, and the value of kudos that the page compares with the cost of energy.

use std::net::SocketAddr;

use super::owner::amount;
use super::raw::Raw;
use super::value::{Place, Value};

/// Address of the owner's page; `None` disables the page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PageAddress(pub Option<SocketAddr>);

impl Value for PageAddress {
    fn wanted() -> String {
        "an address of this machine such as \"127.0.0.1:7861\", or false for no page".to_owned()
    }

    fn parse(raw: &Raw, place: &Place<'_>) -> Result<Self, String> {
        let is_off = match raw {
            Raw::Switch(switch) => !switch,
            _ => {
                let text = raw.text().map(|text| text.trim().to_ascii_lowercase());
                text.is_some_and(|text| ["", "false", "off", "no", "0"].contains(&text.as_str()))
            }
        };
        if is_off {
            return Ok(Self(None));
        }
        let address = <SocketAddr as Value>::parse(raw, place)?;
        match address.ip().is_loopback() {
            true => Ok(Self(Some(address))),
            false => Err(format!(
                "a loopback address such as \"127.0.0.1:7861\", found {}; an SSH tunnel reaches the page of another machine",
                raw.quoted()
            )),
        }
    }

    fn show(&self) -> Option<String> {
        match self.0 {
            Some(address) => address.show(),
            None => Some("false".to_owned()),
        }
    }
}

/// Worth of 1000 kudos, in the currency of the price of energy.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct KudosWorth(pub f64);

impl Value for KudosWorth {
    fn wanted() -> String {
        "a worth of 1000 kudos from 0 to 1000000, such as 0.05".to_owned()
    }

    fn parse(raw: &Raw, _: &Place<'_>) -> Result<Self, String> {
        amount(raw).map(Self).ok_or_else(String::new)
    }

    fn show(&self) -> Option<String> {
        Some(self.0.to_string())
    }
}
