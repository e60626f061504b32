//! Every event and every value that an event can have, as the `qlog` crate reads them.

use std::io::Cursor;

use ::qlog::events::EventData;
use ::qlog::events::quic::{self, ConnectionClosedTrigger, QuicFrame, TimerType};
use ::qlog::reader::{Event as Read, QlogSeqReader};
use rustls::CipherSuite;
use towline_quic::observe::{Loss, RecoveryMetrics};
use towline_wire::TransportErrorCode;

use super::*;

const CID: [u8; 8] = [0x0c; 8];
const SPACES: [PacketNumberSpace; 3] = PacketNumberSpace::ALL;

fn cid(byte: u8) -> ConnectionId {
    ConnectionId::new(&[byte; 8]).unwrap()
}

fn new_connection(side: Side, remote: &str) -> NewConnection {
    let mut new = NewConnection::new(side, cid(0x0d), cid(0x01), remote.parse().unwrap(), None);
    if side == Side::Server {
        new.remote_cid = Some(cid(0x02));
    }
    new
}

/// What becomes of events: each must be an event that the crate knows.
fn read(events: &[Event<'_>]) -> Vec<EventData> {
    let mut records = Records::new(Time::ZERO, Side::Server);
    let mut out = Vec::new();
    let header = new_connection(Side::Server, "192.0.2.1:443");
    records.write_header(&mut out, &header, Duration::new(1_700_000_000, 123_456_789));
    let mut texts = Vec::new();
    for event in events {
        let from = out.len();
        records.write(&mut out, Time::ZERO, event);
        assert!(out.len() > from, "nothing is written of {event:?}");
        texts.push(String::from_utf8(out[from..].to_vec()).unwrap());
    }
    let written = out.iter().filter(|byte| **byte == RECORD_SEPARATOR).count() - 1;
    let mut reader = QlogSeqReader::new(Box::new(Cursor::new(out))).unwrap();
    let mut read = Vec::new();
    for event in &mut reader {
        match event {
            Read::Qlog(event) => read.push(event.data),
            Read::Json(event) => panic!("the crate does not know {event:?}"),
        }
    }
    assert_eq!(read.len(), written, "a record was passed over: {texts:#?}");
    read
}

/// A payload with a frame of every type.
fn every_frame() -> Vec<u8> {
    let frames: [&[u8]; 25] = [
        &[0x00, 0x00, 0x00],
        &[0x01],
        &[0x02, 5, 1, 0, 0],
        &[0x03, 5, 1, 1, 0, 1, 0, 7, 8, 9],
        &[0x04, 4, 9, 3],
        &[0x05, 4, 9],
        &[0x06, 0, 2, 0xaa, 0xaa],
        &[0x07, 1, 0xbb],
        &[0x0f, 4, 1, 2, 0xcc, 0xcc],
        &[0x10, 9],
        &[0x11, 4, 9],
        &[0x12, 9],
        &[0x13, 9],
        &[0x14, 9],
        &[0x15, 4, 9],
        &[0x16, 9],
        &[0x17, 9],
        &[
            0x18, 1, 0, 4, 0xd, 0xd, 0xd, 0xd, 0xe, 0xe, 0xe, 0xe, 0xe, 0xe, 0xe, 0xe, 0xe, 0xe,
            0xe, 0xe, 0xe, 0xe, 0xe, 0xe,
        ],
        &[0x19, 1],
        &[0x1a, 1, 2, 3, 4, 5, 6, 7, 8],
        &[0x1b, 1, 2, 3, 4, 5, 6, 7, 8],
        &[0x1c, 0x0a, 0x06, 1, b'x'],
        &[0x1d, 7, 1, b'y'],
        &[0x1e],
        &[0x31, 1, 0xff],
    ];
    frames.concat()
}

#[test]
fn packets_of_every_kind_and_frames_of_every_type_are_read() {
    let payload = every_frame();
    let mut packets = Vec::new();
    for kind in PacketKind::ALL {
        let mut packet = Packet::new(kind, 77, cid(1), &payload);
        packets.push(packet);
        packet.scid = Some(cid(2));
        packet.key_phase = (kind == PacketKind::OneRtt).then_some(true);
        for ecn in [Ecn::Ect0, Ecn::Ect1, Ecn::Ce] {
            packet.ecn = Some(ecn);
            packets.push(packet);
        }
    }
    let sent: Vec<_> = packets.iter().copied().map(Event::PacketSent).collect();
    let received: Vec<_> = packets.into_iter().map(Event::PacketReceived).collect();
    let mut phases = 0;
    for data in read(&sent).into_iter().chain(read(&received)) {
        let (header, frames) = match data {
            EventData::QuicPacketSent(packet) => (packet.header, packet.frames),
            EventData::QuicPacketReceived(packet) => (packet.header, packet.frames),
            other => panic!("{other:?}"),
        };
        assert_eq!(header.packet_number, Some(77));
        phases += usize::from(header.key_phase_bit == Some(true));
        let frames = frames.unwrap();
        assert_eq!(frames.len(), 25, "{frames:?}");
        for frame in frames {
            match frame {
                QuicFrame::Padding { raw } => {
                    assert_eq!(raw.unwrap().payload_length, Some(3));
                }
                QuicFrame::Crypto { raw, .. } => assert_eq!(raw.unwrap().length, Some(2)),
                QuicFrame::Stream { raw, .. } => assert_eq!(raw.unwrap().length, Some(2)),
                QuicFrame::Datagram { raw } => assert_eq!(raw.unwrap().length, Some(1)),
                QuicFrame::ConnectionClose { error, .. } => assert!(error.is_some()),
                QuicFrame::Unknown { .. } => panic!("{frame:?}"),
                _ => {}
            }
        }
    }
    assert_eq!(phases, 6, "of 1-RTT packets alone");
}

#[test]
fn frames_that_the_draft_has_no_name_for_are_read_as_unknown() {
    // ACK_FREQUENCY, IMMEDIATE_ACK and RESET_STREAM_AT.
    let payload = [0x40, 0xaf, 1, 2, 3, 1, 0x1f, 0x24, 4, 9, 8, 7];
    let packet = Packet::new(PacketKind::OneRtt, 1, cid(1), &payload);
    let [EventData::QuicPacketSent(packet)] = &read(&[Event::PacketSent(packet)])[..] else {
        panic!("a packet");
    };
    let frames = packet.frames.as_ref().unwrap();
    let types: Vec<_> = frames
        .iter()
        .map(|frame| match frame {
            QuicFrame::Unknown {
                frame_type_bytes, ..
            } => *frame_type_bytes,
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(types, [Some(0xaf), Some(0x1f), Some(0x24)]);
}

#[test]
fn every_reason_to_close_is_read_and_has_its_trigger() {
    use ConnectionClosedTrigger as Trigger;
    let code = TransportErrorCode::PROTOCOL_VIOLATION;
    let what = "x";
    let transport = Close::Transport {
        code,
        frame: None,
        reason: "words".to_owned(),
    };
    let application = Close::Application {
        code: 7,
        reason: b"\xff".to_vec(),
    };
    let cases = [
        (
            ConnectionError::PeerMisbehaved {
                code,
                frame: None,
                what,
            },
            Trigger::Error,
        ),
        (
            ConnectionError::Tls {
                code: TransportErrorCode::crypto(42),
                what: what.to_owned(),
            },
            Trigger::Error,
        ),
        (ConnectionError::ClosedByPeer(transport), Trigger::Error),
        (
            ConnectionError::ClosedByPeer(application),
            Trigger::Application,
        ),
        (ConnectionError::ClosedLocally, Trigger::Application),
        (
            ConnectionError::TimedOut(TimeoutReason::Idle),
            Trigger::IdleTimeout,
        ),
        (
            ConnectionError::TimedOut(TimeoutReason::Handshake),
            Trigger::HandshakeTimeout,
        ),
        (ConnectionError::StatelessReset, Trigger::StatelessReset),
        (ConnectionError::VersionMismatch, Trigger::VersionMismatch),
        (ConnectionError::RetryTokenTooLong(1), Trigger::Error),
        (ConnectionError::Shed, Trigger::Error),
        (ConnectionError::AeadLimitReached, Trigger::Error),
        (ConnectionError::Internal(what), Trigger::Error),
    ];
    for (reason, trigger) in &cases {
        let [EventData::QuicConnectionClosed(closed)] =
            &read(&[Event::ConnectionClosed { reason }])[..]
        else {
            panic!("{reason:?}");
        };
        assert_eq!(closed.trigger, Some(*trigger), "{reason:?}");
        assert_eq!(closed.reason.as_deref(), Some(&*reason.to_string()));
        // A number stands only beside the word that allows for it.
        let words = (
            closed.connection_error.is_some(),
            closed.application_error.is_some(),
        );
        match closed.error_code {
            Some(7) => assert_eq!(words, (false, true)),
            Some(_) => assert_eq!(words, (true, false)),
            None => assert_eq!(words, (false, false)),
        }
    }
}

#[test]
fn each_end_names_its_own_connection_ids() {
    let [original, ours, theirs] = ["0d", "01", "02"].map(|byte| byte.repeat(8));
    for (side, remote, local_cids, remote_cids) in [
        (
            Side::Client,
            "192.0.2.1:443",
            vec![ours.clone()],
            vec![original.clone()],
        ),
        (
            Side::Server,
            "[2001:db8::1]:443",
            vec![original.clone(), ours.clone()],
            vec![theirs],
        ),
    ] {
        let mut new = new_connection(side, remote);
        new.local_ip = Some("192.0.2.2".parse().unwrap());
        let [EventData::QuicConnectionStarted(started)] =
            &read(&[Event::ConnectionStarted(new)])[..]
        else {
            panic!("{side:?}");
        };
        assert_eq!(started.local.connection_ids, Some(local_cids), "{side:?}");
        assert_eq!(started.remote.connection_ids, Some(remote_cids), "{side:?}");
        assert_eq!(started.local.ip_v4.as_deref(), Some("192.0.2.2"));
        let port = started.remote.port_v4.or(started.remote.port_v6);
        assert_eq!(port, Some(443));
    }
}

#[test]
fn every_state_key_and_parameter_is_read() {
    use ConnectionState as State;
    let mut events = Vec::new();
    for new in [
        State::HandshakeStarted,
        State::HandshakeCompleted,
        State::HandshakeConfirmed,
        State::Closing,
        State::Draining,
        State::Closed,
    ] {
        for old in [None, Some(new)] {
            events.push(Event::ConnectionStateUpdated { old, new });
        }
    }
    for chosen in [&b"h3"[..], b"\xff\x00\""] {
        events.push(Event::AlpnInformation { chosen });
    }
    for space in SPACES {
        for key_phase in [0, 1] {
            events.push(Event::KeyUpdated { space, key_phase });
        }
        events.push(Event::KeyDiscarded { space });
    }
    let parameters = TransportParameters {
        original_destination_connection_id: ConnectionId::new(&CID),
        ..TransportParameters::default()
    };
    for by_peer in [false, true] {
        events.push(Event::ParametersSet {
            by_peer,
            parameters: &parameters,
            cipher_suite: Some(CipherSuite::TLS13_AES_128_GCM_SHA256),
        });
    }
    let ciphers: Vec<_> = read(&events)
        .into_iter()
        .filter_map(|data| match data {
            EventData::QuicParametersSet(set) => set.tls_cipher,
            _ => None,
        })
        .collect();
    assert_eq!(ciphers, ["AES_128_GCM_SHA256"; 2]);
}

#[test]
fn every_loss_drop_and_wait_is_read() {
    let mut events = Vec::new();
    for kind in PacketKind::ALL {
        for reason in [
            DropReason::KeyUnavailable,
            DropReason::Unsupported,
            DropReason::WrongSource,
            DropReason::DecryptionFailure,
            DropReason::Duplicate,
            DropReason::Overworked,
            DropReason::OtherAddress,
        ] {
            assert_ne!(dropped(reason).1, "dropped", "{reason:?} in words");
            let len = 40;
            events.push(Event::PacketDropped { kind, len, reason });
        }
        events.push(Event::PacketBuffered { kind, len: 40 });
    }
    for space in SPACES {
        for trigger in [LossTrigger::Reordering, LossTrigger::Time] {
            events.push(Event::PacketLost(Loss {
                space,
                packet_number: 1,
                size: 1200,
                trigger,
            }));
        }
    }
    for data in read(&events) {
        match data {
            EventData::QuicPacketDropped(dropped) => {
                assert!(dropped.trigger.is_some() && dropped.details.is_some());
            }
            EventData::QuicPacketBuffered(buffered) => assert!(buffered.trigger.is_some()),
            EventData::QuicPacketLost(lost) => assert!(lost.trigger.is_some()),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn everything_of_recovery_is_read_and_nothing_unmeasured_is_written() {
    let mut guess = RecoveryMetrics::default();
    guess.smoothed_rtt = Duration::from_millis(333);
    let mut measured = guess.clone();
    measured.min_rtt = Some(Duration::from_millis(20));
    measured.latest_rtt = Duration::from_millis(21);
    measured.ssthresh = Some(1);
    measured.pacing_rate = Some(u64::MAX);
    measured.pto_count = u32::MAX;
    let events = [
        Event::RecoveryParametersSet { metrics: &guess },
        Event::RecoveryMetricsUpdated { metrics: &guess },
        Event::RecoveryMetricsUpdated { metrics: &measured },
    ];
    let [
        EventData::QuicRecoveryParametersSet(set),
        EventData::QuicMetricsUpdated(first),
        EventData::QuicMetricsUpdated(second),
    ] = &read(&events)[..]
    else {
        panic!("three events");
    };
    assert_eq!(set.timer_granularity, Some(1));
    assert_eq!(set.initial_rtt, Some(333.0));
    assert_eq!((first.smoothed_rtt, first.latest_rtt), (None, None));
    assert_eq!(second.smoothed_rtt, Some(333.0));
    assert!(second.ex_data.is_empty());

    let mut events = Vec::new();
    use CongestionPhase as Phase;
    for new in [
        Phase::SlowStart,
        Phase::CongestionAvoidance,
        Phase::Recovery,
    ] {
        for trigger in [
            None,
            Some(CongestionTrigger::PersistentCongestion),
            Some(CongestionTrigger::Ecn),
        ] {
            let old = Some(new);
            events.push(Event::CongestionStateUpdated { old, new, trigger });
        }
    }
    for old in [None, Some(1200)] {
        events.push(Event::MtuUpdated { old, new: 1400 });
    }
    use EcnState as State;
    for new in [
        State::Failed,
        State::Testing,
        State::Unknown,
        State::Capable,
    ] {
        for old in [None, Some(new)] {
            events.push(Event::EcnStateUpdated { old, new });
        }
    }
    use MigrationState as Step;
    for new in [
        Step::ProbingStarted,
        Step::ProbingAbandoned,
        Step::ProbingSuccessful,
        Step::MigrationStarted,
        Step::MigrationAbandoned,
        Step::MigrationComplete,
    ] {
        for remote in ["192.0.2.1:443", "[2001:db8::1]:443"] {
            let remote = remote.parse().unwrap();
            for local_ip in [None, Some("198.51.100.7".parse().unwrap())] {
                events.push(Event::MigrationStateUpdated {
                    new,
                    remote,
                    local_ip,
                });
            }
        }
    }
    for space in [None].into_iter().chain(SPACES.map(Some)) {
        for timer in [RecoveryTimer::LossTime, RecoveryTimer::Pto] {
            events.push(Event::TimerExpired { timer, space });
        }
    }
    let timers = read(&events).into_iter().filter_map(|data| match data {
        EventData::QuicTimerUpdated(quic::TimerUpdated { timer_type, .. }) => timer_type,
        _ => None,
    });
    let (acks, ptos): (Vec<_>, Vec<_>) = timers.partition(|timer| *timer == TimerType::Ack);
    assert_eq!((acks.len(), ptos.len()), (4, 4));
    assert!(ptos.iter().all(|timer| *timer == TimerType::Pto));
}

#[test]
fn the_header_says_the_time_to_the_microsecond() {
    assert_eq!(
        rfc3339(Duration::new(1_700_000_000, 123_456_789)),
        "2023-11-14T22:13:20.123456Z"
    );
}
