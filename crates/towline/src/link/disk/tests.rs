use super::*;
use towline_link::spool::{Full, OpenError, Spool, SpoolConfig};

/// A folder that goes with the test.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Self {
        let name = format!("towline-spool-{name}-{}", std::process::id());
        Self(std::env::temp_dir().join(name))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn config() -> SpoolConfig {
    SpoolConfig {
        max_bytes: 64 << 10,
        segment_bytes: 4 << 10,
        full: Full::Refuse,
    }
}

#[test]
fn records_are_there_after_the_program_ends() {
    let scratch = Scratch::new("again");
    let open = || {
        let disk = FileDisk::open(scratch.0.join("in/a/folder")).unwrap();
        Spool::open(disk, config(), 5).unwrap()
    };
    let (mut spool, recovered) = open();
    assert!(recovered.is_new);
    for number in 0..300_u64 {
        spool.append(&[7; 100]).unwrap();
        if number % 7 == 0 {
            spool.commit().unwrap();
        }
        spool.trim(number / 2).unwrap();
    }
    spool.flush().unwrap();
    drop(spool);
    let (mut spool, recovered) = open();
    assert_eq!((recovered.lost, recovered.cut_bytes), (vec![], 0));
    assert_eq!((spool.oldest_seq(), spool.next_seq()), (149, 300));
    let batch = spool.read(149..300, usize::MAX).unwrap();
    assert_eq!((batch.records.len(), batch.missing), (151, vec![]));
    assert!(batch.records.iter().all(|record| record.1 == [7; 100]));
    drop(spool);
    // A file that is cut, as by a loss of power.
    let folder = scratch.0.join("in/a/folder");
    let mut files: Vec<PathBuf> = fs::read_dir(&folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some())
        .collect();
    files.sort();
    let last = OpenOptions::new().write(true).open(&files[files.len() - 1]);
    let last = last.unwrap();
    last.set_len(last.metadata().unwrap().len() - 30).unwrap();
    let (mut spool, recovered) = open();
    assert_eq!((recovered.cut_bytes, recovered.lost_records), (118, 0));
    assert_eq!(spool.append(b"{}").unwrap().seq, 305);
    assert_eq!(spool.commit().unwrap(), 306);
}

#[test]
fn a_second_process_is_told_that_the_spool_is_in_use() {
    let scratch = Scratch::new("lock");
    let disk = FileDisk::open(&scratch.0).unwrap();
    let error = FileDisk::open(&scratch.0).unwrap_err();
    assert_eq!(error.source.kind(), ErrorKind::WouldBlock);
    assert!(
        error
            .to_string()
            .contains("another process uses this spool")
    );
    drop(disk);
    FileDisk::open(&scratch.0).unwrap();
}

#[test]
fn files_that_are_no_segments_are_left_alone() {
    let scratch = Scratch::new("foreign");
    let mut disk = FileDisk::open(&scratch.0).unwrap();
    for name in [
        "notes.txt",
        "1.log",
        "000000000000000G.log",
        "+00000000000000f.log",
    ] {
        fs::write(scratch.0.join(name), "mine").unwrap();
    }
    fs::write(scratch.0.join("000000000000001f.log"), "").unwrap();
    assert_eq!(disk.list().unwrap(), [0x1f]);
    assert!(matches!(
        Spool::open(
            disk,
            SpoolConfig {
                max_bytes: 1,
                ..config()
            },
            1
        ),
        Err(OpenError::TooSmall { .. })
    ));
    assert_eq!(fs::read_dir(&scratch.0).unwrap().count(), 6);
}

#[test]
fn a_full_disk_says_what_to_do() {
    let error = FileError::new(Path::new("/spool"), ErrorKind::StorageFull.into());
    assert!(error.to_string().starts_with("/spool: "));
    assert!(error.to_string().contains("free space there"));
}

/// A file of 20,000 bytes of which some blocks cannot be read.
struct Bad {
    at: u64,
    blocks: Vec<u64>,
}

impl Read for Bad {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let block = self.at / BLOCK;
        if self.at < 20_000 && self.blocks.contains(&block) {
            return Err(io::Error::from_raw_os_error(EIO));
        }
        let end = ((block + 1) * BLOCK).min(20_000);
        let read = (end.saturating_sub(self.at) as usize).min(buffer.len());
        buffer[..read].fill(7);
        self.at += read as u64;
        Ok(read)
    }
}

impl Seek for Bad {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        match to {
            SeekFrom::Start(at) => self.at = at,
            SeekFrom::End(_) => return Ok(20_000),
            SeekFrom::Current(_) => {}
        }
        Ok(self.at)
    }
}

#[test]
fn what_the_disk_cannot_read_is_read_around() {
    let mut file = Bad {
        at: 0,
        blocks: vec![1, 4],
    };
    let mut buffer = vec![1; 30_000];
    assert_eq!(read_around(&mut file, 0, &mut buffer).unwrap(), 20_000);
    let expected = |at: usize| match at {
        4_096..8_192 | 16_384..20_000 => 0,
        0..20_000 => 7,
        _ => 1,
    };
    assert!((0..30_000).all(|at| buffer[at] == expected(at)));
    assert_eq!(
        read_around(&mut file, 5_000, &mut buffer[..100]).unwrap(),
        100
    );
    assert_eq!(buffer[..100], [0; 100]);
}

#[test]
fn a_segment_that_says_nothing_is_kept_aside() {
    let scratch = Scratch::new("aside");
    let open = || Spool::open(FileDisk::open(&scratch.0).unwrap(), config(), 5).unwrap();
    let (mut spool, _) = open();
    for _ in 0..10 {
        spool.append(&[7; 100]).unwrap();
    }
    spool.commit().unwrap();
    drop(spool);
    let path = scratch.0.join(format!("{:016x}.log", 0));
    let mut bytes = fs::read(&path).unwrap();
    bytes[9] ^= 1;
    fs::write(&path, &bytes).unwrap();
    let (spool, recovered) = open();
    assert!(recovered.is_new && spool.is_empty());
    assert_eq!(recovered.cut_bytes, bytes.len() as u64);
    assert_eq!(fs::read(path.with_extension("damaged")).unwrap(), bytes);
}
