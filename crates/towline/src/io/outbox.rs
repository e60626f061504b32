//! What a refused send means: the one place that judges the errors of [`Socket::try_send`].
//!
//! Holds the trains that have not left yet, in order, and what was learnt about the socket
//! (GSO refused, a local address that is gone). Called by the shard only; it never
//! builds trains and never touches the engine. Most errors of UDP concern one
//! datagram and are treated as its loss, which loss recovery repairs. Several trains go
//! in one call; an error is always about the first of them that has not left.
//!
//! 1. WouldBlock: keep the trains, ask to be told when the socket is writable.
//! 2. ENOBUFS, ENOMEM: keep it and try again shortly; the socket *is* writable.
//! 3. EINVAL with a local address: send without it, and remember that address if that helped.
//! 4. EIO, EINVAL or EMSGSIZE of a train: its datagrams go one by one; where GSO was
//!    at fault it stays off for this socket.
//! 5. EMSGSIZE of one datagram: it is too big for the path; count and drop it, and note its
//!    connection, which must send smaller ones. Of a probe it is the answer, and nothing to say.
//! 6. EBADF and its like: the socket is unusable, the only error that is passed on.
//! 7. Anything else (unreachable, refused, filtered): count and drop.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use towline_quic::{ConnectionHandle, Ecn, Transmit};
use towline_wire::Time;

use super::socket::{MAX_SEND_BATCH, MAX_TRAIN_BYTES, Outgoing, Socket};
use super::stats::SocketStats;

/// Wait after ENOBUFS: the time a device queue of 64 full packets needs at 1 Gbit/s.
const NO_BUFFERS_RETRY: Duration = Duration::from_millis(1);
/// Retries after ENOBUFS before the train counts as lost.
const MAX_NO_BUFFERS_RETRIES: u32 = 16;

/// Bytes of a datagram that every path takes (RFC 9000 §14).
const LEAST_PATH: usize = 1200;

/// What became of the trains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Flush {
    /// Nothing is waiting any more.
    Done,
    /// The socket buffer is full: flush again when the socket is writable.
    Blocked,
    /// The system is out of buffers: flush again at this time.
    RetryAt(Time),
}

#[derive(Debug)]
struct Pending {
    connection: Option<ConnectionHandle>,
    remote: SocketAddr,
    local_ip: Option<IpAddr>,
    ecn: Option<Ecn>,
    segment_size: usize,
    len: usize,
    mtu_probe: bool,
    /// Bytes already sent or given up.
    done: usize,
    /// Send datagram by datagram from here on.
    one_by_one: bool,
    /// GSO is the suspect of an earlier refusal: a datagram that passes alone proves it.
    suspect_gso: bool,
    /// The local address dropped after EINVAL: if the next call passes, it was at fault.
    suspect_source: Option<IpAddr>,
    retries: u32,
}

impl Pending {
    /// The next bytes to send in one train; `bytes` are all of this train's.
    fn next<'a>(&self, bytes: &'a [u8], max_segments: usize, done: usize) -> Outgoing<'a> {
        let rest = bytes.get(done..self.len).unwrap_or_default();
        let segments = if self.one_by_one {
            1
        } else {
            max_segments.min((MAX_TRAIN_BYTES / self.segment_size).max(1))
        };
        Outgoing {
            remote: self.remote,
            local_ip: self.local_ip,
            ecn: self.ecn,
            segment_size: self.segment_size,
            contents: &rest[..rest.len().min(segments * self.segment_size)],
        }
    }

    /// What happens to the next call tells what an earlier refusal was about.
    fn is_suspicious(&self) -> bool {
        self.suspect_gso || self.suspect_source.is_some()
    }
}

/// The trains that wait, if any, and what this socket was found unable to do.
#[derive(Debug)]
pub(super) struct Outbox {
    pending: Vec<Pending>,
    /// The first of `pending` that has not left altogether.
    head: usize,
    retry_at: Option<Time>,
    gso_refused: bool,
    /// The smallest datagram that was too big.
    too_big: Option<usize>,
    /// Connections whose datagrams of a size were too big, not yet told.
    shrink: Vec<(ConnectionHandle, usize)>,
    /// Something was learnt that the user should hear of.
    news: bool,
    /// A local address the kernel no longer accepts as source.
    bad_source: Option<IpAddr>,
    /// A send was refused as it is when the socket's own address is no more.
    address_in_doubt: bool,
    complained: bool,
}

impl Outbox {
    pub(super) fn new() -> Self {
        Self {
            pending: Vec::new(),
            head: 0,
            retry_at: None,
            gso_refused: false,
            too_big: None,
            shrink: Vec::new(),
            news: false,
            bad_source: None,
            address_in_doubt: false,
            complained: false,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.pending.is_empty()
    }

    /// Trains loaded since the outbox was last empty: the slot of the next one.
    pub(super) fn len(&self) -> usize {
        self.pending.len()
    }

    /// When a train refused for want of buffers wants to be tried again.
    pub(super) fn retry_at(&self) -> Option<Time> {
        self.retry_at
    }

    pub(super) fn gso_refused(&self) -> bool {
        self.gso_refused
    }

    /// Bytes of the smallest datagram that was too big for the path, if one was.
    pub(super) fn too_big(&self) -> Option<usize> {
        self.too_big
    }

    /// A connection that must send smaller datagrams than of this size.
    pub(super) fn next_to_shrink(&mut self) -> Option<(ConnectionHandle, usize)> {
        self.shrink.pop()
    }

    /// Whether there is something new to complain of.
    pub(super) fn take_complaint(&mut self) -> bool {
        std::mem::take(&mut self.news)
    }

    /// Whether sends were refused as they are when the socket's own address is no more.
    pub(super) fn take_address_in_doubt(&mut self) -> bool {
        std::mem::take(&mut self.address_in_doubt)
    }

    /// The socket is another one: what was learnt about the one before may not hold.
    pub(super) fn on_new_socket(&mut self) {
        *self = Self::new();
    }

    /// Datagrams a train may have from now on.
    pub(super) fn max_segments(&self, socket: &impl Socket) -> usize {
        if self.gso_refused {
            1
        } else {
            socket.max_segments().max(1)
        }
    }

    /// Takes a train of `len` bytes, to be sent by `flush`. Not after a flush that was not `Done`.
    pub(super) fn load(&mut self, transmit: &Transmit) {
        debug_assert!(self.head == 0, "a batch is sent before the next is loaded");
        let Transmit {
            connection,
            remote,
            local_ip,
            ecn,
            segment_size,
            len,
            mtu_probe,
        } = *transmit;
        self.pending.push(Pending {
            connection,
            remote,
            local_ip: self.usable_source(local_ip),
            ecn,
            segment_size: segment_size.max(1),
            len,
            mtu_probe,
            done: 0,
            one_by_one: false,
            suspect_gso: false,
            suspect_source: None,
            retries: 0,
        });
    }

    /// A source address, unless the system refused it.
    fn usable_source(&self, ip: Option<IpAddr>) -> Option<IpAddr> {
        ip.filter(|ip| self.bad_source != Some(*ip))
    }

    /// Whether a datagram may share the train loaded last: it goes the same way and is smaller than
    /// what every path carries, so that no connection has to hear that it was too big, and little
    /// is copied.
    pub(super) fn may_join(&self, transmit: &Transmit) -> bool {
        self.pending.last().is_some_and(|last| {
            last.remote == transmit.remote
                && last.local_ip == self.usable_source(transmit.local_ip)
                && last.ecn == transmit.ecn
                && transmit.len == transmit.segment_size
                && last.segment_size < LEAST_PATH
        })
    }

    /// Another `len` bytes joined the train loaded last.
    pub(super) fn join(&mut self, len: usize) {
        if let Some(last) = self.pending.last_mut() {
            last.len += len;
            last.connection = None;
        }
    }

    /// Sends what is loaded; `bytes` gives those of a slot.
    ///
    /// # Errors
    /// Only when the socket itself is unusable.
    pub(super) fn flush<'a, S: Socket>(
        &mut self,
        socket: &mut S,
        now: Time,
        stats: &mut SocketStats,
        bytes: impl Fn(usize) -> &'a [u8],
    ) -> io::Result<Flush> {
        if let Some(at) = self.retry_at {
            if now < at {
                return Ok(Flush::RetryAt(at));
            }
            self.retry_at = None;
        }
        while self.head < self.pending.len() {
            let pending = &self.pending[self.head];
            let of_head = bytes(self.head);
            let max_segments = self.max_segments(socket);
            let first = pending.next(of_head, max_segments, pending.done);
            if first.contents.is_empty() {
                self.head += 1;
                continue;
            }
            let alone = pending.is_suspicious()
                || (self.head + 1 == self.pending.len()
                    && pending.done + first.contents.len() >= pending.len.min(of_head.len()));
            let result = if alone {
                socket.try_send(&first).map(|()| {
                    stats.calls_sent += 1;
                    self.on_sent(&first, stats);
                })
            } else {
                let mut batch = [first; MAX_SEND_BATCH];
                let count = self.fill(&mut batch, max_segments, &bytes);
                socket.try_send_batch(&batch[..count]).map(|sent| {
                    stats.calls_sent += 1;
                    for train in &batch[..sent.clamp(1, count)] {
                        self.on_sent(train, stats);
                    }
                })
            };
            if let Err(error) = result
                && let Some(flush) = self.on_error(socket, now, &first, error, stats)?
            {
                return Ok(flush);
            }
        }
        self.clear();
        Ok(Flush::Done)
    }

    /// Cuts the waiting trains for one call; says into how many.
    fn fill<'a>(
        &self,
        batch: &mut [Outgoing<'a>; MAX_SEND_BATCH],
        max_segments: usize,
        bytes: &impl Fn(usize) -> &'a [u8],
    ) -> usize {
        let mut count = 0;
        for (slot, pending) in self.pending.iter().enumerate().skip(self.head) {
            let of_slot = bytes(slot);
            let mut done = pending.done;
            loop {
                let next = pending.next(of_slot, max_segments, done);
                if next.contents.is_empty() {
                    break;
                }
                if count == batch.len() {
                    return count;
                }
                done += next.contents.len();
                batch[count] = next;
                count += 1;
            }
        }
        count
    }

    /// The next train of the batch has left: it is at the head, or begins the one behind it.
    fn on_sent(&mut self, train: &Outgoing<'_>, stats: &mut SocketStats) {
        while self.head + 1 < self.pending.len()
            && self.pending[self.head].done >= self.pending[self.head].len
        {
            self.head += 1;
        }
        let pending = &mut self.pending[self.head];
        stats.trains_sent += 1;
        stats.datagrams_sent += train.contents.len().div_ceil(train.segment_size) as u64;
        stats.bytes_sent += train.contents.len() as u64;
        if let Some(ip) = pending.suspect_source.take() {
            tracing::info!(%ip, "the system refuses this local address as source; leaving the choice to it");
            self.bad_source = Some(ip);
        }
        if pending.suspect_gso && train.contents.len() <= train.segment_size {
            pending.suspect_gso = false;
            self.news |= !self.gso_refused;
            self.gso_refused = true;
        }
        pending.done += train.contents.len();
        pending.retries = 0;
    }

    /// The train at the head, of which `first` was tried, was refused.
    fn on_error(
        &mut self,
        socket: &mut impl Socket,
        now: Time,
        first: &Outgoing<'_>,
        error: io::Error,
        stats: &mut SocketStats,
    ) -> io::Result<Option<Flush>> {
        let pending = &mut self.pending[self.head];
        let len = first.contents.len();
        let single = len <= pending.segment_size;
        if error.kind() == io::ErrorKind::Interrupted {
            return Ok(None);
        }
        if error.kind() == io::ErrorKind::WouldBlock {
            stats.send_blocked += 1;
            return Ok(Some(Flush::Blocked));
        }
        match error.raw_os_error() {
            Some(libc::ENOBUFS | libc::ENOMEM) => {
                stats.no_buffers += 1;
                if pending.retries < MAX_NO_BUFFERS_RETRIES {
                    pending.retries += 1;
                    let at = now + NO_BUFFERS_RETRY;
                    self.retry_at = Some(at);
                    return Ok(Some(Flush::RetryAt(at)));
                }
                // The device is stuck: give up the whole train rather than wait for each part.
                let rest = pending.len - pending.done;
                stats.datagrams_dropped += rest.div_ceil(pending.segment_size) as u64;
                pending.done = pending.len;
            }
            Some(libc::EINVAL) if pending.local_ip.is_some() => {
                pending.suspect_source = pending.local_ip.take();
                renew(socket);
            }
            Some(libc::EINVAL) if !single => {
                pending.suspect_source = None;
                pending.suspect_gso = true;
                pending.one_by_one = true;
                renew(socket);
            }
            Some(libc::EIO) if !single => {
                self.news |= !self.gso_refused;
                self.gso_refused = true;
                pending.one_by_one = true;
            }
            Some(libc::EMSGSIZE) if !single => {
                pending.one_by_one = true;
            }
            Some(libc::EMSGSIZE) => {
                // Size, not offload, was what the system disliked about the train.
                pending.suspect_gso = false;
                pending.done += len;
                stats.datagrams_dropped += 1;
                if !pending.mtu_probe {
                    stats.too_big += 1;
                    self.news |= self.too_big.is_none();
                    self.too_big = Some(self.too_big.map_or(len, |least| least.min(len)));
                }
                // The other datagrams of its train say nothing more.
                if let Some(connection) = pending.connection.take() {
                    self.shrink.push((connection, len));
                }
            }
            Some(libc::EBADF | libc::ENOTSOCK | libc::EFAULT) => {
                self.clear();
                return Err(error);
            }
            _ => {
                pending.suspect_source = None;
                self.address_in_doubt |= is_of_a_lost_address(&error);
                stats.send_errors += 1;
                stats.datagrams_dropped += len.div_ceil(pending.segment_size) as u64;
                pending.done += len;
                if !self.complained {
                    self.complained = true;
                    tracing::warn!(remote = %first.remote, %error, "a send was refused; treated as loss (said once per socket)");
                }
            }
        }
        Ok(None)
    }

    fn clear(&mut self) {
        self.pending.clear();
        self.head = 0;
    }
}

/// What Linux says to a socket whose address was removed (EINVAL), and others.
fn is_of_a_lost_address(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(libc::EINVAL | libc::EADDRNOTAVAIL | libc::ENETUNREACH)
    )
}

fn renew(socket: &mut impl Socket) {
    if let Err(error) = socket.renew() {
        tracing::debug!(%error, "could not renew the socket state");
    }
}

#[cfg(test)]
mod tests;
