use std::collections::BTreeMap;
use std::time::Duration;

use super::*;

/// A small generator; every run is the same.
struct Lcg(u64);

impl Lcg {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (self.0 >> 33) % n
    }

    /// From nanoseconds to hours.
    fn span(&mut self) -> u64 {
        let scale = self.below(43);
        self.below(1 << scale.max(1))
    }
}

fn handle(index: u32, generation: u32) -> ConnectionHandle {
    ConnectionHandle { index, generation }
}

fn nanos(time: Option<Time>) -> Option<u64> {
    time.map(Time::as_nanos)
}

/// Takes everything due at `now`, from the wheel and from the model.
fn assert_same_expiries(
    queue: &mut DeadlineQueue,
    model: &mut BTreeMap<ConnectionHandle, u64>,
    now: u64,
) {
    let mut popped = Vec::new();
    while let Some(expired) = queue.pop(Time::from_nanos(now)) {
        match expired {
            Expired::Due(handle) => popped.push(handle),
            Expired::Quiet(handle) => {
                assert!(model[&handle] >= now + QUIET_NANOS, "{handle:?} is busy");
            }
        }
    }
    popped.sort_unstable();
    let due: Vec<_> = model
        .iter()
        .filter(|(_, at)| **at <= now)
        .map(|(handle, _)| *handle)
        .collect();
    assert_eq!(popped, due, "at {now}");
    model.retain(|_, at| *at > now);
}

#[test]
fn random_updates_and_jumps_expire_as_in_a_sorted_map() {
    for seed in 0..200 {
        let mut random = Lcg(seed);
        let connections = 1 + random.below(60) as u32;
        let mut queue = DeadlineQueue::default();
        let mut model = BTreeMap::new();
        let mut generations = vec![0; connections as usize];
        // Some worlds begin where the highest bits are set.
        let mut now = if seed % 5 == 0 {
            u64::MAX - (1 << 50)
        } else {
            random.span()
        };
        for _ in 0..400 {
            let index = random.below(u64::from(connections)) as u32;
            let generation = &mut generations[index as usize];
            match random.below(10) {
                0 => {
                    model.remove(&handle(index, *generation));
                    queue.set(handle(index, *generation), None);
                    *generation += 1;
                }
                1..=6 => {
                    // Sometimes a deadline that has already passed.
                    let at = (now + random.span()).saturating_sub(random.below(2) * 1000);
                    model.insert(handle(index, *generation), at);
                    queue.set(handle(index, *generation), Some(Time::from_nanos(at)));
                    if random.below(3) == 0 {
                        queue.look_again(handle(index, *generation), Time::from_nanos(now));
                    }
                }
                7 => {
                    now += random.span();
                    assert_same_expiries(&mut queue, &mut model, now);
                }
                _ => {
                    if let Some(at) = nanos(queue.next()) {
                        now = now.max(at);
                        assert_same_expiries(&mut queue, &mut model, now);
                    }
                }
            }
            let earliest = model.values().min().copied();
            let next = nanos(queue.next());
            // What had passed when it was set is due at once.
            match (next, earliest) {
                (Some(next), Some(earliest)) => {
                    assert!(next <= earliest.max(now), "late: {next} for {earliest}");
                }
                (None, Some(earliest)) => panic!("the deadline {earliest} was forgotten"),
                (_, None) => {}
            }
        }
        // What remains comes out by following `next` alone, in a bounded number of steps.
        let mut steps = 0;
        while let Some(at) = nanos(queue.next()) {
            now = now.max(at);
            assert_same_expiries(&mut queue, &mut model, now);
            steps += 1;
            assert!(steps <= 2 * LEVELS * connections as usize, "busy at {now}");
        }
        assert!(model.is_empty());
    }
}

#[test]
fn a_deadline_that_keeps_moving_later_wakes_once_for_each_place_it_was_filed() {
    let mut queue = DeadlineQueue::default();
    let one = handle(0, 0);
    let mut wakes = 0;
    // Every millisecond the deadline moves to 100 ms from then, for ten seconds.
    for ms in 0..10_000 {
        let now = Time::ZERO + Duration::from_millis(ms);
        if queue.next().is_some_and(|at| at <= now) {
            wakes += 1;
            assert_eq!(queue.pop(now), None);
        }
        queue.set(one, Some(now + Duration::from_millis(100)));
    }
    assert!((99..=101).contains(&wakes), "{wakes} wakes");
}

#[test]
fn few_deadlines_are_told_to_the_nanosecond() {
    let mut queue = DeadlineQueue::default();
    let hours = 7_200_000_000_123;
    queue.set(handle(0, 0), Some(Time::from_nanos(hours)));
    queue.set(handle(1, 0), Some(Time::from_nanos(hours + 1)));
    assert_eq!(nanos(queue.next()), Some(hours));
    assert_eq!(queue.pop(Time::from_nanos(hours - 1)), None);
    assert_eq!(
        queue.pop(Time::from_nanos(hours)),
        Some(Expired::Due(handle(0, 0)))
    );
    assert_eq!(queue.pop(Time::from_nanos(hours)), None);
    assert_eq!(nanos(queue.next()), Some(hours + 1));
    queue.set(handle(1, 0), None);
    assert_eq!(queue.next(), None);
}

#[test]
fn ten_thousand_idle_timeouts_cost_few_early_wakes() {
    let mut queue = DeadlineQueue::default();
    let mut random = Lcg(7);
    for index in 0..10_000 {
        let at = 30_000_000_000 + random.below(1_000_000_000);
        queue.set(handle(index, 0), Some(Time::from_nanos(at)));
    }
    let (mut wakes, mut expired) = (0, 0);
    while let Some(now) = queue.next() {
        wakes += 1;
        while queue.pop(now).is_some() {
            expired += 1;
        }
    }
    assert_eq!(expired, 10_000);
    // One for each, since they lie 100 us apart, and some as the slots are opened.
    assert!(wakes < 12_000, "{wakes} wakes");
}

#[test]
fn a_connection_that_nobody_touches_for_a_second_is_shown_once() {
    let mut queue = DeadlineQueue::default();
    let second = |n: u64| Time::from_nanos(n * 1_000_000_000);
    let [quiet, busy] = [handle(0, 0), handle(1, 0)];
    for one in [quiet, busy] {
        queue.set(one, Some(second(1)));
    }
    queue.set(quiet, Some(second(30)));
    queue.set(busy, Some(second(1) + Duration::from_millis(25)));
    // Its time is reached, which says nothing of the second to come.
    assert_eq!(queue.pop(second(1)), None);
    assert_eq!(queue.pop(second(2)), Some(Expired::Due(busy)));
    assert_eq!(queue.pop(second(2)), Some(Expired::Quiet(quiet)));
    assert_eq!(queue.pop(second(4)), None);
    assert_eq!(queue.next(), Some(second(30)));
    // As after one that was due and then waits.
    queue.look_again(quiet, second(5));
    assert_eq!(queue.pop(second(6)), Some(Expired::Quiet(quiet)));
    assert_eq!(queue.pop(second(6)), None);
    assert_eq!(queue.next(), Some(second(30)));
    assert_eq!(queue.pop(second(30)), Some(Expired::Due(quiet)));
}

#[test]
fn a_connection_that_is_touched_now_and_then_is_never_shown() {
    let mut queue = DeadlineQueue::default();
    let one = handle(0, 0);
    for message in 0..1000 {
        let now = Time::ZERO + Duration::from_millis(100 * message);
        // A probe timer, which the acknowledgement stops, then the idle timeout alone.
        queue.set(one, Some(now + Duration::from_millis(30)));
        queue.set(one, Some(now + Duration::from_secs(30)));
        for ms in 0..100 {
            assert_eq!(queue.pop(now + Duration::from_millis(ms)), None);
        }
    }
}
