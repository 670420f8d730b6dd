//! Schemas of the service's status and of its workers.

use serde_json::{Value, json};

use super::operation::reference;
use super::service::{count, list, object, text, texts, word};

pub(super) fn status() -> Value {
    let counted = || {
        object(
            json!({
                "online": count(),
                "by_type": {"type": "object", "additionalProperties": count()},
            }),
            &["online", "by_type"],
        )
    };
    let jobs = || {
        object(
            json!({"text": count(), "media": count()}),
            &["text", "media"],
        )
    };
    object(
        json!({
            "status": word(&["ok", "degraded"]),
            "version": text(),
            "uptime_s": count(),
            "workers": counted(),
            "models": counted(),
            "gpus": object(
                json!({
                    "online": count(),
                    "with_failed_kernels": {
                        "type": "integer",
                        "minimum": 0,
                        "description": "GPUs on which a kernel fails its test; slower ones do its work.",
                    },
                }),
                &["online", "with_failed_kernels"],
            ),
            "queue": jobs(),
            "running": count(),
            "running_by_type": jobs(),
            "links": {"type": "object", "additionalProperties": text()},
        }),
        &[
            "status",
            "version",
            "uptime_s",
            "workers",
            "models",
            "gpus",
            "queue",
            "running",
            "running_by_type",
            "links",
        ],
    )
}

pub(super) fn worker_list() -> Value {
    object(
        json!({"count": count(), "workers": list(&reference("Worker"))}),
        &["count", "workers"],
    )
}

pub(super) fn worker() -> Value {
    let amount = || json!({"type": ["number", "null"]});
    let gpu = object(
        json!({
            "name": text(),
            "vram_total": {"type": ["number", "null"], "description": "GiB."},
            "vram_free": {"type": ["number", "null"], "description": "GiB."},
            "util": amount(),
            "failed_kernels": {
                "type": "array",
                "items": text(),
                "description": "Kernels that fail their test on this GPU; slower ones do their work.",
            },
        }),
        &["name", "vram_total", "vram_free", "util"],
    );
    object(
        json!({
            "id": text(),
            "name": text(),
            "models": texts(),
            "job_types": texts(),
            "online": {"type": "boolean"},
            "gpus": list(&gpu),
        }),
        &["id", "name", "models", "job_types", "online"],
    )
}
