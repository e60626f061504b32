//! Several senders over one bottleneck on a virtual clock: recovery, controller and pacer only.
//!
//! The bottleneck is a drop-tail queue whose rate may change; before it a policer and random loss,
//! behind it the delay. Receivers acknowledge every second packet, at once if one is missing, and
//! after 25 ms at the latest. A report holds what happened in bins of 100 ms.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::ops::{Range, RangeInclusive};
use std::time::Duration;

use towline_recovery::{
    Algorithm, Config, Expired, FrameOwner, PacketKind, Permit, Recovery, Stats,
};
use towline_wire::{PacketNumberSpace, Side, Time};

const SPACE: PacketNumberSpace = PacketNumberSpace::Application;
pub(crate) const DATAGRAM: u64 = 1200;
const BIN: Duration = Duration::from_millis(100);
const ACK_DELAY: Duration = Duration::from_millis(25);
const MOST_RANGES: usize = 64;

/// Megabits per second as bytes per second.
pub(crate) const fn mbit(rate: u64) -> u64 {
    rate * 125_000
}

pub(crate) const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn at(time: Duration) -> Time {
    Time::ZERO + time
}

#[derive(Clone, Debug)]
pub(crate) struct Path {
    /// Bytes per second from each time on.
    pub(crate) rates: Vec<(Duration, u64)>,
    pub(crate) rtt: Duration,
    pub(crate) queue: u64,
    /// Random losses per million packets.
    pub(crate) loss: u64,
    /// Token bucket without a queue: bytes per second and bucket.
    pub(crate) policer: Option<(u64, u64)>,
    /// ACKs are held and released together at multiples of this time.
    pub(crate) lumps: Option<Duration>,
    /// Random losses per million ACKs.
    pub(crate) ack_loss: u64,
    /// Packets per ACK.
    pub(crate) thinning: u32,
    /// Every so many packets one arrives this much later.
    pub(crate) reorder: Option<(u64, Duration)>,
    pub(crate) seed: u64,
}

impl Path {
    /// A constant rate with a queue of one bandwidth-delay product.
    pub(crate) fn new(rate: u64, rtt: Duration) -> Self {
        let bdp = rate * rtt.as_millis() as u64 / 1000;
        Self {
            rates: vec![(Duration::ZERO, rate)],
            rtt,
            queue: bdp.max(4 * DATAGRAM),
            loss: 0,
            policer: None,
            lumps: None,
            thinning: 2,
            ack_loss: 0,
            reorder: None,
            seed: 1,
        }
    }

    fn rate(&self, now: Time) -> u64 {
        let current = self.rates.iter().rev().find(|(from, _)| at(*from) <= now);
        current.map_or(self.rates[0].1, |(_, rate)| *rate)
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Sender {
    pub(crate) algorithm: Algorithm,
    pub(crate) start: Duration,
    /// The application writes only so many bytes per second; `None` for no limit.
    pub(crate) writes: Option<u64>,
    /// It writes nothing within these times.
    pub(crate) silent: Vec<Range<Duration>>,
}

impl Sender {
    pub(crate) fn new(algorithm: Algorithm) -> Self {
        Self {
            algorithm,
            start: Duration::ZERO,
            writes: None,
            silent: Vec::new(),
        }
    }
}

/// One flow's history.
#[derive(Clone, Debug, Default)]
pub(crate) struct History {
    /// Bytes that arrived, per bin.
    pub(crate) arrived: Vec<u64>,
    /// The sender's figures at the end of each bin.
    pub(crate) stats: Vec<Stats>,
    pub(crate) timeouts: u32,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Report {
    pub(crate) flows: Vec<History>,
    /// Bytes that left the bottleneck, per bin.
    pub(crate) carried: Vec<u64>,
    /// Queueing delay at the end of each bin.
    pub(crate) delay: Vec<Duration>,
    pub(crate) packets: u64,
    pub(crate) dropped: u64,
}

impl Report {
    fn bins(time: Range<u64>) -> Range<usize> {
        time.start as usize * 10..time.end as usize * 10
    }

    /// Bytes on the bottleneck in these seconds, as a share of `rate`.
    pub(crate) fn utilisation(&self, seconds: Range<u64>, rate: u64) -> f64 {
        let capacity = rate * (seconds.end - seconds.start);
        let carried: u64 = self.carried[Self::bins(seconds)].iter().sum();
        carried as f64 / capacity as f64
    }

    /// Mean queueing delay in seconds.
    pub(crate) fn mean_delay(&self, seconds: Range<u64>) -> f64 {
        let bins = &self.delay[Self::bins(seconds)];
        bins.iter().map(Duration::as_secs_f64).sum::<f64>() / bins.len() as f64
    }

    /// Bytes per second that arrived of a flow.
    pub(crate) fn goodput(&self, flow: usize, seconds: Range<u64>) -> f64 {
        let length = seconds.end - seconds.start;
        let arrived: u64 = self.flows[flow].arrived[Self::bins(seconds)].iter().sum();
        arrived as f64 / length as f64
    }

    /// Jain's index of the flows' goodput.
    pub(crate) fn fairness(&self, seconds: Range<u64>) -> f64 {
        let rates: Vec<f64> = (0..self.flows.len())
            .map(|flow| self.goodput(flow, seconds.clone()))
            .collect();
        let sum: f64 = rates.iter().sum();
        let squares: f64 = rates.iter().map(|rate| rate * rate).sum();
        sum * sum / (rates.len() as f64 * squares)
    }
}

#[derive(Default)]
struct Nobody;

impl FrameOwner<()> for Nobody {
    fn on_acked(&mut self, _: u64, (): ()) {}
    fn on_lost(&mut self, _: u64, (): ()) {}
    fn on_probe(&mut self, (): ()) {}
}

struct Flow {
    sender: Sender,
    recovery: Recovery<()>,
    history: History,
    wake: Option<Time>,
    started: bool,
    /// Bytes sent of what the application may have written.
    sent: u64,
    received: VecDeque<RangeInclusive<u64>>,
    unacknowledged: u32,
    ack_at: Option<Time>,
}

#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Arrive {
        flow: usize,
        number: u64,
    },
    Ack {
        flow: usize,
        ranges: Vec<(u64, u64)>,
        delay: Duration,
    },
}

struct World<'a> {
    path: &'a Path,
    now: Time,
    flows: Vec<Flow>,
    events: BinaryHeap<Reverse<(Time, u64, Event)>>,
    order: u64,
    link_free: Time,
    queue: VecDeque<(Time, u64)>,
    queued: u64,
    tokens: (Time, u64),
    random: u64,
    report: Report,
}

/// Runs the senders for so many seconds.
pub(crate) fn run(path: &Path, senders: &[Sender], seconds: u64) -> Report {
    let flows = senders.iter().enumerate().map(|(index, sender)| {
        let config = Config {
            algorithm: sender.algorithm,
            seed: path.seed * 100 + index as u64,
            ..Config::new(Side::Server)
        };
        let mut recovery = Recovery::new(config);
        recovery.set_handshake_confirmed();
        Flow {
            sender: sender.clone(),
            recovery,
            history: History::default(),
            wake: Some(at(sender.start)),
            started: false,
            sent: 0,
            received: VecDeque::new(),
            unacknowledged: 0,
            ack_at: None,
        }
    });
    let mut world = World {
        path,
        now: Time::ZERO,
        flows: flows.collect(),
        events: BinaryHeap::new(),
        order: 0,
        link_free: Time::ZERO,
        queue: VecDeque::new(),
        queued: 0,
        tokens: (Time::ZERO, path.policer.map_or(0, |(_, bucket)| bucket)),
        random: path.seed,
        report: Report::default(),
    };
    world.report.flows = vec![History::default(); senders.len()];
    let bins = seconds * 10;
    for bin in 1..=bins {
        world.run_until(Time::ZERO + BIN * bin as u32);
        world.end_bin();
    }
    let mut report = world.report;
    for (history, flow) in report.flows.iter_mut().zip(world.flows) {
        history.stats = flow.history.stats;
        history.timeouts = flow.history.timeouts;
        history.arrived.resize(bins as usize, 0);
    }
    report.carried.resize(bins as usize, 0);
    report
}

impl World<'_> {
    fn run_until(&mut self, end: Time) {
        loop {
            let event = self.events.peek().map(|Reverse((time, ..))| *time);
            let mut next = event;
            for flow in &self.flows {
                let timer = flow.recovery.next_timeout().map(|(time, _)| time);
                let timer = timer.filter(|_| flow.started);
                for time in [flow.wake, timer, flow.ack_at].into_iter().flatten() {
                    next = Some(next.map_or(time, |next| next.min(time)));
                }
            }
            let Some(next) = next.filter(|next| *next < end) else {
                self.now = end;
                return;
            };
            self.now = self.now.max(next);
            if event.is_some_and(|time| time <= self.now) {
                let Some(Reverse((_, _, event))) = self.events.pop() else {
                    return;
                };
                self.handle(event);
                continue;
            }
            for index in 0..self.flows.len() {
                self.wake(index);
            }
        }
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Arrive { flow, number } => self.receive(flow, number),
            Event::Ack {
                flow,
                ranges,
                delay,
            } => {
                let recovery = &mut self.flows[flow].recovery;
                let largest = ranges[0].1;
                let ranges = ranges.into_iter().map(|(low, high)| low..=high);
                recovery
                    .on_ack_received(self.now, SPACE, largest, delay, None, ranges, &mut Nobody)
                    .unwrap();
                self.send(flow);
            }
        }
    }

    fn wake(&mut self, index: usize) {
        let now = self.now;
        let flow = &mut self.flows[index];
        if flow.ack_at.is_some_and(|time| time <= now) {
            self.acknowledge(index, ACK_DELAY);
        }
        let flow = &mut self.flows[index];
        let timer = flow.recovery.next_timeout().map(|(time, _)| time);
        let due = timer
            .filter(|_| flow.started)
            .is_some_and(|time| time <= now);
        if due && let Some(Expired::Pto { .. }) = flow.recovery.on_timeout(now, &mut Nobody) {
            flow.history.timeouts += 1;
        }
        if due || flow.wake.is_some_and(|time| time <= now) {
            self.send(index);
        }
    }

    /// Bytes the application still has, and when it will have a datagram if it has none.
    fn written(&self, flow: &Flow) -> (u64, Option<Time>) {
        let silent = flow.sender.silent.iter();
        if let Some(silence) = silent
            .clone()
            .find(|s| at(s.start) <= self.now && self.now < at(s.end))
        {
            return (0, Some(at(silence.end)));
        }
        let Some(rate) = flow.sender.writes else {
            return (u64::MAX, None);
        };
        let nanos = |bytes: u64| Duration::from_nanos(bytes * 1_000_000_000 / rate);
        let elapsed = self.now.saturating_duration_since(at(flow.sender.start));
        let total = (elapsed.as_nanos() * u128::from(rate) / 1_000_000_000) as u64;
        let left = total.saturating_sub(flow.sent);
        let next = at(flow.sender.start) + nanos(flow.sent + DATAGRAM) + Duration::from_nanos(1);
        (left, Some(next))
    }

    fn send(&mut self, index: usize) {
        let now = self.now;
        self.flows[index].started = true;
        self.flows[index].wake = None;
        loop {
            let (left, next_write) = self.written(&self.flows[index]);
            let flow = &mut self.flows[index];
            let probes = u64::from(flow.recovery.probes_owed(SPACE));
            let allowed = match flow.recovery.permit(now) {
                _ if probes > 0 => probes,
                Permit::Send { bytes } => (bytes / DATAGRAM).min(64),
                Permit::Wait(until) => {
                    flow.recovery.on_held_back();
                    flow.wake = Some(until);
                    return;
                }
                Permit::Blocked => return,
            };
            let packets = allowed.min((left / DATAGRAM).max(probes));
            if packets == 0 {
                flow.recovery.on_app_limited();
                flow.wake = next_write;
                return;
            }
            for _ in 0..packets {
                let flow = &mut self.flows[index];
                let kind = PacketKind::ACK_ELICITING;
                let number = flow.recovery.on_packet_sent(
                    now,
                    SPACE,
                    DATAGRAM as u16,
                    kind,
                    &mut Vec::new(),
                );
                flow.sent += DATAGRAM;
                self.transmit(index, number);
            }
        }
    }

    fn transmit(&mut self, flow: usize, number: u64) {
        let now = self.now;
        self.report.packets += 1;
        while self.queue.front().is_some_and(|(out, _)| *out <= now) {
            self.queued -= self.queue.pop_front().unwrap().1;
        }
        if !self.conforms() || self.queued + DATAGRAM > self.path.queue {
            self.report.dropped += 1;
            return;
        }
        let rate = self.path.rate(self.link_free.max(now));
        let nanos = DATAGRAM * 1_000_000_000 / rate;
        self.link_free = self.link_free.max(now) + Duration::from_nanos(nanos);
        self.queue.push_back((self.link_free, DATAGRAM));
        self.queued += DATAGRAM;
        let bin = bin(self.link_free);
        add(&mut self.report.carried, bin, DATAGRAM);
        if self.path.loss > 0 && self.draw() % 1_000_000 < self.path.loss {
            self.report.dropped += 1;
            return;
        }
        let mut arrival = self.link_free + self.path.rtt / 2;
        if let Some((every, delay)) = self.path.reorder
            && number % every == every - 1
        {
            arrival += delay;
        }
        self.push(arrival, Event::Arrive { flow, number });
    }

    fn conforms(&mut self) -> bool {
        let Some((rate, bucket)) = self.path.policer else {
            return true;
        };
        let (last, tokens) = self.tokens;
        let elapsed = self.now.saturating_duration_since(last).as_nanos();
        let earned = (elapsed * u128::from(rate) / 1_000_000_000) as u64;
        let tokens = (tokens + earned).min(bucket);
        let conforms = tokens >= DATAGRAM;
        if earned > 0 || conforms {
            self.tokens = (self.now, tokens - if conforms { DATAGRAM } else { 0 });
        }
        conforms
    }

    fn receive(&mut self, index: usize, number: u64) {
        let bin = bin(self.now);
        add(&mut self.report.flows[index].arrived, bin, DATAGRAM);
        let flow = &mut self.flows[index];
        let in_order = insert(&mut flow.received, number);
        flow.unacknowledged += 1;
        if flow.unacknowledged >= self.path.thinning || !in_order {
            self.acknowledge(index, Duration::ZERO);
        } else {
            flow.ack_at = Some(self.now + ACK_DELAY);
        }
    }

    fn acknowledge(&mut self, index: usize, delay: Duration) {
        let is_lost = self.path.ack_loss > 0 && self.draw() % 1_000_000 < self.path.ack_loss;
        let flow = &mut self.flows[index];
        flow.unacknowledged = 0;
        flow.ack_at = None;
        if is_lost {
            return;
        }
        let newest = flow.received.iter().rev().take(32);
        let ranges = newest.map(|range| (*range.start(), *range.end())).collect();
        let mut arrival = self.now + self.path.rtt - self.path.rtt / 2;
        if let Some(lump) = self.path.lumps {
            let lump = lump.as_nanos() as u64;
            arrival = Time::from_nanos(arrival.as_nanos().div_ceil(lump) * lump);
        }
        let event = Event::Ack {
            flow: index,
            ranges,
            delay,
        };
        self.push(arrival, event);
    }

    fn push(&mut self, time: Time, event: Event) {
        self.order += 1;
        self.events.push(Reverse((time, self.order, event)));
    }

    fn draw(&mut self) -> u64 {
        self.random = self
            .random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        self.random >> 33
    }

    fn end_bin(&mut self) {
        let delay = self.link_free.saturating_duration_since(self.now);
        self.report.delay.push(delay);
        for flow in &mut self.flows {
            flow.history.stats.push(flow.recovery.stats());
        }
    }
}

fn bin(time: Time) -> usize {
    (time.as_nanos() / BIN.as_nanos() as u64) as usize
}

fn add(bins: &mut Vec<u64>, bin: usize, bytes: u64) {
    if bins.len() <= bin {
        bins.resize(bin + 1, 0);
    }
    bins[bin] += bytes;
}

/// Whether the number extends the newest range.
fn insert(ranges: &mut VecDeque<RangeInclusive<u64>>, number: u64) -> bool {
    let place = ranges.partition_point(|range| *range.end() < number);
    let extends = place > 0 && *ranges[place - 1].end() + 1 == number;
    let in_order = place == ranges.len() && (extends || (ranges.is_empty() && number == 0));
    if extends {
        let start = *ranges[place - 1].start();
        ranges[place - 1] = start..=number;
    } else {
        ranges.insert(place, number..=number);
    }
    // Close a gap.
    let joined = if extends { place } else { place + 1 };
    if joined < ranges.len() && *ranges[joined].start() == number + 1 {
        let end = *ranges[joined].end();
        let start = *ranges[joined - 1].start();
        ranges[joined - 1] = start..=end;
        ranges.remove(joined);
    }
    while ranges.len() > MOST_RANGES {
        ranges.pop_front();
    }
    in_order
}
