//! Users, their views of themselves and each other, and changes to them.

use serde_json::{Value, json};
use uuid::Uuid;

use crate::job::RequestId;

use super::date::Date;
use super::rules::{flag, number, text, whole};
use super::tables::{body, reply, with_nulls};
use super::words::Making;

reply! {
    /// A user. Which of the `known` fields are filled depends on who looks: the user sees more of them, a
    /// moderator most.
    pub struct UserDetails {
        always {
            /// `name#id`
            username: String,
            id: i64,
            kudos: f64,
            concurrency: i64,
            worker_invited: i64,
            moderator: bool,
            kudos_details: UserKudosDetails,
            worker_count: u64,
            styles: Vec<ResponseModelStylesUser>,
            trusted: bool,
            flagged: bool,
            service: bool,
            education: bool,
            customizer: bool,
            deleted: bool,
            pseudonymous: bool,
            /// Seconds.
            account_age: u64,
            usage: UsageDetails,
            contributions: ContributionsDetails,
            records: UserRecords,
        }
        known {
            evaluating_kudos: f64,
            worker_ids: Vec<Uuid>,
            sharedkey_ids: Vec<Uuid>,
            active_generations: UserActiveGenerations,
            monthly_kudos: MonthlyKudos,
            vpn: bool,
            special: bool,
            suspicious: i64,
            contact: String,
            admin_comment: String,
            proxy_passkey: String,
        }
    }

    /// Kudos by where they came from and went to.
    #[derive(Default)]
    pub struct UserKudosDetails {
        always {
            accumulated: f64,
            /// Negative: given away.
            gifted: f64,
            donated: f64,
            admin: f64,
            received: f64,
            recurring: f64,
            awarded: f64,
            styled: f64,
        }
    }

    #[derive(Default)]
    pub struct UserRecords {
        always {
            usage: UserThingRecords,
            contribution: UserThingRecords,
            fulfillment: UserAmountRecords,
            request: UserAmountRecords,
            style: UserAmountRecords,
        }
    }

    #[derive(Default)]
    pub struct UserThingRecords {
        always {
            megapixelsteps: f64,
            tokens: i64,
        }
    }

    #[derive(Default)]
    pub struct UserAmountRecords {
        always {
            image: i64,
            text: i64,
            interrogation: i64,
        }
    }

    #[derive(Default)]
    pub struct UserActiveGenerations {
        known {
            text: Vec<RequestId>,
            image: Vec<RequestId>,
            alchemy: Vec<RequestId>,
        }
    }

    #[derive(Default)]
    pub struct MonthlyKudos {
        known {
            amount: i64,
            last_received: Date,
        }
    }

    /// Obsolete: always null.
    #[derive(Default)]
    pub struct UsageDetails {
        always {
            megapixelsteps: Option<f64>,
            requests: Option<i64>,
        }
    }

    /// Obsolete: always null.
    #[derive(Default)]
    pub struct ContributionsDetails {
        always {
            megapixelsteps: Option<f64>,
            fulfillments: Option<i64>,
        }
    }

    pub struct ResponseModelStylesUser {
        always {
            #[serde(rename = "type")]
            making: Making,
            name: String,
            id: Uuid,
        }
    }

    /// Changed fields.
    #[derive(Default)]
    pub struct ModifyUser {
        known {
            new_kudos: f64,
            concurrency: i64,
            usage_multiplier: f64,
            worker_invited: i64,
            moderator: bool,
            public_workers: bool,
            username: String,
            monthly_kudos: i64,
            trusted: bool,
            flagged: bool,
            customizer: bool,
            vpn: bool,
            service: bool,
            education: bool,
            special: bool,
            undeleted: bool,
            new_suspicion: i64,
            contact: String,
            admin_comment: String,
            proxy_passkey: String,
        }
    }

    /// `GET /v2/auto_worker_type`
    pub struct AutoWorkerTypeResponse {
        always { recommended_worker_type: Making, }
    }
}

body! {
    /// `PUT /v2/users/{id}`
    pub struct ModifyUserInput {
        may {
            /// Added to the balance.
            kudos: f64 = number(..),
            concurrency: i64 = whole(0..=500),
            usage_multiplier: f64 = number(0.1..=10.0),
            worker_invited: i64 = whole(..),
            moderator: bool = flag(),
            public_workers: bool = flag(),
            /// Added to the monthly kudos.
            monthly_kudos: i64 = whole(..),
            username: String = text(3..=100),
            trusted: bool = flag(),
            flagged: bool = flag(),
            customizer: bool = flag(),
            vpn: bool = flag(),
            service: bool = flag(),
            education: bool = flag(),
            special: bool = flag(),
            undelete: bool = flag(),
            filtered: bool = flag(),
            reset_suspicion: bool = flag(),
            generate_proxy_passkey: bool = flag(),
            contact: String = text(5..=500),
            admin_comment: String = text(5..=500),
        }
    }
}

impl UserDetails {
    /// The user in the list of all users: missing fields are null there, or an empty object for objects.
    pub fn listed(&self) -> serde_json::Result<Value> {
        const NULL: [&str; 9] = [
            "evaluating_kudos",
            "worker_ids",
            "sharedkey_ids",
            "vpn",
            "special",
            "suspicious",
            "contact",
            "admin_comment",
            "proxy_passkey",
        ];
        let mut listed = with_nulls(self, &NULL)?;
        for name in ["active_generations", "monthly_kudos"] {
            if listed.get(name).is_none() {
                listed[name] = json!({});
            }
        }
        Ok(listed)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use uuid::Uuid;

    use super::{
        AutoWorkerTypeResponse, ContributionsDetails, ModifyUser, ModifyUserInput, MonthlyKudos,
        ResponseModelStylesUser, UsageDetails, UserActiveGenerations, UserDetails,
        UserKudosDetails, UserRecords,
    };
    use crate::job::{RequestId, UnixMillis};
    use crate::legacy::date::Date;
    use crate::legacy::schemas::{assert_fits, assert_reads};
    use crate::legacy::words::Making;

    fn seen_by_strangers() -> UserDetails {
        UserDetails {
            username: "alice#1".to_owned(),
            id: 1,
            kudos: 25.0,
            concurrency: 30,
            worker_invited: 0,
            moderator: false,
            kudos_details: UserKudosDetails::default(),
            worker_count: 0,
            styles: Vec::new(),
            trusted: false,
            flagged: false,
            service: false,
            education: false,
            customizer: false,
            deleted: false,
            pseudonymous: true,
            account_age: 60,
            usage: UsageDetails::default(),
            contributions: ContributionsDetails::default(),
            records: UserRecords::default(),
            evaluating_kudos: None,
            worker_ids: None,
            sharedkey_ids: None,
            active_generations: None,
            monthly_kudos: None,
            vpn: None,
            special: None,
            suspicious: None,
            contact: None,
            admin_comment: None,
            proxy_passkey: None,
        }
    }

    #[test]
    fn changes_are_read_as_the_contract_says() {
        assert_reads::<ModifyUserInput>("ModifyUserInput");
    }

    #[test]
    fn each_view_is_what_the_contract_says() {
        let mut user = seen_by_strangers();
        assert_fits("UserDetails", &user);
        user.worker_ids = Some(vec![Uuid::nil()]);
        user.sharedkey_ids = Some(Vec::new());
        user.active_generations = Some(UserActiveGenerations {
            text: Some(vec![RequestId::random()]),
            ..Default::default()
        });
        user.monthly_kudos = Some(MonthlyKudos {
            amount: Some(1000),
            last_received: Some(Date(UnixMillis(0))),
        });
        user.evaluating_kudos = Some(5.0);
        user.styles = vec![ResponseModelStylesUser {
            making: Making::Image,
            name: "alice#1::style::x".to_owned(),
            id: Uuid::nil(),
        }];
        assert_fits("UserDetails", &user);
    }

    #[test]
    fn one_user_leaves_out_what_a_list_says_is_null() {
        let one = serde_json::to_value(seen_by_strangers()).unwrap();
        assert!(one.get("contact").is_none() && one.get("monthly_kudos").is_none());
        assert!(one["usage"]["requests"].is_null());
        let listed = seen_by_strangers().listed().unwrap();
        assert_fits("UserDetails", &listed);
        assert_eq!(listed.get("contact"), Some(&json!(null)));
        assert_eq!(listed["monthly_kudos"], json!({}));
        assert_eq!(listed.as_object().unwrap().len(), 31);
    }

    #[test]
    fn a_change_says_what_it_changed() {
        let change = ModifyUser {
            new_kudos: Some(5.0),
            trusted: Some(true),
            ..ModifyUser::default()
        };
        assert_fits("ModifyUser", &change);
        assert_eq!(
            serde_json::to_value(change).unwrap(),
            json!({"new_kudos": 5.0, "trusted": true})
        );
        let recommended = AutoWorkerTypeResponse {
            recommended_worker_type: Making::Text,
        };
        assert_fits("AutoWorkerTypeResponse", &recommended);
    }
}
