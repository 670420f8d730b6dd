//! Addresses that are blocked for a while.

use super::rules::{text, whole};
use super::tables::{body, reply};

body! {
    /// `PUT /v2/operations/block_worker_ipaddr/{worker_id}`
    pub struct AddWorkerTimeout {
        needs { days: u32 = whole(1..=30), }
    }
}

body! {
    /// `POST /v2/operations/ipaddr`
    pub struct AddTimeoutIPInput {
        needs {
            /// An address, or a block of them: `10.0.0.0/8`.
            ipaddr: String = text(2..=49),
            hours: u32 = whole(1..=720),
        }
    }
}

body! {
    /// `DELETE /v2/operations/ipaddr`
    pub struct DeleteTimeoutIPInput {
        needs { ipaddr: String = text(2..=49), }
    }
}

reply! {
    pub struct IPTimeout {
        always {
            ipaddr: String,
            /// Left.
            seconds: u64,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{AddTimeoutIPInput, AddWorkerTimeout, DeleteTimeoutIPInput, IPTimeout};
    use serde_json::json;

    use crate::legacy::Body;
    use crate::legacy::schemas::{assert_fits, assert_reads};

    #[test]
    fn blocks_are_what_the_contract_says() {
        assert_reads::<AddWorkerTimeout>("AddWorkerTimeout");
        assert_reads::<AddTimeoutIPInput>("AddTimeoutIPInput");
        assert_reads::<DeleteTimeoutIPInput>("DeleteTimeoutIPInput");
        // The public service takes from 7 characters on, and `::1` is an address, too.
        let named = |address: &str| DeleteTimeoutIPInput::read(json!({"ipaddr": address}));
        assert!(named("::").is_ok() && named("::1").is_ok());
        assert!(named("").is_err() && named(&"1".repeat(50)).is_err());
        let timeout = IPTimeout {
            ipaddr: "10.0.0.0/8".to_owned(),
            seconds: 60,
        };
        assert_fits("IPTimeout", &timeout);
    }
}
