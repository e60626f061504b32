//! Logs of connections for qlog viewers: one file for each, in the JSON-SEQ form of
//! draft-ietf-quic-qlog-main-schema-13.
//!
//! A [`QlogDir`] is an endpoint's [`ObserverFactory`]. A file is called after the connection's
//! original destination connection ID and our role, as in `83a4c9d02f5e1b77_client.sqlog`, so that the
//! logs of both ends stand side by side. Records are collected and written some KiB at a time, by
//! the driver itself: for finding out what happened, not for leaving on. A disk that takes no more is told
//! once and ends the logging, never a connection.

mod frames;
mod json;
mod records;

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use towline_quic::observe::{Event, NewConnection, Observer, ObserverFactory};
use towline_wire::Time;

use crate::config::unix_now;
use records::{Records, role};

/// Cap: connections that one [`QlogDir`] logs at a time; those that begin beyond are not logged.
pub const MAX_QLOGS: usize = 256;

/// Collected before they are written.
const WRITE_BYTES: usize = 16 << 10;

/// A folder that connections are logged into.
#[derive(Debug)]
pub struct QlogDir {
    path: PathBuf,
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    /// Logs being written.
    open: AtomicUsize,
    /// The folder or its disk failed: nothing more is logged.
    failed: AtomicBool,
    /// Somebody was told that not all connections are logged.
    told_full: AtomicBool,
}

impl Shared {
    fn fail(&self, path: &Path, error: &io::Error) {
        if !self.failed.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                path = %path.display(),
                "qlog: {error}; no connection is logged any more, and all go on"
            );
        }
    }

    fn is_failed(&self) -> bool {
        self.failed.load(Ordering::Relaxed)
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
            shared: Arc::default(),
        })
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
        // A client chooses the name: what is there already is never touched.
        let created = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&path);
        match created {
            Ok(file) => Some(Box::new(Log::begin(now, connection, file, path, place))),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                tracing::debug!(path = %path.display(), "qlog: this connection has a log already");
                None
            }
            Err(error) => {
                self.shared.fail(&path, &error);
                None
            }
        }
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

/// The log of one connection.
struct Log<W: Write = File> {
    records: Records,
    /// Not written yet; at most [`WRITE_BYTES`] and a record.
    buffer: Vec<u8>,
    /// `None` once writing failed.
    out: Option<W>,
    path: PathBuf,
    /// The end may come at any moment: nothing is held back.
    is_ending: bool,
    place: Place,
}

impl<W: Write> Log<W> {
    fn begin(now: Time, connection: &NewConnection, out: W, path: PathBuf, place: Place) -> Self {
        let records = Records::new(now, connection.side);
        let mut buffer = Vec::with_capacity(2 * WRITE_BYTES);
        records.write_header(&mut buffer, connection, unix_now());
        Self {
            records,
            buffer,
            out: Some(out),
            path,
            is_ending: false,
            place,
        }
    }

    fn flush(&mut self) {
        let Some(out) = &mut self.out else {
            return;
        };
        if self.place.0.is_failed() {
            self.out = None;
        } else if let Err(error) = out.write_all(&self.buffer) {
            self.place.0.fail(&self.path, &error);
            self.out = None;
        }
        self.buffer.clear();
        if self.out.is_none() {
            self.buffer = Vec::new();
        }
    }
}

impl<W: Write + Send> Observer for Log<W> {
    fn on_event(&mut self, now: Time, event: &Event<'_>) {
        if self.out.is_none() {
            return;
        }
        self.records.write(&mut self.buffer, now, event);
        self.is_ending |= matches!(event, Event::ConnectionClosed { .. });
        if self.is_ending || self.buffer.len() >= WRITE_BYTES {
            self.flush();
        }
    }
}

impl<W: Write> Drop for Log<W> {
    fn drop(&mut self) {
        self.flush();
    }
}

#[cfg(test)]
mod tests;
