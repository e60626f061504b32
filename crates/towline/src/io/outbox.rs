//! What a refused send means: the one place that judges the errors of [`Socket::try_send`].
//!
//! Holds the train that could not leave yet and what was learnt about the socket
//! (GSO refused, a local address that is gone). Called by the shard only; it never
//! builds trains and never touches the engine. Most errors of UDP concern one
//! datagram and are treated as its loss, which loss recovery repairs.
//!
//! 1. WouldBlock: keep the train, ask to be told when the socket is writable.
//! 2. ENOBUFS, ENOMEM: keep it and try again shortly; the socket *is* writable.
//! 3. EINVAL with a local address: send without it, and remember that address if that helped.
//! 4. EIO, EINVAL or EMSGSIZE of a train: its datagrams go one by one; where GSO was
//!    at fault it stays off for this socket.
//! 5. EMSGSIZE of one datagram: it is too big for the path; count and drop it.
//! 6. EBADF and its like: the socket is unusable, the only error that is passed on.
//! 7. Anything else (unreachable, refused, filtered): count and drop.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use towline_quic::Ecn;
use towline_wire::Time;

use super::socket::{MAX_TRAIN_BYTES, Outgoing, Socket};
use super::stats::SocketStats;

/// Wait after ENOBUFS: the time a device queue of 64 full packets needs at 1 Gbit/s.
const NO_BUFFERS_RETRY: Duration = Duration::from_millis(1);
/// Retries after ENOBUFS before the train counts as lost.
const MAX_NO_BUFFERS_RETRIES: u32 = 16;

/// What became of the train.
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
    remote: SocketAddr,
    local_ip: Option<IpAddr>,
    ecn: Option<Ecn>,
    segment_size: usize,
    len: usize,
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

/// The train that waits, if any, and what this socket was found unable to do.
#[derive(Debug)]
pub(super) struct Outbox {
    pending: Option<Pending>,
    retry_at: Option<Time>,
    gso_refused: bool,
    /// A local address the kernel no longer accepts as source.
    bad_source: Option<IpAddr>,
    complained: bool,
}

impl Outbox {
    pub(super) fn new() -> Self {
        Self {
            pending: None,
            retry_at: None,
            gso_refused: false,
            bad_source: None,
            complained: false,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.pending.is_none()
    }

    /// When a train refused for want of buffers wants to be tried again.
    pub(super) fn retry_at(&self) -> Option<Time> {
        self.retry_at
    }

    pub(super) fn gso_refused(&self) -> bool {
        self.gso_refused
    }

    /// Datagrams a train may have from now on.
    pub(super) fn max_segments(&self, socket: &impl Socket) -> usize {
        if self.gso_refused {
            1
        } else {
            socket.max_segments().max(1)
        }
    }

    /// Takes a train of `len` bytes, to be sent by `flush`. The outbox must be empty.
    pub(super) fn load(
        &mut self,
        remote: SocketAddr,
        local_ip: Option<IpAddr>,
        ecn: Option<Ecn>,
        segment_size: usize,
        len: usize,
    ) {
        debug_assert!(self.is_empty(), "one train at a time");
        self.pending = Some(Pending {
            remote,
            local_ip: local_ip.filter(|ip| self.bad_source != Some(*ip)),
            ecn,
            segment_size: segment_size.max(1),
            len,
            done: 0,
            one_by_one: false,
            suspect_gso: false,
            suspect_source: None,
            retries: 0,
        });
    }

    /// Sends what is loaded; `train` holds its bytes.
    ///
    /// # Errors
    /// Only when the socket itself is unusable.
    pub(super) fn flush<S: Socket>(
        &mut self,
        socket: &mut S,
        now: Time,
        train: &[u8],
        stats: &mut SocketStats,
    ) -> io::Result<Flush> {
        if let Some(at) = self.retry_at {
            if now < at {
                return Ok(Flush::RetryAt(at));
            }
            self.retry_at = None;
        }
        let max_segments = self.max_segments(socket);
        let Some(pending) = &mut self.pending else {
            return Ok(Flush::Done);
        };
        let end = pending.len.min(train.len());
        while pending.done < end {
            let rest = &train[pending.done..end];
            let segments = if pending.one_by_one {
                1
            } else {
                max_segments.min((MAX_TRAIN_BYTES / pending.segment_size).max(1))
            };
            let contents = &rest[..rest.len().min(segments * pending.segment_size)];
            let single = contents.len() <= pending.segment_size;
            let sent = socket.try_send(&Outgoing {
                remote: pending.remote,
                local_ip: pending.local_ip,
                ecn: pending.ecn,
                segment_size: pending.segment_size,
                contents,
            });
            let error = match sent {
                Ok(()) => {
                    stats.calls_sent += 1;
                    stats.datagrams_sent += contents.len().div_ceil(pending.segment_size) as u64;
                    stats.bytes_sent += contents.len() as u64;
                    if let Some(ip) = pending.suspect_source.take() {
                        tracing::info!(%ip, "the system refuses this local address as source; leaving the choice to it");
                        self.bad_source = Some(ip);
                    }
                    if pending.suspect_gso && single {
                        refuse_gso(&mut self.gso_refused);
                        pending.suspect_gso = false;
                    }
                    pending.done += contents.len();
                    pending.retries = 0;
                    continue;
                }
                Err(error) => error,
            };
            if error.kind() == io::ErrorKind::Interrupted {
                continue;
            }
            if error.kind() == io::ErrorKind::WouldBlock {
                stats.send_blocked += 1;
                return Ok(Flush::Blocked);
            }
            match error.raw_os_error() {
                Some(libc::ENOBUFS | libc::ENOMEM) => {
                    stats.no_buffers += 1;
                    if pending.retries < MAX_NO_BUFFERS_RETRIES {
                        pending.retries += 1;
                        let at = now + NO_BUFFERS_RETRY;
                        self.retry_at = Some(at);
                        return Ok(Flush::RetryAt(at));
                    }
                    // The device is stuck: give up the whole train rather than wait for each part.
                    stats.datagrams_dropped += rest.len().div_ceil(pending.segment_size) as u64;
                    pending.done = end;
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
                    refuse_gso(&mut self.gso_refused);
                    pending.one_by_one = true;
                }
                Some(libc::EMSGSIZE) if !single => {
                    pending.one_by_one = true;
                }
                Some(libc::EMSGSIZE) => {
                    // Size, not offload, was what the system disliked about the train.
                    pending.suspect_gso = false;
                    stats.too_big += 1;
                    stats.datagrams_dropped += 1;
                    pending.done += contents.len();
                }
                Some(libc::EBADF | libc::ENOTSOCK | libc::EFAULT) => {
                    self.pending = None;
                    return Err(error);
                }
                _ => {
                    pending.suspect_source = None;
                    stats.send_errors += 1;
                    stats.datagrams_dropped += contents.len().div_ceil(pending.segment_size) as u64;
                    if !self.complained {
                        self.complained = true;
                        tracing::warn!(remote = %pending.remote, %error, "a send was refused; treated as loss (said once per socket)");
                    }
                    pending.done += contents.len();
                }
            }
        }
        self.pending = None;
        Ok(Flush::Done)
    }
}

fn refuse_gso(refused: &mut bool) {
    if !*refused {
        *refused = true;
        tracing::info!("the system refuses UDP segmentation offload; sending datagrams one by one");
    }
}

fn renew(socket: &mut impl Socket) {
    if let Err(error) = socket.renew() {
        tracing::debug!(%error, "could not renew the socket state");
    }
}

#[cfg(test)]
mod tests;
