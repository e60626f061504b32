//! Adversaries and frozen hosts on plans written by hand, beside the drawn ones of the swarm.

use std::time::Duration;

use towline_lab::swarm::{Feature, Features, FreezePlan, Plan, Report, run};
use towline_lab::workload::{ConversationPlan, EndPlan, HalfPlan, StreamPlan};
use towline_lab::world::{AckPlan, Freeze, Split};
use towline_quic::{Algorithm, TransportConfig};
use towline_sim::{LinkConfig, LossModel};
use towline_wire::{Direction, Side};

/// A server that sends 20 MB to one client over 40 ms with 2 % loss, in packets that can be read.
fn download(seed: u64, transport: &TransportConfig) -> Plan {
    let mut plan = Plan::draw(seed, Features::NONE);
    plan.features = Features::NONE.with(Feature::Plaintext);
    let link = LinkConfig {
        delay: Duration::from_millis(20),
        ..LinkConfig::default()
    };
    let lossy = LinkConfig {
        loss: LossModel::Bernoulli(0.02),
        rate: Some(100_000_000),
        ..link.clone()
    };
    plan.links = vec![[link, lossy]];
    plan.transports = [transport.clone(), transport.clone()];
    let stream = StreamPlan {
        direction: Direction::Unidirectional,
        start: Duration::ZERO,
        forward: HalfPlan {
            size: 20_000_000,
            ..HalfPlan::default()
        },
        back: HalfPlan::default(),
    };
    let end = |streams| EndPlan {
        streams,
        chunk: 60_000,
        ..EndPlan::default()
    };
    plan.conversations = vec![ConversationPlan {
        client: end(Vec::new()),
        server: end(vec![stream]),
        close: plan.conversations[0].close.clone(),
    }];
    plan.heal_after = Duration::from_secs(600);
    plan
}

fn client_acknowledges(seed: u64, transport: &TransportConfig, acks: AckPlan) -> Report {
    let mut plan = download(seed, transport);
    plan.adversary = Some((Side::Client, acks));
    run(&plan, None).unwrap_or_else(|violation| panic!("seed {seed}: {violation}"))
}

/// Windows that all of it fits into: a liar never reads past its first loss.
fn with(congestion: Algorithm) -> TransportConfig {
    TransportConfig::default()
        .congestion(congestion)
        .stream_receive_window(32 << 20)
        .max_stream_receive_window(32 << 20)
        .receive_window(32 << 20)
        .max_receive_window(32 << 20)
}

#[test]
fn a_receiver_that_hides_its_losses_is_found_out() {
    for congestion in [Algorithm::NewReno, Algorithm::Cubic, Algorithm::Bbr] {
        for seed in 0..3 {
            let hide = AckPlan {
                hide: Some(Duration::from_millis(100)),
                ..AckPlan::default()
            };
            let report = client_acknowledges(seed, &with(congestion), hide);
            assert!(report.receiver.lied);
            assert_eq!(
                report.receiver.fed, None,
                "{congestion:?} {seed} {report:?}"
            );
        }
    }
}

#[test]
fn a_receiver_that_claims_losses_one_by_one_is_found_out() {
    for seed in 0..3 {
        let late = AckPlan {
            late: Some(Duration::from_secs(2)),
            ..AckPlan::default()
        };
        let report = client_acknowledges(seed, &with(Algorithm::Cubic), late);
        assert!(report.receiver.lied);
        assert_eq!(report.receiver.fed, None, "{seed} {report:?}");
    }
}

#[test]
fn a_liar_that_claims_nothing_that_was_never_sent_gains_little() {
    for congestion in [Algorithm::NewReno, Algorithm::Cubic, Algorithm::Bbr] {
        let fed = |report: Report| report.receiver.fed.expect("everything went out");
        let mut rates = Vec::new();
        for seed in 0..3 {
            let knowing = AckPlan {
                hide: Some(Duration::from_millis(100)),
                knowing: true,
                ..AckPlan::default()
            };
            let honest = client_acknowledges(seed, &with(congestion), AckPlan::default());
            let lying = client_acknowledges(seed, &with(congestion), knowing);
            assert!(lying.receiver.lied && !honest.receiver.lied);
            rates.push((fed(honest), fed(lying)));
        }
        // A little is spared: what was lost does not go out again.
        for (honest, lying) in &rates {
            assert!(*honest < lying.mul_f64(1.3), "{congestion:?} {rates:?}");
        }
    }
}

#[test]
fn split_and_stretched_acks_are_answered_with_patience() {
    let split = |by_packet, ascending| AckPlan {
        split: Some(Split {
            by_packet,
            ascending,
        }),
        ..AckPlan::default()
    };
    let stretch = AckPlan {
        stretch: Some(Duration::from_millis(150)),
        ..AckPlan::default()
    };
    let honest = run(&download(1, &with(Algorithm::Cubic)), None).expect("nothing is wrong");
    for acks in [
        split(false, false),
        split(true, false),
        split(true, true),
        stretch,
    ] {
        let report = client_acknowledges(1, &with(Algorithm::Cubic), acks);
        assert_eq!(report.completed, honest.completed, "{acks:?}");
        assert!(!report.receiver.lied);
    }
}

#[test]
fn a_client_that_was_kept_alive_goes_on_after_half_a_minute() {
    let seconds = Duration::from_secs;
    // The server's first PING in the silence comes 5 s after it last heard of the client, and it
    // waits 30 s from there; the client would wait 30 s alone.
    for (lasts, survives) in [(29, true), (31, true), (50, false)] {
        let transport = TransportConfig::default().max_idle_timeout(seconds(30));
        let mut plan = download(3, &transport);
        plan.transports[1].keep_alive_interval = Some(seconds(5));
        let streams = &mut plan.conversations[0].server.streams;
        streams[0].forward.size = 10_000;
        let mut late = streams[0];
        late.start = seconds(60);
        streams.push(late);
        plan.freezes = vec![FreezePlan {
            client: Some(0),
            freezes: vec![Freeze {
                start: seconds(2),
                lasts: seconds(lasts),
            }],
            socket: 200_000,
        }];
        let report = run(&plan, None).unwrap_or_else(|v| panic!("{lasts} s: {v}"));
        assert_eq!(report.completed == 1, survives, "{lasts} s: {report:?}");
    }
}
