//! Events as an observer in the program sees them.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use towline::engine::observe::{ConnectionState, Event, NewConnection, Observer, ObserverFactory};
use towline::{Side, Time};
use towline_wire::{Frame, PacketKind, PacketNumberSpace};

use super::{BYTES, count, transfer};

/// What is remembered of one connection.
#[derive(Debug, Default)]
struct Seen {
    side: Option<Side>,
    names: Vec<&'static str>,
    last: Option<Time>,
    states: Vec<ConnectionState>,
    sent: BTreeSet<(PacketNumberSpace, u64)>,
    stream_bytes: usize,
    received: u64,
    received_stream_bytes: usize,
    lost: u64,
    spurious: u64,
    metrics: u64,
    closed: Vec<String>,
    dropped: bool,
}

#[derive(Clone, Default)]
struct Recorder(Arc<Mutex<Vec<Arc<Mutex<Seen>>>>>);

struct Scribe(Arc<Mutex<Seen>>);

impl ObserverFactory for Recorder {
    fn observe(&self, now: Time, connection: &NewConnection) -> Option<Box<dyn Observer>> {
        let seen = Arc::new(Mutex::new(Seen {
            side: Some(connection.side),
            last: Some(now),
            ..Seen::default()
        }));
        self.0.lock().unwrap().push(Arc::clone(&seen));
        Some(Box::new(Scribe(seen)))
    }
}

fn stream_bytes<'a>(frames: impl Iterator<Item = Frame<'a>>) -> usize {
    let bytes = frames.map(|frame| match frame {
        Frame::Stream(stream) => stream.data.len(),
        _ => 0,
    });
    bytes.sum()
}

impl Observer for Scribe {
    fn on_event(&mut self, now: Time, event: &Event<'_>) {
        let mut seen = self.0.lock().unwrap();
        assert!(seen.last <= Some(now), "time runs forward");
        seen.last = Some(now);
        let name = match event {
            Event::ConnectionStarted(_) => "started",
            Event::ConnectionStateUpdated { new, .. } => {
                seen.states.push(*new);
                "state"
            }
            Event::ConnectionClosed { reason } => {
                seen.closed.push(reason.to_string());
                "closed"
            }
            Event::AlpnInformation { chosen } => {
                assert_eq!(*chosen, b"test");
                "alpn"
            }
            Event::ParametersSet { by_peer: true, .. } => "peer parameters",
            Event::ParametersSet { .. } => "own parameters",
            Event::PacketSent(packet) => {
                let number = (packet.kind.space(), packet.packet_number);
                assert!(seen.sent.insert(number), "{number:?} again");
                assert!(packet.frames().next().is_some(), "in clear");
                seen.stream_bytes += stream_bytes(packet.frames());
                "sent"
            }
            Event::PacketReceived(packet) => {
                seen.received += 1;
                seen.received_stream_bytes += stream_bytes(packet.frames());
                "received"
            }
            Event::PacketLost(loss) => {
                seen.lost += 1;
                assert!(seen.sent.contains(&(loss.space, loss.packet_number)));
                "lost"
            }
            Event::SpuriousLoss { packets, .. } => {
                seen.spurious += u64::from(*packets);
                "spurious"
            }
            Event::RecoveryMetricsUpdated { .. } => {
                seen.metrics += 1;
                return;
            }
            Event::KeyUpdated { .. } => "keys",
            Event::KeyDiscarded { .. } => "keys gone",
            Event::CongestionStateUpdated { .. } => "congestion",
            Event::EcnStateUpdated { .. } => "ecn",
            Event::PacketDropped { kind, .. } => {
                assert_ne!(*kind, PacketKind::ZeroRtt);
                "dropped"
            }
            _ => "other",
        };
        if !seen.names.contains(&name) {
            seen.names.push(name);
        }
    }
}

impl Drop for Scribe {
    fn drop(&mut self) {
        self.0.lock().unwrap().dropped = true;
    }
}

#[test]
fn a_transfer_with_loss_is_told_from_start_to_end() {
    let recorder = Recorder::default();
    let outcome = transfer(1, Some(Arc::new(recorder.clone())));
    let both = recorder.0.lock().unwrap();
    assert_eq!(both.len(), 2);
    for seen in both.iter() {
        let seen = seen.lock().unwrap();
        let stats = match seen.side.unwrap() {
            Side::Client => &outcome.client,
            Side::Server => &outcome.server,
        };
        assert_eq!(seen.sent.len() as u64, count(stats, "packets_sent"));
        assert_eq!(seen.received, count(stats, "packets_received"));
        assert_eq!(seen.lost, count(stats, "packets_lost"));
        assert_eq!(seen.spurious, count(stats, "packets_spuriously_lost"));
        assert_eq!(seen.names[0], "started");
        for name in [
            "own parameters",
            "peer parameters",
            "alpn",
            "keys",
            "keys gone",
            "congestion",
            "ecn",
        ] {
            assert!(seen.names.contains(&name), "{:?}: {name}", seen.side);
        }
        assert_eq!(
            seen.states.first(),
            Some(&ConnectionState::HandshakeStarted)
        );
        assert!(seen.states.contains(&ConnectionState::HandshakeConfirmed));
        assert_eq!(seen.states.last(), Some(&ConnectionState::Closed));
        assert_eq!(seen.closed.len(), 1, "{:?}", seen.closed);
        assert!(seen.metrics > 100, "{}", seen.metrics);
        assert!(seen.dropped, "observers go with their connections");
    }
    let [server, client] = [Side::Server, Side::Client].map(|side| {
        let found = both
            .iter()
            .find(|seen| seen.lock().unwrap().side == Some(side));
        found.unwrap().lock().unwrap()
    });
    assert!(
        client.lost > 5,
        "{} of the client's packets lost",
        client.lost
    );
    let again = count(&outcome.client, "bytes_retransmitted") as usize;
    assert_eq!(client.stream_bytes, BYTES + again);
    assert!(server.received_stream_bytes >= BYTES);
    assert_eq!(client.closed, ["closed by this side"]);
    assert!(server.closed[0].starts_with("closed by the peer"));
}

#[test]
fn an_observer_changes_nothing() {
    let observed = transfer(2, Some(Arc::new(Recorder::default())));
    let alone = transfer(2, None);
    assert!(observed.trace.len() > 800);
    assert_eq!(observed.trace, alone.trace);
    let packets = |totals| count(totals, "packets_lost");
    assert_eq!(packets(&observed.client), packets(&alone.client));
}

#[test]
fn a_factory_may_leave_connections_out() {
    struct Nobody;
    impl ObserverFactory for Nobody {
        fn observe(&self, _: Time, _: &NewConnection) -> Option<Box<dyn Observer>> {
            None
        }
    }
    let outcome = transfer(3, Some(Arc::new(Nobody)));
    // No packet carries more over IPv4 by default (an Ethernet path).
    assert!(count(&outcome.client, "packets_sent") > BYTES as u64 / 1472);
}
