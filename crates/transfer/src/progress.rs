//! Counters a session moves and a progress display reads.
//!
//! Lock-free except for the name shown; nothing here prints.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use tokio::time::{Duration, Instant};

use crate::path::RelativePath;

/// The counters of a session, which its tasks move and anybody may read meanwhile.
pub struct Progress {
    /// Files announced so far.
    pub(crate) files_total: AtomicU64,
    /// Bytes announced so far.
    pub(crate) bytes_total: AtomicU64,
    /// Whether the totals are final.
    pub(crate) list_complete: AtomicBool,
    /// Files settled, well or not.
    pub(crate) files_settled: AtomicU64,
    /// Bytes in place: moved, found or resumed.
    pub(crate) bytes_settled: AtomicU64,
    /// File bytes that went over the wire in this session.
    pub(crate) bytes_moved: AtomicU64,
    /// Files that this session went on with.
    pub(crate) files_resumed: AtomicU64,
    /// Bytes that did not travel again because of that.
    pub(crate) bytes_resumed: AtomicU64,
    current: Mutex<Option<RelativePath>>,
    started: Instant,
    touched_ms: AtomicU64,
}

/// How far a session is, at one moment. The numbers are read one after the other: while the session
/// runs, they may differ by what settles between two of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ProgressSnapshot {
    /// Files announced so far.
    pub files_total: u64,
    /// Bytes announced so far.
    pub bytes_total: u64,
    /// Whether the totals are final.
    pub list_complete: bool,
    /// Files settled, well or not.
    pub files_settled: u64,
    /// Bytes in place: moved, found or resumed.
    pub bytes_settled: u64,
    /// File bytes that went over the wire in this session.
    pub bytes_moved: u64,
    /// Files that this session went on with.
    pub files_resumed: u64,
    /// Bytes that did not travel again because of that.
    pub bytes_resumed: u64,
    /// The file being moved.
    pub current: Option<RelativePath>,
}

impl Default for Progress {
    fn default() -> Self {
        Self::new()
    }
}

impl Progress {
    /// Fresh counters; the clock starts now.
    pub fn new() -> Self {
        Self {
            files_total: AtomicU64::new(0),
            bytes_total: AtomicU64::new(0),
            list_complete: AtomicBool::new(false),
            files_settled: AtomicU64::new(0),
            bytes_settled: AtomicU64::new(0),
            bytes_moved: AtomicU64::new(0),
            files_resumed: AtomicU64::new(0),
            bytes_resumed: AtomicU64::new(0),
            current: Mutex::new(None),
            started: Instant::now(),
            touched_ms: AtomicU64::new(0),
        }
    }

    /// The counters now.
    pub fn snapshot(&self) -> ProgressSnapshot {
        ProgressSnapshot {
            files_total: self.files_total.load(Relaxed),
            bytes_total: self.bytes_total.load(Relaxed),
            list_complete: self.list_complete.load(Relaxed),
            files_settled: self.files_settled.load(Relaxed),
            bytes_settled: self.bytes_settled.load(Relaxed),
            bytes_moved: self.bytes_moved.load(Relaxed),
            files_resumed: self.files_resumed.load(Relaxed),
            bytes_resumed: self.bytes_resumed.load(Relaxed),
            current: self.current.lock().ok().and_then(|current| current.clone()),
        }
    }

    /// Notes that data moved just now.
    pub(crate) fn touch(&self) {
        self.touched_ms
            .store(self.started.elapsed().as_millis() as u64, Relaxed);
    }

    /// Time since data last moved.
    pub(crate) fn idle(&self) -> Duration {
        let touched = Duration::from_millis(self.touched_ms.load(Relaxed));
        self.started.elapsed().saturating_sub(touched)
    }

    /// Time since the session began.
    pub fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }

    /// Names the file now being moved.
    pub(crate) fn set_current(&self, path: &RelativePath) {
        if let Ok(mut current) = self.current.lock() {
            *current = Some(path.clone());
        }
    }

    pub(crate) fn add_moved(&self, bytes: u64) {
        self.bytes_moved.fetch_add(bytes, Relaxed);
        self.bytes_settled.fetch_add(bytes, Relaxed);
    }

    pub(crate) fn add_found(&self, bytes: u64) {
        self.bytes_settled.fetch_add(bytes, Relaxed);
    }

    pub(crate) fn add_resumed(&self, bytes: u64) {
        self.files_resumed.fetch_add(1, Relaxed);
        self.bytes_resumed.fetch_add(bytes, Relaxed);
    }

    pub(crate) fn add_announced(&self, bytes: u64) {
        self.files_total.fetch_add(1, Relaxed);
        self.bytes_total.fetch_add(bytes, Relaxed);
    }

    pub(crate) fn file_settled(&self) {
        self.files_settled.fetch_add(1, Relaxed);
    }
}
