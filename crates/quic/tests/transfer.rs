//! Whole connections that carry data.

mod common;

use std::time::Duration;

use bytes::Bytes;
use common::{CLIENT, Options, Pair, SERVER, delay};
use towline_quic::{Algorithm, Direction, Event, ReadError, TransportConfig, WriteError};
use towline_sim::LinkConfig;

/// Writes `len` bytes on a new unidirectional stream and reads them at the server; returns the
/// virtual time from now to the last byte.
fn transfer(pair: &mut Pair, len: usize, limit: Duration) -> Duration {
    let start = pair.now;
    let data: Vec<u8> = (0..len).map(|i| (i * 31 + i / 251) as u8).collect();
    let mut left = Bytes::from(data.clone());
    let id = pair.client().open(Direction::Unidirectional).unwrap();
    let mut finished = false;
    let mut accepted = None;
    let mut got = Vec::with_capacity(len);
    pair.run_until(limit, |p| {
        while !left.is_empty() {
            match p.client().write(id, &mut left) {
                Ok(_) => {}
                Err(WriteError::Blocked) => break,
                Err(e) => panic!("{e}"),
            }
        }
        if left.is_empty() && !finished {
            finished = true;
            p.client().finish(id).unwrap();
        }
        if accepted.is_none() {
            accepted = p.server().accept(Direction::Unidirectional);
        }
        let Some(id) = accepted else { return false };
        loop {
            match p.server().read(id, usize::MAX) {
                Ok(Some(chunk)) => got.extend_from_slice(&chunk),
                Ok(None) => return true,
                Err(ReadError::Blocked) => return false,
                Err(e) => panic!("{e}"),
            }
        }
    });
    assert_eq!(got.len(), data.len());
    assert!(got == data, "bytes differ");
    pair.now.saturating_duration_since(start)
}

#[test]
fn handshake_takes_one_round_trip() {
    let mut pair = Pair::new(Options::default());
    let start = pair.now;
    pair.connect();
    pair.run_until(Duration::from_secs(1), |p| {
        p.take_event(CLIENT, |e| *e == Event::Connected).is_some()
    });
    assert_eq!(
        pair.now.saturating_duration_since(start),
        Duration::from_millis(20)
    );
}

#[test]
fn a_megabyte_arrives_whole() {
    let mut pair = Pair::connected(Options::default());
    transfer(&mut pair, 1 << 20, Duration::from_secs(10));
}

#[test]
fn freenets_path_takes_less_than_1800_ms_with_the_handshake() {
    for congestion in [Algorithm::NewReno, Algorithm::Cubic] {
        let link = LinkConfig {
            rate: Some(100_000_000),
            delay: Duration::from_micros(82_500),
            queue: Some(2_062_500),
            ..LinkConfig::default()
        };
        let transport = TransportConfig {
            congestion,
            ..TransportConfig::default()
        };
        let mut pair = Pair::new(Options {
            link,
            client: transport.clone(),
            server: transport,
            ..Options::default()
        });
        let start = pair.now;
        pair.connect();
        pair.run_until(Duration::from_secs(2), |p| {
            p.hosts[SERVER].handle.is_some() && p.client().is_confirmed()
        });
        transfer(&mut pair, 2_400_000, Duration::from_secs(5));
        let took = pair.now.saturating_duration_since(start);
        let stats = pair.client().stats();
        println!("{congestion}: {took:?} {stats:?}");
        assert!(
            took <= Duration::from_millis(1800),
            "{congestion}: {took:?}"
        );
        assert_eq!(stats.packets_spuriously_lost, 0);
    }
}

#[test]
fn two_percent_loss_only_slows() {
    let mut pair = Pair::connected(Options {
        link: LinkConfig {
            loss: towline_sim::LossModel::Bernoulli(0.02),
            ..delay(20)
        },
        ..Options::default()
    });
    transfer(&mut pair, 2_000_000, Duration::from_secs(60));
    assert!(pair.client().stats().packets_lost > 0);
}

#[test]
fn data_that_arrived_before_the_peer_closed_can_still_be_read() {
    let mut pair = Pair::connected(Options::default());
    let id = pair.client().open(Direction::Unidirectional).unwrap();
    pair.client().write_slice(id, b"last words").unwrap();
    pair.client().finish(id).unwrap();
    pair.flush();
    let now = pair.now;
    pair.client().close(now, 0, b"bye");
    pair.run_until(Duration::from_secs(1), |p| p.server().is_closed());
    let id = pair.server().accept(Direction::Unidirectional).unwrap();
    assert_eq!(
        pair.server().read(id, 100).unwrap().unwrap(),
        &b"last words"[..]
    );
    assert_eq!(pair.server().read(id, 100), Ok(None));
}
