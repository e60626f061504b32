//! `towline web echo`: round trips in a session of WebTransport.

use super::client;
use crate::commands::echo::{Peer, PingArgs};
use crate::exit::{Exit, Failure};
use crate::interrupt::Interrupt;
use crate::net::{ConnectArgs, options};
use crate::printer::Printer;
use crate::url::WebUrl;

/// Flags of `web echo`.
#[derive(clap::Args)]
pub(crate) struct WebEchoArgs {
    /// https://HOST[:PORT]/PATH[#sha256/PIN] of sessions in which everything comes back, such as /echo
    #[arg(value_name = "URL")]
    url: WebUrl,
    #[command(flatten)]
    pings: PingArgs,
    #[command(flatten)]
    network: ConnectArgs,
}

impl WebEchoArgs {
    /// Runs until the count is reached or Ctrl-C.
    pub(crate) async fn run(self, printer: Printer) -> Result<Exit, Failure> {
        self.pings.check()?;
        let mut interrupt = Interrupt::install(printer);
        let options = options(self.network.idle_timeout, &self.network.congestion);
        let opening = async {
            let client = client::connect(&self.network, &self.url, options, printer).await?;
            let (authority, path) = (self.url.authority(), &self.url.target);
            let session = client::open(client.connection.clone(), &authority, path).await?;
            Ok((client, session))
        };
        let (client, session) = tokio::select! {
            opened = opening => opened?,
            () = interrupt.wait() => return Ok(Exit::Interrupted),
        };
        let peer = Peer::Web(session.clone());
        let done = self.pings.run(&peer, &mut interrupt, printer).await;
        session.close(0, "");
        client::close(&client).await;
        done
    }
}
