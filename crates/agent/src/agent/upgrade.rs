//! Programs upgraded to the kernel module without a shim: BPF that changes the protocol of sockets
//! as they are made.
//!
//! Linux 6.6 and later ask `update_socket_protocol` which protocol `socket()` is to use. A program
//! there answers with the module's number for TCP and MPTCP sockets of one cgroup, whatever is linked
//! how. io_uring makes sockets without that question, and other streams (SCTP, SMC) and packet sockets would
//! go past the module, so a second program has them refused to the cgroup as they are made.
//! Both links are pinned: should we be killed, new sockets are upgraded still.

use std::fs;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use socket2::{Domain, Protocol, Socket, Type};

use super::bpf::{
    self, EXIT, Instruction, Kind, and, call, copy, copy_word, jump_if, jump_unless,
    jump_unless_same, load_double, set, set_double,
};
use super::seccomp::PAST_THE_TIERS;

/// The kernel's own type information.
const KERNEL_TYPES: &str = "/sys/kernel/btf/vmlinux";
/// `int (int family, int type, int protocol)`: the protocol for `socket()`.
const QUESTION: &str = "update_socket_protocol";
/// `int (int family, int type, int protocol, int kern)`: whether a socket may be made, by whom ever.
const PERMISSION: &str = "security_socket_create";

const BPF_PROG_TYPE_TRACING: u32 = 26;
const BPF_MODIFY_RETURN: u32 = 26;
const BPF_FUNC_GET_CURRENT_ANCESTOR_CGROUP_ID: i32 = 123;

/// `getsockopt` of the module: who the peer is.
const STCP_PEER: libc::c_int = 1;

/// An upgrade in force. It lasts until it is removed, even if this is dropped: programs without it
/// would go on in clear.
#[derive(Debug)]
#[must_use]
pub struct Upgrade {
    pins: PathBuf,
    links: [OwnedFd; 2],
}

/// Whether the kernel has the hooks.
///
/// # Errors
/// Why it has not.
pub fn upgrade_is_available() -> io::Result<()> {
    function_ids().map(drop)
}

/// Has `socket()` make sockets of `protocol` where processes of `cgroup` (a child of the root)
/// ask for TCP or MPTCP, and other streams fail. `pins` is a path in the BPF file system, which must
/// not be there yet.
///
/// # Errors
/// Where the kernel has no such hooks, or the caller is not root.
pub fn upgrade_cgroup(cgroup: &Path, protocol: u16, pins: PathBuf) -> io::Result<Upgrade> {
    let [question, permission] = function_ids()?;
    // A cgroup's number is that of its folder.
    let id = fs::metadata(cgroup)?.ino();
    let protocol = i32::from(protocol);
    let links = [
        link(question, &answer(id, protocol))?,
        link(permission, &refusal(id, protocol))?,
    ];
    fs::create_dir(&pins)?;
    let upgrade = Upgrade { pins, links };
    match upgrade.pin() {
        Ok(()) => Ok(upgrade),
        Err(error) => {
            let _ = upgrade.remove();
            Err(error)
        }
    }
}

impl Upgrade {
    fn pin(&self) -> io::Result<()> {
        ["protocol", "refusal"]
            .iter()
            .zip(&self.links)
            .try_for_each(|(name, link)| bpf::pin(link, &self.pins.join(name)))
    }

    /// Ends it. Nothing may be left in the cgroup.
    ///
    /// # Errors
    /// What the file system said.
    pub fn remove(self) -> io::Result<()> {
        fs::remove_dir_all(&self.pins)
    }
}

fn link(function: u32, program: &[Instruction]) -> io::Result<OwnedFd> {
    let kind = Kind {
        program_type: BPF_PROG_TYPE_TRACING,
        attach_type: BPF_MODIFY_RETURN,
        function,
    };
    bpf::link(&bpf::load(kind, program)?)
}

/// Answers `QUESTION`. The context holds the function's arguments.
fn answer(cgroup: u64, protocol: i32) -> [Instruction; 21] {
    let [id, id_too] = set_double(1, cgroup);
    [
        copy(6, 1),
        set(1, 1),
        call(BPF_FUNC_GET_CURRENT_ANCESTOR_CGROUP_ID),
        id,
        id_too,
        load_double(7, 6, 16),
        copy_word(7, 7),
        jump_unless_same(0, 1, 11),
        load_double(2, 6, 0),
        copy_word(2, 2),
        jump_if(2, libc::AF_INET, 1),
        jump_unless(2, libc::AF_INET6, 7),
        load_double(3, 6, 8),
        // Without SOCK_NONBLOCK and SOCK_CLOEXEC.
        and(3, 15),
        jump_unless(3, libc::SOCK_STREAM, 4),
        jump_if(7, 0, 2),
        jump_if(7, libc::IPPROTO_TCP, 1),
        jump_unless(7, libc::IPPROTO_MPTCP, 1),
        set(7, protocol),
        copy(0, 7),
        EXIT,
    ]
}

/// Answers `PERMISSION`: internet sockets are of `protocol`, or UDP or raw, or the kernel's own; and none goes
/// past the module.
fn refusal(cgroup: u64, protocol: i32) -> Vec<Instruction> {
    const MANY: i16 = PAST_THE_TIERS.len() as i16;
    let [id, id_too] = set_double(1, cgroup);
    let mut program = vec![
        copy(6, 1),
        set(1, 1),
        call(BPF_FUNC_GET_CURRENT_ANCESTOR_CGROUP_ID),
        id,
        id_too,
        jump_unless_same(0, 1, MANY + 14),
        load_double(2, 6, 24),
        copy_word(2, 2),
        jump_unless(2, 0, MANY + 11),
        load_double(2, 6, 0),
        copy_word(2, 2),
    ];
    program.extend((0..MANY).zip(PAST_THE_TIERS).map(|(at, family)| {
        // To the refusal at the end.
        jump_if(2, family, MANY + 10 - at)
    }));
    program.extend([
        jump_if(2, libc::AF_INET, 1),
        jump_unless(2, libc::AF_INET6, 7),
        load_double(3, 6, 8),
        and(3, 15),
        jump_if(3, libc::SOCK_DGRAM, 4),
        jump_if(3, libc::SOCK_RAW, 3),
        load_double(3, 6, 16),
        copy_word(3, 3),
        jump_unless(3, protocol, 2),
        set(0, 0),
        EXIT,
        set(0, -libc::EPROTONOSUPPORT),
        EXIT,
    ]);
    program
}

/// Whether each TCP socket that this process can make is one of the module.
///
/// # Errors
/// When no socket could be made for IPv4: the module is gone, for example.
pub fn is_upgraded(protocol: u16) -> io::Result<bool> {
    if !is_of_module(&Socket::new(Domain::IPV4, Type::STREAM, None)?, protocol)? {
        return Ok(false);
    }
    let others = [
        (Domain::IPV4, Protocol::MPTCP),
        (Domain::IPV6, Protocol::TCP),
        (Domain::IPV6, Protocol::MPTCP),
    ];
    for (domain, asked) in others {
        // One that cannot be made sends nothing.
        if let Ok(socket) = Socket::new(domain, Type::STREAM, Some(asked))
            && !is_of_module(&socket, protocol)?
        {
            return Ok(false);
        }
    }
    Ok(true)
}

fn is_of_module(socket: &Socket, protocol: u16) -> io::Result<bool> {
    let mut value = [0_u8; 36];
    let mut len = value.len() as libc::socklen_t;
    // SAFETY: the descriptor is open; the kernel writes at most `len` bytes of the buffer.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            protocol.into(),
            STCP_PEER,
            value.as_mut_ptr().cast(),
            &raw mut len,
        )
    };
    let error = io::Error::last_os_error().raw_os_error();
    // Its sockets have no peer yet; plain ones do not know the question.
    Ok(result == 0 || error == Some(libc::ENOTCONN))
}

/// The numbers of `QUESTION` and `PERMISSION` in the kernel's type information.
fn function_ids() -> io::Result<[u32; 2]> {
    let types = fs::read(KERNEL_TYPES)?;
    let find = |name, who| {
        find_function(&types, name).ok_or_else(|| {
            io::Error::new(
                io::ErrorKind::Unsupported,
                format!("the kernel has no `{name}` ({who} do)"),
            )
        })
    };
    Ok([
        find(QUESTION, "Linux 6.6 and later")?,
        find(PERMISSION, "those with CONFIG_SECURITY_NETWORK")?,
    ])
}

/// Walks the types (Documentation/bpf/btf.rst); they are numbered from 1.
fn find_function(btf: &[u8], name: &str) -> Option<u32> {
    const FUNCTION_KIND: u32 = 12;
    let word = |at: usize| {
        let bytes = btf.get(at..at.checked_add(4)?)?;
        Some(u32::from_ne_bytes(bytes.try_into().ok()?))
    };
    let [head, types, types_len, names] = [4, 8, 12, 16].map(|at| word(at).map(|n| n as usize));
    let (head, types_len) = (head?, types_len?);
    let mut at = head + types?;
    let end = at + types_len;
    let names = btf.get(head + names?..)?;
    let mut id = 0;
    while at < end {
        id += 1;
        let (name_at, info) = (word(at)? as usize, word(at + 4)?);
        let (kind, members) = (info >> 24 & 31, (info & 0xffff) as usize);
        if kind == FUNCTION_KIND {
            let found = names.get(name_at..)?.split(|byte| *byte == 0).next()?;
            if found == name.as_bytes() {
                return Some(id);
            }
        }
        // What follows the twelve bytes that each type has.
        at += 12
            + match kind {
                1 | 14 | 17 => 4,
                3 => 12,
                4 | 5 | 15 | 19 => 12 * members,
                6 | 13 => 8 * members,
                _ => 0,
            };
    }
    None
}

#[cfg(test)]
mod tests {
    use super::super::bpf::run;
    use super::{answer, find_function, refusal};

    const AF_SMC: i32 = 43;
    const AF_RDS: i32 = 21;

    /// What `program` answers to a process of the cgroup 7, of `family`, `kind` and `protocol`.
    fn asked(program: &[super::Instruction], cgroup: u64, question: [i32; 4]) -> i32 {
        run(program, &question.map(|word| word as u64), |_| cgroup) as i32
    }

    #[test]
    fn streams_that_are_not_the_modules_are_refused_to_programs_and_to_nobody_else() {
        let program = refusal(7, 261);
        let no = -libc::EPROTONOSUPPORT;
        for (family, kind, protocol, kern, expected) in [
            (libc::AF_INET, libc::SOCK_STREAM, libc::IPPROTO_TCP, 0, no),
            (libc::AF_INET6, libc::SOCK_STREAM, 0, 0, no),
            (libc::AF_INET, libc::SOCK_STREAM, libc::IPPROTO_SCTP, 0, no),
            (
                libc::AF_INET,
                libc::SOCK_SEQPACKET,
                libc::IPPROTO_SCTP,
                0,
                no,
            ),
            (AF_SMC, libc::SOCK_STREAM, 0, 0, no),
            (AF_RDS, libc::SOCK_SEQPACKET, 0, 0, no),
            (libc::AF_PACKET, libc::SOCK_RAW, 0, 0, no),
            (libc::AF_XDP, libc::SOCK_RAW, 0, 0, no),
            (libc::AF_TIPC, libc::SOCK_SEQPACKET, 0, 0, no),
            (libc::AF_NETLINK, libc::SOCK_RAW, 0, 0, 0),
            (libc::AF_INET, libc::SOCK_STREAM, 261, 0, 0),
            (libc::AF_INET6, libc::SOCK_STREAM, 261, 0, 0),
            (libc::AF_INET, libc::SOCK_DGRAM, libc::IPPROTO_UDP, 0, 0),
            (libc::AF_INET, libc::SOCK_RAW, libc::IPPROTO_ICMP, 0, 0),
            (libc::AF_UNIX, libc::SOCK_STREAM, 0, 0, 0),
            (libc::AF_INET, libc::SOCK_STREAM, libc::IPPROTO_TCP, 1, 0),
            (AF_RDS, libc::SOCK_SEQPACKET, 0, 1, 0),
        ] {
            let question = [family, kind, protocol, kern];
            assert_eq!(asked(&program, 7, question), expected, "{question:?}");
            assert_eq!(asked(&program, 8, question), 0, "{question:?}");
        }
    }

    #[test]
    fn tcp_and_mptcp_are_made_of_the_modules_protocol() {
        let program = answer(7, 261);
        let nonblocking = libc::SOCK_STREAM | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
        for (family, kind, protocol, expected) in [
            (libc::AF_INET, libc::SOCK_STREAM, 0, 261),
            (libc::AF_INET6, nonblocking, libc::IPPROTO_TCP, 261),
            (libc::AF_INET, nonblocking, libc::IPPROTO_MPTCP, 261),
            (
                libc::AF_INET,
                libc::SOCK_STREAM,
                libc::IPPROTO_SCTP,
                libc::IPPROTO_SCTP,
            ),
            (libc::AF_INET, libc::SOCK_DGRAM, 0, 0),
            (libc::AF_UNIX, libc::SOCK_STREAM, 0, 0),
        ] {
            let question = [family, kind, protocol, 0];
            assert_eq!(asked(&program, 7, question), expected, "{question:?}");
            assert_eq!(asked(&program, 8, question), protocol, "{question:?}");
        }
    }

    #[test]
    fn a_function_is_found_behind_types_of_every_size() {
        let word = |value: u32| value.to_ne_bytes();
        let mut types = Vec::new();
        let mut add = |name: u32, kind: u32, members: u32, extra: usize| {
            types.extend(word(name));
            types.extend(word(kind << 24 | members));
            types.extend(word(0));
            types.extend(vec![0xff; extra]);
        };
        add(0, 1, 0, 4);
        add(0, 4, 2, 24);
        add(0, 13, 3, 24);
        add(1, 12, 0, 0);
        add(7, 12, 0, 0);
        let names = b"\0other\0wanted\0";
        let mut btf = Vec::new();
        btf.extend([0x9f, 0xeb, 1, 0]);
        let lengths = [24, 0, types.len(), types.len(), names.len()];
        btf.extend(lengths.iter().flat_map(|len| word(*len as u32)));
        btf.extend(&types);
        btf.extend(names);
        assert_eq!(find_function(&btf, "wanted"), Some(5));
        assert_eq!(find_function(&btf, "other"), Some(4));
        assert_eq!(find_function(&btf, "othe"), None);
        for len in 0..btf.len() - names.len() {
            assert_eq!(find_function(&btf[..len], "wanted"), None, "{len}");
        }
    }
}
