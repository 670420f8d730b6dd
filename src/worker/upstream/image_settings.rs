//! The settings of an image as these programs have them.

use muster_protocol::job::ImageRequest;

/// A request, with the files of its source image and mask.
pub struct ImageSettings<'a> {
    pub request: &'a ImageRequest,
    pub source: Option<Vec<u8>>,
    pub mask: Option<Vec<u8>>,
}
