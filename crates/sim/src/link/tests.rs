use super::*;
use crate::LossModel;

mod queue;

const MILLI: Duration = Duration::from_millis(1);

fn datagram(len: usize) -> Datagram {
    let host = |port| ([10, 0, 0, 1], port).into();
    Datagram::new(host(1), host(2), vec![0; len])
}

fn numbered(number: u64) -> Datagram {
    let mut datagram = datagram(100);
    datagram.payload[..8].copy_from_slice(&number.to_be_bytes());
    datagram
}

fn number(datagram: &Datagram) -> u64 {
    u64::from_be_bytes(datagram.payload[..8].try_into().unwrap())
}

fn link(config: LinkConfig) -> Link {
    Link::new(config, 1, "test").unwrap()
}

fn at(millis: u64) -> Time {
    Time::ZERO + MILLI * u32::try_from(millis).unwrap()
}

/// Everything that comes out, with its time of arrival.
fn drain(link: &mut Link) -> Vec<(Time, Datagram)> {
    let mut out = Vec::new();
    while let Some(time) = link.next_timeout() {
        out.extend(link.poll(time).map(|datagram| (time, datagram)));
    }
    out
}

/// `count` datagrams, one each millisecond, through a link of `seed`.
fn trace(config: &LinkConfig, seed: u64, count: u64) -> Vec<(Time, Datagram)> {
    let mut link = Link::new(config.clone(), seed, "trace").unwrap();
    for i in 0..count {
        link.push(at(i), numbered(i));
    }
    drain(&mut link)
}

fn everything() -> LinkConfig {
    "rate=2mbit,delay=30ms,jitter=10ms,loss=ge:2%:20%,dup=3%,reorder=5%,corrupt=2%,truncate=2%,blackout=200ms+50ms"
        .parse()
        .unwrap()
}

#[test]
fn same_seed_same_trace() {
    assert_eq!(trace(&everything(), 7, 1000), trace(&everything(), 7, 1000));
}

#[test]
fn different_seed_different_trace() {
    assert_ne!(trace(&everything(), 7, 1000), trace(&everything(), 8, 1000));
}

#[test]
fn turning_one_fault_off_leaves_the_others_as_they_were() {
    let lost = |config: &LinkConfig| {
        let mut numbers: Vec<u64> = trace(config, 3, 500)
            .iter()
            .map(|(_, d)| number(d))
            .collect();
        numbers.sort_unstable();
        numbers.dedup();
        numbers
    };
    let all = LinkConfig {
        loss: LossModel::Bernoulli(0.1),
        duplicate: 0.1,
        reorder: 0.1,
        jitter: MILLI,
        ..LinkConfig::default()
    };
    let fewer = LinkConfig {
        duplicate: 0.0,
        jitter: Duration::ZERO,
        drop_list: vec![],
        ..all.clone()
    };
    assert_eq!(lost(&all), lost(&fewer));
}

#[test]
fn perfect_link_delivers_at_once_in_order() {
    let out = trace(&LinkConfig::default(), 1, 100);
    for (i, (time, datagram)) in out.iter().enumerate() {
        assert_eq!((*time, number(datagram)), (at(i as u64), i as u64));
    }
    assert_eq!(out.len(), 100);
}

#[test]
fn datagrams_leave_at_exactly_the_rate() {
    // 1250 bytes at 10 Mbit/s are 1 ms.
    let mut link = link(LinkConfig {
        rate: Some(10_000_000),
        delay: MILLI * 5,
        ..LinkConfig::default()
    });
    for _ in 0..4 {
        link.push(Time::ZERO, datagram(1250));
    }
    link.push(at(100), datagram(625));
    let times: Vec<Time> = drain(&mut link).into_iter().map(|(time, _)| time).collect();
    let half = Duration::from_micros(500);
    assert_eq!(times, [at(6), at(7), at(8), at(9), at(105) + half]);
}

#[test]
fn rounding_does_not_add_up() {
    // One byte at 3 Gbit/s takes 8/3 ns; a million of them 8/3 ms, rounded up once.
    let config = LinkConfig {
        rate: Some(3_000_000_000),
        queue: Some(u64::MAX),
        ..LinkConfig::default()
    };
    let mut link = link(config);
    for _ in 0..1_000_000 {
        link.push(Time::ZERO, datagram(1));
    }
    let last = drain(&mut link).last().unwrap().0;
    assert_eq!(last, Time::from_nanos(2_666_667));
}

#[test]
fn overhead_is_charged_to_the_rate() {
    let mut link = link(LinkConfig {
        rate: Some(10_000_000),
        overhead: 28,
        ..LinkConfig::default()
    });
    link.push(Time::ZERO, datagram(1222));
    assert_eq!(link.next_timeout(), Some(at(1)));
}

#[test]
fn full_queue_drops_the_tail() {
    let config = LinkConfig {
        rate: Some(10_000_000),
        queue: Some(2500),
        ..LinkConfig::default()
    };
    let mut link = link(config);
    // One is being serialised, two wait, the others find no room.
    for i in 0..5 {
        let mut datagram = datagram(1250);
        datagram.payload[0] = i;
        link.push(Time::ZERO, datagram);
    }
    assert_eq!(link.queue_bytes(Time::ZERO), 2500);
    assert_eq!(link.stats().drops.queue, 2);
    assert_eq!(link.queue_bytes(at(1)), 1250);
    assert_eq!(link.queue_bytes(at(2)), 0);
    // After a millisecond one place is free again.
    link.push(at(1), datagram(1250));
    assert_eq!(link.stats().drops.queue, 2);
    let firsts: Vec<u8> = drain(&mut link).iter().map(|(_, d)| d.payload[0]).collect();
    assert_eq!(firsts, [0, 1, 2, 0]);
    assert_eq!(link.stats().queue_peak_bytes, 2500);
}

#[test]
fn a_datagram_larger_than_the_queue_passes_an_idle_link() {
    let mut link = link(LinkConfig {
        rate: Some(1_000_000),
        queue: Some(1),
        ..LinkConfig::default()
    });
    link.push(Time::ZERO, datagram(1200));
    assert_eq!(drain(&mut link).len(), 1);
}

#[test]
fn loss_ratio_is_as_configured() {
    for (model, tolerance) in [
        (LossModel::Bernoulli(0.02), 0.003),
        (LossModel::Bernoulli(0.5), 0.01),
        (LossModel::Bernoulli(1.0), 0.0),
        (
            LossModel::GilbertElliott {
                enter_bad: 0.01,
                leave_bad: 0.19,
                loss_good: 0.0,
                loss_bad: 0.8,
            },
            0.006,
        ),
    ] {
        let config = LinkConfig {
            loss: model,
            ..LinkConfig::default()
        };
        let arrived = trace(&config, 11, 50_000).len() as f64;
        let ratio = 1.0 - arrived / 50_000.0;
        assert!(
            (ratio - model.mean()).abs() <= tolerance,
            "{model:?}: {ratio}"
        );
    }
}

#[test]
fn burst_losses_come_in_bursts() {
    let model = LossModel::GilbertElliott {
        enter_bad: 0.01,
        leave_bad: 0.2,
        loss_good: 0.0,
        loss_bad: 1.0,
    };
    let arrived = trace(
        &LinkConfig {
            loss: model,
            ..LinkConfig::default()
        },
        5,
        50_000,
    );
    let gaps: Vec<u64> = arrived
        .windows(2)
        .map(|pair| number(&pair[1].1) - number(&pair[0].1) - 1)
        .filter(|gap| *gap > 0)
        .collect();
    let mean = gaps.iter().sum::<u64>() as f64 / gaps.len() as f64;
    assert!((4.0..6.0).contains(&mean), "mean burst {mean}, expected 5");
}

#[test]
fn listed_datagrams_are_dropped() {
    let config = LinkConfig {
        drop_list: vec![4, 1],
        ..LinkConfig::default()
    };
    let numbers: Vec<u64> = trace(&config, 1, 6)
        .iter()
        .map(|(_, d)| number(d))
        .collect();
    assert_eq!(numbers, [1, 2, 4, 5]);
}

#[test]
fn blackout_takes_what_leaves_the_queue_meanwhile() {
    let config = LinkConfig {
        delay: MILLI * 50,
        ..LinkConfig::default()
    }
    .with_blackout(at(100), MILLI * 20);
    let mut link = link(config);
    for i in 0..200 {
        link.push(at(i), numbered(i));
    }
    let numbers: Vec<u64> = drain(&mut link).iter().map(|(_, d)| number(d)).collect();
    let expected: Vec<u64> = (0..100).chain(120..200).collect();
    assert_eq!(numbers, expected);
    assert_eq!(link.stats().drops.blackout, 20);
}

#[test]
fn jitter_alone_keeps_order() {
    let config = LinkConfig {
        delay: MILLI * 10,
        jitter: MILLI * 20,
        ..LinkConfig::default()
    };
    let out = trace(&config, 9, 1000);
    let mut delays = Vec::new();
    for (i, (time, datagram)) in out.iter().enumerate() {
        assert_eq!(number(datagram), i as u64);
        delays.push(time.saturating_duration_since(at(i as u64)));
    }
    assert!(
        delays
            .iter()
            .all(|delay| (MILLI * 10..=MILLI * 30).contains(delay))
    );
    assert!(delays.iter().any(|delay| *delay > MILLI * 20));
}

#[test]
fn jitter_reorders_where_order_is_not_kept() {
    let config = LinkConfig {
        jitter: MILLI * 20,
        keep_order: false,
        ..LinkConfig::default()
    };
    let numbers: Vec<u64> = trace(&config, 9, 200)
        .iter()
        .map(|(_, d)| number(d))
        .collect();
    assert!(!numbers.is_sorted());
}

#[test]
fn reordered_datagrams_are_overtaken_and_nothing_else_moves() {
    let config = LinkConfig {
        reorder: 0.1,
        reorder_delay: Duration::from_micros(3500),
        ..LinkConfig::default()
    };
    let mut link = link(config);
    for i in 0..1000 {
        link.push(at(i), numbered(i));
    }
    let out = drain(&mut link);
    assert_eq!(out.len(), 1000);
    let late = out
        .iter()
        .filter(|(time, d)| *time != at(number(d)))
        .count() as u64;
    assert_eq!(late, link.stats().reordered);
    assert!((60..140).contains(&late), "{late}");
}

#[test]
fn duplicates_arrive_after_their_original() {
    let config = LinkConfig {
        duplicate: 0.1,
        ..LinkConfig::default()
    };
    let mut link = link(config);
    for i in 0..1000 {
        link.push(at(i), numbered(i));
    }
    let numbers: Vec<u64> = drain(&mut link).iter().map(|(_, d)| number(d)).collect();
    assert!(numbers.is_sorted());
    let stats = link.stats();
    assert_eq!(numbers.len() as u64, 1000 + stats.duplicated);
    assert_eq!(stats.datagrams_delivered, 1000 + stats.duplicated);
    assert!((60..140).contains(&stats.duplicated));
}

#[test]
fn corruption_flips_one_bit_and_truncation_shortens() {
    let mut corrupting = link(LinkConfig {
        corrupt: 1.0,
        ..LinkConfig::default()
    });
    let mut cutting = link(LinkConfig {
        truncate: 1.0,
        ..LinkConfig::default()
    });
    for len in [0, 1, 2, 100, 1200] {
        corrupting.push(Time::ZERO, datagram(len));
        cutting.push(Time::ZERO, datagram(len));
        let bits: u32 = corrupting
            .poll(Time::ZERO)
            .unwrap()
            .payload
            .iter()
            .map(|b| b.count_ones())
            .sum();
        assert_eq!(bits, u32::from(len > 0));
        assert!(cutting.poll(Time::ZERO).unwrap().payload.len() < len.max(1));
    }
    assert_eq!(
        (corrupting.stats().corrupted, cutting.stats().truncated),
        (4, 4)
    );
}

#[test]
fn the_mtu_changes_at_its_times() {
    let config = "mtu=1452;5s:1200;9s:1300".parse::<LinkConfig>().unwrap();
    assert_eq!(config.mtu_at(at(4999)), Some(1452));
    let mut link = link(config);
    let passes = |link: &mut Link, time, len| {
        link.push(time, datagram(len));
        link.poll(time).is_some()
    };
    for (time, largest) in [(0, 1452), (4999, 1452), (5000, 1200), (9000, 1300)] {
        assert!(passes(&mut link, at(time), largest), "{time} ms");
        assert!(!passes(&mut link, at(time), largest + 1), "{time} ms");
    }
    assert_eq!(link.stats().drops.mtu, 4);
}

#[test]
fn an_mtu_may_begin_later() {
    let config = LinkConfig::default().with_mtu_from(at(10), 1200);
    assert_eq!(config.mtu_at(at(9)), None);
    assert_eq!(config.mtu_at(at(10)), Some(1200));
}

#[test]
fn a_sender_is_told_what_was_too_big_if_the_link_speaks_icmp() {
    for icmp in [false, true] {
        let mut link = link(LinkConfig {
            mtu: Some(1400),
            icmp,
            ..LinkConfig::default()
        });
        assert_eq!(link.push(Time::ZERO, datagram(1400)), None);
        let mut long = datagram(1401);
        long.payload[..3].copy_from_slice(b"abc");
        let notice = link.push(Time::ZERO, long.clone());
        let expected = TooBig {
            source: long.source,
            destination: long.destination,
            mtu: 1400,
            quoted: long.payload[..MAX_QUOTED_BYTES].to_vec(),
        };
        assert_eq!(notice, icmp.then_some(expected));
        assert_eq!(link.stats().drops.mtu, 1);
    }
}

#[test]
fn ecn_bits_are_rewritten_behind_the_queue() {
    const ALL: [Option<u8>; 5] = [None, Some(0), Some(1), Some(2), Some(3)];
    for (remark, expected, changed) in [
        ("bleach", [None, Some(0), Some(0), Some(0), Some(0)], 3),
        ("ect0", [None, Some(0), Some(2), Some(2), Some(2)], 2),
        ("ect1", [None, Some(0), Some(1), Some(1), Some(1)], 2),
        ("ce", [None, Some(0), Some(3), Some(3), Some(3)], 2),
    ] {
        let mut link = link(format!("remark={remark}").parse().unwrap());
        for ecn in ALL {
            link.push(
                Time::ZERO,
                Datagram {
                    ecn,
                    ..datagram(100)
                },
            );
        }
        let out: Vec<Option<u8>> = drain(&mut link).iter().map(|(_, d)| d.ecn).collect();
        assert_eq!(out, expected, "{remark}");
        assert_eq!(link.stats().ecn_rewritten, changed, "{remark}");
    }
}

#[test]
fn a_mark_of_the_queue_does_not_survive_bleaching() {
    let mut link = link(
        "rate=1mbit,aqm=step:1ms,ecn=on,remark=bleach"
            .parse()
            .unwrap(),
    );
    for _ in 0..10 {
        link.push(
            Time::ZERO,
            Datagram {
                ecn: Some(2),
                ..datagram(1000)
            },
        );
    }
    assert!(drain(&mut link).iter().all(|(_, d)| d.ecn == Some(0)));
    assert!(link.stats().ce_marks > 0);
}

#[test]
fn longer_than_the_mtu_vanishes() {
    let mut link = link(LinkConfig {
        mtu: Some(1400),
        ..LinkConfig::default()
    });
    link.push(Time::ZERO, datagram(1400));
    link.push(Time::ZERO, datagram(1401));
    assert_eq!(drain(&mut link).len(), 1);
    assert_eq!(link.stats().drops.mtu, 1);
}

#[test]
fn memory_is_bounded_where_nothing_else_bounds_it() {
    let mut link = link(LinkConfig {
        delay: Duration::MAX,
        ..LinkConfig::default()
    });
    let each = 65_000 + HELD_DATAGRAM_OVERHEAD;
    let fit = MAX_HELD_BYTES / each;
    for _ in 0..fit + 10 {
        link.push(Time::ZERO, datagram(65_000));
    }
    assert_eq!(link.in_flight(), fit);
    assert_eq!(link.stats().drops.capacity, 10);
    // What left makes room again.
    assert_eq!(drain(&mut link).len(), fit);
    link.push(Time::ZERO, datagram(65_000));
    assert_eq!(link.in_flight(), 1);
}

#[test]
fn time_running_backwards_is_taken_as_standing_still() {
    let mut link = link(LinkConfig {
        delay: MILLI,
        ..LinkConfig::default()
    });
    link.push(at(10), numbered(0));
    link.push(at(5), numbered(1));
    assert_eq!(
        drain(&mut link)
            .iter()
            .map(|(time, _)| *time)
            .collect::<Vec<_>>(),
        [at(11), at(11)]
    );
    assert!(link.poll(Time::ZERO).is_none());
}

#[test]
fn reconfiguration_counts_for_what_follows() {
    let mut link = link(LinkConfig {
        delay: MILLI * 50,
        ..LinkConfig::default()
    });
    link.push(at(0), numbered(0));
    link.set_config(
        at(0),
        LinkConfig {
            delay: MILLI,
            keep_order: false,
            ..LinkConfig::default()
        },
    )
    .unwrap();
    link.push(at(1), numbered(1));
    assert!(
        link.set_config(
            at(1),
            LinkConfig {
                rate: Some(0),
                ..LinkConfig::default()
            }
        )
        .is_err()
    );
    let out: Vec<(Time, u64)> = drain(&mut link)
        .iter()
        .map(|(time, d)| (*time, number(d)))
        .collect();
    assert_eq!(out, [(at(2), 1), (at(50), 0)]);
}

#[test]
fn rate_changed_in_mid_queue_does_not_overtake() {
    let rate = |rate| LinkConfig {
        rate: Some(rate),
        ..LinkConfig::default()
    };
    let mut link = link(rate(8000));
    link.push(at(0), numbered(0));
    link.set_config(at(0), rate(3_000_000_000)).unwrap();
    link.push(at(1), numbered(1));
    link.set_config(at(1), LinkConfig::default()).unwrap();
    link.push(at(2), numbered(2));
    let numbers: Vec<u64> = drain(&mut link).iter().map(|(_, d)| number(d)).collect();
    assert_eq!(numbers, [0, 1, 2]);
}

#[test]
fn huge_values_saturate() {
    let extremes = [
        Duration::ZERO,
        Duration::from_nanos(u64::MAX),
        Duration::MAX,
    ];
    for rate in [None, Some(1), Some(u64::MAX)] {
        for delay in extremes {
            for jitter in extremes {
                let config = LinkConfig {
                    rate,
                    delay,
                    jitter,
                    queue: Some(u64::MAX),
                    overhead: u32::MAX,
                    reorder: 0.5,
                    reorder_delay: Duration::MAX,
                    duplicate: 0.5,
                    mtu: Some(usize::MAX),
                    ..LinkConfig::default()
                };
                let mut link = link(config);
                for now in [Time::ZERO, at(1), Time::MAX] {
                    for _ in 0..4 {
                        link.push(now, datagram(65_535));
                    }
                    assert!(link.queue_bytes(now) <= 12 * (65_535 + u64::from(u32::MAX)));
                }
                let arrived = drain(&mut link).len() as u64;
                assert_eq!(arrived, 12 + link.stats().duplicated);
            }
        }
    }
}

#[test]
fn every_datagram_is_accounted_for() {
    for seed in 0..50 {
        let mut link = Link::new(
            LinkConfig {
                queue: Some(3000),
                mtu: Some(1000),
                drop_list: vec![5],
                ..everything()
            },
            seed,
            "sum",
        )
        .unwrap();
        for i in 0..400 {
            link.push(at(i), datagram((i as usize * 37) % 1100));
        }
        drain(&mut link);
        let stats = link.stats();
        assert_eq!(
            stats.datagrams_in + stats.duplicated,
            stats.datagrams_delivered + stats.drops.total(),
            "seed {seed}: {stats:?}"
        );
        assert_eq!((link.in_flight(), link.held_bytes), (0, 0));
    }
}
