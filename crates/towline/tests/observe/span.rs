//! The span around a connection's log lines.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

use super::transfer;

/// Wants what is at a level or above; remembers the spans that were made.
struct Wants {
    level: Level,
    made: Arc<Mutex<Vec<String>>>,
    entered: Arc<AtomicU64>,
}

impl Subscriber for Wants {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= self.level
    }

    fn new_span(&self, attributes: &Attributes<'_>) -> Id {
        let mut made = self.made.lock().unwrap();
        made.push(format!("{attributes:?}"));
        Id::from_u64(made.len() as u64)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, _: &Event<'_>) {}

    fn enter(&self, _: &Id) {
        self.entered.fetch_add(1, Ordering::Relaxed);
    }

    fn exit(&self, _: &Id) {
        self.entered.fetch_add(1, Ordering::Relaxed);
    }
}

/// The spans of connections that a transfer makes, and how often any was entered or left.
fn spans(level: Level) -> (Vec<String>, u64) {
    let (made, entered) = (Arc::default(), Arc::default());
    let wants = Wants {
        level,
        made: Arc::clone(&made),
        entered: Arc::clone(&entered),
    };
    tracing::subscriber::with_default(wants, || transfer(4, None));
    let mut made = std::mem::take(&mut *made.lock().unwrap());
    made.retain(|span| span.contains("original_destination_cid"));
    (made, entered.load(Ordering::Relaxed))
}

#[test]
fn each_connection_has_a_span_if_somebody_wants_it() {
    let (made, entered) = spans(Level::DEBUG);
    assert_eq!(made.len(), 2, "{made:?}");
    assert!(made.iter().any(|span| span.contains("Client")), "{made:?}");
    assert!(made.iter().any(|span| span.contains("Server")), "{made:?}");
    assert!(entered > 100 && entered % 2 == 0, "{entered}");
    let (made, entered) = spans(Level::WARN);
    assert_eq!((made, entered), (vec![], 0));
}
