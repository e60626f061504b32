//! The two ends of one flow: the engine with a simple application, or a source of raw datagrams.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use towline_quic::{
    ClientConfig, ConnectError, Connection, ConnectionHandle, Direction, Endpoint, EndpointConfig,
    Event, ReadError, RetryPolicy, ServerConfig, StreamId,
};
use towline_sim::{Datagram, Network, Train, Watch, World};
use towline_testkit::{SERVER_NAME, TlsPair};
use towline_wire::Time;

use super::error::RunError;
use super::outcome::{FlowOutcome, FlowSample};
use super::{Flow, START, Traffic};
use crate::host::Host;

/// Streams one flow may open.
const MAX_STREAMS: u32 = 100;

/// Bytes of a request's question.
const QUESTION: u64 = 100;

/// What the senders send; its content is of no interest.
static ZEROS: [u8; 65_536] = [0; 65_536];

/// One flow being played.
pub(super) struct Party {
    flow: Flow,
    addresses: [SocketAddr; 2],
    kind: Kind,
    /// When it next acts by itself.
    wake: Option<Time>,
    seen: FlowOutcome,
    delivered: u64,
}

enum Kind {
    Engine(Box<Engine>),
    Raw {
        next: Time,
        interval: Duration,
        sent: u64,
    },
}

struct Engine {
    /// The places of both ends in the world: the client, who sends, and the server.
    places: [usize; 2],
    config: ClientConfig,
    handle: Option<ConnectionHandle>,
    accepted: Option<ConnectionHandle>,
    /// The sender's streams and what is still to be written to each; `None` is without end.
    sending: Vec<(StreamId, Option<u64>)>,
    receiving: Vec<StreamId>,
    /// The answer to a request and what is still to be written of it.
    answering: Option<(StreamId, Option<u64>)>,
    switches: std::collections::VecDeque<(Time, towline_quic::Algorithm)>,
    phase: Phase,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    Waiting,
    Open,
    Closed,
}

impl Party {
    pub(super) fn new(
        seed: u64,
        index: usize,
        flow: Flow,
        addresses: [SocketAddr; 2],
        tls: &TlsPair,
        hosts: &mut Vec<Host>,
    ) -> Result<Self, RunError> {
        let wrong = |problem: &str| RunError::Flow {
            name: flow.name.clone(),
            problem: problem.to_owned(),
        };
        let start = START + flow.active.start;
        let kind = match flow.traffic {
            Traffic::Bulk | Traffic::Streams { .. } | Traffic::Request { .. } => {
                if flow.traffic == (Traffic::Request { bytes: 0 }) {
                    return Err(wrong("an answer of at least one byte"));
                }
                if let Traffic::Streams { count, bytes } = flow.traffic
                    && (count == 0 || count > MAX_STREAMS || bytes == 0)
                {
                    return Err(wrong("1 to 100 streams of at least one byte"));
                }
                let places = [hosts.len(), hosts.len() + 1];
                let ends = endpoints(seed, index, &flow, tls)
                    .into_iter()
                    .zip(addresses);
                hosts.extend(ends.map(|(endpoint, address)| Host::new(endpoint, address)));
                Kind::Engine(Box::new(Engine::new(places, &flow, tls)))
            }
            Traffic::Ping { interval, size } => {
                if interval.is_zero() || !(8..=65_507).contains(&size) {
                    return Err(wrong("a ping has 8 to 65507 bytes, and time between two"));
                }
                Kind::Raw {
                    next: start,
                    interval,
                    sent: 0,
                }
            }
            Traffic::Constant { rate, size } | Traffic::OnOff { rate, size, .. } => {
                if let Traffic::OnOff { on, .. } = flow.traffic
                    && on.is_zero()
                {
                    return Err(wrong("it is never on"));
                }
                if rate == 0 || !(8..=65_507).contains(&size) {
                    return Err(wrong("a rate of 0, or a size that is not 8 to 65507 bytes"));
                }
                let interval = Duration::from_secs_f64(f64::from(size) * 8.0 / rate as f64);
                Kind::Raw {
                    next: start,
                    interval: interval.max(Duration::from_nanos(1)),
                    sent: 0,
                }
            }
        };
        Ok(Self {
            addresses,
            kind,
            wake: Some(start),
            seen: FlowOutcome {
                name: flow.name.clone(),
                started: flow.active.start,
                connected: None,
                first_byte: None,
                initial_window: None,
                completed: Vec::new(),
                stream_bytes: Vec::new(),
                stream_bytes_at_first_end: Vec::new(),
                samples: Vec::new(),
                stats: None,
                receiver: None,
                failure: None,
                pings: Vec::new(),
                sends: Vec::new(),
            },
            flow,
            delivered: 0,
        })
    }

    /// When `act` is due.
    pub(super) fn wake(&self) -> Option<Time> {
        self.wake
    }

    /// A finite transfer that is complete; others last as long as the scenario.
    pub(super) fn is_over(&self) -> bool {
        match self.flow.traffic {
            Traffic::Streams { count, .. } => {
                let complete = self.seen.completed.iter().flatten().count();
                complete == count as usize || self.seen.failure.is_some()
            }
            Traffic::Request { .. } => {
                self.seen.completed.iter().flatten().count() == 1 || self.seen.failure.is_some()
            }
            _ => false,
        }
    }

    /// Takes a raw datagram that arrived at one of the two addresses.
    pub(super) fn deliver_raw(&mut self, now: Time, datagram: Datagram, network: &mut Network) {
        let at_receiver = datagram.destination == self.addresses[1];
        let is_ping = matches!(self.flow.traffic, Traffic::Ping { .. });
        if at_receiver {
            self.delivered += datagram.payload.len() as u64;
            if is_ping {
                let [sender, receiver] = self.addresses;
                let answer = Datagram::new(receiver, sender, datagram.payload);
                network.send(now, answer);
            }
        } else if let Some(number) = datagram.payload.first_chunk::<8>()
            && let Ok(number) = usize::try_from(u64::from_be_bytes(*number))
            && let Some((at, rtt)) = self.seen.pings.get_mut(number)
        {
            *rtt = Some(now.saturating_duration_since(START).saturating_sub(*at));
        }
    }

    /// Runs timers, and what the application does by itself.
    pub(super) fn act(&mut self, world: &mut World<Host, Network>) {
        let now = world.now;
        let end = START.checked_add(self.flow.active.end);
        let is_past = end.is_some_and(|end| now >= end);
        match &mut self.kind {
            Kind::Raw {
                next,
                interval,
                sent,
            } => {
                if is_past {
                    self.wake = None;
                    return;
                }
                let (Traffic::Ping { size, .. }
                | Traffic::Constant { size, .. }
                | Traffic::OnOff { size, .. }) = self.flow.traffic
                else {
                    return;
                };
                let mut payload = vec![0; size as usize];
                payload[..8].copy_from_slice(&sent.to_be_bytes());
                if matches!(self.flow.traffic, Traffic::Ping { .. }) {
                    let at = now.saturating_duration_since(START);
                    self.seen.pings.push((at, None));
                }
                let [sender, receiver] = self.addresses;
                world
                    .net
                    .send(now, Datagram::new(sender, receiver, payload));
                *sent += 1;
                *next += *interval;
                if let Traffic::OnOff { on, off, .. } = self.flow.traffic {
                    *next = within_on(START + self.flow.active.start, *next, on, off);
                }
                self.wake = Some(*next);
            }
            Kind::Engine(engine) => {
                for at in engine.places {
                    world.run_timers_of(at, &mut ());
                }
                let client = &mut world.hosts[engine.places[0]].endpoint;
                if engine.phase == Phase::Waiting {
                    match engine.connect(client, now, self.addresses[1]) {
                        Ok(window) => self.seen.initial_window = window,
                        Err(error) => self.seen.failure = Some(error.to_string()),
                    }
                } else if is_past && engine.phase == Phase::Open {
                    engine.close(client, now);
                }
                engine.switch(client, now);
                self.settle(world);
            }
        }
    }

    /// Events, then datagrams, until neither end has any; then the next wake-up.
    pub(super) fn settle(&mut self, world: &mut World<Host, Network>) {
        let Kind::Engine(engine) = &self.kind else {
            return;
        };
        let [client, server] = engine.places;
        world.settle(client..server + 1, self);
        let Kind::Engine(engine) = &self.kind else {
            return;
        };
        let end = START.checked_add(self.flow.active.end);
        let end = end.filter(|_| engine.phase != Phase::Closed);
        self.wake = [client, server]
            .map(|at| world.hosts[at].endpoint.next_timeout())
            .into_iter()
            .chain([end, engine.switches.front().map(|(at, _)| *at)])
            .flatten()
            .min();
    }

    /// Notes where the flow stands.
    pub(super) fn sample(&mut self, at: Duration, hosts: &[Host]) {
        let mut sample = FlowSample {
            at,
            delivered: self.delivered,
            cwnd: 0,
            bytes_in_flight: 0,
            smoothed_rtt: Duration::ZERO,
            latest_rtt: Duration::ZERO,
            pacing_rate: None,
            packets_lost: 0,
        };
        if let Kind::Engine(engine) = &self.kind {
            engine.snapshot(hosts, &mut self.seen);
            if let Some(stats) = &self.seen.stats {
                sample.cwnd = stats.cwnd;
                sample.bytes_in_flight = stats.bytes_in_flight;
                sample.smoothed_rtt = stats.smoothed_rtt;
                sample.latest_rtt = stats.latest_rtt;
                sample.pacing_rate = stats.pacing_rate.map(|rate| rate.saturating_mul(8));
                sample.packets_lost = stats.packets_lost;
            }
        }
        // The last one and that of the end may be due together.
        self.seen.samples.pop_if(|last| last.at == at);
        self.seen.samples.push(sample);
    }

    pub(super) fn outcome(self) -> FlowOutcome {
        self.seen
    }
}

impl Watch<Host, Network> for Party {
    fn send(&mut self, now: Time, _: &mut [Host], _: usize, train: &mut Train) -> bool {
        if self.flow.record_sends && train.datagram.source == self.addresses[0] {
            let at = now.saturating_duration_since(START);
            let len = train.datagram.payload.len() as u32;
            self.seen.sends.push((at, len));
        }
        true
    }

    fn on_event(
        &mut self,
        now: Time,
        hosts: &mut [Host],
        place: usize,
        (handle, event): (ConnectionHandle, Event),
    ) {
        let Kind::Engine(engine) = &mut self.kind else {
            return;
        };
        let at = now.saturating_duration_since(START);
        let (traffic, seen) = (self.flow.traffic, &mut self.seen);
        self.delivered += if place == engine.places[0] {
            engine.on_client_event(hosts, handle, event, traffic, at, seen)
        } else {
            let server = &mut hosts[place].endpoint;
            engine.on_server_event(server, handle, event, traffic, at, seen)
        };
    }
}

/// The endpoints of a flow's two ends.
fn endpoints(seed: u64, index: usize, flow: &Flow, tls: &TlsPair) -> [Endpoint; 2] {
    let mut server_config = ServerConfig::new(Arc::clone(&tls.server));
    // What its host limits and shares is the sender's affair.
    server_config.transport = Arc::new(
        flow.transport
            .clone()
            .background(None)
            .rate_limit(None)
            .bandwidth(None),
    );
    server_config.retry = RetryPolicy::Never;
    let secrets = |side: u8| {
        let mut bytes = [side; 32];
        bytes[..8].copy_from_slice(&seed.to_le_bytes());
        bytes[8..16].copy_from_slice(&(index as u64).to_le_bytes());
        EndpointConfig::from_seed(bytes)
    };
    [
        Endpoint::new(secrets(1), None),
        Endpoint::new(secrets(2), Some(Arc::new(server_config))),
    ]
}

impl Engine {
    fn new(places: [usize; 2], flow: &Flow, tls: &TlsPair) -> Self {
        let mut config = ClientConfig::new(Arc::clone(&tls.client));
        config.transport = Arc::new(flow.transport.clone());
        Self {
            places,
            config,
            handle: None,
            accepted: None,
            sending: Vec::new(),
            receiving: Vec::new(),
            answering: None,
            switches: flow
                .switches
                .iter()
                .map(|(at, algorithm)| (START + *at, *algorithm))
                .collect(),
            phase: Phase::Waiting,
        }
    }

    /// Returns the window it begins with.
    fn connect(
        &mut self,
        client: &mut Endpoint,
        now: Time,
        to: SocketAddr,
    ) -> Result<Option<u64>, ConnectError> {
        self.phase = Phase::Open;
        let handle = client.connect(now, &self.config, to, SERVER_NAME)?;
        self.handle = Some(handle);
        let connection = client.connection(handle);
        Ok(connection.map(|connection| connection.stats().cwnd))
    }

    fn close(&mut self, client: &mut Endpoint, now: Time) {
        self.phase = Phase::Closed;
        if let Some(connection) = self.handle.and_then(|h| client.connection_mut(h)) {
            connection.close(now, 0, b"");
        }
    }

    fn switch(&mut self, client: &mut Endpoint, now: Time) {
        while let Some((at, algorithm)) = self.switches.front().copied()
            && at <= now
        {
            self.switches.pop_front();
            if let Some(connection) = self.handle.and_then(|h| client.connection_mut(h)) {
                connection.set_congestion(now, algorithm);
            }
        }
    }

    /// Returns the bytes of an answer read.
    fn on_client_event(
        &mut self,
        hosts: &mut [Host],
        handle: ConnectionHandle,
        event: Event,
        traffic: Traffic,
        at: Duration,
        seen: &mut FlowOutcome,
    ) -> u64 {
        let client = &mut hosts[self.places[0]].endpoint;
        match event {
            Event::Connected => {
                seen.connected = Some(at);
                let (direction, count, bytes) = match traffic {
                    Traffic::Streams { count, bytes } => {
                        (Direction::Unidirectional, count, Some(bytes))
                    }
                    Traffic::Request { .. } => (Direction::Bidirectional, 1, Some(QUESTION)),
                    _ => (Direction::Unidirectional, 1, None),
                };
                if let Some(connection) = client.connection_mut(handle) {
                    for _ in 0..count {
                        if let Some(id) = connection.open(direction) {
                            self.sending.push((id, bytes));
                        }
                    }
                }
                for (id, left) in &mut self.sending {
                    write(client, handle, *id, left);
                }
                if let (Traffic::Request { .. }, Some((id, _))) = (traffic, self.sending.first()) {
                    self.receiving.push(*id);
                    seen.completed.push(None);
                    seen.stream_bytes.push(0);
                }
            }
            Event::Writable(id) => {
                if let Some((id, left)) = self.sending.iter_mut().find(|(other, _)| *other == id) {
                    write(client, handle, *id, left);
                }
            }
            Event::Readable(id) => {
                let place = self.receiving.iter().position(|other| *other == id);
                if let (Some(place), Some(connection)) = (place, client.connection_mut(handle)) {
                    let bytes = read(connection, id, place, at, seen);
                    if bytes > 0 {
                        seen.first_byte.get_or_insert(at);
                    }
                    return bytes;
                }
            }
            Event::Closed(error) => {
                self.snapshot(hosts, seen);
                if self.phase != Phase::Closed {
                    seen.failure = Some(error.to_string());
                }
                self.phase = Phase::Closed;
            }
            _ => {}
        }
        0
    }

    /// Returns the bytes of streams read.
    fn on_server_event(
        &mut self,
        server: &mut Endpoint,
        handle: ConnectionHandle,
        event: Event,
        traffic: Traffic,
        at: Duration,
        seen: &mut FlowOutcome,
    ) -> u64 {
        if let Traffic::Request { bytes } = traffic {
            self.on_question(server, handle, &event, bytes);
        }
        match event {
            Event::Accepted => {
                self.accepted = Some(handle);
                0
            }
            Event::Opened(direction @ Direction::Unidirectional) => {
                let mut bytes = 0;
                while let Some(id) = server
                    .connection_mut(handle)
                    .and_then(|connection| connection.accept(direction))
                {
                    self.receiving.push(id);
                    seen.completed.push(None);
                    seen.stream_bytes.push(0);
                    bytes += self.read(server, handle, id, at, seen);
                }
                bytes
            }
            Event::Readable(id) => self.read(server, handle, id, at, seen),
            _ => 0,
        }
    }

    /// The server's part in a request: it reads the question to its end, then answers.
    fn on_question(
        &mut self,
        server: &mut Endpoint,
        handle: ConnectionHandle,
        event: &Event,
        bytes: u64,
    ) {
        let Some(connection) = server.connection_mut(handle) else {
            return;
        };
        let asked = match event {
            Event::Opened(direction @ Direction::Bidirectional) => connection.accept(*direction),
            Event::Readable(id) if id.direction() == Direction::Bidirectional => Some(*id),
            _ => None,
        };
        if let Some(id) = asked {
            while let Ok(Some(_)) = connection.read(id, usize::MAX) {}
            if self.answering.is_none() {
                self.answering = Some((id, Some(bytes)));
            }
        }
        if let Some((id, left @ Some(1..))) = &mut self.answering {
            write(server, handle, *id, left);
        }
    }

    fn read(
        &mut self,
        server: &mut Endpoint,
        handle: ConnectionHandle,
        id: StreamId,
        at: Duration,
        seen: &mut FlowOutcome,
    ) -> u64 {
        let place = self.receiving.iter().position(|other| *other == id);
        match (place, server.connection_mut(handle)) {
            (Some(place), Some(connection)) => read(connection, id, place, at, seen),
            _ => 0,
        }
    }

    fn snapshot(&self, hosts: &[Host], seen: &mut FlowOutcome) {
        let [client, server] = self.places.map(|at| &hosts[at].endpoint);
        if let Some(connection) = self.handle.and_then(|h| client.connection(h)) {
            seen.stats = Some(connection.stats());
        }
        if let Some(connection) = self.accepted.and_then(|h| server.connection(h)) {
            seen.receiver = Some(connection.stats());
        }
    }
}

/// Writes as much of what is left as there is room for, and ends the stream after the last of it.
fn write(endpoint: &mut Endpoint, handle: ConnectionHandle, id: StreamId, left: &mut Option<u64>) {
    let Some(connection) = endpoint.connection_mut(handle) else {
        return;
    };
    loop {
        let len = left.map_or(ZEROS.len(), |left| {
            usize::try_from(left).unwrap_or(usize::MAX).min(ZEROS.len())
        });
        let mut chunk = Bytes::from_static(&ZEROS[..len]);
        let Ok(taken) = connection.write(id, &mut chunk) else {
            return;
        };
        if let Some(left) = left {
            *left -= taken as u64;
            if *left == 0 {
                // A stream that was just written to can be finished.
                let _ = connection.finish(id);
                return;
            }
        }
    }
}

/// Reads what is there of stream number `place`; how many bytes that were.
fn read(
    connection: &mut Connection,
    id: StreamId,
    place: usize,
    at: Duration,
    seen: &mut FlowOutcome,
) -> u64 {
    let mut bytes = 0;
    loop {
        match connection.read(id, usize::MAX) {
            Ok(Some(data)) => bytes += data.len() as u64,
            Ok(None) => {
                seen.stream_bytes[place] += bytes;
                seen.completed[place] = Some(at);
                if seen.stream_bytes_at_first_end.is_empty() {
                    seen.stream_bytes_at_first_end = seen.stream_bytes.clone();
                }
                return bytes;
            }
            Err(ReadError::Blocked | _) => {
                seen.stream_bytes[place] += bytes;
                return bytes;
            }
        }
    }
}

/// The first time from `time` on at which a source is on that began, on, at `start`.
fn within_on(start: Time, time: Time, on: Duration, off: Duration) -> Time {
    let period = on.as_nanos() + off.as_nanos();
    let since = time.saturating_duration_since(start).as_nanos();
    let into = since % period.max(1);
    if into < on.as_nanos() {
        return time;
    }
    let wait = u64::try_from(period - into).unwrap_or(u64::MAX);
    time + Duration::from_nanos(wait)
}
