//! Two shards without a runtime, on sockets that live in memory and fail on demand.

mod common;

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use common::{configs, options};
use towline::engine::{ConnectionHandle, EndpointConfig, Event, ReadError, WriteError};
use towline::io::{
    Change, DATAGRAMS_PER_TURN, Incoming, MAX_TRAIN_BYTES, MAX_TRAIN_SEGMENTS, Outgoing,
    ReceiveBatch, Shard, Socket, SocketInfo,
};
use towline::{Direction, StreamId, Time};

/// One datagram train under way: sender, bytes, cut size.
type Train = (SocketAddr, Vec<u8>, usize);
type Pipe = Arc<Mutex<VecDeque<Train>>>;

/// What a socket does wrong.
#[derive(Clone, Copy, Debug, Default)]
struct Faults {
    /// Every this many sends end with this error number.
    send: Option<(u64, i32)>,
    /// Trains of more than one datagram end with this error number.
    trains: Option<i32>,
    /// Every this many receives end with this error number.
    recv: Option<(u64, i32)>,
}

struct Memory {
    own: SocketAddr,
    inbox: Pipe,
    outbox: Pipe,
    faults: Faults,
    sends: u64,
    receives: u64,
}

impl Socket for Memory {
    fn recv(&mut self, batch: &mut ReceiveBatch) -> io::Result<usize> {
        self.receives += 1;
        if let Some((every, errno)) = self.faults.recv
            && self.receives.is_multiple_of(every)
        {
            return Err(io::Error::from_raw_os_error(errno));
        }
        let mut inbox = self.inbox.lock().unwrap();
        let mut count = 0;
        for (buffer, meta) in batch.slots() {
            let Some((remote, bytes, stride)) = inbox.pop_front() else {
                break;
            };
            buffer[..bytes.len()].copy_from_slice(&bytes);
            *meta = Incoming {
                remote,
                local_ip: Some(self.own.ip()),
                ecn: None,
                len: bytes.len(),
                stride,
            };
            count += 1;
        }
        match count {
            0 => Err(io::ErrorKind::WouldBlock.into()),
            count => Ok(count),
        }
    }

    fn try_send(&mut self, train: &Outgoing<'_>) -> io::Result<()> {
        assert!(train.contents.len() <= MAX_TRAIN_BYTES);
        let segments = train.contents.len().div_ceil(train.segment_size);
        assert!(segments <= MAX_TRAIN_SEGMENTS);
        self.sends += 1;
        if let Some((every, errno)) = self.faults.send
            && self.sends.is_multiple_of(every)
        {
            return Err(io::Error::from_raw_os_error(errno));
        }
        if let Some(errno) = self.faults.trains
            && segments > 1
        {
            return Err(io::Error::from_raw_os_error(errno));
        }
        self.outbox.lock().unwrap().push_back((
            self.own,
            train.contents.to_vec(),
            train.segment_size.min(train.contents.len()),
        ));
        Ok(())
    }

    fn max_segments(&self) -> usize {
        MAX_TRAIN_SEGMENTS
    }

    fn renew(&mut self) -> io::Result<()> {
        Ok(())
    }

    fn info(&self) -> SocketInfo {
        SocketInfo::plain(self.own)
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}

fn address(port: u16) -> SocketAddr {
    SocketAddr::from(([192, 0, 2, 1], port))
}

struct World {
    now: Time,
    client: Shard<Memory>,
    server: Shard<Memory>,
    client_handle: ConnectionHandle,
    server_handle: Option<ConnectionHandle>,
    events: Vec<(&'static str, Event)>,
}

impl World {
    fn new(client_faults: Faults, server_faults: Faults) -> Self {
        let (client_config, server_config) = configs(&options());
        let (up, down) = (Pipe::default(), Pipe::default());
        let memory = |port, inbox: &Pipe, outbox: &Pipe, faults| Memory {
            own: address(port),
            inbox: Arc::clone(inbox),
            outbox: Arc::clone(outbox),
            faults,
            sends: 0,
            receives: 0,
        };
        let client = Shard::new(
            memory(1, &down, &up, client_faults),
            EndpointConfig::from_seed([1; 32]),
            None,
            (),
        );
        let server = Shard::new(
            memory(2, &up, &down, server_faults),
            EndpointConfig::from_seed([2; 32]),
            Some(Arc::new(server_config)),
            (),
        );
        let now = client.clock().now();
        let client_handle = client.handle().with(|endpoint, ()| {
            let handle = endpoint.connect(now, &client_config, address(2), "localhost");
            (handle.unwrap(), Change::Made)
        });
        Self {
            now,
            client,
            server,
            client_handle,
            server_handle: None,
            events: Vec::new(),
        }
    }

    /// One turn of each side; if both were idle, time moves to the next timeout.
    fn step(&mut self) {
        let a = self.client.drive(self.now).unwrap();
        let b = self.server.drive(self.now).unwrap();
        while let Some((_, event)) = self.client.poll_event() {
            self.events.push(("client", event));
        }
        while let Some((handle, event)) = self.server.poll_event() {
            if event == Event::Accepted {
                self.server_handle = Some(handle);
            }
            self.events.push(("server", event));
        }
        if a.again || b.again || self.in_flight() {
            self.now += Duration::from_micros(50);
            return;
        }
        let next = [self.client.next_timeout(), self.server.next_timeout()];
        let next = next.into_iter().flatten().min().unwrap_or(self.now);
        self.now = next.max(self.now + Duration::from_micros(50));
    }

    fn in_flight(&self) -> bool {
        !self.client.socket().inbox.lock().unwrap().is_empty()
            || !self.server.socket().inbox.lock().unwrap().is_empty()
    }

    fn saw(&self, side: &str, event: &Event) -> bool {
        self.events
            .iter()
            .any(|(who, what)| *who == side && what == event)
    }

    fn connect(&mut self) {
        let deadline = self.now + Duration::from_secs(9);
        while !(self.saw("client", &Event::Connected) && self.server_handle.is_some()) {
            self.step();
            assert!(self.now < deadline, "no handshake: {:?}", self.events);
        }
    }

    /// Sends `total` bytes from client to server on one stream and checks every one.
    fn transfer(&mut self, total: usize) {
        self.connect();
        let pattern = |at: usize| (at % 251) as u8;
        let data: Vec<u8> = (0..total).map(pattern).collect();
        let (client, server) = (self.client_handle, self.server_handle.unwrap());
        let mut stream: Option<StreamId> = None;
        let mut incoming: Option<StreamId> = None;
        let (mut written, mut read, mut finished) = (0, 0, false);
        let deadline = self.now + Duration::from_secs(60);
        while !finished {
            self.client.handle().with(|endpoint, ()| {
                let connection = endpoint.connection_mut(client).unwrap();
                let id = *stream
                    .get_or_insert_with(|| connection.open(Direction::Unidirectional).unwrap());
                while written < total {
                    match connection.write_slice(id, &data[written..]) {
                        Ok(n) => written += n,
                        Err(WriteError::Blocked) => break,
                        Err(error) => panic!("{error}"),
                    }
                    if written == total {
                        connection.finish(id).unwrap();
                    }
                }
                ((), Change::Made)
            });
            self.step();
            self.server.handle().with(|endpoint, ()| {
                let connection = endpoint.connection_mut(server).unwrap();
                if incoming.is_none() {
                    incoming = connection.accept(Direction::Unidirectional);
                }
                let Some(id) = incoming else {
                    return ((), Change::None);
                };
                loop {
                    match connection.read(id, usize::MAX) {
                        Ok(Some(chunk)) => {
                            for byte in &chunk {
                                assert_eq!(*byte, pattern(read), "at {read}");
                                read += 1;
                            }
                        }
                        Ok(None) => {
                            finished = true;
                            break;
                        }
                        Err(ReadError::Blocked) => break,
                        Err(error) => panic!("{error}"),
                    }
                }
                ((), Change::Made)
            });
            assert!(self.now < deadline, "{read} of {total} bytes arrived");
        }
        assert_eq!(read, total);
    }
}

#[test]
fn a_stream_crosses_two_shards_whole() {
    let mut world = World::new(Faults::default(), Faults::default());
    world.transfer(3_000_000);
    assert!(world.client.info().gso_segments > 1);
}

#[test]
fn sends_refused_for_want_of_buffers_lose_no_byte() {
    let faults = Faults {
        send: Some((3, libc::ENOBUFS)),
        ..Faults::default()
    };
    let mut world = World::new(faults, faults);
    world.transfer(500_000);
}

#[test]
fn a_socket_that_is_often_full_loses_no_byte() {
    let faults = Faults {
        send: Some((2, libc::EAGAIN)),
        ..Faults::default()
    };
    let mut world = World::new(faults, faults);
    world.transfer(500_000);
}

#[test]
fn a_socket_without_gso_is_found_out_once_and_works() {
    for errno in [libc::EIO, libc::EINVAL] {
        let faults = Faults {
            trains: Some(errno),
            ..Faults::default()
        };
        let mut world = World::new(faults, faults);
        world.transfer(500_000);
        assert!(world.client.info().gso_refused);
        assert_eq!(world.client.info().gso_segments, 1);
    }
}

#[test]
fn refused_sends_are_losses_and_are_repaired() {
    let faults = Faults {
        send: Some((20, libc::EHOSTUNREACH)),
        ..Faults::default()
    };
    let mut world = World::new(faults, faults);
    world.transfer(300_000);
}

#[test]
fn a_refusal_told_by_icmp_on_receive_is_not_fatal() {
    let faults = Faults {
        recv: Some((3, libc::ECONNREFUSED)),
        ..Faults::default()
    };
    let mut world = World::new(faults, faults);
    world.transfer(300_000);
}

#[test]
fn an_unusable_socket_ends_the_turn_with_its_error() {
    let faults = Faults {
        recv: Some((1, libc::EBADF)),
        ..Faults::default()
    };
    let mut world = World::new(faults, Faults::default());
    let now = world.now;
    let error = world.client.drive(now).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::EBADF));
}

#[test]
fn a_flood_of_tiny_datagrams_ends_the_turn_on_its_budget() {
    let mut world = World::new(Faults::default(), Faults::default());
    world.connect();
    let inbox = Arc::clone(&world.server.socket().inbox);
    let flood = 3 * DATAGRAMS_PER_TURN + 1;
    inbox
        .lock()
        .unwrap()
        .extend((0..flood).map(|i| (address(9), vec![i as u8], 1)));
    let now = world.now;
    let mut turns = 0;
    loop {
        let turn = world.server.drive(now).unwrap();
        turns += 1;
        if !turn.again {
            assert!(turn.drained);
            break;
        }
        assert!(!inbox.lock().unwrap().is_empty(), "ended on its budget");
    }
    assert!(turns >= 3, "{turns} turns for {flood} datagrams");
    world.transfer(100_000);
}

#[test]
fn a_handle_wakes_the_shard_once_per_turn() {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::{Wake, Waker};

    #[derive(Default)]
    struct Count(AtomicUsize);
    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    let mut world = World::new(Faults::default(), Faults::default());
    world.connect();
    let count = Arc::new(Count::default());
    let now = world.now;
    world.client.drive(now).unwrap();
    world.client.set_waker(&Waker::from(Arc::clone(&count)));
    let handle = world.client.handle().clone();
    handle.with(|_, ()| ((), Change::None));
    assert_eq!(count.0.load(Ordering::Relaxed), 0);
    for _ in 0..10 {
        handle.with(|_, ()| ((), Change::Made));
    }
    assert_eq!(count.0.load(Ordering::Relaxed), 1);
    world.client.drive(now).unwrap();
    handle.with(|_, ()| ((), Change::Made));
    assert_eq!(count.0.load(Ordering::Relaxed), 2);
}
