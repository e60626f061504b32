//! BBR over a simulated bottleneck: what it carries, the queue it keeps, how it shares.
//!
//! The scenarios are those of the draft's Appendix A that need a path, and the marks BBR has to
//! meet. Whole connections are measured elsewhere.

mod path;

use std::time::Duration;

use path::{DATAGRAM, Path, Report, Sender, mbit, ms, run};
use towline_recovery::{Algorithm, Stats};

fn bbr() -> Sender {
    Sender::new(Algorithm::Bbr)
}

fn last(report: &Report) -> &Stats {
    report.flows[0].stats.last().unwrap()
}

/// The first second after `from` in which the link was in use to this share.
fn used_from(report: &Report, from: usize, rate: u64, share: f64) -> Option<f64> {
    let enough = |bin: &usize| report.carried[*bin] as f64 * 10.0 >= share * rate as f64;
    let bin = (from * 10..report.carried.len()).find(enough)?;
    Some(bin as f64 / 10.0 - from as f64)
}

#[test]
fn one_flow_uses_the_bottleneck() {
    for rate in [10, 50, 100] {
        for rtt in [10, 50, 200] {
            let report = run(&Path::new(mbit(rate), ms(rtt)), &[bbr()], 60);
            let used = report.utilisation(10..60, mbit(rate));
            assert!(used >= 0.95, "{rate} Mbit/s {rtt} ms: {used}");
            let delay = report.mean_delay(10..60);
            let most = 0.4 * ms(rtt).as_secs_f64();
            assert!(delay <= most, "{rate} Mbit/s {rtt} ms: {delay} s");
            let dropped = report.dropped as f64 / report.packets as f64;
            assert!(dropped < 0.02, "{rate} Mbit/s {rtt} ms: {dropped}");
            assert_eq!(report.flows[0].timeouts, 0, "{rate} Mbit/s {rtt} ms");
        }
    }
}

#[test]
fn thin_acks_change_little() {
    for rtt in [10, 50, 200] {
        let mut path = Path::new(mbit(50), ms(rtt));
        path.thinning = 8;
        let report = run(&path, &[bbr()], 60);
        let used = report.utilisation(10..60, mbit(50));
        assert!(used >= 0.95, "{rtt} ms: {used}");
    }
}

#[test]
fn lost_acks_cost_little() {
    let mut path = Path::new(mbit(20), ms(50));
    let whole = run(&path, &[bbr()], 30);
    path.ack_loss = 200_000;
    let thinned = run(&path, &[bbr()], 30);
    let (with, without) = (thinned.goodput(0, 0..30), whole.goodput(0, 0..30));
    assert!(with >= 0.95 * without, "{with} of {without}");
    let window = |report: &Report| {
        let stats = report.flows[0].stats.iter();
        stats.map(|stats| stats.cwnd).sum::<u64>()
    };
    assert!(window(&thinned) * 2 >= window(&whole));
}

#[test]
fn a_deep_buffer_stays_nearly_empty() {
    let mut path = Path::new(mbit(20), ms(40));
    path.queue *= 4;
    let report = run(&path, &[bbr()], 60);
    let delay = report.mean_delay(0..60);
    assert!(delay < 0.01, "{delay} s on average, one BDP is 0.04");
    assert!(report.utilisation(10..60, mbit(20)) > 0.95);
}

#[test]
fn one_per_cent_of_random_loss_costs_little() {
    for seed in 1..4 {
        let mut path = Path::new(mbit(100), ms(165));
        path.loss = 10_000;
        path.seed = seed;
        // 200,000 packets and the start included.
        let used = run(&path, &[bbr()], 20).utilisation(0..20, mbit(100));
        assert!(used >= 0.8, "seed {seed}: {used}");
    }
}

#[test]
fn a_rate_that_falls_to_a_fifth_and_returns_is_followed() {
    for seed in 1..6 {
        let mut path = Path::new(mbit(50), ms(40));
        path.seed = seed;
        // Another place in the probing cycle for each seed.
        let fall = ms(20_000 + 300 * seed);
        path.rates
            .extend([(fall, mbit(10)), (ms(40_000), mbit(50))]);
        let report = run(&path, &[bbr()], 60);
        let settled = fall.as_millis() as usize / 100 + 30;
        // One BDP of the new rate is 40 ms; a probe may exceed it for a moment.
        let high = report.delay[settled..400]
            .iter()
            .filter(|delay| **delay > ms(40));
        let high = high.count();
        assert!(high <= 4, "seed {seed}: above in {high} tenths of a second");
        assert!(
            report.delay[settled..400]
                .iter()
                .all(|delay| *delay < ms(80))
        );
        assert!(report.utilisation(30..40, mbit(10)) > 0.95, "seed {seed}");
        let found = used_from(&report, 40, mbit(50), 0.9).unwrap();
        assert!(found < 4.0, "seed {seed}: {found} s to the old rate");
    }
}

#[test]
fn ten_times_the_rate_is_found_within_a_probe() {
    let mut path = Path::new(mbit(100), ms(40));
    path.rates = vec![(Duration::ZERO, mbit(10)), (ms(20_000), mbit(100))];
    let report = run(&path, &[bbr()], 40);
    let found = used_from(&report, 20, mbit(100), 0.9).unwrap();
    assert!(found < 4.0, "{found} s");
    assert!(report.utilisation(30..40, mbit(100)) > 0.95);
}

#[test]
fn a_tenth_of_the_rate_is_accepted() {
    let mut path = Path::new(mbit(100), ms(40));
    path.queue /= 2;
    path.rates = vec![(Duration::ZERO, mbit(100)), (ms(20_000), mbit(10))];
    let report = run(&path, &[bbr()], 40);
    let rate = last(&report).pacing_rate.unwrap();
    assert!(rate <= mbit(13), "{rate}");
    assert!(report.mean_delay(24..40) < 0.04);
    assert!(report.utilisation(30..40, mbit(10)) > 0.95);
}

#[test]
fn equal_flows_share_equally_latecomers_included() {
    for flows in [2u64, 4, 8] {
        let path = Path::new(mbit(50), ms(50));
        let start = |index| Sender {
            start: ms(5000 * index),
            ..bbr()
        };
        let senders: Vec<Sender> = (0..flows).map(start).collect();
        let report = run(&path, &senders, 120);
        let index = report.fairness(60..120);
        assert!(index >= 0.9, "{flows} flows: {index}");
        assert!(report.utilisation(60..120, mbit(50)) >= 0.95);
    }
}

#[test]
fn cubic_beside_it_gets_a_share() {
    for depth in [1, 4] {
        let mut path = Path::new(mbit(50), ms(40));
        path.queue *= depth;
        let report = run(&path, &[bbr(), Sender::new(Algorithm::Cubic)], 120);
        let (own, other) = (report.goodput(0, 20..120), report.goodput(1, 20..120));
        let share = own / (own + other);
        assert!((0.3..=0.7).contains(&share), "{depth} BDP: {share}");
    }
}

#[test]
fn a_policer_is_obeyed() {
    let mut path = Path::new(mbit(100), ms(40));
    path.policer = Some((mbit(10), 100_000));
    let report = run(&path, &[bbr()], 30);
    let used = report.utilisation(10..30, mbit(10));
    assert!((0.9..1.01).contains(&used), "{used}");
    let lost = report.dropped as f64 / report.packets as f64;
    assert!(lost < 0.06, "{lost}");
}

#[test]
fn lumps_of_acks_do_not_stall_it() {
    for lump in [10, 50] {
        let mut path = Path::new(mbit(50), ms(20));
        path.lumps = Some(ms(lump));
        path.queue *= 4;
        let used = run(&path, &[bbr()], 30).utilisation(5..30, mbit(50));
        assert!(used >= 0.95, "{lump} ms: {used}");
    }
}

#[test]
fn a_path_that_holds_less_than_two_packets_keeps_moving() {
    // 1.5 datagrams, serialisation included: the floor and the lumps of delayed ACKs decide.
    let mut path = Path::new(30_000, ms(20));
    path.queue = 20 * DATAGRAM;
    let report = run(&path, &[bbr()], 60);
    assert!(report.utilisation(5..60, 30_000) > 0.95);
    assert_eq!((report.dropped, report.flows[0].timeouts), (0, 0));
    let windows = report.flows[0].stats[100..].iter().map(|stats| stats.cwnd);
    for window in windows {
        assert!((4 * DATAGRAM..=12 * DATAGRAM).contains(&window), "{window}");
    }
}

#[test]
fn reordering_taken_for_loss_is_undone() {
    let mut path = Path::new(mbit(50), ms(40));
    path.reorder = Some((97, ms(5)));
    let report = run(&path, &[bbr()], 30);
    let stats = last(&report);
    assert!(stats.packets_spuriously_lost > 1000);
    let undone = stats.spurious_congestion_events as f64 / stats.congestion_events as f64;
    assert!(undone > 0.9, "{undone}");
    let used = report.utilisation(5..30, mbit(50));
    assert!(used >= 0.93, "{used}");
}

#[test]
fn an_application_limited_sender_neither_queues_nor_forgets() {
    let mut sender = bbr();
    sender.writes = Some(mbit(5));
    let report = run(&Path::new(mbit(50), ms(40)), &[sender], 30);
    assert_eq!(report.dropped, 0);
    assert!(report.mean_delay(0..30) < 0.001);
    assert!(report.utilisation(5..30, mbit(5)) > 0.99);
    let (in_flight, window) = (last(&report).bytes_in_flight, last(&report).cwnd);
    assert!(window > in_flight, "{window} for {in_flight}");
}

#[test]
fn a_pause_costs_neither_rate_nor_round_trip() {
    let mut sender = bbr();
    sender.silent.push(ms(10_000)..ms(17_000));
    let report = run(&Path::new(mbit(50), ms(40)), &[sender], 22);
    let before = report.flows[0].stats[99].pacing_rate.unwrap() as f64;
    let after = report.flows[0].stats[169].pacing_rate.unwrap() as f64;
    assert!((0.95..1.3).contains(&(after / before)), "{before} {after}");
    assert_eq!(used_from(&report, 17, mbit(50), 0.9), Some(0.0));
}

#[test]
fn short_and_very_long_paths_work() {
    for (rtt, least) in [(1, 0.95), (2, 0.95), (1000, 0.8)] {
        let report = run(&Path::new(mbit(50), ms(rtt)), &[bbr()], 60);
        let used = report.utilisation(20..60, mbit(50));
        assert!(used >= least, "{rtt} ms: {used}");
    }
}

#[test]
fn the_same_seed_gives_the_same_trace() {
    let trace = |seed| {
        let mut path = Path::new(mbit(20), ms(40));
        path.seed = seed;
        let report = run(&path, &[bbr(), bbr()], 20);
        (report.carried, report.packets, report.dropped)
    };
    assert_eq!(trace(1), trace(1));
    assert_ne!(trace(1), trace(2));
}
