//! [`Boat`]: the end that sends, with its spool, as the driver runs it.

use std::net::SocketAddr;
use std::time::Duration;

use towline_link::PathPatterns;
use towline_link::carriage::{LOOK_AGAIN, MAX_RETRY, RESTORED, RETRY, WORKED};
use towline_link::codec::Record;
use towline_link::sender::{Class, Held, Sender, SenderConfig, SenderStats};
use towline_link::spool::{Spool, SpoolConfig};
use towline_quic::{ClientConfig, ConnectionHandle, Endpoint, Event, NoCids};
use towline_sim::{Network, World};
use towline_testkit::SERVER_NAME;
use towline_wire::Time;

use super::base::{BOAT, Tally, must, secrets};
use super::carrier::{Channel, Input};
use super::ledger::Ledger;
use crate::host::Host;
use crate::torn_disk::TornDisk;

/// A disk takes so long to make records durable.
const COMMIT: Duration = Duration::from_millis(5);
/// Bytes of records that are read at once.
const READ_AT_ONCE: usize = 256 << 10;

/// What a process has.
struct Process {
    spool: Spool<TornDisk>,
    sender: Sender,
    /// Appended, and not committed.
    pending: Vec<(u64, Record, Class)>,
    commit: Option<Time>,
    trimmed: u64,
    channel: Option<Channel>,
    /// The other end has said something on it.
    is_answered: bool,
    connected: Time,
    dialing: Option<ConnectionHandle>,
    attempt: Option<Time>,
    retry: Duration,
}

impl Process {
    fn attempt_later(&mut self, now: Time) {
        self.attempt = Some(now + self.retry);
        self.retry = (self.retry * 2).min(MAX_RETRY);
    }
}

pub(super) struct Boat {
    disk: TornDisk,
    config: SenderConfig,
    client: ClientConfig,
    home: SocketAddr,
    shore: SocketAddr,
    seed: u64,
    /// Each attempt to connect has an endpoint and a socket of its own.
    attempts: u64,
    process: Option<Process>,
    starts: Option<Time>,
    /// Counts of processes that ended.
    before: SenderStats,
    streams_before: u64,
    pub(super) connections: u64,
    pub(super) spins: u64,
}

impl Boat {
    pub(super) fn new(
        seed: u64,
        config: SenderConfig,
        client: ClientConfig,
        ends: [SocketAddr; 2],
    ) -> Self {
        Self {
            disk: TornDisk::default(),
            config,
            client,
            home: ends[0],
            shore: ends[1],
            seed,
            attempts: 0,
            process: None,
            starts: Some(Time::ZERO),
            before: SenderStats::default(),
            streams_before: 0,
            connections: 0,
            spins: 0,
        }
    }

    /// The process begins, and finds what the one before it left.
    fn start(&mut self, now: Time, ledger: &mut Ledger) {
        let opened = Spool::open(self.disk.clone(), SpoolConfig::default(), 77);
        let (mut spool, found) = must("this disk can be read", opened);
        assert!(
            found.lost_records == 0,
            "lost what was committed: {found:?}"
        );
        let held = Held {
            stream: spool.id(),
            seqs: spool.oldest_seq()..spool.next_seq(),
        };
        ledger.on_opened(held.seqs.end);
        let mut sender = Sender::new(self.config.clone(), &held);
        restore(&mut sender, &mut spool, &held);
        self.process = Some(Process {
            sender,
            trimmed: held.seqs.start,
            spool,
            pending: Vec::new(),
            commit: None,
            channel: None,
            is_answered: false,
            connected: now,
            dialing: None,
            attempt: Some(now),
            retry: RETRY,
        });
    }

    /// The process is killed; it begins again after `down`. With a loss of power, what the disk had not synced
    /// may be gone, and a commit may have been under way.
    pub(super) fn kill(&mut self, now: Time, down: Duration, power: Option<&mut crate::Random>) {
        if let Some(mut process) = self.process.take() {
            self.before = sum(self.before, process.sender.stats());
            self.streams_before += process.channel.map_or(0, |channel| channel.streams);
            if let Some(random) = power {
                if random.chance(0.5) {
                    self.disk.fail_syncs(1);
                    let _ = process.spool.commit();
                    self.disk.fail_syncs(0);
                }
                drop(process.spool);
                self.disk.lose_power(random);
            }
        }
        self.starts = Some(now + down);
    }

    pub(super) fn is_up(&self) -> bool {
        self.process.is_some()
    }

    /// Takes a record of its source, which is told when it is durable.
    pub(super) fn offer(&mut self, now: Time, record: Record, class: Class) -> Option<u64> {
        let process = self.process.as_mut()?;
        let appended = process.spool.append(record.to_json().as_bytes());
        let appended = must("there is room", appended);
        if let Some(dropped) = appended.dropped {
            process.sender.on_dropped(dropped);
        }
        process.pending.push((appended.seq, record, class));
        process.commit.get_or_insert(now + COMMIT);
        Some(appended.seq)
    }

    pub(super) fn on_event(
        &mut self,
        now: Time,
        hosts: &mut [Host],
        handle: ConnectionHandle,
        event: &Event,
    ) {
        let Some(process) = &mut self.process else {
            return;
        };
        if process.dialing == Some(handle) {
            let Some(connection) = hosts[BOAT].endpoint.connection_mut(handle) else {
                return;
            };
            match event {
                Event::Connected => {
                    process.dialing = None;
                    process.is_answered = false;
                    process.connected = now;
                    process.channel = Some(Channel::new(handle, connection, true));
                    process.sender.on_connected(now);
                    self.connections += 1;
                }
                Event::Closed(_) => {
                    process.dialing = None;
                    process.attempt_later(now);
                }
                _ => {}
            }
            return;
        }
        let Some(channel) = process.channel.as_mut().filter(|it| it.handle == handle) else {
            return;
        };
        if let Event::Closed(_) = event {
            self.streams_before += channel.streams;
            process.channel = None;
            process.sender.on_disconnected(now);
            if process.is_answered && process.connected + WORKED <= now {
                process.retry = RETRY;
                process.attempt = Some(now);
            } else {
                process.attempt_later(now);
            }
            return;
        }
        let Some(connection) = hosts[BOAT].endpoint.connection_mut(handle) else {
            return;
        };
        for input in channel.on_event(connection, event) {
            match input {
                Input::Message(bytes) => {
                    process.is_answered = true;
                    let handled = process.sender.handle_message(&bytes);
                    must("the shore sends what makes sense", handled);
                }
                Input::Acked(number) => process.sender.on_acked(now, number),
                Input::Lost(number) => process.sender.on_lost(number),
            }
        }
    }

    /// Does what is to be done now; whether anything was sent.
    pub(super) fn pump(
        &mut self,
        world: &mut World<Host, Network>,
        ledger: &mut Ledger,
        tally: &mut Tally,
    ) -> bool {
        let now = world.now;
        if self.starts.is_some_and(|at| at <= now) {
            self.starts = None;
            self.start(now, ledger);
        }
        let Some(process) = &mut self.process else {
            return false;
        };
        let mut is_busy = false;
        if process.attempt.is_some_and(|at| at <= now) {
            process.attempt = None;
            self.attempts += 1;
            let mut public = world.net.public(self.home);
            public.set_port(1_024 + (self.attempts % 60_000) as u16);
            world.net.rebind(self.home, public);
            let endpoint = &mut world.hosts[BOAT].endpoint;
            *endpoint = self::endpoint(self.seed, self.attempts);
            let handle = endpoint.connect(now, &self.client, self.shore, SERVER_NAME);
            process.dialing = Some(must("there is room for a connection", handle));
            is_busy = true;
        }
        if process.commit.is_some_and(|at| at <= now) {
            process.commit = None;
            must("the disk works", process.spool.commit());
            for (seq, record, class) in process.pending.drain(..) {
                ledger.on_committed(seq);
                process.sender.push(now, seq, record, class);
            }
        }
        if let Some(channel) = &mut process.channel
            && let Some(connection) = world.hosts[BOAT].endpoint.connection_mut(channel.handle)
        {
            while !connection.is_closed() {
                let room = channel.room(connection);
                let Some(message) = process.sender.poll_message(now, &room) else {
                    break;
                };
                if let Err(transmission) = channel.send(now, connection, message) {
                    process.sender.on_refused(transmission);
                    break;
                }
                tally.peak_queued = tally.peak_queued.max(channel.queued(connection));
                is_busy = true;
            }
        }
        while let Some(seqs) = process.sender.poll_read() {
            let read = process.spool.read(seqs.clone(), READ_AT_ONCE);
            let read = must("the disk can be read", read);
            let records = read.records.iter().map(|(seq, bytes)| {
                let record = Record::parse_stored(bytes);
                (*seq, must("it was a record", record))
            });
            process.sender.on_read(&seqs, read.next, records.collect());
            is_busy = true;
        }
        let durable = process.sender.durable();
        if durable > process.trimmed {
            process.trimmed = durable;
            must("the disk works", process.spool.trim(durable));
        }
        is_busy
    }

    /// Bytes that wait in the transport's queue of datagrams.
    pub(super) fn queued(&self, hosts: &[Host]) -> usize {
        let channel = self.process.as_ref().and_then(|it| it.channel.as_ref());
        let connection = channel.and_then(|it| hosts[BOAT].endpoint.connection(it.handle));
        channel
            .zip(connection)
            .map_or(0, |(it, connection)| it.queued(connection))
    }

    pub(super) fn wake(&mut self, now: Time) -> Option<Time> {
        let Some(process) = &self.process else {
            return self.starts;
        };
        let look_again = process.channel.is_some() && process.sender.backlog() > 0;
        let mut timer = process.sender.poll_timeout();
        if timer.is_some_and(|at| at <= now) {
            // The driver would be woken at once, for nothing, again and again.
            self.spins += 1;
            timer = Some(now + Duration::from_millis(1));
        }
        let wakes = [
            look_again.then(|| now + LOOK_AGAIN),
            timer,
            process.commit,
            process.attempt,
        ];
        wakes.into_iter().flatten().min()
    }

    /// The connection is closed, as if it had to be given up.
    pub(super) fn hang_up(&mut self, now: Time, hosts: &mut [Host]) {
        let channel = self.process.as_ref().and_then(|it| it.channel.as_ref());
        if let Some(handle) = channel.map(|channel| channel.handle)
            && let Some(connection) = hosts[BOAT].endpoint.connection_mut(handle)
        {
            connection.close(now, 0, b"");
        }
    }

    /// Whether everything is durable at the other end, and this end knows.
    pub(super) fn is_done(&self) -> bool {
        self.process.as_ref().is_some_and(|process| {
            process.pending.is_empty() && process.sender.durable() == process.spool.next_seq()
        })
    }

    pub(super) fn describe(&self) -> String {
        let Some(process) = &self.process else {
            return "the boat is down".to_owned();
        };
        format!(
            "durable {} of {}, {} in flight, backlog {}, on hold {}, connected {}, {:?}",
            process.sender.durable(),
            process.spool.next_seq(),
            process.sender.in_flight(),
            process.sender.backlog(),
            process.sender.is_on_hold(),
            process.channel.is_some(),
            process.sender.stats()
        )
    }

    pub(super) fn stats(&self) -> SenderStats {
        match &self.process {
            Some(process) => sum(self.before, process.sender.stats()),
            None => self.before,
        }
    }

    pub(super) fn streams(&self) -> u64 {
        let channel = self.process.as_ref().and_then(|it| it.channel.as_ref());
        self.streams_before + channel.map_or(0, |channel| channel.streams)
    }

    /// The connection, to look at.
    pub(super) fn connection<'a>(&self, hosts: &'a [Host]) -> Option<&'a towline_quic::Connection> {
        let channel = self.process.as_ref()?.channel.as_ref()?;
        hosts[BOAT].endpoint.connection(channel.handle)
    }
}

/// Lets the sender begin with the last records of the spool.
fn restore(sender: &mut Sender, spool: &mut Spool<TornDisk>, held: &Held) {
    let alarms = PathPatterns::new(vec!["notifications.*".to_owned()]);
    last_records(spool, held, |seq, record| sender.recall(seq, &record));
    last_records(spool, held, |seq, record| {
        let class = match alarms.fit(&record) {
            true => Class::Alarm,
            false => Class::Telemetry,
        };
        sender.restore(Time::ZERO, seq, record, class);
    });
}

fn last_records(spool: &mut Spool<TornDisk>, held: &Held, mut take: impl FnMut(u64, Record)) {
    let mut next = held.seqs.end.saturating_sub(RESTORED).max(held.seqs.start);
    while next < held.seqs.end {
        let read = spool.read(next..held.seqs.end, READ_AT_ONCE);
        let read = must("the disk can be read", read);
        for (seq, bytes) in read.records {
            take(seq, must("it was a record", Record::parse_stored(&bytes)));
        }
        next = read.next;
    }
}

/// One that never was.
pub(super) fn endpoint(seed: u64, attempt: u64) -> Endpoint {
    let config = secrets(seed, 1 << 40 | attempt);
    Endpoint::new(config.cid_generator(Box::new(NoCids)), None)
}

fn sum(mut one: SenderStats, other: SenderStats) -> SenderStats {
    one.pushed += other.pushed;
    one.sent += other.sent;
    one.batches += other.batches;
    one.bytes += other.bytes;
    one.again += other.again;
    one.conflated += other.conflated;
    one.postponed += other.postponed;
    one.backfilled += other.backfilled;
    one.dropped += other.dropped;
    one
}
