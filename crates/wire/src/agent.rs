//! What the agent of secure TCP is asked: one request of 96 bytes for each connection.
//!
//! The kernel module writes it to `/dev/stcp`, the preload shim to the agent's Unix socket; both
//! are on this machine, so integers are in host byte order. Socket addresses are `sockaddr_in` or
//! `sockaddr_in6` of Linux, padded to 28 bytes. `kmod/stcp/uapi.h` says the same in C.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};

use crate::cursor::{Reader, UnexpectedEnd};
use crate::ids::Side;

#[cfg(test)]
mod tests;

/// Bytes of a request.
pub const AGENT_REQUEST_LEN: usize = 96;

/// The version of the request's form.
const VERSION: u16 = 1;

/// Bytes of a socket address: a `sockaddr_in6`.
const ADDRESS_LEN: usize = 28;

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

/// A connection that needs a handshake.
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
    /// A socket address that is neither IPv4 nor IPv6.
    UnknownFamily(u16),
}

impl core::fmt::Display for AgentRequestError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::WrongSize => write!(f, "a request has {AGENT_REQUEST_LEN} bytes"),
            Self::UnknownVersion(version) => write!(
                f,
                "version {version} of the request is unknown (this is version {VERSION}): \
                 agent, module and shim must come from one release"
            ),
            Self::UnknownSide(side) => write!(f, "side {side} is neither client nor server"),
            Self::UnknownCarrier(carrier) => write!(f, "carrier {carrier} is unknown"),
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
        r.bytes(2)?;
        Ok(Self {
            id,
            fd,
            side,
            carrier,
            uid: u32::from_ne_bytes(r.array()?),
            pid: u32::from_ne_bytes(r.array()?),
            netns: u64::from_ne_bytes(r.array()?),
            local: parse_address(&mut r)?,
            peer: parse_address(&mut r)?,
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
        out[16..20].copy_from_slice(&self.uid.to_ne_bytes());
        out[20..24].copy_from_slice(&self.pid.to_ne_bytes());
        out[24..32].copy_from_slice(&self.netns.to_ne_bytes());
        out[32..60].copy_from_slice(&emit_address(self.local));
        out[60..88].copy_from_slice(&emit_address(self.peer));
        out
    }
}

/// Reads a `sockaddr_in` or `sockaddr_in6` of 28 bytes.
fn parse_address(r: &mut Reader<'_>) -> Result<SocketAddr, AgentRequestError> {
    let mut r = Reader::new(r.bytes(ADDRESS_LEN)?);
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

fn emit_address(address: SocketAddr) -> [u8; ADDRESS_LEN] {
    let mut out = [0; ADDRESS_LEN];
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
