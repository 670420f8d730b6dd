//! The schemas of this API: what its documents show, and what tests hold our readers and replies against.

use std::sync::LazyLock;

use serde_json::Value;

static SCHEMAS: LazyLock<Value> =
    LazyLock::new(|| serde_json::from_str(include_str!("schemas.json")).unwrap_or_default());

/// By their names under `$defs`.
pub fn schemas() -> &'static Value {
    &SCHEMAS
}
