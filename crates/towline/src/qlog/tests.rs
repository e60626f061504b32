use std::sync::Mutex;

use towline_quic::observe::ConnectionState;
use towline_wire::{ConnectionId, Frame, Reader, Side, emit_varint};

use super::frames::MAX_RECORD_BYTES;
use super::*;

/// A disk with so much room.
#[derive(Clone)]
struct Disk {
    written: Arc<Mutex<Vec<u8>>>,
    room: usize,
}

impl Write for Disk {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
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

fn connection(number: u64) -> NewConnection {
    let cid = ConnectionId::new(&number.to_be_bytes()).unwrap();
    NewConnection::new(
        Side::Client,
        cid,
        cid,
        "192.0.2.1:443".parse().unwrap(),
        None,
    )
}

fn log(disk: &Disk, shared: &Arc<Shared>) -> Log<Disk> {
    let place = Place::take(shared).unwrap();
    Log::begin(Time::ZERO, &connection(1), disk.clone(), "x".into(), place)
}

const EVENT: Event<'_> = Event::ConnectionStateUpdated {
    old: None,
    new: ConnectionState::Closing,
};

#[test]
fn a_full_disk_ends_all_logs_and_holds_no_memory() {
    let shared = Arc::new(Shared::default());
    let disk = Disk {
        written: Arc::default(),
        room: 3 * WRITE_BYTES,
    };
    let (mut one, mut other) = (log(&disk, &shared), log(&disk, &shared));
    for _ in 0..10_000 {
        one.on_event(Time::ZERO, &EVENT);
        assert!(one.buffer.len() < 2 * WRITE_BYTES);
    }
    assert!(shared.is_failed() && one.out.is_none());
    assert_eq!(one.buffer.capacity(), 0);
    let before = disk.written.lock().unwrap().len();
    for _ in 0..10_000 {
        other.on_event(Time::ZERO, &EVENT);
    }
    assert_eq!(disk.written.lock().unwrap().len(), before);
    drop((one, other));
    assert_eq!(shared.open.load(Ordering::Relaxed), 0);
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
    assert!(dir.observe(Time::ZERO, &connection(7)).is_none());
    assert_eq!(std::fs::read(&path).unwrap(), b"precious");
    assert!(dir.observe(Time::ZERO, &connection(8)).is_some());
}

#[test]
fn what_is_closed_is_written_at_once() {
    let shared = Arc::new(Shared::default());
    let disk = Disk {
        written: Arc::default(),
        room: usize::MAX,
    };
    let mut log = log(&disk, &shared);
    log.on_event(Time::ZERO, &EVENT);
    assert!(disk.written.lock().unwrap().is_empty());
    let reason = &towline_quic::ConnectionError::ClosedLocally;
    log.on_event(
        Time::from_nanos(1_500_000),
        &Event::ConnectionClosed { reason },
    );
    let text = String::from_utf8(disk.written.lock().unwrap().clone()).unwrap();
    let records: Vec<&str> = text.split('\u{1e}').collect();
    assert_eq!(records.len(), 4, "nothing, the header and two events");
    assert!(records[1].contains("\"vantage_point\":{\"type\":\"client\"}"));
    assert!(records[3].starts_with("{\"time\":1.500000,\"name\":\"quic:connection_closed\""));
    assert!(records.iter().skip(1).all(|record| record.ends_with("}\n")));
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
            r#""raw":{"payload_length":6}},{"frame_type":"new_token","token":{"raw":{"length":6}}},"#,
            r#"{"frame_type":"new_connection_id","sequence_number":1,"retire_prior_to":0,"#,
            r#""connection_id_length":8,"connection_id":"0909090909090909"}]}"#,
        )
    );
}
