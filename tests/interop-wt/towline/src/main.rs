//! Interop driver for Towline: WebTransport client and server behind the contract in `../README.md`,
//! over the public API of the crate `towline` alone.

mod client;
mod server;

use std::path::Path;
use std::process::ExitCode;

use interop_wt_contract as contract;
use interop_wt_contract::{Error, Role};
use towline::config::{self, Identity, Options};
use towline::http3;
use towline::webtransport::generate_certificate;

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
    if let [command, folder] = &words[..]
        && command == "certificate"
    {
        return write_certificate(Path::new(folder));
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    match Role::from_args()? {
        Role::Server { folder } => runtime.block_on(server::serve(&identity(&folder)?)),
        Role::Client { folder, port } => runtime.block_on(client::run(&identity(&folder)?, port)),
    }
}

/// A certificate for `localhost` that every stack takes, as `cert.pem` and `key.pem`.
fn write_certificate(folder: &Path) -> Result<(), Error> {
    let identity = generate_certificate(&["localhost", "127.0.0.1"], config::unix_now())?;
    let certificate = identity.certificate_pem().ok_or("no certificate")?;
    std::fs::write(contract::certificate(folder), certificate)?;
    std::fs::write(contract::private_key(folder), identity.private_key_pem())?;
    Ok(())
}

fn identity(folder: &Path) -> Result<Identity, Error> {
    let certificate = std::fs::read(contract::certificate(folder))?;
    let key = std::fs::read(contract::private_key(folder))?;
    Ok(Identity::from_pem(&certificate, &key)?)
}

fn options() -> Options {
    Options::new(http3::ALPN)
}
