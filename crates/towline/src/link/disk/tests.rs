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
