//! The body and replies of the Model Context Protocol.

use serde_json::json;

use super::operation::{Content, RouteBodies};
use crate::http::paths::MCP;
use crate::http::route::Route;

pub fn shape(route: &Route) -> Option<RouteBodies> {
    let about = "A request or notification of JSON-RPC 2.0: initialize, tools/list, tools/call.";
    let message = || json!({"type": "object"});
    let replies = vec![
        Content::json(message()),
        Content::of("text/event-stream", message()),
    ];
    (route.path == MCP).then(|| RouteBodies {
        parameters: Vec::new(),
        body: vec![Content::json(
            json!({"type": "object", "description": about}),
        )],
        replies: vec![
            (
                200,
                "The result; events where progress comes first.",
                replies,
            ),
            (202, "Notification accepted.", Vec::new()),
        ],
    })
}
