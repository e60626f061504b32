use super::*;

#[test]
fn no_more_datagrams_than_a_window_are_on_their_way() {
    let mut datagrams = Datagrams::default();
    let first: Vec<_> = std::iter::from_fn(|| datagrams.next_to_send()).collect();
    assert_eq!(first.len(), WINDOW);
    datagrams.came_back(&first[3]).expect("it was sent");
    assert!(datagrams.next_to_send().is_some());
    assert!(datagrams.next_to_send().is_none());
}

#[test]
fn all_are_back_when_each_came_once_and_not_before() {
    let mut datagrams = Datagrams::default();
    for _ in 0..DATAGRAMS {
        assert_eq!(datagrams.all_back(), None);
        let datagram = datagrams.next_to_send().expect("none is on its way");
        datagrams.came_back(&datagram).expect("it was sent");
        datagrams.came_back(&datagram).expect("twice is once");
    }
    assert_eq!(datagrams.next_to_send(), None);
    assert_eq!(datagrams.all_back().as_deref(), Some("1000 of 1000"));
}

#[test]
fn a_datagram_that_was_not_sent_is_an_error() {
    let mut datagrams = Datagrams::default();
    let sent = datagrams.next_to_send().expect("the first");
    let mut other_number = sent.clone();
    other_number[3] = 1;
    let mut other_byte = sent.clone();
    other_byte[50] = 0;
    for strange in [&other_number[..], &other_byte, &sent[..99], &sent[..2]] {
        assert!(datagrams.came_back(strange).is_err(), "{strange:?}");
    }
}

#[test]
fn a_byte_that_changed_on_its_way_is_an_error() {
    let mut back = pattern();
    assert!(compare(&back).is_ok());
    back[TRANSFER / 2] ^= 1;
    assert!(compare(&back).is_err());
}

#[test]
fn a_close_needs_both_the_code_and_the_reason() {
    assert!(server_closed(Some((4712, "goodbye")), "").is_ok());
    for other in [Some((4711, "goodbye")), Some((4712, "")), None] {
        assert!(server_closed(other, "").is_err(), "{other:?}");
    }
}
