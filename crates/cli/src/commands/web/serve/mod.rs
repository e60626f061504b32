//! `serve --web DIR`: HTTP/3 beside Towline's own protocol on one UDP port.

mod files;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio::task::JoinHandle;
use towline::engine::{ProtocolConfig, ServerConfig};
use towline::{Endpoint, EndpointBuilder, http3};

/// What `serve --web` was asked for.
#[derive(Debug)]
pub(crate) struct Web {
    /// The folder whose files are served.
    root: Arc<Path>,
}

/// What serves it; dropped, it ends.
pub(crate) struct Serving(JoinHandle<()>);

impl Drop for Serving {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Web {
    /// With the files of a folder, which is there.
    pub(crate) fn new(root: PathBuf) -> Self {
        Self { root: root.into() }
    }

    /// The endpoint that speaks HTTP/3 too, with the transport settings of the rest.
    pub(crate) fn prepare(config: ServerConfig, builder: EndpointBuilder) -> EndpointBuilder {
        let transport = Arc::clone(&config.transport);
        let protocol = ProtocolConfig::new(http3::ALPN).transport(transport);
        let builder = builder.server(config.protocols([protocol]));
        builder.http3(http3::Config::default())
    }

    /// Begins to serve; `None` where the endpoint was not prepared for it.
    pub(crate) fn serve(self, endpoint: &Endpoint) -> Option<Serving> {
        let server = http3::Server::new(endpoint)?;
        Some(Serving(tokio::spawn(async move {
            while let Some(connection) = server.accept().await {
                tokio::spawn(files::serve(connection, Arc::clone(&self.root)));
            }
        })))
    }
}
