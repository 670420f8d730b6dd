//! `worker serve`: the coordinator alone. Clients and workers come to it over the network.

use super::coordinator;
use super::{Failure, Root};
use crate::config::Flag;

const EXAMPLES: &str = "\
Examples:
  worker serve                                       for this machine only
  worker serve --listen 0.0.0.0:7010                 for the network, without TLS
  worker serve --self-signed --listen 0.0.0.0:7010   for the network, with TLS
  worker serve --port 8080                           on another port of this machine
  worker serve --listen 127.0.0.1:0 --json           on a free port, for scripts
  worker serve --dev                                 for tests of clients, without limits";

/// Run a coordinator, without a worker.
///
/// The first start creates an administrator and prints its key once. `worker key create` creates more keys.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    #[command(flatten)]
    pub door: DoorArgs,
    /// Development mode for tests of clients: no rate limits, users on demand, this machine only.
    #[arg(long)]
    pub dev: bool,
    /// Serve https:// and wss:// with a self-signed certificate, kept in the data folder; workers pin it.
    #[arg(long)]
    self_signed: bool,
}

/// Where a coordinator listens and how it says so; `up` and `serve` share it.
#[derive(Debug, Default, clap::Args)]
pub struct DoorArgs {
    /// Address to listen on; port 0 picks a free port (default: 127.0.0.1:7010).
    #[arg(long, value_name = "ADDR:PORT")]
    listen: Option<String>,
    /// Port on 127.0.0.1 to listen on, as --listen 127.0.0.1:PORT.
    #[arg(long, value_name = "PORT", conflicts_with = "listen")]
    port: Option<u16>,
    /// Report readiness as one line of JSON on standard output: url, api_key, models, pid.
    #[arg(long)]
    pub json: bool,
}

impl DoorArgs {
    /// The options that override settings.
    pub fn flags(&self) -> Vec<Flag> {
        let flag = |name, value| Flag {
            name,
            setting: "serve.listen",
            value,
        };
        let listen = self.listen.clone().map(|value| flag("--listen", value));
        let port = self
            .port
            .map(|port| flag("--port", format!("127.0.0.1:{port}")));
        listen.or(port).into_iter().collect()
    }
}

pub fn run(args: Args, root: &Root) -> Result<(), Failure> {
    let mut flags = args.door.flags();
    flags.extend(args.self_signed.then(|| Flag {
        name: "--self-signed",
        setting: "serve.self_signed",
        value: "true".to_owned(),
    }));
    coordinator::serve(&args, flags, root)
}
