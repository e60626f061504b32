//! What a protocol hears of the handles that it has streams given to, and what it may say.

mod common;

use std::net::SocketAddr;
use std::task::Waker;
use std::time::Duration;

use bytes::Bytes;
use common::options;
use towline::config::{self, ClientAuth, Identity, Trust};
use towline::engine::Event;
use towline::handles::{Half, Protocol, Turn};
use towline::io::Change;
use towline::testing::{LinkConfig, Simulation};
use towline::{
    Connection, ConnectionError, Direction, Endpoint, ReadError, ResetAtError, StreamId, WriteError,
};

/// Codes are so much more on the wire.
const SHIFT: u64 = 1000;

/// Lets so many bytes out, and notes what it hears.
#[derive(Default)]
struct Toll {
    allowance: Option<u64>,
    read: u64,
    over: Vec<(StreamId, Half)>,
    /// Somebody found nothing left of the allowance.
    asked_in_vain: Option<StreamId>,
}

impl Protocol for Toll {
    fn on_event(&mut self, _: &mut Turn<'_>, event: Event) -> Option<Event> {
        Some(match event {
            Event::Stopped { id, error_code } => {
                let error_code = self.code_for_handle(id, error_code);
                Event::Stopped { id, error_code }
            }
            other => other,
        })
    }

    fn send_allowance(&mut self, _: &mut Turn<'_>, id: StreamId) -> Option<u64> {
        if self.allowance == Some(0) {
            self.asked_in_vain = Some(id);
        }
        self.allowance
    }

    fn on_written(&mut self, _: StreamId, bytes: u64) {
        self.allowance = self.allowance.map(|left| left - bytes);
    }

    fn on_read(&mut self, _: &mut Turn<'_>, _: StreamId, bytes: u64) {
        self.read += bytes;
    }

    fn reset(
        &mut self,
        turn: &mut Turn<'_>,
        id: StreamId,
        code: u64,
        reliable_size: u64,
    ) -> Result<(), ResetAtError> {
        turn.connection.reset_at(id, code + SHIFT, reliable_size)
    }

    fn stop(&mut self, turn: &mut Turn<'_>, id: StreamId, code: u64) {
        turn.connection.stop(id, code + SHIFT);
    }

    fn code_for_handle(&self, _: StreamId, code: u64) -> u64 {
        code - SHIFT
    }

    fn on_half_over(&mut self, _: &mut Turn<'_>, id: StreamId, half: Half) {
        self.over.push((id, half));
    }

    fn on_end(&mut self, _: &ConnectionError, _: &mut Vec<Waker>) {}
}

/// Two ends with a toll each, 10 ms apart.
fn connected() -> (Simulation, Connection, Connection) {
    let identity = Identity::generate_raw_key().unwrap();
    let trust = Trust::RawKeys(vec![identity.key_pin()]);
    let server = config::server(&identity, &ClientAuth::None, &options()).unwrap();
    let toll = |_: &_| -> Box<dyn Protocol> { Box::new(Toll::default()) };
    let server = Endpoint::builder().server(server).protocol("test", toll);
    let client = Endpoint::builder().protocol("test", toll);
    let here = SocketAddr::from(([192, 0, 2, 1], 1000));
    let there = SocketAddr::from(([192, 0, 2, 2], 443));
    let link = LinkConfig {
        delay: Duration::from_millis(10),
        ..LinkConfig::default()
    };
    let mut world = Simulation::new(1);
    world.join(here, there, link.clone(), link).unwrap();
    let server = world.endpoint(server, there).unwrap();
    let client = world.endpoint(client, here).unwrap();
    let config = config::client(&trust, None, &options()).unwrap();
    let (near, far) = world.block_on(async move {
        let near = client.connect(there, "localhost", &config).await.unwrap();
        let far = server.door(b"test").unwrap().accept().await.unwrap();
        (near, far)
    });
    (world, near, far)
}

fn toll<R>(connection: &Connection, f: impl FnOnce(&mut Toll) -> R) -> R {
    connection
        .with_protocol(|own: &mut Toll, _| (f(own), Change::None))
        .unwrap()
}

#[test]
fn a_writer_waits_for_its_protocols_allowance_and_goes_on_when_there_is_more() {
    let (mut world, near, far) = connected();
    toll(&near, |own| own.allowance = Some(150));
    let tasks = world.tasks();
    world.block_on(async move {
        let mut send = near.open_uni().await.unwrap();
        let id = send.id();
        let mut chunks = [1, 2].map(|byte| Bytes::from(vec![byte; 100]));
        let written = send.write_chunks(&mut chunks).await.unwrap();
        assert_eq!((written.bytes, written.chunks), (150, 1));
        assert!(send.try_write(&[2; 50]).is_pending());
        let (near_too, sleep) = (near.clone(), tasks.clone());
        tasks.spawn(async move {
            sleep.sleep(Duration::from_secs(1)).await;
            let more = |own: &mut Toll, turn: Option<&mut Turn<'_>>| {
                own.allowance = Some(30);
                turn.unwrap().call_handles(id);
                ((), Change::Made)
            };
            near_too.with_protocol(more).unwrap();
        });
        assert_eq!(send.write(&[2; 50]).await.unwrap(), 30);
        assert_eq!(toll(&near, |own| own.asked_in_vain), Some(id));
        toll(&near, |own| own.allowance = None);
        send.write_all(&[2; 20]).await.unwrap();
        send.finish().unwrap();

        let mut recv = far.accept_uni().await.unwrap();
        let mut chunks = [Bytes::new(), Bytes::new(), Bytes::new()];
        let mut all = Vec::new();
        while let Some(filled) = recv.read_chunks(&mut chunks).await.unwrap() {
            chunks[..filled]
                .iter()
                .for_each(|c| all.extend_from_slice(c));
        }
        assert_eq!(all, [[1; 100].as_slice(), &[2; 100]].concat());
        assert_eq!(toll(&far, |own| own.read), 200);
    });
}

#[test]
fn codes_have_the_protocols_form_on_the_wire_and_the_applications_in_handles() {
    let (mut world, near, far) = connected();
    let tasks = world.tasks();
    world.block_on(async move {
        let pause = || tasks.sleep(Duration::from_millis(100));
        // Found by a read, and by who asks for it.
        for asks in [false, true] {
            let (mut send, mut back) = near.open_bi().await.unwrap();
            send.write_all(b"ahoy").await.unwrap();
            let (mut answer, mut recv) = far.accept_bi().await.unwrap();
            send.reset(7);
            back.stop(8);
            if asks {
                assert_eq!(recv.received_reset().await.unwrap(), Some(7));
                assert_eq!(answer.stopped().await.unwrap(), Some(8));
            }
            pause().await;
            assert_eq!(recv.read_chunk(9).await, Err(ReadError::Reset(7)));
            let refused = answer.write(b"no").await.unwrap_err();
            assert_eq!(refused, WriteError::Stopped(8));
            assert_eq!(answer.stopped().await.unwrap(), Some(8));
        }
        // What is dropped has code 0.
        let (mut send, back) = near.open_bi().await.unwrap();
        send.write_all(b"ahoy").await.unwrap();
        let (mut answer, mut recv) = far.accept_bi().await.unwrap();
        drop((send, back));
        assert_eq!(recv.received_reset().await.unwrap(), Some(0));
        assert_eq!(answer.stopped().await.unwrap(), Some(0));
        // So many bytes arrive all the same.
        let mut send = near.open_uni().await.unwrap();
        send.write_all(b"ahoy").await.unwrap();
        send.reset_at(9, 2).unwrap();
        let mut recv = far.accept_uni().await.unwrap();
        let mut read = Vec::new();
        let code = loop {
            match recv.read_chunk(9).await {
                Ok(chunk) => read.extend_from_slice(&chunk.unwrap()),
                Err(ReadError::Reset(code)) => break code,
                Err(other) => panic!("{other}"),
            }
        };
        assert!(read.starts_with(b"ah") && code == 9, "{read:?} {code}");
    });
}

#[test]
fn each_half_is_over_once_however_it_ends() {
    use Half::{Receiving, Sending};
    let (mut world, near, far) = connected();
    let tasks = world.tasks();
    world.block_on(async move {
        let take = |of: &Connection| {
            let mut over = toll(of, |own| std::mem::take(&mut own.over));
            over.sort_by_key(|(id, half)| (*id, *half == Receiving));
            over.into_iter().map(|(_, half)| half).collect::<Vec<_>>()
        };
        // To the end, both ways.
        let (mut send, mut back) = near.open_bi().await.unwrap();
        send.write_all(b"ahoy").await.unwrap();
        send.finish().unwrap();
        assert_eq!(take(&near), [Sending]);
        let (mut answer, mut recv) = far.accept_bi().await.unwrap();
        assert_eq!(recv.read_to_end(9).await.unwrap(), b"ahoy");
        assert_eq!(take(&far), [Receiving]);
        answer.finished().await.unwrap();
        assert_eq!(back.read_chunk(9).await.unwrap(), None);
        send.reset(1);
        back.stop(1);
        drop((send, back, answer, recv));
        assert_eq!(take(&near), [Receiving]);
        assert_eq!(take(&far), [Sending]);
        // Given up, and found to be.
        let (mut send, mut back) = near.open_bi().await.unwrap();
        send.write_all(b"ahoy").await.unwrap();
        let (answer, mut recv) = far.accept_bi().await.unwrap();
        send.reset_at(3, 4).unwrap();
        send.reset(3);
        back.stop(4);
        assert_eq!(take(&near), [Sending, Receiving]);
        tasks.sleep(Duration::from_millis(100)).await;
        while recv.read_chunk(9).await.is_ok() {}
        drop((recv, answer));
        assert_eq!(take(&far), [Sending, Receiving]);
        drop((send, back));
        assert_eq!(take(&near), []);
        // Dropped.
        let (mut send, back) = near.open_bi().await.unwrap();
        send.write_all(b"ahoy").await.unwrap();
        let (answer, recv) = far.accept_bi().await.unwrap();
        drop((send, back));
        assert_eq!(take(&near), [Sending, Receiving]);
        drop((answer, recv));
        assert_eq!(take(&far), [Sending, Receiving]);
    });
}

#[test]
fn a_stop_before_the_handle_that_is_expected_is_kept_for_it() {
    let (mut world, near, far) = connected();
    let tasks = world.tasks();
    world.block_on(async move {
        let (mut send, mut back) = near.open_bi().await.unwrap();
        send.write_all(b"ahoy").await.unwrap();
        tasks.sleep(Duration::from_millis(100)).await;
        let found = |_: &mut Toll, turn: Option<&mut Turn<'_>>| {
            let turn = turn.unwrap();
            let id = turn.connection.accept(Direction::Bidirectional).unwrap();
            turn.expect_handle(id);
            (id, Change::None)
        };
        let id = far.with_protocol(found).unwrap();
        back.stop(8);
        tasks.sleep(Duration::from_millis(100)).await;
        assert_eq!(far.adopt_send(id, None).stopped().await.unwrap(), Some(8));
    });
}
