use super::*;
use crate::pin::CertificatePin;

const NAMES: [&str; 1] = ["boat.test"];
const HOUR: u64 = 3600;
const DAY: u64 = 24 * HOUR;
/// 2026-01-01 00:00:00 UTC.
const START: u64 = 1_767_225_600;

fn at(seconds: u64) -> UnixTime {
    UnixTime::since_unix_epoch(Duration::from_secs(seconds))
}

fn made(day: u64) -> Identity {
    Identity::generate_dev(&NAMES, at(START + day * DAY)).unwrap()
}

fn pins(rotation: &Rotation) -> Vec<CertificatePin> {
    let pins = rotation.certificates().map(Identity::certificate_pin);
    pins.map(Option::unwrap).collect()
}

/// What a server that looks at this time has, when it makes a next one wherever there is none.
fn look(kept: &mut Vec<Identity>, now: u64) -> Rotation {
    let now = at(now);
    let mut rotation = Rotation::new(kept.iter().cloned(), now).unwrap_or_else(|| {
        let new = Identity::generate_dev(&NAMES, now).unwrap();
        Rotation::new([new], now).unwrap()
    });
    if rotation.next().is_none() {
        rotation.set_next(rotation.successor(&NAMES, now).unwrap());
    }
    *kept = rotation.certificates().cloned().collect();
    rotation
}

#[test]
fn a_pair_of_hashes_is_good_for_a_week_at_least_and_swaps_come_weekly() {
    let mut kept = Vec::new();
    let (mut given, mut shown) = (Vec::<(u64, Vec<_>)>::new(), Vec::new());
    for hour in 0..80 * 24 {
        let now = START + hour * HOUR;
        let rotation = look(&mut kept, now);
        let (begin, end) = rotation.shown().validity().unwrap();
        // Also where a peer's clock is off by an hour.
        assert!(begin.as_secs() + HOUR <= now && now + HOUR <= end.as_secs());
        assert!(end.as_secs() - begin.as_secs() < 14 * DAY, "for browsers");
        let now_shown = rotation.shown().certificate_pin().unwrap();
        for (when, pins) in &given {
            let is_young = now < when + 7 * DAY - HOUR;
            assert!(!is_young || pins.contains(&now_shown), "hour {hour}");
        }
        given.push((now, pins(&rotation)));
        if shown.last().is_none_or(|(_, pin)| *pin != now_shown) {
            shown.push((now, now_shown));
        }
    }
    // The first is shown all its life, the others for a week each.
    assert_eq!(shown.len(), 1 + (80 - 14) / 7 + 1);
    for swap in shown[1..].windows(2) {
        assert!((7 * DAY - HOUR..=7 * DAY).contains(&(swap[1].0 - swap[0].0)));
    }
}

#[test]
fn the_old_certificate_is_shown_until_an_hour_before_its_end() {
    let first = made(0);
    let end = first.validity().unwrap().1.as_secs();
    let mut rotation = Rotation::new([first.clone()], at(START)).unwrap();
    let next = rotation.successor(&NAMES, at(START)).unwrap();
    assert_eq!(next.key_pin(), first.key_pin());
    rotation.set_next(next.clone());
    assert_eq!(rotation.swaps_at(), at(end - HOUR));
    for (now, shown) in [
        (START, &first),
        (end - HOUR - 1, &first),
        (end - HOUR, &next),
    ] {
        // In any order.
        for kept in [[&first, &next], [&next, &first]] {
            let rotation = Rotation::new(kept.map(Identity::clone), at(now)).unwrap();
            assert_eq!(rotation.shown().certificate_pin(), shown.certificate_pin());
        }
    }
    for (now, is_due) in [
        (START - 2 * HOUR, true),
        (START, false),
        (end - HOUR - 1, false),
        (end - HOUR, true),
    ] {
        assert_eq!(rotation.is_due(at(now)), is_due, "{now}");
    }
    let rotation = Rotation::new([first, next], at(end - HOUR)).unwrap();
    assert!(rotation.next().is_none(), "the old one is over");
    assert!(rotation.is_due(at(end - HOUR)));
}

#[test]
fn a_successor_overlaps_for_a_week_whenever_it_is_made() {
    let first = made(0);
    let (_, end) = first.validity().unwrap();
    let rotation = Rotation::new([first], at(START)).unwrap();
    for day in 0..=13 {
        let next = rotation.successor(&NAMES, at(START + day * DAY)).unwrap();
        let (begin, its_end) = next.validity().unwrap();
        assert!(begin < end, "day {day}");
        // Made late, it has the more of its life after the swap.
        assert!(
            its_end.as_secs() >= end.as_secs() + 7 * DAY - 1,
            "day {day}"
        );
        let made_by = (START + day * DAY).max(end.as_secs() - 7 * DAY + HOUR + 1);
        assert!(begin.as_secs() <= made_by - HOUR, "day {day}");
    }
    let new_key = rotation.successor_with_new_key(&NAMES, at(START)).unwrap();
    assert_ne!(new_key.key_pin(), rotation.shown().key_pin());
}

#[test]
fn what_cannot_be_shown_or_follow_is_passed_over() {
    let raw = Identity::generate_raw_key().unwrap();
    let now = at(START + 14 * DAY);
    assert!(
        Rotation::new([made(0), raw.clone()], now).is_none(),
        "ended"
    );
    assert!(Rotation::new([made(30)], now).is_none(), "not begun");
    assert!(Rotation::new([], now).is_none());
    // One that begins after the end of the one before would leave a gap, and one that ends with it is of no use.
    let (shown, far) = (made(14), made(40));
    let rotation = Rotation::new([far, shown.clone(), shown.clone(), raw], now).unwrap();
    assert_eq!(pins(&rotation), [shown.certificate_pin().unwrap()]);
    // Of two that follow, the one that ends sooner.
    let (soon, late) = (made(16), made(18));
    let rotation = Rotation::new([late, soon.clone(), shown], now).unwrap();
    let next = rotation.next().unwrap();
    assert_eq!(next.certificate_pin(), soon.certificate_pin());
}
