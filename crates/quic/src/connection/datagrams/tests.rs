use bytes::Bytes;
use std::time::Duration;
use towline_wire::{Frame, Reader, Time, Writer, datagram_frame_header_len};

use super::incoming::MAX_UNREAD_DATAGRAMS;
use super::outgoing::MAX_QUEUED_DATAGRAMS;
use super::*;
use crate::connection::component::{PacketWriter, SentFrame};

const START: Time = Time::ZERO;

fn ms(n: u64) -> Time {
    START + Duration::from_millis(n)
}

fn options() -> DatagramOptions {
    DatagramOptions::default()
}

/// As an application that wants nothing special.
fn send(d: &mut Datagrams, data: impl Into<Bytes>, room: usize) -> Result<(), SendDatagramError> {
    send_with(d, data, &options(), room)
}

fn send_with(
    d: &mut Datagrams,
    data: impl Into<Bytes>,
    options: &DatagramOptions,
    room: usize,
) -> Result<(), SendDatagramError> {
    let mut e = Events::default();
    d.send(START, b"", &mut data.into(), options, room, &mut e)
}

fn ready() -> Datagrams {
    let mut d = Datagrams::new(1 << 20, 1 << 20);
    d.set_peer_max(65_535);
    d
}

/// A packet's payload: the datagrams in it, the frames to hear of later, and whether it is ended.
struct Packet {
    bytes: Vec<u8>,
    frames: Vec<SentFrame>,
    ended: bool,
}

impl Packet {
    fn datagrams(&self) -> Vec<Vec<u8>> {
        let mut r = Reader::new(&self.bytes);
        let mut found = Vec::new();
        while !r.is_empty() {
            match Frame::parse(&mut r).unwrap() {
                Frame::Datagram { data } => found.push(data.to_vec()),
                other => panic!("{other:?}"),
            }
        }
        found
    }

    /// The first byte of each.
    fn tags(&self) -> Vec<u8> {
        self.datagrams().iter().map(|d| d[0]).collect()
    }
}

fn write(d: &mut Datagrams, now: Time, room: usize, alone: bool, e: &mut Events) -> Packet {
    let mut bytes = vec![0; room];
    let mut frames = Vec::new();
    let mut writer = Writer::new(&mut bytes);
    let mut w = PacketWriter::new(&mut writer, &mut frames, true);
    w.may_end = true;
    d.write_frames(now, || 1000, alone, &mut w, e);
    let ended = w.ended;
    assert!(!ended || w.remaining() == 0);
    let len = writer.len();
    bytes.truncate(len);
    Packet {
        bytes,
        frames,
        ended,
    }
}

fn events(e: &mut Events) -> Vec<Event> {
    std::iter::from_fn(|| e.pop()).collect()
}

#[test]
fn a_full_receive_queue_drops_the_oldest() {
    let mut d = Datagrams::new(100, 100);
    let mut e = Events::default();
    for i in 0..30u8 {
        d.on_received(&[i; 10], &mut e);
    }
    assert_eq!(d.dropped(), 20);
    assert_eq!(d.recv().unwrap()[0], 20);
    let mut d = Datagrams::new(usize::MAX, usize::MAX);
    for _ in 0..MAX_UNREAD_DATAGRAMS + 5 {
        d.on_received(b"", &mut e);
    }
    assert_eq!(d.dropped(), 5);
}

#[test]
fn a_full_send_queue_refuses_and_says_when_to_try_again() {
    let mut d = Datagrams::new(10, 10);
    assert_eq!(
        send(&mut d, &b"x"[..], 1200),
        Err(SendDatagramError::Unsupported)
    );
    d.set_peer_max(1000);
    assert_eq!(
        send(&mut d, vec![0; 998], 1200),
        Err(SendDatagramError::TooLarge { max: 10 })
    );
    send(&mut d, &b"12345678"[..], 1200).unwrap();
    assert_eq!(
        send(&mut d, &b"123"[..], 1200),
        Err(SendDatagramError::Full)
    );
}

#[test]
fn what_is_said_to_be_free_is_taken_and_a_byte_more_is_not() {
    let mut d = Datagrams::new(10, 10);
    assert_eq!(d.free(), 0, "the peer takes none");
    d.set_peer_max(1000);
    assert_eq!(d.free(), 10);
    send(&mut d, &b"123456"[..], 1200).unwrap();
    assert_eq!(d.free(), 4);
    let full = Err(SendDatagramError::Full);
    assert_eq!(send(&mut d, &b"12345"[..], 1200), full);
    send(&mut d, &b"1234"[..], 1200).unwrap();
    assert_eq!(d.free(), 0);
    let mut d = Datagrams::new(usize::MAX, 0);
    d.set_peer_max(1000);
    for i in 0..MAX_QUEUED_DATAGRAMS {
        assert!(d.free() > 0);
        // Whoever they are of.
        send_with(&mut d, &b""[..], &options().sender(i as u32 % 7), 1200).unwrap();
    }
    assert_eq!(d.free(), 0, "no place is left, however small");
    assert_eq!(send(&mut d, Bytes::new(), 1200), full);
}

#[test]
fn the_longest_datagram_fills_every_room_without_a_length() {
    let mut d = ready();
    let mut e = Events::default();
    for room in (20..40).chain(1160..1180).chain(16_370..16_400) {
        let max = d.max_len(room).unwrap();
        assert_eq!(max, room - 1);
        send(&mut d, vec![7; max], room).unwrap();
        // Whatever waits behind it.
        let packet = write(&mut d, START, room, false, &mut e);
        assert_eq!((packet.bytes.len(), packet.ended), (room, true));
        assert_eq!(packet.datagrams(), [vec![7; max]]);
    }
    assert_eq!((d.max_len(1), d.max_len(0)), (Some(0), Some(0)));
}

#[test]
fn the_peer_s_limit_holds_for_frames_with_a_length() {
    let mut d = Datagrams::new(1 << 20, 0);
    for limit in (3..40).chain(16_370..16_400).chain(65_400..65_535) {
        d.set_peer_max(limit as u64);
        let max = d.max_len(1 << 20).unwrap();
        let whole = |len| datagram_frame_header_len(Some(len)) + len;
        assert!(whole(max) <= limit, "{limit}: {max}");
        // A byte may stay free where a short length would do, two where it is about to grow.
        assert!(whole(max + 3) > limit, "{limit}: {max}");
    }
}

#[test]
fn a_lone_datagram_holds_no_more_than_it_needs_and_a_quiet_connection_nothing() {
    let mut d = Datagrams::new(1 << 20, 1 << 20);
    let mut e = Events::default();
    d.on_received(&[1; 1000], &mut e);
    drop(d.recv());
    assert!(
        d.incoming.reserved().0 < 1000,
        "{:?}",
        d.incoming.reserved()
    );
    for _ in 0..20 {
        d.on_received(&[1; 1000], &mut e);
    }
    while d.recv().is_some() {}
    d.trim();
    assert_eq!(d.incoming.reserved(), (0, 0));
}

#[test]
fn a_refused_writer_is_woken_when_the_queue_is_dropped_for_size() {
    let mut d = Datagrams::new(10_000, 10_000);
    let mut e = Events::default();
    d.set_peer_max(2000);
    while send(&mut d, vec![0; 1300], 1400).is_ok() {}
    d.drop_larger_than(1100, &mut e);
    assert!(!d.has_pending());
    assert_eq!(e.pop(), Some(Event::DatagramSendable));
}

#[test]
fn senders_take_turns_and_none_waits_behind_anothers_queue() {
    let mut d = ready();
    let mut e = Events::default();
    for _ in 0..100 {
        send_with(&mut d, vec![1; 500], &options().sender(1), 1400).unwrap();
    }
    for _ in 0..3 {
        send_with(&mut d, vec![2; 500], &options().sender(2), 1400).unwrap();
    }
    let mut order = Vec::new();
    while order.len() < 12 {
        order.extend(write(&mut d, START, 1200, false, &mut e).tags());
    }
    // A turn is a thousand bytes.
    assert_eq!(order, [1, 1, 2, 2, 1, 1, 2, 1, 1, 1, 1, 1]);
}

#[test]
fn orders_count_inside_a_group_and_groups_share_alike() {
    let mut d = ready();
    let mut e = Events::default();
    let of =
        |sender: u32, group, order| options().sender(sender).send_group(group).send_order(order);
    for _ in 0..10 {
        for (sender, group, order) in [(1, 0, -1), (2, 0, i64::MAX), (3, 1, 0)] {
            let data = vec![sender as u8; 1000];
            send_with(&mut d, data, &of(sender, group, order), 1400).unwrap();
        }
    }
    let mut order = Vec::new();
    for _ in 0..8 {
        order.extend(write(&mut d, START, 1200, false, &mut e).tags());
    }
    assert_eq!(order, [2, 3, 2, 3, 2, 3, 2, 3]);
    // The newest datagram says where its sender stands now.
    send_with(&mut d, vec![1; 1000], &of(1, 2, 0), 1400).unwrap();
    let next: Vec<u8> = (0..3)
        .flat_map(|_| write(&mut d, START, 1200, false, &mut e).tags())
        .collect();
    assert!(next.contains(&1), "{next:?}");
}

#[test]
fn what_waited_too_long_is_not_sent_and_its_fate_is_told() {
    let mut d = ready();
    let mut e = Events::default();
    let aged = |ms, id| options().max_age(Duration::from_millis(ms)).id(id);
    send_with(&mut d, &b"a"[..], &aged(10, 1), 1400).unwrap();
    send_with(&mut d, &b"b"[..], &aged(30, 2), 1400).unwrap();
    send_with(&mut d, &b"c"[..], &aged(20, 3), 1400).unwrap();
    send(&mut d, &b"d"[..], 1400).unwrap();
    assert_eq!(d.next_timeout(), Some(ms(10)));
    d.on_timeout(ms(9), &mut e);
    assert_eq!(events(&mut e), []);
    d.on_timeout(ms(10), &mut e);
    let expired = |id| Event::DatagramFate {
        id,
        fate: DatagramFate::Expired,
    };
    assert_eq!(events(&mut e), [expired(1)]);
    assert_eq!(d.next_timeout(), Some(ms(20)));
    // Also where the timer was late.
    let packet = write(&mut d, ms(25), 1200, false, &mut e);
    assert_eq!(packet.datagrams(), [b"b", b"d"]);
    assert_eq!(events(&mut e), [expired(3)]);
    let tracked = SentFrame::TrackedDatagram { id: 2 };
    assert_eq!(packet.frames, [tracked, SentFrame::Datagrams { count: 1 }]);
    assert_eq!((d.fates().sent, d.fates().expired), (2, 2));
    assert_eq!(d.next_timeout(), None);
}

#[test]
fn ages_that_end_one_after_the_other_are_found_together() {
    let mut d = ready();
    let mut e = Events::default();
    for n in 0..4000 {
        let aged = options().max_age(Duration::from_micros(5000 + n)).id(n);
        send_with(&mut d, &b"x"[..], &aged, 1400).unwrap();
    }
    let mut searches = 0;
    while let Some(at) = d.next_timeout() {
        d.on_timeout(at, &mut e);
        searches += 1;
    }
    assert_eq!(searches, 5);
    assert_eq!(events(&mut e).len(), 4000);
    // Nor are they sent in the meantime.
    for age in [5000, 5001] {
        let aged = options().max_age(Duration::from_micros(age));
        send_with(&mut d, &b"x"[..], &aged, 1400).unwrap();
    }
    d.on_timeout(ms(5), &mut e);
    let later = ms(5) + Duration::from_micros(2);
    assert!(d.next_timeout() > Some(later));
    assert!(
        write(&mut d, later, 1200, false, &mut e)
            .datagrams()
            .is_empty()
    );
}

#[test]
fn what_is_too_old_makes_room_for_who_comes() {
    let mut d = Datagrams::new(1000, 0);
    d.set_peer_max(65_535);
    let mut e = Events::default();
    let aged = options().max_age(Duration::from_millis(5)).sender(1);
    send_with(&mut d, vec![0; 1000], &aged, 1400).unwrap();
    let mut late = Bytes::from(vec![1; 900]);
    let full = d.send(ms(4), b"", &mut late, &options(), 1400, &mut e);
    assert_eq!(full, Err(SendDatagramError::Full));
    assert_eq!(late.len(), 900, "left with the caller");
    d.send(ms(5), b"", &mut late, &options(), 1400, &mut e)
        .unwrap();
    assert!(late.is_empty());
    assert_eq!(write(&mut d, ms(6), 1200, false, &mut e).tags(), [1]);
}

#[test]
fn an_age_of_nothing_means_now_or_never() {
    let mut d = ready();
    let mut e = Events::default();
    let now_or_never = options().max_age(Duration::ZERO);
    send_with(&mut d, &b"x"[..], &now_or_never, 1400).unwrap();
    assert_eq!(
        write(&mut d, START, 1200, false, &mut e).datagrams().len(),
        1
    );
    send_with(&mut d, &b"x"[..], &now_or_never, 1400).unwrap();
    assert_eq!(
        write(&mut d, ms(1), 1200, false, &mut e).datagrams().len(),
        0
    );
}

#[test]
fn prefix_and_payload_are_one_datagram_whatever_the_length_of_the_prefix() {
    let mut d = ready();
    let mut e = Events::default();
    let payload = Bytes::from_static(b"payload");
    for len in [0, 1, 8, 16, 17, 40] {
        let prefix = vec![b'p'; len];
        let mut taken = payload.clone();
        d.send(START, &prefix, &mut taken, &options(), 1400, &mut e)
            .unwrap();
        let packet = write(&mut d, START, 1200, false, &mut e);
        assert_eq!(packet.datagrams(), [[&prefix[..], b"payload"].concat()]);
    }
    // Both count, and who is refused learns how much fits behind the prefix.
    let max = d.max_len(100).unwrap();
    let mut longer = Bytes::from(vec![0; max - 3]);
    let refused = d.send(START, b"1234", &mut longer, &options(), 100, &mut e);
    let max = max - 4;
    assert_eq!(refused, Err(SendDatagramError::TooLarge { max }));
}

#[test]
fn a_datagram_that_ends_its_packet_has_no_length() {
    let mut d = ready();
    let mut e = Events::default();
    // Nothing else to send: a type and the data.
    send(&mut d, &b"12345"[..], 1400).unwrap();
    let packet = write(&mut d, START, 1200, true, &mut e);
    assert_eq!((packet.bytes.len(), packet.ended), (6, true));
    // Of several the last one only.
    send(&mut d, &b"12345"[..], 1400).unwrap();
    send(&mut d, &b"12345"[..], 1400).unwrap();
    let packet = write(&mut d, START, 1200, true, &mut e);
    assert_eq!((packet.bytes.len(), packet.ended), (7 + 6, true));
    assert_eq!(packet.datagrams().len(), 2);
    // With something behind it, it says where it ends, unless there is no room for more.
    send(&mut d, &b"12345"[..], 1400).unwrap();
    let packet = write(&mut d, START, 1200, false, &mut e);
    assert_eq!((packet.bytes.len(), packet.ended), (7, false));
    for room in 1001..1030 {
        send(&mut d, vec![7; 1000], 1400).unwrap();
        let packet = write(&mut d, START, room, false, &mut e);
        assert_eq!(packet.datagrams(), [vec![7; 1000]]);
        let fills = room == 1003;
        assert_eq!(packet.ended, room < 1003 + 16 && !fills, "{room}");
    }
    // Padding for the sample of header protection would become a part of it.
    send(&mut d, &b"12"[..], 1400).unwrap();
    let packet = write(&mut d, START, 1200, true, &mut e);
    assert_eq!((packet.bytes.len(), packet.ended), (4, false));
}

#[test]
fn the_packets_of_a_train_are_of_one_length() {
    for len in 1..600 {
        let mut d = ready();
        let mut e = Events::default();
        for _ in 0..3 * 1200 / len {
            send(&mut d, vec![7; len], 1400).unwrap();
        }
        // What follows the first packet has as much room as that one took.
        let first = write(&mut d, START, 1170, false, &mut e).bytes.len();
        let second = write(&mut d, START, first, false, &mut e).bytes.len();
        assert_eq!(first, second, "datagrams of {len} bytes");
    }
}

#[test]
fn a_crowd_of_senders_is_forgotten_when_it_has_sent() {
    let mut d = ready();
    let mut e = Events::default();
    for sender in 0..1000 {
        send_with(&mut d, &b"x"[..], &options().sender(sender), 1400).unwrap();
    }
    while d.has_pending() {
        write(&mut d, START, 1200, false, &mut e);
    }
    d.trim();
    assert!(d.held() < 100, "{}", d.held());
}

#[test]
fn senders_that_come_and_go_beside_a_busy_one_are_forgotten() {
    let mut d = ready();
    let mut e = Events::default();
    let now_or_never = options().max_age(Duration::ZERO);
    send(&mut d, vec![0; 1000], 1400).unwrap();
    for sender in 1..2000 {
        // One has more to send at any time.
        send(&mut d, vec![0; 1000], 1400).unwrap();
        let other = now_or_never.sender(sender);
        send_with(&mut d, vec![1; 900], &other, 1400).unwrap();
        match sender % 3 {
            0 => drop(write(&mut d, START, 1200, false, &mut e)),
            1 => drop(write(&mut d, ms(1), 1200, false, &mut e)),
            _ => d.on_timeout(ms(1), &mut e),
        }
        assert!(d.has_pending());
        assert!(d.outgoing.senders() < 40, "{}", d.outgoing.senders());
    }
}
