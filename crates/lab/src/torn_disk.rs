//! [`TornDisk`]: a disk in memory that loses power, fails, fills up and rots, for spools under test.
//!
//! What was not synced goes or stays sector by sector when power is lost, as the dice say; files that were made or
//! removed may be gone or back. A sync that failed once never writes what it failed to write, as on Linux.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ops::Range;
use std::rc::Rc;

use towline_link::spool::Disk;

use crate::Random;

/// Bytes that are written whole or not at all.
const SECTOR: usize = 512;

/// Why an operation failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TornError {
    /// There is no such segment, or there is one already.
    #[error("there is no segment {0}, or there is one already")]
    Number(u64),
    /// The disk is full.
    #[error("the disk is full")]
    Full,
    /// It was told to fail.
    #[error("the disk failed")]
    Failed,
}

/// A disk that outlives the programs that use it: clones are the same disk.
#[derive(Clone, Debug, Default)]
pub struct TornDisk(Rc<RefCell<State>>);

#[derive(Debug, Default)]
struct State {
    files: BTreeMap<u64, File>,
    faults: Option<(Random, f64)>,
    fail_syncs: u32,
    room: Option<usize>,
    syncs: u64,
    read: u64,
}

/// A segment: what would be there after a loss of power, and what a program sees.
#[derive(Clone, Debug, Default)]
struct File {
    durable: Option<Vec<u8>>,
    seen: Option<Vec<u8>>,
    /// Seen, but no sync writes it any more.
    phantom: Range<usize>,
}

impl TornDisk {
    /// A disk with these segments, all durable.
    pub fn holding(segments: impl IntoIterator<Item = (u64, Vec<u8>)>) -> Self {
        let file = |(number, bytes): (u64, Vec<u8>)| {
            let (durable, seen) = (Some(bytes.clone()), Some(bytes));
            let phantom = 0..0;
            (
                number,
                File {
                    durable,
                    seen,
                    phantom,
                },
            )
        };
        let disk = Self::default();
        disk.0.borrow_mut().files = segments.into_iter().map(file).collect();
        disk
    }

    /// The power goes, and comes back.
    pub fn lose_power(&self, random: &mut Random) {
        let state = &mut *self.0.borrow_mut();
        state.files.retain(|_, file| {
            let left = match (file.durable.take(), file.seen.take()) {
                (durable, None) => durable.filter(|_| random.chance(0.5)),
                (None, Some(seen)) => Some(torn(&[], &seen, random)).filter(|_| random.chance(0.5)),
                (Some(durable), Some(seen)) => Some(torn(&durable, &seen, random)),
            };
            file.durable = left.clone();
            file.seen = left;
            file.phantom = 0..0;
            file.seen.is_some()
        });
    }

    /// Every operation fails with this probability from now on; with none, no more.
    pub fn set_faults(&self, faults: Option<(Random, f64)>) {
        self.0.borrow_mut().faults = faults;
    }

    /// So many syncs fail from now on.
    pub fn fail_syncs(&self, count: u32) {
        self.0.borrow_mut().fail_syncs = count;
    }

    /// All segments together have room for so many bytes.
    pub fn set_room(&self, bytes: Option<usize>) {
        self.0.borrow_mut().room = bytes;
    }

    /// Changes bytes of a segment, durably.
    ///
    /// # Panics
    /// Where there is none.
    pub fn damage(&self, segment: u64, change: impl FnOnce(&mut Vec<u8>)) {
        let state = &mut *self.0.borrow_mut();
        let file = state.files.get_mut(&segment).unwrap();
        let bytes = file.seen.as_mut().unwrap();
        change(bytes);
        file.durable = Some(bytes.clone());
    }

    /// The segments and their bytes, as a program sees them.
    pub fn segments(&self) -> Vec<(u64, Vec<u8>)> {
        let state = self.0.borrow();
        let files = state.files.iter();
        files
            .filter_map(|(number, file)| Some((*number, file.seen.clone()?)))
            .collect()
    }

    /// Syncs so far.
    pub fn syncs(&self) -> u64 {
        self.0.borrow().syncs
    }

    /// Bytes read so far.
    pub fn read(&self) -> u64 {
        self.0.borrow().read
    }
}

/// What is left of a change that was not synced.
fn torn(durable: &[u8], seen: &[u8], random: &mut Random) -> Vec<u8> {
    let (short, long) = (durable.len().min(seen.len()), durable.len().max(seen.len()));
    let len = match random.below(4) {
        0 => durable.len(),
        1 => seen.len(),
        _ => random.between(short as u64, long as u64) as usize,
    };
    let written = random.pick(&[0.0, 0.2, 0.5, 0.9, 1.0]);
    let mut left = vec![0; len];
    for (at, sector) in left.chunks_mut(SECTOR).enumerate() {
        let start = at * SECTOR;
        let is_new = start >= durable.len();
        let source = match random.chance(written) {
            true => seen,
            false => durable,
        };
        let source = source.get(start..).unwrap_or_default();
        let n = source.len().min(sector.len());
        sector[..n].copy_from_slice(&source[..n]);
        if is_new && random.chance(0.05) {
            sector.fill_with(|| random.bits() as u8);
        }
    }
    left
}

impl State {
    fn seen(&mut self, segment: u64) -> Result<&mut Vec<u8>, TornError> {
        let file = self.files.get_mut(&segment);
        let seen = file.and_then(|file| file.seen.as_mut());
        seen.ok_or(TornError::Number(segment))
    }

    fn roll(&mut self) -> Result<(), TornError> {
        let faults = self.faults.as_mut();
        match faults.is_some_and(|(random, chance)| random.chance(*chance)) {
            true => Err(TornError::Failed),
            false => Ok(()),
        }
    }

    /// Where a sync failed and the segment then cannot be cut or removed either, nothing can be promised.
    fn roll_unless_phantom(&mut self, segment: u64) -> Result<(), TornError> {
        match self.files.get(&segment) {
            Some(file) if !file.phantom.is_empty() => Ok(()),
            _ => self.roll(),
        }
    }

    fn any_part(&mut self, len: usize) -> usize {
        match &mut self.faults {
            Some((random, _)) => random.below(len as u64 + 1) as usize,
            None => 0,
        }
    }
}

impl Disk for TornDisk {
    type Error = TornError;

    fn list(&mut self) -> Result<Vec<u64>, TornError> {
        let segments = self.segments();
        Ok(segments.iter().rev().map(|(number, _)| *number).collect())
    }

    fn len(&mut self, segment: u64) -> Result<u64, TornError> {
        let mut state = self.0.borrow_mut();
        state.seen(segment).map(|seen| seen.len() as u64)
    }

    fn read(&mut self, segment: u64, offset: u64, buffer: &mut [u8]) -> Result<usize, TornError> {
        let state = &mut *self.0.borrow_mut();
        state.roll()?;
        let rest = state
            .seen(segment)?
            .get(offset as usize..)
            .unwrap_or_default();
        let len = rest.len().min(buffer.len());
        buffer[..len].copy_from_slice(&rest[..len]);
        state.read += len as u64;
        Ok(len)
    }

    fn create(&mut self, segment: u64) -> Result<(), TornError> {
        let state = &mut *self.0.borrow_mut();
        let failed = state.roll();
        let file = state.files.entry(segment).or_default();
        if file.seen.is_some() {
            return Err(TornError::Number(segment));
        }
        file.seen = Some(Vec::new());
        failed
    }

    fn append(&mut self, segment: u64, bytes: &[u8]) -> Result<(), TornError> {
        let state = &mut *self.0.borrow_mut();
        let used: usize = (state.files.values())
            .filter_map(|file| Some(file.seen.as_ref()?.len()))
            .sum();
        let room = (state.room).map_or(usize::MAX, |room| room.saturating_sub(used));
        let failed = state.roll();
        let part = match failed {
            Ok(()) => bytes.len(),
            Err(_) => state.any_part(bytes.len()),
        };
        let fits = part.min(room);
        state.seen(segment)?.extend_from_slice(&bytes[..fits]);
        failed?;
        match fits < bytes.len() {
            true => Err(TornError::Full),
            false => Ok(()),
        }
    }

    fn sync(&mut self, segment: u64) -> Result<(), TornError> {
        let state = &mut *self.0.borrow_mut();
        state.syncs += 1;
        let mut failed = state.roll();
        if state.fail_syncs > 0 {
            state.fail_syncs -= 1;
            failed = Err(TornError::Failed);
        }
        let len = state.seen(segment)?.len();
        let file = state.files.entry(segment).or_default();
        let synced = file.durable.as_ref().map_or(0, Vec::len);
        if failed.is_err() {
            file.phantom = synced.min(len)..len;
            return failed;
        }
        let mut durable = file.seen.clone();
        if let Some(lost) = durable
            .as_mut()
            .and_then(|bytes| bytes.get_mut(file.phantom.clone()))
        {
            lost.fill(0);
        }
        file.durable = durable;
        Ok(())
    }

    fn truncate(&mut self, segment: u64, len: u64) -> Result<(), TornError> {
        let state = &mut *self.0.borrow_mut();
        state.roll_unless_phantom(segment)?;
        state.seen(segment)?.truncate(len as usize);
        if let Some(file) = state.files.get_mut(&segment) {
            let end = file.phantom.end.min(len as usize);
            file.phantom = file.phantom.start.min(end)..end;
        }
        Ok(())
    }

    fn remove(&mut self, segment: u64) -> Result<(), TornError> {
        let state = &mut *self.0.borrow_mut();
        state.roll_unless_phantom(segment)?;
        if let Some(file) = state.files.get_mut(&segment) {
            file.seen = None;
            file.phantom = 0..0;
        }
        Ok(())
    }
}
