//! What the WebTransport drivers in Rust have in common: the contract's numbers, the bytes that are sent, and
//! the lines that are printed. `../contract.py` is the same for drivers in Python.
//!
//! It knows no stack and opens no socket. `../README.md` states the contract in words.

use std::collections::BTreeSet;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// What ends a driver or one of its cases.
pub type Error = Box<dyn std::error::Error + Send + Sync>;

/// A client gives a case up after this long.
pub const PATIENCE: Duration = Duration::from_secs(15);
/// For what was closed to leave.
pub const PARTING: Duration = Duration::from_millis(300);
/// Bytes that a stream carries there and back.
pub const TRANSFER: usize = 1 << 20;
/// Bytes that an echo reads at a time.
pub const CHUNK: usize = 64 * 1024;
/// The server closes a session with this code.
pub const SERVER_CODE: u32 = 4712;
/// The server closes a session with these words.
pub const SERVER_REASON: &str = "goodbye";
/// The client closes a session with this code.
pub const CLIENT_CODE: u32 = 4711;
/// The client closes a session with these words.
pub const CLIENT_REASON: &str = "see you";

/// Datagrams that the client sends.
const DATAGRAMS: usize = 1000;
/// Datagrams on their way at a time.
const WINDOW: usize = 16;
/// Bytes of a datagram.
const DATAGRAM: usize = 100;

const USAGE: &str = "usage: DRIVER server FOLDER | client FOLDER ADDR";

/// A driver's command line.
#[derive(Debug)]
pub enum Role {
    /// Echo until the standard input closes.
    Server {
        /// Has `cert.pem` and `key.pem`.
        folder: PathBuf,
    },
    /// Run the cases, then exit.
    Client {
        /// Has `cert.pem`, the certificate to trust.
        folder: PathBuf,
        /// The server's port of 127.0.0.1.
        port: u16,
    },
}

impl Role {
    /// Reads the process's own arguments; the error is text for a person.
    pub fn from_args() -> Result<Self, Error> {
        let words: Vec<String> = std::env::args().skip(1).collect();
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        match words[..] {
            ["server", folder] => Ok(Role::Server {
                folder: folder.into(),
            }),
            ["client", folder, address] => {
                let address: std::net::SocketAddr = address.parse()?;
                Ok(Role::Client {
                    folder: folder.into(),
                    port: address.port(),
                })
            }
            _ => Err(USAGE.into()),
        }
    }
}

/// The certificate's file in the driver's folder.
pub fn certificate(folder: &Path) -> PathBuf {
    folder.join("cert.pem")
}

/// The private key's file in the driver's folder.
pub fn private_key(folder: &Path) -> PathBuf {
    folder.join("key.pem")
}

/// Ends the process when the standard input closes: so the runner asks a server for its end.
pub fn exit_with_input() {
    std::thread::spawn(|| {
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        std::process::exit(0);
    });
}

/// Runs a case of a client and prints what came of it: `CASE ok DETAIL` or `CASE failed WHY`.
pub async fn report(case: &str, outcome: impl Future<Output = Result<String, Error>>) {
    match tokio::time::timeout(PATIENCE, outcome).await {
        Ok(Ok(detail)) => println!("{case} ok {detail}"),
        Ok(Err(error)) => println!("{case} failed {}", one_line(error.as_ref())),
        Err(_) => println!("{case} failed no end within {PATIENCE:?}"),
    }
}

/// Says of a case that this stack cannot do its part in it, as client (in the case's place) or as server
/// (before it listens).
pub fn skip(case: &str, why: &str) {
    println!("{case} skipped {why}");
}

/// The error and what it came from, on one line.
fn one_line(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        let more = error.to_string();
        if !text.contains(&more) {
            text = format!("{text}: {more}");
        }
        source = error.source();
    }
    text.replace('\n', " ")
}

/// Bytes of a stream, in which blocks differ from each other.
pub fn pattern() -> Vec<u8> {
    let byte = |i: usize| (i ^ (i >> 8).wrapping_mul(7) ^ (i >> 16).wrapping_mul(31)) as u8;
    (0..TRANSFER).map(byte).collect()
}

/// Whether what came back on a stream is what was sent; says how much it was.
pub fn compare(back: &[u8]) -> Result<String, Error> {
    match back == pattern() {
        true => Ok(format!("{TRANSFER} bytes")),
        false => Err(format!("other bytes came back, {} of them", back.len()).into()),
    }
}

/// Whether the server's close has its code and its reason; `words` is how the stack tells of it.
pub fn server_closed(closed: Option<(u64, &str)>, words: &str) -> Result<String, Error> {
    match closed {
        Some((code, SERVER_REASON)) if code == u64::from(SERVER_CODE) => Ok(String::new()),
        _ => Err(format!("the server's close was: {words}").into()),
    }
}

/// The datagrams of one session: which have been sent, and which came back.
#[derive(Debug, Default)]
pub struct Datagrams {
    sent: usize,
    back: BTreeSet<u32>,
}

impl Datagrams {
    /// The next datagram to send; `None` while enough are on their way.
    pub fn next_to_send(&mut self) -> Option<Vec<u8>> {
        if self.sent == DATAGRAMS || self.sent - self.back.len() >= WINDOW {
            return None;
        }
        let mut datagram = vec![b'.'; DATAGRAM];
        datagram[..4].copy_from_slice(&(self.sent as u32).to_be_bytes());
        self.sent += 1;
        Some(datagram)
    }

    /// One came back. An error if it is none of those sent.
    pub fn came_back(&mut self, datagram: &[u8]) -> Result<(), Error> {
        let (number, rest) = datagram.split_first_chunk().ok_or("a short datagram")?;
        let number = u32::from_be_bytes(*number);
        let whole = rest.len() == DATAGRAM - 4 && rest.iter().all(|byte| *byte == b'.');
        if !whole || number as usize >= self.sent {
            return Err("another datagram came back".into());
        }
        self.back.insert(number);
        Ok(())
    }

    /// How many came back, once all have.
    pub fn all_back(&self) -> Option<String> {
        (self.back.len() == DATAGRAMS).then(|| format!("{DATAGRAMS} of {DATAGRAMS}"))
    }
}

#[cfg(test)]
mod tests;
