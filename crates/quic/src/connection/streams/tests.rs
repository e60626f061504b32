use super::*;
use crate::connection::component::SentFrame;

#[test]
fn twenty_thousand_permitted_streams_cost_nothing_until_used() {
    let config = TransportConfig {
        max_concurrent_bidi_streams: 20_000,
        max_concurrent_uni_streams: 20_000,
        ..TransportConfig::default()
    };
    let mut streams = Streams::new(Side::Server, &config);
    let mut events = Events::default();
    let state = |s: &Streams| s.halves.counts();
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
        assert_eq!(streams.limits.implied(dir), 1);
    }
    // Accepting makes one at a time.
    assert!(streams.accept(Direction::Unidirectional).is_some());
    assert_eq!(state(&streams), (1, 3));
}

/// A client with `n` streams that each wait to send `len` bytes, and no credit.
fn waiting_for_credit(n: u64, len: usize) -> (Streams, Vec<StreamId>) {
    let mut streams = Streams::new(Side::Client, &TransportConfig::default());
    let parameters = TransportParameters {
        initial_max_streams_uni: n,
        initial_max_stream_data_uni: 1 << 20,
        ..TransportParameters::default()
    };
    streams.set_peer_parameters(&parameters, &mut Events::default());
    let ids: Vec<StreamId> = (0..n)
        .map(|_| streams.open(Direction::Unidirectional).unwrap())
        .collect();
    for id in &ids {
        assert_eq!(streams.write_slice(*id, &vec![7; len]), Ok(len));
    }
    assert!(!streams.has_pending() || streams.has_control());
    (streams, ids)
}

/// The STREAM frames of one packet: stream and length.
fn packet(streams: &mut Streams) -> Vec<(StreamId, u32)> {
    let rtt = RoundTrip {
        smoothed: std::time::Duration::from_millis(10),
        min: std::time::Duration::from_millis(10),
        window: 0,
    };
    let (mut bytes, mut frames) = ([0; 1200], Vec::new());
    let mut writer = towline_wire::Writer::new(&mut bytes);
    let mut w = PacketWriter::new(&mut writer, &mut frames, true);
    streams.write_frames(Time::ZERO, rtt, &mut w, &mut Events::default());
    let stream = |frame: SentFrame| match frame {
        SentFrame::Stream { id, len, .. } => Some((id, len)),
        _ => None,
    };
    frames.into_iter().filter_map(stream).collect()
}

#[test]
fn a_byte_of_credit_touches_one_of_ten_thousand_waiting_streams() {
    let (mut streams, ids) = waiting_for_credit(10_000, 100);
    packet(&mut streams);
    for n in 1..50 {
        streams.on_max_data(n as u64);
        assert!(streams.queue.is_idle(), "nothing moves before it is sent");
        assert!(streams.has_pending());
        assert_eq!(packet(&mut streams), [(ids[n - 1], 1)]);
        // The one that had it is last now, and all others stayed where they were.
        assert_eq!(streams.queue.first_waiting(), Some(ids[n]));
        assert!(streams.queue.is_idle());
        assert_eq!(packet(&mut streams), []);
    }
}

#[test]
fn streams_that_waited_for_credit_take_turns_and_the_most_urgent_goes_first() {
    let (mut streams, ids) = waiting_for_credit(100, 400);
    streams.set_priority(ids[70], 1).unwrap();
    streams.on_max_data(1 << 20);
    let mut sent = Vec::new();
    loop {
        let frames = packet(&mut streams);
        if frames.is_empty() {
            break;
        }
        sent.extend(frames);
    }
    assert_eq!(sent[0], (ids[70], 400));
    let bytes: u32 = sent.iter().map(|(_, len)| len).sum();
    assert_eq!(bytes, 100 * 400);
    let order: Vec<StreamId> = sent.iter().map(|(id, _)| *id).collect();
    // Nobody is passed over: among the first hundred frames are those of nearly all.
    let mut first = order[..100].to_vec();
    first.sort_unstable_by_key(|id| id.index());
    first.dedup();
    assert!(first.len() >= 50, "{}", first.len());
    assert!(!streams.has_pending());
}

#[test]
fn a_stream_whose_next_bytes_lie_beyond_the_credit_goes_on_when_there_is_more() {
    let (mut streams, ids) = waiting_for_credit(2, 10);
    // Of the first all is sent but what lies behind 500 bytes left out.
    streams.on_max_data(20);
    assert_eq!(packet(&mut streams).len(), 2);
    let mut data = Bytes::from_static(b"behind");
    assert_eq!(streams.write_at(ids[0], 510, &mut data), Ok(6));
    for max in [21, 300, 519] {
        streams.on_max_data(max);
        assert_eq!(packet(&mut streams), [], "{max}");
        assert!(!streams.has_pending(), "{max}");
    }
    streams.on_max_data(526);
    assert_eq!(packet(&mut streams), [(ids[0], 6)]);
    assert_eq!(streams.queue.available(), 0);
}

#[test]
fn a_stream_that_was_reset_waits_for_its_reset_though_all_before_it_and_the_end_arrived() {
    let (mut streams, ids) = waiting_for_credit(1, 4000);
    let id = ids[0];
    let mut events = Events::default();
    streams.finish(id).unwrap();
    streams.on_max_data(1 << 20);
    while !packet(&mut streams).is_empty() {}
    streams.on_stream_acked(id, 0..1000, false, &mut events);
    streams.on_stream_acked(id, 3000..4000, true, &mut events);
    streams.on_stream_lost(id, 1000, 2000, false);
    streams.reset_at(id, 4, 500, &mut events).unwrap();
    packet(&mut streams);
    // Some of what was given up arrives late, and the reset does not.
    streams.on_stream_acked(id, 1000..2000, false, &mut events);
    assert!(std::iter::from_fn(|| events.pop()).all(|e| e != Event::Finished(id)));
    streams.on_reset_lost(id, 500);
    assert!(streams.has_control());
    packet(&mut streams);
    streams.on_reset_acked(id, 500);
    assert_eq!(streams.halves.counts(), (0, 0));
}

/// Streams on each of which so much was read, all but `left` bytes of it.
fn held_for_unread(read: usize, left: usize, then: usize) -> usize {
    let config = TransportConfig::default();
    let mut streams = Streams::new(Side::Server, &config);
    let mut events = Events::default();
    let data = vec![7; read.max(then)];
    let mut out = vec![0; read];
    for index in 0..STREAMS {
        let id = StreamId::new(Side::Client, Direction::Unidirectional, index);
        let mut arrive = |streams: &mut Streams, offset: usize, len: usize| {
            for at in (0..len).step_by(1400) {
                let frame = StreamFrame {
                    id,
                    offset: (offset + at) as u64,
                    fin: false,
                    data: &data[..1400.min(len - at)],
                };
                streams.on_stream(Time::ZERO, &frame, &mut events).unwrap();
            }
        };
        arrive(&mut streams, 0, read);
        let wanted = read - left;
        assert_eq!(streams.read_slice(id, &mut out[..wanted]), Ok(Some(wanted)));
        arrive(&mut streams, read, then);
    }
    // What the pool keeps is bounded for itself.
    streams.held() - streams.halves.spare()
}

const STREAMS: u64 = 20;

#[test]
fn an_unread_byte_on_each_stream_holds_little_memory() {
    let most = STREAMS as usize * 6000;
    // One that came when all was read, one that was left of what came before, both.
    let held = [(0, 1), (1, 0), (1, 1)].map(|(left, then)| held_for_unread(60_000, left, then));
    assert!(held.iter().all(|held| *held <= most), "{held:?}");
}
