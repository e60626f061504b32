//! `towline recv`: files from a server that offers them, or from senders that come to us.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use tokio::sync::mpsc;
use towline_transfer::{Lanes, Progress, Store, receive};

use crate::clients::ClientArgs;
use crate::commands::resume::{SESSION, Session, Sessions, Transfer, begin_session};
use crate::commands::serve::ReceivingArgs;
use crate::display::Display;
use crate::exit::{Exit, Failure};
use crate::interrupt::Interrupt;
use crate::metrics::{self, MetricsArgs};
use crate::net::{ConnectArgs, ListenArgs, receiving_options};
use crate::printer::Printer;
use crate::service::{Service, run_until_interrupted};
use crate::summary::{Role, finished};
use crate::units::parse_duration;
use crate::url::Url;

/// Flags of `recv`.
#[derive(clap::Args)]
pub(crate) struct RecvArgs {
    /// What to fetch: towline://HOST:PORT/FILE-OR-FOLDER#sha256/PIN
    #[arg(value_name = "URL", conflicts_with_all = ["listen", "client_pin", "known_clients", "client_ca", "metrics"])]
    url: Option<Url>,
    /// Wait for senders on this address instead; port 0 picks a free one
    #[arg(long, value_name = "ADDR", conflicts_with_all = ["pin", "cacert", "insecure"])]
    listen: Option<SocketAddr>,
    /// Where the files go
    #[arg(long, value_name = "DIR", default_value = ".")]
    out: PathBuf,
    /// With --listen: leave after the first transfer that ran to its end
    #[arg(long, requires = "listen", conflicts_with = "url")]
    once: bool,
    /// When the server is killed or vanishes, try for so long to connect again and go on; 0s gives up at
    /// once. One that is interrupted (Ctrl-C) says so, and ends the transfer: a person chose to
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = parse_duration, conflicts_with = "listen")]
    retry: Duration,
    #[command(flatten)]
    receiving: ReceivingArgs,
    #[command(flatten)]
    clients: ClientArgs,
    #[command(flatten)]
    network: ConnectArgs,
    #[command(flatten)]
    metrics: MetricsArgs,
}

impl RecvArgs {
    /// Whether it waits for senders.
    pub(crate) fn listens(&self) -> bool {
        self.listen.is_some()
    }

    /// Fetches, or listens.
    pub(crate) async fn run(self, printer: Printer) -> Result<Exit, Failure> {
        match (self.url.clone(), self.listen) {
            (_, Some(address)) => self.listen(address, printer).await,
            (Some(url), None) => self.fetch(url, printer).await,
            (None, None) => Err(Failure::usage("what to receive is missing")
                .next("give a URL to fetch from, or --listen ADDR to wait for a sender")),
        }
    }

    async fn fetch(self, url: Url, printer: Printer) -> Result<Exit, Failure> {
        let store = self.receiving.store(&self.out)?;
        let mut interrupt = Interrupt::install(printer);
        let transfer = Transfer {
            role: Role::ClientReceives,
            retry: self.retry,
            leave_out: self.receiving.leave_out,
            printer,
        };
        let fetching = Fetching {
            network: self.network,
            url,
            store,
            printer,
        };
        let result = transfer.run(&fetching, &mut interrupt).await;
        fetching.store.tidy();
        result
    }

    async fn listen(&self, address: SocketAddr, printer: Printer) -> Result<Exit, Failure> {
        let interrupt = Interrupt::install(printer);
        let (received, ends) = mpsc::unbounded_channel();
        let mut service = Service::new(printer, interrupt, received);
        let options = receiving_options(self.network.idle_timeout, &self.network.congestion);
        let network = ListenArgs {
            certificate: self.network.certificate.clone(),
            clients: self.clients.clone(),
            idle_timeout: self.network.idle_timeout,
            congestion: self.network.congestion.clone(),
            qlog: self.network.qlog.clone(),
        };
        let metrics = self.metrics.bind().await?;
        let listening = network.listen(address, &options, printer)?;
        // Only now: a port in use must not leave a new folder behind.
        service.store = Some(self.receiving.store(&self.out)?);
        listening.warn_if_public(printer, "put files here");
        let url = listening.url();
        printer.line(format_args!(
            "listening {}",
            listening.endpoint.local_addr()
        ));
        printer.line(format_args!("  towline send FILE... '{url}'"));
        printer.record(&json!({
            "schema": "towline.listening/1",
            "address": listening.endpoint.local_addr().to_string(),
            "url": url.to_string(),
        }));
        let _metrics = metrics.serve(printer, metrics::endpoint(listening.endpoint.clone()));
        let once = self.once;
        // An interrupted sender comes back: only a session that ran to its end counts.
        let last = run_until_interrupted(Arc::new(service), listening.endpoint, ends, |ended| {
            once && ended.error.is_none()
        })
        .await;
        match last {
            None => Ok(Exit::Interrupted),
            Some(ended) => finished(&ended.report, self.receiving.leave_out),
        }
    }
}

struct Fetching {
    network: ConnectArgs,
    url: Url,
    store: Arc<Store>,
    printer: Printer,
}

impl Sessions for Fetching {
    async fn session(&self, interrupt: &mut Interrupt) -> Result<Session, Failure> {
        let lanes = Lanes::default();
        let Some((_registration, arrivals)) = lanes.register(SESSION) else {
            return Err(Failure::new(Exit::Other, "the session number is in use"));
        };
        let (client, control) = begin_session(
            Role::ClientReceives,
            &self.network,
            &self.url,
            self.printer,
            interrupt,
        )
        .await?;
        tokio::spawn(lanes.accept_all(client.connection.clone()));
        let progress = Arc::new(Progress::new());
        let display = Display::start(self.printer, Arc::clone(&progress));
        let (store, moved) = (Arc::clone(&self.store), Arc::clone(&progress));
        let ended = receive(control, arrivals, store, None, moved, interrupt.flag()).await;
        drop(display);
        Ok(Session {
            client,
            ended,
            progress,
            control: None,
        })
    }
}
