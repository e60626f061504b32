//! `towline stcp`: secure TCP for programs that are not changed, and what it achieves.

mod echo;
mod flags;
mod key;
mod proxy;

use crate::exit::{Exit, Failure};
use crate::printer::Printer;

/// Flags of `stcp`.
#[derive(clap::Args)]
pub(crate) struct StcpArgs {
    #[command(subcommand)]
    command: StcpCommand,
}

#[derive(clap::Subcommand)]
enum StcpCommand {
    /// Encrypt the connections of unchanged programs, as stunnel does
    Proxy(proxy::ProxyArgs),
    /// Show the pin of this machine's key, making one if there is none
    Key(key::KeyArgs),
    /// Send back what echo-load sends
    EchoServer(echo::EchoServerArgs),
    /// Measure request and response with an echo-server
    EchoLoad(echo::EchoLoadArgs),
}

impl StcpArgs {
    /// Runs the subcommand.
    pub(crate) async fn run(self, printer: Printer) -> Result<Exit, Failure> {
        match self.command {
            StcpCommand::Proxy(args) => args.run(printer).await,
            StcpCommand::Key(args) => args.run(printer),
            StcpCommand::EchoServer(args) => args.run(printer).await,
            StcpCommand::EchoLoad(args) => args.run(printer).await,
        }
    }
}
