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
