use std::time::Duration;

use towline_quic::Algorithm;

use super::*;

fn millis(n: u64) -> Duration {
    Duration::from_millis(n)
}

fn path(seconds: u64) -> Scenario {
    let rate = 10_000_000;
    let rtt = millis(50);
    Scenario::dumbbell(rate, rtt, bdp(rate, rtt), Duration::from_secs(seconds))
}

#[test]
fn a_bulk_flow_fills_the_bottleneck_and_its_queue_is_seen() {
    let scenario = path(10).flow(Flow::bulk("cubic", Algorithm::Cubic));
    let outcome = run(&scenario).expect("a possible scenario");
    let span = Duration::from_secs(3)..Duration::from_secs(10);
    let used = outcome.utilisation(span.clone());
    assert!((0.9..=1.001).contains(&used), "utilisation {used}");
    let delays = outcome.queue_delays(span.clone());
    let worst = percentile(&delays, 1.0);
    assert!(
        (0.03..=0.051).contains(&worst),
        "worst queue {worst} s of a buffer of 50 ms"
    );
    let flow = &outcome.flows[0];
    assert!(flow.failure.is_none(), "{:?}", flow.failure);
    let rate = flow.goodput(span) / 10e6;
    assert!(
        (0.85..0.98).contains(&rate),
        "headers take their share: {rate}"
    );
}

#[test]
fn a_question_is_answered_after_two_round_trips_whatever_its_answer_takes() {
    for post_quantum in [false, true] {
        let bytes = 1_000_000;
        let traffic = Traffic::Request { bytes };
        let mut scenario = path(30).flow(Flow::bulk("ask", Algorithm::Cubic).with_traffic(traffic));
        scenario.post_quantum = post_quantum;
        let outcome = run(&scenario).expect("a possible scenario");
        let flow = &outcome.flows[0];
        let first = flow.first_byte.expect("an answer");
        assert!((millis(100)..millis(110)).contains(&first), "{first:?}");
        let whole = flow.took().expect("a whole answer");
        assert!((millis(900)..millis(2000)).contains(&whole), "{whole:?}");
        assert_eq!(
            (flow.stream_bytes.as_slice(), flow.delivered()),
            (&[bytes][..], bytes)
        );
        assert!(
            outcome.duration < Duration::from_secs(3),
            "it ends with the answer"
        );
    }
}

#[test]
fn the_same_scenario_is_the_same_outcome() {
    let scenario = path(3)
        .flow(Flow::bulk("a", Algorithm::Cubic))
        .flow(Flow::bulk("b", Algorithm::NewReno).during(millis(500)..millis(2500)));
    let [one, two] = [1, 2].map(|_| run(&scenario).expect("a possible scenario"));
    assert_eq!(format!("{one:?}"), format!("{two:?}"));
    let mut other = scenario;
    other.seed = 2;
    let other = run(&other).expect("a possible scenario");
    assert_ne!(format!("{one:?}"), format!("{other:?}"));
}

#[test]
fn a_finite_transfer_ends_the_scenario_when_it_is_complete() {
    let scenario = path(60).flow(Flow::bulk("files", Algorithm::Cubic).with_traffic(
        Traffic::Streams {
            count: 3,
            bytes: 100_000,
        },
    ));
    let outcome = run(&scenario).expect("a possible scenario");
    assert!(
        outcome.duration < Duration::from_secs(2),
        "{:?}",
        outcome.duration
    );
    let flow = &outcome.flows[0];
    assert_eq!(flow.stream_bytes, [100_000; 3]);
    let handshake = flow.connected.expect("connected");
    assert!(
        (millis(50)..millis(60)).contains(&handshake),
        "{handshake:?}"
    );
    let took = flow.took().expect("complete");
    // 300 kB at 10 Mbit/s take 240 ms and the handshake 50.
    assert!((millis(300)..millis(700)).contains(&took), "{took:?}");
}

#[test]
fn pings_see_the_queue_that_others_fill() {
    let alone = run(&path(5).flow(Flow::ping())).expect("a possible scenario");
    let base = median(&alone.flows[0].ping_times(millis(0)..millis(4500)));
    assert!((0.050..0.051).contains(&base), "{base}");
    let busy = path(5)
        .flow(Flow::bulk("bulk", Algorithm::NewReno))
        .flow(Flow::ping());
    let busy = run(&busy).expect("a possible scenario");
    let times = busy.flows[1].ping_times(millis(1000)..millis(4500));
    assert!(percentile(&times, 0.9) > base + 0.02, "{times:?}");
}

#[test]
fn a_constant_stream_takes_its_rate_and_links_change_when_told() {
    let constant = Traffic::Constant {
        rate: 4_000_000,
        size: 1000,
    };
    let mut scenario = path(10).flow(Flow::bulk("noise", Algorithm::Cubic).with_traffic(constant));
    let mut slow = scenario.forward.clone();
    slow.rate = Some(1_000_000);
    scenario.changes.push(Change {
        at: Duration::from_secs(5),
        forward: Some(slow),
        back: None,
        pool: None,
    });
    let outcome = run(&scenario).expect("a possible scenario");
    let flow = &outcome.flows[0];
    let before = flow.goodput(millis(1000)..millis(5000)) / 4e6;
    let after = flow.goodput(millis(6000)..millis(10_000)) / 1e6;
    assert!((0.97..=1.01).contains(&before), "{before}");
    assert!((0.94..=1.0).contains(&after), "{after}");
}

#[test]
fn cross_traffic_comes_and_goes_from_its_start_on() {
    let on_off = Traffic::OnOff {
        rate: 4_000_000,
        size: 1000,
        on: Duration::from_secs(1),
        off: Duration::from_secs(2),
    };
    let cross = Flow::bulk("cross", Algorithm::Cubic)
        .with_traffic(on_off)
        .during(millis(500)..Duration::MAX);
    let outcome = run(&path(8).flow(cross)).expect("a possible scenario");
    let rate = |from, to| outcome.flows[0].goodput(millis(from)..millis(to)) / 4e6;
    for (from, to) in [(700, 1500), (3700, 4500), (6700, 7500)] {
        assert!(
            (0.95..1.05).contains(&rate(from, to)),
            "{from}: {}",
            rate(from, to)
        );
    }
    for (from, to) in [(0, 500), (1600, 3500), (4600, 6500)] {
        assert_eq!(rate(from, to), 0.0, "{from}");
    }
}

#[test]
fn a_link_that_follows_steps_is_measured_against_them() {
    let mut scenario = path(8).flow(Flow::bulk("bulk", Algorithm::Cubic));
    scenario.forward = "steps=0s:10mbit;2s:4mbit;4s:repeat,delay=25ms,queue=60000,overhead=28"
        .parse()
        .expect("a link");
    let outcome = run(&scenario).expect("a possible scenario");
    let used = outcome.utilisation(millis(1000)..millis(8000));
    assert!((0.9..=1.005).contains(&used), "{used}");
    let rates: Vec<_> = [100, 300, 500]
        .map(|n: usize| outcome.bottleneck[n].rate)
        .into();
    assert_eq!(rates, [Some(10_000_000), Some(4_000_000), Some(10_000_000)]);
    let worst = percentile(&outcome.queue_delays(millis(2500)..millis(4000)), 1.0);
    assert!(
        (0.06..=0.13).contains(&worst),
        "60 kB at 4 Mbit/s are 120 ms: {worst}"
    );
}

#[test]
fn whoever_watches_sees_the_time_pass_and_may_end_it() {
    let scenario = path(10).flow(Flow::ping());
    let mut seen = Vec::new();
    let outcome = run_with(&scenario, |at| {
        seen.push(at);
        match at >= millis(3000) {
            true => std::ops::ControlFlow::Break(()),
            false => std::ops::ControlFlow::Continue(()),
        }
    });
    let outcome = outcome.expect("a possible scenario");
    assert_eq!(outcome.duration, millis(3000));
    assert_eq!(seen.len(), 31);
    assert!(seen.is_sorted());
    let answered = outcome.flows[0].ping_times(millis(0)..millis(2900));
    assert_eq!(answered.len(), 29);
}

#[test]
fn a_summary_says_who_had_what() {
    let scenario = path(10)
        .flow(Flow::bulk("one", Algorithm::NewReno))
        .flow(Flow::bulk("two", Algorithm::NewReno).during(millis(2000)..millis(9000)))
        .flow(Flow::ping());
    let outcome = run(&scenario).expect("a possible scenario");
    let summary = Summary::new(&scenario, &outcome, millis(1000));
    assert_eq!(summary.span, millis(1000)..millis(10_000));
    let [one, two, ping] = &summary.flows[..] else {
        panic!("{summary:?}")
    };
    let [a, b] = [one, two].map(|flow| flow.share.expect("a share"));
    assert!((a + b - 1.0).abs() < 1e-9 && a > b, "{a} {b}");
    assert_eq!(ping.share, None);
    assert_eq!(ping.packets_lost, Some(0));
    assert!(
        summary
            .fairness
            .is_some_and(|jain| (0.5..=1.0).contains(&jain))
    );
    // A flow is measured while it is active: 7 s of 9.
    let delivered = outcome.flows[1].delivered() as f64 * 8.0;
    assert!((two.goodput * 7.0 / delivered - 1.0).abs() < 0.05);
    assert!(ping.rtt_p95 >= ping.rtt_p50 && ping.rtt_p50 > Some(0.05));
}

#[test]
fn a_running_flow_changes_its_controller_without_stopping() {
    let mut flow = Flow::bulk("switching", Algorithm::Cubic);
    flow.switches = vec![(Duration::from_secs(5), Algorithm::NewReno)];
    let outcome = run(&path(12).flow(flow)).expect("a possible scenario");
    for second in 4..11 {
        let span = Duration::from_secs(second)..Duration::from_secs(second + 1);
        let used = outcome.utilisation(span);
        assert!(used > 0.8, "second {second}: {used}");
    }
}

#[test]
fn background_flows_share_one_controller_and_pool_members_one_total() {
    let mut scenario = path(10);
    for n in 0..3 {
        scenario = scenario.flow(Flow::background(format!("background {n}")));
    }
    scenario = scenario.flow(Flow::ping());
    let outcome = run(&scenario).expect("a possible scenario");
    let span = millis(3000)..millis(10_000);
    assert!(outcome.utilisation(span.clone()) > 0.8);
    let worst = percentile(&outcome.flows[3].ping_times(span.clone()), 0.95);
    assert!(worst < 0.09, "{worst}");

    let mut scenario = path(10);
    scenario.pool = NonZeroU64::new(4_000_000);
    for weight in [1, 3] {
        let mut flow = Flow::bulk(format!("weight {weight}"), Algorithm::Cubic);
        flow.share = NonZeroU32::new(weight).map(|weight| (TrafficClass::Normal, weight));
        scenario = scenario.flow(flow);
    }
    let outcome = run(&scenario).expect("a possible scenario");
    let rates = [0, 1].map(|n| outcome.flows[n].goodput(span.clone()));
    assert!((2.7..3.3).contains(&(rates[1] / rates[0])), "{rates:?}");
    assert!((3.6e6..4.0e6).contains(&(rates[0] + rates[1])), "{rates:?}");
}

#[test]
fn impossible_scenarios_are_refused() {
    assert_eq!(run(&path(1)).err(), Some(RunError::Flows(0)));
    let mut none = path(1).flow(Flow::ping());
    none.forward.rate = Some(0);
    assert!(run(&none).is_err());
    let streams = Traffic::Streams { count: 0, bytes: 1 };
    let none = path(1).flow(Flow::ping().with_traffic(streams));
    let problem = run(&none).expect_err("no stream").to_string();
    assert!(problem.contains("1 to 100 streams"), "{problem}");
}

#[test]
fn figures_are_what_their_names_say() {
    assert_eq!(jain(&[1.0, 1.0, 1.0]), 1.0);
    assert_eq!(jain(&[1.0, 0.0, 0.0, 0.0]), 0.25);
    assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
    assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), 2.5);
    assert_eq!(percentile(&[1.0, 2.0, 3.0, 4.0], 0.5), 2.0);
    assert_eq!(percentile(&[1.0, 2.0, 3.0, 4.0], 1.0), 4.0);
    assert_eq!(coefficient_of_variation(&[2.0, 2.0]), 0.0);
    assert_eq!(coefficient_of_variation(&[1.0, 3.0]), 0.5);
}
