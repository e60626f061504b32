//! Files and folders over the streams of one connection, with resuming and a hash for every file.
//!
//! [`send`] and [`receive`] are the two halves of a session; who opened the connection does not
//! matter to them. [`open`], [`read_opening`], [`accept`] and [`refuse`] do the opening messages. The
//! format is in `docs/transfer-format.md`. `towline send`, `recv` and `serve` are built on this crate.
//! It prints nothing: [`Progress`] counts while a session runs, [`Ended`] says how it ended.
//!
//! # Streams
//!
//! A session has one control stream, both ways, and one to [`caps::MAX_LANES`] data streams ("lanes")
//! from the sender to the receiver.
//!
//! | stream | what it must be |
//! |---|---|
//! | control | a pair of tokio's [`AsyncRead`](tokio::io::AsyncRead) and [`AsyncWrite`](tokio::io::AsyncWrite) |
//! | lanes, sender | an [`OpenLane`], whose streams are [`LaneWriter`]s |
//! | lanes, receiver | a channel of [`AsyncRead`](tokio::io::AsyncRead), each behind its kind and session number |
//!
//! For Towline's connections [`QuicLanes`] opens lanes and [`Lanes`] sorts those that arrive.
//!
//! # Example
//!
//! A folder travels between two endpoints of one program.
//!
//! ```
//! use std::sync::Arc;
//!
//! use tokio::sync::watch;
//! use towline::config::{self, ClientAuth, Identity, Options, Trust};
//! use towline::{Endpoint, identity::Pin};
//! use towline_transfer::{
//!     Lanes, Opening, QuicLanes, Root, SendPlan, Store, StorePolicy, accept, open, read_kind,
//!     read_opening, receive, send, stream_kind,
//! };
//!
//! type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;
//!
//! async fn receive_into(store: Arc<Store>, server: Endpoint) -> Result<u64> {
//!     let connection = server.accept().await.ok_or("the endpoint is closed")?;
//!     let lanes = Lanes::default();
//!     tokio::spawn(lanes.clone().accept_all(connection.clone()));
//!     let (mut writer, mut reader) = connection.accept_bi().await?;
//!     assert_eq!(read_kind(&mut reader).await, Some(stream_kind::PUSH));
//!     let Opening { session, path } = read_opening(&mut reader).await?;
//!     let (_expected, arrivals) = lanes.register(session).ok_or("a session of that number")?;
//!     accept(&mut writer).await?;
//!
//!     // True would end the session early.
//!     let (_stop, stopped) = watch::channel(false);
//!     let control = (reader, writer);
//!     let ended = receive(control, arrivals, store, path, Arc::default(), stopped).await;
//!     connection.closed().await;
//!     ended.error.map_or(Ok(ended.report.files), |error| Err(error.into()))
//! }
//!
//! # #[tokio::main]
//! # async fn main() -> Result<()> {
//! # let scratch = std::env::temp_dir().join(format!("towline-transfer-doc-{}", std::process::id()));
//! let (from, to) = (scratch.join("from"), scratch.join("to"));
//! std::fs::create_dir_all(&from)?;
//! std::fs::write(from.join("soundings"), "12 14 9")?;
//!
//! let identity = Identity::generate_dev(&["localhost"], config::unix_now())?;
//! let options = Options::new("files");
//! let server = config::server(&identity, &ClientAuth::None, &options)?;
//! let server = Endpoint::server("127.0.0.1:0".parse()?, server)?;
//! let address = server.local_addr();
//! let store = Store::open(&to, StorePolicy::default())?;
//! let receiving = tokio::spawn(receive_into(Arc::clone(&store), server));
//!
//! let trust = Trust::Pinned(vec![Pin::Key(identity.key_pin())]);
//! let client = Endpoint::client("127.0.0.1:0".parse()?)?;
//! let config = config::client(&trust, None, &options)?;
//! let connection = client.connect(address, "localhost", &config).await?;
//! let (mut writer, mut reader) = connection.open_bi().await?;
//! let session = 1;
//! let opening = Opening { session, path: None };
//! open((&mut reader, &mut writer), stream_kind::PUSH, opening).await?;
//!
//! let plan = SendPlan {
//!     roots: vec![Root { disk: from, name: None }],
//!     follow_links: false,
//!     lanes: 4,
//! };
//! let (_stop, stopped) = watch::channel(false);
//! let lanes = QuicLanes(connection.clone());
//! let mut sent = send((reader, writer), lanes, session, plan, Arc::default(), stopped).await;
//! assert!(sent.ended.error.is_none());
//! // Closing drops what is not delivered. A receiver that has all of it may stop the stream.
//! let _ = sent.control.finished().await;
//! connection.close(0, b"done");
//!
//! assert_eq!(receiving.await??, 1);
//! assert_eq!(std::fs::read_to_string(to.join("soundings"))?, "12 14 9");
//! store.tidy();
//! # std::fs::remove_dir_all(scratch)?;
//! # Ok(())
//! # }
//! ```
#![forbid(unsafe_code)]

pub mod caps;
mod claims;
mod cpu;
mod encoding;
mod message;
mod open;
mod path;
mod pipe;
mod progress;
mod quic;
mod reason;
mod receive;
mod report;
mod send;
mod source;
mod store;
mod walk;

pub use cpu::CpuMeter;
pub use encoding::put_varint;
pub use message::read_varint;
pub use open::{OpenError, Opening, accept, open, read_opening, refuse, stream_kind};
pub use path::{BadPath, RelativePath, printable};
pub use pipe::{LaneWriter, OpenLane};
pub use progress::{Progress, ProgressSnapshot};
pub use quic::{Lanes, QuicLanes, Registration, read_kind};
pub use reason::{Reason, Refusal};
pub use receive::receive;
pub use report::{Ended, Failed, Report, SessionError};
pub use send::{SendEnded, SendPlan, send};
pub use store::{Store, StorePolicy};
pub use walk::Root;

#[cfg(test)]
mod tests;
