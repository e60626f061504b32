//! [`Sender`]: what to send, when, and until when to keep it.
//!
//! 1. The owner makes a record durable in its spool, and pushes it ([`push`](Sender::push)).
//! 2. Records wait for a deadline or a full datagram; alarms don't. Where more waits than a datagram holds,
//!    those that say nothing new stay behind, in the spool.
//! 3. While the connection has room, [`poll_message`](Sender::poll_message) gives a batch: alarms first,
//!    what was lost, live data, and last what stayed behind, which is read from the spool again.
//! 4. The receiver tells which batches it decoded and which records are durable; the spool may forget these.
//!
//! A connection begins with [`on_connected`](Sender::on_connected) and takes all that the codec learned with
//! it. Nothing here touches a connection, a file or a clock.

mod backlog;
mod batch;
mod flight;
mod queue;
mod session;
mod terms;

use std::ops::Range;
use std::time::Duration;

use towline_wire::{RangeSet, Time};

use crate::REPORT_AFTER;
use crate::codec::Record;
use crate::delta;
use crate::live::Newest;
use crate::message::{Account, Hello, Message, VERSION};
pub use crate::outgoing::{Carrier, Lane, Outgoing};
use backlog::Backlog;
use batch::{Batch, Gathering, MAX_BATCH};
use flight::Flight;
pub use queue::{MAX_HELD, MAX_WAITING};
use queue::{Queue, Waiting};
use session::Session;
pub use terms::{Class, Held, Room, SenderConfig, SenderError, SenderStats};

/// What a batch is expected to take beside its records, and what a packet takes beside the batch, in bytes.
const BATCH_BYTES: f64 = 8.0;
const PACKET_BYTES: usize = 52;
/// Nothing is sent into less room than this, in bytes: a batch of a few records.
const MIN_FREE: usize = 100;
/// More than so many datagrams of what is new is too much where the window has no room for them: what says nothing new
/// stays behind.
const MUCH: usize = 2;
/// A batch is begun so long before its deadline, or a tenth of that.
const GRAIN: Duration = Duration::from_millis(5);
/// A batch of which nothing is heard for so long is overdue, whatever the way.
const OVERDUE_AFTER: Duration = Duration::from_secs(12);
/// Batches overtake each other by less than this, or by a quarter of a round trip, without being lost.
const MIN_REORDERING: Duration = Duration::from_millis(20);

/// One end of a link: takes records, gives messages.
#[derive(Debug)]
pub struct Sender {
    config: SenderConfig,
    stream: u64,
    /// Records below are gone from the spool, or durable at the receiver.
    oldest: u64,
    next: u64,
    durable: u64,
    alarms: Queue,
    live: Queue,
    /// Records that the receiver may have or not: its account tells. They are among those that stayed behind.
    doubtful: Queue,
    /// The newest record of each name that was sent, or may have been: a receiver that restarted has forgotten that it showed
    /// it.
    newest: Newest,
    /// What stayed behind, in the spool.
    backlog: Backlog,
    flight: Flight,
    session: Option<Session>,
    /// Bytes that a record takes, as it was of late: live, and of what stayed behind.
    per_record: [f64; 2],
    /// Bytes that a datagram takes.
    datagram: usize,
    /// Bytes of a batch that would leave at once.
    free: usize,
    patience: Duration,
    /// What is overtaken by more than this is lost.
    reordering: Duration,
    /// There was no room when it was asked last.
    is_blocked: bool,
    /// When all that was sent is within the rate.
    paid: Time,
    /// Bytes of the last batch, and what they cost of the rate.
    last: (u64, Duration),
    stats: SenderStats,
}

impl Sender {
    /// One that has all records of its spool before it.
    #[must_use]
    pub fn new(config: SenderConfig, held: &Held) -> Self {
        Self {
            config,
            stream: held.stream,
            oldest: held.seqs.start,
            next: held.seqs.end,
            durable: held.seqs.start,
            alarms: Queue::default(),
            live: Queue::default(),
            doubtful: Queue::default(),
            newest: Newest::default(),
            backlog: Backlog::new(held.seqs.clone()),
            flight: Flight::default(),
            session: None,
            per_record: [20.0, 10.0],
            datagram: 1_150,
            free: 0,
            patience: 3 * REPORT_AFTER,
            reordering: REPORT_AFTER,
            is_blocked: false,
            paid: Time::ZERO,
            last: (0, Duration::ZERO),
            stats: SenderStats::default(),
        }
    }

    /// Takes a record that came at `now`, which the spool has made durable under this number: the one after the last.
    pub fn push(&mut self, now: Time, seq: u64, record: Record, class: Class) {
        debug_assert!(seq >= self.next, "numbers rise");
        // The spool has what is between them, or knows that it is gone.
        self.backlog.insert(self.next..seq);
        self.next = self.next.max(seq + 1);
        self.stats.pushed += 1;
        self.wait(now, seq, record, class);
    }

    /// Notes a record that the spool held when the sender began. It may have been sent before, so older values are not to be
    /// shown after it. Call this for all such records before the first is [restored](Self::restore).
    pub fn recall(&mut self, seq: u64, record: &Record) {
        for name in delta::names(record) {
            self.newest.see(name, seq);
        }
    }

    /// Takes a record that the spool held when the sender began, so that it is sent as if it were new, unless the receiver
    /// has it or newer ones replace it: where a program was started again, its last values are the newest that there are.
    pub fn restore(&mut self, now: Time, seq: u64, record: Record, class: Class) {
        let is_wanted = self.backlog.contains(seq);
        if !is_wanted || self.newest.are_replaced(&delta::names(&record), seq) {
            return;
        }
        match class {
            Class::Alarm => {
                self.backlog.take(seq);
                self.wait(now, seq, record, class);
            }
            Class::Telemetry => self.doubt(now, seq, record),
        }
    }

    /// Keeps a record until the receiver says whether it has it.
    fn doubt(&mut self, now: Time, seq: u64, record: Record) {
        self.backlog.insert(seq..seq + 1);
        self.doubtful.push(seq, record, now);
        while self.doubtful.is_full() {
            self.doubtful.pop();
        }
    }

    fn wait(&mut self, now: Time, seq: u64, record: Record, class: Class) {
        let queue = match class {
            Class::Alarm => &mut self.alarms,
            Class::Telemetry => &mut self.live,
        };
        queue.push(seq, record, now);
        self.bound();
    }

    /// All that is held goes into another sequence of numbers, for the receiver has records of this one that were never
    /// given to this sender ([`SenderError::Older`]). What it had before comes twice; nothing is lost. Without a
    /// connection only.
    pub fn begin_stream(&mut self, now: Time, stream: u64) {
        self.on_disconnected(now);
        self.stream = stream;
        self.durable = self.oldest;
    }

    /// Leaves to the spool what is too much for the memory.
    fn bound(&mut self) {
        for queue in [&mut self.live, &mut self.alarms] {
            if !queue.is_full() {
                continue;
            }
            for seq in queue.drop_replaced() {
                self.stats.conflated += 1;
                self.backlog.insert(seq..seq + 1);
            }
            while queue.is_full()
                && let Some(waiting) = queue.pop()
            {
                self.stats.postponed += 1;
                self.backlog.insert(waiting.seq..waiting.seq + 1);
            }
        }
        self.backlog.bound();
    }

    /// The spool dropped these to make room.
    pub fn on_dropped(&mut self, seqs: Range<u64>) {
        let from = seqs.start.max(self.durable);
        self.stats.dropped += seqs.end.saturating_sub(from);
        self.backlog.remove(0..seqs.end);
        self.live.drop_below(seqs.end);
        self.doubtful.drop_below(seqs.end);
        self.alarms.drop_below(seqs.end);
        self.oldest = self.oldest.max(seqs.end);
        self.durable = self.durable.max(seqs.end);
        if let Some(session) = &mut self.session {
            session.on_dropped();
        }
    }

    /// The spool has lost these, damaged or never used.
    fn on_gone(&mut self, seqs: &Range<u64>) {
        let from = seqs.start.max(self.oldest);
        self.stats.dropped += seqs.end.saturating_sub(from);
        if let Some(session) = &mut self.session {
            session.on_gone(seqs);
        }
    }

    /// There is a connection, over which nothing was sent yet.
    pub fn on_connected(&mut self, now: Time) {
        self.on_disconnected(now);
        let hello = Hello {
            version: VERSION,
            name: self.config.name.clone(),
            stream: self.stream,
            // A receiver without a memory of its own would wait for what is durable and comes no more.
            oldest: self.oldest.max(self.durable),
            next: self.next,
        };
        self.is_blocked = false;
        self.session = Some(Session::new(&hello));
    }

    /// The connection is gone. What was on its way waits again.
    pub fn on_disconnected(&mut self, now: Time) {
        if self.session.take().is_none() {
            return;
        }
        for sent in self.flight.clear() {
            if sent.lane == Lane::Backfill {
                for seqs in sent.seqs {
                    self.backlog.insert(seqs);
                }
                continue;
            }
            let seqs = sent.seqs.into_iter().flatten();
            for (seq, record) in seqs.zip(sent.records.iter()) {
                let is_alarm = sent.lane == Lane::Alarm;
                if is_alarm && !self.newest.are_replaced(&delta::names(record), seq) {
                    self.alarms.push(seq, record.clone(), now);
                } else {
                    self.doubt(now, seq, record.clone());
                }
            }
        }
        self.bound();
    }

    /// Takes a message of the receiver.
    ///
    /// # Errors
    /// When it is none. The connection is of no use then.
    pub fn handle_message(&mut self, bytes: &[u8]) -> Result<(), SenderError> {
        match Message::read(bytes)? {
            Message::Report(report) => {
                let newest = report
                    .decoded
                    .into_iter()
                    .filter_map(|numbers| self.on_decoded(numbers))
                    .max();
                if let Some(newest) = newest {
                    self.flight.on_overtaken(newest - self.reordering);
                }
                let session = self.session.as_mut();
                if let Some(durable) = session.and_then(|it| it.on_report(report.durable)) {
                    self.on_durable(durable);
                }
                Ok(())
            }
            Message::Account(account) => self.on_account(&account),
            _ => Err(SenderError::Unexpected),
        }
    }

    /// When the newest of these was sent first.
    fn on_decoded(&mut self, numbers: Range<u64>) -> Option<Time> {
        let session = self.session.as_mut()?;
        if numbers.is_empty() {
            return None;
        }
        session.on_decoded(numbers.clone());
        self.flight.on_decoded(numbers)
    }

    fn on_durable(&mut self, below: u64) {
        self.durable = self.durable.max(below.min(self.next));
        self.backlog.remove(0..self.durable);
    }

    /// What the receiver has; the rest is to be sent again.
    fn on_account(&mut self, account: &Account) -> Result<(), SenderError> {
        let Some(session) = &mut self.session else {
            return Ok(());
        };
        let durable = session.on_account(account)?;
        for numbers in &account.decoded {
            self.on_decoded(numbers.clone());
        }
        self.on_durable(durable);
        let mut unsent = RangeSet::default();
        unsent.insert(self.durable.max(self.oldest)..self.next);
        for seqs in &account.has {
            unsent.remove(seqs.clone());
        }
        for queue in [&mut self.alarms, &mut self.live] {
            queue.remove(|seq| !unsent.contains(seq));
        }
        for seqs in self.flight.unspoken(&account.decoded) {
            unsent.remove(seqs.clone());
        }
        for queue in [&self.alarms, &self.live] {
            for seq in queue.seqs() {
                unsent.remove(seq..seq + 1);
            }
        }
        self.backlog.reset(unsent);
        while let Some(Waiting {
            seq,
            record,
            since,
            names,
            ..
        }) = self.doubtful.pop()
        {
            if self.newest.are_replaced(&names, seq) {
                self.stats.conflated += u64::from(self.backlog.contains(seq));
            } else if self.backlog.take(seq) {
                self.live.push(seq, record, since);
            }
        }
        self.bound();
        Ok(())
    }

    /// The transport lost this transmission.
    pub fn on_lost(&mut self, transmission: u64) {
        self.flight.on_lost(transmission);
    }

    /// This transmission found no place: it is lost, and nothing is due before something happens.
    pub fn on_refused(&mut self, transmission: u64) {
        self.on_lost(transmission);
        self.is_blocked = true;
        let (bytes, cost) = std::mem::take(&mut self.last);
        self.stats.bytes -= bytes;
        self.paid = self.paid - cost;
    }

    /// The receiver's transport has this transmission.
    pub fn on_acked(&mut self, now: Time, transmission: u64) {
        self.flight.on_acked(now, transmission);
    }

    /// Records to be read from the spool, for [`on_read`](Self::on_read).
    pub fn poll_read(&mut self) -> Option<Range<u64>> {
        let may_read = self.session.as_ref()?.may_read();
        may_read.then(|| self.backlog.poll_read()).flatten()
    }

    /// What the spool gave for `seqs`: of all below `next`. What it left out of these is gone.
    pub fn on_read(&mut self, seqs: &Range<u64>, next: u64, records: Vec<(u64, Record)>) {
        for gone in self.backlog.on_read(seqs, next, records) {
            self.on_gone(&gone);
        }
    }

    /// The next message, if there is one and room for it.
    pub fn poll_message(&mut self, now: Time, room: &Room) -> Option<Outgoing> {
        let session = self.session.as_mut()?;
        if let Some(bytes) = session.poll_control(self.oldest) {
            let carrier = Carrier::Control;
            return Some(Outgoing { carrier, bytes });
        }
        self.datagram = room.datagram;
        self.patience = 2 * REPORT_AFTER + 2 * room.rtt;
        self.reordering = (room.rtt / 4).max(MIN_REORDERING);
        self.flight.expire(now, self.patience);
        self.free = room.free.saturating_sub(PACKET_BYTES);
        self.is_blocked = self.free < MIN_FREE;
        if self.is_blocked {
            return None;
        }
        // Alarms go into debt.
        let is_spent = room.alarms_only || self.config.rate.is_some() && self.paid > now;
        let message = self.next_batch(now, is_spent);
        // What is due and not sent has no room: asking again without an event is of no use.
        self.is_blocked |= message.is_none() && self.due().is_some_and(|due| due <= now);
        let message = message?;
        self.last = (message.bytes.len() as u64, Duration::ZERO);
        if let Some(rate) = self.config.rate {
            let bytes = (message.bytes.len() + PACKET_BYTES) as u64;
            let cost = Duration::from_nanos(bytes * 1_000_000_000 / rate.max(1));
            self.paid = self.paid.max(now) + cost;
            self.last.1 = cost;
        }
        Some(message)
    }

    fn next_batch(&mut self, now: Time, alarms_only: bool) -> Option<Outgoing> {
        if self.alarms.oldest().is_some()
            && let Some(message) = self.compose(now, Lane::Alarm)
        {
            return Some(message);
        }
        while let Some(number) = self.flight.take_lost(alarms_only) {
            if let Some(message) = self.emit(now, number) {
                self.stats.again += 1;
                return Some(message);
            }
        }
        if alarms_only {
            return None;
        }
        if self.is_due(now)
            && let Some(message) = self.compose(now, Lane::Live)
        {
            return Some(message);
        }
        // The other half is for what is new.
        self.free /= 2;
        let may_read = self.session.as_ref().is_some_and(Session::may_read);
        let is_wanted = self.free >= MIN_FREE && may_read && self.backlog.has_read();
        is_wanted
            .then(|| self.compose(now, Lane::Backfill))
            .flatten()
    }

    fn is_due(&self, now: Time) -> bool {
        let oldest = self.live.oldest();
        oldest.is_some_and(|oldest| oldest.since + self.longest_wait() <= now)
            || self.live.len() >= self.fitting(Lane::Live)
    }

    /// How long a record waits for others: what timers and the coding take is within its deadline.
    fn longest_wait(&self) -> Duration {
        let deadline = self.config.deadline;
        deadline.saturating_sub(GRAIN.min(deadline / 10))
    }

    /// Records that a datagram will hold.
    fn fitting(&self, lane: Lane) -> usize {
        self.records_in(self.datagram, lane)
    }

    /// Records that so many bytes will hold.
    fn records_in(&self, bytes: usize, lane: Lane) -> usize {
        let each = self.per_record[usize::from(lane == Lane::Backfill)];
        let records = (bytes as f64 - BATCH_BYTES) / each.max(0.25);
        (records as usize).clamp(1, MAX_BATCH)
    }

    /// A batch of what waits.
    fn compose(&mut self, now: Time, lane: Lane) -> Option<Outgoing> {
        let is_full = self.session.as_ref().is_none_or(Session::is_full);
        if is_full || self.flight.held() > MAX_HELD {
            self.is_blocked = true;
            return None;
        }
        let fitting = self.fitting(lane);
        // Where a rate is kept to, the window has room for more than may go.
        let much = match self.config.rate {
            Some(_) => MUCH * fitting,
            None => (MUCH * fitting).max(self.records_in(self.free, lane)),
        };
        if lane == Lane::Live && self.live.len() > much {
            for seq in self.live.drop_replaced() {
                self.stats.conflated += 1;
                self.backlog.insert(seq..seq + 1);
            }
            self.backlog.bound();
        }
        let fitting = fitting.min(self.records_in(self.free, lane));
        let batch = self.gather(lane, fitting);
        let count = batch.records.len() as u64;
        let session = self.session.as_mut()?;
        let Some(number) = session.push(&batch.seqs, &batch.records) else {
            debug_assert!(
                false,
                "there was room, and one megabyte of records is no large batch"
            );
            for seqs in batch.seqs {
                self.backlog.insert(seqs);
            }
            return None;
        };
        self.flight.insert(number, batch);
        let message = self.emit(now, number)?;
        self.stats.batches += 1;
        self.stats.sent += count;
        if lane == Lane::Backfill {
            self.stats.backfilled += count;
        }
        let each = (message.bytes.len() as f64 - BATCH_BYTES).max(1.0) / count as f64;
        let per_record = &mut self.per_record[usize::from(lane == Lane::Backfill)];
        *per_record += (each - *per_record) / 4.0;
        Some(message)
    }

    /// Takes so many of those that wait, or fewer.
    fn gather(&mut self, lane: Lane, most: usize) -> Batch {
        let mut batch = Gathering::default();
        while batch.len() < most && !batch.is_full() {
            let queue = match lane {
                Lane::Alarm => &mut self.alarms,
                Lane::Live => &mut self.live,
                Lane::Backfill => {
                    let Some((seq, record)) = self.backlog.pop() else {
                        break;
                    };
                    batch.push(seq, record);
                    continue;
                }
            };
            let Some(Waiting {
                seq, record, names, ..
            }) = queue.pop()
            else {
                break;
            };
            match &self.session {
                Some(session) if session.is_older(seq) => {
                    batch.push_older(seq, record, &self.newest);
                }
                _ => batch.push(seq, record),
            }
            for name in &names {
                self.newest.see(*name, seq);
            }
        }
        batch.finish(lane)
    }

    /// The message of a batch.
    fn emit(&mut self, now: Time, number: u64) -> Option<Outgoing> {
        let batch = self.flight.get(number)?;
        let lane = batch.lane;
        let bytes = self.session.as_mut()?.encode(number, batch)?;
        self.stats.bytes += bytes.len() as u64;
        let is_datagram = bytes.len() <= self.datagram;
        let transmission = self.flight.on_sent(now, number, is_datagram);
        let carrier = Carrier::Batch { transmission, lane };
        Some(Outgoing { carrier, bytes })
    }

    /// When [`poll_message`](Self::poll_message) is to be asked again, if nothing happens before.
    pub fn poll_timeout(&self) -> Option<Time> {
        self.session.as_ref()?;
        let acked = self.flight.expires(self.patience);
        let due = (!self.is_blocked).then(|| self.due()).flatten();
        [acked, due].into_iter().flatten().min()
    }

    /// When there is something to be sent, if there is room then.
    fn due(&self) -> Option<Time> {
        let deadline = self.live.oldest();
        let deadline = deadline.map(|oldest| oldest.since + self.longest_wait());
        let is_waiting = self.flight.has_lost() || self.backlog.has_read();
        let alarm = self.alarms.oldest().map(|oldest| oldest.since);
        let paid = (is_waiting && self.config.rate.is_some()).then_some(self.paid);
        let due = deadline.map(|due| match self.config.rate {
            Some(_) => due.max(self.paid),
            None => due,
        });
        [alarm, due, paid].into_iter().flatten().min()
    }

    /// All records below are durable at the receiver, or gone: the spool may forget them.
    #[must_use]
    pub fn durable(&self) -> u64 {
        self.durable
    }

    /// Records that wait to be sent for the first time, or again.
    #[must_use]
    pub fn backlog(&self) -> u64 {
        self.backlog.len() + (self.live.len() + self.alarms.len()) as u64
    }

    /// Ranges of records that wait in the spool: what a receiver can make it remember.
    #[must_use]
    pub fn unsent_ranges(&self) -> usize {
        self.backlog.ranges()
    }

    /// Batches that are on their way.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.flight.len()
    }

    /// How long the oldest record of those in memory has waited to be sent.
    #[must_use]
    pub fn oldest_unsent(&self, now: Time) -> Option<Duration> {
        let queues = [&self.alarms, &self.live].into_iter();
        let since = queues
            .filter_map(|queue| queue.oldest())
            .map(|oldest| oldest.since);
        since
            .min()
            .map(|since| now.saturating_duration_since(since))
    }

    /// For how long the oldest batch that is on its way has not been heard of, beyond what a report may take.
    #[must_use]
    pub fn overdue(&self, now: Time) -> Option<Duration> {
        let waits = now.saturating_duration_since(self.flight.oldest()?);
        waits.checked_sub(self.patience.min(OVERDUE_AFTER))
    }

    /// Whether the receiver takes live data alone, because what it makes durable has no place.
    #[must_use]
    pub fn is_on_hold(&self) -> bool {
        self.session.as_ref().is_some_and(Session::is_on_hold)
    }

    /// Numbers that people watch.
    #[must_use]
    pub fn stats(&self) -> SenderStats {
        self.stats
    }
}
