//! `serve --web`: HTTP/3 and WebTransport beside Towline's own protocol on one UDP port, and a page
//! for the browsers of this machine.

mod chat;
mod door;
mod files;
mod page;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use towline::engine::{ProtocolConfig, ServerConfig};
use towline::{EndpointBuilder, http3, webtransport};

use crate::exit::{Exit, Failure};
use crate::net::Listening;
use crate::plain_http;
use crate::printer::Printer;

use self::page::Page;

/// What `serve --web` was asked for.
#[derive(Debug)]
pub(crate) struct Web {
    /// The folder whose files are served, if one was named.
    root: Option<Arc<Path>>,
}

/// What serves it; dropped, it ends.
pub(crate) struct Serving {
    door: JoinHandle<()>,
    _page: plain_http::Serving,
    /// Where the page is.
    pub(crate) page: String,
    /// Where WebTransport is.
    url: String,
}

impl Drop for Serving {
    fn drop(&mut self) {
        self.door.abort();
    }
}

impl Serving {
    /// For programs: where all is, and what is shown there today.
    pub(crate) fn record(&self, listening: &Listening) -> Value {
        json!({
            "page": self.page,
            "url": self.url,
            "certificate_pins": (listening.certificate_pins)(),
        })
    }
}

impl Web {
    /// With the files of a folder, which is there.
    pub(crate) fn new(root: Option<PathBuf>) -> Self {
        let root = root.map(Into::into);
        Self { root }
    }

    /// Whether files are served.
    pub(crate) const fn has_files(&self) -> bool {
        self.root.is_some()
    }

    /// The endpoint that speaks HTTP/3 too, with the transport settings of the rest.
    pub(crate) fn prepare(
        &self,
        config: ServerConfig,
        builder: EndpointBuilder,
    ) -> EndpointBuilder {
        let transport = Arc::clone(&config.transport);
        let protocol = ProtocolConfig::new(http3::ALPN).transport(transport);
        let web = webtransport::Config {
            takes_requests: self.has_files(),
            ..webtransport::Config::default()
        };
        builder
            .server(config.protocols([protocol]))
            .webtransport(web)
    }

    /// Begins to serve.
    pub(crate) async fn serve(
        self,
        listening: &Listening,
        printer: Printer,
    ) -> Result<Serving, Failure> {
        let Some(server) = webtransport::Server::new(&listening.endpoint) else {
            return Err(Failure::new(Exit::Other, "the endpoint speaks no HTTP/3"));
        };
        if (listening.certificate_pins)().is_empty() {
            let failure = Failure::usage("browsers take no raw key");
            return Err(failure.next("leave out --raw-key, or --web"));
        }
        if let Some(obstacle) = &listening.hash_obstacle {
            printer.note(format_args!(
                "towline: WARNING: browsers do not take our certificate by its hash: {obstacle}; leave out --cert and --key, or make them with `towline cert dev`, unless an authority that browsers trust has signed it"
            ));
        }
        let address = listening.endpoint.local_addr();
        let url = format!("https://{}", from_here(address));
        let listener = page_listener(address.port()).await?;
        let page = match listener.local_addr() {
            Ok(address) => format!("http://{address}/"),
            Err(error) => return Err(no_page(&error)),
        };
        let site = Page {
            url: url.clone(),
            pins: Arc::clone(&listening.certificate_pins),
        };
        Ok(Serving {
            door: tokio::spawn(door::serve(server, self.root)),
            _page: plain_http::serve(listener, site),
            page,
            url,
        })
    }
}

/// How a browser of this machine reaches a listener.
fn from_here(mut address: SocketAddr) -> SocketAddr {
    if address.ip().is_unspecified() {
        address.set_ip(IpAddr::V4(Ipv4Addr::LOCALHOST));
    }
    address
}

/// On this machine only, and on the same number as QUIC unless somebody has it.
async fn page_listener(port: u16) -> Result<TcpListener, Failure> {
    match TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await {
        Ok(listener) => Ok(listener),
        Err(_) => TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
            .await
            .map_err(|error| no_page(&error)),
    }
}

fn no_page(error: &std::io::Error) -> Failure {
    Failure::new(Exit::Other, format!("no port for the page: {error}"))
}
