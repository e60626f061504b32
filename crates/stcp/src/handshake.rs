//! The handshake: rustls, fed one record at a time.
//!
//! One at a time, because rustls would decrypt whatever follows the last handshake record, and
//! that belongs to whoever makes the records afterwards. `towline` reads the stream, hands in what
//! it got and sends [`output`](Handshake::output), until [`is_complete`](Handshake::is_complete).
//! With [`wanted`](Handshake::wanted) it takes no byte of the stream too many, as the kernel needs.

use std::sync::Arc;

use bytes::{Buf, BytesMut};
use rustls::client::UnbufferedClientConnection;
use rustls::pki_types::ServerName;
use rustls::server::UnbufferedServerConnection;
use rustls::unbuffered::{ConnectionState, EncodeError, UnbufferedStatus};
use rustls::{AlertDescription, CipherSuite, CommonState, ContentType, HandshakeKind, NamedGroup};
use towline_identity::PeerIdentity;

use crate::config::{ALPN, Alpn, Authentication, ClientConfig, ServerConfig};
use crate::error::SessionError;
use crate::keys::{KernelKeys, KeySchedule};
use crate::record::{HEADER_LEN, record_len};
use crate::session::Session;

/// Most that one flight of the peer may hold: rustls joins handshake messages up to 64 KiB.
const MAX_FLIGHT: usize = 128 * 1024;

/// What is shown of a peer that does not speak TLS.
const FIRST_LOOK: usize = 16;

/// Most steps that one record can cause; beyond it something goes round in circles.
const MAX_STEPS: usize = 64;

/// A handshake under way. After an error, [`output`](Self::output) may hold an alert for the peer.
pub struct Handshake {
    tls: Tls,
    authentication: Authentication,
    required: Alpn,
    /// Received and not yet shown to rustls.
    inbox: BytesMut,
    /// Shown to rustls and not yet done with.
    shown: Vec<u8>,
    /// A whole record has come.
    has_begun: bool,
    outbox: BytesMut,
}

enum Tls {
    Client(Box<UnbufferedClientConnection>),
    Server(Box<UnbufferedServerConnection>),
}

/// What a step of rustls came to.
enum Step {
    Again,
    Blocked,
}

impl Handshake {
    /// A client that wants to reach `name`. Its first flight is in the output at once.
    pub fn client(config: &ClientConfig, name: ServerName<'static>) -> Result<Self, SessionError> {
        let connection = UnbufferedClientConnection::new(Arc::clone(&config.tls), name)
            .map_err(SessionError::from_handshake)?;
        let tls = Tls::Client(Box::new(connection));
        let mut handshake = Self::new(tls, config.authentication, config.alpn);
        handshake.drive()?;
        Ok(handshake)
    }

    /// A server, before the client's first byte.
    pub fn server(config: &ServerConfig) -> Result<Self, SessionError> {
        let connection = UnbufferedServerConnection::new(Arc::clone(&config.tls))
            .map_err(SessionError::from_handshake)?;
        let tls = Tls::Server(Box::new(connection));
        Ok(Self::new(tls, config.authentication, config.alpn))
    }

    fn new(tls: Tls, authentication: Authentication, required: Alpn) -> Self {
        Self {
            tls,
            authentication,
            required,
            inbox: BytesMut::new(),
            shown: Vec::new(),
            has_begun: false,
            outbox: BytesMut::new(),
        }
    }

    /// How many bytes of the stream complete the record that the handshake waits for, or its
    /// header: taking no more leaves what follows the handshake in the socket.
    pub fn wanted(&self) -> usize {
        let len = match record_len(&self.inbox) {
            Ok(Some(len)) => len,
            // Every hello is longer, and a peer that speaks in clear shows more of itself.
            _ if !self.has_begun => FIRST_LOOK,
            _ => HEADER_LEN,
        };
        len.saturating_sub(self.inbox.len()).max(1)
    }

    /// Bytes of the stream, in order. Bytes beyond the handshake are kept for the session.
    pub fn handle_input(&mut self, bytes: &[u8]) -> Result<(), SessionError> {
        self.inbox.extend_from_slice(bytes);
        while !self.is_complete() {
            self.check_it_is_tls()?;
            let Some(len) = record_len(&self.inbox)?.filter(|len| *len <= self.inbox.len()) else {
                return Ok(());
            };
            if self.shown.len() + len > MAX_FLIGHT {
                return Err(SessionError::peer(
                    "a handshake longer than 128 KiB",
                    AlertDescription::RecordOverflow,
                ));
            }
            let record = self.inbox.split_to(len);
            self.has_begun = true;
            self.shown.extend_from_slice(&record);
            self.drive()?;
        }
        Ok(())
    }

    /// The stream has ended: never well, here.
    pub fn handle_eof(&self) -> SessionError {
        SessionError::ClosedInHandshake
    }

    /// Bytes to send.
    pub fn output(&self) -> &[u8] {
        &self.outbox
    }

    /// So many bytes of the output were sent.
    pub fn on_sent(&mut self, len: usize) {
        self.outbox.advance(len);
    }

    /// Both sides are known and the keys are there. The output must still be sent.
    pub fn is_complete(&self) -> bool {
        !self.common().is_handshaking()
    }

    /// The result. Whatever of the output was not sent yet goes along with it.
    pub fn finish(self) -> Result<Established, SessionError> {
        let common = self.common();
        let peer = PeerIdentity::from_peer_certificates(common.peer_certificates());
        let cipher_suite = common
            .negotiated_cipher_suite()
            .ok_or_else(unfinished)?
            .suite();
        let key_exchange = common
            .negotiated_key_exchange_group()
            .map(|group| group.name());
        let alpn = common.alpn_protocol().map(<[u8]>::to_vec);
        if self.required == Alpn::Required && alpn.as_deref() != Some(ALPN) {
            return Err(SessionError::peer(
                "it does not name the protocol `stcp/1`, which is required here",
                AlertDescription::NoApplicationProtocol,
            ));
        }
        let is_resumed = common.handshake_kind() == Some(HandshakeKind::Resumed);
        if !self.shown.is_empty() {
            return Err(SessionError::peer(
                "the handshake ended inside a message",
                AlertDescription::UnexpectedMessage,
            ));
        }
        let (secrets, schedule) = match self.tls {
            Tls::Client(connection) => connection
                .dangerous_into_kernel_connection()
                .map(|(secrets, rest)| (secrets, KeySchedule::client(rest))),
            Tls::Server(connection) => connection
                .dangerous_into_kernel_connection()
                .map(|(secrets, rest)| (secrets, KeySchedule::server(rest))),
        }
        .map_err(SessionError::from_handshake)?;
        Ok(Established {
            authentication: match peer {
                Some(_) => self.authentication,
                None => Authentication::Anonymous,
            },
            peer,
            alpn,
            cipher_suite,
            key_exchange,
            is_resumed,
            keys: KernelKeys::new(&secrets)?,
            schedule,
            inbox: self.inbox,
            outbox: self.outbox,
        })
    }

    fn common(&self) -> &CommonState {
        match &self.tls {
            Tls::Client(connection) => connection,
            Tls::Server(connection) => connection,
        }
    }

    /// A program that speaks in clear must be told apart at once, and by name.
    fn check_it_is_tls(&self) -> Result<(), SessionError> {
        let Some(&first) = self.inbox.first() else {
            return Ok(());
        };
        let known = [
            ContentType::ChangeCipherSpec,
            ContentType::Alert,
            ContentType::Handshake,
            ContentType::ApplicationData,
        ];
        let major = self.inbox.get(1).is_none_or(|major| *major == 3);
        if known.into_iter().any(|kind| u8::from(kind) == first) && major {
            return Ok(());
        }
        let first = &self.inbox[..self.inbox.len().min(FIRST_LOOK)];
        Err(SessionError::NotTls {
            shown: format!("\"{}\"", first.escape_ascii()),
        })
    }

    /// Lets rustls work until it waits for the peer or is done.
    fn drive(&mut self) -> Result<(), SessionError> {
        let mut failed = None;
        for _ in 0..MAX_STEPS {
            let step = match &mut self.tls {
                Tls::Client(connection) => step(
                    connection.process_tls_records(&mut self.shown),
                    &mut self.outbox,
                ),
                Tls::Server(connection) => step(
                    connection.process_tls_records(&mut self.shown),
                    &mut self.outbox,
                ),
            };
            let (discard, step) = step;
            self.shown.drain(..discard);
            match step {
                Ok(Step::Again) => {}
                Ok(Step::Blocked) => return failed.map_or(Ok(()), Err),
                // The alert that rustls made of it comes out in the next steps.
                Err(error) if failed.is_none() => failed = Some(error),
                Err(_) => break,
            }
        }
        Err(failed.unwrap_or_else(unfinished))
    }
}

fn unfinished() -> SessionError {
    SessionError::Handshake(rustls::Error::HandshakeNotComplete)
}

/// One step: how many bytes rustls is done with, and what comes next.
fn step<Data>(
    status: UnbufferedStatus<'_, '_, Data>,
    outbox: &mut BytesMut,
) -> (usize, Result<Step, SessionError>) {
    let next = status
        .state
        .map_err(SessionError::from_handshake)
        .and_then(|state| match state {
            ConnectionState::EncodeTlsData(mut data) => {
                let start = outbox.len();
                let mut len = 0;
                // The first try tells the length.
                if let Err(EncodeError::InsufficientSize(error)) = data.encode(&mut []) {
                    len = error.required_size;
                }
                outbox.resize(start + len, 0);
                data.encode(&mut outbox[start..])
                    .map_err(|_| unfinished())?;
                Ok(Step::Again)
            }
            ConnectionState::TransmitTlsData(data) => {
                data.done();
                Ok(Step::Again)
            }
            ConnectionState::BlockedHandshake | ConnectionState::WriteTraffic(_) => {
                Ok(Step::Blocked)
            }
            ConnectionState::PeerClosed | ConnectionState::Closed => {
                Err(SessionError::ClosedInHandshake)
            }
            // Application data inside the handshake: no 0-RTT is offered or accepted.
            _ => Err(SessionError::peer(
                "application data during the handshake",
                AlertDescription::UnexpectedMessage,
            )),
        });
    (status.discard, next)
}

/// A finished handshake.
pub struct Established {
    peer: Option<PeerIdentity>,
    authentication: Authentication,
    alpn: Option<Vec<u8>>,
    cipher_suite: CipherSuite,
    key_exchange: Option<NamedGroup>,
    is_resumed: bool,
    keys: KernelKeys,
    schedule: KeySchedule,
    inbox: BytesMut,
    outbox: BytesMut,
}

impl Established {
    /// Who the peer proved to be; `None` for an anonymous client.
    pub fn peer(&self) -> Option<&PeerIdentity> {
        self.peer.as_ref()
    }

    /// How sure that is.
    pub fn authentication(&self) -> Authentication {
        self.authentication
    }

    /// The application protocol agreed on, if any.
    pub fn alpn(&self) -> Option<&[u8]> {
        self.alpn.as_deref()
    }

    /// The cipher suite agreed on.
    pub fn cipher_suite(&self) -> CipherSuite {
        self.cipher_suite
    }

    /// The key exchange group; `None` in a resumption without one.
    pub fn key_exchange(&self) -> Option<NamedGroup> {
        self.key_exchange
    }

    /// Whether an earlier session was resumed: the peer is the one verified then.
    pub fn is_resumed(&self) -> bool {
        self.is_resumed
    }

    /// Records of our own from here on.
    pub fn into_session(self) -> Result<Session, SessionError> {
        Session::new(self.keys, self.schedule, &self.inbox, &self.outbox)
    }

    /// What tells a peer whose handshake is finished that it is not believed after all: to be sent, and
    /// nothing after it.
    pub fn into_refusal(self) -> Result<Vec<u8>, SessionError> {
        let mut session = self.into_session()?;
        session.refuse();
        Ok(session.output().to_vec())
    }

    /// The keys for a kernel that makes all records. `None` if bytes beyond the handshake were taken from
    /// the stream or output is left: the kernel must see all of them.
    pub fn into_kernel(self) -> Option<KernelKeys> {
        let is_clean = self.inbox.is_empty() && self.outbox.is_empty();
        is_clean.then_some(self.keys)
    }
}
