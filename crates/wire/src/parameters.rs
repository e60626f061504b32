//! Transport parameters (RFC 9000 §18, RFC 9221 §3, draft-ietf-quic-ack-frequency-14 §3,
//! draft-ietf-quic-reliable-stream-reset-07 §3).
//!
//! Owns their encoding, defaults and the checks that need nothing but the bytes and the sender's
//! side. The engine hands them to TLS and reads the peer's. Whether connection IDs match those
//! on the wire (§7.3) is the engine's to check.

use core::fmt;
use core::net::{Ipv4Addr, Ipv6Addr, SocketAddrV4, SocketAddrV6};
use core::time::Duration;

use crate::cursor::{MAX_VARINT, Reader, UnexpectedEnd, emit_varint, varint_len};
use crate::error_code::TransportErrorCode;
use crate::ids::{ConnectionId, MAX_STREAMS, Side, StatelessResetToken};

#[cfg(test)]
mod tests;

/// The longest encoding accepted, in bytes: what a TLS extension can hold.
pub const MAX_TRANSPORT_PARAMETERS_LEN: usize = 65535;

const ORIGINAL_DESTINATION_CONNECTION_ID: u64 = 0x00;
const MAX_IDLE_TIMEOUT: u64 = 0x01;
const STATELESS_RESET_TOKEN: u64 = 0x02;
const MAX_UDP_PAYLOAD_SIZE: u64 = 0x03;
const INITIAL_MAX_DATA: u64 = 0x04;
const INITIAL_MAX_STREAM_DATA_BIDI_LOCAL: u64 = 0x05;
const INITIAL_MAX_STREAM_DATA_BIDI_REMOTE: u64 = 0x06;
const INITIAL_MAX_STREAM_DATA_UNI: u64 = 0x07;
const INITIAL_MAX_STREAMS_BIDI: u64 = 0x08;
const INITIAL_MAX_STREAMS_UNI: u64 = 0x09;
const ACK_DELAY_EXPONENT: u64 = 0x0a;
const MAX_ACK_DELAY: u64 = 0x0b;
const DISABLE_ACTIVE_MIGRATION: u64 = 0x0c;
const PREFERRED_ADDRESS: u64 = 0x0d;
const ACTIVE_CONNECTION_ID_LIMIT: u64 = 0x0e;
const INITIAL_SOURCE_CONNECTION_ID: u64 = 0x0f;
const RETRY_SOURCE_CONNECTION_ID: u64 = 0x10;
const RESET_STREAM_AT: u64 = 0x1d;
/// The same, as drafts before -08 had it; some peers know no other.
const RESET_STREAM_AT_OLD: u64 = 0x17_f758_6d2c_b571;
const MAX_DATAGRAM_FRAME_SIZE: u64 = 0x20;
const MIN_ACK_DELAY: u64 = 0xff04_de1b;

/// max_ack_delay must stay below this many milliseconds (RFC 9000 §18.2).
const MAX_ACK_DELAY_LIMIT: u64 = 1 << 14;

/// What one end declares about itself (RFC 9000 §18.2).
///
/// `Default` gives what an absent parameter means; [`encode`](Self::encode) leaves out whatever
/// has that value.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TransportParameters {
    /// Destination connection ID of the client's first Initial. Server only.
    pub original_destination_connection_id: Option<ConnectionId>,
    /// Idle timeout in whole milliseconds; zero for none.
    pub max_idle_timeout: Duration,
    /// Reset token of the server's first connection ID. Server only.
    pub stateless_reset_token: Option<StatelessResetToken>,
    /// The largest UDP payload the sender of this is willing to receive, in bytes, ≥ 1200.
    pub max_udp_payload_size: u64,
    /// Connection flow control limit at the start, in bytes.
    pub initial_max_data: u64,
    /// Limit of bidirectional streams the sender of this opens, in bytes.
    pub initial_max_stream_data_bidi_local: u64,
    /// Limit of bidirectional streams the receiver of this opens, in bytes.
    pub initial_max_stream_data_bidi_remote: u64,
    /// Limit of unidirectional streams the receiver of this opens, in bytes.
    pub initial_max_stream_data_uni: u64,
    /// Bidirectional streams the receiver of this may open, ≤ 2^60.
    pub initial_max_streams_bidi: u64,
    /// Unidirectional streams the receiver of this may open, ≤ 2^60.
    pub initial_max_streams_uni: u64,
    /// The ACK Delay field counts units of 2^this microseconds, ≤ 20.
    pub ack_delay_exponent: u8,
    /// The longest the sender of this delays an ACK, in whole milliseconds, < 2^14 ms.
    pub max_ack_delay: Duration,
    /// The peer must not migrate on purpose.
    pub disable_active_migration: bool,
    /// Where the server would like to be reached. Server only.
    pub preferred_address: Option<PreferredAddress>,
    /// Connection IDs the sender of this stores, ≥ 2.
    pub active_connection_id_limit: u64,
    /// Source connection ID of the sender's first Initial.
    pub initial_source_connection_id: Option<ConnectionId>,
    /// Source connection ID of the Retry packet. Server only.
    pub retry_source_connection_id: Option<ConnectionId>,
    /// The largest DATAGRAM frame (type and length included) accepted, in bytes; 0 for none
    /// (RFC 9221 §3).
    pub max_datagram_frame_size: u64,
    /// The shortest the sender of this may be asked to delay ACKs, in whole microseconds,
    /// ≤ `max_ack_delay`; `None` without the ACK frequency extension. Not to be remembered for
    /// 0-RTT (draft-ietf-quic-ack-frequency-14 §3).
    pub min_ack_delay: Option<Duration>,
    /// RESET_STREAM_AT frames are understood (draft-ietf-quic-reliable-stream-reset-07 §3). Said by
    /// two parameters, of which the peer may know either.
    pub reset_stream_at: bool,
    /// A parameter without meaning to emit, so that peers keep ignoring unknown ones (§18.1:
    /// use an ID of the form 31 * N + 27). Parsing never sets it.
    pub grease: Option<(u64, Vec<u8>)>,
}

impl Default for TransportParameters {
    fn default() -> Self {
        Self {
            original_destination_connection_id: None,
            max_idle_timeout: Duration::ZERO,
            stateless_reset_token: None,
            max_udp_payload_size: 65527,
            initial_max_data: 0,
            initial_max_stream_data_bidi_local: 0,
            initial_max_stream_data_bidi_remote: 0,
            initial_max_stream_data_uni: 0,
            initial_max_streams_bidi: 0,
            initial_max_streams_uni: 0,
            ack_delay_exponent: 3,
            max_ack_delay: Duration::from_millis(25),
            disable_active_migration: false,
            preferred_address: None,
            active_connection_id_limit: 2,
            initial_source_connection_id: None,
            retry_source_connection_id: None,
            max_datagram_frame_size: 0,
            min_ack_delay: None,
            reset_stream_at: false,
            grease: None,
        }
    }
}

/// A server's preferred address (RFC 9000 §9.6, §18.2).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PreferredAddress {
    /// For a client that speaks IPv4.
    pub ipv4: Option<SocketAddrV4>,
    /// For a client that speaks IPv6.
    pub ipv6: Option<SocketAddrV6>,
    /// The connection ID to use there (sequence number 1), 1 to 20 bytes.
    pub connection_id: ConnectionId,
    /// Its stateless reset token.
    pub stateless_reset_token: StatelessResetToken,
}

/// Why the peer's parameters are refused: the connection must be closed with
/// TRANSPORT_PARAMETER_ERROR.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TransportParameterError {
    /// The parameter at fault, if its ID could be read.
    pub id: Option<u64>,
    /// What is wrong, for the close reason and the log.
    pub what: &'static str,
}

impl TransportParameterError {
    /// The code to close with.
    pub const CODE: TransportErrorCode = TransportErrorCode::TRANSPORT_PARAMETER_ERROR;
}

impl fmt::Display for TransportParameterError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.id {
            Some(id) => write!(f, "transport parameter {id:#x}: {}", self.what),
            None => write!(f, "transport parameters: {}", self.what),
        }
    }
}

impl core::error::Error for TransportParameterError {}

/// A fault in one parameter's value.
struct Malformed(&'static str);

impl From<UnexpectedEnd> for Malformed {
    fn from(_: UnexpectedEnd) -> Self {
        Self("value ends early")
    }
}

impl TransportParameters {
    /// Reads the parameters sent by `from`.
    ///
    /// Refuses duplicates, values out of range and server-only parameters of a client; ignores
    /// what it doesn't know (§7.4.2).
    pub fn parse(bytes: &[u8], from: Side) -> Result<Self, TransportParameterError> {
        let error = |id, what| TransportParameterError { id, what };
        if bytes.len() > MAX_TRANSPORT_PARAMETERS_LEN {
            return Err(error(None, "longer than a TLS extension"));
        }
        let mut parameters = Self::default();
        let mut seen = 0_u64;
        let mut unknown = Vec::new();
        let mut r = Reader::new(bytes);
        while !r.is_empty() {
            let id = r.varint().map_err(|_| error(None, "ID ends early"))?;
            let value = r
                .varint_bytes()
                .map_err(|_| error(Some(id), "value ends early"))?;
            if id < 64 {
                if seen & 1 << id != 0 {
                    return Err(error(Some(id), "sent twice"));
                }
                seen |= 1 << id;
            } else {
                unknown.push(id);
            }
            parameters
                .parse_one(id, value, from)
                .map_err(|Malformed(what)| error(Some(id), what))?;
        }
        unknown.sort_unstable();
        if let Some(pair) = unknown.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(error(Some(pair[0]), "sent twice"));
        }
        if parameters
            .min_ack_delay
            .is_some_and(|min| min > parameters.max_ack_delay)
        {
            return Err(error(Some(MIN_ACK_DELAY), "above max_ack_delay"));
        }
        Ok(parameters)
    }

    /// Refuses values out of range (RFC 9000 §7.4) and passes over unknown IDs (RFC 9000 §7.4.2).
    fn parse_one(&mut self, id: u64, value: &[u8], from: Side) -> Result<(), Malformed> {
        match id {
            ORIGINAL_DESTINATION_CONNECTION_ID => {
                server_only(from)?;
                self.original_destination_connection_id = Some(cid(value)?);
            }
            MAX_IDLE_TIMEOUT => self.max_idle_timeout = Duration::from_millis(integer(value)?),
            STATELESS_RESET_TOKEN => {
                server_only(from)?;
                let token: [u8; 16] = value
                    .try_into()
                    .map_err(|_| Malformed("reset token isn't 16 bytes"))?;
                self.stateless_reset_token = Some(StatelessResetToken::new(token));
            }
            MAX_UDP_PAYLOAD_SIZE => {
                self.max_udp_payload_size = at_least(1200, value, "below 1200")?;
            }
            INITIAL_MAX_DATA => self.initial_max_data = integer(value)?,
            INITIAL_MAX_STREAM_DATA_BIDI_LOCAL => {
                self.initial_max_stream_data_bidi_local = integer(value)?;
            }
            INITIAL_MAX_STREAM_DATA_BIDI_REMOTE => {
                self.initial_max_stream_data_bidi_remote = integer(value)?;
            }
            INITIAL_MAX_STREAM_DATA_UNI => self.initial_max_stream_data_uni = integer(value)?,
            INITIAL_MAX_STREAMS_BIDI => {
                self.initial_max_streams_bidi = at_most(MAX_STREAMS, value, "above 2^60")?;
            }
            INITIAL_MAX_STREAMS_UNI => {
                self.initial_max_streams_uni = at_most(MAX_STREAMS, value, "above 2^60")?;
            }
            ACK_DELAY_EXPONENT => {
                self.ack_delay_exponent = at_most(20, value, "above 20")? as u8;
            }
            MAX_ACK_DELAY => {
                let millis = at_most(MAX_ACK_DELAY_LIMIT - 1, value, "2^14 ms or more")?;
                self.max_ack_delay = Duration::from_millis(millis);
            }
            DISABLE_ACTIVE_MIGRATION => {
                self.disable_active_migration = flag(value)?;
            }
            PREFERRED_ADDRESS => {
                server_only(from)?;
                self.preferred_address = Some(PreferredAddress::parse(value)?);
            }
            ACTIVE_CONNECTION_ID_LIMIT => {
                self.active_connection_id_limit = at_least(2, value, "below 2")?;
            }
            INITIAL_SOURCE_CONNECTION_ID => {
                self.initial_source_connection_id = Some(cid(value)?);
            }
            RETRY_SOURCE_CONNECTION_ID => {
                server_only(from)?;
                self.retry_source_connection_id = Some(cid(value)?);
            }
            RESET_STREAM_AT | RESET_STREAM_AT_OLD => self.reset_stream_at = flag(value)?,
            MAX_DATAGRAM_FRAME_SIZE => self.max_datagram_frame_size = integer(value)?,
            MIN_ACK_DELAY => self.min_ack_delay = Some(Duration::from_micros(integer(value)?)),
            _ => {}
        }
        Ok(())
    }

    /// Appends the encoding. Durations are cut to whole units and to their range.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let defaults = Self::default();
        let mut put = |id, value: &[u8]| emit_parameter(out, id, value);
        if let Some(cid) = &self.original_destination_connection_id {
            put(ORIGINAL_DESTINATION_CONNECTION_ID, cid);
        }
        if let Some(token) = &self.stateless_reset_token {
            put(STATELESS_RESET_TOKEN, token.as_bytes());
        }
        if self.disable_active_migration {
            put(DISABLE_ACTIVE_MIGRATION, &[]);
        }
        if let Some(preferred) = &self.preferred_address {
            put(PREFERRED_ADDRESS, &preferred.emit());
        }
        if let Some(cid) = &self.initial_source_connection_id {
            put(INITIAL_SOURCE_CONNECTION_ID, cid);
        }
        if let Some(cid) = &self.retry_source_connection_id {
            put(RETRY_SOURCE_CONNECTION_ID, cid);
        }
        if self.reset_stream_at {
            put(RESET_STREAM_AT, &[]);
            put(RESET_STREAM_AT_OLD, &[]);
        }
        if let Some((id, value)) = &self.grease {
            put(*id, value);
        }
        let max_ack_delay = |p: &Self| millis(p.max_ack_delay).min(MAX_ACK_DELAY_LIMIT - 1);
        if let Some(min) = self.min_ack_delay {
            let most = max_ack_delay(self) * 1000;
            let micros = u64::try_from(min.as_micros()).map_or(most, |micros| micros.min(most));
            emit_integer(out, MIN_ACK_DELAY, micros);
        }
        for (id, value, default) in [
            (MAX_IDLE_TIMEOUT, millis(self.max_idle_timeout), 0),
            (
                MAX_UDP_PAYLOAD_SIZE,
                self.max_udp_payload_size,
                defaults.max_udp_payload_size,
            ),
            (INITIAL_MAX_DATA, self.initial_max_data, 0),
            (
                INITIAL_MAX_STREAM_DATA_BIDI_LOCAL,
                self.initial_max_stream_data_bidi_local,
                0,
            ),
            (
                INITIAL_MAX_STREAM_DATA_BIDI_REMOTE,
                self.initial_max_stream_data_bidi_remote,
                0,
            ),
            (
                INITIAL_MAX_STREAM_DATA_UNI,
                self.initial_max_stream_data_uni,
                0,
            ),
            (INITIAL_MAX_STREAMS_BIDI, self.initial_max_streams_bidi, 0),
            (INITIAL_MAX_STREAMS_UNI, self.initial_max_streams_uni, 0),
            (
                ACK_DELAY_EXPONENT,
                self.ack_delay_exponent.into(),
                defaults.ack_delay_exponent.into(),
            ),
            (MAX_ACK_DELAY, max_ack_delay(self), max_ack_delay(&defaults)),
            (
                ACTIVE_CONNECTION_ID_LIMIT,
                self.active_connection_id_limit,
                defaults.active_connection_id_limit,
            ),
            (MAX_DATAGRAM_FRAME_SIZE, self.max_datagram_frame_size, 0),
        ] {
            if value != default {
                emit_integer(out, id, value);
            }
        }
    }
}

impl PreferredAddress {
    fn parse(value: &[u8]) -> Result<Self, Malformed> {
        let mut r = Reader::new(value);
        let ipv4 = SocketAddrV4::new(Ipv4Addr::from(r.array::<4>()?), r.u16()?);
        let ipv6 = SocketAddrV6::new(Ipv6Addr::from(r.array::<16>()?), r.u16()?, 0, 0);
        let len = r.u8()?;
        if len == 0 {
            return Err(Malformed("empty connection ID"));
        }
        let connection_id = cid(r.bytes(usize::from(len))?)?;
        let stateless_reset_token = StatelessResetToken::new(r.array()?);
        if !r.is_empty() {
            return Err(Malformed("bytes behind the value"));
        }
        Ok(Self {
            // RFC 9000 §18.2: all zeros stand for "no address of this family".
            ipv4: Some(ipv4).filter(|a| !a.ip().is_unspecified() || a.port() != 0),
            ipv6: Some(ipv6).filter(|a| !a.ip().is_unspecified() || a.port() != 0),
            connection_id,
            stateless_reset_token,
        })
    }

    fn emit(&self) -> Vec<u8> {
        let ipv4 = self
            .ipv4
            .unwrap_or(SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0));
        let ipv6 = self
            .ipv6
            .unwrap_or(SocketAddrV6::new(Ipv6Addr::UNSPECIFIED, 0, 0, 0));
        let mut out = Vec::with_capacity(61);
        out.extend_from_slice(&ipv4.ip().octets());
        out.extend_from_slice(&ipv4.port().to_be_bytes());
        out.extend_from_slice(&ipv6.ip().octets());
        out.extend_from_slice(&ipv6.port().to_be_bytes());
        out.push(self.connection_id.len() as u8);
        out.extend_from_slice(&self.connection_id);
        out.extend_from_slice(self.stateless_reset_token.as_bytes());
        out
    }
}

fn server_only(from: Side) -> Result<(), Malformed> {
    match from {
        Side::Server => Ok(()),
        Side::Client => Err(Malformed("sent by a client")),
    }
}

/// A parameter that says all by being there.
fn flag(value: &[u8]) -> Result<bool, Malformed> {
    match value {
        [] => Ok(true),
        _ => Err(Malformed("value isn't empty")),
    }
}

fn integer(value: &[u8]) -> Result<u64, Malformed> {
    let mut r = Reader::new(value);
    let integer = r.varint()?;
    if !r.is_empty() {
        return Err(Malformed("bytes behind the value"));
    }
    Ok(integer)
}

fn at_least(min: u64, value: &[u8], what: &'static str) -> Result<u64, Malformed> {
    Some(integer(value)?)
        .filter(|integer| *integer >= min)
        .ok_or(Malformed(what))
}

fn at_most(max: u64, value: &[u8], what: &'static str) -> Result<u64, Malformed> {
    Some(integer(value)?)
        .filter(|integer| *integer <= max)
        .ok_or(Malformed(what))
}

fn cid(value: &[u8]) -> Result<ConnectionId, Malformed> {
    ConnectionId::new(value).ok_or(Malformed("connection ID longer than 20 bytes"))
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis())
        .unwrap_or(MAX_VARINT)
        .min(MAX_VARINT)
}

fn emit_integer(out: &mut Vec<u8>, id: u64, value: u64) {
    emit_varint(out, id);
    emit_varint(out, varint_len(value) as u64);
    emit_varint(out, value);
}

fn emit_parameter(out: &mut Vec<u8>, id: u64, value: &[u8]) {
    emit_varint(out, id);
    emit_varint(out, value.len() as u64);
    out.extend_from_slice(value);
}
