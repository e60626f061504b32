//! Sockets whose datagrams cross simulated links.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use towline_quic::Ecn;
use towline_sim::{Datagram, LinkId, Network, TooBig};
use towline_wire::Time;

use crate::io::{
    Incoming, MAX_TRAIN_SEGMENTS, ManualClock, Notice, Outgoing, ReceiveBatch, Socket, SocketInfo,
};

/// A datagram that was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Sent {
    /// When.
    pub at: Time,
    /// By whom.
    pub source: SocketAddr,
    /// To whom.
    pub destination: SocketAddr,
    /// Bytes of UDP payload.
    pub len: usize,
}

/// The network and what it has delivered.
pub(super) struct Wire {
    pub(super) network: Network,
    inboxes: BTreeMap<SocketAddr, VecDeque<Datagram>>,
    /// What routers said, by whose datagrams it is of.
    notices: BTreeMap<SocketAddr, VecDeque<TooBig>>,
    /// The links between hosts that are joined with all their ports.
    links: BTreeMap<(IpAddr, IpAddr), LinkId>,
    /// Ports that have a route over such a link.
    routed: BTreeSet<(SocketAddr, SocketAddr)>,
    /// Endpoints that were made.
    pub(super) endpoints: u64,
    /// `None` where nobody asked for it.
    pub(super) trace: Option<Vec<Sent>>,
}

impl Wire {
    pub(super) fn new(seed: u64) -> Self {
        Self {
            network: Network::new(seed),
            inboxes: BTreeMap::new(),
            notices: BTreeMap::new(),
            links: BTreeMap::new(),
            routed: BTreeSet::new(),
            endpoints: 0,
            trace: None,
        }
    }

    /// Has all ports of one host reach all of another over `link`.
    pub(super) fn set_link(&mut self, source: IpAddr, destination: IpAddr, link: LinkId) {
        self.links.insert((source, destination), link);
        self.routed.clear();
    }

    pub(super) fn is_bound(&self, address: SocketAddr) -> bool {
        self.inboxes.contains_key(&address)
    }

    pub(super) fn is_readable(&self, own: SocketAddr) -> bool {
        let inbox = self.inboxes.get(&own);
        inbox.is_some_and(|inbox| !inbox.is_empty()) || self.notices.contains_key(&own)
    }

    /// Two ports get their route with the first datagram.
    fn find_route(&mut self, source: SocketAddr, remote: SocketAddr) {
        let destination = self.network.host_behind(remote);
        if let Some(link) = self.links.get(&(source.ip(), destination.ip()))
            && self.routed.insert((source, destination))
        {
            let routed = self.network.route(source, destination, &[*link]);
            routed.expect("a link of this network, named once");
        }
    }

    /// Puts what has arrived into the inboxes of the sockets that are there.
    pub(super) fn deliver(&mut self, now: Time) {
        while let Some(datagram) = self.network.poll_deliver(now) {
            if let Some(inbox) = self.inboxes.get_mut(&datagram.destination) {
                inbox.push_back(datagram);
            }
        }
        while let Some(notice) = self.network.poll_too_big(now) {
            if self.inboxes.contains_key(&notice.source) {
                let notices = self.notices.entry(notice.source).or_default();
                notices.push_back(notice);
            }
        }
    }
}

/// A socket of a [`VirtualNetwork`](super::VirtualNetwork). It is readable when its network says so.
pub struct SimulatedSocket {
    own: SocketAddr,
    wire: Arc<Mutex<Wire>>,
    clock: ManualClock,
}

impl SimulatedSocket {
    pub(super) fn new(own: SocketAddr, wire: Arc<Mutex<Wire>>, clock: ManualClock) -> Self {
        let socket = Self { own, wire, clock };
        socket.wire().inboxes.insert(own, VecDeque::new());
        socket
    }

    pub(super) fn is_readable(&self) -> bool {
        self.wire().is_readable(self.own)
    }

    fn wire(&self) -> MutexGuard<'_, Wire> {
        self.wire.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The two bits of the IP header (RFC 3168 §5).
fn bits_of(ecn: Ecn) -> u8 {
    match ecn {
        Ecn::Ect0 => 0b10,
        Ecn::Ect1 => 0b01,
        Ecn::Ce => 0b11,
    }
}

fn ecn_of(bits: u8) -> Option<Ecn> {
    match bits & 0b11 {
        0b10 => Some(Ecn::Ect0),
        0b01 => Some(Ecn::Ect1),
        0b11 => Some(Ecn::Ce),
        _ => None,
    }
}

impl fmt::Debug for SimulatedSocket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SimulatedSocket")
            .field("own", &self.own)
            .finish_non_exhaustive()
    }
}

impl Drop for SimulatedSocket {
    fn drop(&mut self) {
        let mut wire = self.wire();
        wire.inboxes.remove(&self.own);
        wire.notices.remove(&self.own);
    }
}

impl Socket for SimulatedSocket {
    fn recv(&mut self, batch: &mut ReceiveBatch) -> io::Result<usize> {
        let mut wire = self.wire();
        let inbox = wire.inboxes.entry(self.own).or_default();
        let mut count = 0;
        for (buffer, meta) in batch.slots() {
            let Some(datagram) = inbox.pop_front() else {
                break;
            };
            let len = datagram.payload.len().min(buffer.len());
            buffer[..len].copy_from_slice(&datagram.payload[..len]);
            *meta = Incoming {
                remote: datagram.source,
                local_ip: Some(self.own.ip()),
                ecn: datagram.ecn.and_then(ecn_of),
                len,
                stride: len,
            };
            count += 1;
        }
        match count {
            0 => Err(io::ErrorKind::WouldBlock.into()),
            count => Ok(count),
        }
    }

    fn try_send(&mut self, train: &Outgoing<'_>) -> io::Result<()> {
        let (now, own) = (self.clock.now(), self.own);
        let mut wire = self.wire();
        wire.find_route(own, train.remote);
        for payload in train.contents.chunks(train.segment_size.max(1)) {
            if let Some(trace) = &mut wire.trace {
                trace.push(Sent {
                    at: now,
                    source: own,
                    destination: train.remote,
                    len: payload.len(),
                });
            }
            let mut datagram = Datagram::new(own, train.remote, payload.to_vec());
            datagram.ecn = Some(train.ecn.map_or(0, bits_of));
            wire.network.send(now, datagram);
        }
        Ok(())
    }

    fn poll_notice(&mut self) -> Option<Notice> {
        let mut wire = self.wire();
        let notices = wire.notices.get_mut(&self.own)?;
        let notice = notices.pop_front();
        if notices.is_empty() {
            wire.notices.remove(&self.own);
        }
        notice.map(|notice| {
            Notice::TooBig(crate::io::TooBig {
                remote: notice.destination,
                mtu: notice.mtu,
                quoted: notice.quoted,
            })
        })
    }

    fn max_segments(&self) -> usize {
        MAX_TRAIN_SEGMENTS
    }

    fn renew(&mut self) -> io::Result<()> {
        Ok(())
    }

    fn info(&self) -> SocketInfo {
        SocketInfo::plain(self.own)
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}
