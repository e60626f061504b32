//! Events as records of a qlog: the header, and one JSON text for each event.
//!
//! Names and members are those of draft-ietf-quic-qlog-main-schema-13 and -quic-events-12; where the
//! `qlog` crate 0.18 reads something else, that is written (`docs/monitoring.md` lists where). One
//! file because it is one list: an arm for each event.

use std::net::IpAddr;
use std::time::Duration;

use towline_identity::Day;
use towline_quic::observe::{
    CongestionPhase, CongestionTrigger, ConnectionState, DropReason, EcnState, Event, LossTrigger,
    MigrationState, NewConnection, Packet, RecoveryMetrics, RecoveryTimer, TIMER_GRANULARITY,
    TransportParameters,
};
use towline_quic::{Close, ConnectionError, Ecn, TimeoutReason};
use towline_wire::{ConnectionId, PacketKind, PacketNumberSpace, QUIC_V1, Side, Time};

use super::frames::{self, MAX_RECORD_BYTES};
#[cfg(feature = "http3")]
use super::http3;
use super::json::{Object, object};
use crate::config::UnixTime;

/// Starts every JSON text of a sequence (RFC 7464 §2.2).
const RECORD_SEPARATOR: u8 = 0x1e;

/// The exponent of Initial and Handshake packets, and of ends that named none (RFC 9000 §18.2).
const DEFAULT_ACK_DELAY_EXPONENT: u8 = 3;

/// Turns one connection's events into records.
pub(super) struct Records {
    side: Side,
    began: Time,
    /// What the log says of recovery: only what changed is written again.
    metrics: Option<RecoveryMetrics>,
    /// By which our ACK frames and the peer's scale their delay.
    own_exponent: u8,
    peer_exponent: u8,
}

impl Records {
    pub(super) fn new(began: Time, side: Side) -> Self {
        Self {
            side,
            began,
            metrics: None,
            own_exponent: DEFAULT_ACK_DELAY_EXPONENT,
            peer_exponent: DEFAULT_ACK_DELAY_EXPONENT,
        }
    }

    /// Appends the header. `wall_clock` is the time since 1970.
    pub(super) fn write_header(
        &self,
        out: &mut Vec<u8>,
        connection: &NewConnection,
        wall_clock: Duration,
    ) {
        out.push(RECORD_SEPARATOR);
        object(out, |o| {
            o.text("file_schema", "urn:ietf:params:qlog:file:sequential");
            o.text("serialization_format", "application/qlog+json-seq");
            o.text("title", "towline");
            o.object("trace", |o| {
                o.object("common_fields", |o| {
                    let name = connection.original_destination_cid;
                    o.hex("group_id", name.as_slice());
                    o.text("time_format", "relative_to_epoch");
                    o.object("reference_time", |o| {
                        o.text("clock_type", "monotonic");
                        o.text("epoch", "unknown");
                        o.text("wall_clock_time", &rfc3339(wall_clock));
                    });
                });
                o.object("vantage_point", |o| o.text("type", role(self.side)));
                o.array("event_schemas", |a| {
                    a.text("urn:ietf:params:qlog:events:quic-12");
                    if cfg!(feature = "http3") {
                        a.text("urn:ietf:params:qlog:events:http3-12");
                        a.text("urn:ietf:params:qlog:events:http-12");
                    }
                    a.text("https://github.com/towline/towline/qlog-events-1");
                });
            });
        });
        out.push(b'\n');
    }

    /// Appends an event; nothing if it says nothing new.
    pub(super) fn write(&mut self, out: &mut Vec<u8>, now: Time, event: &Event<'_>) {
        match event {
            // Of a protocol that nobody here knows there is nothing to say.
            Event::Application(_event) => {
                #[cfg(feature = "http3")]
                if let Some(event) = _event.downcast_ref() {
                    self.write_record(out, now, http3::name(event), |o| http3::write(o, event));
                }
                return;
            }
            Event::RecoveryMetricsUpdated { metrics } => {
                let logged = self.metrics.replace((*metrics).clone());
                if logged.is_some_and(|logged| is_same(&logged, metrics)) {
                    return;
                }
            }
            Event::ParametersSet {
                by_peer,
                parameters,
                ..
            } => match by_peer {
                true => self.peer_exponent = parameters.ack_delay_exponent,
                false => self.own_exponent = parameters.ack_delay_exponent,
            },
            _ => {}
        }
        // One key for each direction, as qlog has it.
        let keys: &[Side] = match event {
            Event::KeyUpdated { .. } | Event::KeyDiscarded { .. } => &[Side::Client, Side::Server],
            _ => &[self.side],
        };
        for of in keys {
            let full = out.len() + MAX_RECORD_BYTES;
            self.write_record(out, now, name(event), |o| {
                self.write_data(o, event, *of, full);
            });
        }
    }

    fn write_record(
        &self,
        out: &mut Vec<u8>,
        now: Time,
        name: &str,
        data: impl FnOnce(&mut Object<'_>),
    ) {
        out.push(RECORD_SEPARATOR);
        object(out, |o| {
            o.millis("time", now.saturating_duration_since(self.began));
            o.text("name", name);
            o.object("data", data);
        });
        out.push(b'\n');
    }

    fn write_data(&self, o: &mut Object<'_>, event: &Event<'_>, of: Side, full: usize) {
        match event {
            Event::ConnectionStarted(new) => write_started(o, new),
            Event::ConnectionStateUpdated { old, new } => {
                if let Some(old) = old {
                    o.text("old", state(*old));
                }
                o.text("new", state(*new));
            }
            Event::ConnectionClosed { reason } => write_closed(o, reason),
            Event::AlpnInformation { chosen } => o.object("chosen_alpn", |o| {
                o.hex("byte_value", chosen);
                o.text("string_value", &String::from_utf8_lossy(chosen));
            }),
            Event::ParametersSet {
                by_peer,
                parameters,
                cipher_suite,
            } => {
                o.initiator(*by_peer);
                if let Some(name) = cipher_suite.and_then(|suite| suite.as_str()) {
                    // As in RFC 8446 §B.4 without `TLS`, which rustls follows by a version.
                    o.text("tls_cipher", name.trim_start_matches("TLS13_"));
                }
                write_parameters(o, parameters);
            }
            Event::PacketSent(packet) => write_packet(o, packet, self.own_exponent, full),
            Event::PacketReceived(packet) => write_packet(o, packet, self.peer_exponent, full),
            Event::PacketDropped { kind, len, reason } => {
                o.object("header", |o| o.text("packet_type", packet_type(*kind)));
                o.object("raw", |raw| raw.number("length", *len as u64));
                let (trigger, details) = dropped(*reason);
                o.text("details", details);
                o.text("trigger", trigger);
            }
            Event::PacketBuffered { kind, len } => {
                o.object("header", |o| o.text("packet_type", packet_type(*kind)));
                o.object("raw", |raw| raw.number("length", *len as u64));
                o.text("trigger", "keys_unavailable");
            }
            Event::PacketLost(loss) => {
                o.object("header", |o| {
                    o.text("packet_type", packet_type_of(loss.space));
                    o.number("packet_number", loss.packet_number);
                });
                o.text(
                    "trigger",
                    match loss.trigger {
                        LossTrigger::Reordering => "reordering_threshold",
                        LossTrigger::Time => "time_threshold",
                    },
                );
            }
            Event::SpuriousLoss { space, packets } => {
                o.text("packet_number_space", space_name(*space));
                o.number("packets", u64::from(*packets));
            }
            Event::KeyUpdated { space, key_phase } => {
                o.text("key_type", key_type(*space, of));
                if *space == PacketNumberSpace::Application {
                    o.number("key_phase", *key_phase);
                }
                if *key_phase == 0 && *space != PacketNumberSpace::Initial {
                    o.text("trigger", "tls");
                }
            }
            Event::KeyDiscarded { space } => o.text("key_type", key_type(*space, of)),
            Event::RecoveryParametersSet { metrics } => {
                o.number("timer_granularity", whole_millis(TIMER_GRANULARITY));
                o.millis("initial_rtt", metrics.smoothed_rtt);
                o.number("max_datagram_size", metrics.mtu.into());
                o.number("initial_congestion_window", metrics.cwnd);
            }
            Event::RecoveryMetricsUpdated { metrics } => write_metrics(o, metrics),
            Event::CongestionStateUpdated { old, new, trigger } => {
                if let Some(old) = old {
                    o.text("old", congestion(*old));
                }
                o.text("new", congestion(*new));
                match trigger {
                    Some(CongestionTrigger::PersistentCongestion) => {
                        o.text("trigger", "persistent_congestion");
                    }
                    Some(CongestionTrigger::Ecn) => o.text("trigger", "ecn"),
                    _ => {}
                }
            }
            Event::MtuUpdated { old, new } => {
                if let Some(old) = old {
                    o.number("old", u64::from(*old));
                }
                o.number("new", u64::from(*new));
            }
            Event::EcnStateUpdated { old, new } => {
                if let Some(old) = old {
                    o.text("old", ecn(*old));
                }
                o.text("new", ecn(*new));
            }
            Event::MigrationStateUpdated {
                new,
                remote,
                local_ip,
            } => {
                o.text("new", migration(*new));
                let (ip, port) = (Some(remote.ip()), Some(remote.port()));
                o.object("tuple_remote", |o| write_address(o, ip, port));
                o.object("tuple_local", |o| write_address(o, *local_ip, None));
            }
            Event::TimerExpired { timer, space } => {
                o.text(
                    "timer_type",
                    match timer {
                        // So the draft calls the time threshold of RFC 9002 §6.1.2.
                        RecoveryTimer::LossTime => "ack",
                        _ => "pto",
                    },
                );
                if let Some(space) = space {
                    o.text("packet_number_space", space_name(*space));
                }
                o.text("event_type", "expired");
            }
            _ => {}
        }
    }
}

/// The event's name; what is not of the drafts is ours.
fn name(event: &Event<'_>) -> &'static str {
    match event {
        Event::ConnectionStarted(_) => "quic:connection_started",
        Event::ConnectionStateUpdated { .. } => "quic:connection_state_updated",
        Event::ConnectionClosed { .. } => "quic:connection_closed",
        Event::AlpnInformation { .. } => "quic:alpn_information",
        Event::ParametersSet { .. } => "quic:parameters_set",
        Event::PacketSent(_) => "quic:packet_sent",
        Event::PacketReceived(_) => "quic:packet_received",
        Event::PacketDropped { .. } => "quic:packet_dropped",
        Event::PacketBuffered { .. } => "quic:packet_buffered",
        Event::PacketLost(_) => "quic:packet_lost",
        Event::SpuriousLoss { .. } => "towline:spurious_loss",
        Event::KeyUpdated { .. } => "quic:key_updated",
        // The drafts say `key_discarded`; the crate reads this.
        Event::KeyDiscarded { .. } => "quic:key_retired",
        Event::RecoveryParametersSet { .. } => "quic:recovery_parameters_set",
        Event::RecoveryMetricsUpdated { .. } => "quic:recovery_metrics_updated",
        Event::CongestionStateUpdated { .. } => "quic:congestion_state_updated",
        Event::MtuUpdated { .. } => "quic:mtu_updated",
        Event::EcnStateUpdated { .. } => "quic:ecn_state_updated",
        Event::MigrationStateUpdated { .. } => "quic:migration_state_updated",
        Event::TimerExpired { .. } => "quic:timer_updated",
        _ => "towline:unknown",
    }
}

fn write_address(o: &mut Object<'_>, ip: Option<IpAddr>, port: Option<u16>) {
    let keys = match ip {
        Some(IpAddr::V6(_)) => ["ip_v6", "port_v6"],
        _ => ["ip_v4", "port_v4"],
    };
    if let Some(ip) = ip {
        o.text(keys[0], &ip.to_string());
    }
    if let Some(port) = port {
        o.number(keys[1], port.into());
    }
}

fn migration(state: MigrationState) -> &'static str {
    match state {
        MigrationState::ProbingStarted => "probing_started",
        MigrationState::ProbingAbandoned => "probing_abandoned",
        MigrationState::ProbingSuccessful => "probing_successful",
        MigrationState::MigrationStarted => "migration_started",
        MigrationState::MigrationAbandoned => "migration_abandoned",
        MigrationState::MigrationComplete => "migration_complete",
        _ => "unknown",
    }
}

fn write_started(o: &mut Object<'_>, new: &NewConnection) {
    let endpoint = |o: &mut Object<'_>,
                    ip: Option<IpAddr>,
                    port: Option<u16>,
                    cids: [Option<ConnectionId>; 2]| {
        write_address(o, ip, port);
        o.array("connection_ids", |ids| {
            for cid in cids.iter().flatten() {
                ids.hex(cid.as_slice());
            }
        });
    };
    // The client's first packets carry it to the server, whose it is until the server names another.
    let original = Some(new.original_destination_cid);
    let local = Some(new.local_cid);
    let (local_cids, remote_cids) = match new.side {
        Side::Client => ([local, None], [original, new.remote_cid]),
        Side::Server => ([original, local], [new.remote_cid, None]),
    };
    o.object("local", |o| endpoint(o, new.local_ip, None, local_cids));
    let (ip, port) = (Some(new.remote.ip()), Some(new.remote.port()));
    o.object("remote", |o| endpoint(o, ip, port, remote_cids));
}

fn write_closed(o: &mut Object<'_>, error: &ConnectionError) {
    let by_peer = matches!(
        error,
        ConnectionError::ClosedByPeer(_) | ConnectionError::StatelessReset
    );
    o.initiator(by_peer);
    let code = match error {
        ConnectionError::PeerMisbehaved { code, .. }
        | ConnectionError::Tls { code, .. }
        | ConnectionError::ClosedByPeer(Close::Transport { code, .. }) => {
            Some(("connection_error", code.as_u64()))
        }
        ConnectionError::ClosedByPeer(Close::Application { code, .. }) => {
            Some(("application_error", *code))
        }
        _ => None,
    };
    if let Some((space, code)) = code {
        // Only with this word does the draft allow for the number, which says the same for all codes.
        o.text(space, "unknown");
        o.number("error_code", code);
    }
    o.text("reason", &error.to_string());
    o.text(
        "trigger",
        match error {
            ConnectionError::ClosedLocally
            | ConnectionError::ClosedByPeer(Close::Application { .. }) => "application",
            ConnectionError::TimedOut(TimeoutReason::Idle) => "idle_timeout",
            ConnectionError::TimedOut(TimeoutReason::Handshake) => "handshake_timeout",
            ConnectionError::StatelessReset => "stateless_reset",
            ConnectionError::VersionMismatch => "version_mismatch",
            _ => "error",
        },
    );
}

fn write_parameters(o: &mut Object<'_>, p: &TransportParameters) {
    let cids = [
        (
            "original_destination_connection_id",
            p.original_destination_connection_id,
        ),
        (
            "initial_source_connection_id",
            p.initial_source_connection_id,
        ),
        ("retry_source_connection_id", p.retry_source_connection_id),
    ];
    for (name, cid) in cids {
        if let Some(cid) = cid {
            o.hex(name, cid.as_slice());
        }
    }
    o.flag("disable_active_migration", p.disable_active_migration);
    o.number("max_idle_timeout", whole_millis(p.max_idle_timeout));
    o.number("max_udp_payload_size", p.max_udp_payload_size);
    o.number("ack_delay_exponent", p.ack_delay_exponent.into());
    o.number("max_ack_delay", whole_millis(p.max_ack_delay));
    o.number("active_connection_id_limit", p.active_connection_id_limit);
    o.number("initial_max_data", p.initial_max_data);
    o.number(
        "initial_max_stream_data_bidi_local",
        p.initial_max_stream_data_bidi_local,
    );
    o.number(
        "initial_max_stream_data_bidi_remote",
        p.initial_max_stream_data_bidi_remote,
    );
    o.number("initial_max_stream_data_uni", p.initial_max_stream_data_uni);
    o.number("initial_max_streams_bidi", p.initial_max_streams_bidi);
    o.number("initial_max_streams_uni", p.initial_max_streams_uni);
    o.number("max_datagram_frame_size", p.max_datagram_frame_size);
    // The crate wants it, if only empty.
    o.array("unknown_parameters", |_| {});
}

fn write_packet(o: &mut Object<'_>, packet: &Packet<'_>, exponent: u8, full: usize) {
    let is_long = packet.kind != PacketKind::OneRtt;
    o.object("header", |o| {
        o.text("packet_type", packet_type(packet.kind));
        o.number("packet_number", packet.packet_number);
        if let Some(bit) = packet.key_phase {
            o.flag("key_phase_bit", bit);
        }
        if is_long {
            o.hex("version", &QUIC_V1.to_be_bytes());
            o.number("dcil", packet.dcid.len() as u64);
            o.hex("dcid", packet.dcid.as_slice());
        }
        if let Some(scid) = packet.scid {
            o.number("scil", scid.len() as u64);
            o.hex("scid", scid.as_slice());
        }
    });
    o.object("raw", |raw| {
        raw.number("length", packet.len as u64);
        raw.number("payload_length", packet.payload_len() as u64);
    });
    // The draft has it for datagrams alone, and of those nothing is written.
    if let Some(ecn) = packet.ecn {
        o.text("ecn", codepoint(ecn));
    }
    let exponent = match is_long {
        true => DEFAULT_ACK_DELAY_EXPONENT,
        false => exponent,
    };
    o.array("frames", |a| {
        frames::write(a, packet.frames(), exponent, full);
    });
}

/// Whether two readings agree in all that [`write_metrics`] says of them.
fn is_same(a: &RecoveryMetrics, b: &RecoveryMetrics) -> bool {
    let times = |m: &RecoveryMetrics| (m.min_rtt, m.latest_rtt, m.smoothed_rtt, m.rttvar);
    let sizes = |m: &RecoveryMetrics| (m.cwnd, m.bytes_in_flight, m.ssthresh, m.pacing_rate);
    times(a) == times(b) && sizes(a) == sizes(b) && a.pto_count == b.pto_count
}

fn write_metrics(o: &mut Object<'_>, metrics: &RecoveryMetrics) {
    // Before the first sample the others are guesses.
    if let Some(min_rtt) = metrics.min_rtt {
        o.millis("min_rtt", min_rtt);
        o.millis("latest_rtt", metrics.latest_rtt);
        o.millis("smoothed_rtt", metrics.smoothed_rtt);
        o.millis("rtt_variance", metrics.rttvar);
    }
    o.number(
        "pto_count",
        u64::from(metrics.pto_count.min(u16::MAX.into())),
    );
    o.number("congestion_window", metrics.cwnd);
    o.number("bytes_in_flight", metrics.bytes_in_flight);
    if let Some(ssthresh) = metrics.ssthresh {
        o.number("ssthresh", ssthresh);
    }
    if let Some(rate) = metrics.pacing_rate {
        // Bits a second.
        o.number("pacing_rate", rate.saturating_mul(8));
    }
}

/// What the crate has no trigger for is `general`, and said in words.
fn dropped(reason: DropReason) -> (&'static str, &'static str) {
    match reason {
        DropReason::KeyUnavailable => ("general", "there are no keys for it"),
        DropReason::Unsupported => ("unsupported", "0-RTT is not accepted"),
        DropReason::WrongSource => ("rejected", "another source connection ID than before"),
        DropReason::DecryptionFailure => ("decryption_failure", "it is not authentic"),
        DropReason::Duplicate => ("general", "its number was received before"),
        DropReason::Overworked => ("rejected", "its frames asked for too much work"),
        DropReason::OtherAddress => ("rejected", "it came from another address"),
        _ => ("general", "dropped"),
    }
}

pub(super) fn role(side: Side) -> &'static str {
    match side {
        Side::Client => "client",
        Side::Server => "server",
    }
}

fn state(state: ConnectionState) -> &'static str {
    match state {
        ConnectionState::HandshakeStarted => "handshake_started",
        ConnectionState::HandshakeCompleted => "handshake_completed",
        ConnectionState::HandshakeConfirmed => "handshake_confirmed",
        ConnectionState::Closing => "closing",
        ConnectionState::Draining => "draining",
        _ => "closed",
    }
}

fn congestion(phase: CongestionPhase) -> &'static str {
    match phase {
        CongestionPhase::SlowStart => "slow_start",
        CongestionPhase::CongestionAvoidance => "congestion_avoidance",
        CongestionPhase::Recovery => "recovery",
    }
}

fn ecn(state: EcnState) -> &'static str {
    match state {
        EcnState::Failed => "failed",
        EcnState::Testing => "testing",
        EcnState::Unknown => "unknown",
        EcnState::Capable => "capable",
    }
}

fn packet_type(kind: PacketKind) -> &'static str {
    match kind {
        PacketKind::Initial => "initial",
        PacketKind::ZeroRtt => "0RTT",
        PacketKind::Handshake => "handshake",
        PacketKind::OneRtt => "1RTT",
    }
}

fn packet_type_of(space: PacketNumberSpace) -> &'static str {
    packet_type(match space {
        PacketNumberSpace::Initial => PacketKind::Initial,
        PacketNumberSpace::Handshake => PacketKind::Handshake,
        PacketNumberSpace::Application => PacketKind::OneRtt,
    })
}

fn space_name(space: PacketNumberSpace) -> &'static str {
    match space {
        PacketNumberSpace::Initial => "initial",
        PacketNumberSpace::Handshake => "handshake",
        PacketNumberSpace::Application => "application_data",
    }
}

fn key_type(space: PacketNumberSpace, of: Side) -> &'static str {
    match (space, of) {
        (PacketNumberSpace::Initial, Side::Client) => "client_initial_secret",
        (PacketNumberSpace::Initial, Side::Server) => "server_initial_secret",
        (PacketNumberSpace::Handshake, Side::Client) => "client_handshake_secret",
        (PacketNumberSpace::Handshake, Side::Server) => "server_handshake_secret",
        (PacketNumberSpace::Application, Side::Client) => "client_1rtt_secret",
        (PacketNumberSpace::Application, Side::Server) => "server_1rtt_secret",
    }
}

fn codepoint(ecn: Ecn) -> &'static str {
    match ecn {
        Ecn::Ect0 => "ECT(0)",
        Ecn::Ect1 => "ECT(1)",
        Ecn::Ce => "CE",
    }
}

fn whole_millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// Time since 1970 to the microsecond: the logs of two ends are laid beside each other by it.
fn rfc3339(since: Duration) -> String {
    let seconds = since.as_secs();
    let (hour, minute) = (seconds / 3600 % 24, seconds / 60 % 60);
    let (second, micros) = (seconds % 60, since.subsec_micros());
    let day = Day::of(UnixTime::since_unix_epoch(since));
    format!("{day}T{hour:02}:{minute:02}:{second:02}.{micros:06}Z")
}

#[cfg(test)]
mod tests;
