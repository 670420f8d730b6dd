//! Bytes a second of all downloads together.

use std::time::Duration;

use tokio::sync::Mutex;
use tokio::time::{Instant, sleep_until};

/// Time that may be made up for after a wait for the network.
const MOST_CREDIT: Duration = Duration::from_millis(200);

pub struct DownloadPace {
    bytes_per_second: Option<u64>,
    /// The time at which the bytes so far are within the limit.
    due: Mutex<Instant>,
}

impl DownloadPace {
    /// `None` for no limit.
    pub fn new(bytes_per_second: Option<u64>) -> Self {
        Self {
            bytes_per_second,
            due: Mutex::new(Instant::now()),
        }
    }

    /// Waits until this many further bytes are allowed.
    pub async fn take(&self, bytes: usize) {
        let Some(rate) = self.bytes_per_second else {
            return;
        };
        let cost = Duration::from_secs_f64(bytes as f64 / rate.max(1) as f64);
        let due = {
            let mut due = self.due.lock().await;
            let earliest = Instant::now().checked_sub(MOST_CREDIT);
            *due = earliest.map_or(*due, |earliest| (*due).max(earliest)) + cost;
            *due
        };
        sleep_until(due).await;
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::Instant;

    use super::DownloadPace;

    #[tokio::test(start_paused = true)]
    async fn all_downloads_together_keep_to_the_rate() {
        let pace = DownloadPace::new(Some(1000));
        let began = Instant::now();
        let download = async || {
            for _ in 0..50 {
                pace.take(100).await;
            }
        };
        tokio::join!(download(), download());
        let took = began.elapsed();
        assert!(took >= Duration::from_millis(9700), "{took:?}");
        assert!(took <= Duration::from_millis(10_100), "{took:?}");
        // A pause of the network is no credit for long.
        tokio::time::sleep(Duration::from_secs(60)).await;
        let began = Instant::now();
        download().await;
        assert!(began.elapsed() >= Duration::from_millis(4700));
        let free = DownloadPace::new(None);
        free.take(usize::MAX).await;
    }
}
