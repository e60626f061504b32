//! [`Carrier`]: what has streams and datagrams: a session, or a QUIC connection.
//!
//! The same questions for both, with the answers of [`Failure`]. Called by `Session`, which adds
//! Python.

use std::sync::{Mutex, MutexGuard, OnceLock};
use std::task::{Context, Poll};

use bytes::Bytes;
use towline::engine::DatagramOptions;
use towline::handles::Waiter;
use towline::webtransport;
use towline::{Connection, ConnectionError, RecvStream, SendDatagramError, SendStream, http3};

use crate::errors::{Codes, Failure};
use crate::hub::lock;

/// What can be waited for.
#[derive(Clone, Copy)]
pub(crate) enum Wait {
    AcceptBi,
    AcceptUni,
    OpenBi,
    OpenUni,
    Datagram,
    DatagramRoom,
    Drain,
    End,
}

/// How many there are.
pub(crate) const WAITS: usize = 8;

/// What has streams and datagrams.
pub(crate) enum Carrier {
    /// A WebTransport session, and the turn of who waits for room in its queue of datagrams.
    Session(webtransport::Session, Mutex<Waiter>),
    /// A QUIC connection.
    Quic(Box<Quic>),
    /// A connection that speaks HTTP/3: its streams are the protocol's.
    Http(http3::Connection, Mutex<Waiter>),
}

/// A connection of the application's own protocol.
pub(crate) struct Quic {
    connection: Connection,
    /// Turns of those who wait, by what for.
    waiters: [Mutex<Waiter>; WAITS],
    /// What this end closed it with.
    closed: OnceLock<(u64, String)>,
}

impl Quic {
    fn waiter(&self, wait: Wait) -> MutexGuard<'_, Waiter> {
        lock(&self.waiters[wait as usize])
    }

    fn failure(&self, error: &ConnectionError) -> Failure {
        Failure::of_quic(error, self.closed.get())
    }
}

impl From<webtransport::Session> for Carrier {
    fn from(session: webtransport::Session) -> Self {
        Self::Session(session, Mutex::default())
    }
}

impl From<Connection> for Carrier {
    fn from(connection: Connection) -> Self {
        Self::Quic(Box::new(Quic {
            connection,
            waiters: Default::default(),
            closed: OnceLock::new(),
        }))
    }
}

impl From<http3::Connection> for Carrier {
    fn from(connection: http3::Connection) -> Self {
        Self::Http(connection, Mutex::default())
    }
}

type Polled<T> = Poll<Result<T, Failure>>;

impl Carrier {
    /// The QUIC connection below.
    pub(crate) fn transport(&self) -> &Connection {
        match self {
            Self::Session(session, _) => session.transport(),
            Self::Quic(quic) => &quic.connection,
            Self::Http(http, _) => http.transport(),
        }
    }

    /// Where the codes of its streams have their meaning.
    pub(crate) fn codes(&self) -> Codes {
        match self {
            Self::Session(..) => Codes::Session,
            Self::Quic(_) => Codes::Quic,
            Self::Http(..) => Codes::Http3,
        }
    }

    pub(crate) fn poll_accept_bi(&self, cx: &mut Context<'_>) -> Polled<(SendStream, RecvStream)> {
        match self {
            Self::Session(session, _) => session.poll_accept_bi(cx).map_err(of_session),
            Self::Quic(quic) => {
                let mut waiter = quic.waiter(Wait::AcceptBi);
                let polled = quic.connection.poll_accept_bi(&mut waiter, cx);
                polled.map_err(|error| quic.failure(&error))
            }
            Self::Http(..) => no_streams(),
        }
    }

    pub(crate) fn poll_accept_uni(&self, cx: &mut Context<'_>) -> Polled<RecvStream> {
        match self {
            Self::Session(session, _) => session.poll_accept_uni(cx).map_err(of_session),
            Self::Quic(quic) => {
                let mut waiter = quic.waiter(Wait::AcceptUni);
                let polled = quic.connection.poll_accept_uni(&mut waiter, cx);
                polled.map_err(|error| quic.failure(&error))
            }
            Self::Http(..) => no_streams(),
        }
    }

    pub(crate) fn poll_open_bi(&self, cx: &mut Context<'_>) -> Polled<(SendStream, RecvStream)> {
        match self {
            Self::Session(session, _) => session.poll_open_bi(cx).map_err(of_session),
            Self::Quic(quic) => {
                let mut waiter = quic.waiter(Wait::OpenBi);
                let polled = quic.connection.poll_open_bi(&mut waiter, cx);
                polled.map_err(|error| quic.failure(&error))
            }
            Self::Http(..) => no_streams(),
        }
    }

    pub(crate) fn poll_open_uni(&self, cx: &mut Context<'_>) -> Polled<SendStream> {
        match self {
            Self::Session(session, _) => session.poll_open_uni(cx).map_err(of_session),
            Self::Quic(quic) => {
                let mut waiter = quic.waiter(Wait::OpenUni);
                let polled = quic.connection.poll_open_uni(&mut waiter, cx);
                polled.map_err(|error| quic.failure(&error))
            }
            Self::Http(..) => no_streams(),
        }
    }

    /// False where the queue is full.
    pub(crate) fn send_datagram(
        &self,
        data: Bytes,
        options: &DatagramOptions,
    ) -> Result<bool, Failure> {
        let sent = match self {
            Self::Session(session, _) => session.send_datagram_with(data, options),
            Self::Quic(quic) => quic.connection.send_datagram_with(b"", data, options),
            Self::Http(..) => Err(SendDatagramError::Unsupported),
        };
        self.sent(sent)
    }

    /// The same, and calls when there is room again.
    pub(crate) fn send_datagram_when_room(
        &self,
        cx: &mut Context<'_>,
        mut data: Bytes,
    ) -> Result<bool, Failure> {
        let polled = match self {
            Self::Session(session, room) => {
                session.poll_send_datagram(&mut lock(room), cx, &mut data)
            }
            Self::Quic(quic) => {
                let mut waiter = quic.waiter(Wait::DatagramRoom);
                let connection = &quic.connection;
                connection.poll_send_datagram(&mut waiter, cx, &mut data)
            }
            Self::Http(..) => Poll::Ready(Err(SendDatagramError::Unsupported)),
        };
        match polled {
            Poll::Pending => Ok(false),
            Poll::Ready(sent) => self.sent(sent),
        }
    }

    fn sent(&self, sent: Result<(), SendDatagramError>) -> Result<bool, Failure> {
        match sent {
            Ok(()) => Ok(true),
            Err(SendDatagramError::Full) => Ok(false),
            Err(SendDatagramError::TooLarge { max }) => Err(Failure::TooLarge(max)),
            Err(SendDatagramError::Unsupported) => Err(Failure::TooLarge(0)),
            Err(SendDatagramError::ConnectionLost(error)) => Err(self.lost(&error)),
        }
    }

    /// What the end of the connection means here.
    fn lost(&self, error: &ConnectionError) -> Failure {
        match self {
            Self::Quic(quic) => quic.failure(error),
            Self::Session(..) | Self::Http(..) => Failure::of_connection(error),
        }
    }

    pub(crate) fn poll_read_datagram(&self, cx: &mut Context<'_>) -> Polled<Bytes> {
        match self {
            Self::Session(session, _) => session.poll_read_datagram(cx).map_err(of_session),
            Self::Quic(quic) => {
                let mut waiter = quic.waiter(Wait::Datagram);
                let polled = quic.connection.poll_read_datagram(&mut waiter, cx);
                polled.map_err(|error| quic.failure(&error))
            }
            Self::Http(..) => no_streams(),
        }
    }

    pub(crate) fn max_datagram_len(&self) -> usize {
        let most = match self {
            Self::Session(session, _) => session.max_datagram_len(),
            Self::Quic(quic) => quic.connection.max_datagram_len(),
            Self::Http(..) => None,
        };
        most.unwrap_or(0)
    }

    /// `code` is one of the carrier's own.
    pub(crate) fn close(&self, code: u64, reason: &str) {
        match self {
            Self::Session(session, _) => {
                session.close(u32::try_from(code).unwrap_or(u32::MAX), reason);
            }
            Self::Quic(quic) => {
                if quic.connection.close_reason().is_none() {
                    quic.closed.get_or_init(|| (code, reason.to_owned()));
                }
                quic.connection.close(code, reason.as_bytes());
            }
            Self::Http(http, _) => http.close(),
        }
    }

    /// Asks the peer to end the session soon.
    pub(crate) fn drain(&self) {
        match self {
            Self::Session(session, _) => session.drain(),
            // HTTP/3 has a word for it, plain QUIC has none.
            Self::Http(http, _) => http.go_away(),
            Self::Quic(_) => {}
        }
    }

    pub(crate) fn poll_draining(&self, cx: &mut Context<'_>) -> Polled<()> {
        match self {
            Self::Session(session, _) => session.poll_draining(cx).map_err(of_session),
            Self::Quic(_) | Self::Http(..) => Poll::Pending,
        }
    }

    /// Why it is over.
    pub(crate) fn poll_closed(&self, cx: &mut Context<'_>) -> Poll<Failure> {
        match self {
            Self::Session(session, _) => session.poll_closed(cx).map(of_session),
            Self::Quic(quic) => {
                let mut waiter = quic.waiter(Wait::End);
                let polled = quic.connection.poll_closed(&mut waiter, cx);
                polled.map(|error| quic.failure(&error))
            }
            Self::Http(http, waiter) => {
                let polled = http.transport().poll_closed(&mut lock(waiter), cx);
                polled.map(|error| Failure::of_connection(&error))
            }
        }
    }

    /// The same; `None` while it lives.
    pub(crate) fn close_reason(&self) -> Option<Failure> {
        match self {
            Self::Session(session, _) => session.close_reason().map(of_session),
            Self::Quic(_) | Self::Http(..) => {
                let error = self.transport().close_reason()?;
                Some(self.lost(&error))
            }
        }
    }

    /// Fills `out` with keying material bound to it.
    pub(crate) fn export_keying_material(
        &self,
        out: &mut [u8],
        label: &[u8],
        context: &[u8],
    ) -> Result<(), Failure> {
        let exported = match self {
            Self::Session(session, _) => session.export_keying_material(out, label, context),
            Self::Quic(_) | Self::Http(..) => {
                let transport = self.transport();
                transport.export_keying_material(out, label, Some(context))
            }
        };
        exported.map_err(|error| match self.close_reason() {
            Some(over) => over,
            None => Failure::Value(format!("no keying material: {error}")),
        })
    }
}

fn of_session(error: webtransport::Error) -> Failure {
    Failure::of_session(&error)
}

fn no_streams<T>() -> Polled<T> {
    let words = "the streams of a connection of HTTP/3 are the protocol's";
    Poll::Ready(Err(Failure::Value(words.to_owned())))
}
