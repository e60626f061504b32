use std::net::{Ipv4Addr, Ipv6Addr};

use super::*;

const KEYS: KeyedState = KeyedState(1, 2);

/// The `n`th IPv4 prefix.
fn source(n: u32) -> Source {
    Source::of(&KEYS, IpAddr::V4(Ipv4Addr::from(n << 8 | 7)))
}

fn at(nanos: u64) -> Time {
    Time::from_nanos(nanos)
}

#[test]
fn addresses_of_one_site_are_one_source() {
    let of = |text: &str| Source::of(&KEYS, text.parse().unwrap());
    assert_eq!(of("192.0.2.1"), of("192.0.2.254"));
    assert_ne!(of("192.0.2.1"), of("192.0.3.1"));
    assert_eq!(of("192.0.2.1"), of("::ffff:192.0.2.9"));
    assert_eq!(of("2001:db8:1:2::3"), of("2001:db8:1:ffff::"));
    assert_ne!(of("2001:db8:1::"), of("2001:db8:2::"));
    // Another secret, other cells.
    let ip = IpAddr::V6(Ipv6Addr::LOCALHOST);
    assert_ne!(Source::of(&KEYS, ip), Source::of(&KeyedState(3, 4), ip));
}

#[test]
fn one_source_takes_three_fifths_of_a_window_and_leaves_the_rest_to_others() {
    let mut budget = Budget::new(1000);
    let taken = (0..10_000)
        .filter(|_| budget.take(at(1), source(1), 1))
        .count();
    assert_eq!(taken, 600);
    let others = (2..50).filter(|n| budget.take(at(1), source(*n), 1));
    assert_eq!(others.count(), 48);
    assert!(
        budget.take(at(1), source(60), 200),
        "more than the first two"
    );
    // A new window, a new share.
    assert!(budget.take(at(WINDOW_NANOS), source(1), 500));
}

#[test]
fn whatever_many_sources_ask_for_a_new_one_finds_something() {
    let mut budget = Budget::new(50_000);
    for _ in 0..40 {
        for n in 0..1000 {
            budget.take(at(1), source(n), 4);
        }
    }
    assert!(budget.used <= 50_000);
    let served = (5000..6000).filter(|n| budget.take(at(1), source(*n), 4));
    // A few in a thousand share all their cells with the busy ones.
    let served = served.count();
    assert!(served >= 990, "{served} of 1000");
}

#[test]
fn a_window_is_never_overspent() {
    let mut budget = Budget::new(1000);
    let mut spent = 0;
    for n in 0..100_000 {
        if budget.take(at(5), source(n / 3), 7) {
            spent += 7;
        }
    }
    assert!(spent <= 1000 && spent > 980, "{spent}");
}

#[test]
fn places_that_are_given_back_can_be_taken_again() {
    let mut places = Places::default();
    let take = |places: &mut Places, n: u32, total: usize| {
        let may = places.may_take(source(n), total);
        if may {
            places.take(source(n));
        }
        may
    };
    let first = (0..500).filter(|_| take(&mut places, 1, 100)).count();
    assert_eq!(first, 60);
    assert!(take(&mut places, 2, 100));
    for _ in 0..60 {
        places.give_back(source(1));
    }
    assert_eq!(places.used(), 1);
    assert!(take(&mut places, 1, 100));
    // So few that a share is less than one are still given out.
    let mut few = Places::default();
    assert_eq!((0..5).filter(|_| take(&mut few, 1, 2)).count(), 2);
}

#[test]
fn tables_have_a_fixed_size_whatever_comes() {
    let (mut budget, mut places) = (Budget::new(100_000), Places::default());
    for n in 0..100_000 {
        budget.take(at(1), source(n), 1);
        places.take(source(n));
    }
    assert_eq!(budget.cells.capacity(), ROWS * MAX_PREFIX_CELLS);
    assert_eq!(places.cells.capacity(), ROWS * MAX_PREFIX_CELLS);
}
