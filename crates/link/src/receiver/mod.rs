//! [`Receiver`]: takes messages, gives records, and tells the sender what became of them.
//!
//! 1. The sender says hello; the owner looks up what is durable of its records and
//!    [accepts](Receiver::accept) it.
//! 2. Batches come in any order, any number of times; each new record is [given](Delivery) once.
//! 3. The owner says which records are [durable](Receiver::on_durable), and which it had no place for
//!    ([`on_discarded`](Receiver::on_discarded)); the sender keeps the latter and sends them again.
//! 4. [`poll_message`](Receiver::poll_message) gives what is to be told.
//!
//! One receiver serves one connection.

use std::borrow::Cow;
use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use towline_wire::{RangeSet, Time};

use crate::REPORT_AFTER;
use crate::codec::{DecodeError, Decoder, Record};
use crate::delta::{self, Part};
use crate::message::{
    Account, BatchHead, Hello, MAX_CONTROL, MAX_RANGES, MalformedMessage, Message,
    RANGES_IN_REPORT, Report, VERSION, is_within,
};
use crate::outgoing::{Carrier, Outgoing};

/// Cap: batches that come before the hello, and bytes of them; others come again.
const MAX_EARLY: usize = 64;
const MAX_EARLY_BYTES: usize = 1 << 20;
/// Ranges of each kind in an account: as many as a control message holds, with 16 bytes for each. What is left out comes
/// twice.
const ACCOUNT_RANGES: usize = (MAX_CONTROL - 64) / 32;
/// So many batches are told of at once.
const REPORT_AT: u64 = 16;
/// A batch that is missing is told of so soon after one that overtook it.
const GAP: Duration = Duration::from_millis(10);
/// A batch of so many bytes may have filled the sender's window, which waits for the acknowledgement that goes with a
/// report.
const LARGE: usize = 500;
/// What came twice, was of no use, or is large, is told of so soon.
const HURRY: Duration = Duration::from_millis(100);

/// Why a message was refused. The connection is of no use then; a new one begins anew.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReceiverError {
    /// It is none.
    #[error("the sender sent a malformed message: {0}; are both ends the same version?")]
    Malformed(#[from] MalformedMessage),
    /// Senders send no such message, or not at this point.
    #[error("the sender sent what only receivers do, or said hello twice")]
    Unexpected,
    /// It speaks another version.
    #[error(
        "the sender speaks version {0} of the link, this receiver version {VERSION}: update the older one"
    )]
    Version(u64),
    /// A batch that cannot be decoded, now or later.
    #[error(transparent)]
    Decode(DecodeError),
}

/// Something that came.
#[derive(Clone, Debug)]
pub enum Arrival {
    /// A sender; [`Receiver::accept`] is to be called.
    Hello(Hello),
    /// Records.
    Delivery(Delivery),
    /// Records that are gone from the sender's spool, durable here or not.
    Forgotten(Range<u64>),
}

/// Records that came.
#[derive(Clone, Debug)]
pub struct Delivery {
    /// The numbers of those that are new; the others came before.
    pub new: Vec<Range<u64>>,
    /// The numbers of all.
    pub seqs: Vec<Range<u64>>,
    /// All of them, in order.
    pub records: Arc<[Record]>,
    /// They are old: for logs alone.
    pub is_backfill: bool,
    /// Indexes of the values that newer ones have replaced; they run on through all records.
    replaced: Vec<Range<u64>>,
}

impl Delivery {
    /// The records that are new, each with its number.
    pub fn entries(&self) -> impl Iterator<Item = (u64, &Record)> {
        let seqs = self.seqs.iter().cloned().flatten();
        seqs.zip(&*self.records)
            .filter(|(seq, _)| is_within(&self.new, *seq))
    }

    /// What live sinks may be shown of the new records: nothing of backfill, and no value that the sender marked as replaced,
    /// since a newer one may have been shown already. Batches of one connection overtake each other, so pass this through a
    /// [`LiveFilter`](crate::LiveFilter) as well.
    pub fn live(&self) -> impl Iterator<Item = (u64, Cow<'_, Record>)> {
        let mut first = 0;
        let seqs = self.seqs.iter().cloned().flatten().zip(&*self.records);
        seqs.filter(|_| !self.is_backfill)
            .filter_map(move |(seq, record)| {
                let left = self.left(record, &mut first)?;
                is_within(&self.new, seq).then_some((seq, left))
            })
    }

    /// What of a record is not replaced; its values are counted from `first` on.
    fn left<'a>(&self, record: &'a Record, first: &mut u64) -> Option<Cow<'a, Record>> {
        if self.replaced.last().is_none_or(|last| last.end <= *first) {
            return Some(Cow::Borrowed(record));
        }
        let parts = delta::parts(record);
        let places = *first..;
        *first += parts.len() as u64;
        let gone: Vec<&Part> = parts
            .iter()
            .zip(places)
            .filter_map(|(part, at)| is_within(&self.replaced, at).then_some(part))
            .collect();
        match gone.is_empty() {
            true => Some(Cow::Borrowed(record)),
            false => delta::without(record, &gone).map(Cow::Owned),
        }
    }
}

/// Numbers that people watch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ReceiverStats {
    /// Batches that were decoded.
    pub batches: u64,
    /// Records in them that were new.
    pub records: u64,
    /// Batches that came twice.
    pub duplicates: u64,
    /// Batches that could not be decoded when they came, and come again.
    pub too_early: u64,
    /// Records that had no place and come again.
    pub discarded: u64,
    /// Reports that were sent.
    pub reports: u64,
}

/// One connection's receiving end.
#[derive(Debug, Default)]
pub struct Receiver {
    decoder: Decoder,
    state: State,
    /// Batches that came before the sender was accepted.
    early: VecDeque<Vec<u8>>,
    early_bytes: usize,
    /// Where the records of each batch end, from the one before the oldest base on.
    ends: BTreeMap<u64, u64>,
    /// Where those before the first batch end.
    start: u64,
    /// 1 more than the largest number of a batch.
    expected: u64,
    /// Records below are gone, or durable.
    oldest: u64,
    durable: RangeSet,
    /// Given to the owner, and not durable yet.
    held: RangeSet,
    is_on_hold: bool,
    /// The owner had records that the hello does not know of.
    is_ahead: bool,
    account_due: bool,
    /// Something was discarded since the last account.
    is_short: bool,
    /// Batches that were not told of, and when they are to be.
    untold: u64,
    due: Option<Time>,
    told_durable: u64,
    stats: ReceiverStats,
}

#[derive(Debug, Default, PartialEq)]
enum State {
    #[default]
    Waiting,
    /// The hello came, and the owner has not answered.
    Asked,
    Open,
}

impl Receiver {
    /// One that nothing came to.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes a message.
    ///
    /// # Errors
    /// When it is none, or of no use. The connection is of no use then.
    pub fn handle_message(
        &mut self,
        now: Time,
        bytes: &[u8],
    ) -> Result<Option<Arrival>, ReceiverError> {
        match Message::read(bytes)? {
            Message::Hello(hello) => {
                if self.state != State::Waiting {
                    return Err(ReceiverError::Unexpected);
                }
                if hello.version != VERSION {
                    return Err(ReceiverError::Version(hello.version));
                }
                self.state = State::Asked;
                self.start = hello.next;
                self.oldest = hello.oldest;
                Ok(Some(Arrival::Hello(hello)))
            }
            Message::Forget(seqs) => {
                if seqs.start <= self.oldest {
                    self.oldest = self.oldest.max(seqs.end);
                } else {
                    self.on_durable(now, seqs.clone());
                }
                self.tell_by(now + HURRY);
                Ok(Some(Arrival::Forgotten(seqs)))
            }
            Message::Batch(..) if self.state != State::Open => {
                if self.early.len() < MAX_EARLY && self.early_bytes + bytes.len() <= MAX_EARLY_BYTES
                {
                    self.early_bytes += bytes.len();
                    self.early.push_back(bytes.to_vec());
                }
                Ok(None)
            }
            Message::Batch(head, coded) => self.on_batch(now, head, coded),
            _ => Err(ReceiverError::Unexpected),
        }
    }

    /// Takes the sender that said hello: `durable` is what the owner has of its records.
    pub fn accept(&mut self, durable: RangeSet) {
        if self.state == State::Asked {
            self.state = State::Open;
            self.judge(&durable);
            self.durable = durable;
            self.account_due = true;
        }
    }

    /// What the owner has of the sender's records, where it could not say so when it [accepted](Self::accept) the
    /// sender: nothing of this connection is among them, since the sender was on hold until now.
    pub fn on_opened(&mut self, now: Time, durable: &RangeSet) {
        self.judge(durable);
        for seqs in durable.within(0..u64::MAX) {
            self.on_durable(now, seqs);
        }
        self.on_hold(false);
    }

    fn judge(&mut self, durable: &RangeSet) {
        self.is_ahead |= durable.max().is_some_and(|last| last >= self.start);
    }

    /// What came before the sender was accepted; to be asked after that until there is nothing.
    ///
    /// # Errors
    /// As those of [`handle_message`](Self::handle_message).
    pub fn poll_early(&mut self, now: Time) -> Result<Option<Arrival>, ReceiverError> {
        while self.state == State::Open
            && let Some(bytes) = self.early.pop_front()
        {
            self.early_bytes -= bytes.len();
            if let Some(arrival) = self.handle_message(now, &bytes)? {
                return Ok(Some(arrival));
            }
        }
        Ok(None)
    }

    fn on_batch(
        &mut self,
        now: Time,
        head: BatchHead,
        coded: &[u8],
    ) -> Result<Option<Arrival>, ReceiverError> {
        let decoded = match self.decoder.decode(coded) {
            Ok(decoded) => decoded,
            // The sender has not heard of it, or is to code it anew.
            Err(DecodeError::Duplicate(_)) => {
                self.stats.duplicates += 1;
                self.untold += 1;
                self.tell_by(now + HURRY);
                return Ok(None);
            }
            Err(DecodeError::TooLate | DecodeError::Full) => {
                self.stats.too_early += 1;
                self.tell_by(now + HURRY);
                return Ok(None);
            }
            Err(error) => return Err(ReceiverError::Decode(error)),
        };
        let before = decoded
            .base
            .checked_sub(1)
            .and_then(|at| self.ends.get(&at));
        let end = before.copied().unwrap_or(self.start);
        let seqs = head.seqs(end, decoded.records.len() as u64)?;
        self.ends
            .insert(decoded.number, seqs.last().map_or(0, |last| last.end));
        let first = self.decoder.oldest_base().saturating_sub(1);
        if self
            .ends
            .first_key_value()
            .is_some_and(|(at, _)| *at < first)
        {
            self.ends = self.ends.split_off(&first);
        }
        let new = self.new_ones(&seqs);
        self.stats.batches += 1;
        self.stats.records += new.iter().map(|range| range.end - range.start).sum::<u64>();
        self.untold += 1;
        let is_overtaking = decoded.number > self.expected;
        self.expected = self.expected.max(decoded.number + 1);
        self.tell_by(match head.is_alarm || self.untold >= REPORT_AT {
            true => now,
            // One before it is lost, or late.
            false if is_overtaking => now + GAP,
            false if coded.len() >= LARGE => now + HURRY,
            false => now + REPORT_AFTER,
        });
        for seqs in &new {
            self.held.insert(seqs.clone());
        }
        Ok(Some(Arrival::Delivery(Delivery {
            new,
            seqs,
            records: decoded.records,
            is_backfill: head.is_backfill,
            replaced: head.replaced,
        })))
    }

    /// Those that are neither durable nor held.
    fn new_ones(&self, seqs: &[Range<u64>]) -> Vec<Range<u64>> {
        let mut new = RangeSet::default();
        for seqs in seqs {
            let seqs = seqs.start.max(self.oldest)..seqs.end;
            new.insert(seqs.clone());
            for set in [&self.durable, &self.held] {
                for had in set.within(seqs.clone()) {
                    new.remove(had);
                }
            }
        }
        let mut new: Vec<Range<u64>> = new.iter_descending().collect();
        new.reverse();
        new
    }

    /// These are durable.
    pub fn on_durable(&mut self, now: Time, seqs: Range<u64>) {
        self.held.remove(seqs.clone());
        self.durable.insert(seqs);
        while self.durable.len() > MAX_RANGES {
            // What is furthest from the rest comes again.
            let last = self.durable.max();
            let Some(last) = last else { break };
            let start = self
                .durable
                .iter_descending()
                .next()
                .map_or(last, |range| range.start);
            self.durable.remove(start..last + 1);
            self.is_short = true;
        }
        if self.durable_below() > self.told_durable {
            self.tell_by(now + REPORT_AFTER);
        }
    }

    /// There was no place for these: they come again once [`on_hold`](Self::on_hold) is taken back.
    pub fn on_discarded(&mut self, seqs: Range<u64>) {
        self.stats.discarded += seqs.end - seqs.start;
        self.held.remove(seqs);
        self.is_short = true;
    }

    /// While it is on hold the sender sends live data alone.
    pub fn on_hold(&mut self, is_on_hold: bool) {
        if self.is_on_hold != is_on_hold {
            self.is_on_hold = is_on_hold;
            self.account_due = self.state == State::Open;
        }
    }

    fn tell_by(&mut self, due: Time) {
        self.due = Some(self.due.map_or(due, |before| before.min(due)));
    }

    /// The next message, if one is due.
    pub fn poll_message(&mut self, now: Time) -> Option<Outgoing> {
        if self.state != State::Open {
            return None;
        }
        if self.is_short
            && !self.is_on_hold
            && self.durable.len() + self.held.len() < MAX_RANGES / 2
        {
            self.is_short = false;
            self.account_due = true;
        }
        if std::mem::take(&mut self.account_due) {
            // What is durable stands in reports alone, and no batch may come that would ask for one.
            self.tell_by(now);
            let bytes = self.account().emit();
            let carrier = Carrier::Control;
            return Some(Outgoing { carrier, bytes });
        }
        if self.due.is_none_or(|due| due > now) {
            return None;
        }
        self.due = None;
        self.untold = 0;
        self.told_durable = self.durable_below();
        self.stats.reports += 1;
        let report = Report {
            durable: self.told_durable,
            decoded: self.decoded(RANGES_IN_REPORT),
        };
        Some(Outgoing {
            carrier: Carrier::Report {
                number: self.stats.reports,
            },
            bytes: report.emit(),
        })
    }

    /// The transport lost a report. Where it was the last one, nothing else would tell what is durable.
    pub fn on_lost(&mut self, now: Time, report: u64) {
        if report == self.stats.reports {
            self.tell_by(now);
        }
    }

    /// The batches that were decoded, the first range from 0 on.
    fn decoded(&self, most: usize) -> Vec<Range<u64>> {
        let mut decoded: Vec<Range<u64>> = self.decoder.decoded().take(most).collect();
        if decoded.first().is_none_or(|first| first.start > 0) {
            decoded.insert(0, 0..0);
            decoded.truncate(most);
        }
        decoded
    }

    fn account(&self) -> Account {
        let mut has = RangeSet::default();
        has.insert(0..self.oldest);
        for set in [&self.durable, &self.held] {
            for seqs in set.within(0..u64::MAX) {
                has.insert(seqs);
            }
        }
        Account {
            is_on_hold: self.is_on_hold,
            is_ahead: self.is_ahead,
            decoded: self.decoded(ACCOUNT_RANGES),
            has: has.within(0..u64::MAX).take(ACCOUNT_RANGES).collect(),
        }
    }

    /// All records below are durable, or gone.
    #[must_use]
    pub fn durable_below(&self) -> u64 {
        let missing = self.durable.first_missing(self.oldest..u64::MAX);
        missing.map_or(self.oldest, |missing| missing.start)
    }

    /// What a sender made it remember: ranges of records that are durable, and messages that wait for the hello.
    #[must_use]
    pub fn remembered(&self) -> (usize, usize) {
        (self.durable.len(), self.early.len())
    }

    /// When [`poll_message`](Self::poll_message) has something to say.
    pub fn poll_timeout(&self) -> Option<Time> {
        match self.account_due {
            true => Some(Time::ZERO),
            false => self.due,
        }
    }

    /// Numbers that people watch.
    #[must_use]
    pub fn stats(&self) -> ReceiverStats {
        self.stats
    }
}
