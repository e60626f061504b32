//! [`Shore`]: the end that receives, with a log and a live sink, as the gateway runs it.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::time::Duration;

use towline_link::codec::Record;
use towline_link::receiver::{Arrival, Delivery, Receiver, ReceiverStats};
use towline_link::{LiveFilter, RangeSet};
use towline_quic::{ConnectionHandle, Event};
use towline_wire::Time;

use super::base::{SHORE, must};
use super::carrier::{Channel, Input};
use super::ledger::Ledger;
use crate::Random;
use crate::host::Host;

/// A log takes at most so long to make a batch durable.
const WRITE: Duration = Duration::from_millis(60);

struct Session {
    channel: Channel,
    receiver: Receiver,
    /// Records that it gave.
    given: RangeSet,
}

/// What a log has to do.
enum Job {
    /// Says what it has.
    Open(ConnectionHandle),
    Write(ConnectionHandle, Vec<Range<u64>>),
}

pub(super) struct Shore {
    sessions: BTreeMap<ConnectionHandle, Session>,
    /// Connections to be closed, since the sender has a newer one.
    closing: Vec<ConnectionHandle>,
    filter: LiveFilter,
    jobs: VecDeque<(Time, Job)>,
    /// A log that is down takes nothing.
    is_down: bool,
    random: Random,
    starts: Option<Time>,
    before: ReceiverStats,
}

impl Shore {
    pub(super) fn new(seed: u64) -> Self {
        Self {
            sessions: BTreeMap::new(),
            closing: Vec::new(),
            filter: LiveFilter::new(),
            jobs: VecDeque::new(),
            is_down: false,
            random: Random::new(seed, 9),
            starts: None,
            before: ReceiverStats::default(),
        }
    }

    /// The process is killed, and with it what the log had not made durable.
    pub(super) fn kill(&mut self, now: Time, down: Duration) {
        for session in std::mem::take(&mut self.sessions).into_values() {
            self.before = sum(self.before, session.receiver.stats());
        }
        self.closing.clear();
        self.jobs.clear();
        self.filter = LiveFilter::new();
        self.starts = Some(now + down);
    }

    pub(super) fn starts(&self) -> Option<Time> {
        self.starts
    }

    pub(super) fn start(&mut self) {
        self.starts = None;
    }

    /// The log goes away, or comes back.
    pub(super) fn set_down(&mut self, is_down: bool) {
        self.is_down = is_down;
        for session in self.sessions.values_mut() {
            session.receiver.on_hold(is_down);
        }
    }

    fn work(&mut self, now: Time, job: Job) {
        let free = self.jobs.back().map_or(now, |(at, _)| (*at).max(now));
        let took = self.random.duration_up_to(WRITE);
        self.jobs.push_back((free + took, job));
    }

    pub(super) fn on_event(
        &mut self,
        now: Time,
        hosts: &mut [Host],
        handle: ConnectionHandle,
        event: &Event,
        ledger: &mut Ledger,
    ) {
        if self.starts.is_some() {
            return;
        }
        if let Event::Closed(_) = event {
            if let Some(session) = self.sessions.remove(&handle) {
                self.before = sum(self.before, session.receiver.stats());
            }
            return;
        }
        let Some(connection) = hosts[SHORE].endpoint.connection_mut(handle) else {
            return;
        };
        if let Event::Accepted = event {
            let channel = Channel::new(handle, connection, false);
            let mut receiver = Receiver::new();
            receiver.on_hold(self.is_down);
            let session = Session {
                channel,
                receiver,
                given: RangeSet::default(),
            };
            self.sessions.insert(handle, session);
            return;
        }
        let Some(session) = self.sessions.get_mut(&handle) else {
            return;
        };
        let inputs = session.channel.on_event(connection, event);
        for input in inputs {
            let Some(session) = self.sessions.get_mut(&handle) else {
                return;
            };
            let bytes = match input {
                Input::Message(bytes) => bytes,
                Input::Acked(_) => continue,
                Input::Lost(number) => {
                    session.receiver.on_lost(now, number);
                    continue;
                }
            };
            let arrival = session.receiver.handle_message(now, &bytes);
            let arrival = must("the boat sends what makes sense", arrival);
            self.on_arrival(now, handle, arrival, ledger);
        }
    }

    fn on_arrival(
        &mut self,
        now: Time,
        handle: ConnectionHandle,
        arrival: Option<Arrival>,
        ledger: &mut Ledger,
    ) {
        match arrival {
            None | Some(Arrival::Forgotten(_)) => {}
            Some(Arrival::Hello(hello)) => {
                assert_eq!(hello.stream, 77, "the spool lost its id");
                for (older, session) in std::mem::take(&mut self.sessions) {
                    if older == handle {
                        self.sessions.insert(older, session);
                    } else {
                        self.before = sum(self.before, session.receiver.stats());
                        self.closing.push(older);
                    }
                }
                self.work(now, Job::Open(handle));
            }
            Some(Arrival::Delivery(delivery)) => self.on_delivery(now, handle, &delivery, ledger),
        }
    }

    fn on_delivery(
        &mut self,
        now: Time,
        handle: ConnectionHandle,
        delivery: &Delivery,
        ledger: &mut Ledger,
    ) {
        // What came before is looked at as well: it must be what it was.
        let all = delivery.seqs.iter().cloned().flatten();
        for (seq, record) in all.zip(&*delivery.records) {
            ledger.on_arrived(now, seq, record);
        }
        if !delivery.is_backfill {
            let live = delivery.live();
            let live = live.filter_map(|(seq, left)| Some((seq, self.filter.filter(seq, &left)?)));
            let live: BTreeMap<u64, Record> = live.collect();
            for (seq, _) in delivery.entries() {
                ledger.on_shown(now, seq, live.get(&seq));
            }
        }
        if delivery.new.is_empty() {
            return;
        }
        if let Some(session) = self.sessions.get_mut(&handle) {
            for seqs in &delivery.new {
                let again = session.given.within(seqs.clone());
                ledger.twice += again.map(|seqs| seqs.end - seqs.start).sum::<u64>();
                session.given.insert(seqs.clone());
            }
        }
        if !self.is_down {
            return self.work(now, Job::Write(handle, delivery.new.clone()));
        }
        if let Some(session) = self.sessions.get_mut(&handle) {
            for seqs in &delivery.new {
                session.receiver.on_discarded(seqs.clone());
                session.given.remove(seqs.clone());
            }
        }
    }

    /// Does what is to be done now; whether anything was sent.
    pub(super) fn pump(&mut self, now: Time, hosts: &mut [Host], ledger: &mut Ledger) -> bool {
        if self.starts.is_some() {
            return false;
        }
        while let Some((at, _)) = self.jobs.front()
            && *at <= now
            && let Some((_, job)) = self.jobs.pop_front()
        {
            match job {
                Job::Open(handle) => {
                    let Some(session) = self.sessions.get_mut(&handle) else {
                        continue;
                    };
                    session.receiver.accept(ledger.log().clone());
                    let mut early = Vec::new();
                    while let Some(arrival) = must("as before", session.receiver.poll_early(now)) {
                        early.push(arrival);
                    }
                    for arrival in early {
                        self.on_arrival(now, handle, Some(arrival), ledger);
                    }
                }
                Job::Write(handle, seqs) => {
                    for seqs in seqs {
                        ledger.on_logged(seqs.clone());
                        if let Some(session) = self.sessions.get_mut(&handle) {
                            session.receiver.on_durable(now, seqs);
                        }
                    }
                }
            }
        }
        let mut is_busy = false;
        for handle in self.closing.drain(..) {
            if let Some(connection) = hosts[SHORE].endpoint.connection_mut(handle) {
                connection.close(now, 1, b"a newer connection of the same sender is here");
                is_busy = true;
            }
        }
        for (handle, session) in &mut self.sessions {
            let Some(connection) = hosts[SHORE].endpoint.connection_mut(*handle) else {
                continue;
            };
            while let Some(message) = session.receiver.poll_message(now) {
                let _ = session.channel.send(now, connection, message);
                is_busy = true;
            }
        }
        is_busy
    }

    pub(super) fn wake(&self) -> Option<Time> {
        if self.starts.is_some() {
            return self.starts;
        }
        let sessions = self.sessions.values();
        let timers = sessions.filter_map(|session| session.receiver.poll_timeout());
        timers.chain(self.jobs.front().map(|(at, _)| *at)).min()
    }

    pub(super) fn stats(&self) -> ReceiverStats {
        let sessions = self.sessions.values();
        sessions.fold(self.before, |all, session| {
            sum(all, session.receiver.stats())
        })
    }
}

fn sum(mut one: ReceiverStats, other: ReceiverStats) -> ReceiverStats {
    one.batches += other.batches;
    one.records += other.records;
    one.duplicates += other.duplicates;
    one.too_early += other.too_early;
    one.discarded += other.discarded;
    one.reports += other.reports;
    one
}
