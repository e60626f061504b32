//! The policy of secure TCP on this machine: who we are, whom we believe, for which destination.
//!
//! Read from a TOML file (`text`), or made up at the first use: a raw key of our own and a file of
//! known peers (`known_peers`). The agent asks it twice for each connection: for a handshake, and
//! then whether the peer may be talked to. Nothing is unauthenticated unless the file says so.

mod error;
mod known_peers;
mod own_key;
mod text;

#[cfg(test)]
pub(crate) mod tests;

use std::net::{IpAddr, SocketAddr, SocketAddrV6};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::pki_types::{CertificateDer, ServerName};
use rustls::time_provider::DefaultTimeProvider;
use towline_identity::{
    self as identity, CipherPreference, ClientAuth, Identity, IdentityKind, KeyExchangePreference,
    KeyPin, KnownPeersError, Pin, Resumption, TlsSettings, Trust,
};
use towline_stcp::{
    Alpn, Authentication, ClientConfig, Established, Handshake, Records, ServerConfig, SessionError,
};
use towline_wire::{Carrier, Side};

pub use error::PolicyError;
pub use known_peers::KnownPeersFileError;
use known_peers::{KnownPeersFile, Meeting, Whose};
pub use own_key::own_key;

/// Our key, in the folder of the first use.
const OWN_KEY_FILE: &str = "stcp-key.pem";
/// The servers we know, in the same folder.
const KNOWN_PEERS_FILE: &str = "known-peers";
/// The clients, apart: whoever comes may fill this list.
const KNOWN_CLIENTS_FILE: &str = "known-clients";

/// Why a connection is refused before or after its handshake.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// The policy does not speak of this side.
    #[error("the policy has no [{}] table: add one to allow such connections", side_name(*.0))]
    NoRule(Side),
    /// TLS could not begin.
    #[error(transparent)]
    Session(#[from] SessionError),
    /// A peer whose key differs from the one it showed first.
    #[error(
        "{name} shows another key than at first: {shown}, but {} has {expected}. Either it has a \
         new key or somebody sits on the path. Ask its owner; if the new key is right, remove the \
         line of {name} from that file", file.display()
    )]
    KeyChanged {
        /// The peer's name in the file.
        name: String,
        /// The key in the file.
        expected: KeyPin,
        /// The key that it shows now.
        shown: KeyPin,
        /// The file.
        file: PathBuf,
    },
    /// The peer is new, and the list takes no more like it.
    #[error("{name} shows a key that is new, and {}: {why}", file.display())]
    NoRoom {
        /// The peer's name in the file.
        name: String,
        /// The file.
        file: PathBuf,
        /// What it takes.
        why: KnownPeersError,
    },
    /// The peer is new and could not be written down, or the file cannot be read.
    #[error("the known peers cannot be consulted: {0}")]
    KnownPeers(#[from] KnownPeersFileError),
    /// A connection in another network namespace than the agent's, where the policy goes by first use.
    #[error(
        "{name} is in another network namespace than the agent, where anybody may have any address: \
         trust on first use ({}) does not reach there. Give `pins` or `roots` in a policy",
        file.display()
    )]
    OtherNetwork {
        /// The peer's address there.
        name: String,
        /// The list that is not asked.
        file: PathBuf,
    },
    /// A peer without a key where one is needed.
    #[error("the peer showed no key")]
    NoKey,
}

fn side_name(side: Side) -> &'static str {
    match side {
        Side::Client => "client",
        Side::Server => "server",
    }
}

/// Who is let through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Admitted {
    /// How sure that is. A peer met for the first time is `KeyShown`, a known one `Pinned`.
    pub authentication: Authentication,
    /// The pin of its key; `None` for an anonymous client.
    pub key: Option<KeyPin>,
}

/// The policy.
#[derive(Debug)]
pub struct Policy {
    source: Source,
    client: Option<Arc<Rule<ClientConfig>>>,
    server: Option<Arc<Rule<ServerConfig>>>,
    /// The first that matches takes the place of `client`.
    destinations: Vec<(Destination, Arc<Rule<ClientConfig>>)>,
    own_keys: Vec<(Side, KeyPin)>,
}

/// Where a policy comes from.
#[derive(Debug)]
enum Source {
    File(PathBuf),
    /// The folder of the first use.
    FirstUse(PathBuf),
}

/// One side's rule.
#[derive(Debug)]
struct Rule<Config> {
    /// The records are the module's: counted there, and nobody to take a ticket.
    module: Config,
    /// Ours.
    relay: Config,
    /// The server's name, where it is not its address.
    name: Option<ServerName<'static>>,
    belief: Belief,
    /// What it believes goes by it.
    known_peers: Option<Arc<KnownPeersFile>>,
}

impl<Config> Rule<Config> {
    fn new<Error>(
        make: impl Fn(Records, &TlsSettings) -> Result<Config, Error>,
        name: Option<ServerName<'static>>,
        belief: &Belief,
        whose: Whose,
    ) -> Result<Self, Error> {
        let provider = identity::provider(
            &CipherPreference::product(identity::cpu_has_aes()),
            &KeyExchangePreference::default(),
        );
        let relay = TlsSettings::new(Arc::new(provider), Arc::new(DefaultTimeProvider));
        let mut kernel = relay.clone();
        kernel.resumption = Resumption::Disabled;
        Ok(Self {
            module: make(Records::Counted, &kernel)?,
            relay: make(Records::Counted, &relay)?,
            name,
            belief: belief.clone(),
            known_peers: belief
                .known_peers()
                .map(|file| Arc::new(KnownPeersFile::new(file.to_owned(), whose))),
        })
    }

    fn config(&self, carrier: Carrier) -> &Config {
        match carrier {
            Carrier::Module => &self.module,
            Carrier::Preload | Carrier::Relay => &self.relay,
        }
    }
}

/// Whom one side believes.
#[derive(Clone, Debug)]
enum Belief {
    Pins(Vec<KeyPin>),
    CertificatePins(Vec<Pin>),
    KnownPeers(PathBuf),
    Roots(Vec<CertificateDer<'static>>),
    AnyKey,
    AnyCertificate,
    AnyClient,
}

impl std::fmt::Display for Belief {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Pins(pins) => write!(f, "{} pinned keys", pins.len()),
            Self::CertificatePins(pins) => write!(f, "{} pins of certificates", pins.len()),
            Self::KnownPeers(file) => write!(f, "first use, then {}", file.display()),
            Self::Roots(roots) => write!(f, "certificates of {} roots", roots.len()),
            Self::AnyKey => f.write_str("UNAUTHENTICATED: any key"),
            Self::AnyCertificate => f.write_str("UNAUTHENTICATED: any certificate"),
            Self::AnyClient => f.write_str("UNAUTHENTICATED: any client"),
        }
    }
}

impl Belief {
    fn known_peers(&self) -> Option<&Path> {
        match self {
            Self::KnownPeers(path) => Some(path),
            _ => None,
        }
    }

    /// As a client's; `None` if it makes sense for servers only.
    fn of_servers(&self) -> Option<Trust> {
        Some(match self {
            Self::Pins(pins) => Trust::RawKeys(pins.clone()),
            Self::CertificatePins(pins) => Trust::Pinned(pins.clone()),
            Self::Roots(roots) => Trust::Roots(roots.clone()),
            // The judge looks at the key.
            Self::KnownPeers(_) | Self::AnyKey => Trust::InsecureAcceptAnyRawKey,
            Self::AnyCertificate => Trust::InsecureAcceptAnyCertificate,
            Self::AnyClient => return None,
        })
    }

    /// As a server's; `None` if it makes sense for clients only.
    fn of_clients(&self) -> Option<ClientAuth> {
        Some(match self {
            Self::Pins(pins) => ClientAuth::RawKeys(pins.clone()),
            Self::CertificatePins(pins) => ClientAuth::Pinned(pins.clone()),
            Self::Roots(roots) => ClientAuth::Roots(roots.clone()),
            Self::KnownPeers(_) | Self::AnyKey => ClientAuth::AnyRawKey,
            Self::AnyClient => ClientAuth::None,
            Self::AnyCertificate => return None,
        })
    }
}

/// Addresses that a rule is for: a network, and perhaps one port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Destination {
    network: IpAddr,
    prefix: u8,
    port: Option<u16>,
}

impl Destination {
    fn parse(text: &str) -> Option<Self> {
        let (host, port) = match text.parse::<SocketAddr>() {
            Ok(address) => (address.ip().to_string(), Some(address.port())),
            Err(_) => match text.rsplit_once(':') {
                // A colon after the prefix, or in an IPv4 network, is a port's.
                Some((host, port)) if host.contains('/') || !host.contains(':') => {
                    (host.to_owned(), Some(port.parse().ok()?))
                }
                _ => (text.to_owned(), None),
            },
        };
        let (network, prefix) = match host.split_once('/') {
            Some((network, prefix)) => (network, Some(prefix.parse().ok()?)),
            None => (host.as_str(), None),
        };
        let network = network
            .trim_start_matches('[')
            .trim_end_matches(']')
            .parse::<IpAddr>()
            .ok()?;
        let longest = if network.is_ipv4() { 32 } else { 128 };
        let prefix: u8 = prefix.unwrap_or(longest);
        if prefix > longest {
            return None;
        }
        // An IPv4 network in IPv6's clothes, as peers are compared without them.
        let canonical = network.to_canonical();
        let (network, prefix) = match prefix.checked_sub(96) {
            Some(prefix) if network.is_ipv6() && canonical.is_ipv4() => (canonical, prefix),
            _ => (network, prefix),
        };
        Some(Self {
            network,
            prefix,
            port,
        })
    }

    fn contains(&self, address: SocketAddr) -> bool {
        if self.port.is_some_and(|port| port != address.port()) {
            return false;
        }
        let bits = |ip: IpAddr| match ip {
            IpAddr::V4(v4) => (u128::from(v4.to_bits()) << 96, true),
            IpAddr::V6(v6) => (v6.to_bits(), false),
        };
        let (network, address) = (bits(self.network), bits(address.ip().to_canonical()));
        let mask = u128::MAX
            .checked_shl(128 - u32::from(self.prefix))
            .unwrap_or(0);
        network.1 == address.1 && network.0 & mask == address.0 & mask
    }
}

impl std::fmt::Display for Destination {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.network, self.prefix)?;
        match self.port {
            Some(port) => write!(f, ":{port}"),
            None => Ok(()),
        }
    }
}

impl Policy {
    /// The policy of somebody who wrote none: a raw key of our own, made now if there is none, and
    /// known peers on both sides. Both files are in `home`.
    ///
    /// # Errors
    /// When the key can be neither read nor made.
    pub fn first_use(home: &Path) -> Result<Self, PolicyError> {
        let key_file = home.join(OWN_KEY_FILE);
        let identity = own_key(&key_file)?;
        let wrong = |problem: String| PolicyError {
            file: key_file.clone(),
            line: None,
            problem,
        };
        let servers = Belief::KnownPeers(home.join(KNOWN_PEERS_FILE));
        let clients = Belief::KnownPeers(home.join(KNOWN_CLIENTS_FILE));
        Ok(Self {
            source: Source::FirstUse(home.to_owned()),
            own_keys: vec![
                (Side::Client, identity.key_pin()),
                (Side::Server, identity.key_pin()),
            ],
            client: Some(client_rule(&servers, Some(&identity), None).map_err(wrong)?),
            server: Some(server_rule(&clients, &identity).map_err(wrong)?),
            destinations: Vec::new(),
        })
    }

    /// The policy file, or the folder of the first use.
    pub fn source(&self) -> &Path {
        match &self.source {
            Source::File(path) | Source::FirstUse(path) => path,
        }
    }

    /// Whether nobody wrote it.
    pub fn is_first_use(&self) -> bool {
        matches!(self.source, Source::FirstUse(_))
    }

    /// Folder and files of the first use, whether or not they are there by now; none of a policy
    /// file.
    pub fn first_use_files(&self) -> Vec<PathBuf> {
        let Source::FirstUse(home) = &self.source else {
            return Vec::new();
        };
        let mut files = vec![home.clone(), home.join(OWN_KEY_FILE)];
        for list in self.known_peers() {
            files.extend([list.to_owned(), known_peers::lock_file(list)]);
        }
        files
    }

    /// The files to which new peers are added. Each folder has to be writable.
    pub fn known_peers(&self) -> impl Iterator<Item = &Path> {
        self.beliefs()
            .filter_map(|(_, belief)| belief.known_peers())
    }

    /// Each table of the policy, and whom it believes.
    pub fn tables(&self) -> impl Iterator<Item = (String, String)> {
        self.beliefs()
            .map(|(table, belief)| (table, belief.to_string()))
    }

    fn beliefs(&self) -> impl Iterator<Item = (String, &Belief)> {
        let server = self
            .server
            .iter()
            .map(|rule| ("server".to_owned(), &rule.belief));
        let client = self
            .client
            .iter()
            .map(|rule| ("client".to_owned(), &rule.belief));
        let destinations = self.destinations.iter();
        let destinations = destinations.map(|(to, rule)| (to.to_string(), &rule.belief));
        server.chain(destinations).chain(client)
    }

    /// The pins of our own keys, by the side that shows them.
    pub fn own_keys(&self) -> &[(Side, KeyPin)] {
        &self.own_keys
    }

    /// A handshake with `peer` where we play `side`, and the judge of its outcome.
    ///
    /// # Errors
    /// When the policy allows none.
    pub fn handshake(
        &self,
        side: Side,
        carrier: Carrier,
        peer: SocketAddr,
    ) -> Result<(Handshake, Judge), Refusal> {
        match side {
            Side::Client => {
                let rule = self
                    .destinations
                    .iter()
                    .find_map(|(to, rule)| to.contains(peer).then_some(rule))
                    .or(self.client.as_ref())
                    .ok_or(Refusal::NoRule(side))?;
                let name = rule
                    .name
                    .clone()
                    .unwrap_or_else(|| ServerName::IpAddress(peer.ip().to_canonical().into()));
                let judge = Judge::new(rule, name_of(peer).to_string());
                Ok((Handshake::client(rule.config(carrier), name)?, judge))
            }
            Side::Server => {
                let rule = self.server.as_ref().ok_or(Refusal::NoRule(side))?;
                // A client's port means nothing.
                let name = match name_of(peer) {
                    SocketAddr::V6(v6) if v6.scope_id() != 0 => {
                        format!("{}%{}", v6.ip(), v6.scope_id())
                    }
                    address => address.ip().to_string(),
                };
                let judge = Judge::new(rule, name);
                Ok((Handshake::server(rule.config(carrier))?, judge))
            }
        }
    }
}

/// The address that a peer is known by. The network of a link-local one is part of it.
fn name_of(peer: SocketAddr) -> SocketAddr {
    match (peer, peer.ip().to_canonical()) {
        (SocketAddr::V6(v6), IpAddr::V6(ip)) => {
            SocketAddrV6::new(ip, v6.port(), 0, v6.scope_id()).into()
        }
        (_, ip) => (ip, peer.port()).into(),
    }
}

/// Decides on a peer whose handshake is finished. Its file may have to be waited for.
#[derive(Clone, Debug)]
pub struct Judge {
    known_peers: Option<Arc<KnownPeersFile>>,
    name: String,
}

impl Judge {
    fn new<Config>(rule: &Rule<Config>, name: String) -> Self {
        Self {
            known_peers: rule.known_peers.clone(),
            name,
        }
    }

    /// Whether connections may be judged that are not in the agent's own network namespace. An address
    /// there is whoever made the namespace wants it to be, and every user can make one.
    ///
    /// # Errors
    /// Where the policy goes by first use: an address is all that it knows of a peer.
    pub fn reaches_other_networks(&self) -> Result<(), Refusal> {
        match &self.known_peers {
            None => Ok(()),
            Some(list) => Err(Refusal::OtherNetwork {
                name: self.name.clone(),
                file: list.path().to_owned(),
            }),
        }
    }

    /// Lets the peer through or not; `None` if it is to be [introduced](Self::introduce), which takes
    /// longer.
    ///
    /// # Errors
    /// When it is not who it was, or that cannot be told.
    pub fn judge(&self, established: &Established) -> Result<Option<Admitted>, Refusal> {
        let key = established.peer().map(|peer| peer.key_pin());
        let authentication = match &self.known_peers {
            None => established.authentication(),
            Some(list) => {
                let key = key.ok_or(Refusal::NoKey)?;
                match list.look_up(&self.name, &key)? {
                    Some(meeting) => self.authentication(list, meeting, key)?,
                    None => return Ok(None),
                }
            }
        };
        Ok(Some(Admitted {
            authentication,
            key,
        }))
    }

    /// Lets a peer through that is new; it is on disk before this returns.
    ///
    /// # Errors
    /// As for [`judge`](Self::judge), and when the list takes no more like it.
    pub fn introduce(&self, established: &Established) -> Result<Admitted, Refusal> {
        let (Some(list), Some(peer)) = (&self.known_peers, established.peer()) else {
            return Err(Refusal::NoKey);
        };
        let key = peer.key_pin();
        let meeting = list
            .introduce(&self.name, key)
            .map_err(|error| match error {
                KnownPeersFileError::Text {
                    path,
                    error: why @ (KnownPeersError::Full | KnownPeersError::Crowded { .. }),
                } => Refusal::NoRoom {
                    name: self.name.clone(),
                    file: path,
                    why,
                },
                error => error.into(),
            })?;
        Ok(Admitted {
            authentication: self.authentication(list, meeting, key)?,
            key: Some(key),
        })
    }

    fn authentication(
        &self,
        list: &KnownPeersFile,
        meeting: Meeting,
        key: KeyPin,
    ) -> Result<Authentication, Refusal> {
        match meeting {
            Meeting::Known => Ok(Authentication::Pinned),
            Meeting::First => {
                tracing::warn!(
                    peer = self.name, %key, file = %list.path().display(),
                    "met for the first time: its key is believed from now on; compare it with its owner's"
                );
                Ok(Authentication::KeyShown)
            }
            Meeting::Changed { expected } => Err(Refusal::KeyChanged {
                name: self.name.clone(),
                expected,
                shown: key,
                file: list.path().to_owned(),
            }),
        }
    }
}

fn client_rule(
    belief: &Belief,
    identity: Option<&Identity>,
    name: Option<ServerName<'static>>,
) -> Result<Arc<Rule<ClientConfig>>, String> {
    let Some(trust) = belief.of_servers() else {
        return Err(
            "a client needs `unauthenticated = \"any-key\"` or `\"any-certificate\"`".into(),
        );
    };
    Rule::new(
        |records, settings| ClientConfig::new(&trust, identity, Alpn::Any, records, settings),
        name,
        belief,
        Whose::Servers,
    )
    .map(Arc::new)
    .map_err(|error| error.to_string())
}

fn server_rule(belief: &Belief, identity: &Identity) -> Result<Arc<Rule<ServerConfig>>, String> {
    let Some(client_auth) = belief.of_clients() else {
        return Err("a server needs `unauthenticated = \"any-client\"` or `\"any-key\"`".into());
    };
    if client_auth.kind() == Some(IdentityKind::RawKey) && identity.kind() == IdentityKind::X509 {
        return Err(
            "a server with a certificate believes clients by `roots` or `certificate_pins`; \
             `pins` and `known_peers` need a server with a raw key (leave `certificate` out)"
                .into(),
        );
    }
    Rule::new(
        |records, settings| ServerConfig::new(identity, &client_auth, Alpn::Any, records, settings),
        None,
        belief,
        Whose::Clients,
    )
    .map(Arc::new)
    .map_err(|error| error.to_string())
}
