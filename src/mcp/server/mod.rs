//! The protocol server: lists and calls tools; a call reports its progress and can be cancelled.

use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::Method;
use http::request::Parts;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, Implementation, JsonObject,
    ListToolsResult, PaginatedRequestParams, ProgressNotificationParam, ServerCapabilities,
    ServerConfig, Tool, ToolAnnotations,
};
use rmcp::service::{RequestContext, RoleServer};
use rmcp::transport::streamable_http_server::session::never::NeverSessionManager;
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use rmcp::{ErrorData, ServerHandler, ServiceExt};
use serde_json::Value;
use tokio::time::{MissedTickBehavior, interval};
use tracing::debug;
use uuid::Uuid;

use crate::api::{Api, ApiReply, ApiRequest, Unreachable};
use crate::folder::Folder;
use crate::tools::{TOOLS, ToolRoute};
use crate::{output, schema};

/// Polling interval of a call's progress.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(500);

const INSTRUCTIONS: &str = "Tools that make images, videos, music, speech, transcripts, embeddings and rankings on the \
    GPUs of this service. Call list_models for the names of models; most tools choose one if none is named.";

/// The tools of one service.
#[derive(Debug, Clone)]
pub struct McpServer<A> {
    api: A,
    tools: Arc<[Tool]>,
    folder: Option<Arc<Folder>>,
}

/// Answers HTTP requests independently, without sessions.
pub type HttpService<A> = StreamableHttpService<McpServer<A>, NeverSessionManager>;

#[derive(Debug, thiserror::Error)]
pub enum StdioError {
    #[error("the client did not begin the protocol: {0}")]
    Handshake(String),
    #[error("the connection to the client failed: {0}")]
    Broken(String),
}

impl<A: Api> McpServer<A> {
    /// `document` is the OpenAPI document of the service. Tools read and write files in `folder` alone, and none
    /// without it.
    pub fn new(api: A, document: &Value, folder: Option<Folder>) -> Self {
        let known = TOOLS.iter().filter(|tool| {
            let path = tool.path.split('?').next().unwrap_or_default();
            document["paths"].get(path).is_some()
        });
        let tools = known.map(|tool| listed(tool, document, folder.is_some()));
        Self {
            api,
            tools: tools.collect(),
            folder: folder.map(Arc::new),
        }
    }

    async fn call(
        &self,
        tool: &'static ToolRoute,
        arguments: JsonObject,
        context: &RequestContext<RoleServer>,
    ) -> Result<CallToolResult, Unreachable> {
        let caller = context.extensions.get::<Parts>().cloned().map(Arc::new);
        let body = match self.body(tool, arguments, caller.as_ref()).await? {
            Ok(body) => body,
            Err(message) => return Ok(output::failure(message)),
        };
        let token = body["progress_token"].as_str().map(str::to_owned);
        let sending = self.api.send(ApiRequest {
            method: tool.method.clone(),
            path: tool.path.to_owned(),
            body: (tool.method != Method::GET).then_some(body),
            caller: caller.clone(),
        });
        let reply = tokio::select! {
            reply = sending => reply?,
            () = self.tell_progress(token, caller, context) => return Err(Unreachable("the call was cancelled".to_owned())),
        };
        if !reply.status.is_success() {
            return Ok(output::failure(output::refusal(&reply)));
        }
        let folder = self.folder.clone();
        // Files are written, and images of megabytes encoded.
        let result =
            tokio::task::spawn_blocking(move || output::result(tool, &reply, folder.as_deref()));
        Ok(match result.await {
            Ok(Ok(result)) => result,
            Ok(Err(error)) => output::failure(error.to_string()),
            Err(error) => output::failure(format!("the result could not be read: {error}")),
        })
    }

    /// The arguments as the body of the route, or why they are none.
    async fn body(
        &self,
        tool: &ToolRoute,
        mut arguments: JsonObject,
        caller: Option<&Arc<Parts>>,
    ) -> Result<Result<Value, String>, Unreachable> {
        if let Some(unknown) = arguments
            .keys()
            .find(|name| !tool.fields.contains(&name.as_str()))
        {
            let known = tool.fields.join(", ");
            return Ok(Err(format!(
                "{} has no argument {unknown}; it has: {known}",
                tool.name
            )));
        }
        arguments.retain(|_, value| !value.is_null());
        if let Some(folder) = &self.folder {
            for field in tool.files {
                let Some(Value::String(given)) = arguments.get_mut(*field) else {
                    continue;
                };
                match file(folder, given) {
                    Ok(Some(content)) => *given = content,
                    Ok(None) => {}
                    Err(message) => return Ok(Err(message)),
                }
            }
            if matches!(tool.output, Some("video" | "music")) {
                arguments.insert("response_format".to_owned(), "b64_json".into());
            }
        }
        for (name, value) in tool.fixed {
            arguments.insert((*name).to_owned(), (*value).into());
        }
        if let Some(kind) = tool.models
            && !arguments.contains_key("model")
        {
            match self.first_model(kind, caller).await? {
                Some(model) => arguments.insert("model".to_owned(), model),
                None => return Ok(Err(format!("no model for {kind} is online"))),
            };
        }
        if tool.has_progress {
            let token = Uuid::new_v4().to_string();
            arguments.insert("progress_token".to_owned(), token.into());
        }
        Ok(Ok(Value::Object(arguments)))
    }

    async fn first_model(
        &self,
        kind: &str,
        caller: Option<&Arc<Parts>>,
    ) -> Result<Option<Value>, Unreachable> {
        let reply = self.get(format!("/v1/models?type={kind}"), caller).await?;
        let list: Value = serde_json::from_slice(&reply.body).unwrap_or_default();
        Ok(list["data"].get(0).map(|model| model["id"].clone()))
    }

    async fn get(
        &self,
        path: String,
        caller: Option<&Arc<Parts>>,
    ) -> Result<ApiReply, Unreachable> {
        let request = ApiRequest {
            method: Method::GET,
            path,
            body: None,
            caller: caller.cloned(),
        };
        self.api.send(request).await
    }

    /// Reports progress to the client, if requested. Ends when the client cancels the call.
    async fn tell_progress(
        &self,
        token: Option<String>,
        caller: Option<Arc<Parts>>,
        context: &RequestContext<RoleServer>,
    ) {
        let wanted = context.meta.get_progress_token().zip(token);
        let Some((progress_token, token)) = wanted else {
            return context.ct.cancelled().await;
        };
        let mut ticks = interval(PROGRESS_INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut told = None;
        loop {
            tokio::select! {
                () = context.ct.cancelled() => return,
                _ = ticks.tick() => {}
            }
            let reply = self
                .get(format!("/v1/progress/{token}"), caller.as_ref())
                .await;
            let reply: Value = reply
                .ok()
                .and_then(|reply| serde_json::from_slice(&reply.body).ok())
                .unwrap_or_default();
            let percent = reply["progress"].as_f64();
            // The protocol requires that progress increases with each report.
            let Some(percent) = percent.filter(|percent| told.is_none_or(|told| *percent > told))
            else {
                continue;
            };
            told = Some(percent);
            let progress =
                ProgressNotificationParam::new(progress_token.clone(), percent).with_total(100.0);
            if let Err(error) = context.peer.notify_progress(progress).await {
                debug!("progress could not be told: {error}");
            }
        }
    }
}

impl<A: Api> ServerHandler for McpServer<A> {
    fn get_info(&self) -> ServerConfig {
        let capabilities = ServerCapabilities::builder().enable_tools().build();
        ServerConfig::new(capabilities)
            .with_server_info(Implementation::new("muster", env!("CARGO_PKG_VERSION")))
            .with_instructions(INSTRUCTIONS)
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        Ok(ListToolsResult::with_all_items(self.tools.to_vec()))
    }

    fn get_tool(&self, name: &str) -> Option<Tool> {
        self.tools.iter().find(|tool| tool.name == name).cloned()
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let is_listed = self.get_tool(&request.name).is_some();
        let tool = TOOLS
            .iter()
            .find(|tool| is_listed && tool.name == request.name);
        let Some(tool) = tool else {
            let names: Vec<&str> = self.tools.iter().map(|tool| &*tool.name).collect();
            let message = format!(
                "no tool {} is here; there are: {}",
                request.name,
                names.join(", ")
            );
            return Err(ErrorData::invalid_params(message, None));
        };
        let arguments = request.arguments.unwrap_or_default();
        let result = self.call(tool, arguments, &context).await;
        Ok(result
            .unwrap_or_else(|error| output::failure(error.to_string()))
            .into())
    }
}

/// A handler of `POST /mcp`: stateless, with JSON for a plain result and server-sent events otherwise.
pub fn http_service<A: Api>(server: McpServer<A>) -> HttpService<A> {
    // Authentication, origins and limits are checked before.
    let config = StreamableHttpServerConfig::default()
        .with_legacy_session_mode(false)
        .with_json_response(true)
        .disable_allowed_hosts()
        .with_max_request_body_bytes(usize::MAX);
    let sessions = Arc::new(NeverSessionManager::default());
    StreamableHttpService::new(move || Ok(server.clone()), sessions, config)
}

/// Serves a client on standard input and output until it closes them.
pub async fn serve_stdio<A: Api>(server: McpServer<A>) -> Result<(), StdioError> {
    let running = server.serve(rmcp::transport::stdio_pipes()).await;
    let running = running.map_err(|error| StdioError::Handshake(error.to_string()))?;
    let ended = running.waiting().await;
    ended.map_err(|error| StdioError::Broken(error.to_string()))?;
    Ok(())
}

fn listed(tool: &'static ToolRoute, document: &Value, has_folder: bool) -> Tool {
    let is_reading = tool.method == Method::GET;
    let schema = schema::input(document, tool, has_folder);
    let mut description = tool.description.to_owned();
    if has_folder && tool.output.is_some() {
        description.push_str(" Files are saved in the shared folder.");
    }
    Tool::new(tool.name, description, schema)
        .with_title(tool.title)
        .with_annotations(
            ToolAnnotations::with_title(tool.title)
                .read_only(is_reading)
                .destructive(false)
                .open_world(false),
        )
}

/// A file in the folder in base64; `None` of base64, a data URL or a link.
fn file(folder: &Folder, given: &str) -> Result<Option<String>, String> {
    const LONGEST_PATH: usize = 4096;
    /// No name of a file is likely to be so long and base64 as well.
    const LEAST_BASE64: usize = 64;
    let is_inline = ["data:", "http://", "https://"]
        .iter()
        .any(|start| given.starts_with(start));
    let is_base64 = || given.len() >= LEAST_BASE64 && STANDARD.decode(given).is_ok();
    if is_inline || given.len() > LONGEST_PATH {
        return Ok(None);
    }
    match folder.read(given) {
        Ok(bytes) => Ok(Some(STANDARD.encode(bytes))),
        Err(_) if is_base64() => Ok(None),
        Err(error) => Err(error.to_string()),
    }
}

#[cfg(test)]
mod tests;
