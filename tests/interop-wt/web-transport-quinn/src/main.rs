//! Interop driver for web-transport-quinn: client and server behind the contract in `../README.md`, over its
//! public API alone.

mod client;
mod server;

use std::process::ExitCode;

use interop_wt_contract::{Error, Role};

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("web-transport-quinn driver: {error}");
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
