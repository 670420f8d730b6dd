//! The schemas of this API, for its documents and for tests of readers and replies.

use std::sync::LazyLock;

use serde_json::Value;

static SCHEMAS: LazyLock<Value> =
    LazyLock::new(|| serde_json::from_str(include_str!("schemas.json")).unwrap_or_default());

/// Schemas by name under `$defs`.
pub fn schemas() -> &'static Value {
    &SCHEMAS
}
