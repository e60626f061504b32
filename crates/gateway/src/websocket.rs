//! WebSocket connections to a Signal K server.

use std::sync::Arc;

use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_tungstenite::tungstenite::client::IntoClientRequest as _;
use tokio_tungstenite::tungstenite::handshake::client::Request as HttpRequest;
use tokio_tungstenite::tungstenite::http::HeaderValue;
use tokio_tungstenite::tungstenite::http::header::AUTHORIZATION;
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;
use tokio_tungstenite::tungstenite::{Error, error::CapacityError};
use tokio_tungstenite::{WebSocketStream, client_async_with_config};

use crate::BadUrl;
use crate::connect::{self, CONNECT_TIMEOUT};
use crate::tls::system_roots;
use crate::url::Url;

/// Cap: bytes of one WebSocket message. A longer one costs the connection, since its end is not waited for.
pub(crate) const MAX_MESSAGE_BYTES: usize = 4 << 20;

/// Cap: bytes that wait to be written to a WebSocket.
pub(crate) const MAX_UNWRITTEN: usize = 8 << 20;

const DEFAULT_PATH: &str = "/signalk/v1/stream";

/// A byte stream, with or without TLS.
pub(crate) trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

/// A connection that is open.
pub(crate) type WebSocket = WebSocketStream<Box<dyn Stream>>;

/// Whom to connect to, and with which words.
pub(crate) struct Request {
    host: String,
    port: u16,
    http: HttpRequest,
    tls: Option<(Arc<ClientConfig>, ServerName<'static>)>,
}

impl Request {
    pub(crate) fn new(
        text: &str,
        query: &str,
        token: Option<&str>,
        tls: Option<Arc<ClientConfig>>,
    ) -> Result<Self, BadUrl> {
        let bad = |reason: String| BadUrl::new(text, reason);
        let url = Url::parse(text)?;
        if url.host.is_empty() {
            return Err(bad("it has no host".to_owned()));
        }
        let is_secure = url.scheme == "wss";
        let port = url.port.unwrap_or(if is_secure { 443 } else { 3000 });
        let path = match url.path.as_str() {
            "" | "/" => format!("{DEFAULT_PATH}?{query}"),
            path if path.contains('?') => path.to_owned(),
            path => format!("{path}?{query}"),
        };
        let mut http = format!("{}://{}{path}", url.scheme, url.authority(port))
            .into_client_request()
            .map_err(|error| bad(error.to_string()))?;
        if let Some(token) = token {
            let mut value = HeaderValue::try_from(format!("Bearer {token}"))
                .map_err(|_| bad("the token has characters that no token has".to_owned()))?;
            value.set_sensitive(true);
            http.headers_mut().insert(AUTHORIZATION, value);
        }
        let tls = match is_secure {
            true => {
                let name = ServerName::try_from(url.host.clone())
                    .map_err(|_| bad("no certificate can be for this host".to_owned()))?;
                let config = match tls {
                    Some(config) => config,
                    None => system_roots().map_err(|error| bad(error.to_string()))?,
                };
                Some((config, name))
            }
            false => None,
        };
        Ok(Self {
            host: url.host,
            port,
            http,
            tls,
        })
    }

    /// Connects; fails in a person's words.
    pub(crate) async fn connect(&self) -> Result<WebSocket, String> {
        let connected = timeout(CONNECT_TIMEOUT, self.open()).await;
        connected.unwrap_or_else(|_| Err(format!("{} does not answer", self.host)))
    }

    async fn open(&self) -> Result<WebSocket, String> {
        let tcp = connect::tcp(&self.host, self.port).await?;
        let stream: Box<dyn Stream> = match &self.tls {
            None => Box::new(tcp),
            Some((config, name)) => {
                let connector = TlsConnector::from(Arc::clone(config));
                let secured = connector.connect(name.clone(), tcp).await;
                Box::new(secured.map_err(|error| format!("no TLS with {}: {error}", self.host))?)
            }
        };
        let config = WebSocketConfig::default()
            .max_message_size(Some(MAX_MESSAGE_BYTES))
            .max_frame_size(Some(MAX_MESSAGE_BYTES))
            .write_buffer_size(0)
            .max_write_buffer_size(MAX_UNWRITTEN);
        let request = self.http.clone();
        match client_async_with_config(request, stream, Some(config)).await {
            Ok((socket, _)) => Ok(socket),
            Err(error) => Err(explain(&error)),
        }
    }
}

/// What went wrong, and what to do where that is known.
pub(crate) fn explain(error: &Error) -> String {
    match error {
        Error::Http(response) if matches!(response.status().as_u16(), 401 | 403) => format!(
            "the server refuses us ({}): give a token that it knows and that may do this",
            response.status()
        ),
        Error::Http(response) => format!(
            "no WebSocket at this address: the server answers {}",
            response.status()
        ),
        Error::Capacity(CapacityError::MessageTooLong { size, max_size }) => {
            format!("a message is too long: {size} bytes, and {max_size} are taken")
        }
        error => format!("the connection was lost: {error}"),
    }
}
