use super::*;

/// The first offset that has not arrived.
fn in_order_end(a: &Assembler) -> u64 {
    let mut end = a.ready_end();
    for (start, piece) in &a.pending {
        if *start != end {
            break;
        }
        end += piece.len() as u64;
    }
    end
}

#[test]
fn a_reader_without_order_gets_each_byte_once_wherever_it_arrives() {
    let mut state = 3u64;
    let mut next = |n: u64| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (state >> 33) % n
    };
    for round in 0..400 {
        let len = 1 + next(600);
        let mut sent: Vec<Option<u8>> = vec![None; len as usize];
        let mut got: Vec<Option<u8>> = sent.clone();
        let mut a = Assembler::default();
        let mut pool = BlockPool::default();
        // Some start in order.
        let mut in_order = if round % 2 == 0 { 0 } else { next(len) };
        while got.iter().any(Option::is_none) {
            let start = next(len);
            let end = (start + 1 + next(60)).min(len);
            let data: Vec<u8> = (start..end).map(|_| next(256) as u8).collect();
            a.insert(start, &data, &mut pool).unwrap();
            for (i, byte) in (start..end).zip(&data) {
                sent[i as usize].get_or_insert(*byte);
            }
            while in_order > 0
                && let Some(chunk) = a.read(in_order as usize, &mut pool)
            {
                in_order -= chunk.len() as u64;
                for byte in chunk {
                    let at = got.iter().position(Option::is_none).unwrap();
                    got[at] = Some(byte);
                }
            }
            let below = if next(2) == 0 { u64::MAX } else { next(len) };
            for _ in 0..next(4) * u64::from(in_order == 0) {
                let max = 1 + next(80) as usize;
                let Some((offset, chunk)) = a.read_unordered(below, max, &mut pool) else {
                    let left = (0..below.min(len)).find(|&i| {
                        let i = i as usize;
                        sent[i].is_some() && got[i].is_none()
                    });
                    assert_eq!(left, None, "round {round}: more had arrived");
                    break;
                };
                assert!(chunk.len() <= max && offset + chunk.len() as u64 <= below);
                for (i, byte) in (offset as usize..).zip(chunk) {
                    assert_eq!(got[i].replace(byte), None, "round {round}: twice");
                }
            }
            let consumed = got.iter().filter(|byte| byte.is_some()).count();
            assert_eq!(a.consumed_len(), consumed as u64);
            assert_eq!(a.has_all(len), sent.iter().all(Option::is_some));
        }
        assert_eq!(got, sent);
        assert_eq!(a.read_offset, len);
        assert!(!a.has_ready() && !a.has_pending());
        assert_eq!(
            a.taken.map(|t| (t.ranges.len(), t.len)).unwrap_or_default(),
            (0, 0)
        );
    }
}

#[test]
fn what_was_read_out_of_order_counts_as_gaps() {
    let mut a = Assembler::default();
    let mut pool = BlockPool::default();
    for i in 0..MAX_STREAM_GAPS as u64 {
        a.insert(2 * i + 1, b"x", &mut pool).unwrap();
        let (offset, _) = a.read_unordered(u64::MAX, 10, &mut pool).unwrap();
        assert_eq!(offset, 2 * i + 1);
    }
    assert_eq!(a.insert(5000, b"x", &mut pool), Err(TooManyGaps));
    a.insert(0, b"y", &mut pool).unwrap();
    assert_eq!(a.read_unordered(1, 10, &mut pool).unwrap().0, 0);
    assert_eq!(a.consumed_len(), MAX_STREAM_GAPS as u64 + 1);
    a.insert(5000, b"x", &mut pool).unwrap();
}

#[test]
fn random_fragments_read_back_in_order_and_first_copy_wins() {
    let mut state = 99u64;
    let mut next = |n: u64| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (state >> 33) % n
    };
    for _ in 0..300 {
        let len = 1 + next(400);
        let mut model: Vec<Option<u8>> = vec![None; len as usize];
        let mut a = Assembler::default();
        let mut pool = BlockPool::default();
        let mut read = Vec::new();
        while model.iter().any(Option::is_none) {
            let start = next(len);
            let end = (start + 1 + next(40)).min(len);
            let data: Vec<u8> = (start..end).map(|_| next(256) as u8).collect();
            a.insert(start, &data, &mut pool).unwrap();
            for (i, byte) in (start..end).zip(&data) {
                model[i as usize].get_or_insert(*byte);
            }
            if next(4) == 0
                && let Some(chunk) = a.read(1 + next(30) as usize, &mut pool)
            {
                read.extend_from_slice(&chunk);
            }
            if next(4) == 0 {
                let mut out = vec![0; next(30) as usize];
                let n = a.read_slice(&mut out, &mut pool);
                read.extend_from_slice(&out[..n]);
            }
            let in_order = model.iter().position(Option::is_none);
            let in_order = in_order.unwrap_or(model.len());
            assert_eq!(in_order_end(&a), in_order as u64);
            assert_eq!(a.has_ready(), in_order > read.len());
            assert_eq!(a.has_all(len), in_order == model.len());
        }
        while let Some(chunk) = a.read(usize::MAX, &mut pool) {
            read.extend_from_slice(&chunk);
        }
        assert_eq!(read, model.into_iter().flatten().collect::<Vec<_>>());
        assert!(!a.has_pending());
    }
}

#[test]
fn large_fragments_in_any_order_read_back_in_order_or_without() {
    let mut state = 4u64;
    let mut next = |n: u64| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (state >> 33) % n
    };
    for round in 0..12 {
        let sent: Vec<u8> = (0..200_000 + next(100_000))
            .map(|i| (i / 3 + round) as u8)
            .collect();
        let len = sent.len() as u64;
        let (mut a, mut pool) = (Assembler::default(), BlockPool::default());
        let mut got: Vec<Option<u8>> = vec![None; sent.len()];
        let mut left = sent.len();
        let mut put = |offset: u64, chunk: &[u8]| {
            for (to, byte) in got[offset as usize..].iter_mut().zip(chunk) {
                assert_eq!(to.replace(*byte), None, "handed out twice");
            }
            left -= chunk.len();
            left
        };
        let largest = 1 + [1500, 3000, 60_000][round as usize % 3];
        loop {
            let start = next(len);
            let end = (start + 1 + next(largest)).min(len);
            a.insert(start, &sent[start as usize..end as usize], &mut pool)
                .unwrap();
            let max = 1 + next(2 * largest) as usize;
            let at = a.read_offset();
            let read = match (round % 4 < 2, next(3)) {
                (true, 0) => a.read(max, &mut pool).map(|chunk| (at, chunk)),
                (true, 1) => {
                    let mut out = vec![0; max];
                    let n = a.read_slice(&mut out, &mut pool);
                    out.truncate(n);
                    Some((at, out.into()))
                }
                (false, 0) => a.read_unordered(next(2 * len), max, &mut pool),
                _ => None,
            };
            let left = read.map(|(offset, chunk)| put(offset, &chunk));
            let held: usize = a.pending.values().map(BytesMut::len).sum();
            let reserved: usize = a.pending.values().map(BytesMut::capacity).sum();
            assert_eq!((held, reserved), (a.pending_len, a.pending_held));
            if left == Some(0) {
                break;
            }
        }
        assert!(got.into_iter().map(Option::unwrap).eq(sent), "{round}");
        assert_eq!((a.ready_len, a.pending.len()), (0, 0));
    }
}

#[test]
fn gap_flood_is_refused_at_the_cap() {
    let mut a = Assembler::default();
    let mut pool = BlockPool::default();
    for i in 0..MAX_STREAM_GAPS as u64 {
        a.insert(2 * i + 1, b"x", &mut pool).unwrap();
    }
    assert_eq!(a.insert(5000, b"x", &mut pool), Err(TooManyGaps));
    // Filling a gap is still possible.
    a.insert(0, b"y", &mut pool).unwrap();
    assert_eq!(in_order_end(&a), 2);
}

#[test]
fn pieces_that_come_to_touch_are_joined() {
    let mut a = Assembler::default();
    let mut pool = BlockPool::default();
    let frame = [7; 1000];
    for i in 0..MAX_STREAM_GAPS as u64 {
        a.insert(2 * i + 1, b"x", &mut pool).unwrap();
    }
    assert_eq!(a.pending.len(), MAX_STREAM_GAPS);
    a.insert(1, &frame, &mut pool).unwrap();
    let pieces = a.pending.range(..=1000).count();
    assert!(pieces <= frame.len() / TINY_PIECE + 1, "{pieces}");
    // From the other end, where the larger piece is behind.
    let mut a = Assembler::default();
    for i in (0..MAX_STREAM_GAPS as u64).rev() {
        a.insert(2 * i + 1, b"xy", &mut pool).unwrap();
    }
    let pieces = a.pending.len();
    assert!(pieces <= 2 * MAX_STREAM_GAPS / TINY_PIECE + 1, "{pieces}");
}

#[test]
fn what_waits_behind_a_gap_is_never_copied_again_as_a_whole() {
    let mut a = Assembler::default();
    let mut pool = BlockPool::default();
    let sent: Vec<u8> = (0..1 << 20).map(|i: u32| (i / 7) as u8).collect();
    for (i, packet) in sent.chunks(1200).enumerate().skip(1) {
        a.insert(1200 * i as u64, packet, &mut pool).unwrap();
    }
    let longest = a.pending.values().map(|piece| piece.capacity()).max();
    assert!(longest <= Some(2 * MAX_PIECE), "{longest:?}");
    assert!(a.pending.len() <= sent.len() / (MAX_PIECE - 1200) + 1);
    a.insert(0, &sent[..1200], &mut pool).unwrap();
    assert_eq!(a.ready_len, 1200, "the rest is read where it is");
    assert!(a.has_all(sent.len() as u64));
    let mut out = vec![0; 5000];
    let mut got = Vec::new();
    loop {
        // By turns in both ways.
        let n = a.read_slice(&mut out, &mut pool);
        got.extend_from_slice(&out[..n]);
        match a.read(7000, &mut pool) {
            Some(chunk) => got.extend_from_slice(&chunk),
            None => break,
        }
    }
    assert!(got == sent);
    assert!(!a.has_pending() && a.pending_len == 0);
}

#[test]
fn data_that_is_left_unread_makes_no_room_for_ranges_without_end() {
    let mut a = Assembler::default();
    let mut pool = BlockPool::default();
    let later = 1 << 20;
    a.insert(later, &[7; 2000], &mut pool).unwrap();
    let mut accepted = 0;
    while a.insert(2 * accepted + 1, b"x", &mut pool).is_ok() {
        a.read_unordered(later, 10, &mut pool).unwrap();
        accepted += 1;
        assert!(accepted < 10_000, "ranges without end");
    }
    assert_eq!(accepted, MAX_STREAM_GAPS as u64);
}

#[test]
fn every_second_packet_of_thousands_may_be_missing() {
    let mut a = Assembler::default();
    let mut pool = BlockPool::default();
    let packet = [7; 1000];
    let packets = 8 * MAX_STREAM_GAPS as u64;
    for i in 0..packets {
        a.insert(2000 * i + 1000, &packet, &mut pool).unwrap();
    }
    for i in 0..packets {
        a.insert(2000 * i, &packet, &mut pool).unwrap();
    }
    assert_eq!(in_order_end(&a), 2000 * packets);
    // What was held then does not count once it is read.
    while a.read(usize::MAX, &mut pool).is_some() {}
    for i in 0..MAX_STREAM_GAPS as u64 {
        let offset = 2000 * packets + 2 * i + 1;
        a.insert(offset, b"x", &mut pool).unwrap();
    }
    let beyond = 2000 * packets + 5000;
    assert_eq!(a.insert(beyond, b"x", &mut pool), Err(TooManyGaps));
}
