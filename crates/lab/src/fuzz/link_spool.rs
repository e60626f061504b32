//! Files of the delta link's spool that no spool wrote.
//!
//! With an even first byte the rest is segments: a number, a length in two bytes, and bytes. With an odd one it is
//! steps that write segments with right sums, so that what they say is looked at: heads, records, marks, damage.
//! Whatever was found, the spool takes another record, and has the same when it is opened again.

use std::collections::BTreeMap;

use towline_link::spool::{Full, OpenError, Recovered, Spool, SpoolConfig};

use crate::torn_disk::TornDisk;

/// Of the spool that the steps write.
const ID: u64 = 7;
/// Bytes of a segment's head.
const HEAD: usize = 44;

/// Runs `input`.
///
/// # Panics
/// When the spool breaks a promise.
pub fn link_spool(input: &[u8]) {
    run(input);
}

/// As [`link_spool`]; returns what happened, as a hash.
pub(super) fn run(input: &[u8]) -> u64 {
    let Some((first, rest)) = input.split_first() else {
        return 0;
    };
    let segments = match first % 2 == 0 {
        true => plain(rest),
        false => written(rest),
    };
    let config = SpoolConfig {
        max_bytes: 64 << 10,
        segment_bytes: 4 << 10,
        full: [Full::DropOldest, Full::Refuse][usize::from(first / 2 % 2)],
    };
    let disk = TornDisk::holding(segments);
    let (mut spool, recovered) = match Spool::open(disk.clone(), config.clone(), 9) {
        Ok(opened) => opened,
        Err(OpenError::Mixed { .. }) => return 1,
        Err(OpenError::Version { .. }) => return 2,
        Err(OpenError::UsedUp { .. }) => return 3,
        Err(error) => panic!("{error}"),
    };
    let (id, next) = (spool.id(), spool.next_seq());
    let found = everything(&mut spool, &recovered);
    let seen = signature(&recovered, found.len());
    let mut more = Vec::new();
    for payload in [&b"{}"[..], &[b'x'; 5_000]] {
        match spool.append(payload) {
            Ok(appended) => more.push((appended.seq, payload.to_vec())),
            Err(error) => assert_eq!(config.full, Full::Refuse, "{error}"),
        }
    }
    let numbers = next..next + more.len() as u64;
    assert!(more.iter().map(|record| record.0).eq(numbers));
    assert_eq!(spool.commit().ok(), Some(spool.next_seq()));
    let oldest = spool.oldest_seq();
    drop(spool);
    let Ok((mut spool, again)) = Spool::open(disk, config, 10) else {
        panic!("it was just written");
    };
    assert_eq!(spool.id(), id);
    let mut kept: Vec<_> = found
        .into_iter()
        .filter(|found| found.0 >= oldest)
        .collect();
    kept.extend_from_slice(&more);
    let now = everything(&mut spool, &again);
    let now: Vec<_> = now.into_iter().filter(|found| found.0 >= oldest).collect();
    let ends = |records: &[_]| records.ends_with(&more);
    assert!(ends(&now), "what was appended is there");
    // Of segments that contradict each other, others may count when some are gone.
    if recovered.lost.is_empty() && recovered.cut_bytes == 0 && recovered.skipped == (0..0) {
        assert!(again.lost.is_empty() && now == kept, "nothing changed");
    }
    seen
}

/// All records, which `recovered` counts.
fn everything(spool: &mut Spool<TornDisk>, recovered: &Recovered) -> Vec<(u64, Vec<u8>)> {
    let mut records = Vec::new();
    let mut next = 0;
    while next < spool.durable() {
        let Ok(batch) = spool.read(next..u64::MAX, 3_000) else {
            panic!("this disk can be read");
        };
        assert!(batch.next > next, "no progress at {next}");
        next = batch.next;
        records.extend(batch.records);
    }
    assert!(records.is_sorted_by(|one, other| one.0 < other.0));
    assert!(records.len() as u64 <= recovered.records);
    assert_eq!(recovered.records, spool.len());
    records
}

fn signature(recovered: &Recovered, found: usize) -> u64 {
    let bits = |number: u64| u64::from(number.checked_ilog2().map_or(0, |bits| bits + 1));
    [
        u64::from(recovered.is_new),
        bits(found as u64),
        bits(recovered.lost_records),
        bits(recovered.lost.len() as u64),
        bits(recovered.skipped.end - recovered.skipped.start),
        bits(recovered.cut_bytes),
    ]
    .into_iter()
    .fold(3, |hash, part| hash << 7 | part)
}

fn plain(mut input: &[u8]) -> BTreeMap<u64, Vec<u8>> {
    let mut segments = BTreeMap::new();
    while let [number, high, low, rest @ ..] = input {
        let len = usize::from(u16::from_be_bytes([*high, *low])).min(rest.len());
        let (bytes, rest) = rest.split_at(len);
        segments.insert(u64::from(*number), bytes.to_vec());
        input = rest;
    }
    segments
}

/// Each step is four bytes, and what it appends.
fn written(mut input: &[u8]) -> BTreeMap<u64, Vec<u8>> {
    let mut segments: BTreeMap<u64, Vec<u8>> = BTreeMap::new();
    let mut at = 0;
    while let [step, one, two, three, rest @ ..] = input {
        input = rest;
        let (one, two, three) = (u64::from(*one), u64::from(*two), u64::from(*three));
        let bytes = segments.entry(at).or_default();
        match step % 8 {
            0 => {
                at += 1 + one / 64;
                let id = ID + u64::from(*step == 8);
                let first = one % 64 + two;
                let head = head(id, first, first.saturating_sub(three / 16), three % 16);
                segments.insert(at, head);
            }
            1 | 2 => record(one, &vec![b'y'; (two * three) as usize], 0, bytes),
            3 => record(one, &two.to_be_bytes(), 1 << 31, bytes),
            4 => {
                record(one, b"damaged", 0, bytes);
                bytes.pop();
                bytes.push(b'?');
            }
            5 => record(one << (two % 64), b"far", three as u32 % 2 * 7, bytes),
            6 => bytes.truncate(bytes.len().saturating_sub((one + 1) as usize)),
            _ => {
                let len = (two as usize % 16).min(rest.len());
                bytes.extend_from_slice(&rest[..len]);
                input = &rest[len..];
            }
        }
    }
    segments
}

fn head(id: u64, first: u64, follows: u64, trimmed: u64) -> Vec<u8> {
    let mut bytes = b"TwSp\0\0\0\x01".to_vec();
    for number in [id, first, follows, trimmed] {
        bytes.extend_from_slice(&number.to_be_bytes());
    }
    let sum = crc32c(&bytes);
    bytes.extend_from_slice(&sum.to_be_bytes());
    bytes
}

fn record(seq: u64, payload: &[u8], flags: u32, out: &mut Vec<u8>) {
    let mut prefix = ID.to_be_bytes().to_vec();
    prefix.extend_from_slice(&(payload.len() as u32 ^ flags).to_be_bytes());
    prefix.extend_from_slice(&seq.to_be_bytes());
    prefix.extend_from_slice(&crc32c(payload).to_be_bytes());
    let sum = crc32c(&prefix);
    out.extend_from_slice(&prefix[8..]);
    out.extend_from_slice(&sum.to_be_bytes());
    out.extend_from_slice(payload);
}

/// Bit by bit, as the standard has it.
fn crc32c(bytes: &[u8]) -> u32 {
    let sum = bytes.iter().fold(!0_u32, |sum, byte| {
        (0..8).fold(sum ^ u32::from(*byte), |sum, _| {
            (sum >> 1) ^ (0x82f6_3b78 * (sum & 1))
        })
    });
    !sum
}

/// A genuine spool, whole and cut off.
pub(super) fn seeds() -> Vec<(String, Vec<u8>)> {
    let mut segment = head(ID, 3, 3, 1);
    for seq in 3..6 {
        record(
            seq,
            br#"{"path":"navigation.speedOverGround"}"#,
            0,
            &mut segment,
        );
    }
    debug_assert!(segment.len() > HEAD);
    let framed = |segment: &[u8]| {
        let [high, low] = (segment.len() as u16).to_be_bytes();
        [&[0, 4, high, low][..], segment].concat()
    };
    vec![
        ("genuine".to_owned(), framed(&segment)),
        ("cut".to_owned(), framed(&segment[..segment.len() - 9])),
    ]
}
