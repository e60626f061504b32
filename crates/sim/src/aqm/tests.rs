use super::*;

const MILLI: Duration = Duration::from_millis(1);

fn at(millis: u64) -> Time {
    Time::from_nanos(millis * 1_000_000)
}

/// Times in milliseconds at which CoDel drops, with a datagram a millisecond that waited as `wait` says.
fn drops(codel: &mut CoDel, millis: core::ops::Range<u64>, wait: Duration) -> Vec<u64> {
    millis
        .filter(|&milli| {
            let leaving = Leaving {
                now: at(milli),
                sojourn: wait,
                backlog: 100_000,
                markable: false,
            };
            codel.judge(MILLI * 5, MILLI * 100, &leaving) == Verdict::Drop
        })
        .collect()
}

#[test]
fn codel_drops_an_interval_after_the_wait_grew_and_then_ever_faster() {
    let mut codel = CoDel::default();
    assert_eq!(drops(&mut codel, 0..50, MILLI * 4), []);
    // 100 ms later, then after 100/√1, 100/√2, 100/√3, … ms.
    let times = drops(&mut codel, 50..600, MILLI * 20);
    assert_eq!(times, [150, 250, 321, 379, 429, 474, 514, 552, 588]);
    // The wait is short once: all is forgiven for an interval.
    assert_eq!(drops(&mut codel, 600..601, MILLI), []);
    let again = drops(&mut codel, 601..800, MILLI * 20);
    // Soon after, dropping goes on at nearly its old pace.
    assert_eq!(again[0], 701);
    assert!(again[1] <= 740, "{again:?}");
}

#[test]
fn codel_leaves_a_queue_of_one_datagram_alone() {
    let mut codel = CoDel {
        largest: 1500,
        ..CoDel::default()
    };
    for milli in 0..1000 {
        let leaving = Leaving {
            now: at(milli),
            sojourn: MILLI * 500,
            backlog: 1500,
            markable: false,
        };
        let verdict = codel.judge(MILLI * 5, MILLI * 100, &leaving);
        assert_eq!(verdict, Verdict::Pass);
    }
}

/// A queue of `backlog` for `count` datagrams whose luck is spread evenly.
fn judge_all(red: &mut Red, backlog: u64, count: u32, markable: bool) -> Vec<Verdict> {
    (0..count)
        .map(|i| {
            let coming = Coming {
                now: at(0),
                backlog,
                idle_since: None,
                service: MILLI,
                markable,
                luck: f64::from(i * 37 % 100) / 100.0,
            };
            red.judge((10_000.0, 30_000.0), 0.1, 0.01, &coming)
        })
        .collect()
}

#[test]
fn red_acts_on_the_average_and_not_on_bursts() {
    let mut red = Red::default();
    // A short burst far above the maximum passes.
    let burst = judge_all(&mut red, 60_000, 10, false);
    assert!(burst.iter().all(|verdict| *verdict == Verdict::Pass));
    // A standing queue halfway between the two is dropped at 5 %, evenly spread: every
    // tenth or so in the long run, as gaps are uniform up to 1/p.
    judge_all(&mut red, 20_000, 1000, false);
    let standing = judge_all(&mut red, 20_000, 10_000, false);
    let dropped = standing.iter().filter(|v| **v == Verdict::Drop).count();
    assert!((700..1300).contains(&dropped), "{dropped}");
    // Above the maximum nothing passes, markable or not.
    judge_all(&mut red, 60_000, 1000, true);
    let over = judge_all(&mut red, 60_000, 100, true);
    assert!(over.iter().all(|verdict| *verdict == Verdict::Drop));
}

#[test]
fn red_marks_what_can_be_marked() {
    let mut red = Red::default();
    judge_all(&mut red, 20_000, 1000, true);
    let verdicts = judge_all(&mut red, 20_000, 1000, true);
    assert!(verdicts.contains(&Verdict::Mark));
    assert!(!verdicts.contains(&Verdict::Drop));
}

#[test]
fn red_forgets_while_idle() {
    let mut red = Red {
        average: 29_000.0,
        since_last: 5,
    };
    let coming = Coming {
        now: at(1000),
        backlog: 0,
        idle_since: Some(at(0)),
        service: MILLI,
        markable: false,
        luck: 0.0,
    };
    let verdict = red.judge((10_000.0, 30_000.0), 0.1, 0.01, &coming);
    assert_eq!(verdict, Verdict::Pass);
    // 0.99^1001 of what it was.
    assert!((1.1..1.4).contains(&red.average), "{}", red.average);
}
