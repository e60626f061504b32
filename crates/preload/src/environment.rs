//! What `towline stcp run` says in the environment, read once when the library is loaded: a program
//! may do with its environment what it wants later on.

use core::ffi::{CStr, c_char, c_int};
use std::sync::OnceLock;

/// The kernel module's protocol, a decimal number.
const PROTOCOL: &[u8] = b"TOWLINE_STCP_PROTOCOL=";

/// The agent: a token of 16 hexadecimal digits and the abstract name of its Unix socket.
const AGENT: &[u8] = b"TOWLINE_STCP_AGENT=";

/// Bytes of the agent's name at most: what a socket's address has room for, but for the zero.
pub(crate) const MAX_NAME: usize = 107;

/// Who makes TCP sockets.
#[derive(Clone, Copy)]
pub(crate) enum Maker {
    /// The kernel: nobody asked for more.
    Kernel,
    /// The kernel module, as sockets of this protocol.
    Module(c_int),
    /// The agent of this run.
    Agent(Agent),
}

/// Where the agent is.
#[derive(Clone, Copy)]
pub(crate) struct Agent {
    pub(crate) token: u64,
    name: [u8; MAX_NAME],
    len: usize,
}

impl Agent {
    /// The abstract name of its socket, without the leading zero.
    pub(crate) fn name(&self) -> &[u8] {
        &self.name[..self.len]
    }
}

unsafe extern "C" {
    /// The environment, as the C library keeps it.
    static environ: *const *const c_char;
}

/// The dynamic linker calls it before the program begins.
#[used]
#[unsafe(link_section = ".init_array")]
static AT_LOAD: extern "C" fn() = {
    extern "C" fn read() {
        maker();
    }
    read
};

/// Who makes TCP sockets here.
pub(crate) fn maker() -> &'static Maker {
    static MAKER: OnceLock<Maker> = OnceLock::new();
    MAKER.get_or_init(|| {
        // Of both, the one that needs no module.
        if let Some(agent) = value(AGENT).and_then(agent) {
            return Maker::Agent(agent);
        }
        value(PROTOCOL)
            .and_then(number)
            .map_or(Maker::Kernel, Maker::Module)
    })
}

/// What follows `name` in the environment.
fn value(name: &[u8]) -> Option<&'static [u8]> {
    // SAFETY: `environ` is null or an array of C strings that ends with a null pointer. It is read
    // when the library is loaded, before the program could change it.
    unsafe {
        let mut entry = environ;
        while !entry.is_null() && !(*entry).is_null() {
            if let Some(value) = CStr::from_ptr(*entry).to_bytes().strip_prefix(name) {
                return Some(value);
            }
            entry = entry.add(1);
        }
    }
    None
}

/// A decimal number of at most five digits.
fn number(text: &[u8]) -> Option<c_int> {
    let is_number = (1..=5).contains(&text.len()) && text.iter().all(u8::is_ascii_digit);
    let digit = |value, digit: &u8| value * 10 + c_int::from(digit - b'0');
    is_number.then(|| text.iter().fold(0, digit))
}

fn agent(text: &[u8]) -> Option<Agent> {
    let (token, name) = text.split_at_checked(16)?;
    let token = core::str::from_utf8(token).ok()?;
    let mut agent = Agent {
        token: u64::from_str_radix(token, 16).ok()?,
        name: [0; MAX_NAME],
        len: name.len(),
    };
    agent.name.get_mut(..name.len())?.copy_from_slice(name);
    (!name.is_empty()).then_some(agent)
}
