use super::*;

#[test]
fn allocations_are_those_of_the_middle_half_and_unknown_where_nothing_counts() {
    let steady = Steady::new(100);
    ALLOCATIONS.store(10, Relaxed);
    steady.add(24);
    ALLOCATIONS.store(11, Relaxed);
    steady.add(2);
    ALLOCATIONS.store(15, Relaxed);
    steady.add(49);
    ALLOCATIONS.store(99, Relaxed);
    steady.add(25);
    assert_eq!(steady.done(), 100);
    assert_eq!(steady.allocations(), None);
    COUNTS.store(true, Relaxed);
    assert_eq!(steady.allocations(), Some(4));
}
