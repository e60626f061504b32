//! Random operations, failures and losses of power, and what the spool must have after each.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use towline_lab::Random;
use towline_lab::torn_disk::TornDisk;
use towline_link::spool::{AppendError, Batch, Full, Spool, SpoolConfig};

use super::read_from;

/// What a spool promised.
struct Model {
    random: Random,
    config: SpoolConfig,
    id: Option<u64>,
    /// Payloads that were appended under a number, and not committed.
    tried: BTreeMap<u64, BTreeSet<Vec<u8>>>,
    committed: BTreeMap<u64, Vec<u8>>,
    pending: BTreeMap<u64, Vec<u8>>,
    /// Below, all was trimmed or dropped.
    floor: u64,
    made: u64,
    /// Bytes that it had when it was opened.
    opened: u64,
    with_faults: bool,
}

impl Model {
    fn new(seed: u64) -> Self {
        let mut random = Random::new(seed, 0);
        let full = random.pick(&[Full::DropOldest, Full::Refuse]);
        let max_bytes = random.pick(&[64 << 10, 100 << 10, 1 << 20]);
        let segment_bytes = random.pick(&[4 << 10, 8 << 10, 64 << 10]);
        Self {
            with_faults: random.chance(0.4),
            random,
            config: SpoolConfig {
                max_bytes,
                segment_bytes,
                full,
            },
            id: None,
            tried: BTreeMap::new(),
            committed: BTreeMap::new(),
            pending: BTreeMap::new(),
            floor: 0,
            made: 0,
            opened: 0,
        }
    }

    /// Opens the spool and holds what it has against what it promised.
    fn open(&mut self, disk: &TornDisk) -> Spool<TornDisk> {
        for (seq, payload) in std::mem::take(&mut self.pending) {
            self.tried.entry(seq).or_default().insert(payload);
        }
        let new_id = self.random.bits();
        let (mut spool, recovered) =
            Spool::open(disk.clone(), self.config.clone(), new_id).unwrap();
        match (self.id, recovered.is_new) {
            (Some(id), false) => assert_eq!(spool.id(), id),
            (None, false) => self.id = Some(spool.id()),
            (_, true) => {
                assert!(self.committed.is_empty(), "what was committed is gone");
                assert_eq!((spool.id(), spool.next_seq()), (new_id, 0));
                self.id = Some(new_id);
                self.tried.clear();
            }
        }
        let all = read_from(&mut spool, 0, 3_000);
        for (seq, payload) in &all.records {
            let is_tried = |tried: &BTreeSet<Vec<u8>>| tried.contains(payload);
            match self.committed.get(seq) {
                Some(committed) => assert_eq!(payload, committed, "record {seq}"),
                None => assert!(
                    self.tried.get(seq).is_some_and(is_tried),
                    "record {seq} was never written"
                ),
            }
            self.committed.insert(*seq, payload.clone());
        }
        let found: BTreeSet<u64> = all.records.iter().map(|record| record.0).collect();
        for seq in self.committed.range(self.floor..).map(|(seq, _)| seq) {
            assert!(found.contains(seq), "record {seq} is gone");
            assert!(!recovered.lost.iter().any(|lost| lost.contains(seq)));
        }
        let last = self.committed.last_key_value().map(|(seq, _)| *seq);
        assert!(last.is_none_or(|last| spool.next_seq() > last));
        assert!(spool.len() >= found.len() as u64, "a gap may count");
        assert_eq!(spool.durable(), spool.next_seq());
        self.opened = spool.bytes();
        spool
    }

    fn step(&mut self, spool: &mut Spool<TornDisk>) {
        match self.random.below(20) {
            0..=11 => self.append(spool),
            12..=15 => {
                let durable = match self.random.chance(0.3) {
                    true => spool.flush(),
                    false => spool.commit(),
                };
                match durable {
                    Ok(durable) => assert_eq!(durable, spool.next_seq()),
                    Err(_) => assert!(self.with_faults),
                }
                self.on_durable(spool.durable());
            }
            16 => {
                let below = self.random.between(self.floor, spool.durable() + 3);
                let trimmed = spool.trim(below);
                assert!(trimmed.is_ok() || self.with_faults);
                self.floor = self.floor.max(below.min(spool.durable()));
            }
            _ => {
                let start = self.random.between(0, spool.next_seq() + 2);
                let range = start..start + self.random.below(200);
                let max_bytes = self.random.below(20_000) as usize;
                match spool.read(range.clone(), max_bytes) {
                    Ok(batch) => self.check(spool, &batch, range),
                    Err(_) => assert!(self.with_faults),
                }
            }
        }
        // A newest segment that is done with stays until there is another.
        let most = self.opened.max(self.config.max_bytes) + self.config.max_bytes / 4;
        assert!(spool.bytes() <= most);
    }

    fn append(&mut self, spool: &mut Spool<TornDisk>) {
        let most = self.random.pick(&[0, 60, 300, 300, 700, 6_000]);
        let len = self.random.below(most + 1) as usize;
        let mut payload = format!("{};", self.made).into_bytes();
        payload.resize_with(payload.len() + len, || self.random.below(3) as u8);
        self.made += 1;
        let next = spool.next_seq();
        match spool.append(&payload) {
            Ok(appended) => {
                assert_eq!(appended.seq, next);
                let former = self.pending.insert(next, payload);
                assert!(former.is_none() && !self.committed.contains_key(&next));
                if let Some(dropped) = appended.dropped {
                    assert_eq!(self.config.full, Full::DropOldest);
                    assert!(!dropped.is_empty() && dropped.end <= spool.durable());
                    self.floor = self.floor.max(dropped.end);
                }
            }
            Err(AppendError::Full { .. }) => assert_eq!(self.config.full, Full::Refuse),
            Err(AppendError::Disk(_)) => {
                assert!(self.with_faults);
                // Something may have been dropped; the next one says so.
                self.floor = self.floor.max(spool.oldest_seq());
            }
            Err(error) => panic!("{error}"),
        }
        self.on_durable(spool.durable());
    }

    fn on_durable(&mut self, durable: u64) {
        let rest = self.pending.split_off(&durable);
        for (seq, payload) in std::mem::replace(&mut self.pending, rest) {
            assert_eq!(self.committed.insert(seq, payload), None, "number {seq}");
        }
    }

    fn check(&self, spool: &Spool<TornDisk>, batch: &Batch, range: Range<u64>) {
        let end = range.end.min(spool.durable());
        assert!(batch.next <= end.max(range.start));
        let found: BTreeMap<u64, &Vec<u8>> =
            batch.records.iter().map(|(seq, p)| (*seq, p)).collect();
        assert_eq!(found.len(), batch.records.len(), "none comes twice");
        assert!(found.keys().all(|seq| range.contains(seq)));
        for seq in range.start..batch.next {
            match found.get(&seq) {
                Some(payload) => assert_eq!(Some(*payload), self.committed.get(&seq)),
                None => {
                    assert!(seq < self.floor || !self.committed.contains_key(&seq));
                    assert!(batch.missing.iter().any(|missing| missing.contains(&seq)));
                }
            }
        }
    }

    fn run(&mut self) {
        let disk = TornDisk::default();
        for life in 0..self.random.between(2, 8) {
            let mut spool = self.open(&disk);
            if self.with_faults {
                let chance = self.random.pick(&[0.01, 0.1, 0.5]);
                disk.set_faults(Some((Random::new(self.random.bits(), 1), chance)));
            }
            for _ in 0..self.random.log_whole(1, 300) {
                self.step(&mut spool);
            }
            disk.set_faults(None);
            drop(spool);
            // Some programs are only killed.
            if self.random.chance(0.7) {
                disk.lose_power(&mut self.random);
            }
            if life == 0 && self.random.chance(0.1) {
                self.config.max_bytes = 64 << 10;
            }
        }
        self.open(&disk);
    }
}

#[test]
fn what_was_committed_outlives_any_loss_of_power() {
    let seeds: u64 = std::env::var("SPOOL_SEEDS").map_or(3_000, |seeds| seeds.parse().unwrap());
    let first = std::env::var("SPOOL_SEED").map_or(0, |seed| seed.parse().unwrap());
    for seed in first..seeds {
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| Model::new(seed).run())) {
            eprintln!("again: SPOOL_SEED={seed} cargo test -p towline-lab --test spool outlives");
            resume_unwind(panic);
        }
    }
}
