//! Messages of the delta link: what a peer may make a sender or a receiver do.
//!
//! The first byte says who is under test. A receiver, after a hello, or a sender with batches on their way takes
//! messages that nobody need have written; or two honest ends talk while the input drops, copies, delays and
//! changes what they say. Nothing panics, what is remembered has bounds, and while no message was changed every
//! record is what it was, and no value is shown after a newer one.

use std::collections::BTreeMap;
use std::ops::Range;
use std::time::Duration;

use towline_link::codec::Record;
use towline_link::receiver::{Arrival, Delivery, Receiver};
use towline_link::sender::{Carrier, Class, Held, Outgoing, Room, Sender, SenderConfig};
use towline_link::{LiveFilter, RangeSet};
use towline_wire::Time;

/// Ranges of records that either end remembers.
const MOST_RANGES: usize = 4_096;
const MOST_EARLY: usize = 64;
/// Messages that one end may send at one moment.
const MOST_AT_ONCE: usize = 10_000;
const STREAM: u64 = 7;
/// The first byte of what the receiver tells in a datagram.
const REPORT: u8 = 2;

/// Runs `input`.
///
/// # Panics
/// When an end breaks a promise.
pub fn link_messages(input: &[u8]) {
    run(input);
}

/// As [`link_messages`]; returns what happened, as a hash.
pub(super) fn run(input: &[u8]) -> u64 {
    let Some((first, rest)) = input.split_first() else {
        return 0;
    };
    match first % 3 {
        0 => receiver(rest, first / 3 % 2 == 0),
        1 => sender(rest),
        _ => both(rest),
    }
}

fn record(seq: u64) -> Record {
    let [one, other] = paths(seq);
    let text = format!(
        r#"{{"updates":[{{"$source":"a","values":[{{"path":"{one}","value":{seq}}},{{"path":"{other}","value":0}}]}}]}}"#
    );
    Record::parse(text.as_bytes()).unwrap_or_else(|error| panic!("{error}"))
}

/// The paths of the two values of a record.
fn paths(seq: u64) -> [String; 2] {
    [format!("p{}", seq % 5), format!("q{}", seq % 3)]
}

fn fresh_sender(next: u64) -> Sender {
    let held = Held {
        stream: STREAM,
        seqs: 0..next,
    };
    Sender::new(SenderConfig::new("fuzz"), &held)
}

const ROOM: Room = Room {
    free: 3_000,
    alarms_only: false,
    datagram: 300,
    rtt: Duration::from_millis(100),
};

/// Messages behind their lengths in two bytes.
fn messages(mut input: &[u8]) -> impl Iterator<Item = &[u8]> {
    std::iter::from_fn(move || {
        let (len, rest) = input.split_first_chunk()?;
        let len = usize::from(u16::from_be_bytes(*len)).min(rest.len());
        let (message, rest) = rest.split_at(len);
        input = rest;
        Some(message)
    })
}

fn receiver(input: &[u8], is_greeted: bool) -> u64 {
    let mut receiver = Receiver::new();
    let mut now = Time::ZERO;
    let mut seen = 5;
    if is_greeted {
        let mut sender = fresh_sender(0);
        sender.on_connected(now);
        for message in said(|| sender.poll_message(now, &ROOM)) {
            let greeted = receiver.handle_message(now, &message.bytes);
            assert!(matches!(greeted, Ok(Some(Arrival::Hello(_)))));
        }
        receiver.accept(RangeSet::default());
    }
    for message in messages(input) {
        now += Duration::from_millis(40);
        match receiver.handle_message(now, message) {
            Ok(arrival) => seen = seen << 3 | taken(&mut receiver, now, arrival),
            Err(_) => return seen << 2 | 1,
        }
        let sent = said(|| receiver.poll_message(now));
        seen = seen << 1 | u64::from(!sent.is_empty());
        let (ranges, early) = receiver.remembered();
        assert!(ranges <= MOST_RANGES && early <= MOST_EARLY);
    }
    seen
}

/// The owner makes durable what came, and accepts whoever says hello.
fn taken(receiver: &mut Receiver, now: Time, arrival: Option<Arrival>) -> u64 {
    match arrival {
        None => 0,
        Some(Arrival::Forgotten(_)) => 1,
        Some(Arrival::Delivery(delivery)) => {
            assert_eq!(
                delivery.records.len() as u64,
                delivery.seqs.iter().map(len).sum::<u64>()
            );
            assert!(delivery.live().count() <= delivery.entries().count());
            for seqs in delivery.new {
                receiver.on_durable(now, seqs);
            }
            2
        }
        Some(Arrival::Hello(_)) => {
            receiver.accept(RangeSet::default());
            while let Ok(Some(early)) = receiver.poll_early(now) {
                taken(receiver, now, Some(early));
            }
            3
        }
    }
}

fn len(range: &Range<u64>) -> u64 {
    range.end - range.start
}

/// All that an end has to say now.
fn said(mut poll: impl FnMut() -> Option<Outgoing>) -> Vec<Outgoing> {
    let mut sent = Vec::new();
    while let Some(message) = poll() {
        sent.push(message);
        assert!(sent.len() < MOST_AT_ONCE, "an end never stops talking");
    }
    sent
}

/// Everything that waits in the spool is read and sent.
fn drain(sender: &mut Sender, now: Time) -> Vec<Outgoing> {
    let mut sent = Vec::new();
    loop {
        let more = said(|| sender.poll_message(now, &ROOM));
        let seqs = sender.poll_read();
        if let Some(seqs) = &seqs {
            let records = seqs.clone().map(|seq| (seq, record(seq)));
            sender.on_read(seqs, seqs.end, records.collect());
        }
        if more.is_empty() && seqs.is_none() {
            return sent;
        }
        sent.extend(more);
        assert!(sent.len() < MOST_AT_ONCE, "a sender never stops talking");
    }
}

fn sender(input: &[u8]) -> u64 {
    let mut now = Time::ZERO;
    let mut sender = fresh_sender(20);
    sender.on_connected(now);
    let mut next = 20;
    let mut seen = 9;
    for message in messages(input) {
        for _ in 0..3 {
            let class = [Class::Telemetry, Class::Alarm][usize::from(next % 7 == 0)];
            sender.push(now, next, record(next), class);
            next += 1;
        }
        now += Duration::from_millis(100);
        drain(&mut sender, now);
        let handled = sender.handle_message(message);
        seen = seen << 1 | u64::from(handled.is_err());
        assert!(sender.unsent_ranges() <= MOST_RANGES);
        assert!(sender.durable() <= next && sender.backlog() <= next);
        if handled.is_err() {
            sender.on_disconnected(now);
            sender.on_connected(now);
        }
        drain(&mut sender, now);
        sender.on_lost(u64::from(message.first().copied().unwrap_or_default()));
    }
    let bits = |number: u64| u64::from(number.checked_ilog2().map_or(0, |bits| bits + 1));
    seen << 12 | bits(sender.durable()) << 6 | bits(sender.in_flight() as u64)
}

struct Talk {
    now: Time,
    sender: Sender,
    receiver: Receiver,
    next: u64,
    /// Messages under way: to the receiver, and to the sender; the numbers of batches with them.
    under_way: [Vec<(Option<u64>, Vec<u8>)>; 2],
    durable: RangeSet,
    logged: BTreeMap<u64, u32>,
    /// What the receiver showed, which forgets it with each connection; and what was ever shown.
    filter: LiveFilter,
    shown: BTreeMap<String, u64>,
    is_changed: bool,
}

impl Talk {
    fn connect(&mut self) {
        self.sender.on_disconnected(self.now);
        self.sender.on_connected(self.now);
        self.receiver = Receiver::new();
        self.filter = LiveFilter::new();
        self.under_way = [Vec::new(), Vec::new()];
        self.is_changed = false;
    }

    fn pump(&mut self) {
        for message in drain(&mut self.sender, self.now) {
            let number = match message.carrier {
                Carrier::Batch { transmission, .. } => Some(transmission),
                _ => None,
            };
            self.under_way[0].push((number, message.bytes));
        }
        for message in said(|| self.receiver.poll_message(self.now)) {
            self.under_way[1].push((None, message.bytes));
        }
    }

    fn deliver(&mut self, to_sender: bool, bytes: &[u8]) {
        if to_sender {
            let handled = self.sender.handle_message(bytes);
            assert!(handled.is_ok() || self.is_changed, "{handled:?}");
            return;
        }
        match self.receiver.handle_message(self.now, bytes) {
            Ok(arrival) => self.take(arrival),
            Err(error) => {
                assert!(self.is_changed, "{error}");
                self.connect();
            }
        }
    }

    fn take(&mut self, arrival: Option<Arrival>) {
        match arrival {
            Some(Arrival::Delivery(delivery)) => {
                if !self.is_changed {
                    self.show(&delivery);
                }
                for (seq, came) in delivery.entries() {
                    assert!(self.is_changed || *came == record(seq), "record {seq}");
                    if !self.is_changed {
                        *self.logged.entry(seq).or_default() += 1;
                    }
                }
                for seqs in delivery.new {
                    if !self.is_changed {
                        self.durable.insert(seqs.clone());
                    }
                    self.receiver.on_durable(self.now, seqs);
                }
            }
            Some(Arrival::Hello(_)) => {
                self.receiver.accept(self.durable.clone());
                while let Ok(Some(early)) = self.receiver.poll_early(self.now) {
                    self.take(Some(early));
                }
            }
            _ => {}
        }
    }

    fn show(&mut self, delivery: &Delivery) {
        for (seq, left) in delivery.live() {
            let left = self.filter.filter(seq, &left);
            let text = left.map_or(String::new(), |left| left.to_json());
            for path in paths(seq) {
                if text.contains(&format!("\"{path}\"")) {
                    let before = self.shown.entry(path).or_default();
                    assert!(*before <= seq, "{text} is shown after record {before}");
                    *before = seq;
                }
            }
        }
    }

    fn step(&mut self, step: u8, more: u8) {
        let to_sender = step & 1 == 1;
        let queue = &mut self.under_way[usize::from(to_sender)];
        let at = usize::from(more) % queue.len().max(1);
        match step >> 1 & 7 {
            0 => {
                for _ in 0..=more % 16 {
                    let class = [Class::Telemetry, Class::Alarm][usize::from(more > 240)];
                    self.sender
                        .push(self.now, self.next, record(self.next), class);
                    self.next += 1;
                }
            }
            1 => self.now += Duration::from_millis(10 * u64::from(more)),
            // In any order; but what goes over the stream of both comes in order.
            2 | 3 if at < queue.len() => {
                let first = queue.iter().position(|(number, _)| number.is_none());
                let at = match queue[at].0 {
                    None if !to_sender => first.unwrap_or(at),
                    _ => at,
                };
                let (number, bytes) = queue.remove(at);
                self.deliver(to_sender, &bytes);
                if let Some(number) = number {
                    self.sender.on_acked(self.now, number);
                }
            }
            4 if at < queue.len() => match queue[at].0 {
                Some(number) => {
                    queue.remove(at);
                    self.sender.on_lost(number);
                }
                // A report: the next one makes up for it.
                None if queue[at].1.first() == Some(&REPORT) => {
                    queue.remove(at);
                }
                None => {}
            },
            5 if at < queue.len() && queue[at].0.is_some() => {
                let copy = queue[at].clone();
                queue.push(copy);
            }
            6 if at < queue.len() => {
                let bytes = &mut queue[at].1;
                let place = usize::from(step >> 4) * 3 % bytes.len().max(1);
                if let Some(byte) = bytes.get_mut(place) {
                    *byte ^= more | 1;
                    self.is_changed = true;
                }
            }
            7 => self.connect(),
            _ => {}
        }
        self.pump();
    }
}

/// Two ends, and what the input does to their talk; in the end all is well unless a message was changed.
fn both(input: &[u8]) -> u64 {
    let mut talk = Talk {
        now: Time::ZERO,
        sender: fresh_sender(0),
        receiver: Receiver::new(),
        next: 0,
        under_way: [Vec::new(), Vec::new()],
        durable: RangeSet::default(),
        logged: BTreeMap::new(),
        filter: LiveFilter::new(),
        shown: BTreeMap::new(),
        is_changed: false,
    };
    let mut was_changed = false;
    talk.connect();
    talk.pump();
    for pair in input.as_chunks::<2>().0 {
        talk.step(pair[0], pair[1]);
        was_changed |= talk.is_changed;
    }
    let stats = talk.sender.stats();
    if !was_changed {
        talk.connect();
        for _ in 0..200 {
            talk.now += Duration::from_millis(500);
            talk.pump();
            for to_sender in [false, true] {
                for (_, bytes) in std::mem::take(&mut talk.under_way[usize::from(to_sender)]) {
                    talk.deliver(to_sender, &bytes);
                }
            }
            if talk.sender.durable() == talk.next {
                break;
            }
        }
        assert_eq!(talk.sender.durable(), talk.next, "the talk never ends");
        assert!((0..talk.next).all(|seq| talk.logged.get(&seq) == Some(&1)));
    }
    let bits = |number: u64| u64::from(number.checked_ilog2().map_or(0, |bits| bits + 1));
    [stats.batches, stats.again, stats.backfilled, talk.next]
        .into_iter()
        .fold(11 + u64::from(was_changed), |hash, part| {
            hash << 7 | bits(part)
        })
}

/// What honest ends say, and a talk that goes well.
pub(super) fn seeds() -> Vec<(String, Vec<u8>)> {
    let mut sender = fresh_sender(0);
    let mut receiver = Receiver::new();
    sender.on_connected(Time::ZERO);
    let (mut to_receiver, mut to_sender) = (vec![0], vec![1]);
    let framed = |out: &mut Vec<u8>, message: &[u8]| {
        out.extend_from_slice(&(message.len() as u16).to_be_bytes());
        out.extend_from_slice(message);
    };
    let mut now = Time::ZERO;
    for seq in 0..30 {
        sender.push(now, seq, record(seq), Class::Telemetry);
        now += Duration::from_millis(100);
        for message in said(|| sender.poll_message(now, &ROOM)) {
            framed(&mut to_receiver, &message.bytes);
            let arrival = receiver.handle_message(now, &message.bytes);
            taken(&mut receiver, now, arrival.ok().flatten());
        }
        for message in said(|| receiver.poll_message(now)) {
            framed(&mut to_sender, &message.bytes);
            let _ = sender.handle_message(&message.bytes);
        }
    }
    let talk: Vec<u8> = (0..40)
        .flat_map(|_| [0, 5, 2, 30, 4, 0, 5, 0, 8, 0])
        .collect();
    let mut ungreeted = to_receiver.clone();
    ungreeted[0] = 3;
    vec![
        ("to-a-receiver".to_owned(), to_receiver),
        ("from-the-hello-on".to_owned(), ungreeted),
        ("to-a-sender".to_owned(), to_sender),
        ("talk".to_owned(), [&[2][..], &talk].concat()),
    ]
}
