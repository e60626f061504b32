use bytes::Bytes;
use towline_wire::{Direction, emit_varint};

use super::*;
use crate::pair::{Limits, pair};

const VALUES: [u64; 6] = [0, 63, 64, 16_384, 1 << 30, (1 << 62) - 1];

#[test]
fn two_integers_are_read_byte_by_byte_and_nothing_after_them() {
    for first in VALUES {
        for second in VALUES {
            let (mut client, mut server) = pair(Limits::default());
            let id = client.open(Direction::Bidirectional).unwrap();
            let mut bytes = Vec::new();
            emit_varint(&mut bytes, first);
            emit_varint(&mut bytes, second);
            let mut varints = Varints::<2>::default();
            for byte in &bytes {
                assert_eq!(varints.read(&mut server, id), Err(Incomplete::Blocked));
                client.push(id, &[*byte]);
            }
            client.push(id, b"rest");
            assert_eq!(varints.read(&mut server, id), Ok([first, second]));
            assert_eq!(
                server.read(id, 10).unwrap(),
                Some(Bytes::from_static(b"rest"))
            );
        }
    }
}

#[test]
fn an_end_in_front_and_an_end_inside_differ() {
    for (bytes, inside) in [(&b""[..], false), (b"\x40", true), (b"\x01", true)] {
        let (mut client, mut server) = pair(Limits::default());
        let id = client.open(Direction::Bidirectional).unwrap();
        client.push(id, bytes);
        client.finish(id);
        let read = Varints::<2>::default().read(&mut server, id);
        assert_eq!(read, Err(Incomplete::End { inside }));
    }
}
