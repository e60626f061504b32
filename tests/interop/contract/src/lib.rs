//! What every interop driver has in common: its command line, the hq-interop
//! request line and the summary it prints.
//!
//! The Rust drivers (`quinn`, `towline`) call it, and the runner reads
//! [`Summary`] lines from drivers in any language. It knows no QUIC stack and
//! opens no socket. `../README.md` states the contract in words.

use std::net::SocketAddr;
use std::path::{Component, Path, PathBuf};

/// The application protocol: one bidirectional stream per file.
pub const ALPN: &[u8] = b"hq-interop";
/// Longest request a server reads, in bytes.
pub const REQUEST_LIMIT: usize = 4096;
/// Application error code of a stream whose request cannot be answered.
pub const NOT_FOUND: u32 = 0x44;
/// A client told `--key-update` begins it once it has received this many bytes:
/// after HANDSHAKE_DONE, and before peers that update by themselves do.
pub const UPDATE_AFTER: u64 = 16 * 1024;
/// Where the stack refuses, the client asks again after this many bytes more.
pub const UPDATE_AGAIN_AFTER: u64 = 256 * 1024;
/// A client told `--migrate` moves to another local port once it has received this many bytes.
pub const MIGRATE_AFTER: u64 = 64 * 1024;
/// Bytes of each file that a server told `--reset-at` delivers whatever comes.
pub const RELIABLE: u64 = 1024 * 1024;
/// Application error code with which it gives the rest up.
pub const GIVEN_UP: u32 = 0x46;
/// Bytes per write of a file to a stream.
pub const CHUNK: usize = 64 * 1024;

const USAGE: &str = "\
usage: DRIVER server --listen ADDR --cert PEM --key PEM --root DIR [--retry] [--chacha20] [--reset-at]
       DRIVER client --addr ADDR --ca PEM --server-name NAME --out DIR
                     [--chacha20] [--key-update] [--expect-retry] [--resume] [--migrate]
                     [--expect-reset] PATH...";

/// A driver's command line.
#[derive(Debug)]
pub enum Role {
    /// Serve files until standard input closes.
    Server(ServerArgs),
    /// Fetch files, then exit.
    Client(ClientArgs),
}

/// `DRIVER server …`
#[derive(Debug, Default)]
pub struct ServerArgs {
    /// Address to bind; port 0 asks for a free one.
    pub listen: Option<SocketAddr>,
    /// Certificate chain, PEM.
    pub cert: PathBuf,
    /// Private key, PEM.
    pub key: PathBuf,
    /// Directory whose files are served.
    pub root: PathBuf,
    /// Validate every client address with a Retry packet.
    pub retry: bool,
    /// Offer `TLS_CHACHA20_POLY1305_SHA256` only.
    pub chacha20: bool,
    /// Give every answer up after [`RELIABLE`] bytes, which arrive all the same.
    pub reset_at: bool,
}

/// `DRIVER client …`
#[derive(Debug, Default)]
pub struct ClientArgs {
    /// The server's address.
    pub addr: Option<SocketAddr>,
    /// CA certificates, PEM.
    pub ca: PathBuf,
    /// Name the server's certificate must carry.
    pub server_name: String,
    /// Directory that receives the files.
    pub out: PathBuf,
    /// Offer `TLS_CHACHA20_POLY1305_SHA256` only.
    pub chacha20: bool,
    /// Begin a key update during the transfer.
    pub key_update: bool,
    /// Fail unless the server sent a Retry.
    pub expect_retry: bool,
    /// Fetch the first file, close, and fetch the others over a resumed session.
    pub resume: bool,
    /// Move to another local port during the transfer.
    pub migrate: bool,
    /// Fail unless every answer is reset with [`GIVEN_UP`], and keep what came before.
    pub expect_reset: bool,
    /// Files to fetch, each with its leading slash.
    pub paths: Vec<String>,
}

impl Role {
    /// Reads the process's own arguments; the error is text for a person.
    pub fn from_args() -> Result<Role, String> {
        Role::parse(std::env::args().skip(1))
    }

    fn parse(args: impl IntoIterator<Item = String>) -> Result<Role, String> {
        let mut args = args.into_iter();
        match args.next().as_deref() {
            Some("server") => parse_server(args).map(Role::Server),
            Some("client") => parse_client(args).map(Role::Client),
            _ => Err(USAGE.to_owned()),
        }
    }
}

fn parse_server(mut args: impl Iterator<Item = String>) -> Result<ServerArgs, String> {
    let mut server = ServerArgs::default();
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--listen" => server.listen = Some(address(&value(&arg, &mut args)?)?),
            "--cert" => server.cert = value(&arg, &mut args)?.into(),
            "--key" => server.key = value(&arg, &mut args)?.into(),
            "--root" => server.root = value(&arg, &mut args)?.into(),
            "--retry" => server.retry = true,
            "--chacha20" => server.chacha20 = true,
            "--reset-at" => server.reset_at = true,
            _ => return Err(format!("unknown argument {arg}\n{USAGE}")),
        }
    }
    Ok(server)
}

fn parse_client(mut args: impl Iterator<Item = String>) -> Result<ClientArgs, String> {
    let mut client = ClientArgs {
        server_name: "localhost".to_owned(),
        ..ClientArgs::default()
    };
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--addr" => client.addr = Some(address(&value(&arg, &mut args)?)?),
            "--ca" => client.ca = value(&arg, &mut args)?.into(),
            "--server-name" => client.server_name = value(&arg, &mut args)?,
            "--out" => client.out = value(&arg, &mut args)?.into(),
            "--chacha20" => client.chacha20 = true,
            "--key-update" => client.key_update = true,
            "--expect-retry" => client.expect_retry = true,
            "--resume" => client.resume = true,
            "--migrate" => client.migrate = true,
            "--expect-reset" => client.expect_reset = true,
            path if path.starts_with('/') => client.paths.push(arg),
            _ => return Err(format!("unknown argument {arg}\n{USAGE}")),
        }
    }
    if client.addr.is_none() || client.paths.is_empty() {
        return Err(format!("--addr and at least one /path are needed\n{USAGE}"));
    }
    Ok(client)
}

fn value(flag: &str, args: &mut impl Iterator<Item = String>) -> Result<String, String> {
    args.next().ok_or_else(|| format!("{flag} needs a value"))
}

fn address(text: &str) -> Result<SocketAddr, String> {
    text.parse()
        .map_err(|_| format!("{text} is not ADDRESS:PORT"))
}

/// The request line for `path` (which starts with a slash).
pub fn request(path: &str) -> String {
    format!("GET {path}\r\n")
}

/// The file under `root` that `request` asks for; `None` if the request is
/// malformed or leaves `root`.
pub fn requested_file(root: &Path, request: &[u8]) -> Option<PathBuf> {
    let text = std::str::from_utf8(request).ok()?;
    let path = Path::new(
        text.trim_end_matches([' ', '\r', '\n'])
            .strip_prefix("GET /")?,
    );
    let local = path
        .components()
        .all(|part| matches!(part, Component::Normal(_)));
    (local && !path.as_os_str().is_empty()).then(|| root.join(path))
}

/// Where a client writes the file fetched as `path`; `None` without a name.
pub fn output_file(out: &Path, path: &str) -> Option<PathBuf> {
    Path::new(path).file_name().map(|name| out.join(name))
}

/// What one connection did, as its driver saw it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Summary {
    /// Every file arrived (client), or the client closed with code 0 (server).
    pub ok: bool,
    /// Files fetched or served.
    pub files: u64,
    /// Bytes of those files.
    pub bytes: u64,
    /// 1-RTT key updates after the handshake's keys, whoever began them;
    /// `None` where the stack cannot say.
    pub key_updates: Option<u64>,
    /// Those of them that this end began; `None` where the stack cannot say.
    pub key_updates_begun: Option<u64>,
    /// Negotiated suite by its IANA name; empty where the stack cannot say.
    pub cipher: String,
    /// A Retry took place; `None` where the stack cannot say.
    pub retried: Option<bool>,
    /// The TLS session was resumed (of a client that connects twice: the second one); `None` where
    /// the stack cannot say.
    pub resumed: Option<bool>,
    /// The address the peer was seen at changed; `None` where the stack cannot say.
    pub moved: Option<bool>,
    /// The path proved to carry ECN marks there and counts back; `None` where the stack cannot say.
    pub ecn: Option<bool>,
    /// Reliable size of the RESET_STREAM_AT frames that were sent or received; `None` where there
    /// were none, or the stack cannot say.
    pub reliable_size: Option<u64>,
    /// Why `ok` is false.
    pub error: Option<String>,
}

impl Summary {
    /// The summary as one line of JSON.
    pub fn to_json(&self) -> String {
        serde_json::json!({
            "ok": self.ok,
            "files": self.files,
            "bytes": self.bytes,
            "key_updates": self.key_updates,
            "key_updates_begun": self.key_updates_begun,
            "cipher": self.cipher,
            "retried": self.retried,
            "resumed": self.resumed,
            "moved": self.moved,
            "ecn": self.ecn,
            "reliable_size": self.reliable_size,
            "error": self.error,
        })
        .to_string()
    }

    /// Reads a driver's line; missing fields keep their defaults, and `None`
    /// means the line is no JSON object with an `ok`.
    pub fn from_json(line: &str) -> Option<Summary> {
        let object: serde_json::Value = serde_json::from_str(line).ok()?;
        let number = |name: &str| object.get(name).and_then(serde_json::Value::as_u64);
        let truth = |name: &str| object.get(name).and_then(serde_json::Value::as_bool);
        let text = |name: &str| object.get(name).and_then(|v| v.as_str()).map(str::to_owned);
        Some(Summary {
            ok: object.get("ok")?.as_bool()?,
            files: number("files").unwrap_or(0),
            bytes: number("bytes").unwrap_or(0),
            key_updates: number("key_updates"),
            key_updates_begun: number("key_updates_begun"),
            cipher: text("cipher").unwrap_or_default(),
            retried: truth("retried"),
            resumed: truth("resumed"),
            moved: truth("moved"),
            ecn: truth("ecn"),
            reliable_size: number("reliable_size"),
            error: text("error"),
        })
    }
}

/// Ends the process with success once standard input closes, as a server must.
pub fn exit_when_stdin_closes() {
    std::thread::spawn(|| {
        let mut sink = std::io::sink();
        // A read error means the same as the end: nobody holds the other end.
        let _ = std::io::copy(&mut std::io::stdin().lock(), &mut sink);
        std::process::exit(0);
    });
}

#[cfg(test)]
mod tests;
