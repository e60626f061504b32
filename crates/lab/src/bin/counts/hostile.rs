//! What the bytes of a hostile peer cost, beside those of an honest one. Units are bytes received.
//!
//! The peer of a connection is replaced by whoever writes the worst packets there are: 1,200 bytes
//! each, every one of them authentic. `honest` is what an honest peer's small messages cost. How much
//! more a hostile byte may cost is `cargo xtask counts`' business. What is measured is handed over by hand.

use bytes::Bytes;
use towline_quic::{ConnectionHandle, Direction, StreamId, TransportConfig};
use towline_sim::{Host as _, Train};
use towline_wire::{
    ConnectionId, NewConnectionIdFrame, Side, StatelessResetToken, Writer, decode_packet_number,
    truncated_packet_number, write_ack, write_crypto_header, write_max_data, write_max_stream_data,
    write_new_connection_id, write_path_challenge, write_ping, write_reset_stream,
    write_short_header, write_stop_sending, write_stream_header,
};

use crate::marker::measured_workload;
use crate::null_aead::TAG;
use crate::world::{Aead, CLIENT, ONE_WAY, SERVER, World};

/// Bytes of frames in a hostile packet.
const PAYLOAD: usize = 1150;

/// Hostile packets that are counted.
const PACKETS: u64 = 64;

/// Packet numbers of the hostile peer begin here, above those of the host it replaced.
const FIRST_NUMBER: u64 = 100_000;

/// Length of the connection IDs.
const CID_LEN: usize = 8;

/// Packets declared lost before the hostile ACK frames arrive.
const LOST: usize = 4_500;

/// How many of them the hostile ACK frames name.
const REMEMBERED: usize = towline_recovery::MAX_LOST_REMEMBERED - 4;

/// A connection whose peer is hostile.
struct Hostile {
    world: World,
    victim: usize,
    handle: ConnectionHandle,
    dcid: Vec<u8>,
    number: u64,
    payload: Vec<u8>,
}

impl Hostile {
    /// Takes the place of the peer of `victim`.
    fn against(victim: usize, mut world: World, handles: [ConnectionHandle; 2]) -> Self {
        let peer = 1 - victim;
        let now = world.now;
        world.connection(peer, handles[peer]).ping();
        let sent = world.hosts[peer].poll_transmit(now);
        assert!(sent.is_some(), "a PING is due");
        let dcid = world.hosts[peer].train()[1..=CID_LEN].to_vec();
        Self {
            world,
            victim,
            handle: handles[victim],
            dcid,
            number: FIRST_NUMBER,
            payload: vec![0; 2 * PAYLOAD],
        }
    }

    fn connected(victim: usize) -> Self {
        let transport = TransportConfig::default().max_concurrent_uni_streams(1 << 20);
        let mut world = World::new(Aead::Null, transport);
        let handles = world.connect();
        world.run_for(ONE_WAY * 100);
        Self::against(victim, world, handles)
    }

    /// Fills a packet with frames of `write`, which gets the number of each, and has the victim
    /// take it in; returns its bytes.
    fn send(&mut self, counted: bool, mut write: impl FnMut(&mut Writer<'_>, u64)) -> u64 {
        let mut w = Writer::new(&mut self.payload);
        for i in 0.. {
            let before = w.len();
            write(&mut w, i);
            if w.len() > PAYLOAD || w.len() == before {
                break;
            }
        }
        let len = w.len();
        let mut packet = vec![0; 64 + len];
        let mut w = Writer::new(&mut packet);
        write_short_header(&mut w, &self.dcid, self.number, 4, false, false);
        w.bytes(&self.payload[..len]);
        w.bytes(&TAG);
        let len = w.len();
        packet.truncate(len);
        self.number += 1;
        self.world.put(packet);
        let (now, meta, endpoint, bytes) = self.world.arrival(self.victim);
        match counted {
            true => measured_workload(|| endpoint.handle_datagrams(now, meta, bytes)),
            false => endpoint.handle_datagrams(now, meta, bytes),
        }
        assert!(
            !self.world.connection(self.victim, self.handle).is_closed(),
            "the victim knows better: this packet breaks a rule"
        );
        len as u64
    }

    /// What the victim has to say goes nowhere, and nobody hears its events.
    fn swallow(&mut self) {
        self.world.take(self.victim);
        self.world.drop_events(self.victim);
    }

    /// Counts packets of the frames that `write` writes, given the number of packet and frame.
    fn run(mut self, mut write: impl FnMut(&mut Writer<'_>, u64, u64)) -> u64 {
        let mut bytes = 0;
        for packet in 0..PACKETS {
            bytes += self.send(true, |w, frame| write(w, packet, frame));
            self.swallow();
        }
        bytes
    }
}

/// An honest peer: 64-byte messages, each in a packet of its own. Returns the bytes of the packets.
pub(crate) fn honest() -> u64 {
    const WARM_UP: u64 = 64;
    let mut world = World::new(Aead::Null, TransportConfig::default());
    let [client, server] = world.connect();
    world.run_for(ONE_WAY * 100);
    let connection = world.connection(CLIENT, client);
    let id = connection
        .open(Direction::Unidirectional)
        .expect("permitted");
    let mut bytes = 0;
    for i in 0..WARM_UP + PACKETS {
        let mut message = Bytes::from_static(&[7; 64]);
        let written = world.connection(CLIENT, client).write(id, &mut message);
        assert_eq!(written, Ok(64));
        let now = world.now;
        assert!(world.hosts[CLIENT].poll_transmit(now).is_some());
        world.send(CLIENT);
        let (now, meta, endpoint, datagram) = world.arrival(SERVER);
        let len = datagram.len() as u64;
        if i < WARM_UP {
            endpoint.handle_datagrams(now, meta, datagram);
        } else {
            measured_workload(|| endpoint.handle_datagrams(now, meta, datagram));
            bytes += len;
        }
        let connection = world.connection(SERVER, server);
        let _ = connection.accept(Direction::Unidirectional);
        while let Ok(Some(_)) = connection.read(id, usize::MAX) {}
        world.drop_events(SERVER);
        world.run_for(ONE_WAY * 40);
    }
    bytes
}

/// The smallest frame there is.
pub(crate) fn pings() -> u64 {
    Hostile::connected(SERVER).run(|w, _, _| write_ping(w))
}

/// A stream each, and its end.
pub(crate) fn streams() -> u64 {
    Hostile::connected(SERVER).run(|w, packet, i| {
        let id = StreamId::new(Side::Client, Direction::Unidirectional, packet * 300 + i);
        write_stream_header(w, id, 0, Some(0), true);
    })
}

/// One byte a piece, every second byte of a stream, the last first.
pub(crate) fn pieces() -> u64 {
    Hostile::connected(SERVER).run(|w, packet, i| {
        let id = StreamId::new(Side::Client, Direction::Unidirectional, packet / 3);
        let offset = 2001 - 2 * (packet % 3 * 160 + i);
        write_stream_header(w, id, offset, Some(1), false);
        w.bytes(b"x");
    })
}

/// The same of handshake data.
pub(crate) fn crypto() -> u64 {
    Hostile::connected(CLIENT).run(|w, _, i| {
        write_crypto_header(w, 2001 - 2 * i, 1);
        w.bytes(b"x");
    })
}

/// Resets and stops of streams, one after the other.
pub(crate) fn resets() -> u64 {
    Hostile::connected(SERVER).run(|w, packet, i| {
        let id = StreamId::new(Side::Client, Direction::Bidirectional, i % 100);
        match (packet + i / 100) % 2 {
            0 => write_stop_sending(w, id, 7),
            _ => write_reset_stream(w, id, 7, 0),
        }
    })
}

/// Credit in small steps, for one stream and for all.
pub(crate) fn credit() -> u64 {
    let mut hostile = Hostile::connected(CLIENT);
    let connection = hostile.world.connection(CLIENT, hostile.handle);
    let id = connection
        .open(Direction::Bidirectional)
        .expect("permitted");
    let _ = connection.write(id, &mut Bytes::from_static(&[7; 1000]));
    hostile.run(|w, packet, i| match i % 2 {
        0 => write_max_data(w, (1 << 30) + packet * 300 + i),
        _ => write_max_stream_data(w, id, (1 << 30) + packet * 300 + i),
    })
}

/// The same connection ID again and again.
pub(crate) fn ids() -> u64 {
    Hostile::connected(SERVER).run(|w, _, _| {
        write_new_connection_id(
            w,
            &NewConnectionIdFrame {
                sequence: 4,
                retire_prior_to: 1,
                cid: ConnectionId::new(&[9; CID_LEN]).expect("short enough"),
                reset_token: StatelessResetToken::new([9; 16]),
            },
        );
    })
}

/// Challenges to be answered.
pub(crate) fn challenges() -> u64 {
    Hostile::connected(SERVER).run(|w, _, i| write_path_challenge(w, i.to_be_bytes()))
}

/// ACK frames over and over, of packets that were declared lost and of those that were not.
pub(crate) fn acks() -> u64 {
    let transport = TransportConfig::default()
        .stream_receive_window(64 << 20)
        .max_stream_receive_window(64 << 20)
        .receive_window(64 << 20)
        .max_receive_window(64 << 20)
        .send_buffer(64 << 20)
        .stream_send_buffer(64 << 20);
    let mut world = World::new(Aead::Null, transport);
    let handles = world.connect();
    world.run_for(ONE_WAY * 100);
    let connection = world.connection(CLIENT, handles[CLIENT]);
    let id = connection
        .open(Direction::Unidirectional)
        .expect("permitted");
    let mut sent: Vec<u64> = Vec::new();
    // Flights that fill the window, until one is large enough; that one stays unanswered.
    loop {
        let flight = flight(&mut world, handles[CLIENT], id, &mut sent);
        if sent.len() >= LOST {
            break;
        }
        answer(&mut world, handles[SERVER], id, flight);
    }
    let mut hostile = Hostile::against(CLIENT, world, handles);
    let largest = *sent.last().expect("a flight");
    // The newest alone: the others are lost.
    hostile.send(false, |w, i| {
        if i == 0 {
            write_ack(w, 0, std::iter::once(largest..=largest), None);
        }
    });
    hostile.swallow();
    // All but the oldest that may be remembered: behind it nothing can be forgotten.
    let ranges = runs(&sent[sent.len() - REMEMBERED..]);
    hostile.run(|w, _, _| {
        write_ack(w, 0, ranges.iter().rev().cloned(), None);
    })
}

/// Sends what window and pacer allow within a while; returns the trains. Their packet numbers go to
/// `sent`.
fn flight(
    world: &mut World,
    client: ConnectionHandle,
    id: StreamId,
    sent: &mut Vec<u64>,
) -> Vec<Train> {
    let mut largest = sent.last().copied();
    let mut trains = Vec::new();
    sent.clear();
    for _ in 0..1000 {
        let _ = world
            .connection(CLIENT, client)
            .write(id, &mut Bytes::from(vec![7; 1 << 20]));
        let built = world.take(CLIENT);
        for datagram in built.iter().flat_map(Train::payloads) {
            let len = usize::from(datagram[0] & 3) + 1;
            let number = truncated_packet_number(&datagram[1 + CID_LEN..][..len]);
            let number = decode_packet_number(number, len, largest);
            largest = Some(number);
            sent.push(number);
        }
        trains.extend(built);
        world.now += ONE_WAY / 500;
    }
    trains
}

/// The receiver reads a flight and acknowledges it.
fn answer(world: &mut World, server: ConnectionHandle, id: StreamId, flight: Vec<Train>) {
    for train in flight {
        world.deliver(SERVER, train);
        let connection = world.connection(SERVER, server);
        let _ = connection.accept(Direction::Unidirectional);
        while let Ok(Some(_)) = connection.read(id, usize::MAX) {}
        world.drop_events(SERVER);
    }
    for train in world.take(SERVER) {
        world.deliver(CLIENT, train);
        world.drop_events(CLIENT);
    }
}

/// Runs of numbers without a gap.
fn runs(numbers: &[u64]) -> Vec<std::ops::RangeInclusive<u64>> {
    let mut runs: Vec<std::ops::RangeInclusive<u64>> = Vec::new();
    for &number in numbers {
        match runs.last_mut() {
            Some(run) if *run.end() + 1 == number => *run = *run.start()..=number,
            _ => runs.push(number..=number),
        }
    }
    runs
}
