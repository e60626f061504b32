//! How a connection comes about.
//!
//! 1. `client`, `server`: the components of a new connection, and what it says of itself.
//! 2. `handle_retry`, `handle_version_mismatch`: a client is told to begin otherwise, or not at all.
//! 3. `drive_handshake`: TLS runs, and what it learned is acted on. A server of several protocols
//!    gets its session, and the settings of one, when the client's hello is whole (`begin_session`).
//! 4. `learn_peer_parameters`: what the peer says of itself, carried to every component.
//! 5. `on_handshake_complete`, `confirm`: the application may use it, and handshake keys go.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use towline_wire::{
    ConnectionId, PacketNumberSpace, PreferredAddress, Side, StatelessResetToken, Time,
    TransportErrorCode, TransportParameters,
};

use super::acks::{ACK_DELAY_EXPONENT, Acks};
use super::assemble::MIN_INITIAL_DATAGRAM;
use super::cids::{LocalCids, MAX_REMOTE_CIDS, RemoteCids};
use super::datagrams::Datagrams;
use super::events::{Event, Events};
use super::handshake::{Begin, Chosen, Handshake, HandshakeError, HandshakeIds, Opening};
use super::liveness::Liveness;
use super::parts::Connection;
use super::paths::Paths;
use super::protect::{Protection, TAG_LEN};
use super::received::ReceivedCounters;
use super::sealer::Sealer;
use super::state::Lifecycle;
use super::streams::Streams;
use crate::config::{
    ClientConfig, MAX_KNOWN_RTT, MIN_ACK_DELAY, MIN_KNOWN_RTT, ServerConfig, TransportConfig,
};
use crate::crypto::{TlsFailure, TlsSession, initial_keys};
use crate::error::{ConnectError, ConnectionError, Violation};
use crate::observe::{self, ObserverFactory};

/// Bytes of an Initial's header besides IDs and token: first byte, version, the lengths of the IDs, of
/// the token and of the packet, and the longest number (RFC 9000 §17.2.2).
const LONG_HEADER_REST: usize = 1 + 4 + 2 + 2 + 2 + 4;

/// Least room for CRYPTO frames in each Initial that a Retry token may leave: a hello of 300 bytes
/// then takes a handful of datagrams.
const MIN_CRYPTO_ROOM: usize = 100;

/// What the endpoint decides for a new connection.
pub(crate) struct NewConnection {
    pub(crate) remote: SocketAddr,
    pub(crate) local_ip: Option<IpAddr>,
    /// Destination of the client's first Initial, before any Retry.
    pub(crate) original: ConnectionId,
    /// Our first connection ID.
    pub(crate) local: ConnectionId,
    pub(crate) reset_token: StatelessResetToken,
    /// Key of the schedule of skipped packet numbers, some of which the peer sees.
    pub(crate) skip_key: u64,
    /// Key of challenges to addresses, which nobody may guess: not the same.
    pub(crate) challenge_key: u64,
    /// The system may fragment what is sent: packets keep their first size.
    pub(crate) may_fragment: bool,
    /// Another address of the server's, with the connection ID that is for it.
    pub(crate) preferred: Option<PreferredAddress>,
}

/// What only a server knows about a connection's first Initial.
pub(crate) struct FirstInitial {
    /// The client's connection ID.
    pub(crate) client: ConnectionId,
    /// Our connection ID in the Retry that this Initial answers.
    pub(crate) retry: Option<ConnectionId>,
    /// A Retry token proved the address.
    pub(crate) validated: bool,
}

impl Connection {
    /// A client's connection; its first Initial is ready to be sent. `known_rtt` is the round trip
    /// to the server as an earlier connection left it (RFC 9002 §6.2.2).
    pub(crate) fn client(
        now: Time,
        config: &ClientConfig,
        server_name: &str,
        new: &NewConnection,
        known_rtt: Option<Duration>,
    ) -> Result<Self, ConnectError> {
        config.transport.validate()?;
        let transport = Arc::clone(&config.transport);
        let ids = HandshakeIds {
            original: new.original,
            local: new.local,
            remote: None,
            retry: None,
            preferred: None,
        };
        let mut parameters = Vec::new();
        own_parameters(Side::Client, &transport, &ids, new.reset_token).encode(&mut parameters);
        let tls = TlsSession::client(&config.tls, server_name, parameters)?;
        let provider = Arc::clone(config.tls.crypto_provider());
        let keys = initial_keys(&provider, &new.original, Side::Client);
        let sealer = Sealer::new(Protection::new(Side::Client, keys));
        let handshake =
            Handshake::new(now, Side::Client, provider, ids, Begin::With(Box::new(tls)));
        let mut connection =
            Self::assemble(now, Side::Client, transport, handshake, sealer, new, true);
        if let Some(rtt) = known_rtt {
            connection
                .paths
                .state_mut()
                .seed_rtt(rtt.clamp(MIN_KNOWN_RTT, MAX_KNOWN_RTT));
        }
        connection.drive_handshake(now);
        Ok(connection)
    }

    /// A server's connection for a client's first Initial, which is handed in next; `protection`
    /// has the keys that open it.
    pub(crate) fn server(
        now: Time,
        config: &ServerConfig,
        new: &NewConnection,
        first: &FirstInitial,
        protection: Protection,
    ) -> Result<Self, rustls::Error> {
        let transport = Arc::clone(&config.transport);
        let provider = Arc::clone(config.tls.crypto_provider());
        let ids = HandshakeIds {
            original: new.original,
            local: new.local,
            remote: Some(first.client),
            retry: first.retry,
            preferred: new.preferred.map(Box::new),
        };
        let side = Side::Server;
        let begin = match Opening::new(config, new.reset_token) {
            Some(opening) => Begin::AtHello(Box::new(opening)),
            None => {
                let mut parameters = Vec::new();
                own_parameters(side, &transport, &ids, new.reset_token).encode(&mut parameters);
                Begin::With(Box::new(TlsSession::server(&config.tls, None, parameters)?))
            }
        };
        let sealer = Sealer::new(protection);
        let handshake = Handshake::new(now, side, provider, ids, begin);
        let validated = first.validated;
        Ok(Self::assemble(
            now, side, transport, handshake, sealer, new, validated,
        ))
    }

    fn assemble(
        now: Time,
        side: Side,
        config: Arc<TransportConfig>,
        handshake: Handshake,
        sealer: Sealer,
        new: &NewConnection,
        validated: bool,
    ) -> Self {
        let (recovery, mut path) =
            config.recovery(side, new.remote.ip(), new.skip_key, new.may_fragment);
        if side.is_server() {
            path.set_peer_completed_address_validation();
        }
        Self {
            side,
            lifecycle: Lifecycle::new(),
            remote_cids: RemoteCids::new(handshake.ids().remote.unwrap_or(new.original)),
            handshake,
            sealer,
            recovery,
            acks: Acks::new(config.ack_policy()),
            local_cids: LocalCids::new(new.local, new.reset_token, new.preferred.as_ref()),
            paths: Paths::new(path, new.remote, new.local_ip, validated, new.challenge_key),
            streams: Streams::new(side, &config),
            datagrams: Datagrams::new(config.datagram_send_buffer, config.datagram_receive_buffer),
            liveness: Liveness::new(
                config.max_idle_timeout,
                config.keep_alive_interval,
                now + config.handshake_timeout,
            ),
            events: Events::default(),
            received: ReceivedCounters::default(),
            observation: None,
            config,
        }
    }

    /// A connection that is made and has received nothing yet is observed, if `factory` wants it.
    pub(crate) fn observe(
        &mut self,
        now: Time,
        new: &NewConnection,
        factory: Option<&dyn ObserverFactory>,
    ) {
        let started = observe::NewConnection {
            side: self.side,
            original_destination_cid: new.original,
            local_cid: new.local,
            remote_cid: self.handshake.ids().remote,
            remote: new.remote,
            local_ip: new.local_ip,
        };
        self.begin_observation(now, started, factory, |connection| {
            let known = !connection.handshake.awaits_hello();
            let ids = connection.handshake.ids();
            known.then(|| own_parameters(connection.side, &connection.config, ids, new.reset_token))
        });
    }

    /// A Retry packet (RFC 9000 §17.2.5.2): at most one, before anything else.
    pub(super) fn handle_retry(
        &mut self,
        now: Time,
        scid: ConnectionId,
        token: &[u8],
        tag: &[u8; 16],
        whole: &[u8],
    ) {
        let expected = self.handshake.has_heard_nothing()
            && scid != self.remote_cids.current()
            && self.lifecycle.is_open();
        if !expected || token.is_empty() || !self.handshake.is_retry_authentic(tag, whole) {
            return;
        }
        if !token_fits(token, &scid, &self.handshake.ids().local) {
            return self.end_now(ConnectionError::RetryTokenTooLong(token.len()));
        }
        let keys = self.handshake.on_retry(scid, token);
        self.sealer.protection.install_initial(keys);
        self.remote_cids.set_initial(scid);
        // The round trip from the first Initial is a better guess than none (RFC 9002 §6.3).
        let rtt = now.saturating_duration_since(self.handshake.begun());
        self.paths
            .state_mut()
            .seed_rtt(rtt.clamp(MIN_KNOWN_RTT, MAX_KNOWN_RTT));
        let (recovery, path, mut owner) = self.split_for_delivery();
        recovery.abandon_space(path, PacketNumberSpace::Initial, &mut owner);
    }

    /// Version Negotiation without our version ends an attempt that heard nothing yet (RFC 9000
    /// §6.2).
    pub(super) fn handle_version_mismatch(&mut self) {
        if self.handshake.has_heard_nothing() && self.lifecycle.is_open() {
            self.end_now(ConnectionError::VersionMismatch);
        }
    }

    /// The client's hello is whole: its connection gets the settings of the protocol it wants, and
    /// then its TLS session.
    fn begin_session(&mut self, now: Time, chosen: Chosen) -> Result<(), TlsFailure> {
        let Chosen {
            tls,
            protocol,
            reset_token,
            hello,
        } = chosen;
        let (alpn, transport) = protocol.unzip();
        if let Some(transport) = transport {
            self.adopt(transport);
        }
        let own = own_parameters(self.side, &self.config, self.handshake.ids(), reset_token);
        let mut parameters = Vec::new();
        own.encode(&mut parameters);
        self.observe_own_parameters(now, &own);
        let tls = TlsSession::server(&tls, alpn, parameters).map_err(|error| {
            tracing::error!(%error, "the TLS configuration of a protocol does not work for QUIC");
            TlsFailure::internal(&error)
        })?;
        self.handshake.begin_session(tls, hello);
        Ok(())
    }

    /// Goes on with other settings, before the peer knew of any and anything was sent that counts. What
    /// holds for the path stays as it began: its first round trip, sizes of packets, ECN.
    fn adopt(&mut self, config: Arc<TransportConfig>) {
        config.reconfigure(&mut self.recovery, self.paths.state_mut());
        self.acks.set_policy(config.ack_policy());
        self.streams = Streams::new(self.side, &config);
        self.datagrams =
            Datagrams::new(config.datagram_send_buffer, config.datagram_receive_buffer);
        self.liveness
            .set_timeouts(config.max_idle_timeout, config.keep_alive_interval);
        self.config = config;
    }

    /// Lets TLS run and acts on what it learned.
    pub(super) fn drive_handshake(&mut self, now: Time) {
        if let Some(chosen) = self.handshake.choose_session()
            && let Err(failure) = self.begin_session(now, chosen)
        {
            return self.fail_tls(now, failure);
        }
        if let Err(error) = self.handshake.drive(now, &mut self.sealer.protection) {
            match error {
                HandshakeError::Violation(violation) => self.fail(now, &violation),
                HandshakeError::Tls(failure) => self.fail_tls(now, failure),
            }
            return;
        }
        if self
            .sealer
            .protection
            .has_keys(PacketNumberSpace::Handshake)
        {
            self.paths.state_mut().set_handshake_keys_available();
        }
        if let Err(violation) = self.learn_peer_parameters() {
            return self.fail(now, &violation);
        }
        if self.handshake.is_complete() && !self.lifecycle.is_established() {
            self.on_handshake_complete(now);
        }
    }

    /// Tells every component what the peer's transport parameters mean for it, once they are there.
    fn learn_peer_parameters(&mut self) -> Result<(), Violation> {
        let Some(peer) = self.handshake.learn_peer_parameters()? else {
            return Ok(());
        };
        if self.side.is_client() {
            if let Some(token) = peer.stateless_reset_token {
                self.remote_cids.set_initial_reset_token(token);
            }
            if let Some(preferred) = &peer.preferred_address {
                // Its ID is one of the server's, whether it is used there or not.
                let token = preferred.stateless_reset_token;
                self.remote_cids
                    .set_preferred(preferred.connection_id, token)?;
            }
        }
        self.streams.set_peer_parameters(peer, &mut self.events);
        self.datagrams.set_peer_max(peer.max_datagram_frame_size);
        self.paths
            .state_mut()
            .set_peer_max_ack_delay(peer.max_ack_delay);
        self.liveness.set_peer_timeout(peer.max_idle_timeout);
        let most = u16::try_from(peer.max_udp_payload_size).unwrap_or(u16::MAX);
        self.paths.state_mut().limit_datagram_size(most);
        let room = self.datagram_room();
        self.datagrams.drop_larger_than(room, &mut self.events);
        Ok(())
    }

    fn on_handshake_complete(&mut self, now: Time) {
        let Some(peer) = self.handshake.peer() else {
            // RFC 9001 §8.2: alert missing_extension.
            let code = TransportErrorCode::crypto(109);
            return self.fail(now, &Violation::new(code, "no transport parameters"));
        };
        self.local_cids.set_limit(peer.active_connection_id_limit);
        self.lifecycle.establish();
        self.liveness.on_handshake_complete();
        match self.side {
            Side::Client => self.events.push(Event::Connected),
            Side::Server => {
                self.events.push(Event::Accepted);
                // As soon as the handshake is complete, and not before (RFC 9000 §19.20).
                self.handshake.queue_done();
                self.confirm(now);
            }
        }
    }

    /// The handshake is confirmed (RFC 9001 §4.1.2): Handshake keys go.
    ///
    /// Now frames of extensions may go to a peer that knows them (RFC 9000 §19.21), and the
    /// Handshake keys have done their work (RFC 9001 §4.9.2).
    pub(super) fn confirm(&mut self, now: Time) {
        if self.lifecycle.is_confirmed() || !self.lifecycle.is_established() {
            return;
        }
        self.lifecycle.confirm();
        self.paths.state_mut().set_handshake_confirmed();
        self.discard_space(now, PacketNumberSpace::Handshake);
        if self.config.ack_frequency
            && let Some(peer) = self.handshake.peer()
            && let Some(min) = peer.min_ack_delay
        {
            self.acks.request.open(min, peer.max_ack_delay);
        }
        self.events.push(Event::Confirmed);
        self.try_preferred_address(now);
    }
}

fn own_parameters(
    side: Side,
    config: &TransportConfig,
    ids: &HandshakeIds,
    reset_token: StatelessResetToken,
) -> TransportParameters {
    let server = side.is_server();
    TransportParameters {
        original_destination_connection_id: server.then_some(ids.original),
        stateless_reset_token: server.then_some(reset_token),
        initial_source_connection_id: Some(ids.local),
        retry_source_connection_id: ids.retry.filter(|_| server),
        max_idle_timeout: config.max_idle_timeout,
        initial_max_data: config.receive_window,
        initial_max_stream_data_bidi_local: config.stream_receive_window,
        initial_max_stream_data_bidi_remote: config.stream_receive_window,
        initial_max_stream_data_uni: config.stream_receive_window,
        initial_max_streams_bidi: config
            .max_concurrent_bidi_streams
            .min(towline_wire::MAX_STREAMS),
        initial_max_streams_uni: config
            .max_concurrent_uni_streams
            .min(towline_wire::MAX_STREAMS),
        ack_delay_exponent: ACK_DELAY_EXPONENT,
        max_ack_delay: config.ack_policy().max_ack_delay,
        min_ack_delay: config.ack_frequency.then_some(MIN_ACK_DELAY),
        reset_stream_at: true,
        disable_active_migration: !config.migration,
        preferred_address: ids.preferred.as_deref().copied(),
        active_connection_id_limit: MAX_REMOTE_CIDS,
        max_datagram_frame_size: config.max_datagram_frame_size.map_or(0, u64::from),
        ..TransportParameters::default()
    }
}

/// Whether an Initial with `token` has room for handshake data in the smallest datagram there may be.
fn token_fits(token: &[u8], dcid: &ConnectionId, scid: &ConnectionId) -> bool {
    let rest = LONG_HEADER_REST + dcid.len() + scid.len() + TAG_LEN + MIN_CRYPTO_ROOM;
    token.len() + rest <= MIN_INITIAL_DATAGRAM
}
