//! Scratch folders and in-memory connections for the tests beside this file.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use tokio::io::{AsyncWriteExt, DuplexStream, ReadHalf, SimplexStream, WriteHalf};
use tokio::sync::{mpsc, watch};

use super::limit::Limiter;
use crate::message::read_varint;
use crate::path::RelativePath;
use crate::pipe::{LaneWriter, OpenLane};
use crate::progress::Progress;
use crate::receive::receive;
use crate::report::Ended;
use crate::send::{SendEnded, SendPlan, send};
use crate::store::{Store, StorePolicy};
use crate::walk::Root;

const BUFFER: usize = 64 * 1024;

/// A folder that is removed when dropped.
pub(super) struct Scratch(PathBuf);

impl Scratch {
    pub(super) fn new() -> Self {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let name = format!(
            "towline-test-{}-{}",
            std::process::id(),
            COUNT.fetch_add(1, Ordering::Relaxed)
        );
        let path = std::env::temp_dir().join(name);
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    pub(super) fn path(&self, below: &str) -> PathBuf {
        self.0.join(below)
    }

    pub(super) fn write(&self, below: &str, data: &[u8]) -> PathBuf {
        let path = self.path(below);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, data).unwrap();
        path
    }

    pub(super) fn with_mode(&self, below: &str, data: &[u8], mode: u32) {
        let path = self.write(below, data);
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// `length` bytes that differ from file to file and do not repeat.
pub(super) fn noise(seed: u64, length: usize) -> Vec<u8> {
    let mut data = vec![0; length];
    let mut hasher = blake3::Hasher::new();
    hasher.update(&seed.to_le_bytes());
    hasher.finalize_xof().fill(&mut data);
    data
}

/// Relative path, contents (of a link: where it leads), mode and time of everything below a folder.
/// A link has no mode, and its time does not travel.
pub(super) fn listing(folder: &Path) -> Vec<(String, Vec<u8>, u32, std::time::SystemTime)> {
    fn visit(
        folder: &Path,
        prefix: &str,
        into: &mut Vec<(String, Vec<u8>, u32, std::time::SystemTime)>,
    ) {
        let mut entries: Vec<_> = fs::read_dir(folder).unwrap().map(Result::unwrap).collect();
        entries.sort_by_key(fs::DirEntry::file_name);
        for entry in entries {
            let name = format!("{prefix}{}", entry.file_name().to_string_lossy());
            let metadata = entry.metadata().unwrap();
            if entry.file_name() == crate::path::PART_FOLDER {
                continue;
            }
            let mode = metadata.permissions().mode() & 0o7777;
            let modified = metadata.modified().unwrap();
            if metadata.is_dir() {
                into.push((format!("{name}/"), Vec::new(), mode, modified));
                visit(&entry.path(), &format!("{name}/"), into);
            } else if metadata.is_symlink() {
                let target = fs::read_link(entry.path()).unwrap();
                let target = target.into_os_string().into_encoded_bytes();
                into.push((name, target, 0, std::time::UNIX_EPOCH));
            } else {
                into.push((name, fs::read(entry.path()).unwrap(), mode, modified));
            }
        }
    }
    let mut all = Vec::new();
    visit(folder, "", &mut all);
    all
}

/// Opens lanes as in-memory pipes; `spoil` flips one byte at that position of the first lane.
#[derive(Clone)]
pub(super) struct MemoryLanes {
    arrivals: mpsc::Sender<ReadHalf<SimplexStream>>,
    spoil: Option<u64>,
    limiter: Option<Arc<Limiter>>,
}

pub(super) struct MemoryLane {
    stream: WriteHalf<SimplexStream>,
    position: u64,
    spoil: Option<u64>,
    limiter: Option<Arc<Limiter>>,
}

impl LaneWriter for MemoryLane {
    async fn write_chunk(&mut self, block: Bytes) -> io::Result<()> {
        if let Some(limiter) = &self.limiter {
            limiter.take(block.len()).await;
        }
        let mut block = block.to_vec();
        let end = self.position + block.len() as u64;
        if let Some(at) = self.spoil.filter(|at| (self.position..end).contains(at)) {
            block[(at - self.position) as usize] ^= 1;
        }
        self.position = end;
        self.stream.write_all(&block).await
    }

    async fn finish(&mut self) -> io::Result<()> {
        self.stream.shutdown().await
    }
}

impl OpenLane for MemoryLanes {
    type Lane = MemoryLane;

    async fn open(&self) -> io::Result<MemoryLane> {
        let (mut read, write) = tokio::io::simplex(BUFFER);
        let arrivals = self.arrivals.clone();
        tokio::spawn(async move {
            // What the connection's dispatcher does: kind, then session number.
            let _ = read_varint(&mut read).await;
            let _ = read_varint(&mut read).await;
            let _ = arrivals.send(read).await;
        });
        Ok(MemoryLane {
            stream: write,
            position: 0,
            spoil: self.spoil,
            limiter: self.limiter.clone(),
        })
    }
}

pub(super) fn memory_lanes(
    spoil: Option<u64>,
) -> (MemoryLanes, mpsc::Receiver<ReadHalf<SimplexStream>>) {
    let (arrivals, lanes) = mpsc::channel(16);
    let lanes_out = MemoryLanes {
        arrivals,
        spoil,
        limiter: None,
    };
    (lanes_out, lanes)
}

/// Both ends of a control stream.
pub(super) fn control() -> (DuplexStream, DuplexStream) {
    tokio::io::duplex(BUFFER)
}

/// Sends the contents of a folder under their own names.
pub(super) fn contents_of(folder: &Path) -> Vec<Root> {
    vec![Root {
        disk: folder.to_path_buf(),
        name: None,
    }]
}

pub(super) fn named(disk: &Path, name: &str) -> Vec<Root> {
    vec![Root {
        disk: disk.to_path_buf(),
        name: Some(RelativePath::parse(name.as_bytes()).unwrap()),
    }]
}

/// How a whole session is to run.
pub(super) struct Run {
    pub(super) roots: Vec<Root>,
    pub(super) policy: StorePolicy,
    pub(super) prefix: Option<&'static str>,
    pub(super) spoil: Option<u64>,
    pub(super) limit: Option<u64>,
    pub(super) lanes: usize,
    /// Cut the connection when so many file bytes went over.
    pub(super) cut_after: Option<u64>,
}

impl Run {
    pub(super) fn of(roots: Vec<Root>) -> Self {
        Self {
            roots,
            policy: StorePolicy::default(),
            prefix: None,
            spoil: None,
            limit: None,
            lanes: 4,
            cut_after: None,
        }
    }

    /// Runs both halves until both have ended.
    pub(super) async fn into(self, out: &Path) -> (SendEnded<WriteHalf<DuplexStream>>, Ended) {
        let store = Store::open(out, self.policy).unwrap();
        self.into_store(store).await
    }

    /// The same with a destination that is open, whose policy counts.
    pub(super) async fn into_store(
        self,
        store: Arc<Store>,
    ) -> (SendEnded<WriteHalf<DuplexStream>>, Ended) {
        let (here, there) = control();
        let (mut lanes, arrivals) = memory_lanes(self.spoil);
        lanes.limiter = self.limit.map(|rate| Arc::new(Limiter::new(rate)));
        let progress = Arc::new(Progress::new());
        let plan = SendPlan {
            roots: self.roots,
            follow_links: false,
            lanes: self.lanes,
        };
        let (cancel, cut) = (watch::Sender::new(false), watch::Sender::new(false));
        let prefix = self
            .prefix
            .map(|prefix| RelativePath::parse(prefix.as_bytes()).unwrap());
        let sending = send(
            tokio::io::split(here),
            lanes,
            7,
            plan,
            progress,
            cancel.subscribe(),
        );
        let received = Arc::new(Progress::new());
        let receiving = receive(
            tokio::io::split(there),
            arrivals,
            store,
            prefix,
            Arc::clone(&received),
            cut.subscribe(),
        );
        let cutting = async {
            let Some(bytes) = self.cut_after else {
                return std::future::pending().await;
            };
            while received.bytes_moved.load(Ordering::Relaxed) < bytes {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            cut.send_replace(true);
            std::future::pending::<()>().await
        };
        let both = async { tokio::join!(sending, receiving) };
        let ended = tokio::select! {
            ended = tokio::time::timeout(Duration::from_secs(60), both) => ended.expect("the session hangs"),
            () = cutting => unreachable!("never ends"),
        };
        // A cancelled receiver's file threads end shortly after it.
        tokio::time::sleep(Duration::from_millis(50)).await;
        ended
    }
}
