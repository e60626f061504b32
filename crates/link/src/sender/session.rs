//! [`Session`]: what belongs to one connection, and begins anew with the next.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;

use super::batch::Batch;
use super::terms::SenderError;
use crate::codec::{Encoder, Record};
use crate::message::{Account, BatchHead, Hello, emit_forget};
use crate::outgoing::Lane;

#[derive(Debug)]
pub(super) struct Session {
    encoder: Encoder,
    control: VecDeque<Vec<u8>>,
    /// What the spool dropped is to be told.
    has_dropped: bool,
    /// Where the records of each batch end, from the one before the base on.
    ends: BTreeMap<u64, u64>,
    /// Where those before the first batch end.
    start: u64,
    has_account: bool,
    /// One came that was not on hold: the logs of the receiver have said what they have.
    is_judged: bool,
    /// What reports said to be durable before that: it is not said again.
    early_durable: u64,
    is_on_hold: bool,
}

impl Session {
    /// One that begins with this.
    pub(super) fn new(hello: &Hello) -> Self {
        Self {
            encoder: Encoder::new(),
            control: VecDeque::from([hello.emit()]),
            has_dropped: false,
            ends: BTreeMap::new(),
            start: hello.next,
            has_account: false,
            is_judged: false,
            early_durable: 0,
            is_on_hold: false,
        }
    }

    /// Whether this record is older than the connection.
    pub(super) fn is_older(&self, seq: u64) -> bool {
        seq < self.start
    }

    pub(super) fn is_on_hold(&self) -> bool {
        self.is_on_hold
    }

    /// The spool dropped records to make room.
    pub(super) fn on_dropped(&mut self) {
        self.has_dropped = true;
    }

    /// The spool has lost these.
    pub(super) fn on_gone(&mut self, seqs: &Range<u64>) {
        self.control.push_back(emit_forget(seqs));
    }

    /// The next control message of one whose spool has no records below `oldest`.
    pub(super) fn poll_control(&mut self, oldest: u64) -> Option<Vec<u8>> {
        let waiting = self.control.pop_front();
        waiting.or_else(|| std::mem::take(&mut self.has_dropped).then(|| emit_forget(&(0..oldest))))
    }

    /// Whether what stayed behind may be read now. What is gone of one read is told before the next.
    pub(super) fn may_read(&self) -> bool {
        self.has_account && !self.is_on_hold && self.control.is_empty()
    }

    /// What a report says to be durable, if that counts by now. What an account says of other records may yet be that all
    /// this is about another spool's.
    pub(super) fn on_report(&mut self, durable: u64) -> Option<u64> {
        if !self.is_judged {
            self.early_durable = self.early_durable.max(durable);
        }
        self.is_judged.then_some(durable)
    }

    /// What is durable by now, of what reports said before.
    pub(super) fn on_account(&mut self, account: &Account) -> Result<u64, SenderError> {
        if account.is_ahead {
            let has = account.has.last().map_or(0, |seqs| seqs.end);
            let next = self.start;
            return Err(SenderError::Older { has, next });
        }
        self.has_account = true;
        self.is_judged |= !account.is_on_hold;
        self.is_on_hold = account.is_on_hold;
        Ok(match self.is_judged {
            true => self.early_durable,
            false => 0,
        })
    }

    pub(super) fn on_decoded(&mut self, numbers: Range<u64>) {
        self.encoder.on_decoded(numbers);
        let first = self.encoder.base().saturating_sub(1);
        self.ends = self.ends.split_off(&first);
    }

    /// Whether no batch more may be on its way.
    pub(super) fn is_full(&self) -> bool {
        self.encoder.is_full()
    }

    /// Takes a batch of these records; its number.
    pub(super) fn push(&mut self, seqs: &[Range<u64>], records: &Arc<[Record]>) -> Option<u64> {
        let number = self.encoder.push(Arc::clone(records)).ok()?;
        let end = seqs.last().map_or(0, |last| last.end);
        self.ends.insert(number, end);
        Some(number)
    }

    /// The message of a batch, in the light of what the receiver knows by now; `None` if it needs it no more.
    pub(super) fn encode(&mut self, number: u64, batch: &Batch) -> Option<Vec<u8>> {
        let before = self.encoder.base().checked_sub(1);
        let before = before.and_then(|number| self.ends.get(&number));
        let end = before.copied().unwrap_or(self.start);
        let (is_alarm, is_backfill) = (batch.lane == Lane::Alarm, batch.lane == Lane::Backfill);
        let mut head = BatchHead::of(&batch.seqs, end, is_alarm, is_backfill);
        head.replaced.clone_from(&batch.replaced);
        let mut bytes = Vec::new();
        head.emit(&mut bytes);
        self.encoder.encode(number, &mut bytes).then_some(bytes)
    }
}
