//! Paths that several modules name.

/// Every path of the AI Horde API begins with it.
pub const HORDE: &str = "/api/v2/";
pub const CHAT: &str = "/v1/chat/completions";
pub const COMPLETIONS: &str = "/v1/completions";
pub const DESCRIBE: &str = "/v1/images/describe";
pub const MCP: &str = "/mcp";
