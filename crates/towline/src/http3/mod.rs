//! HTTP/3 (RFC 9114) on the endpoint's connections, with the types of the crates `http` and `http-body`.
//!
//! An endpoint speaks it once [`EndpointBuilder::http3`](crate::EndpointBuilder::http3) was called; a
//! server's configuration names [`ALPN`] too, alone or beside other protocols. Rules of the protocol live
//! in `towline-http3`, which stands between the connection and these handles. No task and no runtime
//! is needed: bodies are read from the engine's buffers and written into them, and a full buffer makes
//! the caller wait.
//!
//! ```
//! # use bytes::Bytes;
//! # use towline::Endpoint;
//! # use towline::http3;
//! # use http_body_util::{Empty, Full};
//! async fn serve(endpoint: &Endpoint) -> Option<()> {
//!     let server = http3::Server::new(endpoint)?;
//!     while let Some(connection) = server.accept().await {
//!         // A server of many clients gives each a task of its own.
//!         while let Some(request) = connection.accept().await {
//!             let (request, responder) = request.into_parts();
//!             let words = format!("you asked for {}", request.uri().path());
//!             let answer = http::Response::new(Full::new(Bytes::from(words)));
//!             let _ = responder.send(answer).await;
//!         }
//!     }
//!     Some(())
//! }
//!
//! async fn ask(connection: &http3::Connection) -> Result<Vec<u8>, Box<dyn std::error::Error>> {
//!     let request = http::Request::get("https://boat.example/log").body(Empty::<Bytes>::new())?;
//!     let answer = connection.request(request).await?;
//!     Ok(answer.into_body().read_to_end(1 << 20).await?)
//! }
//! ```
//!
//! # Dropping
//!
//! A message that is dropped before its end was sent is reset with H3_REQUEST_CANCELLED, and the answer
//! of a request that nobody reads any more is refused with it: neither looks like a whole message.

mod body;
mod connection;
mod error;
mod exchange;
pub(crate) mod link;
mod message;
pub(crate) mod protocol;
mod send;
mod server;
pub(crate) mod sessions;
mod streams;
mod wakers;

pub use body::RecvBody;
pub use connection::{Connection, Response};
pub use error::{ConnectError, Error};
pub use message::{Request, Responder};
pub use send::SendBody;
pub use server::{ALPN, Server, connect};
pub use towline_http3::{Config, ErrorCode, SettingId, Settings};

/// Handles go to any thread.
const _: () = {
    const fn is_send_and_sync<T: Send + Sync>() {}

    is_send_and_sync::<Connection>();
    is_send_and_sync::<Server>();
    is_send_and_sync::<Request>();
    is_send_and_sync::<Responder>();
    is_send_and_sync::<SendBody>();
    is_send_and_sync::<RecvBody>();
};
