//! The truth about one connection: who wrote, finished, reset and stopped what.
//!
//! Both applications write into it and have what the engine tells them judged by it (I1).

use std::collections::BTreeMap;

use towline_wire::{Direction, Side, StreamId};

use super::pattern;
use super::plan::{HalfPlan, StreamPlan};

/// What a receiver saw last of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The end, after all bytes.
    Finished,
    /// A reset.
    Reset,
    /// It stopped by itself.
    Stopped,
}

/// One direction of one stream.
#[derive(Clone, Debug)]
pub struct Half {
    /// What was to happen.
    pub plan: HalfPlan,
    key: u64,
    /// Bytes the engine took from the sender.
    pub written: u64,
    /// Bytes the receiver read.
    pub read: u64,
    /// The sender finished.
    pub finished: bool,
    /// The sender reset with this code.
    pub reset: Option<u64>,
    /// Bytes that arrive in spite of that reset.
    pub reliable: u64,
    /// The receiver asked to stop with this code.
    pub stop: Option<u64>,
    /// The sender was told that the receiver asked to stop.
    pub stop_heard: bool,
    /// The sender was told that everything arrived.
    pub acknowledged: bool,
    /// What the receiver saw last.
    pub outcome: Option<Outcome>,
}

/// The code an application resets `id` with.
pub(super) fn reset_code(id: StreamId) -> u64 {
    id.as_u64() * 2 + 1
}

/// The code an application stops `id` with.
pub(super) fn stop_code(id: StreamId) -> u64 {
    id.as_u64() * 2 + (1 << 40)
}

impl Half {
    fn new(plan: HalfPlan, key: u64) -> Self {
        Self {
            plan,
            key,
            written: 0,
            read: 0,
            finished: false,
            reset: None,
            reliable: 0,
            stop: None,
            stop_heard: false,
            acknowledged: false,
            outcome: None,
        }
    }

    /// The next bytes to write, at most `most`.
    pub(super) fn next_bytes(&self, most: usize) -> bytes::Bytes {
        let end = self.plan.reset_at.unwrap_or(self.plan.size);
        let left = end.min(self.plan.size) - self.written;
        let most = usize::try_from(left).unwrap_or(usize::MAX).min(most);
        pattern::slice(self.key, self.written, most)
    }

    /// Judges bytes handed to the receiver.
    pub(super) fn on_read(&mut self, data: &[u8]) -> Result<(), String> {
        if self.outcome.is_some() {
            return Err(format!("{} bytes after the end of the stream", data.len()));
        }
        if self.read + data.len() as u64 > self.written {
            return Err(format!(
                "read up to {}, written were {}",
                self.read + data.len() as u64,
                self.written
            ));
        }
        if !pattern::matches(self.key, self.read, data) {
            return Err(format!("other bytes than written at offset {}", self.read));
        }
        self.read += data.len() as u64;
        Ok(())
    }

    /// Judges the end of the stream.
    pub(super) fn on_end(&mut self) -> Result<(), String> {
        if !self.finished || self.read != self.written || self.outcome.is_some() {
            return Err(format!("end of stream, but the truth is {self:?}"));
        }
        self.outcome = Some(Outcome::Finished);
        Ok(())
    }

    /// Judges a reset told to the receiver.
    pub(super) fn on_reset(&mut self, code: u64) -> Result<(), String> {
        let short = self.read < self.reliable;
        if self.reset != Some(code) || self.outcome.is_some() || short {
            return Err(format!("reset with {code}, but the truth is {self:?}"));
        }
        self.outcome = Some(Outcome::Reset);
        Ok(())
    }

    /// Judges a request to stop told to the sender.
    pub(super) fn on_stopped(&mut self, code: u64) -> Result<(), String> {
        if self.stop != Some(code) {
            return Err(format!("stopped with {code}, but the truth is {self:?}"));
        }
        self.stop_heard = true;
        Ok(())
    }

    /// Judges the message that all bytes and the end arrived.
    pub(super) fn on_acknowledged(&mut self) -> Result<(), String> {
        if !self.finished || self.acknowledged {
            return Err(format!("finished, but the truth is {self:?}"));
        }
        self.acknowledged = true;
        Ok(())
    }

    /// Nothing more is expected of this half.
    pub fn is_settled(&self) -> bool {
        let sender = self.acknowledged || self.reset.is_some() || self.stop_heard;
        sender && self.outcome.is_some()
    }
}

/// The truth about one connection.
#[derive(Clone, Debug)]
pub struct Ledger {
    seed: u64,
    /// By stream: what the initiator sends, and what its peer does.
    halves: BTreeMap<StreamId, [Half; 2]>,
    /// Lengths of the datagrams each side sent, and which of them arrived.
    datagrams: [Vec<(usize, bool)>; 2],
}

/// Bytes of a datagram that say which it is.
const DATAGRAM_NUMBER: usize = 4;

impl Ledger {
    /// An empty ledger; `seed` decides the content of all streams.
    pub fn new(seed: u64) -> Self {
        Self {
            seed,
            halves: BTreeMap::new(),
            datagrams: Default::default(),
        }
    }

    /// A stream was opened.
    pub(super) fn on_opened(&mut self, id: StreamId, plan: &StreamPlan) -> Result<(), String> {
        let key = self.seed ^ id.as_u64() << 1;
        let halves = [Half::new(plan.forward, key), Half::new(plan.back, key + 1)];
        match self.halves.insert(id, halves) {
            None => Ok(()),
            Some(_) => Err(format!("{id:?} was opened twice")),
        }
    }

    /// What `sender` sends on `id`.
    pub(super) fn half(&mut self, id: StreamId, sender: Side) -> Result<&mut Half, String> {
        let backwards = id.initiator() != sender;
        if backwards && id.direction() == Direction::Unidirectional {
            return Err(format!("{id:?} has no way back"));
        }
        match self.halves.get_mut(&id) {
            Some(halves) => Ok(&mut halves[usize::from(backwards)]),
            None => Err(format!("{id:?} was never opened")),
        }
    }

    /// Every half of every stream opened so far.
    pub fn halves(&self) -> impl Iterator<Item = (StreamId, &Half)> {
        self.halves.iter().flat_map(|(id, halves)| {
            let used = match id.direction() {
                Direction::Bidirectional => 2,
                Direction::Unidirectional => 1,
            };
            halves[..used].iter().map(move |half| (*id, half))
        })
    }

    /// The halves of every stream opened so far on which `sender` sends.
    pub fn halves_of(&self, sender: Side) -> impl Iterator<Item = &Half> {
        self.halves.iter().filter_map(move |(id, halves)| {
            let backwards = id.initiator() != sender;
            let used = !backwards || id.direction() == Direction::Bidirectional;
            used.then(|| &halves[usize::from(backwards)])
        })
    }

    /// The next datagram of `sender`, `len` bytes long but not shorter than its number.
    pub(super) fn next_datagram(&self, sender: Side, len: usize) -> bytes::Bytes {
        let number = self.datagrams[sender as usize].len() as u32;
        let len = len.max(DATAGRAM_NUMBER);
        let mut data = number.to_be_bytes().to_vec();
        let key = self.datagram_key(sender, number);
        data.extend_from_slice(&pattern::slice(key, 0, len - DATAGRAM_NUMBER));
        data.into()
    }

    fn datagram_key(&self, sender: Side, number: u32) -> u64 {
        self.seed ^ u64::from(number) << 20 ^ (sender as u64) << 60
    }

    /// The engine took a datagram.
    pub(super) fn on_datagram_sent(&mut self, sender: Side, len: usize) {
        self.datagrams[sender as usize].push((len, false));
    }

    /// Judges a datagram handed to the receiver.
    pub(super) fn on_datagram(&mut self, sender: Side, data: &[u8]) -> Result<(), String> {
        let Some((number, content)) = data.split_first_chunk::<DATAGRAM_NUMBER>() else {
            return Err(format!("a datagram of {} bytes", data.len()));
        };
        let number = u32::from_be_bytes(*number);
        let key = self.datagram_key(sender, number);
        let Some((len, arrived)) = self.datagrams[sender as usize].get_mut(number as usize) else {
            return Err(format!("datagram {number} was never sent"));
        };
        if std::mem::replace(arrived, true) {
            return Err(format!("datagram {number} arrived twice"));
        }
        if data.len() != *len || !pattern::matches(key, 0, content) {
            return Err(format!("datagram {number} of {len} bytes was altered"));
        }
        Ok(())
    }
}
