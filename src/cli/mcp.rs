//! `worker mcp`: tools of the Model Context Protocol on standard input and output.

use std::path::PathBuf;

use muster_mcp::{Api, ApiReply, ApiRequest, Folder, McpServer, Unreachable, serve_stdio};
use url::Url;

use super::chat::{Client, running};
use super::load::block_on;
use super::{Exit, Failure, Root};
use crate::link::native_tls;

const EXAMPLES: &str = "\
Examples:
  claude mcp add muster -- worker mcp --folder .      give Claude Code the tools of the running `worker up`
  codex mcp add muster -- worker mcp --folder .       the same for Codex
  worker mcp --url https://muster.example --key KEY   the tools of another coordinator

A coordinator has the same tools at /mcp (streamable HTTP), without a folder.";

/// Offer images, videos, music, speech, transcripts and vectors as tools (Model Context Protocol).
///
/// For programs that start a server of tools themselves, such as Claude Code, Codex and editors. Tools call the
/// coordinator of --url, else the `worker up` that runs with this data folder, with your key: the same limits and prices.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct McpArgs {
    /// Address of a coordinator.
    #[arg(long, value_name = "URL")]
    url: Option<Url>,
    /// Key for the coordinator.
    #[arg(
        long,
        value_name = "KEY",
        env = "MUSTER_API_KEY",
        hide_env_values = true
    )]
    key: Option<String>,
    /// Folder whose files tools may read, and where they save what they make; without it files come within replies.
    #[arg(long, value_name = "FOLDER")]
    folder: Option<PathBuf>,
}

pub fn run(args: McpArgs, root: &Root) -> Result<(), Failure> {
    let loaded = root.load()?;
    root.start_log()?;
    let folder = args.folder.as_deref().map(Folder::open).transpose();
    let folder = folder.map_err(|error| Failure::new(Exit::Usage, error.to_string()))?;
    block_on(async {
        let client = match args.url {
            Some(url) => {
                let tls = native_tls().map_err(|reason| {
                    Failure::new(Exit::Failed, format!("starting TLS failed: {reason}"))
                })?;
                Client::new(url, args.key, tls)?
            }
            None => running(&loaded.config.worker.data_dir, args.key)
                .await?
                .ok_or_else(|| {
                    Failure::unavailable("no coordinator runs with this data folder")
                        .hint("start `worker up`, or name a coordinator with --url")
                })?,
        };
        let document = client.get("openapi.json").await?;
        let server = McpServer::new(RemoteApi(client), &document, folder);
        let served = serve_stdio(server).await;
        served.map_err(|error| Failure::new(Exit::Failed, error.to_string()))
    })
}

/// A coordinator over HTTP.
#[derive(Clone)]
struct RemoteApi(Client);

impl Api for RemoteApi {
    async fn send(&self, request: ApiRequest) -> Result<ApiReply, Unreachable> {
        let path = request.path.trim_start_matches('/');
        let reply = self.0.request(request.method, path, request.body.as_ref());
        let (status, content_type, body) = reply
            .await
            .map_err(|failure| Unreachable(failure.to_string()))?;
        Ok(ApiReply {
            status,
            content_type,
            body,
        })
    }
}
