//! A file on its way into the destination: part file, hash, one atomic rename.
//!
//! Made by [`Store::begin`], fed and finished by a lane's file thread. Dropped unfinished,
//! it leaves a part file if that can be resumed, and nothing otherwise.

use std::sync::Arc;

use rustix::fs::AtFlags;
use rustix::io::Errno;

use super::Store;
use super::attributes::timestamps;
use super::parts::{Part, is_resumable};
use super::place::Hold;
use super::refusal::{io_refusal, refusal};
use crate::claims::Claim;
use crate::message::{FileFacts, HASH_BYTES, Reason, Refusal};
use crate::path::RelativePath;

/// A file being written.
pub(crate) struct Writing {
    pub(super) store: Arc<Store>,
    pub(super) path: RelativePath,
    pub(super) facts: FileFacts,
    pub(super) target: Target,
    pub(super) hasher: Box<blake3::Hasher>,
    pub(super) written: u64,
    pub(super) _claim: Claim,
    /// Its folder gets mode and time when the last of its files is settled.
    pub(super) hold: Hold,
}

pub(super) enum Target {
    /// `done` once renamed or removed.
    Part {
        part: Part,
        done: bool,
    },
    InPlace {
        hash: [u8; HASH_BYTES],
    },
}

/// How an entry that needed no data, or all of its data, ended up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Placed {
    /// Renamed into place.
    Written,
    /// The hash showed that the file in place is the same.
    Identical,
}

impl Writing {
    /// Appends data; the caller never passes more than the file's size has room for.
    pub(crate) fn write(&mut self, data: &[u8]) -> Result<(), Refusal> {
        let Target::Part { part, .. } = &mut self.target else {
            return Err(Refusal::new(
                Reason::Protocol,
                "data for a file that is in place",
            ));
        };
        part.write_all(data)
            .map_err(|error| io_refusal(&self.path, &error))?;
        self.hasher.update(data);
        self.written += data.len() as u64;
        Ok(())
    }

    /// Compares the sender's hash and puts the file in place.
    ///
    /// # Errors
    /// `Reason::Mismatch` if the hashes differ: the part file is gone then. `Reason::Exists`
    /// if another file took the name meanwhile.
    pub(crate) fn finish(mut self, senders_hash: &[u8; HASH_BYTES]) -> Result<Placed, Refusal> {
        let facts = self.facts;
        let (parent, name) = self.path.split();
        let folder = self.store.folders.make(parent)?;
        let placed = match &mut self.target {
            Target::InPlace { hash } => {
                if hash != senders_hash {
                    return Err(Refusal::new(
                        Reason::Mismatch,
                        "the file in place differs from the sender's",
                    ));
                }
                // The next transfer can then skip it by size and time. Not worth failing for.
                let _ = rustix::fs::utimensat(
                    &*folder,
                    name,
                    &timestamps(facts.modified),
                    AtFlags::SYMLINK_NOFOLLOW,
                );
                Placed::Identical
            }
            Target::Part { part, done } => {
                let ours = self.hasher.finalize();
                if self.written != facts.size || ours != blake3::Hash::from_bytes(*senders_hash) {
                    part.remove();
                    *done = true;
                    return Err(Refusal::new(
                        Reason::Mismatch,
                        "the BLAKE3 hash of what was written differs from the sender's; nothing was put in place; run the same command again",
                    ));
                }
                if !part.is_in_its_place() {
                    return Err(Refusal::new(
                        Reason::Io,
                        "the part file was replaced underneath; run the same command again",
                    ));
                }
                part.set_attributes(self.store.mode(facts.mode), facts.modified)
                    .map_err(|errno| refusal(&self.path, errno))?;
                let (parts, there) = part.place();
                self.store
                    .put_in_place(parts, &there, &folder, name)
                    .map_err(|errno| match errno {
                        Errno::EXIST => Refusal::new(
                            Reason::Exists,
                            "another file took its name during the transfer",
                        ),
                        errno => refusal(&self.path, errno),
                    })?;
                if is_resumable(&facts) {
                    part.forget_record();
                }
                *done = true;
                Placed::Written
            }
        };
        self.hold.release();
        Ok(placed)
    }

    /// Forgets what was written: the sender's file changed.
    pub(crate) fn discard(mut self) {
        if let Target::Part { part, done } = &mut self.target {
            part.remove();
            *done = true;
        }
    }
}

/// A file that is not finished stays as a part file if it can be resumed.
impl Drop for Writing {
    fn drop(&mut self) {
        if let Target::Part { part, done: false } = &self.target
            && (!is_resumable(&self.facts) || self.written == 0)
        {
            part.remove();
        }
    }
}
