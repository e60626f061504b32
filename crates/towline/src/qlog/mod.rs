//! Logs of connections for qlog viewers: one file for each, in the JSON-SEQ form of
//! draft-ietf-quic-qlog-main-schema-13. HTTP/3 and WebTransport are in it where the connection speaks them.
//!
//! A [`QlogDir`] is an endpoint's [`ObserverFactory`]. A file is called after the connection's
//! original destination connection ID and our role, as in `83a4c9d02f5e1b77_client.sqlog`, so that the
//! logs of both ends stand side by side. Records are collected and written some KiB at a time, by
//! the driver itself: for finding out what happened, not for leaving on. A server makes no file
//! before the client has proven its address, and a folder takes [`MAX_QLOG_BYTES`] unless told
//! otherwise. A disk that takes no more, like a folder that is full, is told once and ends the
//! logging, never a connection.

mod frames;
#[cfg(feature = "http3")]
mod http3;
mod json;
mod records;

use std::fmt::Display;
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, SystemTime};

use towline_quic::observe::{ConnectionState, Event, NewConnection, Observer, ObserverFactory};
use towline_wire::{PacketKind, Side, Time};

use records::{Records, role};

/// Cap: connections that one [`QlogDir`] logs at a time; those that begin beyond are not logged.
pub const MAX_QLOGS: usize = 256;

/// Cap: bytes that one [`QlogDir`] writes into all its files together, unless
/// [`QlogDir::max_bytes`] says otherwise.
pub const MAX_QLOG_BYTES: u64 = 4 << 30;

/// Collected before they are written.
const WRITE_BYTES: usize = 16 << 10;

/// Cap: bytes collected while nothing proves the client's address; a connection that has more to
/// tell by then is not logged.
const MAX_UNPROVEN_BYTES: usize = 2 * WRITE_BYTES;

/// A folder that connections are logged into.
#[derive(Debug)]
pub struct QlogDir {
    path: PathBuf,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    /// Logs being written.
    open: AtomicUsize,
    /// Bytes that may still be written.
    room: AtomicU64,
    /// The disk failed or the room is used up: nothing more is logged.
    failed: AtomicBool,
    /// Somebody was told that not all connections are logged.
    told_full: AtomicBool,
    /// Somebody was told that a file could not be made.
    told_unmade: AtomicBool,
}

impl Shared {
    fn new() -> Self {
        Self {
            open: AtomicUsize::new(0),
            room: AtomicU64::new(MAX_QLOG_BYTES),
            failed: AtomicBool::new(false),
            told_full: AtomicBool::new(false),
            told_unmade: AtomicBool::new(false),
        }
    }

    /// Takes room for so many bytes; false if there is none.
    fn take_room(&self, bytes: usize) -> bool {
        let taken = self
            .room
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |room| {
                room.checked_sub(bytes as u64)
            });
        taken.is_ok()
    }

    fn fail(&self, path: &Path, why: &dyn Display) {
        if !self.failed.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                path = %path.display(),
                "qlog: {why}; no connection is logged any more, and all go on"
            );
        }
    }

    fn is_failed(&self) -> bool {
        self.failed.load(Ordering::Relaxed)
    }

    /// A file could not be made: its connection goes without a log.
    fn on_unmade(&self, path: &Path, error: &io::Error) {
        let path = path.display();
        if error.kind() == io::ErrorKind::AlreadyExists {
            tracing::debug!(%path, "qlog: this connection has a log already");
        } else if self.told_unmade.swap(true, Ordering::Relaxed) {
            tracing::debug!(%path, "qlog: {error}; this connection is not logged");
        } else {
            tracing::warn!(
                %path,
                "qlog: {error}; this connection is not logged, nor are others whose file cannot be made"
            );
        }
    }
}

impl QlogDir {
    /// Logs into the folder at `path`, which is made if it is not there.
    ///
    /// # Errors
    /// When it can neither be made nor used.
    pub fn create(path: impl Into<PathBuf>) -> io::Result<Self> {
        let path = path.into();
        // Who talks to whom is nobody else's business.
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&path)?;
        Ok(Self {
            path,
            shared: Arc::new(Shared::new()),
        })
    }

    /// Writes so many bytes from now on, all files together, and then no more. [`MAX_QLOG_BYTES`]
    /// if it is not set.
    #[must_use]
    pub fn max_bytes(self, bytes: u64) -> Self {
        self.shared.room.store(bytes, Ordering::Relaxed);
        self
    }

    /// Where the log of a connection goes.
    fn file_of(&self, connection: &NewConnection) -> PathBuf {
        let id = connection.original_destination_cid;
        self.path
            .join(format!("{id}_{}.sqlog", role(connection.side)))
    }
}

impl ObserverFactory for QlogDir {
    fn observe(&self, now: Time, connection: &NewConnection) -> Option<Box<dyn Observer>> {
        if self.shared.is_failed() {
            return None;
        }
        let place = Place::take(&self.shared)?;
        let path = self.file_of(connection);
        Some(Box::new(Log::begin(now, connection, path, place)))
    }
}

/// One of the places that [`MAX_QLOGS`] gives; given back when dropped.
struct Place(Arc<Shared>);

impl Place {
    fn take(shared: &Arc<Shared>) -> Option<Self> {
        let place = Self(Arc::clone(shared));
        if shared.open.fetch_add(1, Ordering::Relaxed) < MAX_QLOGS {
            return Some(place);
        }
        if !shared.told_full.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                "qlog: {MAX_QLOGS} connections are logged, and no more at a time; others go without"
            );
        }
        None
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Where a log's bytes go.
enum Out {
    /// Nothing was written yet: the file is made for the first bytes.
    Unmade,
    Open(Box<dyn Write + Send>),
    /// Nowhere any more.
    Over,
}

/// The log of one connection.
struct Log {
    records: Records,
    /// Not written yet; at most [`MAX_UNPROVEN_BYTES`] and the records of an event.
    buffer: Vec<u8>,
    out: Out,
    path: PathBuf,
    /// The peer's address is its own: anyone could have begun a connection in its name before.
    is_proven: bool,
    place: Place,
}

impl Log {
    fn begin(now: Time, connection: &NewConnection, path: PathBuf, place: Place) -> Self {
        let records = Records::new(now, connection.side);
        let mut buffer = Vec::with_capacity(2 * WRITE_BYTES);
        records.write_header(&mut buffer, connection, since_1970());
        Self {
            records,
            buffer,
            out: Out::Unmade,
            path,
            // A client chose its server.
            is_proven: connection.side == Side::Client,
            place,
        }
    }

    fn flush(&mut self) {
        if self.buffer.is_empty() || matches!(self.out, Out::Over) {
            return;
        }
        if self.is_proven && self.write_buffer() {
            self.buffer.clear();
        } else {
            self.out = Out::Over;
            self.buffer = Vec::new();
        }
    }

    /// Writes what was collected; false if nothing more can be written.
    fn write_buffer(&mut self) -> bool {
        let shared = &self.place.0;
        if shared.is_failed() {
            return false;
        }
        if !shared.take_room(self.buffer.len()) {
            shared.fail(&self.path, &"the folder has taken as many bytes as it may");
            return false;
        }
        if let Out::Unmade = self.out {
            match make_file(&self.path) {
                Ok(file) => self.out = Out::Open(Box::new(file)),
                Err(error) => {
                    shared.on_unmade(&self.path, &error);
                    return false;
                }
            }
        }
        let Out::Open(out) = &mut self.out else {
            return false;
        };
        let written = out.write_all(&self.buffer);
        written
            .inspect_err(|error| shared.fail(&self.path, error))
            .is_ok()
    }
}

impl Observer for Log {
    fn on_event(&mut self, now: Time, event: &Event<'_>) {
        if matches!(self.out, Out::Over) {
            return;
        }
        // RFC 9000 §8.1: only the holder of the address can have our Handshake keys.
        self.is_proven |=
            matches!(event, Event::PacketReceived(packet) if packet.kind != PacketKind::Initial);
        self.records.write(&mut self.buffer, now, event);
        // Once for either end: what comes between them is not urgent, and a peer can cause much.
        let is_end = matches!(
            event,
            Event::ConnectionClosed { .. }
                | Event::ConnectionStateUpdated {
                    new: ConnectionState::Closed,
                    ..
                }
        );
        let most = match self.is_proven {
            true => WRITE_BYTES,
            false => MAX_UNPROVEN_BYTES,
        };
        if is_end || self.buffer.len() >= most {
            self.flush();
        }
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        self.flush();
    }
}

/// The wall clock.
#[expect(
    clippy::disallowed_methods,
    reason = "part of the driver's side; people compare logs by it, and nothing depends on it"
)]
fn since_1970() -> Duration {
    SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default()
}

fn make_file(path: &Path) -> io::Result<File> {
    // A client chooses the name: what is there already is never touched.
    OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)
}

#[cfg(test)]
mod tests;
