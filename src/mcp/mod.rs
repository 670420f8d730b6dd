//! A server of the Model Context Protocol whose tools are routes of the `/v1` API: the same keys, limits and bills, and the
//! same fields, whose schemas come from `/openapi.json`.
//!
//! | file | content |
//! | --- | --- |
//! | `api` | how a tool calls its route |
//! | `tools` | the tools and their routes |
//! | `schema` | input schemas, from the OpenAPI document |
//! | `folder` | the folder that tools may read and write |
//! | `output` | replies of routes as content of the protocol |
//! | `server` | the protocol: tools, calls, progress, cancellation |

#![cfg_attr(
    test,
    allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")
)]

mod api;
mod folder;
mod output;
mod schema;
mod server;
mod tools;

pub use api::{Api, ApiReply, ApiRequest, Unreachable};
pub use folder::{Folder, FolderError};
pub use server::{HttpService, McpServer, StdioError, http_service, serve_stdio};
