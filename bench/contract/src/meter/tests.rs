use super::*;

#[test]
fn a_percentile_is_the_least_value_that_so_many_do_not_exceed() {
    let mut nanos: Vec<u64> = (1..=1000).rev().map(|micros| micros * 1000).collect();
    let found = latency(&mut nanos).expect("a distribution");
    assert_eq!((found.p50, found.p99, found.p999), (500.0, 990.0, 999.0));
    assert_eq!((found.min, found.max), (1.0, 1000.0));
    let mut one = [7000];
    assert_eq!(latency(&mut one).map(|found| found.p999), Some(7.0));
    assert_eq!(latency(&mut []), None);
}
