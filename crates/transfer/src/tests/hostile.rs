//! Peers that break the rules, spoken by hand.

use std::fs;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, DuplexStream, ReadHalf, SimplexStream};
use tokio::sync::{mpsc, watch};

use super::world::{Scratch, contents_of, control, memory_lanes};
use crate::caps::{
    MAX_CHUNK_BYTES, MAX_LANES, MAX_PATH_DEPTH, MAX_UNSETTLED_RECEIVER, MAX_UNSETTLED_SENDER,
};
use crate::encoding::put_varint;
use crate::message::{
    Answer, Entry, FileFacts, FolderFacts, Message, Modified, Reason, Refusal, put_refusal,
    read_message, read_varint,
};
use crate::path::{LinkTarget, PART_FOLDER, RelativePath};
use crate::progress::Progress;
use crate::receive::receive;
use crate::report::{Ended, SessionError};
use crate::send::{SendEnded, SendPlan, send};
use crate::store::{Store, StorePolicy};
use crate::walk::Root;

fn facts(size: u64) -> FileFacts {
    FileFacts {
        size,
        modified: Modified {
            seconds: 1_600_000_000,
            nanoseconds: 0,
        },
        mode: 0o644,
    }
}

fn entry(path: &str, size: u64) -> Entry {
    Entry::File {
        path: RelativePath::parse(path.as_bytes()).unwrap(),
        facts: facts(size),
    }
}

async fn say<W: AsyncWrite + Unpin>(control: &mut W, message: Message) {
    control.write_all(&message.encode()).await.unwrap();
}

/// Sends a whole manifest.
async fn list<W: AsyncWrite + Unpin>(control: &mut W, entries: Vec<Entry>) {
    let sizes = entries.iter().map(|entry| match entry {
        Entry::File { facts, .. } => facts.size,
        _ => 0,
    });
    let end = Message::EndOfList {
        entries: entries.len() as u64,
        bytes: sizes.sum(),
    };
    say(control, Message::Entries(entries)).await;
    say(control, end).await;
}

/// Sends a manifest of one file.
pub(super) async fn announce<W: AsyncWrite + Unpin>(control: &mut W, path: &str, size: u64) {
    list(control, vec![entry(path, size)]).await;
}

pub(super) async fn expect_answers<R: AsyncRead + Unpin>(control: &mut R) -> Vec<(u64, Answer)> {
    match read_message(control).await.unwrap() {
        Some(Message::Answers(answers)) => answers,
        other => panic!("expected answers, got {other:?}"),
    }
}

/// A receiver under attack: its control stream, its lanes, its end.
struct Victim {
    control: DuplexStream,
    lanes: mpsc::Sender<ReadHalf<SimplexStream>>,
    ended: tokio::task::JoinHandle<Ended>,
    scratch: Scratch,
    _cancel: watch::Sender<bool>,
}

impl Victim {
    fn new() -> Self {
        let scratch = Scratch::new();
        let store = Store::open(&scratch.path("to"), StorePolicy::default()).unwrap();
        let (control, there) = control();
        let (lanes, arrivals) = mpsc::channel(64);
        let cancel = watch::Sender::new(false);
        let ended = tokio::spawn(receive(
            tokio::io::split(there),
            arrivals,
            store,
            None,
            Arc::new(Progress::new()),
            cancel.subscribe(),
        ));
        Self {
            control,
            lanes,
            ended,
            scratch,
            _cancel: cancel,
        }
    }

    /// It has asked for all of `file`, which is so long.
    async fn that_wants(size: u64) -> Self {
        let mut victim = Self::new();
        announce(&mut victim.control, "file", size).await;
        expect_answers(&mut victim.control).await;
        victim
    }

    async fn lane(&self, bytes: &[u8]) {
        let (read, mut write) = tokio::io::simplex(1 << 20);
        write.write_all(bytes).await.unwrap();
        self.lanes.send(read).await.unwrap();
        // Kept open: an attacker need not end what it starts.
        std::mem::forget(write);
    }

    /// The receiver must call it the peer's fault, tell the peer, and keep nothing.
    async fn must_blame_us(self) {
        self.must_blame_us_beside(&[]).await;
    }

    /// The same where `there` was in the destination before.
    async fn must_blame_us_beside(mut self, there: &[&str]) -> Scratch {
        let said = loop {
            match read_message(&mut self.control).await.unwrap() {
                Some(Message::Fatal(refusal)) => break refusal,
                Some(_) => {}
                None => panic!("the stream ended without a reason"),
            }
        };
        assert_eq!(said.reason, Reason::Protocol, "{said}");
        let ended = self.ended.await.unwrap();
        assert!(
            matches!(ended.error, Some(SessionError::Protocol(_))),
            "{:?}",
            ended.error
        );
        let mut left: Vec<_> = fs::read_dir(self.scratch.path("to"))
            .unwrap()
            .map(|entry| entry.unwrap().file_name())
            .collect();
        left.sort();
        let expected: Vec<&str> = [PART_FOLDER].iter().chain(there).copied().collect();
        assert_eq!(left, expected);
        self.scratch
    }
}

/// Descriptors of this process that are open below a folder.
fn descriptors_below(folder: &std::path::Path) -> usize {
    let open = fs::read_dir("/proc/self/fd").unwrap();
    open.filter_map(|fd| fs::read_link(fd.ok()?.path()).ok())
        .filter(|path| path.starts_with(folder))
        .count()
}

#[tokio::test(flavor = "multi_thread")]
async fn folders_with_unsettled_files_hold_no_descriptors() {
    const FOLDERS: usize = 1000;
    const BATCH: usize = 50;
    let mut victim = Victim::new();
    let mut answered = 0;
    for batch in 0..FOLDERS / BATCH {
        let entries = (batch * BATCH..(batch + 1) * BATCH).flat_map(|index| {
            let path = format!("f{index}");
            let file = entry(&format!("{path}/file"), 4);
            [folder(&path, 0o755), file, Entry::EndOfFolder]
        });
        say(&mut victim.control, Message::Entries(entries.collect())).await;
        while answered < (batch + 1) * BATCH {
            for (_, answer) in expect_answers(&mut victim.control).await {
                assert!(matches!(answer, Answer::Want { .. }), "{answer:?}");
                answered += 1;
            }
        }
    }
    let open = descriptors_below(&victim.scratch.path("to"));
    eprintln!("{FOLDERS} folders with an unsettled file each: {open} descriptors");
    // The folders kept open, and what every destination has open.
    assert!(open <= 64 + 8, "{open} descriptors are open");
}

fn record(index: u64, offset: u64, chunks: &[&[u8]]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for value in [1, index, offset] {
        put_varint(&mut bytes, value);
    }
    for chunk in chunks {
        put_varint(&mut bytes, chunk.len() as u64);
        bytes.extend_from_slice(chunk);
    }
    bytes
}

#[tokio::test(flavor = "multi_thread")]
async fn a_path_out_of_the_destination_ends_the_session() {
    for path in [
        "../evil",
        "a/../../evil",
        "/etc/evil",
        "a//b",
        "a/./b",
        "nul\0",
        "",
        ".towline-part/x",
    ] {
        let mut victim = Victim::new();
        let mut body = vec![0];
        put_varint(&mut body, path.len() as u64);
        body.extend_from_slice(path.as_bytes());
        body.extend_from_slice(&[0; 14]);
        put_varint(&mut body, 4);
        victim
            .control
            .write_all(&Message::wrap_entries(&body))
            .await
            .unwrap();
        victim.must_blame_us().await;
    }
}

fn folder(path: &str, mode: u16) -> Entry {
    Entry::Folder {
        path: RelativePath::parse(path.as_bytes()).unwrap(),
        facts: FolderFacts {
            modified: facts(0).modified,
            mode,
        },
    }
}

fn link(path: &str, target: &str) -> Entry {
    Entry::Link {
        path: RelativePath::parse(path.as_bytes()).unwrap(),
        target: LinkTarget::parse(target.as_bytes()).unwrap(),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn no_chain_of_links_leads_out_of_the_destination() {
    let mut victim = Victim::new();
    let outside = victim.scratch.write("secret", b"secret");
    // What a sender may try: absolute, up, up behind a link to a shallower place, and then to
    // write through what it made.
    let entries = [
        link("absolute", outside.to_str().unwrap()),
        link("up", "../secret"),
        folder("a", 0o755),
        folder("a/b", 0o755),
        link("a/b/top", "../.."),
        Entry::EndOfFolder,
        Entry::EndOfFolder,
        link("chain", "a/b/top/../secret"),
        link("a/chain", "b/top/.."),
        link("part", ".towline-part"),
        entry("a/b/top/through", 4),
        folder("a/b/top", 0o777),
        Entry::EndOfFolder,
        link("a/b/top/again", "x"),
    ];
    list(&mut victim.control, entries.to_vec()).await;
    let mut refused = Vec::new();
    loop {
        match read_message(&mut victim.control).await.unwrap() {
            Some(Message::Answers(answers)) => {
                for (index, answer) in answers {
                    match answer {
                        Answer::Refuse(refusal) => refused.push((index, refusal.reason)),
                        Answer::Made => assert_eq!(index, 4),
                        other => panic!("{index}: {other:?}"),
                    }
                }
            }
            Some(Message::Done { .. }) => break,
            other => panic!("{other:?}"),
        }
    }
    let (outside, path) = (Reason::Outside, Reason::BadPath);
    assert_eq!(
        refused,
        [
            (0, outside),
            (1, outside),
            (7, outside),
            (8, outside),
            (9, outside),
            (10, path),
            (11, path),
            (13, path),
        ]
    );
    drop(victim.control);
    let report = victim.ended.await.unwrap().report;
    assert_eq!((report.links, report.left_out, report.failed), (1, 5, 3));
    // Nothing in the destination resolves to a place outside of it.
    let root = victim.scratch.path("to").canonicalize().unwrap();
    let top = root.join("a/b/top").canonicalize().unwrap();
    assert_eq!(top, root);
}

#[tokio::test(flavor = "multi_thread")]
async fn brackets_of_folders_that_do_not_match_end_the_session() {
    for entries in [
        vec![Entry::EndOfFolder],
        vec![folder("a", 0o755), Entry::EndOfFolder, Entry::EndOfFolder],
        (0..=MAX_PATH_DEPTH).map(|_| folder("a", 0o755)).collect(),
    ] {
        let mut victim = Victim::new();
        let _ = fs::create_dir(victim.scratch.path("to/a"));
        say(&mut victim.control, Message::Entries(entries)).await;
        fs::remove_dir(victim.must_blame_us_beside(&["a"]).await.path("to/a")).unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sender_changes_no_mode_of_what_was_there() {
    use std::os::unix::fs::PermissionsExt;
    let mut victim = Victim::new();
    victim.scratch.write("to/folder/mine", b"");
    let mode = |below: &str| {
        let metadata = fs::metadata(victim.scratch.path(below)).unwrap();
        metadata.permissions().mode() & 0o7777
    };
    let before = (mode("to/folder"), mode("to/folder/mine"));
    let mut facts = facts(0);
    facts.mode = 0;
    let entries = vec![
        folder("folder", 0),
        // An empty file is the same as every other.
        Entry::File {
            path: RelativePath::parse(b"folder/mine").unwrap(),
            facts,
        },
        Entry::EndOfFolder,
    ];
    list(&mut victim.control, entries).await;
    assert_eq!(
        expect_answers(&mut victim.control).await,
        [(1, Answer::Skip { is_wider: true })]
    );
    assert!(matches!(
        read_message(&mut victim.control).await.unwrap(),
        Some(Message::Done { .. })
    ));
    assert_eq!((mode("to/folder"), mode("to/folder/mine")), before);
}

/// What a folder of mode 0555 has when the session is over.
async fn mode_of_narrow(mut victim: Victim) -> u32 {
    use std::os::unix::fs::PermissionsExt;
    loop {
        match read_message(&mut victim.control).await.unwrap() {
            Some(Message::Done { .. }) => break,
            Some(Message::Results(_)) => {}
            other => panic!("{other:?}"),
        }
    }
    let metadata = fs::metadata(victim.scratch.path("to/narrow")).unwrap();
    metadata.permissions().mode() & 0o7777
}

#[tokio::test(flavor = "multi_thread")]
async fn what_may_still_come_keeps_its_folder_open_and_what_is_left_out_does_not() {
    for (reason, expected) in [
        (Reason::Unreadable, 0o755),
        (Reason::TooMuch, 0o755),
        (Reason::Special, 0o555),
    ] {
        let mut victim = Victim::new();
        let left_out = Entry::LeftOut {
            path: "narrow/it".into(),
            refusal: Refusal::new(reason, "why"),
        };
        let entries = vec![folder("narrow", 0o555), left_out, Entry::EndOfFolder];
        list(&mut victim.control, entries).await;
        assert_eq!(mode_of_narrow(victim).await, expected, "{reason}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_changed_while_it_was_sent_keeps_its_folder_open() {
    let mut victim = Victim::new();
    let entries = vec![
        folder("narrow", 0o555),
        entry("narrow/file", 4),
        Entry::EndOfFolder,
    ];
    list(&mut victim.control, entries).await;
    expect_answers(&mut victim.control).await;
    let mut bytes = record(1, 0, &[b"data"]);
    bytes.push(0);
    put_refusal(&mut bytes, &Refusal::new(Reason::Changed, "changed"));
    victim.lane(&bytes).await;
    assert_eq!(mode_of_narrow(victim).await, 0o755);
}

/// What a sender says on a lane, to a receiver that wants a file of `size`, ends the session.
async fn must_end_the_session(size: u64, lane: &[u8]) {
    let victim = Victim::that_wants(size).await;
    victim.lane(lane).await;
    victim.must_blame_us().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn data_for_a_file_that_was_not_asked_for_ends_the_session() {
    must_end_the_session(4, &record(1, 0, &[b"data"])).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn more_data_than_announced_ends_the_session() {
    must_end_the_session(4, &record(0, 0, &[b"dat", b"aa"])).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_offset_that_was_not_offered_ends_the_session() {
    must_end_the_session(4_000_000, &record(0, 1000, &[b"data"])).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_giant_chunk_ends_the_session() {
    let mut bytes = record(0, 0, &[]);
    put_varint(&mut bytes, MAX_CHUNK_BYTES + 1);
    must_end_the_session(50 << 20, &bytes).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn too_many_lanes_end_the_session() {
    let victim = Victim::new();
    for _ in 0..=MAX_LANES {
        victim.lane(&[]).await;
    }
    victim.must_blame_us().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_over_the_limit_is_refused_before_it_is_read() {
    let mut victim = Victim::new();
    let mut header = Vec::new();
    put_varint(&mut header, 0x10);
    put_varint(&mut header, 1 << 40);
    victim.control.write_all(&header).await.unwrap();
    victim.must_blame_us().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn garbage_on_the_control_stream_ends_the_session() {
    for garbage in [
        &b"\x10\x01\xff"[..],
        b"\x3f\x00",
        b"\x22\x01\x00",
        b"\x11\x02\x05\x00",
        b"\x22\x02\x00\x00",
    ] {
        let mut victim = Victim::new();
        victim.control.write_all(garbage).await.unwrap();
        victim.must_blame_us().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_hash_puts_nothing_in_place() {
    let mut victim = Victim::that_wants(4).await;
    let mut bytes = record(0, 0, &[b"data"]);
    bytes.extend_from_slice(&[0; 34]);
    victim.lane(&bytes).await;
    let Some(Message::Results(results)) = read_message(&mut victim.control).await.unwrap() else {
        panic!("expected results");
    };
    assert_eq!(results[0].1.as_ref().unwrap_err().reason, Reason::Mismatch);
    assert!(matches!(
        read_message(&mut victim.control).await.unwrap(),
        Some(Message::Done { .. })
    ));
    drop(victim.control);
    assert_eq!(victim.ended.await.unwrap().report.failed, 1);
    assert!(!victim.scratch.path("to/file").exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_same_path_twice_is_written_once() {
    let mut victim = Victim::new();
    let entries = Message::Entries(vec![entry("file", 4), entry("file", 4)]);
    say(&mut victim.control, entries).await;
    let mut answers = Vec::new();
    while answers.len() < 2 {
        answers.extend(expect_answers(&mut victim.control).await);
    }
    assert!(matches!(answers[0].1, Answer::Want { .. }));
    assert!(matches!(&answers[1].1, Answer::Refuse(refusal) if refusal.reason == Reason::Busy));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sender_that_vanishes_leaves_a_part_file_and_no_file() {
    let victim = Victim::that_wants(4_000_000).await;
    victim.lane(&record(0, 0, &[&[7; 500_000]])).await;
    tokio::time::sleep(std::time::Duration::from_millis(200)).await;
    drop(victim.control);
    let ended = victim.ended.await.unwrap();
    assert!(
        matches!(ended.error, Some(SessionError::Lost(_))),
        "{:?}",
        ended.error
    );
    tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    assert!(!victim.scratch.path("to/file").exists());
    let parts: Vec<_> = fs::read_dir(victim.scratch.path("to").join(PART_FOLDER))
        .unwrap()
        .collect();
    assert_eq!(parts.len(), 2, "the part and its record: {parts:?}");
}

/// A sender under attack by its receiver.
struct Donor {
    control: DuplexStream,
    arrivals: mpsc::Receiver<ReadHalf<SimplexStream>>,
    ended: tokio::task::JoinHandle<SendEnded<tokio::io::WriteHalf<DuplexStream>>>,
    scratch: Scratch,
    _cancel: watch::Sender<bool>,
}

impl Donor {
    fn new() -> Self {
        let scratch = Scratch::new();
        scratch.write("from/file", b"data");
        let roots = contents_of(&scratch.path("from"));
        Self::of(scratch, roots)
    }

    fn of(scratch: Scratch, roots: Vec<Root>) -> Self {
        let (here, control) = control();
        let (lanes, arrivals) = memory_lanes(None);
        let plan = SendPlan {
            roots,
            follow_links: false,
            lanes: 1,
        };
        let cancel = watch::Sender::new(false);
        let cancelled = cancel.subscribe();
        let ended = tokio::spawn(async move {
            let progress = Arc::new(Progress::new());
            send(tokio::io::split(here), lanes, 1, plan, progress, cancelled).await
        });
        Self {
            control,
            arrivals,
            ended,
            scratch,
            _cancel: cancel,
        }
    }

    async fn manifest(&mut self) {
        loop {
            match read_message(&mut self.control).await.unwrap() {
                Some(Message::EndOfList { .. }) => return,
                Some(Message::Entries(_)) => {}
                other => panic!("expected the manifest, got {other:?}"),
            }
        }
    }
}

fn want(have: u64) -> Answer {
    let hash = (have > 0).then_some([0; 32]);
    Answer::Want {
        have,
        hash,
        only_if_identical: false,
        is_wider: false,
    }
}

/// What a receiver may say of links only: a sender may call it no failure.
fn outside() -> Answer {
    Answer::Refuse(Refusal::new(Reason::Outside, "outside"))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_receiver_that_breaks_the_rules_is_blamed() {
    let cases: Vec<Vec<Message>> = vec![
        vec![Message::Answers(vec![(5, want(0))])],
        vec![Message::Answers(vec![(0, want(5))])],
        vec![Message::Answers(vec![(0, want(0)), (0, want(0))])],
        vec![Message::Answers(vec![(
            0,
            Answer::Want {
                have: 2,
                hash: Some([0; 32]),
                only_if_identical: true,
                is_wider: false,
            },
        )])],
        vec![Message::Results(vec![(0, Ok(()))])],
        vec![Message::Done { cpu_micros: 0 }],
        vec![Message::Accept],
        vec![Message::Answers(vec![(0, Answer::Made)])],
        vec![Message::Answers(vec![(0, outside())])],
        vec![Message::Answers(vec![(77, outside())])],
        vec![Message::EndOfList {
            entries: 1,
            bytes: 4,
        }],
    ];
    for case in cases {
        let mut donor = Donor::new();
        donor.manifest().await;
        let name = format!("{case:?}");
        for message in case {
            say(&mut donor.control, message).await;
        }
        let ended = donor.ended.await.unwrap();
        assert!(
            matches!(ended.ended.error, Some(SessionError::Protocol(_))),
            "{name}: {:?}",
            ended.ended.error
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_changed_between_listing_and_sending_is_aborted_in_its_record() {
    let mut donor = Donor::new();
    donor.manifest().await;
    donor.scratch.write("from/file", b"other data");
    say(&mut donor.control, Message::Answers(vec![(0, want(0))])).await;
    let mut lane = donor.arrivals.recv().await.unwrap();
    let mut numbers = Vec::new();
    for _ in 0..5 {
        numbers.push(read_varint(&mut lane).await.unwrap().unwrap());
    }
    assert_eq!(numbers, [1, 0, 0, 0, Reason::Changed.code()]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_receivers_refusal_reaches_the_report_with_its_words() {
    let mut donor = Donor::new();
    donor.manifest().await;
    let refusal = Refusal::new(Reason::DiskFull, "needs 4 bytes, 0 are free");
    say(&mut donor.control, Message::Fatal(refusal.clone())).await;
    let ended = donor.ended.await.unwrap();
    assert!(matches!(ended.ended.error, Some(SessionError::Refused(said)) if said == refusal));
}

/// Nothing moves any more when nothing moved for so long.
const STILL: Duration = Duration::from_millis(500);

#[tokio::test(flavor = "multi_thread")]
async fn a_receiver_reads_no_manifest_far_ahead_of_the_data() {
    const BATCH: usize = 50;
    let victim = Victim::new();
    let (mut answers, mut manifest) = tokio::io::split(victim.control);
    let reading =
        tokio::spawn(async move { while let Ok(Some(_)) = read_message(&mut answers).await {} });
    let mut taken = 0;
    loop {
        let entries = (taken..taken + BATCH)
            .map(|index| entry(&format!("f{index}"), 1))
            .collect();
        let message = Message::Entries(entries).encode();
        match tokio::time::timeout(STILL, manifest.write_all(&message)).await {
            Ok(written) => written.unwrap(),
            Err(_) => break,
        }
        taken += BATCH;
        assert!(taken < 2 * MAX_UNSETTLED_RECEIVER, "it never stops reading");
    }
    assert!(
        taken >= MAX_UNSETTLED_RECEIVER,
        "it stops at {taken} entries"
    );
    reading.abort();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sender_announces_no_more_than_it_may_keep() {
    let scratch = Scratch::new();
    let disk = scratch.write("file", b"data");
    let roots = (0..MAX_UNSETTLED_SENDER + 5000).map(|index| Root {
        disk: disk.clone(),
        name: Some(RelativePath::parse(index.to_string().as_bytes()).unwrap()),
    });
    let mut donor = Donor::of(scratch, roots.collect());
    let mut announced = 0;
    while let Ok(message) = tokio::time::timeout(STILL, read_message(&mut donor.control)).await {
        match message.unwrap() {
            Some(Message::Entries(entries)) => announced += entries.len(),
            other => panic!("expected entries, got {other:?}"),
        }
    }
    assert_eq!(announced, MAX_UNSETTLED_SENDER);
}
