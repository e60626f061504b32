//! WebTransport: sessions with browsers and other peers over HTTP/3 (draft-ietf-webtrans-http3).
//!
//! An endpoint takes part once [`EndpointBuilder::webtransport`](crate::EndpointBuilder::webtransport) was called; a server's
//! configuration names [`http3::ALPN`](crate::http3::ALPN) too. A connection can carry several sessions and,
//! where the [`Config`] says so, requests beside them. Streams and datagrams are those of the engine:
//! [`SendStream`](crate::SendStream) and [`RecvStream`](crate::RecvStream) with their priorities, groups and counts.
//! No task and no runtime is needed.
//!
//! ```
//! # use towline::Endpoint;
//! # use towline::webtransport::{Config, Server, Session, generate_certificate};
//! # use towline::config::{self, ClientAuth, Options};
//! # use towline::http3::{self, Router};
//! async fn echo(session: Session) {
//!     while let Ok((mut send, mut recv)) = session.accept_bi().await {
//!         tokio::spawn(async move {
//!             let bytes = recv.read_to_end(1 << 20).await?;
//!             send.write_all(&bytes).await?;
//!             send.finish()?;
//!             Ok::<_, Box<dyn std::error::Error + Send + Sync>>(())
//!         });
//!     }
//! }
//!
//! # async fn f() -> Result<(), Box<dyn std::error::Error>> {
//! // Browsers take it when a page gives them its hash.
//! let identity = generate_certificate(&["localhost"], config::unix_now())?;
//! let hash = identity.certificate_pin();
//! let config = config::server(&identity, &ClientAuth::None, &Options::new(http3::ALPN))?;
//! let endpoint = Endpoint::builder()
//!     .server(config)
//!     .webtransport(Config::default())
//!     .bind("127.0.0.1:4433".parse()?)?;
//! let server = Server::new(&endpoint).ok_or("no door")?;
//! // Every other path is answered 404.
//! server.serve(Router::new().session("/echo", echo)).await;
//! # Ok(()) }
//! ```
//!
//! Who wants another loop has [`Server::sessions`], for all connections, or [`Server::accept`] and
//! [`Connection::accept`], for each.
//!
//! # Codes
//!
//! Streams are reset and stopped with codes of 32 bits, which have a range of their own on the wire;
//! larger ones are sent as the largest. A code of the peer's that is none of an application's
//! is told with 2^32 added to the code of HTTP/3: [`http3_code`] takes it off again.

mod client;
mod error;
mod request;
mod router;
mod server;
mod session;
mod stats;

#[cfg(feature = "tokio")]
pub use client::connect;
pub use client::{connect_over, connect_to};
pub use error::{ConnectError, Error};
pub use request::SessionRequest;
pub use router::{SessionRequests, Wish, Wishes};
pub use server::{Config, Connection, Server};
pub use session::{Session, SessionStats};
pub use stats::Stats;
pub use towline_http3::webtransport::ConnectError as NotAsked;
pub use towline_http3::webtransport::{Dialect, Dialects, SessionEnd};
pub use towline_identity::{GenerateError, HashObstacle};

use towline_http3::ErrorCode;
use towline_identity::{Identity, UnixTime};

use crate::http3::protocol::HTTP3_CODES;

/// The code of HTTP/3 in a code that a stream's handle was told; `None` where it is an application's.
pub fn http3_code(code: u64) -> Option<ErrorCode> {
    code.checked_sub(HTTP3_CODES).map(ErrorCode::from_u64)
}

/// A certificate for `names` that browsers take when they are given its hash (`serverCertificateHashes`):
/// ECDSA over P-256, valid for less than 14 days, from an hour before `now`. The hash is
/// [`Identity::certificate_pin`]. Whether they take another one, [`Identity::hash_obstacle`] says.
///
/// # Errors
/// When a name cannot stand in a certificate.
pub fn generate_certificate<S: AsRef<str>>(
    names: &[S],
    now: UnixTime,
) -> Result<Identity, GenerateError> {
    Identity::generate_dev(names, now)
}

/// Handles go to any thread, and are used from several at once.
const _: () = {
    const fn is_send_and_sync<T: Send + Sync>() {}

    is_send_and_sync::<Connection>();
    is_send_and_sync::<Server>();
    is_send_and_sync::<Session>();
    is_send_and_sync::<SessionRequest>();
    is_send_and_sync::<SessionRequests>();
    is_send_and_sync::<Wishes>();
};
