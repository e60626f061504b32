//! A client as Safari 26.4 is one: it offers draft-07 and draft-14 together, and once draft-14 is
//! chosen it sends no byte and opens no stream without the server's credit.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use towline::http3::SettingId;
use towline::webtransport::{Config, Connection, Dialect, Dialects, Error, Session};

use crate::world::World;

/// What the server permits a session.
const BYTES: u64 = 30_000;
const STREAMS: u64 = 2;

/// Safari and a server that gives sessions so much room.
fn safari(bytes: u64, streams: u64) -> World {
    let mut client = Config::default();
    client.sessions.dialects = Dialects::of(&[Dialect::Draft07, Dialect::Draft14]);
    let mut server = Config::default();
    server.sessions.initial_max_data = bytes;
    server.sessions.initial_max_streams_bidi = streams;
    server.sessions.initial_max_streams_uni = streams;
    World::with(client, server)
}

/// Both ends have chosen draft-14, although draft-07 was offered with it.
fn assert_draft_14(near: &Session, far: &Session, connection: &Connection) {
    assert_eq!(
        (near.dialect(), far.dialect()),
        (Dialect::Draft14, Dialect::Draft14)
    );
    let offered = connection.http().peer_settings().expect("settings came");
    let says = |id| offered.get(id).unwrap_or(0);
    assert!(says(SettingId::WEBTRANSPORT_MAX_SESSIONS_DRAFT07) > 0);
    assert!(says(SettingId::WT_MAX_SESSIONS_DRAFT14) > 0);
    assert!(says(SettingId::WT_INITIAL_MAX_DATA) > 0);
    assert_eq!(says(SettingId::ENABLE_WEBTRANSPORT_DRAFT02), 0);
    assert_eq!(says(SettingId::WT_ENABLED), 0);
}

/// Writes ten times what the limit permits, on one stream; says how much was taken so far.
fn uploads(world: &World, session: &Session) -> Rc<Cell<u64>> {
    let written = Rc::new(Cell::new(0));
    let (count, session) = (Rc::clone(&written), session.clone());
    world.world.tasks().spawn(async move {
        let mut send = session.open_uni().await.unwrap();
        while count.get() < 10 * BYTES {
            let left = usize::try_from(10 * BYTES - count.get()).unwrap();
            let len = send.write(&[7; 1_000][..left.min(1_000)]).await.unwrap();
            count.set(count.get() + len as u64);
        }
        send.finish().unwrap();
    });
    written
}

#[test]
fn safari_stalls_at_the_sessions_limit_on_bytes_and_goes_on_as_the_application_reads() {
    let mut world = safari(BYTES, STREAMS);
    let (near, far, connection) = world.session();
    assert_draft_14(&near, &far, &connection);
    let written = uploads(&world, &near);
    world.world.run_for(Duration::from_secs(10));
    assert_eq!(
        written.get(),
        BYTES,
        "it waits for the application, not for time"
    );
    // A datagram needs no credit.
    near.send_datagram(Bytes::from_static(b"still here"))
        .unwrap();
    let (tasks, progress) = (world.world.tasks(), Rc::clone(&written));
    world.run(async move {
        assert_eq!(far.read_datagram().await.unwrap(), "still here");
        let mut recv = far.accept_uni().await.unwrap();
        let mut read = 0;
        while read < 10 * BYTES {
            let chunk = recv.read_chunk(5_000).await.unwrap().unwrap();
            read += chunk.len() as u64;
            tasks.sleep(Duration::from_millis(50)).await;
            // Never more than the limit ahead of what was read.
            assert!(
                progress.get() <= read + BYTES,
                "{} of {read}",
                progress.get()
            );
        }
        assert_eq!(recv.read_chunk(1).await.unwrap(), None);
    });
    assert_eq!(written.get(), 10 * BYTES);
}

#[test]
fn safari_opens_streams_of_both_kinds_as_others_are_over() {
    let mut world = safari(BYTES, STREAMS);
    let (near, far, connection) = world.session();
    assert_draft_14(&near, &far, &connection);
    let tasks = world.world.tasks();
    world.run(async move {
        let first = [near.open_bi().await.unwrap(), near.open_bi().await.unwrap()];
        let uni = [
            near.open_uni().await.unwrap(),
            near.open_uni().await.unwrap(),
        ];
        assert!(near.try_open_bi().is_pending());
        assert!(near.try_open_uni().is_pending());
        tasks.sleep(Duration::from_secs(10)).await;
        assert!(
            near.try_open_bi().is_pending(),
            "time alone permits nothing"
        );
        for (mut send, mut recv) in first {
            send.write_all(b"question").await.unwrap();
            send.finish().unwrap();
            let (mut answer, mut question) = far.accept_bi().await.unwrap();
            assert_eq!(question.read_to_end(100).await.unwrap(), b"question");
            answer.write_all(b"answer").await.unwrap();
            answer.finish().unwrap();
            assert_eq!(recv.read_to_end(100).await.unwrap(), b"answer");
        }
        for mut send in uni {
            send.write_all(b"one way").await.unwrap();
            send.finish().unwrap();
            let mut recv = far.accept_uni().await.unwrap();
            assert_eq!(recv.read_to_end(100).await.unwrap(), b"one way");
        }
        // Each that is over makes room for another, many times.
        for turn in 0..20 {
            let (mut send, _recv) = near.open_bi().await.unwrap();
            send.write_all(&[turn]).await.unwrap();
            let mut uni = near.open_uni().await.unwrap();
            uni.write_all(&[turn]).await.unwrap();
            drop((
                far.accept_bi().await.unwrap(),
                far.accept_uni().await.unwrap(),
            ));
        }
    });
}

#[test]
fn streams_and_datagrams_of_a_server_reach_safari_and_each_end_can_close() {
    for by_client in [true, false] {
        let mut world = safari(BYTES, STREAMS);
        let (near, far, connection) = world.session();
        assert_draft_14(&near, &far, &connection);
        world.run(async move {
            let (mut send, mut recv) = far.open_bi().await.unwrap();
            send.write_all(&[1; 100_000]).await.unwrap();
            send.finish().unwrap();
            let (mut answer, mut question) = near.accept_bi().await.unwrap();
            assert_eq!(question.read_to_end(1 << 20).await.unwrap().len(), 100_000);
            answer.write_all(b"got it").await.unwrap();
            answer.finish().unwrap();
            assert_eq!(recv.read_to_end(100).await.unwrap(), b"got it");
            let mut uni = far.open_uni().await.unwrap();
            uni.write_all(b"news").await.unwrap();
            uni.finish().unwrap();
            let mut news = near.accept_uni().await.unwrap();
            assert_eq!(news.read_to_end(100).await.unwrap(), b"news");
            far.send_datagram(Bytes::from_static(b"tick")).unwrap();
            assert_eq!(near.read_datagram().await.unwrap(), "tick");

            let (closer, other) = if by_client { (near, far) } else { (far, near) };
            closer.close(4711, "no more wind");
            let end = Error::Closed {
                code: 4711,
                reason: "no more wind".to_owned(),
                by_peer: true,
            };
            assert_eq!(other.closed().await, end);
        });
    }
}

/// What happens to a server that names draft-14 and never gives credit.
#[test]
fn safari_sends_nothing_to_a_server_without_credit() {
    let mut world = safari(0, STREAMS);
    let (near, far, connection) = world.session();
    assert_draft_14(&near, &far, &connection);
    let written = uploads(&world, &near);
    world.world.run_for(Duration::from_secs(60));
    assert_eq!(written.get(), 0);
    near.send_datagram(Bytes::from_static(b"tick")).unwrap();
    world.run(async move {
        assert_eq!(far.read_datagram().await.unwrap(), "tick");
        // The stream is there, and empty.
        let mut recv = far.accept_uni().await.unwrap();
        assert!(recv.try_read_chunk(1).is_pending());
    });
}
