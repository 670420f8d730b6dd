//! Statistics in rolling windows.

use std::collections::BTreeMap;

use super::tables::reply;

/// How many each model made.
pub type ByModel = BTreeMap<String, u64>;

reply! {
    /// `GET /v2/stats/img/models`
    #[derive(Default)]
    pub struct ImgModelStats {
        always {
            day: ByModel,
            month: ByModel,
            total: ByModel,
        }
    }

    /// `GET /v2/stats/text/models`
    #[derive(Default)]
    pub struct TxtModelStats {
        always {
            day: ByModel,
            month: ByModel,
            total: ByModel,
        }
    }

    /// `GET /v2/stats/img/totals`
    #[derive(Default)]
    pub struct StatsImgTotals {
        always {
            minute: SinglePeriodImgStat,
            hour: SinglePeriodImgStat,
            day: SinglePeriodImgStat,
            month: SinglePeriodImgStat,
            total: SinglePeriodImgStat,
        }
    }

    #[derive(Default)]
    pub struct SinglePeriodImgStat {
        always {
            images: u64,
            /// Pixelsteps.
            ps: u64,
        }
    }

    /// `GET /v2/stats/text/totals`
    #[derive(Default)]
    pub struct StatsTxtTotals {
        always {
            minute: SinglePeriodTxtStat,
            hour: SinglePeriodTxtStat,
            day: SinglePeriodTxtStat,
            month: SinglePeriodTxtStat,
            total: SinglePeriodTxtStat,
        }
    }

    #[derive(Default)]
    pub struct SinglePeriodTxtStat {
        always {
            requests: u64,
            /// Requested tokens, not returned ones.
            tokens: u64,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{ImgModelStats, StatsImgTotals, StatsTxtTotals, TxtModelStats};
    use crate::legacy::schemas::assert_fits;

    #[test]
    fn statistics_are_what_the_contract_says() {
        let mut models = ImgModelStats::default();
        models.day.insert("m".to_owned(), 3);
        assert_fits("ImgModelStats", &models);
        assert_fits("TxtModelStats", &TxtModelStats::default());
        assert_fits("StatsImgTotals", &StatsImgTotals::default());
        assert_fits("StatsTxtTotals", &StatsTxtTotals::default());
    }
}
