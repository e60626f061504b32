//! What a session may send and open, and what waits of it.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use towline::SendDatagramError;
use towline::webtransport::{Config, Session};
use towline::{ReadError, WriteError};

use crate::world::World;

/// Both ends permit their peer so much.
fn limited(data: u64, streams: u64) -> World {
    let mut config = Config::default();
    config.sessions.initial_max_data = data;
    config.sessions.initial_max_streams_bidi = streams;
    config.sessions.initial_max_streams_uni = streams;
    World::with(config.clone(), config)
}

#[test]
fn a_session_stalls_at_its_limit_on_bytes_and_goes_on_as_the_peer_reads() {
    let mut world = limited(50_000, 10);
    let (near, far, _connection) = world.session();
    for (a, b) in [(near.clone(), far.clone()), (far, near)] {
        let written = Rc::new(Cell::new(0));
        let count = Rc::clone(&written);
        let sender = a.clone();
        world.world.tasks().spawn(async move {
            let mut streams = [
                sender.open_uni().await.unwrap(),
                sender.open_uni().await.unwrap(),
            ];
            for turn in 0..200 {
                let stream = &mut streams[turn % 2];
                stream.write_all(&[turn as u8; 5_000]).await.unwrap();
                count.set(count.get() + 5_000);
            }
            for mut stream in streams {
                stream.finish().unwrap();
                stream.finished().await.unwrap();
            }
        });
        world.world.run_for(Duration::from_secs(5));
        assert_eq!(written.get(), 50_000, "the limit of both streams together");
        let (tasks, b) = (world.world.tasks(), b.clone());
        let read = world.run(async move {
            let mut recv = b.accept_uni().await.unwrap();
            let mut other = b.accept_uni().await.unwrap();
            let (first, second) =
                tokio::join!(recv.read_to_end(1 << 20), other.read_to_end(1 << 20));
            tasks.sleep(Duration::from_millis(50)).await;
            first.unwrap().len() + second.unwrap().len()
        });
        assert_eq!((read, written.get()), (1_000_000, 1_000_000));
    }
}

#[test]
fn a_session_opens_no_more_streams_than_permitted_and_gets_each_back_that_is_over() {
    let mut world = limited(1 << 20, 3);
    let (near, far, _connection) = world.session();
    world.run(async move {
        for (a, b) in [(&near, &far), (&far, &near)] {
            let mut held: Vec<_> = Vec::new();
            for _ in 0..3 {
                held.push(a.open_bi().await.unwrap());
            }
            assert!(a.try_open_bi().is_pending());
            // Each that is over makes room for another, a hundred times.
            for turn in 0..100 {
                let (mut send, mut recv) = held.remove(0);
                send.write_all(&[turn]).await.unwrap();
                send.finish().unwrap();
                let (mut answer, mut question) = b.accept_bi().await.unwrap();
                assert_eq!(question.read_to_end(9).await.unwrap(), [turn]);
                answer.finish().unwrap();
                assert_eq!(recv.read_to_end(9).await.unwrap(), b"");
                drop((answer, question, send, recv));
                held.push(a.open_bi().await.unwrap());
            }
        }
    });
}

/// A hundred streams of which each has used most of the limit: what resets, stops and dropped handles leave
/// behind is no burden of those that follow.
#[test]
fn what_streams_leave_unread_or_unsent_is_credit_again() {
    let mut world = limited(50_000, 3);
    let (near, far, _connection) = world.session();
    let tasks = world.world.tasks();
    world.run(async move {
        for (a, b) in [(&near, &far), (&far, &near)] {
            for turn in 0..100 {
                let mut send = a.open_uni().await.unwrap();
                send.write_all(&[0; 40_000]).await.unwrap();
                let recv = match turn % 4 {
                    // Nothing of it was sent, or a part.
                    0 => {
                        send.reset(7);
                        b.accept_uni().await.unwrap()
                    }
                    // Much is on its way when it is stopped.
                    1 => {
                        let mut recv = b.accept_uni().await.unwrap();
                        recv.stop(7);
                        recv
                    }
                    // All is there, and nobody reads it.
                    2 => {
                        send.finish().unwrap();
                        tasks.sleep(Duration::from_millis(200)).await;
                        b.accept_uni().await.unwrap()
                    }
                    // All was there before the reset.
                    _ => {
                        tasks.sleep(Duration::from_millis(200)).await;
                        send.reset(7);
                        b.accept_uni().await.unwrap()
                    }
                };
                tasks.sleep(Duration::from_millis(turn % 3)).await;
                drop((send, recv));
            }
            tasks.sleep(Duration::from_millis(500)).await;
            let mut send = a.open_uni().await.unwrap();
            send.write_all(&[1; 25_000]).await.unwrap();
            send.finish().unwrap();
            let mut recv = b.accept_uni().await.unwrap();
            assert_eq!(recv.read_to_end(1 << 20).await.unwrap().len(), 25_000);
        }
    });
}

/// What arrives while the reader does not wait is told to nobody, and the reset takes it away.
#[test]
fn what_a_reset_takes_away_before_it_is_read_is_credit_again() {
    let mut world = limited(50_000, 3);
    let (near, far, _connection) = world.session();
    let tasks = world.world.tasks();
    world.run(async move {
        for (a, b) in [(&near, &far), (&far, &near)] {
            for _ in 0..20 {
                let mut send = a.open_uni().await.unwrap();
                send.write_all(&[0; 40_000]).await.unwrap();
                tasks.sleep(Duration::from_millis(200)).await;
                send.reset(7);
                tasks.sleep(Duration::from_millis(50)).await;
                let mut recv = b.accept_uni().await.unwrap();
                assert_eq!(recv.read_chunk(9).await, Err(ReadError::Reset(7)));
            }
        }
    });
}

#[test]
fn what_was_not_sent_of_a_finished_stream_that_is_stopped_is_credit_again() {
    let mut world = limited(500_000, 3);
    let (near, far, _connection) = world.session();
    world.run(async move {
        for (a, b) in [(&near, &far), (&far, &near)] {
            for _ in 0..3 {
                let mut send = a.open_uni().await.unwrap();
                send.write_all(&[0; 400_000]).await.unwrap();
                send.finish().unwrap();
                let mut recv = b.accept_uni().await.unwrap();
                recv.stop(7);
                assert_eq!(send.finished().await, Err(WriteError::Stopped(7)));
            }
        }
    });
}

/// The peer has read too little to say so of itself, and is asked.
#[test]
fn a_peer_hears_that_a_writer_waits_for_credit() {
    let mut world = limited(50_000, 3);
    let (near, far, _connection) = world.session();
    let tasks = world.world.tasks();
    world.run(async move {
        for (a, b) in [(&near, &far), (&far, &near)] {
            let mut unread = a.open_uni().await.unwrap();
            unread.write_all(&[0; 48_000]).await.unwrap();
            let mut talk = a.open_uni().await.unwrap();
            talk.write_all(&[1; 2_000]).await.unwrap();
            let parked = b.accept_uni().await.unwrap();
            let mut heard = b.accept_uni().await.unwrap();
            heard.read_exact(&mut [0; 2_000]).await.unwrap();
            tasks.sleep(Duration::from_millis(500)).await;
            let more = async {
                talk.write_all(&[1; 1_000]).await.unwrap();
                heard.read_exact(&mut [0; 1_000]).await.unwrap();
            };
            tokio::select! {
                () = more => {}
                () = tasks.sleep(Duration::from_secs(1)) => panic!("nobody asked"),
            }
            drop((parked, unread));
        }
    });
}

#[test]
fn of_large_datagrams_that_nobody_reads_the_newest_mebibyte_is_kept() {
    let mut world = World::new();
    let (near, far, _connection) = world.session();
    let tasks = world.world.tasks();
    world.run(async move {
        let len = near.max_datagram_len().unwrap();
        let most = (1 << 20) / len;
        for n in 0..most as u32 + 10 {
            let mut data = vec![0; len];
            data[..4].copy_from_slice(&n.to_be_bytes());
            let data = Bytes::from(data);
            while near.send_datagram(data.clone()).is_err() {
                tasks.sleep(Duration::from_millis(1)).await;
            }
            if n % 8 == 0 {
                tasks.sleep(Duration::from_millis(10)).await;
            }
        }
        tasks.sleep(Duration::from_secs(1)).await;
        let stats = far.stats();
        assert_eq!(stats.datagrams_received, most as u64 + 10);
        assert_eq!(stats.datagrams_dropped, 10);
        let oldest = far.read_datagram().await.unwrap();
        assert_eq!(oldest[..4], 10_u32.to_be_bytes());
    });
}

/// As `MAX_SESSION_DATAGRAMS` says.
const MOST: u16 = 8192;

#[test]
fn datagrams_that_nobody_reads_are_dropped_from_the_oldest_on() {
    let mut world = World::new();
    let (near, far, connection) = world.session();
    let (other, other_far) = world.another(&near, &connection);
    let tasks = world.world.tasks();
    world.run(async move {
        let send = async |session: &Session, numbers: std::ops::Range<u16>| {
            for n in numbers {
                let data = Bytes::copy_from_slice(&n.to_be_bytes());
                while session.send_datagram(data.clone()).is_err() {
                    tasks.sleep(Duration::from_millis(1)).await;
                }
                if n % 64 == 0 {
                    tasks.sleep(Duration::from_millis(1)).await;
                }
            }
            tasks.sleep(Duration::from_millis(100)).await;
        };
        send(&near, 0..MOST + 10).await;
        assert_eq!(far.stats().datagrams_dropped, 10);
        // Another session has no room of its own then, and takes none of the first one's.
        send(&other, 0..3).await;
        assert!(other_far.try_read_datagram().is_pending());
        for wanted in 10..MOST + 10 {
            assert_eq!(
                far.read_datagram().await.unwrap(),
                &wanted.to_be_bytes()[..]
            );
        }
        send(&other, 3..4).await;
        assert_eq!(
            other_far.read_datagram().await.unwrap(),
            &3u16.to_be_bytes()[..]
        );
    });
}

#[test]
fn a_datagram_waits_for_room_in_a_full_queue_until_the_session_is_over() {
    let mut world = World::new();
    let (near, far, _connection) = world.session();
    let tasks = world.world.tasks();
    world.run(async move {
        let data = Bytes::from(vec![9; 1000]);
        let fill = || std::iter::repeat_with(|| near.send_datagram(data.clone()).ok());
        let queued = fill().map_while(|done| done).count() as u64;
        assert!(queued > 500, "{queued}");
        near.send_datagram_wait(data.clone()).await.unwrap();
        tasks.sleep(Duration::from_secs(2)).await;
        assert_eq!(far.stats().datagrams_received, queued + 1);

        assert!(fill().map_while(|done| done).count() > 500);
        let waiting = near.send_datagram_wait(data.clone());
        let close = async { near.close(7, "enough") };
        let (waited, ()) = tokio::join!(waiting, close);
        assert!(matches!(waited, Err(SendDatagramError::ConnectionLost(_))));
    });
}

#[test]
fn a_burst_of_datagrams_is_read_as_soon_as_it_is_there() {
    let mut world = World::new();
    let (near, far, _connection) = world.session();
    let clock = world.server.clone();
    world.run(async move {
        for n in 0..500_u16 {
            let data = Bytes::copy_from_slice(&n.to_be_bytes());
            near.send_datagram(data).unwrap();
        }
        let mut began = None;
        for n in 0..500_u16 {
            let datagram = far.read_datagram().await.unwrap();
            assert_eq!(datagram, &n.to_be_bytes()[..]);
            began.get_or_insert(clock.now());
        }
        let passed = clock.now().saturating_duration_since(began.unwrap());
        assert!(passed < Duration::from_millis(1), "{passed:?}");
    });
}
