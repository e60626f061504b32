use std::net::SocketAddr;
use std::time::Duration;

use super::*;
use crate::io::{Clock, ReceiveBatch, Socket, SocketOptions, UdpSocket, bind_shards};

/// What a classic BPF filter returns for a packet: the few instructions steering uses.
#[cfg(target_os = "linux")]
fn interpret(program: &[libc::sock_filter], packet: &[u8]) -> u32 {
    const LOAD: u32 = libc::BPF_LD | libc::BPF_B | libc::BPF_ABS;
    const SET: u32 = libc::BPF_JMP | libc::BPF_JSET | libc::BPF_K;
    const EQUAL: u32 = libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K;
    const MODULO: u32 = libc::BPF_ALU | libc::BPF_MOD | libc::BPF_K;
    const RETURN: u32 = libc::BPF_RET | libc::BPF_A;
    const RETURN_VALUE: u32 = libc::BPF_RET | libc::BPF_K;
    let (mut at, mut a) = (0, 0u32);
    loop {
        let line = program[at];
        at += 1;
        let jump = |taken: bool| usize::from(if taken { line.jt } else { line.jf });
        match u32::from(line.code) {
            // A load beyond the end ends the program with 0.
            LOAD => match packet.get(line.k as usize) {
                Some(byte) => a = u32::from(*byte),
                None => return 0,
            },
            SET => at += jump(a & line.k != 0),
            EQUAL => at += jump(a == line.k),
            MODULO => a %= line.k,
            RETURN => return a,
            RETURN_VALUE => return line.k,
            other => panic!("instruction {other:#x}"),
        }
    }
}

/// Short and long headers, whole, truncated, with IDs of 0, 8, 20 and impossible lengths.
fn packets() -> Vec<Vec<u8>> {
    let mut packets = vec![Vec::new(), vec![0x40], vec![0xc0], vec![0x80, 0, 0, 0, 1]];
    for id in [0u8, 1, 2, 3, 5, 127, 128, 200, 255] {
        packets.push(vec![0x40, id]);
        packets.push(vec![0x43, id, 2, 3, 4, 5, 6, 7, 8, 9, 10]);
        packets.push(vec![0x00, id, 9, 9]);
        for length in [0u8, 1, 8, 20, 255] {
            let mut long = vec![0xc3, 0, 0, 0, 1, length];
            packets.push(long.clone());
            long.push(id);
            packets.push(long.clone());
            long.extend((0..40).map(|i| i ^ id));
            packets.push(long.clone());
            long[0] = 0x80 | id & 0x7f;
            packets.push(long);
        }
    }
    packets
}

#[cfg(target_os = "linux")]
#[test]
fn the_kernels_program_and_the_shards_own_rule_agree() {
    for shards in 1..=MAX_SHARDS {
        let program = program(shards as u8);
        for packet in packets() {
            let owner = shard_of(&packet, shards);
            assert!(owner < shards);
            assert_eq!(
                interpret(&program, &packet),
                owner as u32,
                "{packet:x?} of {shards}"
            );
        }
    }
}

#[test]
fn the_owner_of_a_datagram_is_in_its_connection_id() {
    let short = |id: u8| [0x41, id, 0, 0, 0, 0, 0, 0, 0, 1];
    let long = |length: u8, id: u8| [0xc1, 0, 0, 0, 1, length, id, 0, 0, 0, 0, 0, 0, 0];
    assert_eq!(shard_of(&short(1), 2), 1);
    assert_eq!(shard_of(&short(1), 1), 0);
    assert_eq!(shard_of(&short(7), 4), 3);
    assert_eq!(shard_of(&long(8, 5), 2), 1);
    assert_eq!(shard_of(&long(20, 5), 2), 1);
    assert_eq!(shard_of(&long(0, 5), 2), 0, "no ID to go by");
    assert_eq!(shard_of(&[], 2), 0);
    assert_eq!(shard_of(&[0x41], 2), 0);
    assert_eq!(shard_of(&long(8, 5)[..6], 2), 0);
}

/// Receives until nothing came for 50 ms.
fn collect(socket: &mut UdpSocket) -> Vec<Vec<u8>> {
    let clock = Clock::start();
    let mut until = clock.now() + Duration::from_millis(50);
    let mut batch = ReceiveBatch::new();
    let mut got = Vec::new();
    while clock.now() < until {
        match socket.recv(&mut batch) {
            Ok(count) => {
                for (meta, train) in batch.trains(count) {
                    got.extend(train.chunks(meta.stride.max(1)).map(<[u8]>::to_vec));
                }
                until = clock.now() + Duration::from_millis(50);
            }
            Err(_) => std::thread::yield_now(),
        }
    }
    got
}

#[cfg(target_os = "linux")]
#[test]
fn the_kernel_gives_every_datagram_to_the_socket_of_its_shard() {
    for (address, from) in [
        ("127.0.0.1:0", "127.0.0.1:0"),
        ("[::1]:0", "[::1]:0"),
        ("[::]:0", "127.0.0.1:0"),
    ] {
        for shards in [2, 3] {
            let mut sockets =
                bind_shards(address.parse().unwrap(), shards, &SocketOptions::default()).unwrap();
            let mut to = sockets[0].info().local_addr;
            assert!(!sockets[0].info().steering_refused);
            let from: SocketAddr = from.parse().unwrap();
            to.set_ip(from.ip());
            // Several senders, or the kernel's own hash might do by accident.
            let senders: Vec<_> = (0..4)
                .map(|_| std::net::UdpSocket::bind(from).unwrap())
                .collect();
            let mut sent = 0;
            for (index, packet) in packets().iter().enumerate() {
                if !packet.is_empty() {
                    senders[index % 4].send_to(packet, to).unwrap();
                    sent += 1;
                }
            }
            let mut received = 0;
            for (index, socket) in sockets.iter_mut().enumerate() {
                assert_eq!(socket.info().local_addr.port(), to.port());
                for packet in collect(socket) {
                    assert_eq!(shard_of(&packet, shards), index, "{packet:x?}");
                    received += 1;
                }
            }
            assert_eq!(received, sent, "{address}, {shards} shards");
        }
    }
}

#[test]
fn a_port_in_use_is_refused_to_several_sockets_as_to_one() {
    let options = SocketOptions {
        reuse_port: true,
        ..SocketOptions::default()
    };
    let other = UdpSocket::bind("127.0.0.1:0".parse().unwrap(), &options).unwrap();
    let error = bind_shards(other.info().local_addr, 2, &options).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
}

#[test]
fn the_number_of_shards_has_bounds() {
    for shards in [0, MAX_SHARDS + 1] {
        let error = bind_shards(
            "127.0.0.1:0".parse().unwrap(),
            shards,
            &SocketOptions::default(),
        );
        assert_eq!(error.unwrap_err().kind(), io::ErrorKind::InvalidInput);
    }
}
