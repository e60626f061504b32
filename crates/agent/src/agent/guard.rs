//! The last guard of a cgroup: BPF that lets no clear TCP byte cross the machine's edge.
//!
//! What the relay needs is a redirect, and a redirect can be lost: `nft flush ruleset` would do.
//! So a small program at the cgroup's own edge drops every packet of its sockets, in or out, that is
//! neither on loopback nor UDP or ICMP. Nobody has to stay alive for it, no table has to be there:
//! it goes when the cgroup goes. It does not see packets that a program makes itself (AF_PACKET); its
//! programs may not have such sockets (`seccomp`).

use std::io;
use std::os::fd::BorrowedFd;
use std::path::Path;

use super::bpf::{
    self, EXIT, Instruction, Kind, add, call, copy, jump, jump_if, jump_if_same, jump_unless,
    load_byte, load_word, set,
};

const BPF_PROG_TYPE_CGROUP_SKB: u32 = 8;
const BPF_CGROUP_INET_INGRESS: u32 = 0;
const BPF_CGROUP_INET_EGRESS: u32 = 1;
const BPF_FUNC_SKB_LOAD_BYTES: i32 = 26;

/// `struct __sk_buff` of Linux's bpf.h.
const SKB_PROTOCOL: i16 = 16;
const SKB_IFINDEX: i16 = 40;
/// In every network namespace.
const LOOPBACK_IFINDEX: i32 = 1;

const ETH_P_IP: u16 = 0x0800;
const ETH_P_IPV6: u16 = 0x86dd;
/// Where an IPv4 header has its protocol, and an IPv6 header its next one.
const IPV4_PROTOCOL: i32 = 9;
const IPV6_NEXT_HEADER: i32 = 6;

/// Returns 1 to let a packet pass. An IPv6 packet with extension headers does not: they would
/// hide what it is.
const GUARD: &[Instruction] = &[
    copy(6, 1),
    load_word(2, 6, SKB_IFINDEX),
    jump_if(2, LOOPBACK_IFINDEX, 19),
    load_word(7, 6, SKB_PROTOCOL),
    // The offset of the protocol's number in r2, that of ICMP in r8.
    set(2, IPV4_PROTOCOL),
    set(8, libc::IPPROTO_ICMP),
    jump_if(7, ETH_P_IP.to_be() as i32, 4),
    set(2, IPV6_NEXT_HEADER),
    set(8, libc::IPPROTO_ICMPV6),
    jump_if(7, ETH_P_IPV6.to_be() as i32, 1),
    jump(9),
    // One byte of the packet to the stack.
    copy(1, 6),
    copy(3, 10),
    add(3, -8),
    set(4, 1),
    call(BPF_FUNC_SKB_LOAD_BYTES),
    jump_unless(0, 0, 3),
    load_byte(2, 10, -8),
    jump_if(2, libc::IPPROTO_UDP, 3),
    jump_if_same(2, 8, 2),
    set(0, 0),
    EXIT,
    set(0, 1),
    EXIT,
];

/// Puts the guard on a cgroup (version 2), for good.
///
/// # Errors
/// Where the kernel has no cgroup BPF, or the caller is not root.
pub fn guard_cgroup(cgroup: &Path) -> io::Result<()> {
    let cgroup = std::fs::File::open(cgroup)?;
    for attach_type in [BPF_CGROUP_INET_INGRESS, BPF_CGROUP_INET_EGRESS] {
        let kind = Kind {
            program_type: BPF_PROG_TYPE_CGROUP_SKB,
            attach_type,
            function: 0,
        };
        bpf::attach(&cgroup, &bpf::load(kind, GUARD)?, kind)?;
    }
    Ok(())
}

/// Descriptors of this process that are internet sockets and would go on to a program it executes.
/// They were made outside a cgroup, so nothing of it would apply to them.
///
/// # Errors
/// When /proc cannot be read.
pub fn inherited_sockets() -> io::Result<Vec<i32>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc/self/fd")? {
        let name = entry?.file_name();
        let Some(descriptor) = name.to_str().and_then(|name| name.parse::<i32>().ok()) else {
            continue;
        };
        // SAFETY: a number from the list above; at worst it is closed by now, and the call fails.
        let flags = unsafe { libc::fcntl(descriptor, libc::F_GETFD) };
        if flags >= 0 && flags & libc::FD_CLOEXEC == 0 && is_internet_socket(descriptor) {
            found.push(descriptor);
        }
    }
    Ok(found)
}

fn is_internet_socket(descriptor: i32) -> bool {
    // SAFETY: the caller saw it open; it is borrowed for this call only.
    let descriptor = unsafe { BorrowedFd::borrow_raw(descriptor) };
    let socket = socket2::SockRef::from(&descriptor);
    socket
        .domain()
        .is_ok_and(|domain| [socket2::Domain::IPV4, socket2::Domain::IPV6].contains(&domain))
}
