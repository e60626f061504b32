use std::sync::Mutex;

use towline_quic::observe::Packet;
use towline_wire::{ConnectionId, Frame, Reader, emit_varint};

use super::frames::MAX_RECORD_BYTES;
use super::*;

/// A disk with so much room.
#[derive(Clone)]
struct Disk {
    written: Arc<Mutex<Vec<u8>>>,
    /// Calls that wrote.
    writes: Arc<AtomicUsize>,
    room: usize,
}

impl Disk {
    fn new(room: usize) -> Self {
        Self {
            written: Arc::default(),
            writes: Arc::default(),
            room,
        }
    }

    fn len(&self) -> usize {
        self.written.lock().unwrap().len()
    }

    fn text(&self) -> String {
        String::from_utf8(self.written.lock().unwrap().clone()).unwrap()
    }
}

impl Write for Disk {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.writes.fetch_add(1, Ordering::Relaxed);
        let mut written = self.written.lock().unwrap();
        if written.len() + bytes.len() > self.room {
            return Err(io::ErrorKind::StorageFull.into());
        }
        written.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A folder of its own, removed at the end.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let name = format!("towline-qlog-{}-{name}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let _ = std::fs::remove_dir_all(&path);
        Self(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn connection_of(side: Side, number: u64) -> NewConnection {
    let cid = ConnectionId::new(&number.to_be_bytes()).unwrap();
    NewConnection::new(side, cid, cid, "192.0.2.1:443".parse().unwrap(), None)
}

fn connection(number: u64) -> NewConnection {
    connection_of(Side::Client, number)
}

fn log(disk: &Disk, shared: &Arc<Shared>) -> Log {
    let place = Place::take(shared).unwrap();
    let mut log = Log::begin(Time::ZERO, &connection(1), "x".into(), place);
    log.out = Out::Open(Box::new(disk.clone()));
    log
}

const EVENT: Event<'_> = Event::ConnectionStateUpdated {
    old: None,
    new: ConnectionState::Closing,
};

#[test]
fn a_full_disk_ends_all_logs_and_holds_no_memory() {
    let shared = Arc::new(Shared::new());
    let disk = Disk::new(3 * WRITE_BYTES);
    let (mut one, mut other) = (log(&disk, &shared), log(&disk, &shared));
    for _ in 0..10_000 {
        one.on_event(Time::ZERO, &EVENT);
        assert!(one.buffer.len() < 2 * WRITE_BYTES);
    }
    assert!(shared.is_failed() && matches!(one.out, Out::Over));
    assert_eq!(one.buffer.capacity(), 0);
    let before = disk.len();
    for _ in 0..10_000 {
        other.on_event(Time::ZERO, &EVENT);
    }
    assert_eq!(disk.len(), before);
    drop((one, other));
    assert_eq!(shared.open.load(Ordering::Relaxed), 0);
}

#[test]
fn a_folder_takes_so_many_bytes_and_no_more() {
    let shared = Arc::new(Shared::new());
    assert_eq!(shared.room.load(Ordering::Relaxed), MAX_QLOG_BYTES);
    let most = 5 * WRITE_BYTES;
    shared.room.store(most as u64, Ordering::Relaxed);
    let disk = Disk::new(usize::MAX);
    let (mut one, mut other) = (log(&disk, &shared), log(&disk, &shared));
    for _ in 0..10_000 {
        one.on_event(Time::ZERO, &EVENT);
        other.on_event(Time::ZERO, &EVENT);
    }
    assert!(shared.is_failed(), "as with a full disk");
    let len = disk.len();
    assert!((3 * WRITE_BYTES..=most).contains(&len), "{len}");
    assert!(disk.text().ends_with("}\n"), "no record is cut");
    let dir = QlogDir {
        path: PathBuf::new(),
        shared,
    };
    assert!(dir.observe(Time::ZERO, &connection(2)).is_none());
    assert_eq!(dir.max_bytes(7).shared.room.load(Ordering::Relaxed), 7);
}

/// A packet of one PING.
fn received(kind: PacketKind) -> Event<'static> {
    let dcid = ConnectionId::new(&[1; 8]).unwrap();
    Event::PacketReceived(Packet::new(kind, 0, dcid, &[1]))
}

/// Files of a folder.
fn files(folder: &Folder) -> usize {
    std::fs::read_dir(&folder.0).unwrap().count()
}

#[test]
fn a_client_that_does_not_prove_its_address_leaves_no_file() {
    let folder = Folder::new("unproven");
    let dir = QlogDir::create(&folder.0).unwrap();
    let begin = |number| {
        dir.observe(Time::ZERO, &connection_of(Side::Server, number))
            .unwrap()
    };
    let closed = Event::ConnectionClosed {
        reason: &towline_quic::ConnectionError::ClosedLocally,
    };
    let mut unproven = begin(1);
    unproven.on_event(Time::ZERO, &received(PacketKind::Initial));
    unproven.on_event(Time::ZERO, &closed);
    drop(unproven);
    assert_eq!(files(&folder), 0);

    let mut proven = begin(2);
    proven.on_event(Time::ZERO, &received(PacketKind::Initial));
    proven.on_event(Time::ZERO, &received(PacketKind::Handshake));
    proven.on_event(Time::ZERO, &closed);
    drop(proven);
    let log = folder.0.join("0000000000000002_server.sqlog");
    let text = std::fs::read_to_string(log).unwrap();
    let received = text.matches("packet_received").count();
    assert_eq!(received, 2, "what came before the proof is there too");
}

#[test]
fn a_flood_of_first_packets_is_held_within_bounds_and_then_not_logged() {
    let shared = Arc::new(Shared::new());
    let place = Place::take(&shared).unwrap();
    let flooded = connection_of(Side::Server, 1);
    let mut log = Log::begin(Time::ZERO, &flooded, "x".into(), place);
    for _ in 0..10_000 {
        log.on_event(Time::ZERO, &received(PacketKind::Initial));
        assert!(log.buffer.len() < MAX_UNPROVEN_BYTES);
    }
    log.on_event(Time::ZERO, &received(PacketKind::Handshake));
    assert!(matches!(log.out, Out::Over));
    assert_eq!(log.buffer.capacity(), 0);
    assert!(!shared.is_failed(), "others are logged");
}

#[test]
fn a_file_that_cannot_be_made_costs_its_connection_the_log_and_no_other() {
    let folder = Folder::new("unmade");
    let dir = QlogDir::create(&folder.0).unwrap();
    let log = |number| drop(dir.observe(Time::ZERO, &connection(number)).unwrap());
    std::fs::remove_dir(&folder.0).unwrap();
    log(1);
    std::fs::create_dir(&folder.0).unwrap();
    log(2);
    assert_eq!(files(&folder), 1);
    assert!(folder.0.join("0000000000000002_client.sqlog").is_file());
}

#[test]
fn no_more_connections_are_logged_at_a_time_than_the_cap_says() {
    let folder = Folder::new("cap");
    let dir = QlogDir::create(&folder.0).unwrap();
    let begin = |number| dir.observe(Time::ZERO, &connection(number));
    let mut logs: Vec<_> = (0..MAX_QLOGS as u64).map(begin).collect();
    assert!(logs.iter().all(Option::is_some));
    assert!(begin(9999).is_none());
    logs.pop();
    assert!(begin(9999).is_some(), "a place is free again");
    assert!(!dir.shared.is_failed());
}

#[test]
fn a_file_that_is_there_is_left_alone_whoever_chose_the_name() {
    let folder = Folder::new("name");
    let dir = QlogDir::create(&folder.0).unwrap();
    let path = folder.0.join("0000000000000007_client.sqlog");
    std::fs::write(&path, "precious").unwrap();
    drop(dir.observe(Time::ZERO, &connection(7)));
    assert_eq!(std::fs::read(&path).unwrap(), b"precious");
    drop(dir.observe(Time::ZERO, &connection(8)));
    assert!(folder.0.join("0000000000000008_client.sqlog").is_file());
}

#[test]
fn what_is_closed_is_written_at_once_and_what_follows_is_not() {
    let shared = Arc::new(Shared::new());
    let disk = Disk::new(usize::MAX);
    let mut log = log(&disk, &shared);
    log.on_event(Time::ZERO, &EVENT);
    assert_eq!(disk.len(), 0);
    let reason = &towline_quic::ConnectionError::ClosedLocally;
    log.on_event(
        Time::from_nanos(1_500_000),
        &Event::ConnectionClosed { reason },
    );
    let text = disk.text();
    let records: Vec<&str> = text.split('\u{1e}').collect();
    assert_eq!(records.len(), 4, "nothing, the header and two events");
    assert!(records[1].contains("\"vantage_point\":{\"type\":\"client\"}"));
    assert!(records[3].starts_with("{\"time\":1.500000,\"name\":\"quic:connection_closed\""));
    assert!(records.iter().skip(1).all(|record| record.ends_with("}\n")));
    let writes = || disk.writes.load(Ordering::Relaxed);
    assert_eq!(writes(), 1);
    for _ in 0..50 {
        log.on_event(Time::ZERO, &EVENT);
    }
    assert_eq!(writes(), 1, "a peer that goes on sending causes no writes");
    let new = ConnectionState::Closed;
    log.on_event(
        Time::ZERO,
        &Event::ConnectionStateUpdated { old: None, new },
    );
    assert_eq!(writes(), 2);
}

/// What frames come to as a record.
fn recorded<'a>(frames: impl Iterator<Item = Frame<'a>>) -> String {
    let mut out = Vec::new();
    json::object(&mut out, |o| {
        o.array("frames", |a| frames::write(a, frames, 3, MAX_RECORD_BYTES));
    });
    String::from_utf8(out).unwrap()
}

#[test]
fn a_packet_of_many_frames_makes_a_record_of_bounded_size() {
    let pings = recorded(std::iter::repeat_n(Frame::Ping, 65_507));
    // Largest 40000, then 15000 ranges of one packet with one packet between them.
    let mut ack = vec![0x02];
    for value in [40_000, 0, 15_000, 0] {
        emit_varint(&mut ack, value);
    }
    ack.extend([0; 30_000]);
    let ranges = recorded(std::iter::once(
        Frame::parse(&mut Reader::new(&ack)).unwrap(),
    ));
    for record in [pings, ranges] {
        let len = record.len();
        assert!(
            (MAX_RECORD_BYTES..MAX_RECORD_BYTES + 256).contains(&len),
            "{len}"
        );
        assert!(record.ends_with("]}"), "whole even so");
    }
}

#[test]
fn frames_hold_no_payload_and_no_token() {
    use towline_wire::{NewConnectionIdFrame, StatelessResetToken, StreamFrame, StreamId};
    let cid = ConnectionId::new(&[9; 8]).unwrap();
    let record = recorded(
        [
            Frame::Stream(StreamFrame {
                id: StreamId::from_u64(4),
                offset: 10,
                fin: true,
                data: b"secret",
            }),
            Frame::NewToken { token: b"secret" },
            Frame::NewConnectionId(NewConnectionIdFrame {
                sequence: 1,
                retire_prior_to: 0,
                cid,
                reset_token: StatelessResetToken::new([0xee; 16]),
            }),
        ]
        .into_iter(),
    );
    assert_eq!(
        record,
        concat!(
            r#"{"frames":[{"frame_type":"stream","stream_id":4,"offset":10,"fin":true,"#,
            r#""raw":{"length":6,"payload_length":6}},{"frame_type":"new_token","token":{"raw":{"length":6}}},"#,
            r#"{"frame_type":"new_connection_id","sequence_number":1,"retire_prior_to":0,"#,
            r#""connection_id_length":8,"connection_id":"0909090909090909"}]}"#,
        )
    );
}
