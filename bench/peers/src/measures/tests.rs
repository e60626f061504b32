use super::*;

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
