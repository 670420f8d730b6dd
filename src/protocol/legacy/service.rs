//! The service about itself: its modes, its load, its models, its news and its documents.

use super::rules::flag;
use super::tables::{body, reply, words};
use super::words::Making;

body! {
    /// `PUT /v2/status/modes`
    pub struct ModesInput {
        may {
            maintenance_mode: bool = flag(),
            invite_only_mode: bool = flag(),
            raid_mode: bool = flag(),
        }
    }
}

words! {
    /// How a coordinator is. The status is 200 in any case.
    pub enum Health {
        Ok = "OK",
        Overloaded = "OVERLOADED",
        Down = "DOWN",
    }

    /// Which models are listed.
    pub enum ModelState {
        /// Models of the model reference.
        Known = "known",
        Custom = "custom",
        All = "all",
    }

    /// How a document is written.
    pub enum DocumentFormat {
        Html = "html",
        Markdown = "markdown",
    }
}

reply! {
    /// `GET /v2/status/modes`, and the changed modes after a change.
    #[derive(Default)]
    pub struct ModeStatus {
        known {
            maintenance_mode: bool,
            invite_only_mode: bool,
            /// For moderators.
            raid_mode: bool,
        }
    }

    /// `GET /v2/status/performance`
    #[derive(Default)]
    pub struct ServicePerformance {
        always {
            queued_requests: u64,
            queued_text_requests: u64,
            worker_count: u64,
            text_worker_count: u64,
            thread_count: u64,
            text_thread_count: u64,
            queued_megapixelsteps: f64,
            past_minute_megapixelsteps: f64,
            queued_forms: f64,
            interrogator_count: u64,
            interrogator_thread_count: u64,
            queued_tokens: f64,
            past_minute_tokens: f64,
        }
    }

    /// An item of `GET /v2/status/news`.
    pub struct Newspiece {
        always {
            /// `YYYY-MM-DD`
            date_published: String,
            newspiece: String,
        }
        known {
            importance: String,
            tags: Vec<String>,
            title: String,
            more_info_urls: Vec<String>,
        }
    }

    /// An item of `GET /v2/status/models`.
    pub struct ActiveModel {
        always {
            /// Pixelsteps or tokens a second.
            performance: f64,
            /// Pixelsteps or tokens.
            queued: f64,
            jobs: f64,
            /// Seconds; see [`NOBODY_SERVES_IT`].
            eta: u64,
            #[serde(rename = "type")]
            making: Making,
            name: String,
            /// Threads, not workers.
            count: u64,
        }
    }

    /// `GET /v2/status/heartbeat`
    pub struct HeartbeatResponse {
        always {
            message: Health,
            version: String,
        }
        known {
            queue: u64,
            threads: u64,
            active_count: u64,
            db_connection: bool,
        }
    }

    /// `GET /v2/documents/…`: one of the two formats.
    #[derive(Default)]
    pub struct DocumentResponse {
        known {
            html: String,
            markdown: String,
        }
    }

    /// Done, and there is nothing more to say.
    pub struct SimpleResponse {
        always { message: String, }
    }
}

/// The `eta` of a model that is waited for in vain.
pub const NOBODY_SERVES_IT: u64 = 10_000;

impl SimpleResponse {
    pub fn ok() -> Self {
        Self {
            message: "OK".to_owned(),
        }
    }
}

impl DocumentResponse {
    pub fn written(format: DocumentFormat, text: String) -> Self {
        match format {
            DocumentFormat::Html => Self {
                html: Some(text),
                markdown: None,
            },
            DocumentFormat::Markdown => Self {
                html: None,
                markdown: Some(text),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{
        ActiveModel, DocumentFormat, DocumentResponse, Health, HeartbeatResponse, ModeStatus,
        ModesInput, NOBODY_SERVES_IT, Newspiece, ServicePerformance, SimpleResponse,
    };
    use crate::legacy::schemas::{assert_fits, assert_reads};
    use crate::legacy::words::Making;

    #[test]
    fn modes_are_what_the_contract_says() {
        assert_reads::<ModesInput>("ModesInput");
        assert_fits("ModeStatus", &ModeStatus::default());
        let raid = ModeStatus {
            raid_mode: Some(true),
            ..ModeStatus::default()
        };
        assert_eq!(
            serde_json::to_value(raid).unwrap(),
            json!({"raid_mode": true})
        );
    }

    #[test]
    fn what_the_service_says_about_itself_is_what_the_contract_says() {
        assert_fits("ServicePerformance", &ServicePerformance::default());
        assert_fits("SimpleResponse", &SimpleResponse::ok());
        let mut news = Newspiece {
            date_published: "2026-01-01".to_owned(),
            newspiece: "we are here".to_owned(),
            importance: None,
            tags: None,
            title: None,
            more_info_urls: None,
        };
        assert_fits("Newspiece", &news);
        news.tags = Some(vec!["new".to_owned()]);
        assert_fits("Newspiece", &news);
        let model = ActiveModel {
            performance: 1.0,
            queued: 0.0,
            jobs: 0.0,
            eta: NOBODY_SERVES_IT,
            making: Making::Text,
            name: "m".to_owned(),
            count: 0,
        };
        assert_fits("ActiveModel", &model);
        let heartbeat = HeartbeatResponse {
            message: Health::Ok,
            version: "0.1.0".to_owned(),
            queue: None,
            threads: None,
            active_count: None,
            db_connection: Some(true),
        };
        assert_fits("HeartbeatResponse", &heartbeat);
    }

    #[test]
    fn a_document_comes_in_one_format() {
        let check = |format, expected| {
            let document = DocumentResponse::written(format, "text".to_owned());
            assert_fits("DocumentResponse", &document);
            assert_eq!(serde_json::to_value(document).unwrap(), expected);
        };
        check(DocumentFormat::Html, json!({"html": "text"}));
        check(DocumentFormat::Markdown, json!({"markdown": "text"}));
    }
}
