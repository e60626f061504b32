//! `towline web echo`: round trips in a session of WebTransport.

use http::Request;
use towline::http3;
use towline::webtransport::{self, ConnectError, Session};

use crate::commands::echo::{Peer, PingArgs};
use crate::exit::{Exit, Failure};
use crate::failures::session_failure;
use crate::interrupt::Interrupt;
use crate::net::{Client, ConnectArgs, options};
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
        let (client, session) = tokio::select! {
            opened = self.open(printer) => opened?,
            () = interrupt.wait() => return Ok(Exit::Interrupted),
        };
        let peer = Peer::Web(session.clone());
        let done = self.pings.run(&peer, &mut interrupt, printer).await;
        session.close(0, "");
        client
            .close(http3::ErrorCode::H3_NO_ERROR.as_u64(), "")
            .await;
        done
    }

    async fn open(&self, printer: Printer) -> Result<(Client, Session), Failure> {
        let mut options = options(self.network.idle_timeout, &self.network.congestion);
        options.alpn = vec![http3::ALPN.into()];
        let speaks = |builder: towline::EndpointBuilder| {
            builder.webtransport(webtransport::Config::default())
        };
        let client = self
            .network
            .connect_with(&self.url.server, &options, printer, speaks)
            .await?;
        let uri = format!("https://{}{}", self.url.authority(), self.url.target);
        let head = Request::get(uri)
            .body(())
            .map_err(|error| Failure::usage(error.to_string()))?;
        let session = webtransport::connect_over(client.connection.clone(), head, &[]).await;
        let session = session.map_err(|error| match error {
            ConnectError::Session(error) => session_failure(&error),
            error => Failure::new(Exit::Protocol, error.to_string()),
        })?;
        tracing::info!(dialect = session.dialect().name(), "session open");
        Ok((client, session))
    }
}
