use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Wake;

use towline_quic::ClientConfig;

use super::*;
use crate::config::{self, Options, Trust};
use crate::io::socket::{Incoming, MAX_TRAIN_SEGMENTS, Outgoing};
use crate::io::{Change, Fallback, MAX_SHARDS, shard_group};

/// Trains to receive: bytes and where they are cut.
type Inbox = Arc<Mutex<VecDeque<(Vec<u8>, usize)>>>;

/// A socket that gives what it was given, and takes everything but what its faults forbid.
#[derive(Clone, Default)]
struct Fake {
    inbox: Inbox,
    /// Trains of every call.
    calls: Arc<Mutex<Vec<usize>>>,
    refuse_gso: bool,
    /// Receiving ends with this error number.
    recv_error: Option<i32>,
    /// Sending ends with this error number.
    send_error: Option<i32>,
    /// Larger datagrams are EMSGSIZE.
    path_mtu: Option<usize>,
    /// The address that it is bound to was removed.
    lost: Arc<Mutex<bool>>,
    /// What routers say.
    notices: Arc<Mutex<Vec<Notice>>>,
    info: Option<SocketInfo>,
}

impl Fake {
    fn send(&self, train: &Outgoing<'_>) -> io::Result<()> {
        let error = |number| Err(io::Error::from_raw_os_error(number));
        let segment = train.segment_size.min(train.contents.len());
        if let Some(number) = self.send_error {
            return error(number);
        }
        if *self.lost.lock().unwrap() {
            return error(libc::EINVAL);
        }
        if self.refuse_gso && train.contents.len() > segment {
            return error(libc::EIO);
        }
        if self.path_mtu.is_some_and(|mtu| segment > mtu) {
            return error(libc::EMSGSIZE);
        }
        Ok(())
    }
}

impl Socket for Fake {
    fn recv(&mut self, batch: &mut ReceiveBatch) -> io::Result<usize> {
        if let Some(number) = self.recv_error {
            return Err(io::Error::from_raw_os_error(number));
        }
        let mut inbox = self.inbox.lock().unwrap();
        let mut count = 0;
        for (buffer, meta) in batch.slots() {
            let Some((bytes, stride)) = inbox.pop_front() else {
                break;
            };
            buffer[..bytes.len()].copy_from_slice(&bytes);
            *meta = Incoming {
                remote: address(9),
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

    fn try_send(&mut self, train: &Outgoing<'_>) -> io::Result<()> {
        self.send(train)?;
        self.calls.lock().unwrap().push(1);
        Ok(())
    }

    fn try_send_batch(&mut self, trains: &[Outgoing<'_>]) -> io::Result<usize> {
        self.send(&trains[0])?;
        let count = trains.iter().take_while(|t| self.send(t).is_ok()).count();
        self.calls.lock().unwrap().push(count);
        Ok(count)
    }

    fn poll_notice(&mut self) -> Option<Notice> {
        self.notices.lock().unwrap().pop()
    }

    fn max_segments(&self) -> usize {
        MAX_TRAIN_SEGMENTS
    }

    fn renew(&mut self) -> io::Result<()> {
        Ok(())
    }

    fn leave_lost_address(&mut self) -> io::Result<bool> {
        Ok(std::mem::take(&mut *self.lost.lock().unwrap()))
    }

    fn info(&self) -> SocketInfo {
        self.info.unwrap_or(SocketInfo {
            gso_asked: true,
            gso_segments: MAX_TRAIN_SEGMENTS,
            ..SocketInfo::plain(address(1))
        })
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}

fn address(port: u16) -> SocketAddr {
    SocketAddr::from(([192, 0, 2, 1], port))
}

fn client_config() -> ClientConfig {
    let trust = Trust::InsecureAcceptAnyRawKey;
    config::client(&trust, None, &Options::new("test")).unwrap()
}

fn alone(socket: &Fake) -> Shard<Fake> {
    Shard::new(socket.clone(), EndpointConfig::from_seed([3; 32]), None, ())
}

fn connect(shard: &Shard<Fake>, times: u16) {
    let config = client_config();
    let now = shard.clock().now();
    for port in 0..times {
        shard.handle().with(|endpoint, ()| {
            let remote = address(5000 + port);
            endpoint.connect(now, &config, remote, "localhost").unwrap();
            ((), Change::Made)
        });
    }
}

fn drive(shard: &mut Shard<Fake>) {
    let now = shard.clock().now();
    while shard.drive(now).unwrap().again {}
}

#[test]
fn packets_to_many_peers_share_a_call() {
    let socket = Fake::default();
    let mut shard = alone(&socket);
    connect(&shard, 50);
    drive(&mut shard);
    let calls = socket.calls.lock().unwrap().clone();
    let stats = shard.handle().socket_stats();
    assert_eq!(stats.trains_sent, 50, "the first packets for each peer");
    assert!(calls.len() <= 3, "{calls:?}");
    assert!(calls.iter().all(|trains| *trains <= MAX_SEND_BATCH));
    assert_eq!(stats.calls_sent, calls.len() as u64);
}

#[test]
fn a_single_peer_costs_no_batch() {
    let socket = Fake::default();
    let mut shard = alone(&socket);
    connect(&shard, 1);
    drive(&mut shard);
    assert_eq!(*socket.calls.lock().unwrap(), [1]);
    assert_eq!(shard.trains.len(), 2, "no more buffers than were looked at");
}

#[test]
fn a_client_whose_address_is_removed_goes_on_on_another_socket() {
    let socket = Fake::default();
    *socket.lost.lock().unwrap() = true;
    let mut shard = alone(&socket);
    connect(&shard, 1);
    drive(&mut shard);
    assert!(
        shard.take_rebound(),
        "the driver waits on another descriptor"
    );
    assert!(!shard.take_rebound());
    assert!(shard.handle().socket_stats().send_errors > 0);
    connect(&shard, 1);
    drive(&mut shard);
    assert!(
        !socket.calls.lock().unwrap().is_empty(),
        "what follows leaves"
    );
}

#[test]
fn a_socket_that_cannot_be_replaced_stays() {
    let socket = Fake::default();
    let mut shard = alone(&socket);
    let other = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    shard.handle().rebind(other);
    connect(&shard, 1);
    drive(&mut shard);
    assert!(!shard.take_rebound());
    assert!(!socket.calls.lock().unwrap().is_empty());
}

#[test]
fn notices_of_nothing_change_nothing_and_do_not_keep_a_turn() {
    let socket = Fake::default();
    let mut shard = alone(&socket);
    connect(&shard, 1);
    drive(&mut shard);
    assert!(!shard.take_heard());
    let notice = Notice::TooBig(TooBig {
        remote: address(5000),
        mtu: 1300,
        quoted: vec![0x40; 60],
    });
    *socket.notices.lock().unwrap() = [vec![notice; 1000], vec![Notice::Other; 1000]].concat();
    let now = shard.clock().now();
    let mut turns = 1;
    while shard.drive(now).unwrap().again {
        turns += 1;
    }
    assert!(turns < 100, "{turns}");
    assert!(shard.take_heard() && !shard.take_heard());
    let stats = shard.handle().socket_stats();
    assert_eq!((stats.too_big_told, stats.receive_errors), (1000, 0));
    assert_eq!(stats.trains_sent, 1);
}

// ---- several shards ----

/// A datagram with a short header and an ID of that shard's.
fn datagram(shard: u8, mark: u8) -> [u8; 50] {
    let mut bytes = [mark; 50];
    bytes[0] = 0x41;
    bytes[1] = shard;
    bytes
}

fn pair() -> (Vec<Shard<Fake>>, Fake) {
    let sockets = vec![Fake::default(), Fake::default()];
    let first = sockets[0].clone();
    let config = EndpointConfig::from_seed([4; 32]);
    (
        shard_group(sockets, config, None, &Clock::start(), |_| ()),
        first,
    )
}

fn unroutable(shard: &Shard<Fake>) -> u64 {
    shard
        .handle()
        .read(|endpoint, ()| endpoint.stats().unroutable)
}

#[derive(Default)]
struct Count(AtomicUsize);

impl Wake for Count {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn a_train_for_two_shards_is_shared_out_between_them() {
    let (mut shards, socket) = pair();
    let woken = Arc::new(Count::default());
    shards[1].set_waker(&Waker::from(Arc::clone(&woken)));
    let owners = [0, 0, 1, 1, 0, 1];
    let train: Vec<u8> = owners.iter().flat_map(|&o| datagram(o, o)).collect();
    socket.inbox.lock().unwrap().push_back((train, 50));
    drive(&mut shards[0]);
    assert_eq!(unroutable(&shards[0]), 3, "its own");
    assert_eq!(unroutable(&shards[1]), 0, "not before its turn");
    assert_eq!(woken.0.load(Ordering::Relaxed), 1);
    drive(&mut shards[1]);
    assert_eq!(unroutable(&shards[1]), 3);
    let stats = shards[0].handle().socket_stats();
    assert_eq!((stats.datagrams_handed_over, stats.hand_over_drops), (3, 0));
}

#[test]
fn a_shard_that_has_ended_leaves_its_datagrams_to_who_finds_them() {
    let (mut shards, socket) = pair();
    drop(shards.pop());
    let train: Vec<u8> = [1, 1, 0].iter().flat_map(|&o| datagram(o, 7)).collect();
    socket.inbox.lock().unwrap().push_back((train, 50));
    drive(&mut shards[0]);
    assert_eq!(unroutable(&shards[0]), 3);
    assert_eq!(shards[0].handle().socket_stats().datagrams_handed_over, 0);
}

#[test]
fn datagrams_of_another_process_are_dropped_without_an_answer() {
    let (mut shards, socket) = pair();
    drop(shards.pop());
    shards[0].join(Neighbours::elsewhere(0, 2));
    let owners = [0, 1, 1, 0, 1];
    let train: Vec<u8> = owners.iter().flat_map(|&o| datagram(o, o)).collect();
    socket.inbox.lock().unwrap().push_back((train, 50));
    drive(&mut shards[0]);
    assert_eq!(unroutable(&shards[0]), 2, "its own");
    let stats = shards[0].handle().socket_stats();
    assert_eq!((stats.datagrams_handed_over, stats.hand_over_drops), (0, 3));
}

/// So many trains of a thousand datagrams for shard 1.
fn flood(socket: &Fake, trains: u64) {
    let train: Vec<u8> = (0..1000).flat_map(|i| datagram(1, i as u8)).collect();
    let mut inbox = socket.inbox.lock().unwrap();
    inbox.extend((0..trains).map(|_| (train.clone(), 50)));
}

#[test]
fn a_flood_for_another_shard_is_bounded_in_memory() {
    let (mut shards, socket) = pair();
    let count = 40;
    flood(&socket, count);
    drive(&mut shards[0]);
    let stats = shards[0].handle().socket_stats();
    assert!(stats.hand_over_drops > 0);
    assert_eq!(
        stats.datagrams_handed_over + stats.hand_over_drops,
        1000 * count
    );
    let bytes = stats.datagrams_handed_over as usize * 50;
    let cap = crate::io::handle::MAX_MAIL_BYTES;
    assert!(bytes <= cap && bytes > cap * 9 / 10, "{bytes}");
    drive(&mut shards[1]);
    assert_eq!(unroutable(&shards[1]), stats.datagrams_handed_over);
    flood(&socket, 1);
    drive(&mut shards[0]);
    let after = shards[0].handle().socket_stats();
    assert_eq!(after.hand_over_drops, stats.hand_over_drops, "room again");
}

#[test]
fn datagrams_handed_over_are_handled_in_fair_turns() {
    let (mut shards, socket) = pair();
    flood(&socket, 18);
    drive(&mut shards[0]);
    let now = shards[1].clock().now();
    let mut handled = 0;
    loop {
        let turn = shards[1].drive(now).unwrap();
        let in_turn = unroutable(&shards[1]) - handled;
        handled += in_turn;
        // The last train of a turn may exceed the budget.
        assert!(in_turn < DATAGRAMS_PER_TURN as u64 + 1000, "{in_turn}");
        if !turn.again {
            break;
        }
    }
    assert_eq!(handled, 18_000);
}

#[test]
fn datagrams_left_for_a_later_turn_still_take_room_and_none_is_forgotten() {
    let (mut shards, socket) = pair();
    flood(&socket, 40);
    drive(&mut shards[0]);
    let now = shards[1].clock().now();
    assert!(shards[1].drive(now).unwrap().again);
    let handled = unroutable(&shards[1]);
    assert!(handled > 0);
    flood(&socket, 40);
    drive(&mut shards[0]);
    let handed_over = shards[0].handle().socket_stats().datagrams_handed_over;
    let waiting = (handed_over - handled) as usize * 50;
    let cap = crate::io::handle::MAX_MAIL_BYTES;
    assert!(waiting <= cap && waiting > cap * 9 / 10, "{waiting}");
    drive(&mut shards[1]);
    assert_eq!(unroutable(&shards[1]), handed_over);
}

#[test]
#[should_panic(expected = "at most 64 shards")]
fn more_shards_than_an_id_can_name_are_refused() {
    let sockets = vec![Fake::default(); MAX_SHARDS + 1];
    let _ = shard_group(
        sockets,
        EndpointConfig::from_seed([4; 32]),
        None,
        &Clock::start(),
        |_| (),
    );
}

#[test]
fn shards_differ_in_their_ids_and_share_their_keys() {
    let (shards, _) = pair();
    let config = client_config();
    let mut first_bytes = Vec::new();
    for shard in &shards {
        let now = shard.clock().now();
        let mut train = TrainBuf::new();
        shard.handle().with(|endpoint, ()| {
            endpoint
                .connect(now, &config, address(5), "localhost")
                .unwrap();
            endpoint.poll_transmit(now, &mut train).unwrap();
            ((), Change::None)
        });
        // RFC 9000 §17.2: first byte, version, destination ID, source ID.
        let dcid_len = usize::from(train.filled()[5]);
        let scid = &train.filled()[6 + dcid_len..];
        assert_eq!(scid[0], 8);
        first_bytes.push(scid[1]);
        assert_ne!(scid[2..9], [0; 7]);
    }
    assert_eq!(first_bytes, [0, 1]);
}

// ---- an unusable socket ----

/// Has someone to wake, once.
struct Waiter(Option<Waker>);

impl Dispatch for Waiter {
    fn dispatch(&mut self, _: &mut Endpoint, _: Time, wake: &mut Vec<Waker>) {
        wake.extend(self.0.take());
    }
}

#[test]
fn who_was_to_be_woken_is_woken_although_the_socket_fails() {
    for (recv_error, send_error) in [(Some(libc::EBADF), None), (None, Some(libc::EBADF))] {
        let socket = Fake {
            recv_error,
            send_error,
            ..Fake::default()
        };
        let woken = Arc::new(Count::default());
        let waiter = Waiter(Some(Waker::from(Arc::clone(&woken))));
        let mut shard = Shard::new(socket, EndpointConfig::from_seed([3; 32]), None, waiter);
        let now = shard.clock().now();
        shard.handle().with(|endpoint, _| {
            let connected = endpoint.connect(now, &client_config(), address(5), "localhost");
            (connected.unwrap(), Change::None)
        });
        let error = shard.drive(now).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EBADF));
        assert_eq!(woken.0.load(Ordering::Relaxed), 1);
    }
}

// ---- what a socket does without ----

#[test]
fn gso_refused_at_a_send_is_told_and_datagrams_go_on() {
    let socket = Fake {
        refuse_gso: true,
        ..Fake::default()
    };
    let mut shard = alone(&socket);
    // A client's first packets are a train of two datagrams.
    connect(&shard, 1);
    drive(&mut shard);
    assert_eq!(
        *socket.calls.lock().unwrap(),
        [2],
        "one by one, in one call"
    );
    let told: Vec<_> = shard.handle().socket_info().fallbacks().collect();
    assert_eq!(told, [Fallback::GsoRefused]);
    assert_eq!(shard.max_segments, 1);
    connect(&shard, 1);
    drive(&mut shard);
    let stats = shard.handle().socket_stats();
    assert_eq!((stats.datagrams_sent, stats.datagrams_dropped), (4, 0));
}

#[test]
fn a_datagram_too_big_for_the_path_is_told() {
    let socket = Fake {
        path_mtu: Some(1100),
        ..Fake::default()
    };
    let mut shard = alone(&socket);
    connect(&shard, 2);
    drive(&mut shard);
    let stats = shard.handle().socket_stats();
    assert_eq!((stats.too_big, stats.datagrams_sent), (4, 0));
    let told: Vec<_> = shard.handle().socket_info().fallbacks().collect();
    assert_eq!(told, [Fallback::DatagramTooBig(1200)]);
}

#[test]
fn a_connection_whose_datagrams_are_too_big_goes_on_with_smaller_ones() {
    let socket = Fake {
        path_mtu: Some(1300),
        ..Fake::default()
    };
    let mut shard = alone(&socket);
    let mut options = Options::new("test");
    options.transport = options.transport.mtu(1472);
    let config = config::client(&Trust::InsecureAcceptAnyRawKey, None, &options).unwrap();
    let start = shard.clock().now();
    shard.handle().with(|endpoint, ()| {
        let connected = endpoint.connect(start, &config, address(5000), "localhost");
        (connected.unwrap(), Change::Made)
    });
    drive(&mut shard);
    let stats = shard.handle().socket_stats();
    assert_eq!(stats.too_big, 1, "{stats:?}");
    // The rest of the hello, and at once all of it again, smaller.
    assert!(stats.datagrams_sent >= 3, "{stats:?}");
    drive(&mut shard);
    assert_eq!(shard.handle().socket_stats().too_big, 1);
}

#[test]
fn what_was_never_granted_is_told_from_the_start() {
    let mut info = SocketInfo::plain(address(1));
    info.gso_asked = true;
    info.gro_asked = true;
    info.steering_refused = true;
    info.may_fragment = true;
    info.recv_buffer.asked = 4096;
    info.send_buffer.asked = 4096;
    let mut shard = alone(&Fake {
        info: Some(info),
        ..Fake::default()
    });
    drive(&mut shard);
    let told: Vec<_> = shard.handle().socket_info().fallbacks().collect();
    assert_eq!(
        told,
        [
            // The fake takes trains whatever its description says.
            Fallback::GroUnavailable,
            Fallback::ReceiveBuffer(info.recv_buffer),
            Fallback::SendBuffer(info.send_buffer),
            Fallback::SteeringRefused,
            Fallback::MayFragment,
        ]
    );
    let read = shard.handle().read(|endpoint, ()| endpoint.may_fragment());
    assert!(read, "the engine looks for no larger packets");
}

#[test]
fn each_socket_warns_once_of_each_refusal() {
    let socket = Fake {
        path_mtu: Some(1100),
        ..Fake::default()
    };
    let warnings = Warnings::default();
    tracing::subscriber::with_default(warnings.clone(), || {
        for _ in 0..2 {
            let mut shard = alone(&socket);
            connect(&shard, 3);
            drive(&mut shard);
            connect(&shard, 3);
            drive(&mut shard);
            assert_eq!(shard.handle().socket_stats().too_big, 12);
        }
    });
    let warnings = warnings.0.load(Ordering::Relaxed);
    assert_eq!(warnings, 2, "once for each socket");
}

/// Counts warnings of `io`.
#[derive(Clone, Default)]
struct Warnings(Arc<AtomicUsize>);

impl tracing::Subscriber for Warnings {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        *metadata.level() == tracing::Level::WARN && metadata.target().starts_with("towline::io")
    }

    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        tracing::span::Id::from_u64(1)
    }

    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}

    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}

    fn event(&self, _: &tracing::Event<'_>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    fn enter(&self, _: &tracing::span::Id) {}

    fn exit(&self, _: &tracing::span::Id) {}
}
