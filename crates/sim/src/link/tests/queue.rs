//! What waits at the bottleneck: disciplines, marks, policing, changing rates, measures.

use super::*;

/// ECN bits.
const ECT_0: u8 = 2;
const ECT_1: u8 = 1;
const CE: u8 = 3;

fn parsed(text: &str) -> LinkConfig {
    text.parse().unwrap()
}

fn marked(number: u64, ecn: u8) -> Datagram {
    Datagram {
        ecn: Some(ecn),
        ..sized(number, 1250)
    }
}

fn sized(number: u64, len: usize) -> Datagram {
    let mut datagram = datagram(len);
    datagram.payload[..8].copy_from_slice(&number.to_be_bytes());
    datagram
}

/// Twice what 10 Mbit/s carries, for `millis`; what arrives.
fn overload(link: &mut Link, millis: u64, ecn: u8) -> Vec<(Time, Datagram)> {
    let mut out = Vec::new();
    for milli in 0..millis {
        for half in 0..2 {
            link.push(at(milli), marked(2 * milli + half, ecn));
        }
        while let Some(datagram) = link.poll(at(milli)) {
            out.push((at(milli), datagram));
        }
    }
    out.extend(drain(link));
    out
}

#[test]
fn codel_drops_at_the_head_and_counts_it() {
    let mut link = link(parsed("rate=10mbit,queue=10mb,aqm=codel"));
    // The wait grows by a millisecond each two datagrams and is 5 ms at 9 ms, so the first drop
    // is due at 109 ms, the next at 209 ms.
    for milli in 0..=108 {
        link.push(at(milli), sized(2 * milli, 1250));
        link.push(at(milli), sized(2 * milli + 1, 1250));
    }
    assert_eq!(link.stats().drops.aqm, 0);
    link.advance(at(109));
    assert_eq!(link.stats().drops.aqm, 1);
    for milli in 109..=150 {
        link.push(at(milli), sized(2 * milli, 1250));
        link.push(at(milli), sized(2 * milli + 1, 1250));
    }
    link.advance(at(250));
    let numbers: Vec<u64> = drain(&mut link).iter().map(|(_, d)| number(d)).collect();
    let missing: Vec<u64> = (0..302).filter(|n| !numbers.contains(n)).collect();
    // The heads of those times; after the first drop each starts a millisecond earlier.
    assert_eq!(missing[..2], [109, 210]);
    assert!(numbers.is_sorted());
    assert_eq!(link.stats().drops.aqm, missing.len() as u64);
}

#[test]
fn codel_holds_a_responsive_load_near_its_target_where_a_tail_drop_does_not() {
    let median = |aqm: &str| {
        let mut link = link(parsed(&format!("rate=10mbit,queue=250kb,{aqm}")));
        // A source that sends a little too much and halves for a while at each drop.
        let (mut interval, mut dropped, mut next) = (900_000, 0, 0);
        while next < 60_000_000_000u64 {
            let now = Time::from_nanos(next);
            link.push(now, datagram(1250));
            while link.poll(now).is_some() {}
            let drops = link.stats().drops.total();
            interval = if drops > dropped {
                2_000_000
            } else {
                (interval - interval / 500).max(500_000)
            };
            dropped = drops;
            next += interval;
        }
        link.take_measure(at(60_000)).delays.quantile(0.5)
    };
    let (codel, tail) = (median("aqm=codel"), median("aqm=droptail"));
    assert!(codel < MILLI * 20, "{codel:?}");
    assert!(tail > codel * 4, "{tail:?} against {codel:?}");
}

#[test]
fn codel_marks_in_place_of_dropping_only_where_both_sides_agree() {
    for (config, ecn, marks) in [
        ("aqm=codel,ecn=on", ECT_0, true),
        ("aqm=codel,ecn=on", ECT_1, true),
        ("aqm=codel,ecn=on", 0, false),
        ("aqm=codel", ECT_0, false),
    ] {
        let mut link = link(parsed(&format!("rate=10mbit,queue=10mb,{config}")));
        let out = overload(&mut link, 1000, ecn);
        let stats = link.stats();
        let ce = out.iter().filter(|(_, d)| d.ecn == Some(CE)).count() as u64;
        assert_eq!(stats.ce_marks, ce, "{config} {ecn}");
        assert_eq!(
            (ce > 10, stats.drops.aqm > 10),
            (marks, !marks),
            "{config} {ecn}"
        );
        assert_eq!(out.len() as u64 + stats.drops.total(), 2000);
        // Marked or not, the other bits stay.
        assert!(
            out.iter()
                .all(|(_, d)| d.ecn == Some(ecn) || d.ecn == Some(CE))
        );
    }
}

#[test]
fn what_is_marked_already_is_not_counted_again() {
    let mut link = link(parsed("rate=10mbit,queue=10mb,aqm=codel,ecn=on"));
    assert_eq!(overload(&mut link, 500, CE).len(), 1000);
    assert_eq!(link.stats().ce_marks, 0);
}

#[test]
fn red_keeps_the_average_queue_below_its_maximum() {
    let config = parsed("rate=10mbit,queue=10mb,aqm=red:20kb:60kb:10%");
    let mut red = link(config.clone());
    let out = overload(&mut red, 5000, 0);
    let stats = red.stats();
    assert_eq!(out.len() as u64 + stats.drops.aqm, 10_000);
    assert_eq!(stats.drops.queue, 0);
    // Half of it has to go; the queue stands at the maximum instead of at megabytes.
    assert!((4500..5000).contains(&stats.drops.aqm), "{stats:?}");
    assert!(red.take_measure(at(9000)).delays.mean() < MILLI * 150);
    // Same seed, same drops; luck is drawn whoever gets in.
    let mut again = link(config);
    assert_eq!(overload(&mut again, 5000, 0), out);
}

#[test]
fn a_step_marks_what_waited_longer_and_drops_nothing() {
    let mut link = link(parsed("rate=10mbit,aqm=step:2ms,ecn=on"));
    for number in 0..10 {
        link.push(at(0), marked(number, ECT_1));
    }
    // They wait 0, 1, 2, 3, … ms.
    let bits: Vec<Option<u8>> = drain(&mut link).iter().map(|(_, d)| d.ecn).collect();
    let expected = [[Some(ECT_1); 3].as_slice(), &[Some(CE); 7]].concat();
    assert_eq!(bits, expected);
    assert_eq!((link.stats().ce_marks, link.stats().drops.total()), (7, 0));
}

#[test]
fn a_policer_passes_its_burst_and_then_its_rate() {
    let mut link = link(parsed("police=1mbit:5000b,overhead=28"));
    // Four of 1250 bytes at once, with no queue anywhere.
    for number in 0..8 {
        link.push(at(0), sized(number, 1222));
    }
    assert_eq!(drain(&mut link).len(), 4);
    assert_eq!(link.stats().drops.policer, 4);
    // A datagram's tokens are there after exactly 10 ms.
    link.push(Time::from_nanos(9_999_999), sized(8, 1222));
    assert_eq!(link.stats().drops.policer, 5);
    link.push(at(10), sized(9, 1222));
    assert_eq!(link.stats().drops.policer, 5);
    // Silence fills the bucket, not more.
    for number in 0..8 {
        link.push(at(10_000), sized(number, 1222));
    }
    assert_eq!(link.stats().drops.policer, 9);
}

#[test]
fn a_policer_stands_before_the_queue() {
    let mut link = link(parsed("rate=10mbit,police=5mbit:12500b,queue=10mb"));
    let out = overload(&mut link, 1000, 0);
    // 20 Mbit/s come, 5 Mbit/s and the burst get through, and next to nothing waits.
    assert!((505..=511).contains(&out.len()), "{}", out.len());
    assert!(link.stats().queue_peak_bytes <= 12_500);
}

#[test]
fn a_lower_rate_slows_what_waits_already() {
    let mut link = link(parsed("rate=10mbit"));
    for number in 0..4 {
        link.push(at(0), sized(number, 1250));
    }
    link.set_config(at(0), parsed("rate=1mbit")).unwrap();
    // The one being serialised keeps its rate.
    let times: Vec<Time> = drain(&mut link).into_iter().map(|(time, _)| time).collect();
    assert_eq!(times, [at(1), at(11), at(21), at(31)]);
}

#[test]
fn steps_change_the_rate_in_mid_datagram() {
    let mut link = link(parsed("steps=0s:10mbit;1500us:5mbit;4s:10mbit"));
    for number in 0..3 {
        link.push(at(0), sized(number, 1250));
    }
    // Half of the second at 10 Mbit/s, half at 5.
    let half = MILLI / 2;
    let times: Vec<Time> = drain(&mut link).into_iter().map(|(time, _)| time).collect();
    assert_eq!(times, [at(1), at(2) + half, at(4) + half]);
}

#[test]
fn an_outage_holds_the_queue_and_then_drains_it() {
    let mut link = link(parsed("steps=0s:10mbit;10ms:0bit;50ms:10mbit,queue=100kb"));
    let mut out = Vec::new();
    for milli in 0..30 {
        link.push(at(milli), sized(milli, 1250));
        while let Some(datagram) = link.poll(at(milli)) {
            out.push((at(milli), number(&datagram)));
        }
    }
    assert_eq!(out.len(), 10);
    assert_eq!(link.queue_bytes(at(49)), 20 * 1250);
    assert_eq!(link.queue_bytes(at(50)), 19 * 1250);
    assert!(link.next_timeout() >= Some(at(50)));
    let rest: Vec<(Time, u64)> = drain(&mut link)
        .iter()
        .map(|(time, d)| (*time, number(d)))
        .collect();
    let expected: Vec<(Time, u64)> = (10..30).map(|n| (at(41 + n), n)).collect();
    assert_eq!(rest, expected);
    assert_eq!(link.stats().drops.total(), 0);
}

#[test]
fn a_recorded_trace_lets_out_what_it_says() {
    let schedule = crate::RateSchedule::from_delivery_trace("1\n2\n2\n10\n").unwrap();
    let mut link = link(LinkConfig {
        schedule: Some(schedule),
        ..LinkConfig::default()
    });
    for number in 0..9 {
        link.push(at(0), sized(number, 1500));
    }
    let nanos = Time::from_nanos;
    let times: Vec<Time> = drain(&mut link).into_iter().map(|(time, _)| time).collect();
    let half = nanos(1_500_000);
    let period = MILLI * 10;
    let one = [at(1), half, at(2), at(10)];
    let expected = one
        .into_iter()
        .chain(one.map(|time| time + period))
        .chain([at(21)]);
    assert_eq!(times, expected.collect::<Vec<_>>());
}

#[test]
fn whether_it_is_watched_or_not_a_queue_gives_the_same() {
    for config in [
        "rate=3mbit,delay=20ms,queue=60kb",
        "rate=3mbit,delay=20ms,queue=60kb,aqm=codel,ecn=on,loss=3%,dup=1%",
        "rate=3mbit,delay=20ms,jitter=8ms,order=any,queue=90kb,aqm=red:9kb:45kb:10%,reorder=2%",
        "steps=0s:6mbit;300ms:0bit;400ms:1mbit;700ms:repeat,aqm=codel,delay=5ms,loss=3%",
    ] {
        let [lazy, eager] = [false, true].map(|watched| {
            let mut link = link(parsed(config));
            let mut out = Vec::new();
            let mut random = 1u64;
            let mut now = 0;
            for i in 0..3000 {
                random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
                let next = now + (random >> 33) % 5_000_000;
                if watched {
                    // Every time that matters, and many that do not.
                    for part in 0..20 {
                        link.advance(Time::from_nanos(now + (next - now) * part / 20));
                    }
                    while let Some(due) = link.next_timeout().filter(|due| due.as_nanos() < next) {
                        out.extend(link.poll(due).map(|d| (due, d)));
                    }
                }
                now = next;
                let datagram = marked(i, if i % 2 == 0 { ECT_0 } else { 0 });
                link.push(Time::from_nanos(now), datagram);
            }
            out.extend(drain(&mut link));
            let mut arrived: Vec<Datagram> = out.into_iter().map(|(_, d)| d).collect();
            arrived.sort_by_key(number);
            (arrived, link.stats())
        });
        assert!(lazy.1.drops.total() > 0, "{config}: {:?}", lazy.1);
        assert_eq!(lazy, eager, "{config}");
    }
}

#[test]
fn nothing_arrives_before_the_time_that_was_named() {
    let mut link = link(parsed(
        "rate=3mbit,delay=20ms,jitter=30ms,order=any,aqm=codel,loss=20%,reorder=5%,queue=90kb",
    ));
    let mut arrived = 0;
    for milli in 0..2000 {
        for half in 0..2 {
            link.push(at(milli), sized(2 * milli + half, 1250));
        }
        // One nanosecond earlier there is nothing; and it is never in the past.
        while let Some(due) = link.next_timeout().filter(|due| *due <= at(milli + 1)) {
            assert!(due >= at(milli));
            if due > at(milli) {
                assert_eq!(link.poll(due - Duration::from_nanos(1)), None);
            }
            arrived += u64::from(link.poll(due).is_some());
        }
    }
    arrived += drain(&mut link).len() as u64;
    let stats = link.stats();
    assert_eq!(stats.datagrams_in, arrived + stats.drops.total());
}

#[test]
fn a_measure_tells_its_span_only() {
    let mut link = link(parsed("rate=10mbit,overhead=50"));
    for number in 0..10 {
        link.push(at(0), sized(number, 1200));
    }
    // At 4.5 ms four have left; the fifth is on its way, five wait.
    let first = link.take_measure(at(4) + MILLI / 2);
    assert_eq!((first.bytes_out, first.queue_bytes), (5000, 6250));
    assert_eq!((first.delays.count(), first.delays.mean()), (5, MILLI * 2));
    assert_eq!(
        (first.queue_peak_bytes, link.stats().queue_peak_bytes),
        (11_250, 11_250)
    );
    let second = link.take_measure(at(20));
    assert_eq!((second.from, second.to), (at(4) + MILLI / 2, at(20)));
    assert_eq!((second.bytes_out, second.queue_bytes), (7500, 0));
    assert_eq!(
        (second.delays.count(), second.delays.mean()),
        (5, MILLI * 7)
    );
    assert_eq!(
        (second.delays.max(), second.queue_peak_bytes),
        (MILLI * 9, 6250)
    );
    let third = link.take_measure(at(30));
    assert_eq!((third.bytes_out, third.queue_peak_bytes), (0, 0));
    assert!((first.rate() - 5000.0 * 8.0 / 0.0045).abs() < 1.0);
    let stats = link.stats();
    assert_eq!((stats.bytes_out, stats.datagrams_out), (12_500, 10));
    assert_eq!(stats.queue_delay_total, MILLI * 45);
}

#[test]
fn every_datagram_is_accounted_for_under_management() {
    for (seed, aqm) in [
        "aqm=codel",
        "aqm=red:2kb:8kb:20%:2%",
        "aqm=codel:1ms:20ms,ecn=on",
    ]
    .into_iter()
    .cycle()
    .take(60)
    .enumerate()
    {
        let config = parsed(&format!(
            "rate=2mbit,delay=30ms,jitter=10ms,loss=ge:2%:20%,dup=3%,reorder=5%,corrupt=2%,truncate=2%,\
             blackout=200ms+50ms,queue=20kb,police=5mbit:9kb,{aqm}"
        ));
        let mut link = Link::new(config, seed as u64, "sum").unwrap();
        for i in 0..800 {
            let ecn = [0, ECT_0][i as usize % 2];
            link.push(at(i / 2), marked(i, ecn));
        }
        drain(&mut link);
        let stats = link.stats();
        assert_eq!(
            stats.datagrams_in + stats.duplicated,
            stats.datagrams_delivered + stats.drops.total(),
            "seed {seed}: {stats:?}"
        );
        assert!(stats.drops.policer > 0, "{stats:?}");
        assert!(stats.drops.aqm > 0 || stats.ce_marks > 0, "{stats:?}");
        assert_eq!((link.in_flight(), link.held_bytes), (0, 0));
    }
}
