use super::*;
use std::collections::HashMap;

#[test]
fn stream_ids_follow_rfc_9000_table_1() {
    use Direction::{Bidirectional, Unidirectional};
    use Side::{Client, Server};
    for (number, initiator, direction) in [
        (0, Client, Bidirectional),
        (1, Server, Bidirectional),
        (2, Client, Unidirectional),
        (3, Server, Unidirectional),
    ] {
        for index in [0, 1, 77, MAX_STREAMS - 1] {
            let id = StreamId::new(initiator, direction, index);
            assert_eq!(id.as_u64(), number + 4 * index);
            assert_eq!(id, StreamId::from_u64(number + 4 * index));
            assert_eq!(
                (id.initiator(), id.direction(), id.index()),
                (initiator, direction, index)
            );
        }
    }
    assert_eq!(
        StreamId::new(Server, Unidirectional, MAX_STREAMS - 1).as_u64(),
        MAX_VARINT
    );
    assert_eq!(StreamId::from_u64(7).to_string(), "7");
}

#[test]
fn connection_ids_hold_up_to_20_bytes() {
    for len in 0..=MAX_CID_LEN {
        let bytes: Vec<u8> = (1..=len as u8).collect();
        let cid = ConnectionId::new(&bytes).expect("20 bytes fit");
        assert_eq!(
            (cid.as_slice(), cid.len(), cid.is_empty()),
            (&bytes[..], len, len == 0)
        );
    }
    assert_eq!(ConnectionId::new(&[0; 21]), None);
    assert_eq!(ConnectionId::new(&[]), Some(ConnectionId::EMPTY));
}

#[test]
fn connection_ids_differ_by_length_even_when_all_zero() {
    assert_ne!(ConnectionId::new(&[0; 4]), ConnectionId::new(&[0; 5]));
    assert!(ConnectionId::new(&[0; 4]) < ConnectionId::new(&[0; 5]));
    assert!(ConnectionId::new(&[2]) > ConnectionId::new(&[1, 9]));
}

#[test]
fn a_map_of_connection_ids_answers_for_a_slice() {
    let cid = ConnectionId::new(&[1, 2, 3]).expect("3 bytes fit");
    let map = HashMap::from([(cid, "found")]);
    assert_eq!(map.get(&[1, 2, 3][..]), Some(&"found"));
    assert_eq!(map.get(&[1, 2, 3, 0][..]), None);
    assert_eq!(format!("{cid} {cid:?}"), "010203 ConnectionId(010203)");
}

#[test]
fn reset_tokens_compare_every_byte_and_hide_in_debug_output() {
    let token = StatelessResetToken::new([7; 16]);
    assert_eq!(token, StatelessResetToken::from([7; 16]));
    for index in 0..16 {
        let mut bytes = [7; 16];
        bytes[index] ^= 0x80;
        assert_ne!(token, StatelessResetToken::new(bytes));
    }
    assert_eq!(format!("{token:?}"), "StatelessResetToken(..)");
}

#[test]
fn spaces_index_an_array_in_order() {
    assert_eq!(
        PacketNumberSpace::ALL.map(PacketNumberSpace::index),
        [0, 1, 2]
    );
    assert_eq!(Direction::ALL.map(Direction::index), [0, 1]);
    assert_eq!(Side::Client.peer(), Side::Server);
}
