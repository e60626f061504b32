//! Programs upgraded to the kernel module without a shim: BPF that changes the protocol of sockets
//! as they are made.
//!
//! Linux 6.6 and later ask `update_socket_protocol` which protocol `socket()` is to use. A program
//! there answers with the module's number for TCP and MPTCP sockets of one cgroup, whatever is linked
//! how, and with no protocol's number for what would be a stream past the module (SCTP, SMC).
//! The link is pinned: should we be killed, new sockets are upgraded still.

use std::fs;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use socket2::{Domain, Protocol, Socket, Type};

use super::bpf::{
    self, EXIT, Kind, and, call, copy, copy_word, jump, jump_if, jump_unless, jump_unless_same,
    load_double, set, set_double,
};

/// The kernel's own type information.
const KERNEL_TYPES: &str = "/sys/kernel/btf/vmlinux";
const FUNCTION: &str = "update_socket_protocol";

const BPF_PROG_TYPE_TRACING: u32 = 26;
const BPF_MODIFY_RETURN: u32 = 26;
const BPF_FUNC_GET_CURRENT_ANCESTOR_CGROUP_ID: i32 = 123;

/// SMC's address family; it goes back to TCP where the peer has no SMC.
const AF_SMC: i32 = 43;
/// No protocol: such a socket cannot be made.
const NO_PROTOCOL: i32 = -1;

/// `getsockopt` of the module: who the peer is.
const STCP_PEER: libc::c_int = 1;

/// An upgrade in force. It ends when this is dropped.
#[derive(Debug)]
pub struct Upgrade {
    pin: PathBuf,
    _link: OwnedFd,
}

/// Whether the kernel has the hook.
///
/// # Errors
/// Why it has not.
pub fn upgrade_is_available() -> io::Result<()> {
    function_id().map(drop)
}

/// Has `socket()` make sockets of `protocol` where processes of `cgroup` (a child of the root)
/// ask for TCP or MPTCP, and fail for other streams. `pin` is a path in the BPF file system, which must not be there yet.
///
/// # Errors
/// Where the kernel has no such hook, or the caller is not root.
pub fn upgrade_cgroup(cgroup: &Path, protocol: u16, pin: PathBuf) -> io::Result<Upgrade> {
    let kind = Kind {
        program_type: BPF_PROG_TYPE_TRACING,
        attach_type: BPF_MODIFY_RETURN,
        function: function_id()?,
    };
    // A cgroup's number is that of its folder.
    let [id, id_too] = set_double(1, fs::metadata(cgroup)?.ino());
    // The context holds the function's arguments: family, type and protocol.
    let program = [
        copy(6, 1),
        set(1, 1),
        call(BPF_FUNC_GET_CURRENT_ANCESTOR_CGROUP_ID),
        id,
        id_too,
        load_double(7, 6, 16),
        copy_word(7, 7),
        jump_unless_same(0, 1, 17),
        load_double(2, 6, 0),
        copy_word(2, 2),
        jump_if(2, AF_SMC, 11),
        jump_if(2, libc::AF_INET, 1),
        jump_unless(2, libc::AF_INET6, 12),
        load_double(3, 6, 8),
        // Without SOCK_NONBLOCK and SOCK_CLOEXEC.
        and(3, 15),
        jump_if(3, libc::SOCK_DGRAM, 9),
        jump_if(3, libc::SOCK_RAW, 8),
        jump_unless(3, libc::SOCK_STREAM, 4),
        jump_if(7, 0, 5),
        jump_if(7, libc::IPPROTO_TCP, 4),
        jump_if(7, libc::IPPROTO_MPTCP, 3),
        jump_if(7, i32::from(protocol), 2),
        set(7, NO_PROTOCOL),
        jump(1),
        set(7, i32::from(protocol)),
        copy(0, 7),
        EXIT,
    ];
    let link = bpf::link(&bpf::load(kind, &program)?)?;
    bpf::pin(&link, &pin)?;
    Ok(Upgrade { pin, _link: link })
}

impl Drop for Upgrade {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.pin);
    }
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

/// The number of the hook in the kernel's type information.
fn function_id() -> io::Result<u32> {
    let types = fs::read(KERNEL_TYPES)?;
    find_function(&types, FUNCTION).ok_or_else(|| {
        io::Error::new(
            io::ErrorKind::Unsupported,
            format!("the kernel has no `{FUNCTION}` (Linux 6.6 and later do)"),
        )
    })
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
    use super::find_function;

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
