//! Records by the kernel (kTLS): the key to send with, handed to a connected TCP socket.
//!
//! For the library's own sockets: afterwards plain writes to the socket are records on the wire, and
//! what is read from it are the peer's records as they came. What it takes is fixed by Linux's
//! `include/uapi/linux/tls.h`; the same structs go to our kernel module.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use towline_stcp::CipherKeys;

const SOL_TLS: libc::c_int = 282;
const TLS_TX: libc::c_int = 1;
const TLS_1_3_VERSION: u16 = 0x0304;
const CIPHER_AES_GCM_128: u16 = 51;
const CIPHER_AES_GCM_256: u16 = 52;
const CIPHER_CHACHA20_POLY1305: u16 = 54;

/// A `struct tls12_crypto_info_*`, as bytes. Its key is overwritten at the end.
pub struct CryptoInfo(Vec<u8>);

impl CryptoInfo {
    /// Of a key whose next record has the number `sequence`.
    pub fn new(keys: &CipherKeys, sequence: u64) -> Self {
        let mut out = Vec::with_capacity(64);
        let head = |out: &mut Vec<u8>, cipher: u16| {
            out.extend_from_slice(&TLS_1_3_VERSION.to_ne_bytes());
            out.extend_from_slice(&cipher.to_ne_bytes());
        };
        // The order of the fields: iv (without the salt), key, salt, sequence number.
        match keys {
            CipherKeys::Aes128Gcm { key, iv } => {
                head(&mut out, CIPHER_AES_GCM_128);
                out.extend_from_slice(&iv[4..]);
                out.extend_from_slice(key);
                out.extend_from_slice(&iv[..4]);
            }
            CipherKeys::Aes256Gcm { key, iv } => {
                head(&mut out, CIPHER_AES_GCM_256);
                out.extend_from_slice(&iv[4..]);
                out.extend_from_slice(key);
                out.extend_from_slice(&iv[..4]);
            }
            CipherKeys::ChaCha20Poly1305 { key, iv } => {
                head(&mut out, CIPHER_CHACHA20_POLY1305);
                out.extend_from_slice(iv);
                out.extend_from_slice(key);
            }
        }
        out.extend_from_slice(&sequence.to_be_bytes());
        Self(out)
    }

    /// The struct.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl Drop for CryptoInfo {
    fn drop(&mut self) {
        self.0.fill(0);
        std::hint::black_box(&mut self.0);
    }
}

/// Whether this kernel has it: asked of a fresh socket, which is thrown away.
///
/// # Errors
/// What attaching said: `NotFound` where the kernel has no module `tls`.
pub fn is_available() -> io::Result<()> {
    // Only a connected socket takes it.
    let socket = std::net::TcpListener::bind(("127.0.0.1", 0))?;
    let client = std::net::TcpStream::connect(socket.local_addr()?)?;
    attach(client.as_fd())
}

/// Hands over the key to send with, to a socket with kTLS over its TCP. One that the kernel refuses
/// passes bytes through as before.
pub(super) fn set_transmit(
    socket: BorrowedFd<'_>,
    key: &CipherKeys,
    sequence: u64,
) -> io::Result<()> {
    let transmit = CryptoInfo::new(key, sequence);
    set(socket, SOL_TLS, TLS_TX, transmit.as_bytes())
}

/// Puts kTLS over the socket's TCP; without keys it still passes bytes through.
pub(super) fn attach(socket: BorrowedFd<'_>) -> io::Result<()> {
    set(socket, libc::IPPROTO_TCP, libc::TCP_ULP, b"tls")
}

fn set(socket: BorrowedFd<'_>, level: i32, name: i32, value: &[u8]) -> io::Result<()> {
    // SAFETY: the descriptor is open as long as it is borrowed; pointer and length are those of
    // one slice, which the kernel only reads.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            level,
            name,
            value.as_ptr().cast(),
            value.len() as libc::socklen_t,
        )
    };
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

#[cfg(test)]
mod tests;
