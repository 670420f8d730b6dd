//! Schemas of clients, refused before a request is queued where the engine would refuse them.

use muster_schema::SchemaRefusal;
use serde_json::Value;

use crate::openai::Problem;

/// Refuses the first thing that cannot be enforced, by its path.
pub fn check(schema: &Value, place: &str) -> Result<(), Problem> {
    muster_schema::check(schema, place, true).map_err(|refusal| {
        let whole = refusal.to_string();
        let SchemaRefusal { place, message, .. } = refusal;
        match refusal.is_unsupported {
            true => Problem::unsupported(place.clone(), format!("{place} {message}")),
            false => Problem::invalid(place, whole),
        }
    })
}
