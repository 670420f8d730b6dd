//! What people's calendars say, for what is stored. Nothing is timed by it: it jumps.

use std::time::SystemTime;

use muster_protocol::job::UnixMillis;

pub fn wall_clock() -> UnixMillis {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    UnixMillis::default().after(since.unwrap_or_default())
}
