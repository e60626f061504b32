//! The subcommands, one file each; `resume` is what two of them have in common.

pub(crate) mod cert;
pub(crate) mod echo;
pub(crate) mod link;
pub(crate) mod perf;
pub(crate) mod qlog;
pub(crate) mod recv;
pub(crate) mod relay;
pub(crate) mod resume;
pub(crate) mod send;
pub(crate) mod serve;
pub(crate) mod sim;
pub(crate) mod stcp;
pub(crate) mod stcpd;
pub(crate) mod top;
pub(crate) mod web;

use crate::exit::{Exit, Failure};
use crate::printer::Printer;

/// What to do.
#[derive(clap::Subcommand)]
pub(crate) enum Command {
    /// Listen: echo, measurements, files to fetch (--root), files to receive (--accept)
    Serve(serve::ServeArgs),
    /// Send files and folders
    Send(send::SendArgs),
    /// Receive files: fetch them from a URL, or listen for a sender
    Recv(recv::RecvArgs),
    /// Measure round trips, like ping
    Echo(echo::EchoArgs),
    /// Measure throughput, like iperf3
    Perf(perf::PerfArgs),
    /// Stand between two programs as a bad network
    Relay(relay::RelayArgs),
    /// Say what a connection's log holds, and draw it
    Qlog(qlog::QlogCommandArgs),
    /// Play scenarios on the simulator and compare congestion controllers
    Sim(sim::SimArgs),
    /// Secure TCP: TLS 1.3 for programs that speak TCP
    Stcp(stcp::StcpArgs),
    /// The agent of secure TCP: handshakes for the kernel module and the preload shim
    Stcpd(stcpd::StcpdArgs),
    /// Telemetry over bad links
    Link(link::LinkArgs),
    /// Watch the running links
    Top(top::TopArgs),
    /// HTTP/3 and WebTransport
    Web(web::WebCommandArgs),
    /// Certificates and pins
    Cert(cert::CertCommandArgs),
}

impl Command {
    /// Whether it waits for others, and its log is read later.
    pub(crate) fn is_a_server(&self) -> bool {
        match self {
            Self::Serve(_) | Self::Relay(_) | Self::Stcpd(_) => true,
            Self::Recv(args) => args.listens(),
            Self::Perf(args) => args.listens(),
            Self::Stcp(args) => args.listens(),
            Self::Link(args) => args.listens(),
            Self::Send(_)
            | Self::Echo(_)
            | Self::Qlog(_)
            | Self::Sim(_)
            | Self::Top(_)
            | Self::Web(_)
            | Self::Cert(_) => false,
        }
    }

    /// What comes before the first thread.
    pub(crate) fn prepare(&self) {
        #[cfg(target_os = "linux")]
        if let Self::Stcpd(_) = self
            && let Err(error) = towline_agent::forbid_new_privileges()
        {
            tracing::warn!("NO_NEW_PRIVS: {error}");
        }
    }

    /// Runs it to its end.
    pub(crate) async fn run(self, printer: &Printer) -> Result<Exit, Failure> {
        match self {
            Self::Serve(args) => args.run(*printer).await,
            Self::Send(args) => args.run(*printer).await,
            Self::Recv(args) => args.run(*printer).await,
            Self::Echo(args) => args.run(*printer).await,
            Self::Perf(args) => args.run(*printer).await,
            Self::Relay(args) => args.run(*printer).await,
            Self::Qlog(args) => args.run(*printer),
            Self::Sim(args) => args.run(*printer).await,
            Self::Stcp(args) => args.run(*printer).await,
            Self::Stcpd(args) => args.run(*printer).await,
            Self::Link(args) => args.run(*printer).await,
            Self::Top(args) => args.run(*printer).await,
            Self::Web(args) => args.run(*printer).await,
            Self::Cert(args) => args.run(*printer),
        }
    }
}
