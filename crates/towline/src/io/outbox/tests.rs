use std::collections::VecDeque;
use std::os::fd::BorrowedFd;

use super::*;
use crate::io::socket::{ReceiveBatch, SocketInfo};

/// A socket that answers each send from a script, then always with success.
struct Scripted {
    script: VecDeque<i32>,
    max_segments: usize,
    renewed: usize,
    /// (bytes, segment size, local address given) of every accepted call.
    sent: Vec<(usize, usize, bool)>,
    refused: Vec<(usize, bool)>,
}

impl Scripted {
    fn new(script: &[i32]) -> Self {
        Self {
            script: script.iter().copied().collect(),
            max_segments: 64,
            renewed: 0,
            sent: Vec::new(),
            refused: Vec::new(),
        }
    }

    fn bytes(&self) -> usize {
        self.sent.iter().map(|sent| sent.0).sum()
    }
}

impl Socket for Scripted {
    fn recv(&mut self, _: &mut ReceiveBatch) -> io::Result<usize> {
        Err(io::ErrorKind::WouldBlock.into())
    }

    fn try_send(&mut self, train: &Outgoing<'_>) -> io::Result<()> {
        assert!(train.contents.len() <= MAX_TRAIN_BYTES);
        assert!(train.contents.len().div_ceil(train.segment_size) <= self.max_segments);
        match self.script.pop_front() {
            None | Some(0) => {
                self.sent.push((
                    train.contents.len(),
                    train.segment_size,
                    train.local_ip.is_some(),
                ));
                Ok(())
            }
            Some(errno) => {
                self.refused
                    .push((train.contents.len(), train.local_ip.is_some()));
                Err(io::Error::from_raw_os_error(errno))
            }
        }
    }

    fn max_segments(&self) -> usize {
        self.max_segments
    }

    fn renew(&mut self) -> io::Result<()> {
        self.renewed += 1;
        Ok(())
    }

    fn info(&self) -> SocketInfo {
        SocketInfo::plain(peer())
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}

fn peer() -> SocketAddr {
    SocketAddr::from(([192, 0, 2, 1], 4433))
}

fn source() -> Option<IpAddr> {
    Some(IpAddr::from([198, 51, 100, 7]))
}

struct Bench {
    outbox: Outbox,
    socket: Scripted,
    stats: SocketStats,
    train: Vec<u8>,
}

impl Bench {
    fn new(script: &[i32]) -> Self {
        Self {
            outbox: Outbox::new(),
            socket: Scripted::new(script),
            stats: SocketStats::default(),
            train: vec![7; 1 << 16],
        }
    }

    fn load(&mut self, local_ip: Option<IpAddr>, len: usize) {
        self.outbox.load(peer(), local_ip, None, 1000, len);
    }

    fn flush(&mut self, millis: u64) -> io::Result<Flush> {
        let now = Time::from_nanos(millis * 1_000_000);
        self.outbox
            .flush(&mut self.socket, now, &self.train, &mut self.stats)
    }
}

#[test]
fn a_train_leaves_in_one_call() {
    let mut b = Bench::new(&[]);
    b.load(source(), 10_400);
    assert_eq!(b.flush(0).unwrap(), Flush::Done);
    assert_eq!(b.socket.sent, [(10_400, 1000, true)]);
    assert_eq!(b.stats.datagrams_sent, 11);
    assert!(b.outbox.is_empty());
}

#[test]
fn a_train_longer_than_the_socket_allows_is_cut() {
    let mut b = Bench::new(&[]);
    b.socket.max_segments = 4;
    b.load(None, 10_000);
    assert_eq!(b.flush(0).unwrap(), Flush::Done);
    assert_eq!(
        b.socket.sent,
        [
            (4000, 1000, false),
            (4000, 1000, false),
            (2000, 1000, false)
        ]
    );
}

#[test]
fn a_train_never_exceeds_the_largest_udp_payload() {
    let mut b = Bench::new(&[]);
    b.outbox.load(peer(), None, None, 1200, 65_536);
    assert_eq!(b.flush(0).unwrap(), Flush::Done);
    assert_eq!(b.socket.sent, [(64_800, 1200, false), (736, 1200, false)]);
}

#[test]
fn a_full_socket_keeps_the_train_and_loses_nothing() {
    let mut b = Bench::new(&[0, libc::EAGAIN]);
    b.socket.max_segments = 4;
    b.load(None, 10_000);
    assert_eq!(b.flush(0).unwrap(), Flush::Blocked);
    assert_eq!(b.socket.bytes(), 4000);
    assert!(!b.outbox.is_empty());
    assert_eq!(b.flush(1).unwrap(), Flush::Done);
    assert_eq!(b.socket.bytes(), 10_000);
    assert_eq!(b.stats.send_blocked, 1);
    assert_eq!(b.stats.datagrams_dropped, 0);
}

#[test]
fn no_buffers_is_tried_again_after_a_wait_not_at_once() {
    let mut b = Bench::new(&[libc::ENOBUFS]);
    b.load(None, 3000);
    let at = Time::from_nanos(1_000_000);
    assert_eq!(b.flush(0).unwrap(), Flush::RetryAt(at));
    assert_eq!(b.outbox.retry_at(), Some(at));
    let calls = b.socket.refused.len();
    assert_eq!(b.flush(0).unwrap(), Flush::RetryAt(at));
    assert_eq!(b.socket.refused.len(), calls, "no call before its time");
    assert_eq!(b.flush(1).unwrap(), Flush::Done);
    assert_eq!(b.socket.bytes(), 3000);
    assert_eq!(b.outbox.retry_at(), None);
}

#[test]
fn a_device_stuck_without_buffers_costs_one_train_not_the_shard() {
    let mut b = Bench::new(&vec![libc::ENOBUFS; 1 + MAX_NO_BUFFERS_RETRIES as usize]);
    b.load(None, 3000);
    let mut millis = 0;
    while matches!(b.flush(millis).unwrap(), Flush::RetryAt(_)) {
        millis += 1;
    }
    assert_eq!(millis, u64::from(MAX_NO_BUFFERS_RETRIES));
    assert!(b.outbox.is_empty());
    assert_eq!(b.stats.datagrams_dropped, 3);
}

#[test]
fn eio_of_a_train_turns_gso_off_once_and_sends_every_datagram() {
    let mut b = Bench::new(&[libc::EIO]);
    b.load(None, 3500);
    assert_eq!(b.flush(0).unwrap(), Flush::Done);
    assert_eq!(
        b.socket.sent.iter().map(|s| s.0).collect::<Vec<_>>(),
        [1000, 1000, 1000, 500]
    );
    assert!(b.outbox.gso_refused());
    assert_eq!(b.outbox.max_segments(&b.socket), 1);
    assert_eq!(b.stats.datagrams_dropped, 0);
}

#[test]
fn einval_of_a_train_blames_gso_only_if_a_single_datagram_passes() {
    let mut b = Bench::new(&[libc::EINVAL]);
    b.load(None, 3000);
    assert_eq!(b.flush(0).unwrap(), Flush::Done);
    assert!(b.outbox.gso_refused());
    assert_eq!(b.socket.renewed, 1, "ECN marking must survive");

    let e = libc::EMSGSIZE;
    let mut b = Bench::new(&[libc::EINVAL, e, e, e]);
    b.load(None, 3000);
    assert_eq!(b.flush(0).unwrap(), Flush::Done);
    assert!(!b.outbox.gso_refused(), "the datagrams were too big");
    assert_eq!(b.stats.too_big, 3);
}

#[test]
fn a_vanished_local_address_is_given_up_and_gso_is_kept() {
    let mut b = Bench::new(&[libc::EINVAL]);
    b.load(source(), 3000);
    assert_eq!(b.flush(0).unwrap(), Flush::Done);
    assert_eq!(b.socket.sent, [(3000, 1000, false)]);
    assert!(!b.outbox.gso_refused());
    b.load(source(), 2000);
    assert_eq!(b.flush(0).unwrap(), Flush::Done);
    assert_eq!(b.socket.refused.len(), 1, "not asked for again");
}

#[test]
fn a_datagram_too_big_for_the_path_is_dropped_alone() {
    let e = libc::EMSGSIZE;
    let mut b = Bench::new(&[e, 0, e, 0]);
    b.load(None, 3000);
    assert_eq!(b.flush(0).unwrap(), Flush::Done);
    assert_eq!(b.stats.too_big, 1);
    assert_eq!(b.stats.datagrams_sent, 2);
    assert!(!b.outbox.gso_refused());
    b.load(None, 3000);
    assert_eq!(b.flush(0).unwrap(), Flush::Done);
    assert_eq!(b.socket.sent.last().unwrap().0, 3000, "trains go on");
}

#[test]
fn an_unreachable_peer_is_not_fatal() {
    for errno in [
        libc::ENETUNREACH,
        libc::EHOSTUNREACH,
        libc::ECONNREFUSED,
        libc::EPERM,
        libc::EACCES,
        libc::ENETDOWN,
        libc::EADDRNOTAVAIL,
        libc::EAFNOSUPPORT,
    ] {
        let mut b = Bench::new(&[errno]);
        b.load(None, 3000);
        assert_eq!(b.flush(0).unwrap(), Flush::Done);
        assert_eq!(b.stats.datagrams_dropped, 3);
        assert_eq!(b.stats.send_errors, 1);
    }
}

#[test]
fn an_interrupted_call_is_repeated() {
    let mut b = Bench::new(&[libc::EINTR]);
    b.load(None, 3000);
    assert_eq!(b.flush(0).unwrap(), Flush::Done);
    assert_eq!(b.socket.bytes(), 3000);
    assert_eq!(b.stats.datagrams_dropped, 0);
}

#[test]
fn a_closed_descriptor_is_reported() {
    let mut b = Bench::new(&[libc::EBADF]);
    b.load(None, 3000);
    assert!(b.flush(0).is_err());
    assert!(b.outbox.is_empty());
}
