//! The delta link's spool on a disk that loses power, fails, fills up and rots.

mod model;

use std::ops::Range;

use towline_lab::Random;
use towline_lab::torn_disk::{TornDisk, TornError};
use towline_link::spool::{
    AppendError, Batch, Full, MAX_LOST_RANGES, MAX_RECORD, OpenError, Recovered, Spool, SpoolConfig,
};

const ID: u64 = 0x5eed;

fn config(max_bytes: u64, full: Full) -> SpoolConfig {
    SpoolConfig {
        max_bytes,
        segment_bytes: 8 << 10,
        full,
    }
}

fn open(disk: &TornDisk, config: &SpoolConfig) -> (Spool<TornDisk>, Recovered) {
    Spool::open(disk.clone(), config.clone(), ID).unwrap()
}

/// Everything from `start` on.
fn read_from(spool: &mut Spool<TornDisk>, start: u64, max_bytes: usize) -> Batch {
    let mut all = Batch {
        next: start,
        ..Batch::default()
    };
    while all.next < spool.durable() {
        let batch = spool.read(all.next..u64::MAX, max_bytes).unwrap();
        assert!(batch.next > all.next, "no progress at {}", all.next);
        all.records.extend(batch.records);
        all.missing.extend(batch.missing);
        all.next = batch.next;
    }
    let mut covered: Vec<Range<u64>> = all.missing.clone();
    covered.extend(all.records.iter().map(|(seq, _)| *seq..*seq + 1));
    covered.sort_by_key(|range| range.start);
    let mut next = start;
    for range in covered {
        assert_eq!(range.start, next, "each number once");
        next = range.end;
    }
    assert_eq!(next, all.next.max(start));
    all
}

fn payload(seq: u64) -> Vec<u8> {
    let text = format!(r#"{{"n":{seq},"path":"navigation.speedOverGround"}}"#);
    text.repeat(1 + seq as usize % 5).into_bytes()
}

/// A spool of `count` records, of which ten at a time were committed.
fn filled(disk: &TornDisk, config: &SpoolConfig, count: u64) -> Spool<TornDisk> {
    let (mut spool, _) = open(disk, config);
    for seq in 0..count {
        assert_eq!(spool.append(&payload(seq)).unwrap().seq, seq);
        if seq % 10 == 9 {
            spool.commit().unwrap();
        }
    }
    assert_eq!(spool.commit().unwrap(), count);
    spool
}

#[test]
fn a_damaged_byte_costs_one_record_and_is_reported() {
    for seed in 0..1_000 {
        let mut random = Random::new(seed, 0);
        let disk = TornDisk::default();
        let config = config(1 << 20, Full::Refuse);
        drop(filled(&disk, &config, 300));
        let segments = disk.segments();
        assert!(segments.len() > 4);
        let hits = random.between(1, 3);
        for _ in 0..hits {
            let (number, bytes) = &segments[random.below(segments.len() as u64) as usize];
            let at = random.below(bytes.len() as u64) as usize;
            let bit = random.below(8);
            disk.damage(*number, |bytes| bytes[at] ^= 1 << bit);
        }
        check_damage(&disk, &config, hits, seed);
    }
}

#[test]
fn a_damaged_sector_costs_what_it_hits() {
    for seed in 0..1_000 {
        let mut random = Random::new(seed, 0);
        let disk = TornDisk::default();
        let config = config(1 << 20, Full::Refuse);
        drop(filled(&disk, &config, 300));
        let segments = disk.segments();
        let (number, bytes) = &segments[random.below(segments.len() as u64) as usize];
        let start = random.below(bytes.len() as u64) as usize / 512 * 512;
        let is_zero = random.chance(0.5);
        disk.damage(*number, |bytes| {
            let end = bytes.len().min(start + 512);
            bytes[start..end].fill_with(|| random.bits() as u8 * u8::from(!is_zero));
        });
        // The shortest records are of 68 bytes, and the others of 10 to 15 times 48 in five.
        check_damage(&disk, &config, 6, seed);
    }
}

/// At most `most` of the 300 records are gone, all are told, and the spool goes on.
fn check_damage(disk: &TornDisk, config: &SpoolConfig, most: u64, seed: u64) {
    let (mut spool, recovered) = open(disk, config);
    assert!(!recovered.is_new && spool.id() == ID, "seed {seed}");
    let all = read_from(&mut spool, 0, 5_000);
    for (seq, found) in &all.records {
        assert_eq!(*found, payload(*seq), "seed {seed}");
    }
    let gone = 300 - all.records.len() as u64;
    assert!(gone <= most, "seed {seed}: {gone} records are gone");
    assert_eq!(recovered.records, 300 - gone);
    let told = |seq: u64| {
        let lost = &mut recovered.lost.iter();
        lost.any(|lost| lost.contains(&seq)) || recovered.skipped.contains(&seq)
    };
    for missing in all.missing.iter().cloned().flatten() {
        assert!(told(missing), "seed {seed}: {missing}");
    }
    let listed: u64 = recovered
        .lost
        .iter()
        .map(|lost| lost.end - lost.start)
        .sum();
    assert_eq!(listed, recovered.lost_records);
    let next = spool.next_seq();
    assert!(next >= 300, "seed {seed}: a number would be used again");
    assert_eq!(spool.append(b"{}").unwrap().seq, next);
    spool.commit().unwrap();
    let last = read_from(&mut spool, next, 100);
    assert_eq!(last.records, [(next, b"{}".to_vec())]);
    // Opened again, it says the same of what is damaged, and nothing is skipped twice.
    let (mut spool, again) = open(disk, config);
    assert_eq!(again.lost, recovered.lost, "seed {seed}");
    assert_eq!((again.cut_bytes, again.skipped), (0, 0..0), "seed {seed}");
    assert_eq!(
        read_from(&mut spool, 0, 5_000).records.len(),
        all.records.len() + 1
    );
}

#[test]
fn a_number_is_not_used_again_when_only_a_mark_is_left() {
    let disk = TornDisk::default();
    let config = config(1 << 20, Full::Refuse);
    let (mut spool, _) = open(&disk, &config);
    spool.append(b"first").unwrap();
    spool.commit().unwrap();
    let start = disk.segments()[0].1.len();
    spool.append(b"second").unwrap();
    spool.trim(1).unwrap();
    spool.commit().unwrap();
    drop(spool);
    disk.damage(0, |bytes| bytes[start + 3..start + 6].fill(0xff));
    let (spool, recovered) = open(&disk, &config);
    assert_eq!((spool.next_seq(), spool.oldest_seq()), (2, 1));
    assert_eq!((recovered.lost.len(), recovered.lost_records), (1, 1));
    assert!(recovered.lost[0].contains(&1));
}

#[test]
fn damage_that_comes_while_it_is_open_is_reported_by_the_read() {
    let disk = TornDisk::default();
    let mut spool = filled(&disk, &config(1 << 20, Full::Refuse), 300);
    let (number, _) = disk.segments()[1];
    disk.damage(number, |bytes| bytes[3_000] ^= 1);
    let all = read_from(&mut spool, 0, 5_000);
    assert_eq!(all.records.len(), 299);
    assert_eq!(all.missing.len(), 1);
}

#[test]
fn many_records_share_one_sync() {
    let disk = TornDisk::default();
    let (mut spool, recovered) = open(&disk, &config(1 << 20, Full::Refuse));
    assert!(recovered.is_new);
    for seq in 0..20 {
        spool.append(&payload(seq)).unwrap();
    }
    assert_eq!((disk.syncs(), spool.durable(), spool.len()), (0, 0, 20));
    assert_eq!(
        read_from(&mut spool, 0, 100).records,
        [],
        "only what is durable is read"
    );
    assert_eq!(spool.commit().unwrap(), 20);
    assert_eq!(spool.commit().unwrap(), 20);
    assert_eq!(disk.syncs(), 1);
}

#[test]
fn a_full_spool_drops_its_oldest_and_says_so() {
    let disk = TornDisk::default();
    let (mut spool, _) = open(&disk, &config(64 << 10, Full::DropOldest));
    let mut oldest = 0;
    for seq in 0..2_000 {
        let appended = spool.append(&payload(seq)).unwrap();
        spool.commit().unwrap();
        if let Some(dropped) = appended.dropped {
            assert_eq!(dropped.start, oldest);
            oldest = dropped.end;
        }
        assert!(spool.bytes() <= 64 << 10);
    }
    assert!(oldest > 1_000);
    assert_eq!((spool.oldest_seq(), spool.dropped()), (oldest, oldest));
    assert_eq!(
        read_from(&mut spool, oldest, 9_000).records.len() as u64,
        2_000 - oldest
    );
    assert!(spool.len() > 200, "it is used");
}

#[test]
fn a_spool_that_refuses_takes_more_when_something_was_delivered() {
    let disk = TornDisk::default();
    let config = config(64 << 10, Full::Refuse);
    let (mut spool, _) = open(&disk, &config);
    let full = (0..).find_map(|seq| spool.append(&payload(seq)).err());
    assert!(matches!(
        full,
        Some(AppendError::Full {
            max_bytes: 65_536,
            ..
        })
    ));
    let count = spool.commit().unwrap();
    assert!(matches!(
        spool.append(b"{}"),
        Ok(_) | Err(AppendError::Full { .. })
    ));
    spool.trim(count / 2).unwrap();
    spool.append(&payload(0)).unwrap();
    // All of it was delivered: nothing is in the way, whatever is still on the disk.
    let count = spool.commit().unwrap();
    spool.trim(count).unwrap();
    assert!(spool.is_empty());
    drop(spool);
    let (mut spool, _) = open(&disk, &config);
    for _ in 0..10 {
        spool.append(&vec![7; spool.max_record() / 4]).unwrap();
    }
    spool.commit().unwrap();
}

#[test]
fn what_was_trimmed_does_not_come_again_after_the_next_commit() {
    let disk = TornDisk::default();
    let config = config(1 << 20, Full::Refuse);
    let mut spool = filled(&disk, &config, 300);
    let before = spool.bytes();
    spool.trim(250).unwrap();
    assert!(spool.bytes() < before / 2, "whole segments went");
    spool.append(b"{}").unwrap();
    spool.commit().unwrap();
    spool.trim(280).unwrap();
    drop(spool);
    let (mut spool, recovered) = open(&disk, &config);
    assert!((250..=280).contains(&spool.oldest_seq()));
    assert_eq!(recovered.records, 301 - spool.oldest_seq());
    spool.trim(301).unwrap();
    spool.flush().unwrap();
    drop(spool);
    let (mut spool, recovered) = open(&disk, &config);
    assert!(spool.is_empty());
    assert_eq!(
        (recovered.lost, recovered.records, spool.next_seq()),
        (vec![], 0, 301)
    );
    assert_eq!(spool.id(), ID);
    assert_eq!(spool.append(b"{}").unwrap().seq, 301);
}

#[test]
fn a_full_disk_keeps_what_was_committed_and_takes_the_rest_later() {
    let disk = TornDisk::default();
    let config = config(1 << 20, Full::Refuse);
    let mut spool = filled(&disk, &config, 100);
    disk.set_room(Some(spool.bytes() as usize + 50));
    for _ in 100..120 {
        spool.append(b"{}").unwrap();
    }
    for _ in 0..5 {
        assert_eq!(spool.commit().unwrap_err().source, TornError::Full);
        assert_eq!(spool.durable(), 100);
    }
    assert_eq!(
        disk.segments().len(),
        spool_segments(&disk, &config),
        "nothing is left behind"
    );
    disk.set_room(None);
    assert_eq!(spool.commit().unwrap(), 120);
    disk.lose_power(&mut Random::new(1, 0));
    let (mut spool, recovered) = open(&disk, &config);
    assert_eq!(
        recovered,
        Recovered {
            records: 120,
            ..Recovered::default()
        }
    );
    assert_eq!(read_from(&mut spool, 0, 9_000).records.len(), 120);
}

/// Segments that a copy of the disk opens with.
fn spool_segments(disk: &TornDisk, config: &SpoolConfig) -> usize {
    let copy = TornDisk::holding(disk.segments());
    let (_, recovered) = open(&copy, config);
    assert_eq!(recovered.cut_bytes, 0);
    copy.segments().len()
}

#[test]
fn a_sync_that_failed_is_not_believed_later() {
    let disk = TornDisk::default();
    let config = config(1 << 20, Full::Refuse);
    let mut spool = filled(&disk, &config, 10);
    let (number, _) = disk.segments()[0];
    spool.append(&payload(10)).unwrap();
    disk.fail_syncs(1);
    assert!(spool.commit().is_err());
    assert_eq!(spool.commit().unwrap(), 11);
    assert!(
        disk.segments().last().unwrap().0 > number,
        "in another segment"
    );
    disk.lose_power(&mut Random::new(3, 0));
    let (mut spool, _) = open(&disk, &config);
    assert_eq!(read_from(&mut spool, 10, 100).records, [(10, payload(10))]);
}

#[test]
fn a_read_that_goes_on_reads_only_what_it_returns() {
    let disk = TornDisk::default();
    let config = SpoolConfig::default();
    let mut spool = filled(&disk, &config, 20_000);
    let before = disk.read();
    let (mut next, mut bytes) = (0, 0);
    while next < 20_000 {
        let batch = spool.read(next..u64::MAX, 1_200).unwrap();
        bytes += batch
            .records
            .iter()
            .map(|record| record.1.len())
            .sum::<usize>();
        next = batch.next;
    }
    let read = disk.read() - before;
    assert!(read < 8 * bytes as u64, "{read} bytes for {bytes}");
    // Anywhere else it begins at a known place nearby.
    let before = disk.read();
    for start in (0..20_000).rev().step_by(100) {
        assert_eq!(spool.read(start..start + 1, 1).unwrap().records[0].0, start);
    }
    let each = (disk.read() - before) / 200;
    assert!(each < 200_000, "{each} bytes a read");
}

#[test]
fn the_largest_record_comes_back() {
    let disk = TornDisk::default();
    let config = SpoolConfig::default();
    let (mut spool, _) = open(&disk, &config);
    assert_eq!(spool.max_record(), MAX_RECORD);
    let large = vec![b'x'; MAX_RECORD];
    let over = [&large[..], b"x"].concat();
    assert!(matches!(
        spool.append(&over),
        Err(AppendError::TooLarge {
            max: MAX_RECORD,
            ..
        })
    ));
    spool.append(b"{}").unwrap();
    assert_eq!(spool.append(&large).unwrap().seq, 1);
    spool.append(b"[]").unwrap();
    spool.commit().unwrap();
    let (mut spool, recovered) = open(&disk, &config);
    assert_eq!(recovered.records, 3);
    let one = spool.read(1..9, 10).unwrap();
    assert!(one.records == [(1, large)], "one at least");
    assert_eq!(one.next, 2);
}

#[test]
fn so_many_segments_are_full() {
    let disk = TornDisk::default();
    let config = config(1 << 30, Full::Refuse);
    let (mut spool, _) = open(&disk, &config);
    // Each sync that fails begins another segment.
    let full = (0..20_000).find_map(|_| {
        if let Err(error) = spool.append(b"{}") {
            return Some(error);
        }
        spool.commit().unwrap();
        if let Err(error) = spool.append(b"{}") {
            return Some(error);
        }
        disk.fail_syncs(1);
        assert!(spool.commit().is_err());
        None
    });
    assert!(matches!(full, Some(AppendError::Full { .. })));
    assert_eq!(disk.segments().len(), 1 << 14);
}

#[test]
fn so_many_ranges_are_listed() {
    let disk = TornDisk::default();
    let config = SpoolConfig {
        segment_bytes: 64 << 20,
        ..SpoolConfig::default()
    };
    let (mut spool, _) = open(&disk, &config);
    for _ in 0..10_001 {
        spool.append(b"1234567890").unwrap();
    }
    spool.commit().unwrap();
    drop(spool);
    disk.damage(0, |bytes| {
        for record in bytes[44..].chunks_mut(30).step_by(2).take(5_000) {
            record[25] = b'x';
        }
    });
    let (_, recovered) = open(&disk, &config);
    assert_eq!(
        (recovered.lost.len(), recovered.lost_records),
        (MAX_LOST_RANGES, 5_000)
    );
    assert_eq!(recovered.records, 5_001);
}

#[test]
fn what_is_no_spool_of_ours_is_told() {
    let (one, other) = (TornDisk::default(), TornDisk::default());
    let config = config(1 << 20, Full::Refuse);
    drop(filled(&one, &config, 10));
    let (mut spool, _) = Spool::open(other.clone(), config.clone(), 9).unwrap();
    spool.append(b"{}").unwrap();
    spool.commit().unwrap();
    let (_, bytes) = other.segments().remove(0);
    let mixed = TornDisk::holding(one.segments().into_iter().chain([(7, bytes)]));
    let opened = Spool::open(mixed.clone(), config.clone(), 1);
    assert_eq!(opened.unwrap_err(), OpenError::Mixed { one: 0, other: 7 });
    assert_eq!(mixed.segments().len(), 2, "nothing was touched");
    let opened = Spool::open(
        one.clone(),
        SpoolConfig {
            max_bytes: 1_000,
            ..config.clone()
        },
        1,
    );
    assert!(matches!(opened, Err(OpenError::TooSmall { .. })));
    let last = TornDisk::holding([(u64::MAX, Vec::new())]);
    let opened = Spool::open(last, config.clone(), 1);
    assert!(matches!(opened, Err(OpenError::LastNumber { .. })));
    // Of what cannot be read nothing is kept, and no number is used again: the id is another.
    let zeros = TornDisk::holding([(4, vec![0; 700])]);
    let (mut spool, recovered) = Spool::open(zeros.clone(), config, 77).unwrap();
    assert_eq!((recovered.is_new, recovered.cut_bytes), (true, 700));
    spool.append(b"{}").unwrap();
    spool.commit().unwrap();
    assert_eq!((spool.id(), zeros.segments()[0].0), (77, 5));
}
