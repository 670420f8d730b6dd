//! The GPUs of this machine, read by one thread every second for the whole process.

use std::sync::{Arc, Weak};
use std::thread;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::watch;

use super::GpuLoad;
use super::nvml::Cards;

const INTERVAL: Duration = Duration::from_secs(1);

type Sender = watch::Sender<Vec<GpuLoad>>;

static READER: Mutex<Weak<Sender>> = Mutex::new(Weak::new());

/// The GPUs that this process may use, by their numbers; read again each second while a receiver exists. The first call
/// reads them itself and may take its time. Without a driver the list stays empty.
pub fn follow() -> watch::Receiver<Vec<GpuLoad>> {
    let mut reader = READER.lock();
    if let Some(sender) = reader.upgrade() {
        return sender.subscribe();
    }
    let Some(cards) = Cards::open() else {
        return watch::channel(Vec::new()).1;
    };
    let (sender, receiver) = watch::channel(cards.loads());
    let sender = Arc::new(sender);
    let started = thread::Builder::new().name("gpu-readings".to_owned());
    let started = started.spawn({
        let sender = Arc::clone(&sender);
        move || read(&cards, &sender)
    });
    if started.is_ok() {
        *reader = Arc::downgrade(&sender);
    }
    receiver
}

fn read(cards: &Cards, sender: &Arc<Sender>) {
    loop {
        thread::park_timeout(INTERVAL);
        {
            let mut reader = READER.lock();
            if sender.receiver_count() == 0 {
                *reader = Weak::new();
                return;
            }
        }
        sender.send_replace(cards.loads());
    }
}
