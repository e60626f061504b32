//! What the tests of the ends share.
#![allow(dead_code, reason = "each test takes what it needs")]

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use tokio::time::{Instant, sleep, timeout};
use towline_gateway::{Entry, Sink, Source, Status, Stream};
use towline_link::codec::Record;

/// Longer than anything here takes.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

pub(crate) fn record(text: &str) -> Record {
    Record::parse(text.as_bytes()).unwrap()
}

/// A delta that can be told from the others.
pub(crate) fn delta(number: u64) -> Record {
    record(&format!(
        r#"{{"context":"vessels.self","updates":[{{"$source":"test.1","timestamp":"2026-01-01T00:00:00.000Z","values":[{{"path":"test.number","value":{number}}}]}}]}}"#
    ))
}

pub(crate) fn entries(numbers: std::ops::Range<u64>) -> Vec<Entry> {
    numbers
        .map(|seq| Entry {
            seq,
            record: delta(seq),
        })
        .collect()
}

pub(crate) fn stream(name: &str, id: u64) -> Stream {
    Stream {
        name: name.to_owned(),
        id,
    }
}

pub(crate) async fn next(source: &mut Source) -> Record {
    let next = timeout(PATIENCE, source.next()).await;
    next.expect("no record came").unwrap().expect("it ended")
}

/// Waits until something holds.
pub(crate) async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < PATIENCE, "not in time: {what}");
        sleep(Duration::from_millis(5)).await;
    }
}

pub(crate) async fn until_up(sink: &Sink) {
    until("the sink is up", || sink.status() == Status::Up).await;
}

/// The print macros would be captured.
pub(crate) fn skip(what: &str, why: &str) {
    let _ = writeln!(std::io::stderr(), "SKIPPED {what}: {why}");
}

/// A directory that goes with the value.
pub(crate) struct Scratch(PathBuf);

impl Scratch {
    pub(crate) fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("towline-gateway-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A port that was free a moment ago.
pub(crate) fn free_port() -> u16 {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().port()
}

/// Numbers that a seed makes.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % end
    }
}
