//! What the agent of secure TCP is asked, one request of 96 bytes each time, and what it answers.
//!
//! The kernel module writes requests to `/dev/stcp`, the preload shim to the agent's Unix socket; both
//! are on this machine, so integers are in host byte order. Socket addresses are `sockaddr_in` or
//! `sockaddr_in6` of Linux, padded to 28 bytes. `kmod/stcp/uapi.h` says the module's part in C.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};

use crate::cursor::{Reader, UnexpectedEnd};
use crate::ids::Side;

#[cfg(test)]
mod tests;

/// Bytes of a request.
pub const AGENT_REQUEST_LEN: usize = 96;

/// The version of the request's form.
const VERSION: u16 = 1;

/// Bytes of an answer.
pub const AGENT_ANSWER_LEN: usize = 60;

/// Bytes of a socket address: a `sockaddr_in6`.
pub const AGENT_ADDRESS_LEN: usize = 28;

/// Bytes of the name that [`listening_name`] makes.
pub const LISTENING_NAME_LEN: usize = LISTENING_PREFIX.len() + 8 + AGENT_ADDRESS_LEN;

/// How it begins; the zero makes it one of Linux's abstract names.
const LISTENING_PREFIX: &[u8] = b"\0towline-stcp-listen/";

// As Linux numbers them.
const AF_INET: u16 = 2;
const AF_INET6: u16 = 10;

/// Who asks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Carrier {
    /// The kernel module.
    Module,
    /// The preload shim.
    Preload,
    /// The agent's own relay.
    Relay,
}

/// What is asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Operation {
    /// A handshake on the connected TCP socket beside the request.
    Handshake,
    /// A TCP socket of the family of `local`.
    Socket,
    /// To connect the socket beside the request to `peer`.
    Connect,
    /// To listen at the address of the socket beside the request.
    Listen,
    /// The real addresses of a program's socket whose own are `local` and `peer`.
    Names,
}

/// A connection that needs a handshake, or what else the preload shim asks for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AgentRequest {
    /// Chosen by the one who asks; for logs.
    pub id: u32,
    /// Module: the agent's new descriptor. Otherwise -1, and the descriptor comes beside it.
    pub fd: i32,
    /// The part that the program plays.
    pub side: Side,
    /// Who asks.
    pub carrier: Carrier,
    /// What is asked for; the module asks for handshakes only.
    pub operation: Operation,
    /// The program's user.
    pub uid: u32,
    /// The program's process.
    pub pid: u32,
    /// The network namespace, as the inode number of its file.
    pub netns: u64,
    /// The connection's address here.
    pub local: SocketAddr,
    /// The connection's address there.
    pub peer: SocketAddr,
    /// Shows that the program belongs to the agent's run; 0 where nobody asks for it.
    pub token: u64,
}

/// What the preload shim is answered, and what comes with each accepted connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AgentAnswer {
    /// What came of it.
    pub status: AgentStatus,
    /// An address here.
    pub local: SocketAddr,
    /// An address there.
    pub peer: SocketAddr,
}

/// What came of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AgentStatus {
    /// It is done.
    Done,
    /// The connection stays on this machine, in clear: the program may make it itself.
    StaysHere,
    /// An error, as Linux numbers them.
    Failed(i32),
}

/// Why bytes are no request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AgentRequestError {
    /// Not 96 bytes, or the size field says otherwise.
    WrongSize,
    /// A version this side does not know: agent and asker come from different releases.
    UnknownVersion(u16),
    /// A side that is neither client nor server.
    UnknownSide(u8),
    /// A carrier that is not in the list.
    UnknownCarrier(u8),
    /// An operation that is not in the list.
    UnknownOperation(u8),
    /// A socket address that is neither IPv4 nor IPv6.
    UnknownFamily(u16),
}

impl core::fmt::Display for AgentRequestError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::WrongSize => write!(
                f,
                "a request has {AGENT_REQUEST_LEN} bytes, an answer {AGENT_ANSWER_LEN}"
            ),
            Self::UnknownVersion(version) => write!(
                f,
                "version {version} of the request is unknown (this is version {VERSION}): \
                 agent, module and shim must come from one release"
            ),
            Self::UnknownSide(side) => write!(f, "side {side} is neither client nor server"),
            Self::UnknownCarrier(carrier) => write!(f, "carrier {carrier} is unknown"),
            Self::UnknownOperation(operation) => write!(f, "operation {operation} is unknown"),
            Self::UnknownFamily(family) => {
                write!(f, "address family {family} is neither IPv4 nor IPv6")
            }
        }
    }
}

impl core::error::Error for AgentRequestError {}

impl From<UnexpectedEnd> for AgentRequestError {
    fn from(UnexpectedEnd: UnexpectedEnd) -> Self {
        Self::WrongSize
    }
}

impl AgentRequest {
    /// Reads a request, which must fill `bytes`. Reserved bytes may hold anything.
    ///
    /// # Errors
    /// When it is no request of this version.
    pub fn parse(bytes: &[u8]) -> Result<Self, AgentRequestError> {
        if bytes.len() != AGENT_REQUEST_LEN {
            return Err(AgentRequestError::WrongSize);
        }
        let mut r = Reader::new(bytes);
        // The version goes first: another one may have another size.
        let version = u16::from_ne_bytes(r.array()?);
        if version != VERSION {
            return Err(AgentRequestError::UnknownVersion(version));
        }
        if usize::from(u16::from_ne_bytes(r.array()?)) != AGENT_REQUEST_LEN {
            return Err(AgentRequestError::WrongSize);
        }
        let id = u32::from_ne_bytes(r.array()?);
        let fd = i32::from_ne_bytes(r.array()?);
        let side = match r.u8()? {
            0 => Side::Client,
            1 => Side::Server,
            other => return Err(AgentRequestError::UnknownSide(other)),
        };
        let carrier = match r.u8()? {
            0 => Carrier::Module,
            1 => Carrier::Preload,
            2 => Carrier::Relay,
            other => return Err(AgentRequestError::UnknownCarrier(other)),
        };
        let operation = match r.u8()? {
            0 => Operation::Handshake,
            1 => Operation::Socket,
            2 => Operation::Connect,
            3 => Operation::Listen,
            4 => Operation::Names,
            other => return Err(AgentRequestError::UnknownOperation(other)),
        };
        r.bytes(1)?;
        Ok(Self {
            id,
            fd,
            side,
            carrier,
            operation,
            uid: u32::from_ne_bytes(r.array()?),
            pid: u32::from_ne_bytes(r.array()?),
            netns: u64::from_ne_bytes(r.array()?),
            local: parse_address(&r.array()?)?,
            peer: parse_address(&r.array()?)?,
            token: u64::from_ne_bytes(r.array()?),
        })
    }

    /// The request as bytes; reserved ones are 0.
    pub fn emit(&self) -> [u8; AGENT_REQUEST_LEN] {
        let mut out = [0; AGENT_REQUEST_LEN];
        out[..2].copy_from_slice(&VERSION.to_ne_bytes());
        out[2..4].copy_from_slice(&(AGENT_REQUEST_LEN as u16).to_ne_bytes());
        out[4..8].copy_from_slice(&self.id.to_ne_bytes());
        out[8..12].copy_from_slice(&self.fd.to_ne_bytes());
        out[12] = match self.side {
            Side::Client => 0,
            Side::Server => 1,
        };
        out[13] = match self.carrier {
            Carrier::Module => 0,
            Carrier::Preload => 1,
            Carrier::Relay => 2,
        };
        out[14] = match self.operation {
            Operation::Handshake => 0,
            Operation::Socket => 1,
            Operation::Connect => 2,
            Operation::Listen => 3,
            Operation::Names => 4,
        };
        out[16..20].copy_from_slice(&self.uid.to_ne_bytes());
        out[20..24].copy_from_slice(&self.pid.to_ne_bytes());
        out[24..32].copy_from_slice(&self.netns.to_ne_bytes());
        out[32..60].copy_from_slice(&emit_address(self.local));
        out[60..88].copy_from_slice(&emit_address(self.peer));
        out[88..].copy_from_slice(&self.token.to_ne_bytes());
        out
    }
}

impl AgentAnswer {
    /// Reads an answer, which must fill `bytes`.
    ///
    /// # Errors
    /// When it is none.
    pub fn parse(bytes: &[u8]) -> Result<Self, AgentRequestError> {
        if bytes.len() != AGENT_ANSWER_LEN {
            return Err(AgentRequestError::WrongSize);
        }
        let mut r = Reader::new(bytes);
        let status = match i32::from_ne_bytes(r.array()?) {
            0 => AgentStatus::Done,
            1 => AgentStatus::StaysHere,
            other => AgentStatus::Failed(other.saturating_neg()),
        };
        Ok(Self {
            status,
            local: parse_address(&r.array()?)?,
            peer: parse_address(&r.array()?)?,
        })
    }

    /// The answer as bytes.
    pub fn emit(&self) -> [u8; AGENT_ANSWER_LEN] {
        let status = match self.status {
            AgentStatus::Done => 0,
            AgentStatus::StaysHere => 1,
            AgentStatus::Failed(error) => error.saturating_neg(),
        };
        let mut out = [0; AGENT_ANSWER_LEN];
        out[..4].copy_from_slice(&status.to_ne_bytes());
        out[4..32].copy_from_slice(&emit_address(self.local));
        out[32..].copy_from_slice(&emit_address(self.peer));
        out
    }
}

/// The name of a program's listening socket, which stands for TCP at `address`. `unique` tells apart
/// those that share one.
pub fn listening_name(unique: u64, address: SocketAddr) -> [u8; LISTENING_NAME_LEN] {
    let mut out = [0; LISTENING_NAME_LEN];
    let (prefix, rest) = out.split_at_mut(LISTENING_PREFIX.len());
    prefix.copy_from_slice(LISTENING_PREFIX);
    rest[..8].copy_from_slice(&unique.to_ne_bytes());
    rest[8..].copy_from_slice(&emit_address(address));
    out
}

/// The address in a name of [`listening_name`]; `None` if it is another one.
pub fn listening_address(name: &[u8]) -> Option<SocketAddr> {
    let rest = name.strip_prefix(LISTENING_PREFIX)?.get(8..)?;
    parse_address(rest.try_into().ok()?).ok()
}

/// Reads a `sockaddr_in` or `sockaddr_in6` of 28 bytes.
///
/// # Errors
/// When it is of another family.
pub fn parse_address(bytes: &[u8; AGENT_ADDRESS_LEN]) -> Result<SocketAddr, AgentRequestError> {
    let mut r = Reader::new(bytes);
    let family = u16::from_ne_bytes(r.array()?);
    let port = r.u16()?;
    match family {
        AF_INET => {
            let ip = Ipv4Addr::from(r.array::<4>()?);
            Ok(SocketAddr::new(IpAddr::V4(ip), port))
        }
        AF_INET6 => {
            let flow = u32::from_be_bytes(r.array()?);
            let ip = Ipv6Addr::from(r.array::<16>()?);
            let scope = u32::from_ne_bytes(r.array()?);
            Ok(SocketAddrV6::new(ip, port, flow, scope).into())
        }
        other => Err(AgentRequestError::UnknownFamily(other)),
    }
}

/// The address as a `sockaddr_in` or `sockaddr_in6`, padded with zeroes.
pub fn emit_address(address: SocketAddr) -> [u8; AGENT_ADDRESS_LEN] {
    let mut out = [0; AGENT_ADDRESS_LEN];
    out[2..4].copy_from_slice(&address.port().to_be_bytes());
    match address {
        SocketAddr::V4(v4) => {
            out[..2].copy_from_slice(&AF_INET.to_ne_bytes());
            out[4..8].copy_from_slice(&SocketAddrV4::ip(&v4).octets());
        }
        SocketAddr::V6(v6) => {
            out[..2].copy_from_slice(&AF_INET6.to_ne_bytes());
            out[4..8].copy_from_slice(&v6.flowinfo().to_be_bytes());
            out[8..24].copy_from_slice(&v6.ip().octets());
            out[24..28].copy_from_slice(&v6.scope_id().to_ne_bytes());
        }
    }
    out
}
