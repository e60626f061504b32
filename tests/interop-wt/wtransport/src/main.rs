//! Interop driver for wtransport: client and server behind the contract in `../README.md`, over its public
//! API alone.
//!
//! wtransport hears the capsule that closes a session, and has no call that sends it.

mod client;
mod server;

use std::process::ExitCode;

use interop_wt_contract::{Error, Role};

/// Why the cases in which this end closes are skipped.
const NO_CLOSE: &str =
    "wtransport has no call that closes a session: its `close` ends the QUIC connection";

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("wtransport driver: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), Error> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    match Role::from_args()? {
        Role::Server { folder } => runtime.block_on(server::serve(&folder)),
        Role::Client { folder, port } => runtime.block_on(client::run(&folder, port)),
    }
}
