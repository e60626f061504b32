//! Byte formats of Towline and the one `Time` type.
//!
//! Owns parsing and emitting of QUIC v1: variable-length integers, identifiers, packet headers
//! (RFC 8999, RFC 9000 §17), frames (RFC 9000 §19, RFC 9221) and transport parameters
//! (RFC 9000 §18), the header of Towline's messages and what the agent of secure TCP is asked, the protocols a TLS
//! ClientHello offers, the formats of HTTP/3 and WebTransport ([`http3`]) and of QPACK ([`qpack`]); also the [`RangeSet`]
//! that several protocols keep. Called by every other crate; holds no state of its own.
//!
//! Never does: cryptography, I/O, policy. No function here panics on input, and parsing borrows
//! from the datagram instead of allocating.
#![forbid(unsafe_code)]

mod agent;
mod client_hello;
mod cursor;
mod error_code;
mod frame;
pub mod http3;
mod ids;
mod message;
mod packet;
mod parameters;
mod per_space;
pub mod qpack;
mod range_set;
mod time;

pub use agent::{
    AGENT_ADDRESS_LEN, AGENT_ANSWER_LEN, AGENT_REQUEST_LEN, AgentAnswer, AgentRequest,
    AgentRequestError, AgentStatus, Carrier, LISTENING_NAME_LEN, Operation, emit_address,
    listening_address, listening_name, parse_address,
};
pub use client_hello::{OfferedProtocols, handshake_message_len, offered_protocols};
pub use cursor::{MAX_VARINT, Reader, UnexpectedEnd, Writer, emit_varint, varint_len};
pub use error_code::TransportErrorCode;
pub use frame::*;
pub use ids::{
    ConnectionId, Direction, MAX_CID_LEN, MAX_STREAMS, PacketNumberSpace, Side,
    StatelessResetToken, StreamId,
};
pub use message::{
    MAX_MESSAGE_HEADER_LEN, MAX_MESSAGE_METADATA, MessageHeader, MessageHeaderError,
};
pub use packet::*;
pub use parameters::{
    MAX_TRANSPORT_PARAMETERS_LEN, PreferredAddress, TransportParameterError, TransportParameters,
};
pub use per_space::PerSpace;
pub use range_set::RangeSet;
pub use time::Time;
