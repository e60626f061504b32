//! The swarm itself: plans are stable, runs repeat, and seeds that once failed stay good.

use towline_lab::swarm::{Feature, Features, Plan, check_seed};

/// Seeds that once broke an invariant, and what it was.
const PAST_FAILURES: &[(u64, &str)] = &[
    (1484, "a reset freed the send buffer and woke nobody"),
    (
        106_598,
        "keep-alive timers of a handshake did nothing again and again",
    ),
    (
        14262,
        "early packets were opened after later ones of the same train",
    ),
    (26, "marks took CUBIC's window below two datagrams"),
];

fn check(seed: u64, only: Features, twice: bool) {
    if let Err(failure) = check_seed(seed, only, twice, None) {
        panic!("{}: {}", failure.replay_line(), failure.violation);
    }
}

#[test]
fn past_failures_stay_good() {
    for (seed, _what) in PAST_FAILURES {
        // Later features did not exist when they failed.
        check(*seed, Features::FIRST, false);
    }
}

#[test]
fn a_seed_run_twice_is_the_same_run() {
    for seed in 0..20 {
        check(seed, Features::ALL, true);
    }
}

#[test]
fn a_feature_turned_off_leaves_the_rest_of_the_plan_alone() {
    let mut compared = 0;
    for seed in 0..200 {
        let whole = Plan::draw(seed, Features::ALL);
        if !whole.features.has(Feature::Loss) || whole.features.has(Feature::BurstLoss) {
            continue;
        }
        compared += 1;
        let part = Plan::draw(seed, Features::ALL.without(Feature::Loss));
        assert_eq!(whole.conversations, part.conversations);
        for (whole, part) in whole
            .links
            .iter()
            .flatten()
            .zip(part.links.iter().flatten())
        {
            let mut lossless = whole.clone();
            lossless.loss = part.loss;
            assert_eq!(lossless, *part);
        }
    }
    assert!(compared > 10);
}

#[test]
fn at_most_five_network_faults_are_drawn() {
    let faults = [
        Feature::Loss,
        Feature::BurstLoss,
        Feature::Reorder,
        Feature::Duplicate,
        Feature::Corrupt,
        Feature::Blackout,
        Feature::SmallQueue,
        Feature::Rate,
        Feature::Asymmetric,
        Feature::Jitter,
    ];
    let count = |seed| {
        let drawn = Features::draw(seed);
        faults.iter().filter(|f| drawn.has(**f)).count()
    };
    assert_eq!((0..500).map(count).max(), Some(5));
}

#[test]
fn every_later_feature_is_drawn_often() {
    let sets: Vec<Features> = (0..20_000).map(Features::draw).collect();
    for feature in Features::ALL.iter().filter(|f| !Features::FIRST.has(*f)) {
        let seeds = sets.iter().filter(|set| set.has(feature)).count();
        assert!(seeds >= 500, "{feature:?}: {seeds} of 20,000 seeds");
    }
    let adversaries = sets
        .iter()
        .filter(|s| s.and(Features::ADVERSARIES) != Features::NONE);
    let mut readable = adversaries.map(|set| set.has(Feature::Plaintext));
    assert!(readable.all(|plaintext| plaintext));
}
