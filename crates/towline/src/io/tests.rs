use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use towline_quic::Ecn;

use super::*;

fn bind(address: &str) -> UdpSocket {
    UdpSocket::bind(address.parse().unwrap(), &SocketOptions::default()).unwrap()
}

/// Receives until `wanted` bytes came, or two seconds have passed.
fn collect(socket: &mut UdpSocket, wanted: usize) -> Vec<(Incoming, Vec<u8>)> {
    let clock = Clock::start();
    let deadline = clock.now() + Duration::from_secs(2);
    let mut batch = ReceiveBatch::new();
    let mut got = Vec::new();
    let mut bytes = 0;
    while bytes < wanted {
        match socket.recv(&mut batch) {
            Ok(count) => {
                for (meta, train) in batch.trains(count) {
                    bytes += train.len();
                    got.push((meta, train.to_vec()));
                }
            }
            Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock),
        }
        if clock.now() > deadline {
            break;
        }
        std::thread::yield_now();
    }
    got
}

fn send(socket: &mut UdpSocket, remote: SocketAddr, segment_size: usize, contents: &[u8]) {
    socket
        .try_send(&Outgoing {
            remote,
            local_ip: None,
            ecn: Some(Ecn::Ect0),
            segment_size,
            contents,
        })
        .unwrap();
}

#[test]
fn a_train_keeps_its_ecn_mark_and_its_cuts_in_both_families() {
    for address in ["127.0.0.1:0", "[::1]:0"] {
        let (mut a, mut b) = (bind(address), bind(address));
        let contents: Vec<u8> = (0..2500u32).map(|i| i as u8).collect();
        send(&mut a, b.info().local_addr, 1200, &contents);
        let got = collect(&mut b, contents.len());
        let all: Vec<u8> = got.iter().flat_map(|(_, bytes)| bytes.clone()).collect();
        assert_eq!(all, contents);
        for (meta, _) in &got {
            assert_eq!(meta.ecn, Some(Ecn::Ect0), "{address}");
            assert_eq!(meta.remote, a.info().local_addr);
            assert_eq!(meta.local_ip, Some(b.info().local_addr.ip()));
            assert!(meta.stride == 1200 || meta.stride == meta.len);
        }
    }
}

#[test]
fn a_dual_stack_socket_shows_ipv4_peers_as_ipv4() {
    let mut dual = bind("[::]:0");
    let mut v4 = bind("127.0.0.1:0");
    let port = dual.info().local_addr.port();
    let dual_as_v4 = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    send(&mut v4, dual_as_v4, 5, b"hello");
    let got = collect(&mut dual, 5);
    assert_eq!(got[0].0.remote, v4.info().local_addr);
    assert_eq!(got[0].0.local_ip, Some(IpAddr::V4(Ipv4Addr::LOCALHOST)));

    dual.try_send(&Outgoing {
        remote: v4.info().local_addr,
        local_ip: got[0].0.local_ip,
        ecn: Some(Ecn::Ce),
        segment_size: 3,
        contents: b"hello",
    })
    .unwrap();
    let got = collect(&mut v4, 5);
    assert_eq!(got.last().unwrap().0.remote, dual_as_v4);
    assert_eq!(got.last().unwrap().0.ecn, Some(Ecn::Ce));
}

#[test]
fn without_gro_every_datagram_comes_alone() {
    let options = SocketOptions {
        gro: false,
        gso: false,
        ..SocketOptions::default()
    };
    let mut b = UdpSocket::bind("127.0.0.1:0".parse().unwrap(), &options).unwrap();
    assert_eq!(b.info().gro_segments, 1);
    assert_eq!(b.info().gso_segments, 1);
    assert_eq!(b.max_segments(), 1);
    let mut a = bind("127.0.0.1:0");
    send(&mut a, b.info().local_addr, 1000, &[1; 3000]);
    let got = collect(&mut b, 3000);
    assert_eq!(got.len(), 3);
    assert!(
        got.iter()
            .all(|(meta, _)| meta.len == 1000 && meta.stride == 1000)
    );
}

#[test]
fn a_port_in_use_is_an_error() {
    let a = bind("127.0.0.1:0");
    let again = UdpSocket::bind(a.info().local_addr, &SocketOptions::default());
    assert_eq!(again.unwrap_err().kind(), std::io::ErrorKind::AddrInUse);
}

#[test]
fn a_short_buffer_grant_comes_with_the_command_that_cures_it() {
    let mut info = SocketInfo::plain("127.0.0.1:1".parse().unwrap());
    assert_eq!(info.sysctl_advice(), None);
    info.recv_buffer = BufferGrant {
        asked: 4_194_304,
        granted: 212_992,
    };
    assert_eq!(
        info.sysctl_advice().unwrap(),
        "sysctl -w net.core.rmem_max=4194304"
    );
    info.send_buffer = info.recv_buffer;
    assert_eq!(
        info.sysctl_advice().unwrap(),
        "sysctl -w net.core.rmem_max=4194304 net.core.wmem_max=4194304"
    );
}

#[test]
fn a_description_that_contradicts_its_buffer_is_put_right() {
    let mut batch = ReceiveBatch::new();
    let claims = [(100, 0), (100, 5000), (1 << 20, 1200), (0, 0)];
    for ((_, meta), (len, stride)) in batch.slots().zip(claims) {
        meta.len = len;
        meta.stride = stride;
    }
    let seen: Vec<_> = batch
        .trains(claims.len())
        .map(|(meta, bytes)| (meta.len, meta.stride, bytes.len()))
        .collect();
    let full = RECEIVE_BUFFER_BYTES;
    assert_eq!(
        seen,
        [
            (100, 100, 100),
            (100, 100, 100),
            (full, 1200, full),
            (0, 0, 0)
        ]
    );
}

#[test]
fn the_clock_maps_both_ways() {
    let clock = Clock::start();
    let time = clock.now();
    let instant: Instant = clock.instant(time).unwrap();
    assert_eq!(clock.time(instant), time);
    assert_eq!(
        clock.time(instant + Duration::from_millis(5)),
        time + Duration::from_millis(5)
    );
}

#[test]
fn a_batch_reaches_every_peer_with_its_own_cuts_marks_and_source() {
    for address in ["127.0.0.1:0", "[::1]:0", "[::]:0"] {
        let mut from = bind(address);
        let mut port_only = from.info().local_addr;
        let dual = port_only.ip().is_unspecified();
        if dual {
            port_only.set_ip(IpAddr::V4(Ipv4Addr::LOCALHOST));
        }
        let near = if dual { "127.0.0.1:0" } else { address };
        let mut peers: Vec<_> = (0..5).map(|_| bind(near)).collect();
        let contents: Vec<Vec<u8>> = (0..5u8)
            .map(|i| {
                (0..600 * usize::from(i) + 100)
                    .map(|at| at as u8 ^ i)
                    .collect()
            })
            .collect();
        let marks = [None, Some(Ecn::Ect0), Some(Ecn::Ect1), Some(Ecn::Ce), None];
        let trains: Vec<_> = (0..5)
            .map(|i| Outgoing {
                remote: peers[i].info().local_addr,
                local_ip: (i % 2 == 0).then_some(port_only.ip()),
                ecn: marks[i],
                segment_size: 600,
                contents: &contents[i],
            })
            .collect();
        assert_eq!(from.try_send_batch(&trains).unwrap(), 5);
        for (i, peer) in peers.iter_mut().enumerate() {
            let got = collect(peer, contents[i].len());
            let all: Vec<u8> = got.iter().flat_map(|(_, bytes)| bytes.clone()).collect();
            assert_eq!(all, contents[i], "{address}");
            for (meta, _) in &got {
                assert_eq!(meta.ecn, marks[i], "{address}");
                assert_eq!(meta.remote, port_only);
                assert!(meta.stride == 600 || meta.stride == meta.len);
            }
        }
    }
}

#[test]
fn a_batch_stops_before_the_train_that_is_refused() {
    let mut from = bind("127.0.0.1:0");
    let peer_socket = bind("127.0.0.1:0");
    let peer = peer_socket.info().local_addr;
    let train = |local_ip: Option<IpAddr>| Outgoing {
        remote: peer,
        local_ip,
        ecn: None,
        segment_size: 5,
        contents: b"hello",
    };
    // An address of nobody's cannot be the source.
    let stranger = Some(IpAddr::from([192, 0, 2, 99]));
    let trains = [train(None), train(None), train(stranger), train(None)];
    assert_eq!(from.try_send_batch(&trains).unwrap(), 2);
    let error = from.try_send_batch(&trains[2..]).unwrap_err();
    assert!(
        matches!(
            error.raw_os_error(),
            Some(libc::EINVAL | libc::ENETUNREACH | libc::EADDRNOTAVAIL)
        ),
        "{error}"
    );
}

/// Runs `f` on a thread whose system refuses the calls of these numbers, as sandboxes do.
#[cfg(target_os = "linux")]
fn in_sandbox<R: Send>(refused: &[libc::c_long], f: impl FnOnce() -> R + Send) -> R {
    let line = |code: u32, jt: u8, k: u32| libc::sock_filter {
        code: code as u16,
        jt,
        jf: 0,
        k,
    };
    // The number of the call is what `seccomp_data` begins with.
    let mut program = vec![line(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0)];
    for (i, number) in refused.iter().enumerate() {
        let to_refusal = (refused.len() - i) as u8;
        let is_equal = libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K;
        program.push(line(is_equal, to_refusal, *number as u32));
    }
    let answer = libc::BPF_RET | libc::BPF_K;
    program.push(line(answer, 0, libc::SECCOMP_RET_ALLOW));
    let refusal = libc::SECCOMP_RET_ERRNO | libc::EPERM as u32;
    program.push(line(answer, 0, refusal));
    let enter = move || {
        let filter = libc::sock_fprog {
            len: program.len() as u16,
            filter: program.as_mut_ptr(),
        };
        // SAFETY: both calls concern this thread only; the second reads `filter` and the
        // program it points to, which outlive it.
        let entered = unsafe {
            libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
                && libc::prctl(
                    libc::PR_SET_SECCOMP,
                    libc::SECCOMP_MODE_FILTER,
                    &raw const filter,
                ) == 0
        };
        assert!(entered, "{}", std::io::Error::last_os_error());
        f()
    };
    std::thread::scope(|scope| scope.spawn(enter).join().unwrap())
}

#[cfg(target_os = "linux")]
#[test]
fn a_sandbox_without_sendmmsg_costs_calls_and_no_datagrams() {
    let mut from = bind("127.0.0.1:0");
    let mut peer = bind("127.0.0.1:0");
    let train = Outgoing {
        remote: peer.info().local_addr,
        local_ip: None,
        ecn: None,
        segment_size: 5,
        contents: b"hello",
    };
    let trains = [train; 3];
    let all = [libc::SYS_sendmmsg, libc::SYS_sendmsg];
    let refused = in_sandbox(&all, || from.try_send_batch(&trains));
    assert_eq!(refused.unwrap_err().raw_os_error(), Some(libc::EPERM));
    assert_eq!(from.try_send_batch(&trains).unwrap(), 3, "no lesson learnt");
    let sent = in_sandbox(&all[..1], || from.try_send_batch(&trains));
    assert_eq!(sent.unwrap(), 1);
    assert_eq!(from.try_send_batch(&trains).unwrap(), 1, "from then on");
    assert_eq!(collect(&mut peer, 25).len(), 5);
}

#[test]
fn what_a_socket_does_without_is_told_with_its_cost_and_cure() {
    let said = |info: &SocketInfo| -> Vec<String> {
        info.fallbacks()
            .map(|fallback| fallback.to_string())
            .collect()
    };
    let mut info = SocketInfo::plain("127.0.0.1:1".parse().unwrap());
    assert!(said(&info).is_empty(), "nothing was asked for");
    info.gso_asked = true;
    info.gro_asked = true;
    let lines = said(&info);
    assert_eq!(lines.len(), 2);
    assert!(lines[0].contains("GSO") && lines[0].contains("5 times"));
    assert!(lines[1].contains("GRO") && lines[1].contains("5 times"));
    info.gso_refused = true;
    info.gro_segments = 64;
    info.too_big = Some(1472);
    info.steering_refused = true;
    info.recv_buffer = BufferGrant {
        asked: 4_194_304,
        granted: 212_992,
    };
    let lines = said(&info);
    assert_eq!(lines.len(), 4, "{lines:?}");
    assert!(lines[0].contains("refused") && lines[0].contains("5 times"));
    assert!(lines[1].contains("1472") && lines[1].contains("--mtu"));
    assert!(lines[2].contains("208 instead of 4096 KiB"));
    assert!(lines[2].contains("net.core.rmem_max=4194304"));
    assert!(lines[3].contains("shards"));
    info.gso_refused = false;
    info.gso_segments = 64;
    assert_eq!(said(&info).len(), 3);
}

#[test]
fn a_datagram_too_big_is_told_with_what_happens_next_and_its_cure() {
    let line = Fallback::DatagramTooBig(1472).to_string();
    assert!(line.contains("go on with 1200 bytes") && line.contains("1.2 times"));
    assert!(line.contains("`perf --mtu`") && line.contains("`TransportConfig::mtu`"));
    // Nothing smaller is left to go on with, and no option of ours that cures it.
    let line = Fallback::DatagramTooBig(1200).to_string();
    assert!(line.contains("no connection") && !line.contains("--mtu"));
}

#[test]
fn a_buffer_the_system_cuts_short_is_a_fallback() {
    let options = SocketOptions {
        recv_buffer: 1 << 30,
        ..SocketOptions::default()
    };
    let socket = UdpSocket::bind("127.0.0.1:0".parse().unwrap(), &options).unwrap();
    let info = socket.info();
    assert!(info.recv_buffer.is_short());
    let buffer = Fallback::ReceiveBuffer(info.recv_buffer);
    assert!(info.fallbacks().any(|fallback| fallback == buffer));
}

#[test]
#[cfg(target_os = "linux")]
#[expect(
    clippy::disallowed_methods,
    reason = "the kernel's clock is what is asked"
)]
fn the_system_says_how_long_a_datagram_lay_in_the_socket() {
    const PAUSE: Duration = Duration::from_millis(30);
    let clock = Clock::start();
    for address in ["127.0.0.1:0", "[::1]:0"] {
        let (mut from, mut to) = (bind(address), bind(address));
        let train = Outgoing {
            remote: to.info().local_addr,
            local_ip: None,
            ecn: None,
            segment_size: 5,
            contents: b"hello",
        };
        // The kernel begins to note arrivals a moment after the first socket asked for it.
        let known = (0..100).any(|_| {
            let before = clock.now();
            from.try_send(&train).unwrap();
            std::thread::sleep(PAUSE);
            assert_eq!(to.recv(&mut ReceiveBatch::new()).unwrap(), 1);
            let waited = to.waited().expect("Linux knows");
            let longest = clock.now().saturating_duration_since(before);
            assert!(waited <= longest + PAUSE / 10, "{waited:?} of {longest:?}");
            waited >= PAUSE - PAUSE / 10
        });
        assert!(known, "{address}");
    }
}

/// Waits until a call on the socket tells of something, two seconds at most.
#[cfg(target_os = "linux")]
fn next_notice(socket: &mut UdpSocket) -> Option<Notice> {
    let clock = Clock::start();
    let deadline = clock.now() + Duration::from_secs(2);
    let mut batch = ReceiveBatch::new();
    while clock.now() < deadline {
        let _ = socket.recv(&mut batch);
        if let Some(notice) = socket.poll_notice() {
            return Some(notice);
        }
        std::thread::yield_now();
    }
    None
}

#[test]
#[cfg(target_os = "linux")]
fn what_a_socket_is_told_of_one_peer_keeps_no_datagram_from_another() {
    for address in ["127.0.0.1:0", "[::1]:0"] {
        let (mut from, mut to) = (bind(address), bind(address));
        let gone = bind(address).info().local_addr;
        assert_eq!(from.poll_notice(), None);
        for _ in 0..20 {
            // The system answers for the port that is gone before the next call.
            send(&mut from, gone, 5, b"hello");
            send(&mut from, to.info().local_addr, 5, b"hello");
        }
        assert_eq!(collect(&mut to, 100).len(), 20, "{address}");
        let mut told = 0;
        while from
            .poll_notice()
            .inspect(|n| assert_eq!(*n, Notice::Other))
            .is_some()
        {
            told += 1;
        }
        assert!(told > 0, "{address}");
        send(&mut from, gone, 5, b"hello");
        assert_eq!(next_notice(&mut from), Some(Notice::Other), "{address}");
        assert_eq!(from.poll_notice(), None, "{address}");
    }
}

#[test]
#[cfg(target_os = "linux")]
fn a_datagram_too_big_for_its_own_device_is_still_refused() {
    let (mut from, to) = (bind("127.0.0.1:0"), bind("127.0.0.1:0"));
    let too_big = Outgoing {
        remote: to.info().local_addr,
        local_ip: None,
        ecn: None,
        segment_size: 65_508,
        contents: &[7; 65_508],
    };
    let error = from.try_send(&too_big).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::EMSGSIZE));
    send(&mut from, to.info().local_addr, 5, b"hello");
    // Linux tells its own sockets as a router would.
    while let Some(notice) = from.poll_notice() {
        if let Notice::TooBig(too_big) = notice {
            assert_eq!(too_big.remote, to.info().local_addr);
            assert_eq!((too_big.mtu, &too_big.quoted[..4]), (65_507, &[7; 4][..]));
        }
    }
}
