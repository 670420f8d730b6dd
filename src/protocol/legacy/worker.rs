//! Workers as others see them, changes by their owners, and messages to them.

use uuid::Uuid;

use super::date::Date;
use super::error::{Code, Refusal};
use super::interrogation::Form;
use super::rules::{flag, text, whole};
use super::tables::{body, reply, words};
use super::words::{ControlType, Trade};

words! {
    /// Which messages are listed.
    pub enum Validity {
        Active = "active",
        Expired = "expired",
        All = "all",
    }
}

body! {
    /// `PUT /v2/workers/{id}`
    pub struct ModifyWorkerInput {
        may {
            maintenance: bool = flag(),
            maintenance_msg: String = text(..=1000),
            paused: bool = flag(),
            info: String = text(..=1000),
            name: String = text(5..=100),
            /// An empty one leaves the team.
            team: String = text(..=36),
        }
    }
}

body! {
    /// `POST /v2/workers/messages`
    pub struct WorkerMessageInput {
        needs { message: String = text(1..=10_240), }
        fills {
            /// Hours.
            expiry: u32 = whole(1..=720) => 12,
        }
        may {
            /// Without an id, the message goes to all workers, which only moderators may do.
            worker_id: String = text(36..=36),
            /// Author shown to the worker; only moderators may set it.
            origin: String = text(1..=255),
        }
    }
}

reply! {
    /// A worker. The filled `known` fields depend on its kind and on the caller.
    pub struct WorkerDetails {
        always {
            requests_fulfilled: u64,
            kudos_rewards: f64,
            kudos_details: WorkerKudosDetails,
            /// In words: see [`speed`].
            performance: String,
            threads: u32,
            /// Seconds.
            uptime: u64,
            maintenance_mode: bool,
            trusted: bool,
            flagged: bool,
            uncompleted_jobs: u64,
            team: TeamDetailsLite,
            bridge_agent: String,
            #[serde(rename = "type")]
            trade: Trade,
            name: String,
            id: Uuid,
            online: bool,
        }
        known {
            paused: bool,
            info: String,
            nsfw: bool,
            owner: String,
            ipaddr: String,
            suspicious: i64,
            models: Vec<String>,
            forms: Vec<Form>,
            /// Supported control maps.
            annotation_types: Vec<ControlType>,
            contact: String,
            max_pixels: i64,
            megapixelsteps_generated: f64,
            img2img: bool,
            painting: bool,
            #[serde(rename = "post-processing")]
            post_processing: bool,
            lora: bool,
            controlnet: bool,
            sdxl_controlnet: bool,
            max_length: i64,
            max_context_length: i64,
            tokens_generated: f64,
            messages: Vec<WorkerMessage>,
        }
    }

    pub struct WorkerDetailsLite {
        always {
            #[serde(rename = "type")]
            trade: Trade,
            name: String,
            id: Uuid,
            online: bool,
        }
    }

    #[derive(Default)]
    pub struct WorkerKudosDetails {
        always {
            /// For jobs.
            generated: Option<f64>,
            uptime: Option<i64>,
        }
    }

    /// Nulls where there is no team.
    #[derive(Default)]
    pub struct TeamDetailsLite {
        always {
            name: Option<String>,
            id: Option<Uuid>,
        }
    }

    /// Changed fields.
    #[derive(Default)]
    pub struct ModifyWorker {
        known {
            maintenance: bool,
            paused: bool,
            info: String,
            name: String,
            /// Name of the team, or [`NO_TEAM`].
            team: String,
        }
    }

    pub struct DeletedWorker {
        always {
            deleted_id: Uuid,
            deleted_name: String,
        }
    }

    pub struct WorkerMessage {
        always {
            id: Uuid,
            message: String,
            expiry: Date,
            /// A number, sent as text.
            user_id: String,
            created: Date,
        }
        known {
            origin: String,
            worker_id: Uuid,
        }
    }
}

/// Team name in the reply to a worker that left its team.
pub const NO_TEAM: &str = "None";

/// Messages on a page.
pub const MESSAGES_PAGE: usize = 50;

/// How fast a worker is, as it is shown: from pixelsteps, tokens or forms a second, with one decimal.
pub fn speed(trade: Trade, per_second: f64) -> String {
    let (amount, unit) = match trade {
        Trade::Image => (per_second / 1_000_000.0, "megapixelsteps per second"),
        Trade::Text => (per_second, "tokens per second"),
        Trade::Interrogation => (per_second, "forms per second"),
    };
    match amount > 0.0 {
        true => format!("{amount:.1} {unit}"),
        false => "nothing finished yet".to_owned(),
    }
}

/// A name as it is kept: without markup and without spaces around it.
pub fn kept_name(name: &str) -> String {
    let mut kept = String::with_capacity(name.len());
    let mut rest = name;
    while let Some((before, (_, after))) = rest
        .split_once('<')
        .and_then(|(before, tag)| Some((before, tag.split_once('>')?)))
    {
        kept.push_str(before);
        rest = after;
    }
    kept.push_str(rest);
    kept.trim().to_owned()
}

/// Workers on machines that are lent for other purposes give themselves away by their name.
pub fn check_new_name(name: &str) -> Result<(), Refusal> {
    const BORROWED: [&str; 3] = ["colab", "tpu", "google"];
    let name = name.to_lowercase();
    match BORROWED.into_iter().find(|word| name.contains(word)) {
        None => Ok(()),
        Some(word) => Err(Refusal::new(
            Code::BadRequest,
            format!(
                "workers on hosted notebooks are not accepted: the name contains {word}; choose another name"
            ),
        )),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use uuid::Uuid;

    use super::{
        DeletedWorker, ModifyWorker, ModifyWorkerInput, NO_TEAM, TeamDetailsLite, WorkerDetails,
        WorkerDetailsLite, WorkerKudosDetails, WorkerMessage, WorkerMessageInput, check_new_name,
        kept_name, speed,
    };
    use crate::job::UnixMillis;
    use crate::legacy::Body;
    use crate::legacy::date::Date;
    use crate::legacy::interrogation::Form;
    use crate::legacy::schemas::{assert_fits, assert_reads};
    use crate::legacy::words::{ControlType, Trade};

    #[test]
    fn changes_and_messages_are_read_as_the_contract_says() {
        assert_reads::<ModifyWorkerInput>("ModifyWorkerInput");
        assert_reads::<WorkerMessageInput>("WorkerMessageInput");
        let message = WorkerMessageInput::read(json!({"message": "m"})).unwrap();
        assert_eq!(message.expiry, 12);
    }

    #[test]
    fn what_a_worker_is_told_in_maintenance_has_an_end() {
        let read = |length| {
            ModifyWorkerInput::read(json!({"maintenance_msg": "ä".repeat(length)})).is_ok()
        };
        assert!(read(1000) && !read(1001));
    }

    #[test]
    fn a_name_is_kept_without_markup() {
        let check = |name: &str, expected: &str| assert_eq!(kept_name(name), expected);
        check("  my <b>worker</b> ", "my worker");
        check("a < b", "a < b");
        check(&"<".repeat(1_000_000), &"<".repeat(1_000_000));
        check("<script>", "");
    }

    #[test]
    fn workers_on_borrowed_machines_are_not_taken() {
        assert!(check_new_name("My Colab 3").is_err());
        assert!(check_new_name("my worker").is_ok());
    }

    fn message() -> WorkerMessage {
        WorkerMessage {
            id: Uuid::nil(),
            message: "m".to_owned(),
            expiry: Date(UnixMillis(0)),
            user_id: "1".to_owned(),
            created: Date(UnixMillis(0)),
            origin: None,
            worker_id: None,
        }
    }

    #[test]
    fn workers_are_shown_as_the_contract_says() {
        let worker = WorkerDetails {
            requests_fulfilled: 1,
            kudos_rewards: 10.0,
            kudos_details: WorkerKudosDetails::default(),
            performance: speed(Trade::Image, 1_500_000.0),
            threads: 1,
            uptime: 60,
            maintenance_mode: false,
            trusted: false,
            flagged: false,
            uncompleted_jobs: 0,
            team: TeamDetailsLite::default(),
            bridge_agent: "unknown:0:unknown".to_owned(),
            trade: Trade::Image,
            name: "w".to_owned(),
            id: Uuid::nil(),
            online: true,
            paused: Some(false),
            info: Some("i".to_owned()),
            nsfw: Some(true),
            owner: Some("alice#1".to_owned()),
            ipaddr: None,
            suspicious: Some(0),
            models: Some(vec!["m".to_owned()]),
            forms: Some(vec![Form::Caption]),
            annotation_types: Some(vec![ControlType::Canny]),
            contact: None,
            max_pixels: Some(262_144),
            megapixelsteps_generated: Some(1.0),
            img2img: Some(true),
            painting: Some(true),
            post_processing: Some(true),
            lora: Some(false),
            controlnet: Some(false),
            sdxl_controlnet: Some(false),
            max_length: None,
            max_context_length: None,
            tokens_generated: None,
            messages: Some(vec![message()]),
        };
        assert_fits("WorkerDetails", &worker);
        assert_eq!(worker.performance, "1.5 megapixelsteps per second");
        let lite = WorkerDetailsLite {
            trade: Trade::Text,
            name: "w".to_owned(),
            id: Uuid::nil(),
            online: false,
        };
        assert_fits("WorkerDetailsLite", &lite);
    }

    #[test]
    fn what_is_done_to_workers_is_answered_as_the_contract_says() {
        let left = ModifyWorker {
            team: Some(NO_TEAM.to_owned()),
            ..ModifyWorker::default()
        };
        assert_fits("ModifyWorker", &left);
        assert_fits(
            "DeletedWorker",
            &DeletedWorker {
                deleted_id: Uuid::nil(),
                deleted_name: "w".to_owned(),
            },
        );
        assert_fits("WorkerMessage", &message());
        let mut to_one = message();
        to_one.worker_id = Some(Uuid::nil());
        to_one.origin = Some("1".to_owned());
        assert_fits("WorkerMessage", &to_one);
    }
}
