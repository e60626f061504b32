//! Several senders over one drop-tail bottleneck, on the simulator's link and a virtual clock.
//!
//! Each flow is a whole `Recovery`: loss detection, controller and pacer. The way back is a fixed
//! delay, unless a `Path` says otherwise; the receiver acknowledges every second packet, and late
//! ones after 25 ms.
#![allow(dead_code, reason = "each test binary uses its part of the bench")]

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::ops::{Range, RangeInclusive};
use std::time::Duration;

use towline_recovery::{FrameOwner, PacketKind, Permit};

use crate::one_path::OnePath as Recovery;
use towline_sim::{Datagram, Link, LinkConfig, RateSchedule};
use towline_wire::{PacketNumberSpace, Time};

const SPACE: PacketNumberSpace = PacketNumberSpace::Application;
const MAX_ACK_DELAY: Duration = Duration::from_millis(25);
const MOST_RANGES: usize = 64;
pub(crate) const SIZE: u64 = 1200;
/// How often queue and progress are looked at.
pub(crate) const TICK: Duration = Duration::from_millis(10);

pub(crate) fn at(seconds: f64) -> Time {
    Time::ZERO + Duration::from_secs_f64(seconds)
}

/// A bottleneck and the way back from it.
#[derive(Clone)]
pub(crate) struct Path {
    /// Bits a second from each time on.
    pub(crate) rates: Vec<(Duration, u64)>,
    pub(crate) rtt: Duration,
    /// The rest of what the bottleneck does.
    pub(crate) link: LinkConfig,
    /// Every flow is asked to send at every event of any; else only at its own, as connections are:
    /// the first one asked would win every free place in the queue.
    pub(crate) all_at_once: bool,
    /// Packets per ACK.
    pub(crate) thinning: u32,
    /// ACKs are held and released together at multiples of this time.
    pub(crate) lumps: Option<Duration>,
    /// Random losses per million ACKs.
    pub(crate) ack_loss: u64,
    pub(crate) seed: u64,
}

impl Path {
    pub(crate) fn new(rate: u64, rtt: Duration, buffer: u64) -> Self {
        Self {
            rates: vec![(Duration::ZERO, rate)],
            rtt,
            link: LinkConfig {
                queue: Some(buffer),
                ..LinkConfig::default()
            },
            all_at_once: false,
            thinning: 2,
            lumps: None,
            ack_loss: 0,
            seed: 1,
        }
    }

    fn rate(&self, now: Time) -> u64 {
        let started = |(from, _): &&(Duration, u64)| Time::ZERO + *from <= now;
        self.rates.iter().rev().find(started).unwrap().1
    }

    fn link(&self) -> Link {
        let config = LinkConfig {
            schedule: Some(RateSchedule::new(&self.rates, None).unwrap()),
            delay: self.rtt / 2,
            ..self.link.clone()
        };
        Link::new(config, self.seed, "bottleneck").unwrap()
    }

    /// When an ACK of now arrives, if it does.
    fn ack_arrival(&self, now: Time, random: &mut u64) -> Option<Time> {
        if self.ack_loss > 0 {
            *random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            if (*random >> 33) % 1_000_000 < self.ack_loss {
                return None;
            }
        }
        let arrival = now + self.rtt / 2;
        let Some(lump) = self.lumps else {
            return Some(arrival);
        };
        let lump = lump.as_nanos() as u64;
        Some(Time::from_nanos(arrival.as_nanos().div_ceil(lump) * lump))
    }
}

/// What a flow has to send.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Load {
    /// Always more.
    Bulk,
    /// So many bytes a second.
    Steady(u64),
    /// One small packet every so often.
    Ping(Duration),
}

pub(crate) struct Flow {
    pub(crate) recovery: Recovery<u64>,
    pub(crate) load: Load,
    pub(crate) start: Time,
    pub(crate) stop: Time,
    /// It writes nothing within this time.
    pub(crate) silence: Range<Time>,
    /// Bytes delivered by the end of each tick.
    pub(crate) delivered: Vec<u64>,
    /// Round trips of pings and when they ended.
    pub(crate) round_trips: Vec<(Time, Duration)>,
    pub(crate) timeouts: u32,
    /// When each datagram left and its size, if kept.
    pub(crate) departures: Option<Vec<(Time, u64)>>,
    owner: Owner,
    received: Vec<RangeInclusive<u64>>,
    largest_received: Option<Time>,
    unacknowledged: u32,
    ack_due: Option<Time>,
    acks: VecDeque<(Time, Vec<RangeInclusive<u64>>, Duration)>,
    offered: u64,
    sent: u64,
    pings: u64,
    wake: Option<Time>,
}

#[derive(Default)]
struct Owner {
    again: u64,
    delivered: u64,
}

impl FrameOwner<u64> for Owner {
    fn on_acked(&mut self, _: u64, bytes: u64) {
        self.delivered += bytes;
    }
    fn on_lost(&mut self, _: u64, bytes: u64) {
        self.again += bytes;
    }
    fn on_probe(&mut self, bytes: u64) {
        self.again += bytes;
    }
}

impl Flow {
    pub(crate) fn new(mut recovery: Recovery<u64>, load: Load, start: Time) -> Self {
        recovery.set_handshake_confirmed();
        recovery.set_peer_max_ack_delay(MAX_ACK_DELAY);
        Self {
            recovery,
            load,
            start,
            stop: Time::MAX,
            silence: Time::ZERO..Time::ZERO,
            delivered: Vec::new(),
            round_trips: Vec::new(),
            timeouts: 0,
            departures: None,
            owner: Owner::default(),
            received: Vec::new(),
            largest_received: None,
            unacknowledged: 0,
            ack_due: None,
            acks: VecDeque::new(),
            offered: 0,
            sent: 0,
            pings: 0,
            wake: Some(start),
        }
    }

    pub(crate) fn stopping(mut self, stop: Time) -> Self {
        self.stop = stop;
        self
    }

    /// Bytes a second between two times, of those acknowledged.
    pub(crate) fn rate(&self, from: f64, to: f64) -> f64 {
        let index = |seconds: f64| (seconds / TICK.as_secs_f64()).round() as usize;
        let value = |i: usize| self.delivered.get(i).or(self.delivered.last()).copied();
        let (a, b) = (value(index(from)), value(index(to)));
        (b.unwrap_or(0) - a.unwrap_or(0)) as f64 / (to - from)
    }

    fn refill(&mut self, now: Time) {
        if now < self.start || now >= self.stop {
            return;
        }
        if self.silence.contains(&now) {
            self.offered = self.sent;
            return;
        }
        let elapsed = now.saturating_duration_since(self.start);
        match self.load {
            Load::Bulk => self.offered = self.sent + (1 << 20),
            Load::Steady(rate) => {
                let written = u128::from(rate) * elapsed.as_nanos() / 1_000_000_000;
                self.offered = written as u64 / SIZE * SIZE;
            }
            Load::Ping(every) => {
                let due = (elapsed.as_nanos() / every.as_nanos()) as u64 + 1;
                self.offered += due.saturating_sub(self.pings);
                self.pings = due;
            }
        }
    }

    /// When the application next has something.
    fn next_offer(&self, now: Time) -> Option<Time> {
        if now < self.start {
            return Some(self.start);
        }
        if now >= self.stop {
            return None;
        }
        if self.silence.contains(&now) {
            return Some(self.silence.end);
        }
        match self.load {
            Load::Bulk => None,
            Load::Steady(rate) => {
                let nanos = (self.offered + SIZE) * 1_000_000_000 / rate;
                Some(self.start + Duration::from_nanos(nanos + 1))
            }
            Load::Ping(every) => {
                Some(self.start + every * u32::try_from(self.pings).unwrap_or(u32::MAX))
            }
        }
    }

    /// Sends what it may; returns packets as (number, size).
    fn send(&mut self, now: Time, out: &mut Vec<(u64, u64)>) {
        self.refill(now);
        self.wake = None;
        let mut frames = Vec::with_capacity(1);
        loop {
            let unsent = self.offered.saturating_sub(self.sent);
            let probes = self.recovery.probes_owed(SPACE);
            if unsent + self.owner.again == 0 && probes == 0 {
                self.recovery.on_app_limited();
                self.wake = self.next_offer(now);
                return;
            }
            if now >= self.stop && self.owner.again == 0 && probes == 0 {
                return;
            }
            let allowed = match self.recovery.permit(now) {
                _ if probes > 0 => 1,
                Permit::Send { bytes } => (bytes / SIZE).clamp(1, 16),
                Permit::Wait(until) => {
                    assert!(until > now, "a wait that is over");
                    self.recovery.on_held_back();
                    self.wake = Some(until);
                    return;
                }
                Permit::Blocked => return,
            };
            for _ in 0..allowed {
                let unsent = match now < self.stop {
                    true => self.offered.saturating_sub(self.sent),
                    false => 0,
                };
                let bytes = (unsent + self.owner.again).min(SIZE);
                let from_again = self.owner.again.min(bytes);
                self.owner.again -= from_again;
                self.sent += bytes - from_again;
                frames.push(bytes);
                let size = bytes.max(40);
                let number = self.recovery.on_packet_sent(
                    now,
                    SPACE,
                    u16::try_from(size).unwrap(),
                    PacketKind::ACK_ELICITING,
                    &mut frames,
                );
                out.push((number, size));
                if let Some(departures) = &mut self.departures {
                    departures.push((now, size));
                }
                if self.offered.saturating_sub(self.sent) + self.owner.again == 0 {
                    break;
                }
            }
        }
    }

    fn arrived(&mut self, now: Time, number: u64, path: &Path, random: &mut u64) {
        let in_order = insert(&mut self.received, number);
        if self.received.last().is_some_and(|r| *r.end() == number) {
            self.largest_received = Some(now);
        }
        self.unacknowledged += 1;
        if self.unacknowledged >= path.thinning || !in_order {
            self.acknowledge(now, path, random);
        } else {
            self.ack_due = Some(now + MAX_ACK_DELAY);
        }
    }

    fn acknowledge(&mut self, now: Time, path: &Path, random: &mut u64) {
        self.unacknowledged = 0;
        self.ack_due = None;
        let Some(arrival) = path.ack_arrival(now, random) else {
            return;
        };
        let delay = now.saturating_duration_since(self.largest_received.unwrap_or(now));
        let newest: Vec<_> = self.received.iter().rev().cloned().collect();
        self.acks.push_back((arrival, newest, delay));
    }

    fn handle_acks(&mut self, now: Time) {
        while self.acks.front().is_some_and(|(at, ..)| *at <= now) {
            let (_, ranges, delay) = self.acks.pop_front().unwrap();
            let largest = *ranges[0].end();
            let summary = self
                .recovery
                .on_ack_received(
                    now,
                    SPACE,
                    largest,
                    delay,
                    None,
                    ranges.into_iter(),
                    &mut self.owner,
                )
                .unwrap();
            if let (Load::Ping(_), Some(sent)) = (self.load, summary.largest_sent_time) {
                let round_trip = now.saturating_duration_since(sent).saturating_sub(delay);
                self.round_trips.push((now, round_trip));
            }
        }
    }

    fn next(&self, now: Time) -> Option<Time> {
        let timer = self.recovery.next_timeout().map(|(at, _)| at.max(now));
        let ack = self.acks.front().map(|(at, ..)| *at);
        [timer, ack, self.ack_due, self.wake]
            .into_iter()
            .flatten()
            .min()
    }
}

/// Whether the number extends the newest range.
fn insert(ranges: &mut Vec<RangeInclusive<u64>>, number: u64) -> bool {
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
    if ranges.len() > MOST_RANGES {
        ranges.remove(0);
    }
    in_order
}

/// What the bottleneck saw.
pub(crate) struct Outcome {
    pub(crate) flows: Vec<Flow>,
    /// Queue delay at each tick, in milliseconds.
    pub(crate) queue: Vec<f64>,
    /// Bytes that left the bottleneck by each tick.
    pub(crate) carried: Vec<u64>,
    /// Bits a second, at first.
    pub(crate) rate: u64,
    pub(crate) packets: u64,
    pub(crate) dropped: u64,
}

impl Outcome {
    /// Share of the bottleneck used by all flows between two times.
    pub(crate) fn utilisation(&self, from: f64, to: f64) -> f64 {
        let sum: f64 = self.flows.iter().map(|flow| flow.rate(from, to)).sum();
        sum * 8.0 / self.rate as f64
    }

    /// Bits a second that left the bottleneck between two times.
    pub(crate) fn carried(&self, from: f64, to: f64) -> f64 {
        let index = |seconds: f64| (seconds / TICK.as_secs_f64()).round() as usize;
        let last = self.carried.len() - 1;
        let bytes = self.carried[index(to).min(last)] - self.carried[index(from)];
        bytes as f64 * 8.0 / (to - from)
    }

    /// Mean and 95th percentile of the queue delay in milliseconds.
    pub(crate) fn queue_delay(&self, from: f64, to: f64) -> (f64, f64) {
        let tick = TICK.as_secs_f64();
        let mut part: Vec<f64> = self.queue[(from / tick) as usize..(to / tick) as usize].to_vec();
        part.sort_by(f64::total_cmp);
        let mean = part.iter().sum::<f64>() / part.len() as f64;
        (mean, part[part.len() * 95 / 100])
    }

    pub(crate) fn jain(&self, from: f64, to: f64) -> f64 {
        let rates: Vec<f64> = self.flows.iter().map(|flow| flow.rate(from, to)).collect();
        let sum: f64 = rates.iter().sum();
        let squares: f64 = rates.iter().map(|rate| rate * rate).sum();
        sum * sum / (rates.len() as f64 * squares)
    }
}

/// Runs the flows for `seconds` over `rate` bits a second, a round trip of `rtt` and a buffer of
/// `buffer` bytes.
pub(crate) fn run(
    flows: Vec<Flow>,
    rate: u64,
    rtt: Duration,
    buffer: u64,
    seconds: f64,
) -> Outcome {
    run_with(flows, rate, rtt, buffer, seconds, |_, _| {})
}

/// As `run`; `each_tick` may change the flows.
pub(crate) fn run_with(
    flows: Vec<Flow>,
    rate: u64,
    rtt: Duration,
    buffer: u64,
    seconds: f64,
    each_tick: impl FnMut(Time, &mut [Flow]),
) -> Outcome {
    run_on(&Path::new(rate, rtt, buffer), flows, seconds, each_tick)
}

/// As `run_with`, over any path.
pub(crate) fn run_on(
    path: &Path,
    mut flows: Vec<Flow>,
    seconds: f64,
    mut each_tick: impl FnMut(Time, &mut [Flow]),
) -> Outcome {
    let mut link = path.link();
    let mut random = path.seed;
    let destination: SocketAddr = "10.0.0.1:1".parse().unwrap();
    let source =
        |flow: usize| SocketAddr::from(([10, 0, 1, 1], u16::try_from(1000 + flow).unwrap()));
    let end = at(seconds);
    let (mut now, mut tick) = (Time::ZERO, Time::ZERO);
    let (mut queue, mut carried) = (Vec::new(), Vec::new());
    let mut out = Vec::new();
    while now < end {
        for (index, flow) in flows.iter_mut().enumerate() {
            if !path.all_at_once && flow.next(now).is_none_or(|at| at > now) {
                continue;
            }
            flow.handle_acks(now);
            if flow.ack_due.is_some_and(|at| at <= now) {
                flow.acknowledge(now, path, &mut random);
            }
            if flow
                .recovery
                .next_timeout()
                .is_some_and(|(at, _)| at <= now)
            {
                let expired = flow.recovery.on_timeout(now, &mut flow.owner);
                flow.timeouts += u32::from(matches!(
                    expired,
                    Some(towline_recovery::Expired::Pto { .. })
                ));
            }
            flow.send(now, &mut out);
            for (number, size) in out.drain(..) {
                let mut payload = vec![0; size as usize];
                payload[..8].copy_from_slice(&number.to_be_bytes());
                link.push(now, Datagram::new(source(index), destination, payload));
            }
        }
        while let Some(datagram) = link.poll(now) {
            let number = u64::from_be_bytes(datagram.payload[..8].try_into().unwrap());
            let flow = usize::from(datagram.source.port() - 1000);
            flows[flow].arrived(now, number, path, &mut random);
        }
        if now >= tick {
            queue.push(link.queue_bytes(now) as f64 * 8e3 / path.rate(now) as f64);
            carried.push(link.stats().bytes_out);
            for flow in &mut flows {
                flow.delivered.push(flow.owner.delivered);
            }
            each_tick(now, &mut flows);
            tick += TICK;
        }
        let next = flows.iter().filter_map(|flow| flow.next(now));
        let next = next.chain(link.next_timeout()).min().unwrap_or(end);
        now = next.max(now + Duration::from_nanos(1)).min(tick);
    }
    Outcome {
        flows,
        queue,
        carried,
        rate: path.rates[0].1,
        packets: link.stats().datagrams_in,
        dropped: link.stats().drops.total(),
    }
}
