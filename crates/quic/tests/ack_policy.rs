//! A slow sender's acknowledgements: what its peer's way back costs under two policies.

#![expect(clippy::print_stdout, reason = "figures for whoever reads the log")]

mod common;

use std::time::Duration;

use bytes::Bytes;
use common::{CLIENT, Options, Pair, SERVER, delay, ms, pattern, readable, secs};
use towline_quic::TransportConfig;
use towline_sim::{LinkConfig, LossModel};
use towline_wire::Frame;

const USUAL: fn() -> TransportConfig = TransportConfig::default;

/// An ACK for ten packets, or a second's.
fn sparse() -> TransportConfig {
    TransportConfig::default()
        .packets_per_ack(10)
        .max_ack_delay(Duration::from_secs(1))
}

struct Minute {
    /// Datagrams and UDP payload that the receiver sent.
    datagrams: u64,
    bytes: u64,
    pair: Pair,
}

/// The client sends a datagram of 30 bytes ten times a second for a minute.
fn telemetry(client: TransportConfig, server: TransportConfig, link: LinkConfig) -> Minute {
    let mut pair = Pair::connected(Options {
        client,
        server,
        link,
        ..Options::default()
    });
    pair.run_for(ms(500));
    let before = pair.server().stats();
    for i in 0..600u32 {
        let data = Bytes::from(vec![i as u8; 30]);
        pair.client().send_datagram(data).unwrap();
        pair.run_for(ms(100));
        while pair.server().recv_datagram().is_some() {}
    }
    let after = pair.server().stats();
    Minute {
        datagrams: after.datagrams_sent - before.datagrams_sent,
        bytes: after.bytes_sent - before.bytes_sent,
        pair,
    }
}

#[test]
fn a_sparse_policy_costs_the_way_back_less_than_a_third() {
    let usual = telemetry(USUAL(), USUAL(), delay(25));
    for (who, client, server) in [
        ("the receiver by its own settings", USUAL(), sparse()),
        ("the sender by the extension", sparse(), USUAL()),
        ("both", sparse(), sparse()),
    ] {
        let mut minute = telemetry(client, server, delay(25));
        println!(
            "ten packets a second for a minute, way back: usual {} datagrams, {} bytes; sparse, set at {who}: \
             {} datagrams, {} bytes ({:.0} %)",
            usual.datagrams,
            usual.bytes,
            minute.datagrams,
            minute.bytes,
            100.0 * minute.bytes as f64 / usual.bytes as f64
        );
        assert!(3 * minute.bytes <= usual.bytes, "{who}");
        // Waiting is not mistaken for loss.
        let stats = minute.pair.client().stats();
        assert_eq!((stats.probe_timeouts, stats.packets_lost), (0, 0), "{who}");
        assert!(
            stats.smoothed_rtt < ms(60),
            "{who}: {:?}",
            stats.smoothed_rtt
        );
        assert!(stats.pto > secs(1), "{who}: the delay is part of it");
        minute.pair.run_for(secs(2));
        assert_eq!(
            minute.pair.client().stats().app_datagrams_acked,
            600,
            "{who}"
        );
    }
}

#[test]
fn losses_under_a_sparse_policy_are_found_and_nothing_else_is_called_lost() {
    let lossy = LinkConfig {
        loss: LossModel::Bernoulli(0.05),
        ..delay(25)
    };
    let mut minute = telemetry(sparse(), USUAL(), lossy);
    minute.pair.run_for(secs(10));
    let client = minute.pair.client().stats();
    let really = client.packets_lost - client.packets_spuriously_lost;
    println!(
        "{} lost, {} of them not",
        client.packets_lost, client.packets_spuriously_lost
    );
    assert!((10..80).contains(&really), "{really}");
    assert!(client.packets_spuriously_lost <= 2);
    assert_eq!(minute.pair.close_reason(CLIENT), None);
}

#[test]
fn an_idle_timeout_shorter_than_the_delay_of_an_ack_does_not_end_a_connection_in_use() {
    let short = |config: TransportConfig| config.max_idle_timeout(ms(900));
    let client = short(sparse());
    let mut minute = telemetry(client, short(USUAL()), delay(25));
    assert_eq!(minute.pair.close_reason(CLIENT), None);
    assert_eq!(minute.pair.close_reason(SERVER), None);
}

#[test]
fn a_transfer_after_telemetry_is_as_fast_as_one_without_the_policy() {
    let rate = LinkConfig {
        rate: Some(20_000_000),
        ..delay(25)
    };
    let time = |config: TransportConfig| {
        let mut minute = telemetry(config, USUAL(), rate.clone());
        minute.pair.transfer(CLIENT, 4 << 20, secs(30))
    };
    let (usual, sparse) = (time(USUAL()), time(sparse()));
    println!("4 MiB after a minute of telemetry: usual {usual:?}, sparse {sparse:?}");
    assert!(
        sparse < usual + ms(150),
        "usual {usual:?}, sparse {sparse:?}"
    );
}

#[test]
fn the_policy_is_asked_for_once_and_taken_back_when_there_is_more_to_send() {
    let mut pair = Pair::connected(Options {
        client: sparse(),
        ..readable()
    });
    pair.run_for(ms(200));
    let asked = std::rc::Rc::new(std::cell::RefCell::new(Vec::new()));
    let seen = std::rc::Rc::clone(&asked);
    pair.watch(CLIENT, move |f| {
        if let Frame::AckFrequency(frame) = f {
            let terms = (frame.ack_eliciting_threshold, frame.requested_max_ack_delay);
            seen.borrow_mut().push(terms);
        }
        false
    });
    for _ in 0..100 {
        pair.client()
            .send_datagram(Bytes::from_static(b"21.5"))
            .unwrap();
        pair.run_for(ms(100));
    }
    assert_eq!(asked.borrow().as_slice(), [(9, secs(1))]);
    let id = pair.send_stream(
        CLIENT,
        towline_quic::Direction::Unidirectional,
        &pattern(200_000),
    );
    pair.run_for(secs(2));
    assert!(pair.client().priority(id).is_none(), "delivered");
    assert!(
        asked.borrow().iter().any(|(_, delay)| *delay < ms(100)),
        "{asked:?}"
    );
}

#[test]
fn a_policy_that_no_peer_can_be_told_is_refused_by_name() {
    for delay in [
        Duration::ZERO,
        Duration::from_micros(999),
        Duration::from_millis(1 << 14),
    ] {
        let error = USUAL().max_ack_delay(delay).validate().unwrap_err();
        assert_eq!(error.setting, "max_ack_delay");
    }
    for packets in [0, 65] {
        let error = USUAL().packets_per_ack(packets).validate().unwrap_err();
        assert_eq!(error.setting, "packets_per_ack");
    }
    assert_eq!(sparse().validate(), Ok(()));
}
