//! Whole connections that carry data.

mod common;

use std::time::Duration;

use common::{CLIENT, Options, Pair, SERVER, delay, secs};
use towline_quic::{Algorithm, Direction, Event, TransportConfig};
use towline_sim::LinkConfig;

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
    pair.transfer(CLIENT, 1 << 20, secs(10));
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
        let transport = TransportConfig::default().congestion(congestion);
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
        pair.transfer(CLIENT, 2_400_000, secs(5));
        let took = pair.now.saturating_duration_since(start);
        let stats = pair.client().stats();
        assert!(
            took <= Duration::from_millis(1800),
            "{congestion}: {took:?} {stats:?}"
        );
        assert_eq!(stats.packets_spuriously_lost, 0);
        assert_eq!(stats.probe_timeouts, 0, "no spurious timeout");
        eprintln!(
            "{congestion}: {took:?}, {} packets lost",
            stats.packets_lost
        );
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
    pair.transfer(CLIENT, 2_000_000, secs(60));
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
