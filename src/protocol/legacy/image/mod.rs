//! Image requests, from the client's body to the worker's and back.
//!
//! | file | what it is |
//! | --- | --- |
//! | [`request`] | what clients ask for |
//! | [`params`] | the parameters of an image, of a request's or of a style |
//! | [`status`] | what clients read back |
//! | [`payload`] | what a worker is given |
//! | [`metadata`] | what a worker remarks about an image |
//! | `limits` | the workers that may take a request |
//! | [`neutral`] | a request of another API in the words of this one |
//! | [`check`] | which parameters go together |
//! | [`baseline`] | what family a model belongs to |
//! | [`mod@reference`] | models that are known by their names |

pub mod baseline;
pub mod check;
mod limits;
pub mod metadata;
pub mod neutral;
pub mod params;
pub mod payload;
pub mod reference;
pub mod request;
pub mod status;

#[cfg(test)]
mod tests;
