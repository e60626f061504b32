use super::*;
use crate::{Policer, Profile, RateSchedule};

fn refused(config: LinkConfig) -> String {
    config.validate().unwrap_err().item().to_owned()
}

#[test]
fn impossible_values_are_refused_by_name() {
    let base = LinkConfig::default;
    assert_eq!(
        refused(LinkConfig {
            rate: Some(0),
            ..base()
        }),
        "rate"
    );
    assert_eq!(
        refused(LinkConfig {
            queue: Some(0),
            ..base()
        }),
        "queue"
    );
    assert_eq!(
        refused(LinkConfig {
            mtu: Some(0),
            ..base()
        }),
        "mtu"
    );
    assert_eq!(
        refused(LinkConfig {
            drop_list: vec![3, 0],
            ..base()
        }),
        "drop"
    );
    for bad in [-0.1, 1.000_001, f64::NAN, f64::INFINITY] {
        assert_eq!(
            refused(LinkConfig {
                duplicate: bad,
                ..base()
            }),
            "dup"
        );
        assert_eq!(
            refused(LinkConfig {
                reorder: bad,
                ..base()
            }),
            "reorder"
        );
        assert_eq!(
            refused(LinkConfig {
                corrupt: bad,
                ..base()
            }),
            "corrupt"
        );
        assert_eq!(
            refused(LinkConfig {
                truncate: bad,
                ..base()
            }),
            "truncate"
        );
        assert_eq!(
            refused(LinkConfig {
                loss: LossModel::Bernoulli(bad),
                ..base()
            }),
            "loss"
        );
    }
    let stuck = LossModel::GilbertElliott {
        enter_bad: 0.1,
        leave_bad: 0.0,
        loss_good: 0.0,
        loss_bad: 1.0,
    };
    assert_eq!(
        refused(LinkConfig {
            loss: stuck,
            ..base()
        }),
        "loss"
    );
    let unmoved = LinkConfig {
        reorder: 0.1,
        reorder_delay: Duration::ZERO,
        ..base()
    };
    assert_eq!(refused(unmoved), "reorder");
    let at = Time::from_nanos(5);
    assert_eq!(
        refused(LinkConfig {
            blackouts: vec![at..at],
            ..base()
        }),
        "blackout"
    );
}

#[test]
fn settings_that_do_nothing_alone_are_refused() {
    let base = LinkConfig::default;
    assert_eq!(
        refused(LinkConfig {
            icmp: true,
            ..base()
        }),
        "icmp"
    );
    assert_eq!(
        refused(LinkConfig {
            mend: true,
            ..base()
        }),
        "mend"
    );
    let at = Time::from_nanos(5);
    for steps in [vec![(at, 1200), (at, 1300)], vec![(at, 0)]] {
        let mtu_steps = steps;
        assert_eq!(
            refused(LinkConfig {
                mtu_steps,
                ..base()
            }),
            "mtu"
        );
    }
}

#[test]
fn every_profile_is_possible_and_keeps_its_name() {
    for profile in Profile::ALL {
        profile.link().validate().unwrap();
        assert_eq!(profile.name().parse::<Profile>().unwrap(), profile);
    }
}

#[test]
fn a_queue_left_out_holds_one_bandwidth_delay_product() {
    let of = |rate, delay| LinkConfig {
        rate: Some(rate),
        delay,
        ..LinkConfig::default()
    };
    // 100 Mbit/s over a round trip of 160 ms.
    assert_eq!(
        of(100_000_000, Duration::from_millis(80)).queue_limit(),
        2_000_000
    );
    // A short path gets 100 ms' worth, a slow one the minimum.
    assert_eq!(of(100_000_000, Duration::ZERO).queue_limit(), 1_250_000);
    assert_eq!(
        of(1000, Duration::ZERO).queue_limit(),
        MIN_DEFAULT_QUEUE_BYTES
    );
    assert_eq!(of(u64::MAX, Duration::MAX).queue_limit(), u64::MAX);
}

#[test]
fn mean_loss_of_a_burst_model_weighs_its_states() {
    let model = LossModel::GilbertElliott {
        enter_bad: 0.01,
        leave_bad: 0.19,
        loss_good: 0.0,
        loss_bad: 0.4,
    };
    assert!((model.mean() - 0.02).abs() < 1e-12);
}

#[test]
fn profiles_have_the_round_trip_and_loss_of_their_names() {
    for (profile, round_trip, loss) in [
        (Profile::Local, 0, 0.0),
        (Profile::Lan, 1, 0.0),
        (Profile::Lte, 30, 0.005),
        (Profile::ThreeG, 100, 0.02),
        (Profile::Satellite, 600, 0.01),
        (Profile::PoorCellular, 200, 0.1),
    ] {
        let link = profile.link();
        assert_eq!(link.delay * 2, Duration::from_millis(round_trip));
        assert_eq!(link.loss.mean(), loss);
    }
}

#[test]
fn queue_settings_that_cannot_be_are_refused_by_name() {
    let base = || LinkConfig {
        rate: Some(1_000_000),
        ..LinkConfig::default()
    };
    let steps = RateSchedule::new(&[(Duration::ZERO, 8000)], None).unwrap();
    let policer = |rate, burst| LinkConfig {
        policer: Some(Policer { rate, burst }),
        ..base()
    };
    let aqm = |aqm| LinkConfig { aqm, ..base() };
    let red = |weight| Aqm::Red {
        min: 1,
        max: 2,
        max_probability: 0.1,
        weight,
    };
    for (config, item) in [
        (policer(0, 1), "police"),
        (policer(1, 0), "police"),
        (aqm(red(f64::NAN)), "aqm"),
        (aqm(red(0.0)), "aqm"),
        (aqm(Aqm::Step(Duration::from_millis(1))), "aqm"),
        (
            LinkConfig {
                rate: None,
                ..aqm(Aqm::CODEL)
            },
            "aqm",
        ),
        (
            LinkConfig {
                ecn: true,
                ..base()
            },
            "ecn",
        ),
        (
            LinkConfig {
                schedule: Some(steps.clone()),
                ..base()
            },
            "steps",
        ),
    ] {
        assert_eq!(refused(config), item);
    }
    // A schedule is bottleneck enough for a discipline, and sizes the default queue.
    let managed = LinkConfig {
        rate: None,
        schedule: Some(RateSchedule::new(&[(Duration::ZERO, 80_000_000)], None).unwrap()),
        ..aqm(Aqm::CODEL)
    };
    managed.validate().unwrap();
    assert_eq!(managed.queue_limit(), 1_000_000);
}
