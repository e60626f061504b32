//! The carrier that every kernel has: connections redirected to the agent, which makes the records.
//!
//! Two doors. Programs' own connections arrive at the inner one, on loopback; the agent reads where
//! they wanted to go (SO_ORIGINAL_DST), speaks TLS to that place and copies. Connections from other
//! hosts to programs' ports arrive at the outer one; they get no further than the handshake unless
//! it succeeds, and are then copied to the program over loopback, from the peer's own address
//! (`transparent`). Redirect and routes are the caller's. Without this process nobody listens at the
//! doors, so connections are refused.

mod original;
mod plain;
mod transparent;

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::AsFd;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use socket2::{Domain, Protocol, SockRef, Socket, Type};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, watch};
use tokio::time::timeout;
use towline::stcp::{RefusalLog, Stream, splice};
use towline_stcp::{Established, Records, SessionError};
use towline_wire::{Carrier, Side};

use super::places::{self, Place};
use super::{Agent, Complaint, Failure, Requester};
use plain::anywhere;
pub(super) use plain::{dial, unspecified};
use transparent::{dial_as, try_way_in};

/// Connections that wait to be accepted.
const BACKLOG: i32 = 4096;

/// How long the trial of the way to a program may take.
const TRIAL_TIMEOUT: Duration = Duration::from_secs(3);

/// What is said then.
const UNANSWERED: &str = "a trial connection from another host's address was not answered: does a firewall \
                          rule drop what goes over loopback, or has this mark (`nft list ruleset`)?";

/// Where the doors are, if the system lets us: programs may outlive us, redirected there still, and
/// no other user shall listen in our place.
const PRIVILEGED: std::ops::Range<u16> = 512..1024;

/// The two doors.
#[derive(Debug)]
pub struct Relay {
    inner: Door,
    outer: Door,
    mark: u32,
}

/// What the caller's rules go by: the ports of the doors, to which connections are redirected, and the
/// mark of the relay's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RelayPorts {
    /// For programs' own connections, on loopback.
    pub inner: u16,
    /// For connections from other hosts.
    pub outer: u16,
    /// On the relay's connections to programs, which come from their peers' addresses: answers have to
    /// be routed back to this host.
    pub mark: u32,
}

/// Through which door connections come.
#[derive(Clone, Copy)]
enum Way {
    /// Programs' own; to `probe` nobody goes, and whoever asks there is tried to be reached with this mark.
    Out { probe: SocketAddr, mark: u32 },
    /// From other hosts to programs, reached with this mark.
    In { mark: u32 },
}

#[derive(Debug)]
struct Door {
    v4: TcpListener,
    /// `None` where the kernel has no IPv6.
    v6: Option<TcpListener>,
    port: u16,
}

impl Door {
    /// At the first of `ports` that is free and none of `others`. 0 is one that the system chooses; the rest
    /// are taken even if old connections linger there.
    fn open(
        v4: Ipv4Addr,
        v6: Ipv6Addr,
        ports: impl IntoIterator<Item = u16>,
        others: &[u16],
    ) -> io::Result<Self> {
        ports
            .into_iter()
            .filter(|port| !others.contains(port))
            .find_map(|port| match Self::open_at(v4, v6, port) {
                Err(error) if error.kind() == io::ErrorKind::AddrInUse => None,
                // The system chose it.
                Ok(door) if others.contains(&door.port) => None,
                result => Some(result),
            })
            .unwrap_or_else(|| Err(io::ErrorKind::AddrInUse.into()))
    }

    fn open_at(v4: Ipv4Addr, v6: Ipv6Addr, port: u16) -> io::Result<Self> {
        let listener = listen(SocketAddr::from((v4, port)))?;
        let port = listener.local_addr()?.port();
        let v6 = match listen(SocketAddr::from((v6, port))) {
            Ok(listener) => Some(listener),
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => return Err(error),
            Err(error) => {
                tracing::info!("no IPv6 here ({error}): such connections will be refused");
                None
            }
        };
        Ok(Self {
            v4: listener,
            v6,
            port,
        })
    }

    async fn accept(&self) -> io::Result<(TcpStream, SocketAddr)> {
        match &self.v6 {
            None => self.v4.accept().await,
            Some(v6) => tokio::select! {
                accepted = self.v4.accept() => accepted,
                accepted = v6.accept() => accepted,
            },
        }
    }
}

fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = Socket::new(
        Domain::for_address(address),
        Type::STREAM,
        Some(Protocol::TCP),
    )?;
    if address.is_ipv6() {
        socket.set_only_v6(true)?;
    }
    socket.set_reuse_address(address.port() != 0)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    socket.set_nonblocking(true)?;
    TcpListener::from_std(socket.into())
}

impl Relay {
    /// Opens both doors, at ports below 1024 where the system lets us, and at none of `others`. What goes to
    /// programs bears `mark`. Within a tokio runtime.
    ///
    /// # Errors
    /// What the system said.
    pub fn open(mark: u32, others: &[u16]) -> io::Result<Self> {
        Self::open_at(|| PRIVILEGED.rev(), others, mark).or_else(|error| match error.kind() {
            // The port that IPv4 got may be taken in IPv6.
            io::ErrorKind::PermissionDenied => {
                Self::open_at(|| std::iter::repeat_n(0, 8), others, mark)
            }
            _ => Err(error),
        })
    }

    fn open_at<P: IntoIterator<Item = u16>>(
        ports: impl Fn() -> P,
        others: &[u16],
        mark: u32,
    ) -> io::Result<Self> {
        let door = |v4, v6| Door::open(v4, v6, ports(), others);
        Ok(Self {
            mark,
            inner: door(Ipv4Addr::LOCALHOST, Ipv6Addr::LOCALHOST)?,
            outer: door(Ipv4Addr::UNSPECIFIED, Ipv6Addr::UNSPECIFIED)?,
        })
    }

    /// Where to redirect connections to, and what the relay's own bear.
    pub fn ports(&self) -> RelayPorts {
        RelayPorts {
            inner: self.inner.port,
            outer: self.outer.port,
            mark: self.mark,
        }
    }
}

impl Agent {
    /// Relays for ever: programs' own connections, as many as the process has descriptors for, and
    /// from outside as many as leave half of the descriptors to those. `probe` is a destination at
    /// which nobody is: whoever connects to it says at which port he listens (two bytes), and is answered with the
    /// probe's port as a decimal line, which shows that the redirect works. If peers could not reach him, a text
    /// follows that says why.
    pub async fn serve_relay(self: Arc<Self>, relay: Relay, probe: SocketAddr) {
        let mark = relay.mark;
        let inner = Arc::clone(&self).serve_door(&relay.inner, Way::Out { probe, mark });
        let outer = self.serve_door(&relay.outer, Way::In { mark });
        tokio::join!(inner, outer);
    }

    /// Waits until nothing is on its way any more, for programs that have ended: what they wrote
    /// last shall arrive.
    pub async fn drain_relay(&self, ports: RelayPorts) {
        // Connections are accepted in turn: when ours has been, all before it have.
        for address in [
            IpAddr::from(Ipv4Addr::LOCALHOST),
            Ipv6Addr::LOCALHOST.into(),
        ] {
            if let Ok(stream) = TcpStream::connect((address, ports.inner)).await {
                let _ = stream.readable().await;
            }
        }
        self.drain().await;
    }

    /// Waits until no connection is relayed any more.
    pub async fn drain(&self) {
        let _ = self.relayed.subscribe().wait_for(|count| *count == 0).await;
    }

    async fn serve_door(self: Arc<Self>, door: &Door, way: Way) {
        let mut complaint = Complaint::default();
        loop {
            let (stream, from) = match door.accept().await {
                Ok(accepted) => accepted,
                Err(error) => {
                    // No descriptors left, most likely: others have to be given back first.
                    if complaint.is_due() {
                        tracing::warn!("redirected connections cannot be accepted: {error}");
                    }
                    tokio::time::sleep(Duration::from_millis(20)).await;
                    continue;
                }
            };
            let agent = Arc::clone(&self);
            let relaying = matches!(way, Way::Out { .. }).then(|| Relaying::new(&self));
            tokio::spawn(async move {
                agent.relay_connection(stream, from, way, relaying).await;
            });
        }
    }

    /// One redirected connection, to its end.
    async fn relay_connection(
        &self,
        stream: TcpStream,
        from: SocketAddr,
        way: Way,
        relaying: Option<Relaying>,
    ) {
        let to = match original::destination(&stream) {
            Ok(to) => to,
            Err(error) => {
                tracing::debug!(%from, "refused: this connection was not redirected: {error}");
                return reset(&stream);
            }
        };
        let (side, peer) = match way {
            Way::Out { probe, mark } if probe == to => {
                return answer_probe(stream, probe, mark).await;
            }
            Way::Out { .. } => (Side::Client, to),
            Way::In { .. } => (Side::Server, from),
        };
        let requester = Requester {
            side,
            carrier: Carrier::Relay,
            peer,
            pid: 0,
            uid: 0,
        };
        let mut place = None;
        let joined = match way {
            Way::Out { .. } => self.join_client(anywhere(to), to, &requester).await,
            Way::In { mark } => {
                self.join_server(&stream, to, mark, &requester, &mut place)
                    .await
            }
        };
        let (other, established) = match joined {
            Ok(joined) => joined,
            Err(why) => {
                self.on_refused(&requester, &why);
                return reset(&stream);
            }
        };
        let _relaying = relaying.unwrap_or_else(|| Relaying::new(self));
        let (clear, secure) = match side {
            Side::Client => (stream, other),
            Side::Server => (other, stream),
        };
        carry(clear, secure, established, requester.peer).await;
        drop(place);
    }

    /// A program wants to go `to`: the TLS connection there, `from` this address of ours.
    pub(super) async fn join_client(
        &self,
        from: SocketAddr,
        to: SocketAddr,
        requester: &Requester,
    ) -> Result<(TcpStream, Established), Failure> {
        let secure = dial(from, to).await?;
        let established = self.secure(&secure, requester).await?;
        Ok((secure, established))
    }

    /// A peer wants to reach a program here: its handshake first, then a place among those from
    /// outside and the way to the program, from the peer's address.
    async fn join_server(
        &self,
        peer: &TcpStream,
        to: SocketAddr,
        mark: u32,
        requester: &Requester,
        place: &mut Option<OwnedSemaphorePermit>,
    ) -> Result<(TcpStream, Established), Failure> {
        // A connection that this machine only forwards; the way on is not for clear bytes.
        if places::place(to)? == Place::Away {
            return Err(Failure::Elsewhere(to));
        }
        let established = self.secure(peer, requester).await?;
        *place = Some(self.place_from_outside()?);
        Ok((dial_as(requester.peer, to, mark).await?, established))
    }

    pub(super) async fn secure(
        &self,
        stream: &TcpStream,
        requester: &Requester,
    ) -> Result<Established, Failure> {
        stream.set_nodelay(true)?;
        // A peer that is gone without a word must not be waited for for ever.
        SockRef::from(stream).set_keepalive(true)?;
        let (established, admitted) = self.establish(stream, requester).await?;
        self.on_established(requester, &admitted);
        Ok(established)
    }
}

/// Whether peers can reach a program is found out before one waits for them.
async fn answer_probe(mut stream: TcpStream, probe: SocketAddr, mark: u32) {
    let trial = async {
        let port = stream.read_u16().await?;
        try_way_in(port, mark).await
    };
    let why = match timeout(TRIAL_TIMEOUT, trial).await {
        Ok(Ok(())) => String::new(),
        Ok(Err(why)) => why.to_string(),
        Err(_) => UNANSWERED.to_owned(),
    };
    let answer = format!("{}\n{why}", probe.port());
    let _ = stream.write_all(answer.as_bytes()).await;
}

/// A connection under way: a program's own from the first moment on, a peer's once it is joined.
pub(super) struct Relaying(watch::Sender<usize>);

impl Relaying {
    pub(super) fn new(agent: &Agent) -> Self {
        agent.relayed.send_modify(|count| *count += 1);
        Self(agent.relayed.clone())
    }
}

impl Drop for Relaying {
    fn drop(&mut self) {
        self.0.send_modify(|count| *count -= 1);
    }
}

/// Copies between a program and its peer, to the end.
pub(super) async fn carry(
    clear: TcpStream,
    secure: TcpStream,
    established: Established,
    peer: SocketAddr,
) {
    let spliced = match Stream::new(secure, established, Records::UserSpace) {
        Ok(secure) => splice(clear, secure).await.map_err(|broken| broken.error),
        Err(error) => Err(error),
    };
    if let Err(error) = spliced {
        match is_refusal(&error) {
            // It had to finish the handshake before it could judge us.
            true => REFUSED.say(error, |line| tracing::warn!(%peer, "{line}")),
            false => tracing::info!(%peer, "cut off: {error}"),
        }
    }
}

/// Of all relayed connections.
static REFUSED: LazyLock<RefusalLog> = LazyLock::new(RefusalLog::default);

/// Whether the peer says that it does not let us in.
fn is_refusal(error: &io::Error) -> bool {
    let session = error.get_ref().and_then(|inner| inner.downcast_ref());
    session.is_some_and(SessionError::is_refusal)
}

/// The other end shall see ECONNRESET.
pub(super) fn reset(stream: &impl AsFd) {
    let _ = SockRef::from(stream).set_linger(Some(Duration::ZERO));
}
