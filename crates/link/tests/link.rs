//! A sender and a receiver, and between them everything that happens to messages: loss, reordering, copies,
//! connections that break, ends that restart, sinks that are down.

mod common;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, HashMap};
use std::time::Duration;

use common::Random;
use towline_link::codec::Record;
use towline_link::receiver::{Arrival, Delivery, Receiver};
use towline_link::sender::{
    Carrier, Class, Held, Lane, MAX_HELD, MAX_WAITING, Outgoing, Room, Sender, SenderConfig,
};
use towline_link::{LiveFilter, MAX_CONTROL};
use towline_wire::{RangeSet, Time};

const STREAM: u64 = 7;
const TICK: Duration = Duration::from_millis(10);

/// What may happen, each a chance in 1,000.
#[derive(Clone, Copy, Default)]
struct Weather {
    loss: u64,
    copies: u64,
    reorder: u64,
    /// In a tick.
    breaks: u64,
    sender_restarts: u64,
    sink_fails: u64,
    window: usize,
    rtt_ms: u64,
    datagram: usize,
}

#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    ToReceiver(Vec<u8>),
    ToSender(Vec<u8>),
    Acked(u64),
    Lost(u64),
    ReportLost(u64),
}

struct World {
    now: Time,
    random: Random,
    weather: Weather,
    sender: Sender,
    receiver: Receiver,
    filter: LiveFilter,
    spool: BTreeMap<u64, Record>,
    next: u64,
    durable: RangeSet,
    /// Given, not durable yet, and when it will be.
    sinking: Vec<(Time, u64)>,
    sink_is_down: bool,
    events: BinaryHeap<Reverse<(Time, u64, Event)>>,
    order: u64,
    control_free: [Time; 2],
    in_flight: usize,
    logged: HashMap<u64, u32>,
    live: HashMap<String, u64>,
    is_connected: bool,
}

fn delta(seq: u64) -> Record {
    let path = seq % 7;
    let text = format!(
        r#"{{"context":"vessels.self","updates":[{{"$source":"a.b","timestamp":"2026-11-27T10:00:{:02}.{:03}Z","values":[{{"path":"p.{path}","value":{}}}]}}]}}"#,
        seq / 1000 % 60,
        seq % 1000,
        seq as f64 / 8.0,
    );
    Record::parse(text.as_bytes()).unwrap()
}

fn sender_of(spool: &BTreeMap<u64, Record>, next: u64) -> Sender {
    let oldest = spool.first_key_value().map_or(next, |(seq, _)| *seq);
    let held = Held {
        stream: STREAM,
        seqs: oldest..next,
    };
    Sender::new(SenderConfig::new("test"), &held)
}

impl World {
    fn new(seed: u64, weather: Weather) -> Self {
        let spool = BTreeMap::new();
        Self {
            now: Time::ZERO + Duration::from_secs(1),
            random: Random(seed),
            weather,
            sender: sender_of(&spool, 0),
            receiver: Receiver::new(),
            filter: LiveFilter::new(),
            spool,
            next: 0,
            durable: RangeSet::default(),
            sinking: Vec::new(),
            sink_is_down: false,
            events: BinaryHeap::new(),
            order: 0,
            control_free: [Time::ZERO; 2],
            in_flight: 0,
            logged: HashMap::new(),
            live: HashMap::new(),
            is_connected: false,
        }
    }

    fn connect(&mut self) {
        self.events.clear();
        self.in_flight = 0;
        self.receiver = Receiver::new();
        self.sinking.clear();
        self.sender.on_connected(self.now);
        self.is_connected = true;
    }

    fn push(&mut self, class: Class) {
        let seq = self.next;
        self.next += 1;
        self.spool.insert(seq, delta(seq));
        self.sender.push(self.now, seq, delta(seq), class);
    }

    fn at(&mut self, after: Duration, event: Event) {
        self.order += 1;
        self.events
            .push(Reverse((self.now + after, self.order, event)));
    }

    fn carry(&mut self, to_receiver: bool, message: Outgoing) {
        let one_way = Duration::from_millis(self.weather.rtt_ms / 2);
        let event = |bytes| match to_receiver {
            true => Event::ToReceiver(bytes),
            false => Event::ToSender(bytes),
        };
        if message.carrier == Carrier::Control {
            // In order, whatever is lost.
            let lost = self.random.per_mille(self.weather.loss);
            let free = &mut self.control_free[usize::from(to_receiver)];
            *free = (*free).max(self.now + one_way * if lost { 4 } else { 1 });
            let after = free.saturating_duration_since(self.now);
            return self.at(after, event(message.bytes));
        }
        let mut after = one_way;
        if self.random.per_mille(self.weather.reorder) {
            after += Duration::from_millis(self.random.below(300));
        }
        let is_lost = self.random.per_mille(self.weather.loss);
        if let Carrier::Batch {
            transmission: number,
            ..
        } = message.carrier
        {
            self.in_flight += 1;
            match is_lost {
                true => self.at(one_way * 3, Event::Lost(number)),
                false => self.at(after + one_way, Event::Acked(number)),
            }
        }
        if let Carrier::Report { number } = message.carrier
            && is_lost
        {
            self.at(one_way * 3, Event::ReportLost(number));
        }
        if !is_lost {
            if self.random.per_mille(self.weather.copies) {
                let more = Duration::from_millis(self.random.below(2_000));
                self.at(after + more, event(message.bytes.clone()));
            }
            self.at(after, event(message.bytes));
        }
    }

    fn on_arrival(&mut self, arrival: Option<Arrival>) {
        match arrival {
            None | Some(Arrival::Forgotten(_)) => {}
            Some(Arrival::Hello(hello)) => {
                assert_eq!((&*hello.name, hello.stream), ("test", STREAM));
                self.receiver.accept(self.durable.clone());
                while let Some(arrival) = self.receiver.poll_early(self.now).unwrap() {
                    self.on_arrival(Some(arrival));
                }
            }
            Some(Arrival::Delivery(delivery)) => self.on_delivery(&delivery),
        }
    }

    fn on_delivery(&mut self, delivery: &Delivery) {
        let seqs = delivery.seqs.iter().cloned().flatten();
        for (seq, record) in seqs.zip(&*delivery.records) {
            assert_eq!(*record, delta(seq), "record {seq} came wrong");
        }
        for (seq, record) in delivery.live() {
            if let Some(fresh) = self.filter.filter(seq, &record) {
                let path = format!("{}", seq % 7);
                let before = self.live.insert(path, seq);
                assert!(before.is_none_or(|before| before <= seq), "stale: {seq}");
                assert_eq!(fresh, delta(seq));
            }
        }
        let new: Vec<u64> = delivery.entries().map(|(seq, _)| seq).collect();
        for seq in new {
            if self.sink_is_down {
                self.receiver.on_hold(true);
                self.receiver.on_discarded(seq..seq + 1);
            } else {
                let after = Duration::from_millis(self.random.below(400));
                self.sinking.push((self.now + after, seq));
            }
        }
    }

    fn tick(&mut self) {
        self.now += TICK;
        if self.is_connected && self.random.per_mille(self.weather.breaks) {
            self.is_connected = false;
            self.sender.on_disconnected(self.now);
            self.events.clear();
        } else if !self.is_connected && self.random.per_mille(20) {
            self.connect();
        }
        if self.random.per_mille(self.weather.sender_restarts) {
            self.spool = self.spool.split_off(&self.sender.durable());
            self.sender = sender_of(&self.spool, self.next);
            self.is_connected = false;
            self.events.clear();
        }
        if self.random.per_mille(self.weather.sink_fails) {
            self.sink_is_down = !self.sink_is_down;
            self.receiver.on_hold(self.sink_is_down);
        }
        while let Some(Reverse((at, ..))) = self.events.peek()
            && *at <= self.now
        {
            let Some(Reverse((_, _, event))) = self.events.pop() else {
                break;
            };
            match event {
                Event::ToReceiver(bytes) => {
                    let arrival = self.receiver.handle_message(self.now, &bytes).unwrap();
                    self.on_arrival(arrival);
                }
                Event::ToSender(bytes) => self.sender.handle_message(&bytes).unwrap(),
                Event::Acked(number) => {
                    self.in_flight -= 1;
                    self.sender.on_acked(self.now, number);
                }
                Event::ReportLost(number) => self.receiver.on_lost(self.now, number),
                Event::Lost(number) => {
                    self.in_flight -= 1;
                    self.sender.on_lost(number);
                }
            }
        }
        let now = self.now;
        let (done, sinking) = std::mem::take(&mut self.sinking)
            .into_iter()
            .partition(|(at, _)| *at <= now);
        self.sinking = sinking;
        let done: Vec<(Time, u64)> = done;
        for (_, seq) in done {
            *self.logged.entry(seq).or_default() += 1;
            self.durable.insert(seq..seq + 1);
            self.receiver.on_durable(now, seq..seq + 1);
        }
        if !self.is_connected {
            return;
        }
        while let Some(seqs) = self.sender.poll_read() {
            let next = seqs.end.min(seqs.start + 1 + self.random.below(100));
            let read = self.spool.range(seqs.start..next);
            let read = read.map(|(seq, record)| (*seq, record.clone()));
            self.sender.on_read(&seqs, next, read.collect());
        }
        loop {
            let room = Room {
                free: self.weather.window.saturating_sub(self.in_flight) * 500,
                alarms_only: false,
                datagram: self.weather.datagram,
                rtt: Duration::from_millis(self.weather.rtt_ms),
            };
            let Some(message) = self.sender.poll_message(now, &room) else {
                break;
            };
            self.carry(true, message);
        }
        while let Some(message) = self.receiver.poll_message(now) {
            self.carry(false, message);
        }
        self.spool = self.spool.split_off(&self.sender.durable());
    }

    /// Nothing more happens but what has to.
    fn settle(&mut self) {
        self.weather = Weather {
            window: self.weather.window.max(4),
            rtt_ms: self.weather.rtt_ms,
            datagram: self.weather.datagram,
            ..Weather::default()
        };
        self.sink_is_down = false;
        self.receiver.on_hold(false);
        for _ in 0..60_000 {
            self.tick();
            if self.sender.durable() == self.next && self.sender.in_flight() == 0 {
                return;
            }
        }
        panic!(
            "durable {} of {}: {:?} {:?}",
            self.sender.durable(),
            self.next,
            self.sender.stats(),
            self.receiver.stats()
        );
    }
}

fn run(seed: u64, weather: Weather, ticks: u64, each_tick: u64) -> World {
    let mut world = World::new(seed, weather);
    world.connect();
    for _ in 0..ticks {
        for _ in 0..world.random.below(2 * each_tick + 1) {
            let class = match world.random.per_mille(5) {
                true => Class::Alarm,
                false => Class::Telemetry,
            };
            world.push(class);
        }
        world.tick();
    }
    world.settle();
    for seq in 0..world.next {
        assert_eq!(
            world.logged.get(&seq),
            Some(&1),
            "seed {seed}: record {seq}"
        );
    }
    for path in 0..7.min(world.next) {
        let newest = world.live.get(&path.to_string());
        assert!(newest.is_some(), "seed {seed}: path {path} was never live");
    }
    world
}

const FAIR: Weather = Weather {
    loss: 0,
    copies: 0,
    reorder: 0,
    breaks: 0,
    sender_restarts: 0,
    sink_fails: 0,
    window: 40,
    rtt_ms: 100,
    datagram: 1_150,
};

#[test]
fn on_a_good_link_each_record_is_sent_once_and_in_order() {
    let world = run(1, FAIR, 2_000, 1);
    let stats = world.sender.stats();
    assert_eq!((stats.sent, stats.again), (stats.pushed, 0));
    assert_eq!((stats.conflated, stats.backfilled), (0, 0));
    let batches = stats.batches as f64;
    let deadlines = 2_000.0 * 10.0 / 250.0;
    assert!(
        batches < deadlines * 1.5,
        "{batches} batches of {deadlines}"
    );
    let receiver = world.receiver.stats();
    assert!(receiver.reports < stats.batches, "{receiver:?}");
}

#[test]
fn whatever_happens_to_messages_every_record_is_durable_once_and_no_value_is_stale() {
    for seed in 0..30 {
        let mut random = Random(seed ^ 0xabcd);
        let mut of = |most: u64| random.below(most + 1);
        let weather = Weather {
            loss: of(300),
            copies: of(100),
            reorder: of(300),
            breaks: of(3),
            sender_restarts: of(2),
            sink_fails: of(3),
            window: 1 + of(20) as usize,
            rtt_ms: 20 + of(1_500),
            datagram: 400,
        };
        run(seed, weather, 3_000, 1);
    }
}

#[test]
fn a_link_that_is_too_slow_shows_the_newest_and_keeps_the_rest() {
    let weather = Weather {
        window: 1,
        rtt_ms: 600,
        datagram: 400,
        ..FAIR
    };
    let world = run(3, weather, 2_000, 4);
    let stats = world.sender.stats();
    assert!(stats.conflated > 1_000, "{stats:?}");
    assert!(stats.backfilled >= stats.conflated, "{stats:?}");
}

#[test]
fn an_alarm_goes_at_once_and_before_the_others() {
    let mut world = World::new(1, FAIR);
    world.connect();
    for _ in 0..20 {
        world.tick();
    }
    world.push(Class::Telemetry);
    world.push(Class::Alarm);
    let room = Room {
        free: 12_000,
        alarms_only: false,
        datagram: 1_200,
        rtt: Duration::from_millis(100),
    };
    let shut = Room { free: 0, ..room };
    assert_eq!(world.sender.poll_message(world.now, &shut), None);
    let message = world.sender.poll_message(world.now, &room).unwrap();
    let lane = Lane::Alarm;
    assert_eq!(
        message.carrier,
        Carrier::Batch {
            transmission: 0,
            lane
        }
    );
    assert_eq!(world.sender.poll_message(world.now, &room), None);
    let due = world.sender.poll_timeout().unwrap();
    assert_eq!(due, world.now + Duration::from_millis(245));
    assert!(world.sender.poll_message(due, &room).is_some());
}

#[test]
fn a_rate_is_kept_to() {
    let config = SenderConfig::new("test").rate(Some(1_000));
    let held = Held {
        stream: STREAM,
        seqs: 0..0,
    };
    let mut sender = Sender::new(config, &held);
    let mut now = Time::ZERO;
    sender.on_connected(now);
    let room = Room {
        free: 12_000,
        alarms_only: false,
        datagram: 1_200,
        rtt: Duration::from_millis(100),
    };
    let mut bytes = 0;
    for seq in 0..20_000 {
        sender.push(now, seq, delta(seq * 7_919), Class::Telemetry);
        now += Duration::from_millis(5);
        while let Some(message) = sender.poll_message(now, &room) {
            if message.carrier != Carrier::Control {
                bytes += message.bytes.len() + 52;
            }
        }
    }
    assert!((90_000..102_000).contains(&bytes), "{bytes} in 100 s");
}

#[test]
fn a_sender_whose_records_are_all_durable_learns_it_without_sending_any() {
    let mut world = World::new(7, FAIR);
    for _ in 0..100 {
        world.push(Class::Telemetry);
    }
    world.sender = sender_of(&world.spool, world.next);
    world.durable.insert(0..100);
    // Whatever the link loses.
    world.weather.loss = 900;
    world.connect();
    for _ in 0..1_000 {
        world.tick();
    }
    assert_eq!(world.sender.durable(), 100);
    assert_eq!(world.sender.stats().batches, 0);
}

#[test]
fn what_waits_in_memory_is_bounded_and_the_spool_has_the_rest() {
    let mut world = World::new(8, FAIR);
    for _ in 0..10_000 {
        // None replaces another: they are no deltas.
        let (seq, now) = (world.next, world.now);
        let record = Record::parse(format!("{{\"number\":{seq}}}").as_bytes()).unwrap();
        world.next += 1;
        world.spool.insert(seq, record.clone());
        world.sender.push(now, seq, record, Class::Telemetry);
    }
    let stats = world.sender.stats();
    assert_eq!(stats.postponed, 10_000 - MAX_WAITING as u64);
    assert_eq!(world.sender.backlog(), 10_000);
    // A large one, again and again, is bounded by its bytes.
    let large = format!("{{\"text\":\"{}\"}}", "x".repeat((1 << 20) - 20));
    let large = Record::parse(large.as_bytes()).unwrap();
    for seq in 10_000..10_040 {
        world
            .sender
            .push(world.now, seq, large.clone(), Class::Alarm);
    }
    let postponed = world.sender.stats().postponed - stats.postponed;
    assert!(postponed >= 40 - (MAX_HELD >> 20) as u64 - 1, "{postponed}");
}

#[test]
fn a_batch_has_so_many_records_and_no_more() {
    let held = Held {
        stream: STREAM,
        seqs: 0..0,
    };
    let mut sender = Sender::new(SenderConfig::new("test"), &held);
    let mut now = Time::ZERO;
    sender.on_connected(now);
    let room = Room {
        free: 120_000,
        alarms_only: false,
        datagram: 60_000,
        rtt: Duration::from_millis(100),
    };
    let empty = Record::parse(b"{}").unwrap();
    let mut largest = 0;
    for seq in 0..20_000 {
        sender.push(now, seq, empty.clone(), Class::Telemetry);
        if seq % 2_000 == 1_999 {
            now += Duration::from_secs(1);
            let before = sender.stats().sent;
            while sender.poll_message(now, &room).is_some() {
                largest = largest.max(sender.stats().sent - before);
            }
            let (sent, batches) = (sender.stats().sent, sender.stats().batches);
            assert!(sent <= batches * 1_024, "{sent} in {batches}");
        }
    }
    assert!(largest >= 1_024, "{largest}");
}

#[test]
fn nothing_is_asked_for_at_once_while_the_budget_is_spent() {
    let mut world = World::new(10, FAIR);
    world.connect();
    for _ in 0..20 {
        world.tick();
    }
    world.push(Class::Telemetry);
    let room = Room {
        free: 12_000,
        alarms_only: true,
        datagram: 1_200,
        rtt: Duration::from_millis(100),
    };
    let later = world.now + Duration::from_secs(1);
    assert_eq!(world.sender.poll_message(later, &room), None);
    assert_eq!(world.sender.poll_timeout(), None);
}

#[test]
fn a_large_batch_is_told_of_soon() {
    for (digits, most) in [(10, 1_000), (2_000, 100)] {
        let mut world = World::new(12, FAIR);
        world.connect();
        for _ in 0..200 {
            world.tick();
        }
        let text: String = (0..digits)
            .map(|_| char::from(b'0' + world.random.below(10) as u8))
            .collect();
        let record = Record::parse(format!(r#"{{"text":"{text}"}}"#).as_bytes()).unwrap();
        let seq = world.next;
        world.sender.push(world.now, seq, record, Class::Telemetry);
        let now = world.now + Duration::from_secs(1);
        let room = Room {
            free: 12_000,
            alarms_only: false,
            datagram: 1_200,
            rtt: Duration::from_millis(100),
        };
        let batch = world.sender.poll_message(now, &room).unwrap();
        assert_eq!(world.receiver.poll_timeout(), None);
        let arrival = world.receiver.handle_message(now, &batch.bytes).unwrap();
        assert!(matches!(arrival, Some(Arrival::Delivery(_))));
        let due = now + Duration::from_millis(most);
        assert_eq!(world.receiver.poll_timeout(), Some(due));
    }
}

#[test]
fn an_account_of_many_gaps_fits_a_control_message() {
    let mut world = World::new(11, FAIR);
    world.sender = sender_of(&world.spool, 1 << 41);
    for at in 0..4_000 {
        let seq = (1 << 40) + 2 * at;
        world.durable.insert(seq..seq + 1);
    }
    world.connect();
    let room = Room {
        free: 0,
        alarms_only: false,
        datagram: 1_200,
        rtt: Duration::ZERO,
    };
    let hello = world.sender.poll_message(world.now, &room).unwrap();
    let arrival = world.receiver.handle_message(world.now, &hello.bytes);
    world.on_arrival(arrival.unwrap());
    let account = world.receiver.poll_message(world.now).unwrap();
    assert_eq!(account.carrier, Carrier::Control);
    assert!(
        account.bytes.len() <= MAX_CONTROL,
        "{}",
        account.bytes.len()
    );
    world.sender.handle_message(&account.bytes).unwrap();
}

#[test]
fn what_the_spool_drops_waits_no_more_in_memory() {
    let mut world = World::new(12, FAIR);
    for _ in 0..100 {
        world.push(Class::Telemetry);
        world.push(Class::Alarm);
    }
    assert_eq!(world.sender.backlog(), 200);
    world.sender.on_dropped(0..150);
    assert_eq!(world.sender.backlog(), 50);
    world.spool = world.spool.split_off(&150);
    world.connect();
    world.settle();
    assert_eq!(world.sender.stats().sent, 50);
}

#[test]
fn so_many_batches_are_kept_until_the_hello() {
    let mut receiver = Receiver::new();
    let now = Time::ZERO;
    for _ in 0..1_000 {
        let batch = [&[0x40, 0][..], &[7; 1_000]].concat();
        assert!(receiver.handle_message(now, &batch).unwrap().is_none());
    }
    let mut world = World::new(9, FAIR);
    world.sender.on_connected(now);
    let room = Room {
        free: 0,
        alarms_only: false,
        datagram: 1_200,
        rtt: Duration::ZERO,
    };
    let hello = world.sender.poll_message(now, &room).unwrap();
    assert!(matches!(
        receiver.handle_message(now, &hello.bytes),
        Ok(Some(Arrival::Hello(_)))
    ));
    receiver.accept(RangeSet::default());
    // Each is no batch, and an error: there are 64.
    let errors = (0..1_000).filter(|_| receiver.poll_early(now).is_err());
    assert_eq!(errors.count(), 64);
}

#[test]
fn what_the_spool_has_lost_is_not_waited_for() {
    let mut world = World::new(6, FAIR);
    for _ in 0..100 {
        world.push(Class::Telemetry);
    }
    for lost in [10, 11, 50, 99] {
        world.spool.remove(&lost);
    }
    world.sender = sender_of(&world.spool, world.next);
    world.connect();
    // A commit that failed left a gap of numbers.
    world.next = 103;
    world.push(Class::Telemetry);
    world.settle();
    assert_eq!(world.sender.durable(), 104);
    assert_eq!(world.logged.len(), 97);
    assert_eq!(world.sender.stats().dropped, 7);
}

#[test]
fn what_the_spool_drops_is_told_and_the_rest_is_durable() {
    let mut world = World::new(5, FAIR);
    for _ in 0..1_000 {
        world.push(Class::Telemetry);
    }
    // The process restarts, and the spool has room for the newest alone.
    world.spool = world.spool.split_off(&200);
    world.sender = sender_of(&world.spool, world.next);
    world.connect();
    for _ in 0..5 {
        world.tick();
    }
    world.spool = world.spool.split_off(&400);
    world.sender.on_dropped(200..400);
    world.settle();
    assert_eq!(world.sender.durable(), 1_000);
    assert!((400..1_000).all(|seq| world.logged.get(&seq) == Some(&1)));
    assert_eq!(world.sender.stats().dropped, 200);
    assert_eq!(world.receiver.durable_below(), 1_000);
}
