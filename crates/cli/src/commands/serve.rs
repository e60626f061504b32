//! `towline serve`: one listener for echo, measurements and files.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use serde_json::json;
use tokio::sync::mpsc;
use towline_transfer::{Store, StorePolicy};

use crate::commands::perf::PerfHost;
use crate::commands::web::serve::Web;
use crate::exit::{Exit, Failure};
use crate::interrupt::Interrupt;
use crate::metrics::{self, MetricsArgs};
use crate::net::{ListenArgs, options, receiving_options};
use crate::printer::Printer;
use crate::service::{Service, run_until_interrupted};
use crate::units::parse_size;

/// Flags of `serve`.
#[derive(clap::Args)]
pub(crate) struct ServeArgs {
    /// Address and port to listen on; port 0 picks a free one
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:4433")]
    listen: SocketAddr,
    /// Offer the files in this folder to whoever asks
    #[arg(long, value_name = "DIR")]
    root: Option<PathBuf>,
    /// Receive files into this folder
    #[arg(long, value_name = "DIR")]
    accept: Option<PathBuf>,
    /// Speak HTTP/3 and WebTransport too, and show a page to browsers on this machine; with DIR, offer its files
    /// over HTTP/3
    #[arg(long, value_name = "DIR")]
    web: Option<Option<PathBuf>>,
    #[command(flatten)]
    receiving: ReceivingArgs,
    #[command(flatten)]
    network: ListenArgs,
    #[command(flatten)]
    metrics: MetricsArgs,
}

/// What a receiver allows.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct ReceivingArgs {
    /// Replace files that are there and differ
    #[arg(long)]
    overwrite: bool,
    /// Sockets, devices and links that lead elsewhere may stay behind: they are named, and no failure
    #[arg(long)]
    pub(crate) leave_out: bool,
    /// Compare hashes even where size and time agree
    #[arg(long)]
    check: bool,
    /// Refuse larger files
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    max_size: Option<u64>,
}

impl ReceivingArgs {
    /// Opens the destination.
    pub(crate) fn store(&self, folder: &std::path::Path) -> Result<Arc<Store>, Failure> {
        let policy = StorePolicy::default()
            .overwrite(self.overwrite)
            .check(self.check)
            .max_file_size(self.max_size);
        Store::open(folder, policy).map_err(|error| {
            Failure::usage(format!(
                "{} cannot be used as a destination: {error}",
                folder.display()
            ))
            .next("name a folder that exists or can be made, and that you may write to")
        })
    }
}

impl ServeArgs {
    /// Serves until Ctrl-C.
    pub(crate) async fn run(self, printer: Printer) -> Result<Exit, Failure> {
        let interrupt = Interrupt::of_a_server(printer);
        let (received, ends) = mpsc::unbounded_channel();
        let mut service = Service::new(printer, interrupt, received);
        service.echo = true;
        service.root = self
            .root
            .as_ref()
            .map(|root| served_folder("--root", root))
            .transpose()?;
        let web = match &self.web {
            Some(Some(folder)) => Some(Web::new(Some(served_folder("--web", folder)?))),
            Some(None) => Some(Web::new(None)),
            None => None,
        };
        service.store = self
            .accept
            .as_deref()
            .map(|folder| self.receiving.store(folder))
            .transpose()?;
        let options = match service.store {
            Some(_) => receiving_options(self.network.idle_timeout, &self.network.congestion),
            None => options(self.network.idle_timeout, &self.network.congestion),
        };
        let metrics = self.metrics.bind().await?;
        let listening = self.network.listen_with(
            self.listen,
            &options,
            printer,
            |config, builder| match &web {
                Some(web) => web.prepare(config, builder),
                None => builder.server(config),
            },
        )?;
        let endpoint = listening.endpoint.clone();
        service.perf = Some(PerfHost::new(
            endpoint.clone(),
            self.network.congestion.name(),
        ));
        if service.root.is_some() {
            listening.warn_if_public(printer, "fetch these files");
        }
        if service.store.is_some() {
            listening.warn_if_public(printer, "put files here");
        }

        let has_files = web.as_ref().is_some_and(Web::has_files);
        let web = match web {
            Some(web) => Some(web.serve(&listening, printer).await?),
            None => None,
        };

        let url = listening.url();
        printer.line(format_args!("listening {}", endpoint.local_addr()));
        printer.line(format_args!("  towline echo '{url}'"));
        printer.line(format_args!("  towline perf client '{url}'"));
        if service.root.is_some() {
            printer.line(format_args!("  towline recv '{url}' --out DIR"));
        }
        if service.store.is_some() {
            printer.line(format_args!("  towline send FILE... '{url}'"));
        }
        if has_files {
            printer.line(format_args!(
                "  towline web get '{}'",
                listening.web_url("/")
            ));
        }
        if let Some(web) = &web {
            printer.line(format_args!(
                "  towline web echo '{}'",
                listening.web_url("/echo")
            ));
            printer.line(format_args!(
                "  towline web perf '{}'",
                listening.web_url("/")
            ));
            printer.line(format_args!("  {} in a browser on this machine", web.page));
        }
        printer.record(&json!({
            "schema": "towline.listening/1",
            "address": endpoint.local_addr().to_string(),
            "url": url.to_string(),
            "web": web.as_ref().map(|web| web.record(&listening)),
        }));
        let _metrics = metrics.serve(printer, metrics::endpoint(endpoint.clone()));
        run_until_interrupted(Arc::new(service), endpoint, ends, |_| false).await;
        Ok(Exit::Interrupted)
    }
}

fn served_folder(flag: &str, folder: &std::path::Path) -> Result<PathBuf, Failure> {
    folder
        .canonicalize()
        .and_then(|folder| std::fs::read_dir(&folder).map(|_| folder))
        .map_err(|error| Failure::usage(format!("{flag} {}: {error}", folder.display())))
}
