//! The files that `QlogDir` leaves, as the `qlog` crate reads them.

use std::collections::BTreeMap;
use std::fs;
use std::io::BufReader;
use std::path::PathBuf;
use std::sync::Arc;

use qlog::VantagePointType;
use qlog::events::EventData;
use qlog::events::quic::{PacketType, QuicFrame};
use qlog::reader::{Event, QlogSeqReader};
use towline::qlog::QlogDir;
use towline::stats::Totals;

use super::{BYTES, Outcome, count, transfer};

/// A folder of its own, removed at the end.
pub(super) struct Folder(pub(super) PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

impl Folder {
    pub(super) fn new(name: &str) -> Self {
        let name = format!("towline-observe-{}-{name}", std::process::id());
        Self(std::env::temp_dir().join(name))
    }
}

/// The transfer, and its two files by role.
fn logged(name: &str) -> (Folder, Outcome, BTreeMap<String, PathBuf>) {
    let folder = Folder::new(name);
    let outcome = transfer(5, Some(Arc::new(QlogDir::create(&folder.0).unwrap())));
    let files = files_of(&folder);
    (folder, outcome, files)
}

/// The two files of one connection, by role.
pub(super) fn files_of(folder: &Folder) -> BTreeMap<String, PathBuf> {
    let mut files = BTreeMap::new();
    for entry in fs::read_dir(&folder.0).unwrap() {
        let path = entry.unwrap().path();
        let stem = path.file_stem().unwrap().to_str().unwrap().to_owned();
        assert_eq!(path.extension().unwrap(), "sqlog");
        let (_id, role) = stem.split_once('_').unwrap();
        files.insert(role.to_owned(), path);
    }
    assert_eq!(files.keys().collect::<Vec<_>>(), ["client", "server"]);
    files
}

/// Every record of a file, as the crate understands it; those of our own are counted.
pub(super) fn read(path: &PathBuf) -> (QlogSeqReader<'static>, Vec<qlog::events::Event>, usize) {
    let records = fs::read(path).unwrap();
    let records = records.iter().filter(|byte| **byte == 0x1e).count();
    let file = BufReader::new(fs::File::open(path).unwrap());
    let mut reader = QlogSeqReader::new(Box::new(file)).unwrap();
    let (mut events, mut own) = (Vec::new(), 0);
    for event in &mut reader {
        match event {
            Event::Qlog(event) => events.push(event),
            Event::Json(event) => {
                // The crate does not know the draft's events of capsules.
                let known = ["towline:", "http:capsule_"];
                let is_known = known.iter().any(|own| event.name.starts_with(own));
                assert!(is_known, "not understood: {event:?}");
                own += 1;
            }
        }
    }
    assert_eq!(records, 1 + events.len() + own, "a record was passed over");
    (reader, events, own)
}

#[test]
fn the_qlog_crate_reads_every_record_of_a_transfer_with_loss() {
    let (_folder, outcome, files) = logged("read");
    for (role, path) in &files {
        let (reader, events, _own) = read(path);
        let trace = &reader.qlog.trace;
        let (vantage, stats): (_, &Totals) = match role.as_str() {
            "client" => (VantagePointType::Client, &outcome.client),
            _ => (VantagePointType::Server, &outcome.server),
        };
        assert_eq!(trace.vantage_point.as_ref().unwrap().ty, vantage);
        let stem = path.file_stem().unwrap().to_str().unwrap();
        let common = trace.common_fields.as_ref().unwrap();
        assert_eq!(
            common.group_id.as_deref(),
            stem.split('_').next(),
            "both ends give the connection one name"
        );
        let mut last = 0.0;
        let mut counts: BTreeMap<&str, u64> = BTreeMap::new();
        let (mut stream_bytes, mut sent_bytes, mut windows) = (0, 0, 0);
        for event in &events {
            assert!(event.time >= last, "time runs forward");
            last = event.time;
            let mut add = |name| *counts.entry(name).or_default() += 1;
            match &event.data {
                EventData::QuicParametersSet(_) => add("parameters"),
                EventData::QuicConnectionStarted(_) => add("started"),
                EventData::QuicConnectionClosed(_) => add("closed"),
                EventData::QuicPacketReceived(_) => add("received"),
                EventData::QuicPacketSent(packet) => {
                    add("sent");
                    let raw = packet.raw.as_ref().unwrap();
                    sent_bytes += raw.length.unwrap();
                    for frame in packet.frames.iter().flatten() {
                        if let QuicFrame::Stream { raw, .. } = frame {
                            stream_bytes += raw.as_ref().unwrap().payload_length.unwrap();
                        }
                    }
                }
                EventData::QuicPacketLost(packet) => {
                    add("lost");
                    let header = packet.header.as_ref().unwrap();
                    assert_ne!(header.packet_type, PacketType::Unknown);
                    assert!(packet.trigger.is_some());
                }
                EventData::QuicMetricsUpdated(metrics) => {
                    windows += u64::from(metrics.congestion_window.is_some());
                    assert!(metrics.ex_data.is_empty(), "{:?}", metrics.ex_data);
                }
                _ => {}
            }
        }
        let logged = |name| counts.get(name).copied().unwrap_or(0);
        assert_eq!(logged("sent"), count(stats, "packets_sent"));
        assert_eq!(logged("received"), count(stats, "packets_received"));
        assert_eq!(logged("lost"), count(stats, "packets_lost"));
        assert_eq!(sent_bytes, count(stats, "bytes_sent"));
        assert_eq!(logged("parameters"), 2);
        assert_eq!(logged("started"), 1);
        assert_eq!(logged("closed"), 1);
        assert!((1000.0..60_000.0).contains(&last), "milliseconds: {last}");
        if role == "client" {
            assert!(windows > 100, "{windows}");
            assert!(
                count(stats, "packets_lost") > 5,
                "{}",
                count(stats, "packets_lost")
            );
            assert_eq!(
                stream_bytes,
                BYTES as u64 + count(stats, "bytes_retransmitted")
            );
        }
    }
}
