use super::*;

fn closed_with(pair: &Pair, at: usize) -> Option<String> {
    let endpoint = &pair.world.hosts[at].endpoint;
    let connection = endpoint.connection(pair.seen.sides[at].handle)?;
    connection.close_reason().map(ToString::to_string)
}

#[test]
fn an_injected_stream_can_be_read() {
    let mut pair = Pair::connected();
    pair.inject(b"\x0b\x00\x05hello");
    let handle = pair.seen.sides[1].handle;
    let endpoint = &mut pair.world.hosts[1].endpoint;
    let connection = endpoint.connection_mut(handle).unwrap();
    let id = connection.accept(Direction::Bidirectional).unwrap();
    assert_eq!(connection.read(id, 100).unwrap().unwrap(), "hello");
    assert_eq!(connection.read(id, 100), Ok(None));
}

#[test]
fn an_injected_violation_closes_the_end_it_was_sent_to() {
    let mut pair = Pair::connected();
    pair.obey(1);
    // A server's HANDSHAKE_DONE is nothing new; a client-only frame type is.
    pair.inject(b"\x1e");
    assert_eq!(closed_with(&pair, 0), None);
    pair.inject(b"\x19\x63");
    let reason = closed_with(&pair, 0).unwrap_or_default();
    assert!(reason.contains("never issued"), "{reason}");
    assert_eq!(closed_with(&pair, 1), None);
}

#[test]
fn equal_inputs_have_equal_signatures() {
    let input = b"\x0a\x00\x03abc\xff\x0b\x05\x00\x01\xff\x03\xff\x06";
    assert_eq!(run(input), run(input));
    assert_ne!(run(input), run(b"\x01"));
}
