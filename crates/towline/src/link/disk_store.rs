//! [`DiskStore`]: a [`Store`] that outlives the process, and the loss of power.

use std::ops::Range;
use std::path::PathBuf;

use towline_link::sender::Held;
use towline_link::spool::{AppendError, Recovered, Spool, SpoolConfig};

use super::disk::FileDisk;
use super::store::{Kept, Store, StoreError, Stored};

/// The file that names another stream than that of the spool's id: both in hexadecimal digits.
const STREAM: &str = "stream";
/// Bytes of records that are read at once; one record at least.
const READ_AT_ONCE: usize = 256 << 10;

/// A spool in a folder.
#[derive(Debug)]
pub struct DiskStore {
    spool: Spool<FileDisk>,
    folder: PathBuf,
    /// Which stream its numbers belong to: that of the spool's id, until [`begin_stream`](Store::begin_stream).
    stream: u64,
}

/// A spool that was opened, and what was found.
#[derive(Debug)]
pub struct Opened {
    /// The spool.
    pub store: DiskStore,
    /// What was found in it.
    pub found: Recovered,
}

impl DiskStore {
    /// Opens the spool in a folder, which is made if there is none. One process at a time has it.
    ///
    /// # Errors
    /// When another process has it, the disk fails, or it holds what must not be touched.
    pub fn open(folder: impl Into<PathBuf>, config: SpoolConfig) -> Result<Opened, StoreError> {
        let said = |error: &dyn std::fmt::Display| StoreError::new(error.to_string());
        let folder = folder.into();
        let disk = FileDisk::open(&folder).map_err(|error| said(&error))?;
        let opened = Spool::open(disk, config, random_id()?);
        let (spool, found) = opened.map_err(|error| said(&error))?;
        let text = std::fs::read_to_string(folder.join(STREAM)).unwrap_or_default();
        let stream = stream_in(&text, spool.id()).unwrap_or(spool.id());
        let store = Self {
            spool,
            folder,
            stream,
        };
        Ok(Opened { store, found })
    }
}

/// The stream that the file names for a spool.
fn stream_in(text: &str, spool: u64) -> Option<u64> {
    let (of, stream) = text.trim().split_once(' ')?;
    let number = |text: &str| u64::from_str_radix(text, 16).ok();
    (number(of)? == spool).then(|| number(stream)).flatten()
}

fn random_id() -> Result<u64, StoreError> {
    let seed = crate::io::random_seed().map_err(|error| StoreError::new(error.to_string()))?;
    let (id, _) = seed.split_first_chunk().unwrap_or((&[0; 8], &[]));
    Ok(u64::from_be_bytes(*id))
}

impl Store for DiskStore {
    fn held(&self) -> Held {
        Held {
            stream: self.stream,
            seqs: self.spool.oldest_seq()..self.spool.next_seq(),
        }
    }

    fn append(&mut self, record: &[u8]) -> Result<Kept, StoreError> {
        let appended = self.spool.append(record);
        let appended = appended.map_err(|error| match error {
            AppendError::Full { bytes, max_bytes } => StoreError::passing(format!(
                "the spool is full: it holds {bytes} of {max_bytes} bytes, and sources wait until some of it is durable at \
                 the other end; give it more room, or let it drop the oldest records"
            )),
            AppendError::Disk(error) => StoreError::passing(error.to_string()),
            error => StoreError::new(error.to_string()),
        })?;
        Ok(Kept {
            seq: appended.seq,
            dropped: appended.dropped,
        })
    }

    fn commit(&mut self) -> Result<u64, StoreError> {
        let committed = self.spool.commit();
        committed.map_err(|error| StoreError::new(error.to_string()))
    }

    fn read(&mut self, seqs: Range<u64>) -> Result<Stored, StoreError> {
        let read = self.spool.read(seqs, READ_AT_ONCE);
        let read = read.map_err(|error| StoreError::new(error.to_string()))?;
        Ok(Stored {
            records: read.records,
            next: read.next,
        })
    }

    fn trim(&mut self, below: u64) -> Result<(), StoreError> {
        let trimmed = self.spool.trim(below);
        trimmed.map_err(|error| StoreError::new(error.to_string()))
    }

    fn bytes(&self) -> u64 {
        self.spool.bytes()
    }

    fn begin_stream(&mut self) -> Result<u64, StoreError> {
        let stream = random_id()?;
        let text = format!("{:016x} {stream:016x}\n", self.spool.id());
        super::disk::replace(&self.folder.join(STREAM), text.as_bytes())
            .map_err(|error| StoreError::new(error.to_string()))?;
        self.stream = stream;
        Ok(stream)
    }

    fn close(&mut self) {
        if let Err(error) = self.spool.flush() {
            tracing::warn!("the end of the spool was not written: {error}");
        }
    }
}
