//! Settings of endpoints and connections, with the defaults users get.
//!
//! Structs may get more fields. From outside they are made by a constructor and by setters that are
//! named as the fields and take and give the struct by value; a field can also be assigned.
//!
//! Every limit a peer could drive has its own field or a named `MAX_*` constant listed in
//! `docs/caps.md`. Nothing here reads a clock, a file or the environment.

use std::fmt;
use std::net::IpAddr;
use std::num::{NonZeroU32, NonZeroU64};
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use rand_core::Rng;
use towline_recovery::{
    Algorithm, Config as RecoveryConfig, Controller, ControllerFactory, DatagramSizes,
    HostController, INITIAL_RTT, PathState, Pool, PoolMember, Recovery, TrafficClass,
};
use towline_wire::{MAX_VARINT, Side};

/// Least [`TransportConfig::initial_rtt`]: below the timers' granularity nothing is gained.
pub const MIN_INITIAL_RTT: Duration = Duration::from_millis(1);

/// Greatest [`TransportConfig::initial_rtt`]: a lost packet of the handshake would be sent again
/// after 30 s only.
pub const MAX_INITIAL_RTT: Duration = Duration::from_secs(10);

/// Least [`TransportConfig::min_mtu`], what every path of QUIC carries (RFC 9000 §14).
pub const MIN_MTU: u16 = 1200;

/// Greatest [`TransportConfig::max_mtu`]: the largest UDP payload there is (RFC 9000 §18.2).
pub const MAX_MTU: u16 = 65_527;

/// Least [`TransportConfig::max_ack_delay`]: what the timers of every driver can keep.
pub const MIN_ACK_DELAY: Duration = Duration::from_millis(1);

/// Greatest [`TransportConfig::max_ack_delay`]: the RFC's limit (RFC 9000 §18.2).
pub const MAX_ACK_DELAY: Duration = Duration::from_millis((1 << 14) - 1);

/// Greatest [`TransportConfig::packets_per_ack`]: about a full train.
pub const MAX_PACKETS_PER_ACK: u32 = 64;

/// UDP payload of a path of 1500 bytes, over IPv4 and IPv6.
const ETHERNET_V4: u16 = 1472;
const ETHERNET_V6: u16 = 1452;

/// The largest payload of UDP over IPv4.
const LARGEST_DATAGRAM: u16 = 65_507;

/// Greatest [`TransportConfig::max_idle_timeout`]: what a transport parameter can say.
const MAX_IDLE_TIMEOUT: Duration = Duration::from_millis(MAX_VARINT);

/// What a round trip that is known from before the connection is raised or lowered to: an answer
/// may need the server some milliseconds, and the path may be another by now.
pub(crate) const MIN_KNOWN_RTT: Duration = Duration::from_millis(50);
pub(crate) const MAX_KNOWN_RTT: Duration = Duration::from_secs(1);

/// A setter for each of these fields, of its name.
macro_rules! setters {
    ($($field:ident: $type:ty),* $(,)?) => {
        $(
            #[doc = concat!("Sets the field `", stringify!($field), "`.")]
            #[must_use]
            pub fn $field(mut self, $field: $type) -> Self {
                self.$field = $field;
                self
            }
        )*
    };
}

mod cids;
mod invalid;
mod server;
pub use cids::{CidGenerator, NoCids, ShardedCid};
pub use invalid::InvalidTransport;
pub use server::{ProtocolConfig, RetryPolicy, ServerConfig};

/// Settings of one connection, shared by all connections made with them.
///
/// ```
/// # use std::time::Duration;
/// # use towline_quic::TransportConfig;
/// let transport = TransportConfig::default()
///     .max_idle_timeout(Duration::from_secs(10))
///     .max_concurrent_bidi_streams(1000)
///     .ecn(false);
/// assert_eq!(transport.validate(), Ok(()));
/// let error = transport.initial_mtu(500).validate().unwrap_err();
/// assert_eq!(
///     error.to_string(),
///     "the transport setting `initial_mtu` is 500 bytes; it can be 1200 bytes to 65527 bytes"
/// );
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct TransportConfig {
    /// Idle timeout, at most 2^62 − 1 ms; zero switches it off on our side (RFC 9000 §10.1). Default
    /// 30 s.
    pub max_idle_timeout: Duration,
    /// Send a PING when nothing was received for this long. Default: never.
    pub keep_alive_interval: Option<Duration>,
    /// A handshake that takes longer is given up. Default 10 s.
    pub handshake_timeout: Duration,
    /// First stream window, bytes, at most 2^62 − 1, as of all windows. Default 2 MiB.
    pub stream_receive_window: u64,
    /// Auto-tuning never raises a stream window above this. Default 16 MiB.
    pub max_stream_receive_window: u64,
    /// First connection window, bytes. Default 3 MiB.
    pub receive_window: u64,
    /// Auto-tuning never raises the connection window above this. Default 24 MiB.
    pub max_receive_window: u64,
    /// Bidirectional streams the peer may have open; more than 2^60 count as that. Default 100.
    pub max_concurrent_bidi_streams: u64,
    /// Unidirectional streams the peer may have open. Default 100.
    pub max_concurrent_uni_streams: u64,
    /// Bytes written and not yet sent that one stream may hold. Default 512 KiB.
    pub stream_send_buffer: u64,
    /// Bytes written and not yet acknowledged that one connection may hold. Default 32 MiB.
    pub send_buffer: u64,
    /// Largest datagram payload accepted; `None` refuses datagrams (RFC 9221). Default 65,535.
    pub max_datagram_frame_size: Option<u16>,
    /// Bytes of received datagrams kept for the application; the oldest go first. Default 1 MiB.
    pub datagram_receive_buffer: usize,
    /// Bytes of datagrams waiting to be sent. Default 1 MiB.
    pub datagram_send_buffer: usize,
    /// UDP payload of full-sized packets before anything is known of the path, `min_mtu` to [`MAX_MTU`]
    /// bytes, of which at most 65,507 are used. Default 1200.
    pub initial_mtu: u16,
    /// What every path is believed to carry, [`MIN_MTU`] bytes or more: where larger packets stop
    /// arriving, these are sent. Default 1200.
    pub min_mtu: u16,
    /// The largest UDP payload looked for, at least `initial_mtu`. Default `None`: what a path of 1500
    /// bytes carries, 1472 over IPv4 and 1452 over IPv6. Larger frames (9000, or the 64 KB of a
    /// loopback device) are looked for if they are asked for.
    pub max_mtu: Option<u16>,
    /// Look for the largest packets the path carries (DPLPMTUD: RFC 8899, RFC 9000 §14.3) once data
    /// fills packets, and fall back to `min_mtu` where they stop arriving. Default on; off, and where
    /// the system may fragment what is sent, `initial_mtu` is the size.
    pub mtu_search: bool,
    /// Congestion controller. Default CUBIC.
    pub congestion: Algorithm,
    /// Connections with this controller share one LEDBAT++ that aims at 25 ms of queue, instead of
    /// having one of `congestion` each: background work that makes way for everybody else.
    pub background: Option<HostController>,
    /// Makes each connection's controller, if none of `congestion` will do. [`Self::background`] comes
    /// first; [`Connection::set_congestion`](crate::Connection::set_congestion) replaces it.
    pub controller: Option<Arc<dyn ControllerFactory>>,
    /// Strict limit, bytes a second of UDP payload, over every packet: acknowledgements, probes and
    /// retransmissions count. Default none.
    pub rate_limit: Option<NonZeroU64>,
    /// Part in a bandwidth pool that the host's connections share. Default none.
    pub bandwidth: Option<BandwidthShare>,
    /// HyStart++ in the first slow start (RFC 9406). Default on.
    pub hystart: bool,
    /// Token-bucket pacing. Default on.
    pub pacing: bool,
    /// ACK frequency extension (draft-ietf-quic-ack-frequency-14): a peer may say how often it
    /// wants to be acknowledged, and is asked for fewer ACKs as the window grows, never for fewer
    /// than the congestion controller needs. Default on.
    pub ack_frequency: bool,
    /// The longest that an ACK waits for more packets to acknowledge, in whole milliseconds (RFC 9000
    /// §13.2.1). The peer is told, and its probe timeout counts it. Where this and
    /// [`Self::packets_per_ack`] are more than the default, a peer with the ACK frequency extension is
    /// asked for as much while we send little. [`MIN_ACK_DELAY`] to [`MAX_ACK_DELAY`]. Default 25 ms.
    pub max_ack_delay: Duration,
    /// Packets that one ACK stands for, if they come in order and before [`Self::max_ack_delay`] is
    /// over, 1 to [`MAX_PACKETS_PER_ACK`]. A link that carries ten small packets a second has little
    /// use for an ACK of each: with 10 and a second of delay it sends one ACK a second. Losses are
    /// found later by so much, and a transfer to us begins slowly: while the peer's window holds fewer
    /// packets, every round of it waits for `max_ack_delay`. Default 2, as RFC 9000 §13.2.2 has it.
    pub packets_per_ack: u32,
    /// ECN: packets are marked ECT(0) where path and peer prove to carry marks, and a mark of
    /// congestion counts as a loss would (RFC 9000 §13.4). Default on.
    pub ecn: bool,
    /// Round trip assumed before the first sample, where no earlier connection to the server told
    /// it: a packet of the handshake that is lost is sent again after three of it.
    /// [`MIN_INITIAL_RTT`] to [`MAX_INITIAL_RTT`]; others are refused. Default 100 ms, not the
    /// 333 ms that RFC 9002 §6.2.2 recommends.
    pub initial_rtt: Duration,
    /// Packets sealed with one key before a key update. Default 2^20.
    pub key_update_interval: u64,
    /// The peer may move to another address (RFC 9000 §9); if not, it is told so
    /// (`disable_active_migration`), and what a NAT does to its packets is still followed. Default on.
    pub migration: bool,
    /// A client moves to the address that its server prefers, if it names one and answers there
    /// (RFC 9000 §9.6). Default on.
    pub preferred_address: bool,
}

impl Default for TransportConfig {
    fn default() -> Self {
        Self {
            max_idle_timeout: Duration::from_secs(30),
            keep_alive_interval: None,
            handshake_timeout: Duration::from_secs(10),
            stream_receive_window: 2 << 20,
            max_stream_receive_window: 16 << 20,
            receive_window: 3 << 20,
            max_receive_window: 24 << 20,
            max_concurrent_bidi_streams: 100,
            max_concurrent_uni_streams: 100,
            stream_send_buffer: 512 << 10,
            send_buffer: 32 << 20,
            max_datagram_frame_size: Some(u16::MAX),
            datagram_receive_buffer: 1 << 20,
            datagram_send_buffer: 1 << 20,
            initial_mtu: 1200,
            min_mtu: MIN_MTU,
            max_mtu: None,
            mtu_search: true,
            congestion: Algorithm::default(),
            background: None,
            controller: None,
            rate_limit: None,
            bandwidth: None,
            hystart: true,
            pacing: true,
            ack_frequency: true,
            max_ack_delay: Duration::from_millis(25),
            packets_per_ack: 2,
            ecn: true,
            initial_rtt: INITIAL_RTT,
            key_update_interval: 1 << 20,
            migration: true,
            preferred_address: true,
        }
    }
}

/// How often ACKs come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AckPolicy {
    pub(crate) packets_per_ack: u32,
    pub(crate) max_ack_delay: Duration,
}

/// A connection's part in a [`Pool`]: what is left of the total is shared by weight among those of
/// a class that want more.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct BandwidthShare {
    /// The pool; its total can be changed at any time.
    pub pool: Pool,
    /// Whose packets go first.
    pub class: TrafficClass,
    /// Weight within the class.
    pub weight: NonZeroU32,
}

impl BandwidthShare {
    /// An ordinary part: class normal, weight 1.
    pub fn new(pool: Pool) -> Self {
        Self {
            pool,
            class: TrafficClass::Normal,
            weight: NonZeroU32::MIN,
        }
    }

    setters! {
        pool: Pool,
        class: TrafficClass,
        weight: NonZeroU32,
    }

    pub(crate) fn join(&self) -> PoolMember {
        self.pool.join(self.class, self.weight)
    }
}

impl TransportConfig {
    setters! {
        max_idle_timeout: Duration,
        keep_alive_interval: Option<Duration>,
        handshake_timeout: Duration,
        stream_receive_window: u64,
        max_stream_receive_window: u64,
        receive_window: u64,
        max_receive_window: u64,
        max_concurrent_bidi_streams: u64,
        max_concurrent_uni_streams: u64,
        stream_send_buffer: u64,
        send_buffer: u64,
        max_datagram_frame_size: Option<u16>,
        datagram_receive_buffer: usize,
        datagram_send_buffer: usize,
        initial_mtu: u16,
        min_mtu: u16,
        max_mtu: Option<u16>,
        mtu_search: bool,
        congestion: Algorithm,
        background: Option<HostController>,
        controller: Option<Arc<dyn ControllerFactory>>,
        rate_limit: Option<NonZeroU64>,
        bandwidth: Option<BandwidthShare>,
        hystart: bool,
        pacing: bool,
        ack_frequency: bool,
        max_ack_delay: Duration,
        packets_per_ack: u32,
        ecn: bool,
        initial_rtt: Duration,
        key_update_interval: u64,
        migration: bool,
        preferred_address: bool,
    }

    /// Packets of `mtu` bytes of UDP payload and no search: who says so vouches for the path.
    #[must_use]
    pub fn mtu(self, mtu: u16) -> Self {
        self.initial_mtu(mtu).mtu_search(false)
    }

    /// Recovery of a new connection, and the state of its first path, to `remote`.
    pub(crate) fn recovery<F: Clone>(
        &self,
        side: Side,
        remote: IpAddr,
        skip_key: u64,
        may_fragment: bool,
    ) -> (Recovery<F>, PathState) {
        let mut datagram_sizes = self.datagram_sizes(remote);
        if may_fragment {
            // Whatever arrives says nothing of the path (RFC 9000 §14, RFC 8899 §3).
            datagram_sizes = DatagramSizes::fixed(datagram_sizes.initial);
        }
        let config = RecoveryConfig {
            algorithm: self.congestion,
            datagram_sizes,
            // A server's settings may not have been validated.
            initial_rtt: self.initial_rtt.clamp(MIN_INITIAL_RTT, MAX_INITIAL_RTT),
            side,
            hystart: self.hystart,
            pacing: self.pacing,
            ecn: self.ecn,
            seed: skip_key.rotate_left(32),
            rate_limit: self.rate_limit,
            skip_key: Some(skip_key),
        };
        let size = config.datagram_sizes.initial;
        let mut recovery = Recovery::new(&config);
        recovery.set_pool_member(self.bandwidth.as_ref().map(BandwidthShare::join));
        let path = match self.own_controller(size) {
            Some(controller) => PathState::with_controller(config, controller),
            None => PathState::new(config),
        };
        (recovery, path)
    }

    /// Has a connection that sent nothing but acknowledgements go on with these settings: its
    /// protocol is known only now.
    pub(crate) fn reconfigure<F: Clone>(&self, recovery: &mut Recovery<F>, path: &mut PathState) {
        let controller = self.own_controller(path.max_datagram_size());
        path.reconfigure(self.congestion, self.hystart, self.pacing, controller);
        recovery.set_rate_limit(self.rate_limit);
        recovery.set_pool_member(self.bandwidth.as_ref().map(BandwidthShare::join));
    }

    /// A controller that is none by name.
    fn own_controller(&self, size: u16) -> Option<Controller> {
        match (&self.background, &self.controller) {
            (Some(host), _) => Some(Controller::Host(Box::new(host.join(size)))),
            (None, Some(factory)) => Some(Controller::Custom(factory.controller(size))),
            (None, None) => None,
        }
    }

    /// Refuses what makes no sense. `Endpoint::connect` asks, and so does who makes a server.
    ///
    /// # Errors
    /// Names the setting, and what it can be.
    pub fn validate(&self) -> Result<(), InvalidTransport> {
        let time = |setting, value, possible: RangeInclusive<Duration>| {
            InvalidTransport::check(setting, value, possible, |time| format!("{time:?}"))
        };
        let bytes = |setting, value, possible: RangeInclusive<u64>| {
            InvalidTransport::check(setting, value, possible, |bytes| format!("{bytes} bytes"))
        };
        let rtts = MIN_INITIAL_RTT..=MAX_INITIAL_RTT;
        time("initial_rtt", self.initial_rtt, rtts)?;
        time(
            "max_idle_timeout",
            self.max_idle_timeout,
            Duration::ZERO..=MAX_IDLE_TIMEOUT,
        )?;
        time(
            "max_ack_delay",
            self.max_ack_delay,
            MIN_ACK_DELAY..=MAX_ACK_DELAY,
        )?;
        InvalidTransport::check(
            "packets_per_ack",
            self.packets_per_ack,
            1..=MAX_PACKETS_PER_ACK,
            |packets| format!("{packets} packets"),
        )?;
        let most = MAX_MTU.into();
        bytes("min_mtu", self.min_mtu.into(), MIN_MTU.into()..=most)?;
        let initial = self.initial_mtu.into();
        bytes("initial_mtu", initial, self.min_mtu.into()..=most)?;
        if let Some(max) = self.max_mtu.filter(|_| self.mtu_search) {
            bytes("max_mtu", max.into(), initial..=most)?;
        }
        for (setting, window) in [
            ("stream_receive_window", self.stream_receive_window),
            ("max_stream_receive_window", self.max_stream_receive_window),
            ("receive_window", self.receive_window),
            ("max_receive_window", self.max_receive_window),
        ] {
            bytes(setting, window, 0..=MAX_VARINT)?;
        }
        Ok(())
    }

    /// How our ACKs come, by this configuration; a server's may not have been validated.
    pub(crate) fn ack_policy(&self) -> AckPolicy {
        AckPolicy {
            packets_per_ack: self.packets_per_ack.clamp(1, MAX_PACKETS_PER_ACK),
            max_ack_delay: self.max_ack_delay.clamp(MIN_ACK_DELAY, MAX_ACK_DELAY),
        }
    }

    /// The packet sizes this configuration asks for, inside the bounds of RFC 9000 §14.
    /// Without a search of the path nothing larger than it was told is sent (RFC 9000 §14.2).
    pub(crate) fn datagram_sizes(&self, remote: IpAddr) -> DatagramSizes {
        let initial = self.initial_mtu.clamp(MIN_MTU, LARGEST_DATAGRAM);
        if !self.mtu_search {
            return DatagramSizes::fixed(initial);
        }
        let ethernet = match remote.to_canonical() {
            IpAddr::V4(_) => ETHERNET_V4,
            IpAddr::V6(_) => ETHERNET_V6,
        };
        let max = self.max_mtu.unwrap_or(ethernet).min(LARGEST_DATAGRAM);
        DatagramSizes {
            initial,
            min: self.min_mtu.clamp(MIN_MTU, initial),
            max: max.max(initial),
            search: true,
        }
    }
}

/// How to connect as a client.
#[derive(Clone)]
#[non_exhaustive]
pub struct ClientConfig {
    /// rustls configuration: TLS 1.3 only, with a QUIC-capable suite and the ALPN list.
    pub tls: Arc<rustls::ClientConfig>,
    /// Transport settings.
    pub transport: Arc<TransportConfig>,
}

impl ClientConfig {
    /// Default transport settings over `tls`.
    pub fn new(tls: Arc<rustls::ClientConfig>) -> Self {
        Self {
            tls,
            transport: Arc::default(),
        }
    }

    setters! {
        tls: Arc<rustls::ClientConfig>,
    }

    /// Sets the field `transport`.
    #[must_use]
    pub fn transport(mut self, transport: impl Into<Arc<TransportConfig>>) -> Self {
        self.transport = transport.into();
        self
    }
}

impl fmt::Debug for ClientConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientConfig")
            .field("transport", &self.transport)
            .finish_non_exhaustive()
    }
}

/// Default of [`EndpointConfig::memory_limit`].
const DEFAULT_MEMORY_LIMIT: u64 = 2 << 30;

/// Settings of one endpoint shard. All secrets come from the caller.
#[non_exhaustive]
pub struct EndpointConfig {
    /// Seed of the shard's own generator (connection IDs, skipped packet numbers, challenges).
    pub seed: [u8; 32],
    /// Key of stateless reset tokens (RFC 9000 §10.3.2); shared by all shards of a server.
    pub reset_key: [u8; 32],
    /// Key of Retry tokens; shared by all shards of a server.
    pub token_key: [u8; 32],
    /// Makes our connection IDs.
    pub cid_generator: Box<dyn CidGenerator>,
    /// Bytes of memory that the shard's connections may hold together, as its account has it
    /// (`EndpointStats::memory`). Near it no client is admitted; beyond it, connections that hold
    /// much and do not move are ended. Default 2 GiB.
    pub memory_limit: u64,
    /// The application decides about each client before a TLS session is made for it: see
    /// [`Endpoint::poll_incoming`](crate::Endpoint::poll_incoming). Default: every client that there is
    /// room for gets a connection.
    pub hold_incoming: bool,
    /// A connection that ends, but not by its own application, can be read until
    /// [`Endpoint::forget`](crate::Endpoint::forget) if something that arrived in it was not read; read by
    /// [`Endpoint::visit`](crate::Endpoint::visit), it goes by itself with the last of that. Its memory counts,
    /// and such connections are the first to go when memory is short. Default: it goes with its
    /// [`Event::Drained`](crate::Event::Drained).
    pub keep_unread: bool,
}

impl EndpointConfig {
    /// Derives all secrets from one seed, which must be secret and random outside of tests.
    pub fn from_seed(seed: [u8; 32]) -> Self {
        use rand_core::SeedableRng;
        let mut rng = rand_chacha::ChaCha20Rng::from_seed(seed);
        let mut config = Self {
            seed: [0; 32],
            reset_key: [0; 32],
            token_key: [0; 32],
            cid_generator: Box::new(ShardedCid::new(0)),
            memory_limit: DEFAULT_MEMORY_LIMIT,
            hold_incoming: false,
            keep_unread: false,
        };
        rng.fill_bytes(&mut config.seed);
        rng.fill_bytes(&mut config.reset_key);
        rng.fill_bytes(&mut config.token_key);
        config
    }

    setters! {
        seed: [u8; 32],
        reset_key: [u8; 32],
        token_key: [u8; 32],
        cid_generator: Box<dyn CidGenerator>,
        memory_limit: u64,
        hold_incoming: bool,
        keep_unread: bool,
    }
}

impl fmt::Debug for EndpointConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EndpointConfig").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
