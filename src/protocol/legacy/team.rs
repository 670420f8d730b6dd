//! Teams of workers.

use uuid::Uuid;

use super::rules::text;
use super::tables::{body, reply};
use super::worker::WorkerDetailsLite;

body! {
    /// `POST /v2/teams`
    pub struct CreateTeamInput {
        needs { name: String = text(3..=100), }
        may { info: String = text(3..=1000), }
    }
}

body! {
    /// `PATCH /v2/teams/{id}`
    pub struct ModifyTeamInput {
        may {
            name: String = text(3..=100),
            info: String = text(3..=1000),
        }
    }
}

reply! {
    pub struct TeamDetails {
        always {
            requests_fulfilled: u64,
            kudos: f64,
            /// Seconds.
            uptime: u64,
            creator: String,
            worker_count: u64,
            workers: Vec<WorkerDetailsLite>,
            models: Vec<ActiveModelLite>,
            name: String,
            id: Uuid,
        }
        known { info: String, }
    }

    pub struct ActiveModelLite {
        always {
            name: String,
            /// Workers of the team.
            count: u64,
        }
    }

    /// The created team, or the changed fields.
    #[derive(Default)]
    pub struct ModifyTeam {
        known {
            id: Uuid,
            name: String,
            info: String,
        }
    }

    pub struct DeletedTeam {
        always {
            deleted_id: Uuid,
            deleted_name: String,
        }
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::{
        ActiveModelLite, CreateTeamInput, DeletedTeam, ModifyTeam, ModifyTeamInput, TeamDetails,
    };
    use crate::legacy::schemas::{assert_fits, assert_reads};

    #[test]
    fn teams_are_what_the_contract_says() {
        assert_reads::<CreateTeamInput>("CreateTeamInput");
        assert_reads::<ModifyTeamInput>("ModifyTeamInput");
        let team = TeamDetails {
            requests_fulfilled: 0,
            kudos: 0.0,
            uptime: 0,
            creator: "alice#1".to_owned(),
            worker_count: 0,
            workers: Vec::new(),
            models: vec![ActiveModelLite {
                name: "m".to_owned(),
                count: 1,
            }],
            name: "t".to_owned(),
            id: Uuid::nil(),
            info: None,
        };
        assert_fits("TeamDetails", &team);
        assert_fits(
            "ModifyTeam",
            &ModifyTeam {
                id: Some(Uuid::nil()),
                ..ModifyTeam::default()
            },
        );
        assert_fits(
            "DeletedTeam",
            &DeletedTeam {
                deleted_id: Uuid::nil(),
                deleted_name: "t".to_owned(),
            },
        );
    }
}
