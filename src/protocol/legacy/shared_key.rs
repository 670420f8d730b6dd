//! Keys a user hands to others, with a budget and limits.

use uuid::Uuid;

use super::date::Date;
use super::error::{Code, Refusal};
use super::rules::{text, whole};
use super::tables::{body, reply};

/// Means no limit, no expiry or no minimum.
pub const UNLIMITED: i64 = -1;

body! {
    /// `PUT /v2/sharedkeys`, where missing fields have defaults, and `PATCH`, where they stay unchanged.
    pub struct SharedKeyInput {
        may {
            kudos: i64 = whole(UNLIMITED..=50_000_000),
            /// Days from now.
            expiry: i64 = whole(UNLIMITED..),
            name: String = text(3..=255),
            max_image_pixels: i64 = whole(UNLIMITED..=4_194_304),
            max_image_steps: i64 = whole(UNLIMITED..=500),
            max_text_tokens: i64 = whole(UNLIMITED..=500),
        }
    }
}

/// A key to be created.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewSharedKey {
    pub kudos: i64,
    /// `None` means no expiry.
    pub expires_in_days: Option<i64>,
    pub name: Option<String>,
    pub max_image_pixels: i64,
    pub max_image_steps: i64,
    pub max_text_tokens: i64,
}

/// Limits of a job with a shared key. [`UNLIMITED`] is no limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct JobLimits {
    pub image_pixels: i64,
    pub image_steps: i64,
    pub text_tokens: i64,
}

reply! {
    pub struct SharedKeyDetails {
        always {
            /// The key itself.
            id: Uuid,
            username: String,
            kudos: i64,
            utilized: i64,
            max_image_pixels: i64,
            max_image_steps: i64,
            max_text_tokens: i64,
        }
        known {
            name: String,
            expiry: Date,
        }
    }
}

impl SharedKeyInput {
    pub fn creates(self) -> NewSharedKey {
        NewSharedKey {
            kudos: self.kudos.unwrap_or(5000),
            expires_in_days: self.expiry.filter(|days| *days > 0),
            name: self.name,
            max_image_pixels: self.max_image_pixels.unwrap_or(UNLIMITED),
            max_image_steps: self.max_image_steps.unwrap_or(UNLIMITED),
            max_text_tokens: self.max_text_tokens.unwrap_or(UNLIMITED),
        }
    }

    pub fn changes_nothing(&self) -> bool {
        *self == Self::default()
    }
}

impl JobLimits {
    pub fn admit_image(&self, width: u32, height: u32, steps: u32) -> Result<(), Refusal> {
        let pixels = i64::from(width) * i64::from(height);
        admit("pixels", pixels, self.image_pixels)?;
        admit("steps", i64::from(steps), self.image_steps)
    }

    pub fn admit_text(&self, max_length: u32) -> Result<(), Refusal> {
        admit("tokens", i64::from(max_length), self.text_tokens)
    }
}

fn admit(what: &str, found: i64, limit: i64) -> Result<(), Refusal> {
    match limit == UNLIMITED || found <= limit {
        true => Ok(()),
        false => Err(Refusal::new(
            Code::BadRequest,
            format!("this shared key allows at most {limit} {what}, found {found}"),
        )),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use uuid::Uuid;

    use super::{JobLimits, SharedKeyDetails, SharedKeyInput, UNLIMITED};
    use crate::job::UnixMillis;
    use crate::legacy::Body;
    use crate::legacy::date::Date;
    use crate::legacy::schemas::{assert_fits, assert_reads};

    #[test]
    fn keys_are_read_within_the_bounds_of_the_contract() {
        assert_reads::<SharedKeyInput>("SharedKeyInput");
        let most = json!({
            "kudos": 50_000_000, "name": "abc", "max_image_pixels": 4_194_304, "max_image_steps": 500,
            "max_text_tokens": 500,
        });
        assert!(SharedKeyInput::read(most).is_ok());
        for wrong in [
            json!({"kudos": 50_000_001}),
            json!({"name": "ab"}),
            json!({"max_image_pixels": 4_194_305}),
            json!({"max_image_steps": 501}),
            json!({"max_text_tokens": 501}),
            json!({"kudos": "5"}),
            json!({"kudos": null}),
            json!({"max_image_steps": -2}),
        ] {
            assert!(SharedKeyInput::read(wrong).is_err());
        }
    }

    #[test]
    fn a_new_key_has_defaults_and_a_changed_one_has_none() {
        let nothing = SharedKeyInput::read(json!({})).unwrap();
        assert!(nothing.changes_nothing());
        let new = nothing.creates();
        assert_eq!(
            (new.kudos, new.expires_in_days, new.max_image_pixels),
            (5000, None, -1)
        );
        let today = SharedKeyInput::read(json!({"expiry": 0})).unwrap();
        assert!(!today.changes_nothing());
        assert_eq!(today.creates().expires_in_days, None);
    }

    #[test]
    fn a_key_may_be_for_small_jobs_only() {
        let limits = JobLimits {
            image_pixels: 512 * 512,
            image_steps: UNLIMITED,
            text_tokens: 0,
        };
        assert!(limits.admit_image(512, 512, 500).is_ok());
        assert!(limits.admit_image(576, 512, 1).is_err());
        assert!(limits.admit_text(16).is_err());
    }

    #[test]
    fn a_key_is_shown_as_the_contract_says() {
        let mut key = SharedKeyDetails {
            id: Uuid::nil(),
            username: "alice#1".to_owned(),
            kudos: -1,
            utilized: 0,
            max_image_pixels: -1,
            max_image_steps: -1,
            max_text_tokens: -1,
            name: None,
            expiry: None,
        };
        assert_fits("SharedKeyDetails", &key);
        key.expiry = Some(Date(UnixMillis(0)));
        assert_fits("SharedKeyDetails", &key);
    }
}
