use super::*;
use std::ops::RangeInclusive;

fn read(bytes: &[u8]) -> AckFrame<'_> {
    match parse_one(bytes) {
        Ok(Frame::Ack(ack)) => ack,
        other => panic!("not an ACK: {other:?}"),
    }
}

/// Descending ranges that are apart, from the distances between their edges.
fn descending(top: u64, steps: &[(u64, u64)]) -> Vec<RangeInclusive<u64>> {
    let mut end = Some(top);
    let mut ranges = Vec::new();
    for (len, gap) in steps {
        let Some(high) = end else { break };
        let low = high.saturating_sub(*len);
        ranges.push(low..=high);
        end = low.checked_sub(gap + 2);
    }
    ranges
}

fn range_lists() -> impl Strategy<Value = Vec<RangeInclusive<u64>>> {
    let steps = prop::collection::vec((any_varint(), any_varint(), 0_u32..40), 1..100);
    (any_varint(), steps, any::<bool>()).prop_map(|(top, steps, small)| {
        let limit = if small { 50 } else { 1 << 50 };
        let steps: Vec<_> = steps
            .into_iter()
            .map(|(len, gap, shift)| ((len % limit) >> shift, (gap % limit) >> shift))
            .collect();
        descending(top, &steps)
    })
}

fn ecn_counts() -> impl Strategy<Value = Option<EcnCounts>> {
    let counts = (any_varint(), any_varint(), any_varint());
    proptest::option::of(counts.prop_map(|(ect0, ect1, ce)| EcnCounts { ect0, ect1, ce }))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2048))]

    #[test]
    fn ranges_come_back_as_far_as_there_is_room(
        ranges in range_lists(), delay in any_varint(), ecn in ecn_counts(), room in 0_usize..400,
    ) {
        let mut buf = vec![0xee; room];
        let mut w = Writer::new(&mut buf);
        let written = write_ack(&mut w, delay, ranges.iter().cloned(), ecn);
        prop_assert!(!w.overflowed());
        if written == 0 {
            prop_assert!(w.is_empty() && room < ACK_MIN_ROOM);
            return Ok(());
        }
        prop_assert!(written <= ranges.len().min(MAX_ACK_RANGES_WRITTEN));
        let len = w.len();
        let left = w.remaining();
        let mut r = Reader::new(&buf[..len]);
        let Ok(Frame::Ack(ack)) = Frame::parse(&mut r) else { panic!("an ACK") };
        prop_assert!(r.is_empty());
        assert_sound(&ack);
        prop_assert_eq!((ack.largest, ack.delay, ack.ecn), (*ranges[0].end(), delay, ecn));
        prop_assert_eq!(ack.ranges().collect::<Vec<_>>(), &ranges[..written]);
        // It stopped for a reason only.
        if written < ranges.len().min(MAX_ACK_RANGES_WRITTEN) {
            let next = &ranges[written];
            let gap = ranges[written - 1].start() - next.end() - 2;
            prop_assert!(varint_len(gap) + varint_len(next.end() - next.start()) > left);
        }
        // Cut anywhere, it is an error; written again, it is the same.
        for cut in 0..len {
            prop_assert_eq!(parse_one(&buf[..cut]).expect_err("cut short").code, ENCODING);
        }
        prop_assert_eq!(bytes_of(&Frame::Ack(ack)), &buf[..len]);
    }
}

#[test]
fn the_gap_counts_missing_numbers_minus_one() {
    let bytes = varints(0x02, &[20, 5, 2, 2, 0, 3, 4, 0]);
    let ack = read(&bytes);
    assert_eq!(ack.ranges().collect::<Vec<_>>(), [18..=20, 13..=16, 7..=7]);
    assert_eq!((ack.range_count(), ack.delay, ack.ecn), (3, 5, None));

    let mut buf = [0; 64];
    let mut w = Writer::new(&mut buf);
    assert_eq!(write_ack(&mut w, 5, [18..=20, 13..=16, 7..=7], None), 3);
    assert_eq!(w.written(), bytes);
}

#[test]
fn ranges_may_touch_zero_but_not_go_below() {
    assert_eq!(
        read(&varints(0x02, &[9, 0, 0, 9])).ranges().last(),
        Some(0..=9)
    );
    assert_encoding_error(&varints(0x02, &[9, 0, 0, 10]));
    assert_eq!(
        read(&varints(0x02, &[9, 0, 1, 0, 0, 7])).ranges().last(),
        Some(0..=7)
    );
    assert_encoding_error(&varints(0x02, &[9, 0, 1, 0, 0, 8]));
    assert_encoding_error(&varints(0x02, &[9, 0, 1, 0, 8, 0]));
    assert_encoding_error(&varints(0x02, &[9, 0, 1, 8, 0, 0]));
    let top = MAX_VARINT;
    assert_encoding_error(&varints(0x02, &[top, 0, 2, 0, top, top, top, top]));
}

#[test]
fn ten_thousand_ranges_are_read_without_trouble() {
    let mut values = vec![40_000, 0, 9_999, 0];
    values.extend([0; 2 * 9_999]);
    let bytes = varints(0x02, &values);
    let ack = read(&bytes);
    assert_eq!((ack.range_count(), ack.ranges().count()), (10_000, 10_000));
    assert_sound(&ack);
}

#[test]
fn a_range_count_beyond_the_packet_ends_with_the_packet() {
    for count in [2, 64, 10_000, MAX_VARINT] {
        let bytes = varints(0x02, &[1000, 0, count, 0, 0, 0]);
        assert_encoding_error(&bytes);
    }
}

#[test]
fn the_largest_delay_is_kept_as_it_is() {
    // Clamping to max_ack_delay (RFC 9002 §5.3) is recovery's business.
    assert_eq!(
        read(&varints(0x02, &[0, MAX_VARINT, 0, 0])).delay,
        MAX_VARINT
    );
    let mut buf = [0; 64];
    let mut w = Writer::new(&mut buf);
    assert_eq!(write_ack(&mut w, u64::MAX, [0..=0], None), 1);
    assert_eq!(read(w.written()).delay, MAX_VARINT);
}

#[test]
fn ecn_counts_come_back_and_must_be_complete() {
    let bytes = varints(0x03, &[1, 0, 0, 0, 10, 20, 30]);
    let ecn = EcnCounts {
        ect0: 10,
        ect1: 20,
        ce: 30,
    };
    assert_eq!(read(&bytes).ecn, Some(ecn));
    assert_encoding_error(&bytes[..bytes.len() - 1]);
    assert_eq!(Frame::Ack(read(&bytes)).ty(), FrameType::ACK_ECN);
}

#[test]
fn nothing_is_written_without_room_or_ranges() {
    let mut buf = [0; 4];
    let mut w = Writer::new(&mut buf);
    assert_eq!(write_ack(&mut w, 0, [5..=5], None), 0);
    assert_eq!(write_ack(&mut w, 0, [], None), 0);
    assert!(w.is_empty() && !w.overflowed());
}

#[test]
fn more_than_64_ranges_are_cut_at_the_lowest() {
    let mut buf = [0; 1000];
    let mut w = Writer::new(&mut buf);
    let ranges = (0..100_u64).rev().map(|n| n * 10..=n * 10 + 3);
    assert_eq!(write_ack(&mut w, 0, ranges, None), MAX_ACK_RANGES_WRITTEN);
    let lowest = read(w.written()).ranges().last();
    assert_eq!(lowest, Some(360..=363));
}
