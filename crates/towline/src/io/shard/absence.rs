//! Two shards on virtual time, one of which is not driven for a while.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Mutex;

use towline_identity::Pin;
use towline_quic::{Connection, ConnectionError};

use super::*;
use crate::config::{self, ClientAuth, Identity, Options, Trust};
use crate::io::Change;
use crate::io::socket::{Incoming, MAX_TRAIN_SEGMENTS, Outgoing};

/// A train on its way, and when it comes.
type Train = (Time, Vec<u8>, usize);

/// One direction of a wire.
type Way = Arc<Mutex<VecDeque<Train>>>;

const DELAY: Duration = Duration::from_millis(2);

#[derive(Clone)]
struct Wire {
    now: Arc<Mutex<Time>>,
    arriving: Way,
    leaving: Way,
    peer: SocketAddr,
    waited: Option<Duration>,
    /// Knows when trains came.
    stamps: bool,
    /// The buffer of the socket, bytes.
    buffer: usize,
}

impl Socket for Wire {
    fn recv(&mut self, batch: &mut ReceiveBatch) -> io::Result<usize> {
        let now = *self.now.lock().unwrap();
        let mut arriving = self.arriving.lock().unwrap();
        let mut count = 0;
        for (buffer, meta) in batch.slots() {
            if arriving.front().is_none_or(|(at, ..)| *at > now) {
                break;
            }
            let (at, bytes, stride) = arriving.pop_front().unwrap();
            buffer[..bytes.len()].copy_from_slice(&bytes);
            self.waited = self.stamps.then(|| now.saturating_duration_since(at));
            *meta = Incoming {
                remote: self.peer,
                local_ip: None,
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

    fn waited(&self) -> Option<Duration> {
        self.waited
    }

    fn try_send(&mut self, train: &Outgoing<'_>) -> io::Result<()> {
        let at = *self.now.lock().unwrap() + DELAY;
        let bytes = train.contents.to_vec();
        let mut leaving = self.leaving.lock().unwrap();
        leaving.push_back((at, bytes, train.segment_size));
        Ok(())
    }

    fn max_segments(&self) -> usize {
        MAX_TRAIN_SEGMENTS
    }

    fn renew(&mut self) -> io::Result<()> {
        Ok(())
    }

    fn info(&self) -> SocketInfo {
        let mut info = SocketInfo::plain(self.peer);
        info.recv_buffer.granted = self.buffer;
        info
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}

/// A client and a server with a connection between them.
struct World {
    now: Arc<Mutex<Time>>,
    shards: [Shard<Wire>; 2],
    handles: [Option<ConnectionHandle>; 2],
    closed: Vec<ConnectionError>,
}

const CLIENT: usize = 0;
const SERVER: usize = 1;

impl World {
    /// `stamps`: sockets know when trains came.
    fn new(stamps: bool, keep_alive: Option<Duration>) -> Self {
        let mut options = Options::new("test");
        options.transport.keep_alive_interval = keep_alive;
        let identity = Identity::generate_dev(&["localhost"], config::unix_now()).unwrap();
        let trust = Trust::Pinned(vec![Pin::Key(identity.key_pin())]);
        let server = config::server(&identity, &ClientAuth::None, &options).unwrap();
        options.transport.keep_alive_interval = None;
        let client = config::client(&trust, None, &options).unwrap();
        let ways: [Way; 2] = Default::default();
        let addresses = [1, 2].map(|n| SocketAddr::from(([192, 0, 2, n], 5000)));
        let now = Arc::new(Mutex::new(Clock::start().now()));
        let wire = |side: usize| Wire {
            now: Arc::clone(&now),
            arriving: Arc::clone(&ways[side]),
            leaving: Arc::clone(&ways[1 - side]),
            peer: addresses[1 - side],
            waited: None,
            stamps,
            buffer: 1 << 20,
        };
        let seed = |n| EndpointConfig::from_seed([n; 32]);
        let mut shards = [
            Shard::new(wire(CLIENT), seed(1), None, ()),
            Shard::new(wire(SERVER), seed(2), Some(Arc::new(server)), ()),
        ];
        let start = *now.lock().unwrap();
        let handle = shards[CLIENT].handle().with(|endpoint, ()| {
            let connected = endpoint.connect(start, &client, addresses[SERVER], "localhost");
            (connected.unwrap(), Change::Made)
        });
        shards[SERVER].drive(start).unwrap();
        let mut world = Self {
            now,
            shards,
            handles: [Some(handle), None],
            closed: Vec::new(),
        };
        world.run_for(Duration::from_secs(1), &[CLIENT, SERVER]);
        assert!(world.handles[SERVER].is_some());
        world
    }

    /// Lets time pass; only `awake` shards are driven, when something comes or is due.
    fn run_for(&mut self, time: Duration, awake: &[usize]) {
        let end = *self.now.lock().unwrap() + time;
        loop {
            let now = *self.now.lock().unwrap();
            for &side in awake {
                self.drive(side, true);
            }
            let coming = |side: usize| {
                let arriving = self.shards[side].socket().arriving.lock().unwrap();
                arriving.front().map(|(at, ..)| *at)
            };
            let due = |side: usize| self.shards[side].next_timeout();
            let next = awake.iter().flat_map(|&side| [coming(side), due(side)]);
            let Some(next) = next.flatten().min().filter(|at| *at <= end) else {
                break;
            };
            *self.now.lock().unwrap() = next.max(now);
        }
        *self.now.lock().unwrap() = end;
    }

    fn drive(&mut self, side: usize, readable: bool) {
        let now = *self.now.lock().unwrap();
        let shard = &mut self.shards[side];
        while shard.drive_if(now, readable).unwrap().again {}
        while let Some((handle, event)) = shard.poll_event() {
            match event {
                Event::Accepted => self.handles[side] = Some(handle),
                Event::Closed(error) => self.closed.push(error),
                _ => {}
            }
        }
    }

    fn with<R>(&self, side: usize, f: impl FnOnce(&mut Connection) -> R) -> R {
        let handle = self.handles[side].unwrap();
        self.shards[side].handle().with(|endpoint, ()| {
            let connection = endpoint.connection_mut(handle).expect("it lives");
            (f(connection), Change::Made)
        })
    }
}

#[test]
fn a_connection_whose_peer_spoke_all_the_time_outlives_a_stop_of_31_s() {
    for (stamps, readable) in [(true, true), (true, false), (false, true), (false, false)] {
        // The server hears nothing either: it gives up 30 s after the first packet it sent in vain.
        let mut world = World::new(stamps, Some(Duration::from_secs(3)));
        world.run_for(Duration::from_secs(31), &[SERVER]);
        // Whether or not the reactor has looked at the socket before the timers.
        world.drive(CLIENT, readable);
        assert_eq!(world.closed, [], "{stamps} {readable}");
        world.run_for(Duration::from_secs(60), &[CLIENT, SERVER]);
        assert_eq!(world.closed, [], "{stamps} {readable}");
    }
}

#[test]
fn a_stop_is_no_round_trip_time() {
    let mut world = World::new(true, None);
    for _ in 0..20 {
        world.with(CLIENT, Connection::ping);
        world.run_for(Duration::from_millis(50), &[CLIENT, SERVER]);
    }
    let before = world.with(CLIENT, |c| c.stats());
    world.with(CLIENT, Connection::ping);
    world.drive(CLIENT, false);
    world.run_for(Duration::from_millis(300), &[SERVER]);
    world.drive(CLIENT, true);
    world.run_for(Duration::from_millis(50), &[CLIENT, SERVER]);
    let after = world.with(CLIENT, |c| c.stats());
    let (before_rtt, after_rtt) = (before.smoothed_rtt, after.smoothed_rtt);
    let most = before_rtt + DELAY;
    assert!(after_rtt < most, "{before_rtt:?} -> {after_rtt:?}");
    assert_eq!(after.probe_timeouts, before.probe_timeouts);
}

#[test]
fn an_acknowledgement_after_a_stop_says_how_long_its_packet_lay_there() {
    let mut world = World::new(true, None);
    for _ in 0..20 {
        world.with(SERVER, Connection::ping);
        world.run_for(Duration::from_millis(50), &[CLIENT, SERVER]);
    }
    let before = world.with(SERVER, |c| c.stats().smoothed_rtt);
    // Two packets, which are acknowledged as soon as they are read.
    for _ in 0..2 {
        world.with(SERVER, Connection::ping);
        world.drive(SERVER, false);
    }
    // As long as an ACK may be delayed: what is longer the peer does not believe (RFC 9002 §5.3).
    world.run_for(Duration::from_millis(22), &[SERVER]);
    world.drive(CLIENT, true);
    world.run_for(Duration::from_millis(50), &[CLIENT, SERVER]);
    let after = world.with(SERVER, |c| c.stats().smoothed_rtt);
    assert!(
        after < before + Duration::from_millis(1),
        "{before:?} {after:?}"
    );
}

#[test]
fn a_flood_holds_timers_back_for_a_buffers_worth_and_no_longer() {
    for stamps in [true, false] {
        let mut world = World::new(stamps, None);
        let handle = world.handles[CLIENT].unwrap();
        world.run_for(Duration::from_secs(3600), &[]);
        let now = *world.now.lock().unwrap();
        let wire = &mut world.shards[CLIENT].socket;
        // More than any buffer holds, all of it old.
        let junk = (0..100_000).map(|_| (now - Duration::from_secs(9), vec![0x40; 30], 30));
        wire.arriving.lock().unwrap().extend(junk);
        let mut turns = 0;
        let idle_is_over = |shard: &Shard<Wire>| {
            let closed = |c: &Connection| c.is_closed();
            let look = |e: &Endpoint, (): &()| e.connection(handle).is_none_or(closed);
            shard.handle().read(look)
        };
        while !idle_is_over(&world.shards[CLIENT]) {
            assert!(world.shards[CLIENT].drive(now).unwrap().again);
            turns += 1;
            assert!(turns < 20_000, "timers never run");
        }
        let left = world.shards[CLIENT].socket.arriving.lock().unwrap().len();
        assert!(left > 80_000, "{left}");
    }
}
