use super::*;

#[test]
fn twenty_thousand_permitted_streams_cost_nothing_until_used() {
    let config = TransportConfig {
        max_concurrent_bidi_streams: 20_000,
        max_concurrent_uni_streams: 20_000,
        ..TransportConfig::default()
    };
    let mut streams = Streams::new(Side::Server, &config);
    let mut events = Events::default();
    let state = |s: &Streams| (s.send.len(), s.recv.len());
    assert_eq!(state(&streams), (0, 0));
    // The last one opens all before it (RFC 9000 §2.1), yet only its own state is made.
    for (dir, expected) in [
        (Direction::Unidirectional, (0, 1)),
        (Direction::Bidirectional, (1, 2)),
    ] {
        let frame = StreamFrame {
            id: StreamId::new(Side::Client, dir, 19_999),
            offset: 0,
            fin: false,
            data: b"x",
        };
        streams.on_stream(Time::ZERO, &frame, &mut events).unwrap();
        assert_eq!(state(&streams), expected);
        assert_eq!(streams.remote[dir.index()].unborn.len(), 1);
    }
    // Accepting makes one at a time.
    assert!(streams.accept(Direction::Unidirectional).is_some());
    assert_eq!(state(&streams), (1, 3));
}
