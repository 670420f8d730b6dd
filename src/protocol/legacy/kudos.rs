//! Kudos on their way from one user to another, or out of nothing.

use super::rules::{text, whole};
use super::tables::{body, reply};

body! {
    /// `POST /v2/kudos/transfer`
    pub struct KudosTransferInput {
        needs {
            /// `name#id`, of which the number counts, or a shared key.
            username: String = text(..),
        }
        fills { amount: i64 = whole(..) => 100, }
    }
}

body! {
    /// `POST /v2/kudos/award`
    pub struct KudosAwardInput {
        needs { username: String = text(..), }
        fills { amount: i64 = whole(..) => 100, }
    }
}

reply! {
    pub struct KudosTransferred {
        always { transferred: f64, }
    }

    pub struct KudosAwarded {
        always { awarded: f64, }
    }
}

#[cfg(test)]
mod tests {
    use super::{KudosAwardInput, KudosAwarded, KudosTransferInput, KudosTransferred};
    use crate::legacy::schemas::{assert_fits, assert_reads};

    #[test]
    fn transfers_and_awards_are_what_the_contract_says() {
        assert_reads::<KudosTransferInput>("KudosTransferInput");
        assert_reads::<KudosAwardInput>("KudosAwardInput");
        assert_fits("KudosTransferred", &KudosTransferred { transferred: 10.0 });
        assert_fits("KudosAwarded", &KudosAwarded { awarded: 10.0 });
    }
}
