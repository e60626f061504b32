use super::*;

#[test]
fn a_percentile_is_the_least_value_that_so_many_do_not_exceed() {
    let mut nanos: Vec<u64> = (1..=1000).rev().map(|micros| micros * 1000).collect();
    let found = latency(&mut nanos).expect("a distribution");
    assert_eq!((found.p50, found.p99, found.p999), (500.0, 990.0, 999.0));
    let mut one = [7000];
    assert_eq!(latency(&mut one).map(|found| found.p999).ok(), Some(7.0));
    assert!(latency(&mut []).is_err());
}

#[test]
fn packets_are_added_up_only_if_every_connection_tells() {
    let packets = |sent| {
        Some(crate::stack::Packets {
            sent,
            bytes_sent: sent * 1472,
            received: 1,
        })
    };
    let mut sum = packets(0);
    add(&mut sum, packets(3));
    add(&mut sum, packets(4));
    assert!(sum.is_some_and(|sum| sum.sent == 7 && sum.received == 3));
    add(&mut sum, None);
    assert!(sum.is_none());
}
