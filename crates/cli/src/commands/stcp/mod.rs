//! `towline stcp`: secure TCP for programs that are not changed, and what it achieves.

mod echo;
mod enter;
mod flags;
mod key;
mod proxy;
mod run;
mod signals;
mod status;

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
    /// Run an unmodified program with its TCP connections encrypted
    Run(run::RunArgs),
    /// Show what this machine can do, and what it refuses
    Status(status::StatusArgs),
    /// Join a cgroup and execute a program; `run` calls it
    #[command(hide = true)]
    Enter(enter::EnterArgs),
    /// Connect and expect the relay's answer; `run` calls it
    #[command(hide = true)]
    Probe(enter::ProbeArgs),
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
    /// Whether it waits for others.
    pub(crate) fn listens(&self) -> bool {
        matches!(
            self.command,
            StcpCommand::Run(_) | StcpCommand::Proxy(_) | StcpCommand::EchoServer(_)
        )
    }

    /// Runs the subcommand.
    pub(crate) async fn run(self, printer: Printer) -> Result<Exit, Failure> {
        match self.command {
            StcpCommand::Run(args) => args.run(printer).await,
            StcpCommand::Status(args) => args.run(printer),
            StcpCommand::Enter(args) => args.run(),
            StcpCommand::Probe(args) => args.run(),
            StcpCommand::Proxy(args) => args.run(printer).await,
            StcpCommand::Key(args) => args.run(printer),
            StcpCommand::EchoServer(args) => args.run(printer).await,
            StcpCommand::EchoLoad(args) => args.run(printer).await,
        }
    }
}
