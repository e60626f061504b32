//! Interop driver for Towline: WebTransport client and server behind the contract in `../README.md`,
//! over the public API of the crate `towline` alone.

mod client;
mod server;

use std::path::Path;
use std::process::ExitCode;

use towline::config::{self, Identity, Options};
use towline::http3;
use towline::webtransport::generate_certificate;

type Error = Box<dyn std::error::Error + Send + Sync>;

const USAGE: &str = "usage: DRIVER certificate FOLDER | server FOLDER | client FOLDER ADDR";

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("towline driver: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), Error> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    match words[..] {
        ["certificate", folder] => write_certificate(Path::new(folder)),
        ["server", folder] => runtime.block_on(server::serve(&identity(folder)?)),
        ["client", folder, address] => {
            runtime.block_on(client::run(&identity(folder)?, address.parse()?))
        }
        _ => Err(USAGE.into()),
    }
}

/// A certificate for `localhost` that every stack takes, as `cert.pem` and `key.pem`.
fn write_certificate(folder: &Path) -> Result<(), Error> {
    let identity = generate_certificate(&["localhost", "127.0.0.1"], config::unix_now())?;
    let certificate = identity.certificate_pem().ok_or("no certificate")?;
    std::fs::write(folder.join("cert.pem"), certificate)?;
    std::fs::write(folder.join("key.pem"), identity.private_key_pem())?;
    Ok(())
}

fn identity(folder: &str) -> Result<Identity, Error> {
    let read = |name| std::fs::read(Path::new(folder).join(name));
    Ok(Identity::from_pem(&read("cert.pem")?, &read("key.pem")?)?)
}

fn options() -> Options {
    Options::new(http3::ALPN)
}
