//! A transfer on one stream, full trains of 44 packets; one of its phases is counted.
//!
//! Each round: the application writes, the sender builds one train, the receiver takes it in, the
//! application reads, the receiver answers with one ACK, the sender takes that in. Units are the
//! packets of the trains, whatever the phase. The trains go by hand: each call into an engine is one of
//! the phases that are measured.

use bytes::Bytes;
use towline_lab::Host;
use towline_quic::{
    Connection, ConnectionHandle, Direction, ReadError, StreamId, TransportConfig, WriteError,
};
use towline_sim::Host as _;

use crate::marker::measured_workload;
use crate::world::{Aead, CLIENT, MTU, ONE_WAY, SERVER, World};

/// Rounds before the count: the window opens, buffers and tables grow to their size.
const WARM_UP: u64 = 100;

/// Rounds that are counted.
const ROUNDS: u64 = 256;

/// Packets of a full train: 64 KB by `MTU`.
pub(crate) const TRAIN: u64 = 65_507 / MTU as u64;

/// What is written at a time, bytes.
const CHUNK: usize = 64 << 10;

/// The parts of a round that can be counted.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    /// The sender's application writes until there is no more room.
    Write,
    /// `poll_transmit` builds one train.
    Transmit,
    /// `handle_datagrams` takes one train in.
    Receive,
    /// The receiver's application reads what there is.
    Read,
    /// The sender takes in the datagram whose ACK frame covers the train.
    Ack,
}

/// Runs the transfer and counts `phase`; returns the packets that were sent meanwhile.
pub(crate) fn run(aead: Aead, phase: Phase) -> u64 {
    let mut world = World::new(aead, TransportConfig::default());
    let [sender, receiver] = world.connect();
    world.run_for(ONE_WAY * 100);
    let stream = world
        .connection(CLIENT, sender)
        .open(Direction::Unidirectional)
        .expect("the first stream of its connection");
    let mut bulk = Bulk {
        world,
        sender,
        receiver,
        stream,
        chunk: Bytes::from(vec![7; CHUNK]),
        counted: None,
    };
    for _ in 0..WARM_UP {
        bulk.round();
    }
    let before = bulk.packets_sent();
    bulk.counted = Some(phase);
    for _ in 0..ROUNDS {
        bulk.round();
    }
    let packets = bulk.packets_sent() - before;
    assert_eq!(packets, ROUNDS * TRAIN, "not every train was a full one");
    packets
}

struct Bulk {
    world: World,
    sender: ConnectionHandle,
    receiver: ConnectionHandle,
    stream: StreamId,
    chunk: Bytes,
    counted: Option<Phase>,
}

impl Bulk {
    fn round(&mut self) {
        self.write();
        self.transmit();
        self.receive();
        self.read();
        self.acknowledge();
    }

    fn write(&mut self) {
        let (handle, stream, chunk) = (self.sender, self.stream, &self.chunk);
        let endpoint = &mut self.world.hosts[CLIENT].endpoint;
        run_phase(self.counted == Some(Phase::Write), || {
            let connection = endpoint.connection_mut(handle);
            fill(connection.expect("still open"), stream, chunk);
        });
    }

    fn transmit(&mut self) {
        let now = self.world.now;
        let Host {
            endpoint, train, ..
        } = &mut self.world.hosts[CLIENT];
        let transmit = run_phase(self.counted == Some(Phase::Transmit), || {
            endpoint.poll_transmit(now, train)
        });
        assert!(transmit.is_some(), "the window is closed");
        self.world.send(CLIENT);
    }

    fn receive(&mut self) {
        self.world.now += ONE_WAY;
        let (now, meta, endpoint, bytes) = self.world.arrival(SERVER);
        run_phase(self.counted == Some(Phase::Receive), || {
            endpoint.handle_datagrams(now, meta, bytes);
        });
        self.world.drop_events(SERVER);
    }

    fn read(&mut self) {
        let (handle, stream) = (self.receiver, self.stream);
        let endpoint = &mut self.world.hosts[SERVER].endpoint;
        run_phase(self.counted == Some(Phase::Read), || {
            let connection = endpoint.connection_mut(handle);
            drain(connection.expect("still open"), stream);
        });
    }

    fn acknowledge(&mut self) {
        let world = &mut self.world;
        let now = world.now;
        let transmit = world.hosts[SERVER].poll_transmit(now);
        assert!(transmit.is_some(), "the train was not acknowledged at once");
        world.send(SERVER);
        world.now += ONE_WAY;
        let (now, meta, endpoint, bytes) = world.arrival(CLIENT);
        run_phase(self.counted == Some(Phase::Ack), || {
            endpoint.handle_datagrams(now, meta, bytes);
        });
        world.drop_events(CLIENT);
        let connection = world.connection(CLIENT, self.sender);
        assert_eq!(connection.stats().bytes_in_flight, 0, "not all was covered");
    }

    fn packets_sent(&mut self) -> u64 {
        let connection = self.world.connection(CLIENT, self.sender);
        connection.stats().packets_sent
    }
}

fn run_phase<R>(counted: bool, work: impl FnOnce() -> R) -> R {
    if counted {
        measured_workload(work)
    } else {
        work()
    }
}

fn fill(connection: &mut Connection, stream: StreamId, chunk: &Bytes) {
    loop {
        match connection.write(stream, &mut chunk.clone()) {
            Ok(_) => {}
            Err(WriteError::Blocked) => return,
            Err(error) => panic!("{error}"),
        }
    }
}

fn drain(connection: &mut Connection, stream: StreamId) {
    loop {
        match connection.read(stream, usize::MAX) {
            Ok(Some(_)) => {}
            Ok(None) => panic!("nobody finished the stream"),
            Err(ReadError::Blocked) => return,
            Err(error) => panic!("{error}"),
        }
    }
}
