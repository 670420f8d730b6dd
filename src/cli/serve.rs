//! `worker serve`: the coordinator alone. Clients and workers come to it over the network.

use super::coordinator;
use super::{Failure, Root};
use crate::config::Flag;

const EXAMPLES: &str = "\
Examples:
  worker serve                                 on this machine only, accounts in the data folder
  worker serve --listen 0.0.0.0:7010           for the whole network
  worker serve --self-signed --listen 0.0.0.0:7010   the same, encrypted, without a domain name
  worker serve --listen 127.0.0.1:0 --json     on a free port, for scripts
  worker serve --dev                           for tests of clients: no limits, users on demand";

/// Run the coordinator alone.
///
/// The first start makes an administrator and prints its key, once. `worker key create` makes more.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    #[command(flatten)]
    pub door: DoorArgs,
    /// For tests of other programs: no rate limits, users on demand, and on this machine only.
    #[arg(long)]
    pub dev: bool,
    /// Serve https:// and wss:// with a certificate of its own, kept in the data folder; workers pin it.
    #[arg(long)]
    self_signed: bool,
}

/// Where a coordinator listens and how it says so; `up` and `serve` share it.
#[derive(Debug, clap::Args)]
pub struct DoorArgs {
    /// The address to listen on; port 0 takes a free one (default: 127.0.0.1:7010).
    #[arg(long, value_name = "ADDR:PORT")]
    listen: Option<String>,
    /// Say that it is ready in one JSON object on standard output: url, api_key, models, pid.
    #[arg(long)]
    pub json: bool,
}

impl DoorArgs {
    /// Those of our options that stand for settings.
    pub fn flags(&self) -> Vec<Flag> {
        let listen = self.listen.clone().map(|value| Flag {
            name: "--listen",
            setting: "serve.listen",
            value,
        });
        listen.into_iter().collect()
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
