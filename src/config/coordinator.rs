//! `[[coordinator]]`: whom the worker works for. May be repeated.

use url::Url;

use super::choice::choice;
use super::reader::Reader;
use super::secret::Secret;
use super::setting::settings;

settings! {
    /// Whom the worker works for; repeat the section for several.
    pub struct CoordinatorConfig = "coordinator" {
        /// Its address: wss:// or https:// for a socket (ws:// and http:// on this machine), http:// or https:// for the legacy calls.
        url: Url,
        /// Your key there: its text, "file:PATH" or "env:NAME".
        key: Option<Secret>; unset "none",
        /// How to talk to it: socket, or legacy for the pop and submit calls.
        kind: CoordinatorKind = "socket",
        /// What this worker is called there. Change it to keep names apart on one network.
        name: Option<String>; unset "the name of the worker",
        /// Sockets towards a coordinator that gives each one job at a time, and jobs at once from one with the legacy calls. Raise it for more jobs at once there; Muster's own coordinators send all over one socket.
        sockets: usize where (1..=64) = 4,
        /// Talk to another machine without encryption, the key included. Only for a network that is yours alone.
        insecure: bool = false,
    }
}

choice! {
    pub enum CoordinatorKind { Socket = "socket", Legacy = "legacy" }
}

impl CoordinatorConfig {
    /// One section, its address held against its kind.
    pub(super) fn read_one(reader: &mut Reader<'_>) -> Option<Self> {
        let coordinator = Self::read(reader)?;
        let schemes: &[&str] = match coordinator.kind {
            CoordinatorKind::Socket => &["ws", "wss", "http", "https"],
            CoordinatorKind::Legacy => &["http", "https"],
        };
        if schemes.contains(&coordinator.url.scheme()) {
            return Some(coordinator);
        }
        let (found, kind) = (coordinator.url.scheme(), coordinator.kind.word());
        let what = format!(
            "a {kind} coordinator's url must begin with {}://, found {found}://",
            schemes.join(":// or ")
        );
        reader.problem_here(what);
        None
    }
}
