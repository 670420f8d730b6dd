//! The owner's page: status and commands of the worker in a browser on this machine, over HTTP with a token.
//!
//! | file | content |
//! | --- | --- |
//! | `guard` | checks of requests |
//! | `token` | the token, in its file |
//! | `routes` | one handler per URL |
//! | `history` | samples of a day or a week, for plots |
//! | `models` | models of the catalog, and downloads |
//! | `tools` | settings and checks, implemented by the command line |
//! | `page.html` | the page |

mod guard;
mod history;
mod models;
mod routes;
mod token;
mod tools;

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use axum::Json;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde_json::json;
use tokio::net::TcpListener;
use tokio::sync::Mutex;
use tracing::{info, warn};

use super::control::OwnerCommands;
use super::state::WorkerState;
use crate::catalog::Catalog;
use crate::hub::Hub;
use muster_config::Config;
use muster_process::tasks::Tasks;

use models::PageModels;
pub use token::PageToken;
pub use tools::{DoctorFinding, FileSettings, OwnerTools};

/// The parts of the worker that the page shows and commands.
pub struct PageSources {
    token: PageToken,
    state: WorkerState,
    commands: OwnerCommands,
    models: PageModels,
    tools: Arc<dyn OwnerTools>,
    /// Serializes changes of the file.
    changing: Mutex<()>,
}

/// An error as the page shows it.
#[derive(Debug)]
struct PageError {
    status: StatusCode,
    text: String,
}

impl PageError {
    fn new(status: StatusCode, text: impl Into<String>) -> Self {
        let text = text.into();
        Self { status, text }
    }
}

impl IntoResponse for PageError {
    fn into_response(self) -> Response {
        (self.status, Json(json!({"error": self.text}))).into_response()
    }
}

/// Serves the page until the tasks stop, if it is configured. A worker runs without it, too, so a failure is only
/// logged.
pub async fn open(
    config: &Config,
    places: (&Catalog, &Hub),
    (state, commands): (&WorkerState, OwnerCommands),
    tools: Arc<dyn OwnerTools>,
    tasks: &Tasks,
) {
    let Some(address) = config.owner.page.0 else {
        return;
    };
    let listener = match listen(address, &config.worker.data_dir).await {
        Ok(listening) => listening,
        Err(failure) => {
            warn!(
                "the owner's page is not served, {failure}; owner.page names another address, or false for none"
            );
            return;
        }
    };
    let (listener, url, token) = listener;
    let of_worker = (state.clone(), commands.clone());
    let sources = Arc::new(PageSources {
        token,
        state: state.clone(),
        models: PageModels::new(config, places, of_worker, tasks),
        commands,
        tools,
        changing: Mutex::default(),
    });
    info!("the owner's page is at {url}; `worker page` prints the link with its token");
    state.has_page(url);
    let (router, stopping) = (routes::router(sources), tasks.stopping());
    tasks.start(async move {
        let served = axum::serve(listener, router).into_future();
        // Connections that browsers keep open would hold the end of the worker up.
        if let Some(Err(error)) = stopping.run_until_cancelled(served).await {
            warn!("serving the owner's page failed: {error}");
        }
    });
}

async fn listen(
    address: SocketAddr,
    data_dir: &Path,
) -> Result<(TcpListener, String, PageToken), String> {
    let listener = TcpListener::bind(address).await;
    let listener =
        listener.map_err(|error| format!("since listening on {address} failed: {error}"))?;
    let address = listener.local_addr().unwrap_or(address);
    let token = PageToken::keep(data_dir);
    let token = token.map_err(|error| {
        let folder = data_dir.display();
        format!("since storing its token in {folder} failed: {error}")
    })?;
    Ok((listener, format!("http://{address}/"), token))
}
