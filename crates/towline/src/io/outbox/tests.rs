use std::collections::VecDeque;
use std::os::fd::BorrowedFd;

use super::*;
use crate::io::socket::{ReceiveBatch, SocketInfo};

fn transmit(
    remote: SocketAddr,
    local_ip: Option<IpAddr>,
    segment_size: usize,
    len: usize,
) -> Transmit {
    Transmit {
        connection: None,
        remote,
        local_ip,
        ecn: None,
        segment_size,
        len,
        mtu_probe: false,
    }
}

/// A socket that answers each send from a script, then always with success.
struct Scripted {
    script: VecDeque<i32>,
    max_segments: usize,
    renewed: usize,
    /// (bytes, segment size, local address given) of every accepted train.
    sent: Vec<(usize, usize, bool)>,
    /// Every accepted datagram.
    datagrams: Vec<Vec<u8>>,
    refused: Vec<(usize, bool)>,
    /// Trains of each batch call that took some.
    batches: Vec<usize>,
}

impl Scripted {
    fn new(script: &[i32]) -> Self {
        Self {
            script: script.iter().copied().collect(),
            max_segments: 64,
            renewed: 0,
            sent: Vec::new(),
            datagrams: Vec::new(),
            refused: Vec::new(),
            batches: Vec::new(),
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
                let cut = train.contents.chunks(train.segment_size);
                self.datagrams.extend(cut.map(<[u8]>::to_vec));
                Ok(())
            }
            Some(errno) => {
                self.refused
                    .push((train.contents.len(), train.local_ip.is_some()));
                Err(io::Error::from_raw_os_error(errno))
            }
        }
    }

    /// As sendmmsg: stops before a train that is refused, whose error the next call tells.
    fn try_send_batch(&mut self, trains: &[Outgoing<'_>]) -> io::Result<usize> {
        assert!(trains.len() <= MAX_SEND_BATCH);
        let mut count = 0;
        for train in trains {
            if count > 0 && self.script.front().is_some_and(|errno| *errno != 0) {
                break;
            }
            self.try_send(train)?;
            count += 1;
        }
        self.batches.push(count);
        Ok(count)
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
        self.outbox.load(&transmit(peer(), local_ip, 1000, len));
    }

    fn flush(&mut self, millis: u64) -> io::Result<Flush> {
        let now = Time::from_nanos(millis * 1_000_000);
        let train = &self.train;
        self.outbox
            .flush(&mut self.socket, now, &mut self.stats, |_| train)
    }
}

/// Trains for several peers, each with its own bytes.
struct Crowd {
    outbox: Outbox,
    socket: Scripted,
    stats: SocketStats,
    trains: Vec<Vec<u8>>,
}

impl Crowd {
    /// `lengths` of trains cut every 1000 bytes; every byte says where it belongs.
    fn new(script: &[i32], lengths: &[usize]) -> Self {
        let mut outbox = Outbox::new();
        let mut trains = Vec::new();
        for (index, &len) in lengths.iter().enumerate() {
            let port = 5000 + index as u16;
            let remote = SocketAddr::from(([192, 0, 2, 7], port));
            outbox.load(&transmit(remote, None, 1000, len));
            trains.push((0..len).map(|at| (index * 67 + at / 1000) as u8).collect());
        }
        Self {
            outbox,
            socket: Scripted::new(script),
            stats: SocketStats::default(),
            trains,
        }
    }

    fn flush(&mut self) -> Flush {
        let trains = &self.trains;
        self.outbox
            .flush(&mut self.socket, Time::ZERO, &mut self.stats, |slot| {
                &trains[slot]
            })
            .unwrap()
    }

    /// All datagrams in the order they were loaded.
    fn datagrams(&self) -> Vec<Vec<u8>> {
        let cut = |train: &Vec<u8>| train.chunks(1000).map(<[u8]>::to_vec).collect::<Vec<_>>();
        self.trains.iter().flat_map(cut).collect()
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
    b.outbox.load(&transmit(peer(), None, 1200, 65_536));
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
    assert!(b.outbox.take_complaint());
    assert_eq!(b.socket.refused.len(), 1, "GSO is tried no more");
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
fn a_probe_that_is_too_big_is_an_answer_and_no_complaint() {
    let mut b = Bench::new(&[libc::EMSGSIZE]);
    b.outbox.load(&Transmit {
        mtu_probe: true,
        ..transmit(peer(), None, 1472, 1472)
    });
    assert_eq!(b.flush(0).unwrap(), Flush::Done);
    assert_eq!((b.stats.too_big, b.stats.datagrams_dropped), (0, 1));
    assert_eq!(b.outbox.too_big(), None);
    assert!(!b.outbox.take_complaint());
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

#[test]
fn trains_of_several_peers_leave_in_one_call_and_in_order() {
    let mut c = Crowd::new(&[], &[200, 2400, 1000, 50]);
    assert_eq!(c.flush(), Flush::Done);
    assert_eq!(c.socket.batches, [4]);
    assert_eq!(c.socket.datagrams, c.datagrams());
    assert_eq!(
        (
            c.stats.calls_sent,
            c.stats.trains_sent,
            c.stats.datagrams_sent
        ),
        (1, 4, 6)
    );
    assert!(c.outbox.is_empty());
}

#[test]
fn a_batch_the_socket_takes_half_of_goes_on_where_it_stopped() {
    let mut c = Crowd::new(&[0, 0, libc::EAGAIN], &[500, 1500, 2500, 900]);
    assert_eq!(c.flush(), Flush::Blocked);
    assert_eq!(c.stats.datagrams_sent, 3);
    assert_eq!(c.flush(), Flush::Done);
    assert_eq!(c.socket.batches, [2, 2]);
    assert_eq!(c.socket.datagrams, c.datagrams());
    assert_eq!(c.stats.datagrams_dropped, 0);
}

#[test]
fn an_error_inside_a_batch_costs_the_train_it_is_about() {
    let mut c = Crowd::new(&[0, libc::EHOSTUNREACH], &[500, 2500, 900]);
    assert_eq!(c.flush(), Flush::Done);
    let mut left = c.datagrams();
    left.drain(1..4);
    assert_eq!(c.socket.datagrams, left);
    assert_eq!(c.stats.datagrams_dropped, 3);
}

#[test]
fn gso_refused_inside_a_batch_loses_nothing_and_is_said_once() {
    let mut c = Crowd::new(&[0, libc::EIO], &[500, 2500, 900, 3000]);
    assert_eq!(c.flush(), Flush::Done);
    assert!(c.outbox.gso_refused());
    assert_eq!(c.socket.datagrams, c.datagrams());
    assert_eq!(
        c.socket.batches,
        [1, 7],
        "the single datagrams share a call"
    );
    assert!(c.outbox.take_complaint());
    assert!(!c.outbox.take_complaint());
}

#[test]
fn a_datagram_too_big_inside_a_batch_is_dropped_alone_and_said_once() {
    let e = libc::EMSGSIZE;
    // The second train is refused, then its datagrams but the last.
    let mut c = Crowd::new(&[0, e, e, e], &[500, 2500, 900]);
    assert_eq!(c.flush(), Flush::Done);
    let mut left = c.datagrams();
    left.drain(1..3);
    assert_eq!(c.socket.datagrams, left);
    assert_eq!(c.outbox.too_big(), Some(1000));
    assert!(c.outbox.take_complaint());
    assert_eq!(c.outbox.max_segments(&c.socket), 64, "GSO is kept");
}

#[test]
fn whatever_the_socket_says_each_datagram_is_sent_once_in_order_or_counted_as_dropped() {
    let errors = [
        0,
        0,
        0,
        0,
        libc::EAGAIN,
        libc::EINTR,
        libc::ENOBUFS,
        libc::EIO,
        libc::EINVAL,
        libc::EMSGSIZE,
        libc::ENETUNREACH,
    ];
    for seed in 1..=2000u64 {
        let mut state = seed;
        let mut random = |below: usize| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            (state >> 33) as usize % below
        };
        let script: Vec<i32> = (0..40).map(|_| errors[random(errors.len())]).collect();
        let lengths: Vec<usize> = (0..1 + random(MAX_SEND_BATCH))
            .map(|_| 1 + random(5000))
            .collect();
        let mut c = Crowd::new(&script, &lengths);
        let mut millis = 0;
        loop {
            millis += 1;
            let trains = &c.trains;
            let now = Time::from_nanos(millis * 1_000_000);
            let flush = c
                .outbox
                .flush(&mut c.socket, now, &mut c.stats, |slot| &trains[slot])
                .unwrap();
            if flush == Flush::Done {
                break;
            }
        }
        let mut all = c.datagrams().into_iter();
        for sent in &c.socket.datagrams {
            assert!(all.any(|d| d == *sent), "seed {seed}: out of order");
        }
        assert_eq!(
            c.stats.datagrams_sent + c.stats.datagrams_dropped,
            c.datagrams().len() as u64,
            "seed {seed}"
        );
    }
}

#[test]
fn datagrams_share_a_train_where_they_go_the_same_way() {
    let mut outbox = Outbox::new();
    let of = |remote, local_ip, len| transmit(remote, local_ip, len, len);
    assert!(!outbox.may_join(&of(peer(), None, 40)), "nothing is loaded");
    outbox.load(&of(peer(), None, 40));
    assert!(outbox.may_join(&of(peer(), None, 40)));
    let elsewhere = SocketAddr::new(peer().ip(), peer().port() + 1);
    assert!(!outbox.may_join(&of(elsewhere, None, 40)));
    assert!(!outbox.may_join(&of(peer(), Some(peer().ip()), 40)));
    assert!(!outbox.may_join(&transmit(peer(), None, 40, 80)));
    let marked = Transmit {
        ecn: Some(Ecn::Ect0),
        ..of(peer(), None, 40)
    };
    assert!(!outbox.may_join(&marked));
    outbox.join(40);
    let mut socket = Scripted::new(&[libc::EIO]);
    let bytes: Vec<u8> = [[1; 40], [2; 40]].concat();
    let flush = outbox
        .flush(&mut socket, Time::ZERO, &mut SocketStats::default(), |_| {
            &bytes
        })
        .unwrap();
    assert_eq!(flush, Flush::Done);
    assert_eq!(socket.datagrams, [[1; 40], [2; 40]], "one by one after EIO");

    outbox.load(&of(peer(), None, 1200));
    let big = of(peer(), None, 1200);
    assert!(!outbox.may_join(&big), "joined for little, copied for much");
}
