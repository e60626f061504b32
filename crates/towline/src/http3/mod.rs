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
//! # use towline::http3::{self, RecvBody, Router};
//! # use http_body_util::{Empty, Full};
//! async fn log(request: http::Request<RecvBody>) -> http::Response<Full<Bytes>> {
//!     let words = format!("you asked for {}", request.uri().path());
//!     http::Response::new(Full::new(Bytes::from(words)))
//! }
//!
//! async fn serve(endpoint: &Endpoint) -> Option<()> {
//!     let server = http3::Server::new(endpoint)?;
//!     // Until the endpoint is closed, each request in a task of its own.
//!     server.serve(Router::new().route("/log", log)).await;
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
//! Who wants another loop than [`Server::serve`]'s has [`Server::requests`], for all connections, or
//! [`Server::accept`] and [`Connection::accept`], for each.
//!
//! # Dropping
//!
//! A message that is dropped before its end was sent is reset with H3_REQUEST_CANCELLED, and the answer
//! of a request that nobody reads any more is refused with it: neither looks like a whole message.

pub(crate) mod arrivals;
mod body;
mod connection;
mod error;
mod exchange;
pub(crate) mod link;
mod message;
pub(crate) mod protocol;
mod router;
mod routes;
mod send;
mod server;
pub(crate) mod sessions;
mod stats;
mod streams;
mod tunnel;
mod wakers;

pub use body::RecvBody;
pub use connection::{Connection, Response};
pub use error::{ConnectError, Error};
pub use message::{Request, Responder, Watch};
pub use router::{Requests, Router, Task};
pub use send::SendBody;
pub use server::{ALPN, Server, connect};
pub use stats::Stats;
pub use towline_http3::{Config, ErrorCode, SendError, SettingId, Settings, observe};
pub use tunnel::Protocol;

/// Handles go to any thread.
const _: () = {
    const fn is_send_and_sync<T: Send + Sync>() {}

    is_send_and_sync::<Connection>();
    is_send_and_sync::<Server>();
    is_send_and_sync::<Requests>();
    is_send_and_sync::<Router>();
    is_send_and_sync::<Request>();
    is_send_and_sync::<Responder>();
    is_send_and_sync::<Watch>();
    is_send_and_sync::<SendBody>();
    is_send_and_sync::<RecvBody>();
};
