//! A connected pair behind the null AEAD, and packets whose payload is the input.
//!
//! The input is the payload of a packet to the server. A byte 0xff ends it and is followed by an
//! opcode: change sides, let time pass, let the real peers talk, or call the API of one end. Every
//! engine must survive, stay within its means, and end up alive or ended.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use towline_quic::{
    ClientConfig, Connection, ConnectionHandle, Direction, Endpoint, EndpointConfig, Event,
    ServerConfig, StreamId, TransportConfig,
};
use towline_sim::{Datagram, Direct, Host as _, Outgoing, START, Train, Watch, World};
use towline_testkit::{NULL_TAG, SERVER_NAME, TlsOptions, reseed, tls_pair};
use towline_wire::{ConnectionId, Header, Time, Writer, parse_header, write_short_header};

use crate::host::Host;

/// Length of our connection IDs.
const CID_LEN: usize = 8;

/// Ends a payload; no frame type starts with it.
pub(super) const MARK: u8 = 0xff;

/// Opcodes behind a mark; others only separate packets.
pub(super) const OPCODES: u8 = 20;

/// First packet number injected: beyond what the real peer reaches, so that none repeats.
const FIRST_NUMBER: u64 = 1 << 16;

/// Longest payload injected as one packet.
const MAX_PAYLOAD: usize = 60_000;

/// Datagrams one opcode may let an end send.
const MAX_DATAGRAMS: usize = 20_000;

/// Timers in which a connection that nobody feeds must have ended.
const MAX_TIMERS: usize = 5_000;

thread_local! {
    static TLS: (Arc<rustls::ClientConfig>, Arc<rustls::ServerConfig>) = make_tls();
}

/// Without tickets: one input must not depend on those before it.
fn make_tls() -> (Arc<rustls::ClientConfig>, Arc<rustls::ServerConfig>) {
    let pair = tls_pair(
        1,
        &TlsOptions {
            null_aead: true,
            ..TlsOptions::default()
        },
    );
    let mut client = (*pair.client).clone();
    client.resumption = rustls::client::Resumption::disabled();
    let mut server = (*pair.server).clone();
    server.session_storage = Arc::new(rustls::server::NoServerSessionStorage {});
    (Arc::new(client), Arc::new(server))
}

/// Runs `input` against a connected pair.
///
/// # Panics
/// When an engine sends without end or never lets a connection go.
pub fn connection(input: &[u8]) {
    run(input);
}

/// As [`connection`]; returns what it saw, as a hash.
pub(super) fn run(input: &[u8]) -> u64 {
    let mut pair = Pair::connected();
    let mut rest = input;
    while !rest.is_empty() {
        let end = rest.iter().position(|b| *b == MARK).unwrap_or(rest.len());
        let (payload, more) = rest.split_at(end.min(MAX_PAYLOAD));
        if !payload.is_empty() {
            pair.inject(payload);
        }
        rest = match more {
            [MARK, opcode, more @ ..] => {
                pair.obey(*opcode);
                more
            }
            [MARK] => &[],
            more => more,
        };
    }
    let signature = pair.signature();
    pair.run_out();
    signature
}

struct Side {
    handle: ConnectionHandle,
    /// What the peer calls us.
    cid: ConnectionId,
    streams: BTreeSet<StreamId>,
    events: u64,
    sent: usize,
}

/// The applications of both ends, and what was seen of them.
struct Sides {
    sides: [Side; 2],
    /// Datagrams that an end has built in its turn.
    built: usize,
}

struct Pair {
    world: World<Host, Direct>,
    seen: Sides,
    /// Who gets the next packet.
    target: usize,
    number: u64,
    key_phase: bool,
}

fn address(last: u8) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, last], 4433))
}

fn settings() -> Arc<TransportConfig> {
    // Small windows, so that limits are within an input's reach.
    Arc::new(
        TransportConfig::default()
            .stream_receive_window(20_000)
            .max_stream_receive_window(40_000)
            .receive_window(50_000)
            .max_receive_window(100_000)
            .max_concurrent_bidi_streams(20)
            .max_concurrent_uni_streams(20)
            .datagram_receive_buffer(20_000)
            .stream_send_buffer(20_000)
            .send_buffer(50_000),
    )
}

impl Pair {
    fn connected() -> Self {
        reseed(7);
        let (client_tls, server_tls) = TLS.with(Clone::clone);
        let mut server_config = ServerConfig::new(server_tls);
        server_config.transport = settings();
        let mut client_config = ClientConfig::new(client_tls);
        client_config.transport = settings();
        let now = START;
        let mut client = Endpoint::new(EndpointConfig::from_seed([1; 32]), None);
        let server = Endpoint::new(
            EndpointConfig::from_seed([2; 32]),
            Some(Arc::new(server_config)),
        );
        let handle = client
            .connect(now, &client_config, address(2), SERVER_NAME)
            .unwrap_or_else(|e| panic!("cannot connect: {e}"));
        let sides = [0, 1].map(|_| Side {
            handle,
            cid: ConnectionId::EMPTY,
            streams: BTreeSet::new(),
            events: 0,
            sent: 0,
        });
        let hosts = [Host::new(client, address(1)), Host::new(server, address(2))];
        let wire = Direct::datagrams(Duration::ZERO).without_ecn();
        let mut pair = Self {
            world: World::new(hosts, wire),
            seen: Sides { sides, built: 0 },
            target: 1,
            number: FIRST_NUMBER,
            key_phase: false,
        };
        for _ in 0..8 {
            pair.exchange();
        }
        for (side, host) in pair.seen.sides.iter().zip(&pair.world.hosts) {
            let connection = host.endpoint.connection(side.handle);
            assert!(
                connection.is_some_and(Connection::is_confirmed) && !side.cid.is_empty(),
                "the handshake did not finish: {connection:?}, {:?}",
                side.cid
            );
        }
        pair
    }

    /// Puts on the wire what one end has to send.
    fn transmit(&mut self, from: usize) {
        self.seen.built = 0;
        self.world.transmit(from, &mut self.seen);
    }

    /// What one end has to send is lost.
    fn lose(&mut self, from: usize) {
        self.transmit(from);
        self.world.net.clear();
    }

    /// Takes an end's events, as its application would.
    fn listen(&mut self, at: usize) {
        self.world.listen(at, &mut self.seen);
    }

    /// Both ends send and receive, one millisecond later.
    fn exchange(&mut self) {
        self.world.now += Duration::from_millis(1);
        for from in [0, 1] {
            self.transmit(from);
            while let Some(to) = self.world.deliver_next(&mut self.seen) {
                self.listen(to);
            }
            self.listen(from);
        }
        self.run_timers();
    }

    fn run_timers(&mut self) {
        for at in [0, 1] {
            self.world.run_timers_of(at, &mut self.seen);
            self.listen(at);
        }
    }

    /// An authentic 1-RTT packet with this payload, for the target. Its answers are dropped.
    fn inject(&mut self, payload: &[u8]) {
        let mut packet = vec![0; 64 + payload.len()];
        let mut writer = Writer::new(&mut packet);
        let cid = self.seen.sides[self.target].cid;
        write_short_header(&mut writer, &cid, self.number, 4, false, self.key_phase);
        writer.bytes(payload);
        writer.bytes(&NULL_TAG);
        // Too short to be sampled for header protection otherwise.
        let len = writer.len().max(1 + CID_LEN + 4 + 16 + 4);
        let packet = match writer.len() {
            n if n < len => {
                let mut padded = packet[..n - NULL_TAG.len()].to_vec();
                padded.resize(len - NULL_TAG.len(), 0);
                padded.extend_from_slice(&NULL_TAG);
                padded
            }
            n => packet[..n].to_vec(),
        };
        self.number += 1;
        let [target, peer] = [self.target, 1 - self.target].map(|at| self.world.hosts[at].address);
        let datagram = Datagram::new(peer, target, packet);
        self.world
            .deliver(self.target, datagram.into(), &mut self.seen);
        self.listen(self.target);
        self.lose(self.target);
        self.listen(self.target);
    }

    fn obey(&mut self, opcode: u8) {
        let now = self.world.now;
        match opcode % OPCODES {
            1 => self.target = 0,
            2 => self.target = 1,
            3 => self.exchange(),
            4 => (0..5).for_each(|_| self.exchange()),
            5 => self.wait(Duration::from_millis(25)),
            6 => self.wait(Duration::from_secs(1)),
            7 => self.key_phase = !self.key_phase,
            8 => self.number += 1000,
            9 => self.with(|c, _| write_some(c, Direction::Unidirectional, 3_000)),
            10 => self.with(|c, _| write_some(c, Direction::Bidirectional, 30_000)),
            11 => self.with(read_all),
            12 => self.with(|c, streams| {
                for id in streams.iter() {
                    let _ = c.reset_at(*id, 1, id.index() % 3 * 700);
                }
            }),
            13 => self.with(|c, streams| streams.iter().for_each(|id| c.stop(*id, 2))),
            14 => self.with(|c, _| {
                let _ = c.send_datagram(Bytes::from_static(&[7; 100]));
                while c.recv_datagram().is_some() {}
            }),
            15 => self.with(|c, _| {
                c.initiate_key_update();
            }),
            16 => self.with(|c, _| c.ping()),
            17 => self.with(move |c, _| c.close(now, 3, b"enough")),
            18 => self.with(|c, streams| {
                for id in streams.iter() {
                    let _ = c.write_slice(*id, &[9; 500]);
                    let _ = c.finish(*id);
                }
            }),
            _ => {}
        }
    }

    /// Calls the API of the target.
    fn with(&mut self, act: impl FnOnce(&mut Connection, &mut BTreeSet<StreamId>)) {
        let side = &mut self.seen.sides[self.target];
        let endpoint = &mut self.world.hosts[self.target].endpoint;
        if let Some(connection) = endpoint.connection_mut(side.handle) {
            act(connection, &mut side.streams);
        }
        self.listen(self.target);
    }

    /// Time passes; what is sent meanwhile is lost.
    fn wait(&mut self, time: Duration) {
        self.world.now += time;
        self.run_timers();
        self.lose(0);
        self.lose(1);
    }

    /// What happened, coarsely.
    fn signature(&self) -> u64 {
        let mut hash = 0u64;
        let mut mix = |word: u64| {
            hash = (hash.rotate_left(11) ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        };
        for (side, host) in self.seen.sides.iter().zip(&self.world.hosts) {
            mix(side.events);
            mix(side.streams.len().min(6) as u64);
            mix(side.sent.max(1).ilog2().into());
            if let Some(connection) = host.endpoint.connection(side.handle) {
                let stats = connection.stats();
                mix(stats.packets_received.max(1).ilog2().into());
                mix(stats.bytes_in_flight.max(1).ilog2().into());
                mix(stats.key_updates.min(3));
                mix(stats.packets_lost.min(2) << 1 | stats.app_datagrams_dropped.min(1));
                if let Some(reason) = connection.close_reason() {
                    reason.to_string().bytes().for_each(|b| mix(b.into()));
                }
            }
        }
        hash
    }

    /// Left alone, every connection ends: by its close, or by the idle timeout.
    fn run_out(mut self) {
        for at in [0, 1] {
            let mut timers = 0;
            while let Some(due) = self.world.hosts[at].next_timeout() {
                self.world.now = self.world.now.max(due);
                self.world.run_timers_of(at, &mut self.seen);
                self.lose(at);
                self.listen(at);
                timers += 1;
                assert!(timers < MAX_TIMERS, "a connection never ends");
            }
            let left = self.world.hosts[at].endpoint.stats().connections;
            assert_eq!(left, 0, "a connection waits for nothing");
        }
    }
}

impl Watch<Host, Direct> for Sides {
    fn deliver(&mut self, now: Time, hosts: &mut [Host], at: usize, train: &mut Train) {
        // The first destination of a client is not the server's own; later ones are.
        if let Ok(Header::Short { dcid, .. } | Header::Long { dcid, .. }) =
            parse_header(&train.datagram.payload, CID_LEN)
        {
            self.sides[at].cid = dcid;
        }
        hosts[at].handle(now, train);
    }

    fn poll_transmit(&mut self, now: Time, hosts: &mut [Host], at: usize) -> Option<Outgoing> {
        let train = hosts[at].poll_transmit(now);
        let datagrams = train.map_or(0, |train| train.len.div_ceil(train.stride));
        self.sides[at].sent += datagrams;
        self.built += datagrams;
        assert!(self.built < MAX_DATAGRAMS, "it sends without end");
        train
    }

    fn on_event(
        &mut self,
        _: Time,
        _: &mut [Host],
        at: usize,
        (handle, event): (ConnectionHandle, Event),
    ) {
        let side = &mut self.sides[at];
        side.events |= 1 << event_number(&event);
        match event {
            Event::Accepted => side.handle = handle,
            Event::Readable(id) | Event::Writable(id) => {
                side.streams.insert(id);
            }
            _ => {}
        }
    }
}

fn write_some(connection: &mut Connection, direction: Direction, len: usize) {
    if let Some(id) = connection.open(direction) {
        let mut data = Bytes::from(vec![5; len]);
        let _ = connection.write(id, &mut data);
        let _ = connection.finish(id);
    }
}

fn read_all(connection: &mut Connection, streams: &mut BTreeSet<StreamId>) {
    for direction in Direction::ALL {
        while let Some(id) = connection.accept(direction) {
            streams.insert(id);
        }
    }
    for id in streams.iter() {
        while let Ok(Some(_)) = connection.read(*id, 1000) {}
    }
}

fn event_number(event: &Event) -> u32 {
    match event {
        Event::Accepted => 0,
        Event::Connected => 1,
        Event::Confirmed => 2,
        Event::Readable(_) => 3,
        Event::Writable(_) => 4,
        Event::Opened(_) => 5,
        Event::StreamsAvailable(_) => 6,
        Event::Finished(_) => 7,
        Event::Stopped { .. } => 8,
        Event::DatagramReceived => 9,
        Event::DatagramSendable => 10,
        Event::Closed(_) => 11,
        Event::Drained => 12,
        Event::MtuChanged => 13,
        _ => 14,
    }
}

#[cfg(test)]
mod tests;
