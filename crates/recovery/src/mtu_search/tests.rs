//! The search alone, against paths that carry so much and no more.

use proptest::prelude::*;

use super::*;

const ETHERNET: DatagramSizes = DatagramSizes {
    initial: 1200,
    min: 1200,
    max: 1472,
    search: true,
};

fn at(seconds: u64) -> Time {
    Time::ZERO + Duration::from_secs(seconds)
}

/// A search for which enough was sent.
fn searching(sizes: DatagramSizes) -> MtuSearch {
    let mut search = MtuSearch::new(sizes);
    search.on_full_sized(usize::from(WORTHWHILE));
    search
}

/// Sends probes over a path that carries `path` bytes until none is due; returns their sizes.
fn run(search: &mut MtuSearch, now: Time, path: u16) -> Vec<u16> {
    let mut sizes = Vec::new();
    while let Some(size) = search.due(now) {
        search.on_probe_sent(sizes.len() as u64, size);
        assert_eq!(search.due(now), None, "one at a time");
        sizes.push(size);
        match size <= path {
            true => search.on_probe_acked(now),
            false => search.on_probe_lost(now),
        }
        assert!(sizes.len() < 100, "{sizes:?}");
    }
    sizes
}

#[test]
fn a_path_of_1500_bytes_is_found_by_the_first_probe() {
    let mut search = searching(ETHERNET);
    assert_eq!(run(&mut search, at(1), 1472), [1472]);
    assert_eq!(search.size(), 1472);
    assert_eq!(run(&mut search, at(100_000), 1472), [], "there is no more");
}

#[test]
fn nothing_is_probed_before_two_round_trips_of_full_datagrams() {
    let mut search = MtuSearch::new(ETHERNET);
    assert_eq!(search.due(at(1)), None);
    search.on_full_sized(usize::from(WORTHWHILE) - 1);
    assert_eq!(search.due(at(1)), None);
    search.on_full_sized(1);
    assert_eq!(search.due(at(1)), Some(1472));
}

#[test]
fn a_size_is_tried_three_times() {
    let mut search = searching(ETHERNET);
    let sizes = run(&mut search, at(1), 1400);
    assert_eq!(sizes[..4], [1472, 1472, 1472, 1400]);
    assert_eq!(search.size(), 1400);
}

#[test]
fn probes_that_are_all_lost_end_and_come_again_after_ten_minutes() {
    let mut search = searching(ETHERNET);
    let lost = run(&mut search, at(1), 1200);
    assert_eq!(search.size(), 1200);
    assert!(lost.len() <= 3 * 6, "{lost:?}");
    assert_eq!(run(&mut search, at(600), 1200), []);
    assert_eq!(
        run(&mut search, at(601), 1472),
        [1472],
        "the path has grown"
    );
    assert_eq!(search.size(), 1472);
}

#[test]
fn jumbo_frames_and_loopback_are_found_when_they_are_asked_for() {
    let sizes = DatagramSizes {
        max: 65_507,
        ..ETHERNET
    };
    for path in [1472, 8872, 8972, 65_507] {
        let mut search = searching(sizes);
        let probes = run(&mut search, at(1), path);
        assert!(
            search.size() <= path && path - search.size() < GRANULARITY,
            "{path}"
        );
        assert!(probes.len() < 60, "{path}: {probes:?}");
    }
}

#[test]
fn a_search_that_is_off_sends_none_and_suspects_nothing() {
    let mut search = searching(DatagramSizes::fixed(1472));
    assert_eq!((search.due(at(1)), search.safe_size()), (None, 1472));
    for second in 0..20 {
        search.on_lost(10, 1472);
        assert!(!search.on_acked(at(second), 1200));
    }
    assert_eq!(search.size(), 1472);
}

/// At 1472 bytes, as after a search.
fn found() -> MtuSearch {
    let mut search = searching(ETHERNET);
    run(&mut search, at(1), 1472);
    search
}

#[test]
fn large_datagrams_lost_while_small_ones_pass_three_times_are_a_black_hole() {
    let mut search = found();
    for second in [2, 3] {
        search.on_lost(5, 1472);
        assert!(!search.on_acked(at(second), 1200));
        assert!(!search.on_acked(at(second), 1200), "nothing was lost since");
    }
    // Several detections before an ACK say no more than one.
    search.on_lost(1, 1472);
    search.on_lost(1, 1472);
    assert!(search.on_acked(at(4), 1200));
    assert_eq!(search.size(), 1200);
    assert_eq!(search.due(at(63)), None, "the path has a minute to settle");
    assert_eq!(run(&mut search, at(64), 1400)[0], 1472);
    assert_eq!(search.size(), 1400);
}

#[test]
fn congestion_is_no_black_hole() {
    let mut search = found();
    for second in 2..100 {
        // Small datagrams are lost as well.
        search.on_lost(50, 60);
        assert!(!search.on_acked(at(second), 1200));
        // Large ones pass.
        search.on_lost(50, 1472);
        assert!(!search.on_acked(at(second), 1200));
        assert!(!search.on_acked(at(second), 1472));
    }
    // One at a time, as by chance.
    for second in 100..107 {
        search.on_lost(1, 1472);
        assert!(!search.on_acked(at(second), 1200));
    }
    assert_eq!(search.size(), 1472);
}

#[test]
fn middling_datagrams_that_pass_do_not_hide_a_black_hole() {
    let mut search = found();
    for (second, falls) in [(2, false), (3, false), (4, true)] {
        search.on_lost(5, 1472);
        assert_eq!(search.on_acked(at(second), 1300), falls);
    }
}

#[test]
fn a_refused_size_is_not_tried_again_and_nothing_falls_below_1200() {
    let mut search = searching(ETHERNET);
    assert_eq!(search.due(at(1)), Some(1472));
    search.on_probe_sent(0, 1472);
    assert!(!search.on_refused(at(1), 1472), "it was a probe");
    search.on_probe_lost(at(1));
    let sizes = run(&mut search, at(1), 1400);
    assert!(!sizes.contains(&1472), "{sizes:?}");
    assert_eq!(search.size(), 1400);
    assert!(search.on_refused(at(2), 1400), "the device's MTU fell");
    assert_eq!(search.size(), 1200);
    for size in [0, 68, 1199, 1200] {
        assert!(!search.on_refused(at(3), size));
    }
    assert_eq!(search.size(), 1200);
}

#[test]
fn what_every_path_was_said_to_carry_may_be_refused_too() {
    let mut search = searching(DatagramSizes::fixed(1472));
    assert!(search.on_refused(at(1), 1472));
    assert_eq!(search.size(), 1200);
}

#[test]
fn the_peer_s_limit_bounds_the_search() {
    let mut search = searching(ETHERNET);
    assert!(!search.limit(1300));
    run(&mut search, at(1), 1472);
    assert_eq!(search.size(), 1300);
    assert!(search.limit(1200));
    assert_eq!(search.size(), 1200);
}

#[derive(Clone, Debug)]
enum Step {
    Probe { arrives: bool },
    Acked(u16),
    Lost(u16),
    Refused(u16),
    TooBig(u16),
    Abandoned,
    Wait(u64),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => any::<bool>().prop_map(|arrives| Step::Probe { arrives }),
        2 => (0u16..9000).prop_map(Step::Acked),
        3 => (0u16..9000).prop_map(Step::Lost),
        1 => (0u16..9000).prop_map(Step::Refused),
        1 => (0u16..9000).prop_map(Step::TooBig),
        1 => Just(Step::Abandoned),
        2 => (0u64..400).prop_map(Step::Wait),
    ]
}

#[test]
fn what_a_router_says_of_a_probe_is_tried_next() {
    let mut search = searching(ETHERNET);
    assert_eq!(search.due(at(1)), Some(1472));
    search.on_probe_sent(0, 1472);
    assert_eq!(search.on_too_big(at(2), 1472, 1412), TooBig::Noted);
    search.on_probe_lost(at(3));
    assert_eq!(run(&mut search, at(3), 1412), [1412]);
    assert_eq!((search.size(), search.due(at(4))), (1412, None));
    assert_eq!(search.due(at(1000)), Some(1472), "it may have changed");
}

#[test]
fn what_a_router_says_of_the_size_in_use_is_probed_before_it_is_used() {
    let mut search = searching(ETHERNET);
    run(&mut search, at(1), 1472);
    assert_eq!(search.on_too_big(at(2), 1472, 1300), TooBig::SizeFell);
    assert_eq!(search.size(), 1200);
    assert_eq!(search.on_too_big(at(2), 1472, 1300), TooBig::NotBelieved);
    // The next router takes even less.
    assert_eq!(run(&mut search, at(3), 1252)[..4], [1300, 1300, 1300, 1252]);
    assert_eq!(search.size(), 1252);
}

#[test]
fn a_router_lowers_nothing_below_what_every_path_carries_and_raises_nothing() {
    let sizes = DatagramSizes {
        min: 1280,
        initial: 1280,
        ..ETHERNET
    };
    let mut search = searching(sizes);
    search.on_probe_sent(0, 1400);
    search.on_probe_acked(at(1));
    search.rule_out(1400);
    for mtu in [0, 68, 548, 1199, 1200, 1279, 1400, 1472, 9000] {
        let outcome = search.on_too_big(at(2), 1400, mtu);
        assert_eq!(outcome, TooBig::NotBelieved, "{mtu}");
        assert_eq!((search.size(), search.due(at(2))), (1400, None), "{mtu}");
    }
    assert_eq!(search.on_too_big(at(2), 1400, 1280), TooBig::SizeFell);
    assert_eq!((search.size(), search.due(at(2))), (1280, None));
    let mut fixed = MtuSearch::new(DatagramSizes::fixed(1400));
    assert_eq!(fixed.on_too_big(at(1), 1400, 1300), TooBig::NotBelieved);
}

proptest! {
    #[test]
    fn any_path_is_found_to_within_the_granularity(
        path in 1200u16..65_000,
        more in 0u16..60_000,
        initial in 1200u16..1500,
    ) {
        let max = path.saturating_add(more);
        let initial = initial.min(path);
        let sizes = DatagramSizes { initial, min: 1200, max, search: true };
        let mut search = searching(sizes);
        let probes = run(&mut search, at(1), path);
        prop_assert!(search.size() <= path);
        prop_assert!(path - search.size() < GRANULARITY, "{} of {path}", search.size());
        prop_assert!(probes.len() <= 70, "{} probes", probes.len());
    }

    #[test]
    fn whatever_happens_the_size_stays_between_what_is_safe_and_what_is_asked_for(
        steps in prop::collection::vec(step(), 0..200),
        initial in 1200u16..2000,
        max in 2000u16..9000,
    ) {
        let sizes = DatagramSizes { initial, min: 1200, max, search: true };
        let mut search = searching(sizes);
        let mut now = at(1);
        for step in steps {
            match step {
                Step::Probe { arrives } => {
                    if let Some(size) = search.due(now) {
                        prop_assert!(size > search.size() && size <= max);
                        search.on_probe_sent(0, size);
                        match arrives {
                            true => search.on_probe_acked(now),
                            false => search.on_probe_lost(now),
                        }
                    }
                }
                Step::Acked(size) => {
                    search.on_acked(now, size);
                }
                Step::Lost(size) => search.on_lost(3, size),
                Step::Refused(size) => {
                    let falls = search.on_refused(now, size);
                    prop_assert!(!falls || search.size() < size);
                }
                Step::TooBig(mtu) => {
                    let before = search.size();
                    search.on_too_big(now, before, mtu);
                    prop_assert!(search.size() <= before);
                }
                Step::Abandoned => search.on_abandoned(),
                Step::Wait(seconds) => now += Duration::from_secs(seconds),
            }
            prop_assert!((1200..=max).contains(&search.size()));
            prop_assert!(search.safe_size() <= search.size());
        }
    }
}
