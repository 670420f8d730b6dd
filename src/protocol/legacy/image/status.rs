//! The client's view of an image request.

use uuid::Uuid;

use crate::job::JobId;
use crate::legacy::requests::RequestStatusCheck;
use crate::legacy::tables::reply;
use crate::legacy::words::ResultState;

use super::metadata::GenerationMetadataImage;

reply! {
    /// `GET` and `DELETE /v2/generate/status/{id}`
    pub struct RequestStatusImage {
        always {
            generations: Vec<GenerationImage>,
            shared: bool,
            #[serde(flatten)]
            progress: RequestStatusCheck,
        }
    }

    /// A finished image.
    pub struct GenerationImage {
        always {
            /// A signed link, or base64 webp, or [`LOST`].
            img: String,
            seed: String,
            id: JobId,
            censored: bool,
            gen_metadata: Vec<GenerationMetadataImage>,
            worker_id: Uuid,
            worker_name: String,
            model: String,
            /// Always ok: censorship is in `censored` and `gen_metadata`.
            state: ResultState,
        }
    }
}

/// Value for an image that was deleted from the media store.
pub const LOST: &str = "N/A";
