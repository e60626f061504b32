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
    ClientConfig, Connection, ConnectionHandle, DatagramMeta, Direction, Endpoint, EndpointConfig,
    Event, ServerConfig, StreamId, TrainBuf, TransportConfig,
};
use towline_testkit::{NULL_TAG, SERVER_NAME, TlsOptions, reseed, tls_pair};
use towline_wire::{ConnectionId, Header, Time, Writer, parse_header, write_short_header};

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
    endpoint: Endpoint,
    handle: ConnectionHandle,
    address: SocketAddr,
    /// What the peer calls us.
    cid: ConnectionId,
    streams: BTreeSet<StreamId>,
    events: u64,
    sent: usize,
}

struct Pair {
    now: Time,
    sides: [Side; 2],
    /// Who gets the next packet.
    target: usize,
    number: u64,
    key_phase: bool,
    buf: TrainBuf,
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
        let now = Time::from_nanos(1_000_000_000);
        let mut client = Endpoint::new(EndpointConfig::from_seed([1; 32]), None);
        let server = Endpoint::new(
            EndpointConfig::from_seed([2; 32]),
            Some(Arc::new(server_config)),
        );
        let handle = client
            .connect(now, &client_config, address(2), SERVER_NAME)
            .unwrap_or_else(|e| panic!("cannot connect: {e}"));
        let side = |endpoint, address| Side {
            endpoint,
            handle,
            address,
            cid: ConnectionId::EMPTY,
            streams: BTreeSet::new(),
            events: 0,
            sent: 0,
        };
        let mut pair = Self {
            now,
            sides: [side(client, address(1)), side(server, address(2))],
            target: 1,
            number: FIRST_NUMBER,
            key_phase: false,
            buf: TrainBuf::new(),
        };
        for _ in 0..8 {
            pair.exchange();
        }
        for side in &pair.sides {
            let connection = side.endpoint.connection(side.handle);
            assert!(
                connection.is_some_and(Connection::is_confirmed) && !side.cid.is_empty(),
                "the handshake did not finish: {connection:?}, {:?}",
                side.cid
            );
        }
        pair
    }

    /// Takes what one end has to send.
    fn take(&mut self, from: usize) -> Vec<Vec<u8>> {
        let mut datagrams = Vec::new();
        let side = &mut self.sides[from];
        while let Some(transmit) = side.endpoint.poll_transmit(self.now, &mut self.buf) {
            for datagram in self.buf.filled().chunks(transmit.segment_size) {
                datagrams.push(datagram.to_vec());
            }
            assert!(datagrams.len() < MAX_DATAGRAMS, "it sends without end");
        }
        side.sent += datagrams.len();
        datagrams
    }

    fn deliver(&mut self, to: usize, datagram: &mut [u8]) {
        let meta = DatagramMeta {
            remote: self.sides[1 - to].address,
            local_ip: None,
            ecn: None,
            stride: datagram.len(),
        };
        self.sides[to]
            .endpoint
            .handle_datagrams(self.now, meta, datagram);
        self.listen(to);
    }

    /// Takes an end's events, as its application would.
    fn listen(&mut self, at: usize) {
        let side = &mut self.sides[at];
        while let Some((handle, event)) = side.endpoint.poll_event() {
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

    /// Both ends send and receive, one millisecond later.
    fn exchange(&mut self) {
        self.now += Duration::from_millis(1);
        for from in [0, 1] {
            for mut datagram in self.take(from) {
                // The first destination of a client is not the server's own; later ones are.
                if let Ok(Header::Short { dcid, .. } | Header::Long { dcid, .. }) =
                    parse_header(&datagram, CID_LEN)
                {
                    self.sides[1 - from].cid = dcid;
                }
                self.deliver(1 - from, &mut datagram);
            }
            self.listen(from);
        }
        self.run_timers();
    }

    fn run_timers(&mut self) {
        for at in [0, 1] {
            let endpoint = &mut self.sides[at].endpoint;
            if endpoint.next_timeout().is_some_and(|t| t <= self.now) {
                endpoint.handle_timeout(self.now);
                self.listen(at);
            }
        }
    }

    /// An authentic 1-RTT packet with this payload, for the target. Its answers are dropped.
    fn inject(&mut self, payload: &[u8]) {
        let mut packet = vec![0; 64 + payload.len()];
        let mut writer = Writer::new(&mut packet);
        let cid = self.sides[self.target].cid;
        write_short_header(&mut writer, &cid, self.number, 4, false, self.key_phase);
        writer.bytes(payload);
        writer.bytes(&NULL_TAG);
        // Too short to be sampled for header protection otherwise.
        let len = writer.len().max(1 + CID_LEN + 4 + 16 + 4);
        let mut packet = match writer.len() {
            n if n < len => {
                let mut padded = packet[..n - NULL_TAG.len()].to_vec();
                padded.resize(len - NULL_TAG.len(), 0);
                padded.extend_from_slice(&NULL_TAG);
                padded
            }
            n => packet[..n].to_vec(),
        };
        self.number += 1;
        self.deliver(self.target, &mut packet);
        self.take(self.target);
        self.listen(self.target);
    }

    fn obey(&mut self, opcode: u8) {
        let now = self.now;
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
            12 => self.with(|c, streams| streams.iter().for_each(|id| c.reset(*id, 1))),
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
        let side = &mut self.sides[self.target];
        if let Some(connection) = side.endpoint.connection_mut(side.handle) {
            act(connection, &mut side.streams);
        }
        self.listen(self.target);
    }

    /// Time passes; what is sent meanwhile is lost.
    fn wait(&mut self, time: Duration) {
        self.now += time;
        self.run_timers();
        self.take(0);
        self.take(1);
    }

    /// What happened, coarsely.
    fn signature(&self) -> u64 {
        let mut hash = 0u64;
        let mut mix = |word: u64| {
            hash = (hash.rotate_left(11) ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        };
        for side in &self.sides {
            mix(side.events);
            mix(side.streams.len().min(6) as u64);
            mix(side.sent.max(1).ilog2().into());
            if let Some(connection) = side.endpoint.connection(side.handle) {
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
            while let Some(due) = self.sides[at].endpoint.next_timeout() {
                self.now = self.now.max(due);
                self.sides[at].endpoint.handle_timeout(self.now);
                self.take(at);
                self.listen(at);
                timers += 1;
                assert!(timers < MAX_TIMERS, "a connection never ends");
            }
            let left = self.sides[at].endpoint.stats().connections;
            assert_eq!(left, 0, "a connection waits for nothing");
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
        _ => 13,
    }
}

#[cfg(test)]
mod tests;
