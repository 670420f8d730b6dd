//! Image requests, from the client's body to the worker's and back.
//!
//! | file | contents |
//! | --- | --- |
//! | [`request`] | the client's body |
//! | [`params`] | the parameters of an image, of a request's or of a style |
//! | [`status`] | the client's status reply |
//! | [`payload`] | the worker's job payload |
//! | [`metadata`] | workers' remarks about an image |
//! | `limits` | the workers that may take a request |
//! | [`neutral`] | another API's request converted to this one |
//! | [`check`] | which parameters go together |
//! | [`baseline`] | families of models |
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
