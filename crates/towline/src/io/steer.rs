//! Which shard a datagram belongs to, and how the kernel is taught to know it.
//!
//! The first byte of the destination connection ID, modulo the number of shards, is the
//! shard ([`ShardedCid`](towline_quic::ShardedCid) writes it there; the random ID of a
//! client's first packets names one too, and all its packets the same). Sockets of one
//! port run this rule as a classic BPF program in the kernel. Where the program is
//! refused, or where GRO merged datagrams of several connections, shards hand each other
//! what came to the wrong one: steering makes N shards fast, handing over makes them right.

use std::io;

/// Most shards of one endpoint.
pub const MAX_SHARDS: usize = 64;

/// The shard of `shards` that owns a UDP payload; 0 for what is too short to say.
pub fn shard_of(datagram: &[u8], shards: usize) -> usize {
    let byte = match datagram {
        // RFC 8999 §5.1: form bit, version, length of the destination connection ID, the ID.
        [first, _, _, _, _, length, id, ..] if first & 0x80 != 0 && *length > 0 => *id,
        [first, id, ..] if first & 0x80 == 0 => *id,
        _ => 0,
    };
    usize::from(byte) % shards.max(1)
}

/// The rule of [`shard_of`] as a classic BPF program over a UDP payload. A load beyond the
/// end of the datagram ends the program with 0, which is the same rule again.
#[cfg(target_os = "linux")]
pub(super) fn program(shards: u8) -> [libc::sock_filter; 11] {
    const LOAD_BYTE: u32 = libc::BPF_LD | libc::BPF_B | libc::BPF_ABS;
    const JUMP_IF_SET: u32 = libc::BPF_JMP | libc::BPF_JSET | libc::BPF_K;
    const JUMP_IF_EQUAL: u32 = libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K;
    const MODULO: u32 = libc::BPF_ALU | libc::BPF_MOD | libc::BPF_K;
    const RETURN: u32 = libc::BPF_RET | libc::BPF_A;
    const RETURN_VALUE: u32 = libc::BPF_RET | libc::BPF_K;
    let n = u32::from(shards);
    let line = |code: u32, jt: u8, jf: u8, k: u32| libc::sock_filter {
        code: code as u16,
        jt,
        jf,
        k,
    };
    [
        line(LOAD_BYTE, 0, 0, 0),
        line(JUMP_IF_SET, 3, 0, 0x80),
        // Short header: the ID follows the first byte.
        line(LOAD_BYTE, 0, 0, 1),
        line(MODULO, 0, 0, n),
        line(RETURN, 0, 0, 0),
        // Long header: the ID's length, then the ID.
        line(LOAD_BYTE, 0, 0, 5),
        line(JUMP_IF_EQUAL, 3, 0, 0),
        line(LOAD_BYTE, 0, 0, 6),
        line(MODULO, 0, 0, n),
        line(RETURN, 0, 0, 0),
        line(RETURN_VALUE, 0, 0, 0),
    ]
}

/// Attaches the program to the group of sockets that share the port of `socket`.
#[cfg(target_os = "linux")]
pub(super) fn attach(socket: &std::net::UdpSocket, shards: usize) -> io::Result<()> {
    use std::os::fd::AsRawFd;
    let shards = u8::try_from(shards).map_err(io::Error::other)?;
    let mut filter = program(shards);
    let program = libc::sock_fprog {
        len: filter.len() as libc::c_ushort,
        filter: filter.as_mut_ptr(),
    };
    // SAFETY: the descriptor is open because `socket` is borrowed; the pointer and length
    // describe `program`, whose filter pointer and count describe `filter`. Both outlive the
    // call, and the kernel copies the program.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_ATTACH_REUSEPORT_CBPF,
            (&raw const program).cast(),
            size_of_val(&program) as libc::socklen_t,
        )
    };
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

#[cfg(not(target_os = "linux"))]
pub(super) fn attach(_: &std::net::UdpSocket, _: usize) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

#[cfg(test)]
mod tests;
