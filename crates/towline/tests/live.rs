//! Resets that are waited for, room for datagrams, limits changed while a connection runs, and a congestion
//! controller of one's own: over the loopback interface, and in virtual time.

mod common;

use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use common::{configs, loopback, options, within};
use towline::config::{self, ClientAuth, ControllerFactory, Identity, Options, Trust};
use towline::engine::Algorithm;
use towline::engine::congestion::{
    AckSample, CongestionController, Handover, LeastAckRate, LossSample,
};
use towline::testing::{LinkConfig, Simulation, Tasks};
use towline::{Connection, ConnectionError, Endpoint, ReadError, SendDatagramError, Time};

/// A client and a server with one connection between them; `near` is the client's end.
struct Pair {
    near: Connection,
    far: Connection,
    _endpoints: (Endpoint, Endpoint),
}

impl Pair {
    async fn new(near: &Options, far: &Options) -> Self {
        let (mut client, mut server) = configs(near);
        client.transport = Arc::new(near.transport.clone());
        server.transport = Arc::new(far.transport.clone());
        let server = Endpoint::server(loopback(), server).unwrap();
        let endpoint = Endpoint::client(loopback()).unwrap();
        let connect = endpoint.connect(server.local_addr(), "localhost", &client);
        let (near, far) = within(async { tokio::join!(connect, server.accept()) }).await;
        Self {
            near: near.unwrap(),
            far: far.unwrap(),
            _endpoints: (endpoint, server),
        }
    }

    async fn plain() -> Self {
        Self::new(&options(), &options()).await
    }
}

#[tokio::test]
async fn a_reset_wakes_who_waits_for_it_and_has_read_nothing() {
    let pair = Pair::plain().await;
    let mut send = pair.near.open_uni().await.unwrap();
    send.write_all(b"half a mess").await.unwrap();
    let mut recv = within(pair.far.accept_uni()).await.unwrap();
    let waiting = tokio::spawn(async move { (recv.received_reset().await, recv) });
    send.write_all(b"age").await.unwrap();
    send.reset(9);
    let (code, mut recv) = within(waiting).await.unwrap();
    assert_eq!(code, Ok(Some(9)));
    // The same for whoever asks later, and for a read.
    assert_eq!(recv.received_reset().await, Ok(Some(9)));
    assert_eq!(recv.read(&mut [0; 4]).await, Err(ReadError::Reset(9)));
}

#[tokio::test]
async fn what_arrived_can_be_read_when_its_sender_has_left_and_goes_when_nobody_wants_it() {
    for reads in [true, false] {
        let pair = Pair::plain().await;
        let server = &pair._endpoints.1;
        let held = || server.shard_stats()[0].engine.memory;
        let mut send = pair.near.open_uni().await.unwrap();
        send.write_all(&[7; 60_000]).await.unwrap();
        send.finish().unwrap();
        within(send.finished()).await.unwrap();
        pair.near.close(0, b"sent");
        let gone = within(pair.far.closed()).await;
        within(server.wait_idle()).await;
        assert!(held() > 60_000, "{}", held());
        let mut recv = within(pair.far.accept_uni()).await.unwrap();
        if reads {
            let whole = within(recv.read_to_end(60_000)).await.unwrap();
            assert_eq!(whole, [7; 60_000]);
            assert_eq!(pair.far.accept_uni().await.err(), Some(gone));
        }
        // The connection's handle is still there, and keeps nothing that cannot be read.
        drop(recv);
        assert_eq!(held(), 0);
    }
}

#[tokio::test]
async fn a_connection_that_nobody_reads_goes_with_its_last_handle() {
    let pair = Pair::plain().await;
    let (near, far) = (pair.near, pair.far);
    let server = pair._endpoints.1;
    let mut send = near.open_uni().await.unwrap();
    send.write_all(&[7; 60_000]).await.unwrap();
    send.finish().unwrap();
    within(send.finished()).await.unwrap();
    near.close(0, b"sent");
    within(server.wait_idle()).await;
    assert!(server.shard_stats()[0].engine.memory > 60_000);
    drop(far);
    assert_eq!(server.shard_stats()[0].engine.memory, 0);
}

#[tokio::test]
async fn a_reset_met_by_a_read_is_told_again() {
    let pair = Pair::plain().await;
    let mut send = pair.near.open_uni().await.unwrap();
    send.write_all(b"x").await.unwrap();
    let mut recv = within(pair.far.accept_uni()).await.unwrap();
    send.reset(4);
    while within(recv.read(&mut [0; 4])).await.is_ok() {}
    assert_eq!(recv.received_reset().await, Ok(Some(4)));
}

#[tokio::test]
async fn no_reset_comes_where_all_data_is_here_and_it_can_still_be_read() {
    let pair = Pair::plain().await;
    let mut send = pair.near.open_uni().await.unwrap();
    send.write_all(b"a whole message").await.unwrap();
    let mut recv = within(pair.far.accept_uni()).await.unwrap();
    let waiting = tokio::spawn(async move { (recv.received_reset().await, recv) });
    send.finish().unwrap();
    // A finished stream goes on without its handle.
    drop(send);
    let (code, mut recv) = within(waiting).await.unwrap();
    assert_eq!(code, Ok(None));
    assert_eq!(recv.read_to_end(100).await.unwrap(), b"a whole message");
    assert_eq!(recv.received_reset().await, Ok(None));
}

#[tokio::test]
async fn a_wait_for_a_reset_ends_with_a_stop_or_with_the_connection() {
    let pair = Pair::plain().await;
    let mut send = pair.near.open_uni().await.unwrap();
    send.write_all(b"x").await.unwrap();
    let mut stopped = within(pair.far.accept_uni()).await.unwrap();
    stopped.stop(3);
    assert_eq!(stopped.received_reset().await, Ok(None));
    let mut other = pair.near.open_uni().await.unwrap();
    other.write_all(b"x").await.unwrap();
    let mut recv = within(pair.far.accept_uni()).await.unwrap();
    let waiting = tokio::spawn(async move { recv.received_reset().await });
    pair.near.close(8, b"done");
    let error = within(waiting).await.unwrap().unwrap_err();
    assert!(matches!(error, ConnectionError::ClosedByPeer(_)), "{error}");
}

#[tokio::test]
async fn who_gave_up_waiting_for_a_reset_lost_nothing() {
    let pair = Pair::plain().await;
    let mut send = pair.near.open_uni().await.unwrap();
    send.write_all(b"whole").await.unwrap();
    let mut recv = within(pair.far.accept_uni()).await.unwrap();
    for _ in 0..3 {
        let cx = &mut Context::from_waker(Waker::noop());
        assert!(pin!(recv.received_reset()).poll(cx).is_pending());
    }
    send.finish().unwrap();
    assert_eq!(within(recv.read_to_end(100)).await.unwrap(), b"whole");
}

#[tokio::test]
async fn the_room_for_datagrams_is_what_can_be_queued() {
    let mut narrow = options();
    narrow.transport.datagram_send_buffer = 3000;
    let pair = Pair::new(&narrow, &options()).await;
    assert_eq!(pair.near.datagram_send_buffer_space(), 3000);
    // The driver has its turn when this task waits.
    pair.near.send_datagram(Bytes::from(vec![1; 1000])).unwrap();
    pair.near.send_datagram(Bytes::from(vec![2; 1100])).unwrap();
    assert_eq!(pair.near.datagram_send_buffer_space(), 900);
    let refused = pair.near.send_datagram(Bytes::from(vec![3; 901]));
    assert_eq!(refused, Err(SendDatagramError::Full));
    pair.near.send_datagram(Bytes::from(vec![4; 900])).unwrap();
    assert_eq!(pair.near.datagram_send_buffer_space(), 0);
    for first in [1, 2, 4] {
        assert_eq!(within(pair.far.read_datagram()).await.unwrap()[0], first);
    }
    assert_eq!(pair.near.datagram_send_buffer_space(), 3000);
    pair.far.close(0, b"");
    within(pair.near.closed()).await;
    assert_eq!(pair.near.datagram_send_buffer_space(), 0);
}

#[tokio::test]
async fn there_is_no_room_for_datagrams_that_the_peer_does_not_take() {
    let mut none = options();
    none.transport.max_datagram_frame_size = None;
    let pair = Pair::new(&options(), &none).await;
    assert_eq!(pair.near.datagram_send_buffer_space(), 0);
    assert!(pair.far.datagram_send_buffer_space() > 0);
}

#[tokio::test]
async fn a_task_that_waits_for_a_stream_goes_on_when_more_are_permitted() {
    let mut few = options();
    few.transport.max_concurrent_uni_streams = 1;
    few.transport.max_concurrent_bidi_streams = 0;
    let pair = Pair::new(&options(), &few).await;
    let _first = pair.near.open_uni().await.unwrap();
    assert!(pair.near.try_open_uni().is_pending());
    assert!(pair.near.try_open_bi().is_pending());
    let near = pair.near.clone();
    let second = tokio::spawn(async move { near.open_uni().await });
    let near = pair.near.clone();
    let third = tokio::spawn(async move { near.open_bi().await });
    tokio::task::yield_now().await;
    pair.far.set_max_concurrent_uni_streams(2);
    pair.far.set_max_concurrent_bidi_streams(1);
    let _second = within(second).await.unwrap().unwrap();
    let _third = within(third).await.unwrap().unwrap();
    assert!(pair.near.try_open_uni().is_pending());
    assert!(pair.near.try_open_bi().is_pending());
}

#[tokio::test]
async fn writers_go_on_when_either_end_widens_its_window() {
    let (mut near, mut far) = (options(), options());
    near.transport.send_buffer = 10_000;
    far.transport.receive_window = 1_000;
    far.transport.max_receive_window = 1_000;
    let pair = Pair::new(&near, &far).await;
    let mut send = pair.near.open_uni().await.unwrap();
    let data = vec![7; 100_000];
    let Poll::Ready(Ok(10_000)) = send.try_write(&data) else {
        panic!("as much as the send buffer holds");
    };
    assert!(send.try_write(&data).is_pending());
    pair.near.set_send_window(30_000);
    let Poll::Ready(Ok(20_000)) = send.try_write(&data) else {
        panic!("as much as there is more");
    };
    assert!(send.try_write(&data).is_pending());
    let mut recv = within(pair.far.accept_uni()).await.unwrap();
    let writing = tokio::spawn(async move {
        send.write_all(&data[30_000..]).await.unwrap();
        send.finish().unwrap();
        send
    });
    // Nobody reads yet: what arrives from here on is the larger window's.
    pair.far.set_receive_window(1 << 20);
    within(writing).await.unwrap();
    assert_eq!(recv.read_to_end(100_000).await.unwrap(), [7; 100_000]);
}

// ---- in virtual time ----

const NEAR: ([u8; 4], u16) = ([192, 0, 2, 1], 1000);
const FAR: ([u8; 4], u16) = ([192, 0, 2, 2], 443);
const DELAY: Duration = Duration::from_millis(50);

/// The two ends of a connection in a world whose links take [`DELAY`] each way.
struct Ends {
    near: Connection,
    far: Connection,
    endpoint: Endpoint,
    tasks: Tasks,
}

impl Ends {
    /// Waits until nothing is under way, and says when that is.
    async fn settle(&self) -> Time {
        self.tasks.sleep(Duration::from_secs(1)).await;
        self.endpoint.now()
    }

    fn since(&self, began: Time) -> Duration {
        self.endpoint.now().saturating_duration_since(began)
    }
}

fn in_virtual_time<F>(far: &Options, program: impl FnOnce(Ends) -> F)
where
    F: Future<Output = ()> + 'static,
{
    let identity = Identity::generate_raw_key().unwrap();
    let trust = Trust::RawKeys(vec![identity.key_pin()]);
    let client = config::client(&trust, None, &options()).unwrap();
    let server = config::server(&identity, &ClientAuth::None, far).unwrap();
    let (here, there) = (SocketAddr::from(NEAR), SocketAddr::from(FAR));
    let mut world = Simulation::new(1);
    let link = LinkConfig {
        delay: DELAY,
        ..LinkConfig::default()
    };
    world.join(here, there, link.clone(), link).unwrap();
    let server = world.endpoint(Endpoint::builder().server(server), there);
    let server = server.unwrap();
    let endpoint = world.endpoint(Endpoint::builder(), here).unwrap();
    let tasks = world.tasks();
    let ends = world.block_on(async move {
        let near = endpoint.connect(there, "localhost", &client).await;
        Ends {
            near: near.unwrap(),
            far: server.accept().await.unwrap(),
            endpoint,
            tasks,
        }
    });
    world.block_on(program(ends));
}

#[test]
fn a_reset_is_known_one_way_later() {
    in_virtual_time(&options(), |ends| async move {
        let mut send = ends.near.open_uni().await.unwrap();
        send.write_all(&[7; 5000]).await.unwrap();
        let mut recv = ends.far.accept_uni().await.unwrap();
        let began = ends.settle().await;
        send.reset(12);
        assert_eq!(recv.received_reset().await, Ok(Some(12)));
        assert_eq!(ends.since(began), DELAY);
    });
}

#[test]
fn more_streams_can_be_opened_one_way_later() {
    let mut one = options();
    one.transport.max_concurrent_uni_streams = 1;
    in_virtual_time(&one, |ends| async move {
        let _first = ends.near.open_uni().await.unwrap();
        assert!(ends.near.try_open_uni().is_pending());
        let began = ends.settle().await;
        ends.far.set_max_concurrent_uni_streams(2);
        let _second = ends.near.open_uni().await.unwrap();
        assert_eq!(ends.since(began), DELAY);
        // Fewer permit no other one until both are gone.
        ends.far.set_max_concurrent_uni_streams(0);
        ends.settle().await;
        assert!(ends.near.try_open_uni().is_pending());
    });
}

#[test]
fn a_larger_window_is_filled_one_round_trip_later() {
    let mut narrow = options();
    narrow.transport.receive_window = 1000;
    narrow.transport.max_receive_window = 1000;
    in_virtual_time(&narrow, |ends| async move {
        let mut send = ends.near.open_uni().await.unwrap();
        send.write_all(&[7; 6000]).await.unwrap();
        let mut recv = ends.far.accept_uni().await.unwrap();
        let began = ends.settle().await;
        ends.far.set_receive_window(10_000);
        let mut first = [0; 6000];
        recv.read_exact(&mut first).await.unwrap();
        let took = ends.since(began);
        assert!(took >= 2 * DELAY && took < 3 * DELAY, "{took:?}");
    });
}

#[test]
fn a_slow_reader_loses_nothing_when_its_peer_has_left() {
    in_virtual_time(&options(), |ends| async move {
        let mut send = ends.near.open_uni().await.unwrap();
        send.write_all(&[7; 6000]).await.unwrap();
        send.finish().unwrap();
        send.finished().await.unwrap();
        ends.near.close(0, b"sent");
        // Nobody has accepted the stream yet, and the connection is long gone.
        let gone = ends.far.closed().await;
        ends.tasks.sleep(Duration::from_secs(60)).await;
        let mut recv = ends.far.accept_uni().await.unwrap();
        assert_eq!(recv.read_to_end(6000).await.unwrap(), [7; 6000]);
        assert_eq!(ends.far.accept_uni().await.unwrap_err(), gone);
        assert!(ends.far.open_uni().await.is_err());
    });
}

#[test]
fn datagrams_that_left_make_room_at_once() {
    in_virtual_time(&options(), |ends| async move {
        let all = ends.near.datagram_send_buffer_space();
        ends.near.send_datagram(Bytes::from(vec![7; 500])).unwrap();
        assert_eq!(ends.near.datagram_send_buffer_space(), all - 500);
        let began = ends.settle().await;
        assert_eq!(ends.near.datagram_send_buffer_space(), all);
        assert_eq!(ends.far.read_datagram().await.unwrap().len(), 500);
        assert_eq!(ends.since(began), Duration::ZERO, "it was there");
    });
}

/// Five datagrams a round trip, whatever happens.
#[derive(Debug)]
struct Fixed {
    window: u64,
}

impl ControllerFactory for Fixed {
    fn controller(&self, _: u16) -> Box<dyn CongestionController + Send> {
        Box::new(Self { ..*self })
    }
}

impl CongestionController for Fixed {
    fn on_ack(&mut self, _: &AckSample) -> bool {
        false
    }

    fn on_lost(&mut self, _: &LossSample<'_>) -> bool {
        false
    }

    fn on_persistent_congestion(&mut self, _: Time) {}
    fn on_max_datagram_size(&mut self, _: u16, _: bool) {}
    fn on_path_change(&mut self, _: Time, _: u16) {}
    fn take_over(&mut self, _: &Handover) {}

    fn window(&self) -> u64 {
        self.window
    }

    fn ssthresh(&self) -> Option<u64> {
        Some(self.window)
    }

    fn recovery_start(&self) -> Option<Time> {
        None
    }

    fn least_ack_rate(&self) -> LeastAckRate {
        LeastAckRate { per_round: 1 }
    }
}

/// How long 60 kB take, from a sender whose controller is an application's own.
fn sixty_kilobytes_take(change: impl Fn(&Connection) + 'static) -> Duration {
    let mut own = options();
    own.transport.controller = Some(Arc::new(Fixed { window: 6000 }));
    own.transport.pacing = false;
    let (told, took) = std::sync::mpsc::channel();
    in_virtual_time(&own, |ends| async move {
        let began = ends.settle().await;
        change(&ends.far);
        let mut send = ends.far.open_uni().await.unwrap();
        send.write_all(&[7; 60_000]).await.unwrap();
        send.finish().unwrap();
        let mut recv = ends.near.accept_uni().await.unwrap();
        assert_eq!(recv.read_to_end(60_000).await.unwrap().len(), 60_000);
        told.send(ends.since(began)).unwrap();
    });
    took.recv().unwrap()
}

#[test]
fn a_controller_of_the_applications_own_decides_about_the_window() {
    let round_trip = 2 * DELAY;
    let own = sixty_kilobytes_take(|_| ());
    assert!(own > 9 * round_trip && own < 13 * round_trip, "{own:?}");
    // One that grows takes over at the same window.
    let replaced = sixty_kilobytes_take(|far| far.set_congestion(Algorithm::Cubic));
    assert!(replaced < 9 * round_trip, "{replaced:?}");
}
