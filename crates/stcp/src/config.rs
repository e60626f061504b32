//! What a side brings to a session: identity, trust and ciphers, over `identity`'s configurations.

use std::sync::Arc;

use towline_identity::{ClientAuth, ConfigError, Identity, TlsSettings, Trust};

/// The application protocol of secure TCP (RFC 7301).
pub const ALPN: &[u8] = b"stcp/1";

/// Whether the application protocol has to be named.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Alpn {
    /// Nothing is named, and whatever the peer names is passed over: any TLS 1.3 peer will do.
    #[default]
    Any,
    /// Both sides must name `stcp/1`, so that no other service can be taken for this one although it
    /// has the same key or certificate (RFC 9325).
    Required,
}

impl Alpn {
    fn protocols(self) -> Vec<Vec<u8>> {
        match self {
            Alpn::Any => Vec::new(),
            Alpn::Required => vec![ALPN.to_vec()],
        }
    }
}

/// Who makes the records that are sent. Those that come are opened in user space, whatever is chosen,
/// and every byte is counted as it passes: any cipher will do.
///
/// A kernel cannot change its key. So once the peer has asked for a new one, or the key's limit is
/// reached, whatever is written fails with [`KernelKeyEnded`](crate::SessionError::KernelKeyEnded), and
/// the peer sees a stream that was cut off. Reading goes on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Records {
    /// User space, and the kernel from the first file on that is sent, where it has kTLS: so that
    /// `sendfile` works. A stream that sends no files changes its keys as often as is due.
    #[default]
    Counted,
    /// The kernel from the first byte on, where it has kTLS, and user space otherwise: for network
    /// cards that encrypt.
    Kernel,
    /// User space, whatever the kernel has.
    UserSpace,
}

/// How sure we are of the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Authentication {
    /// A chain to a trusted root; for servers with the right name.
    Certificate,
    /// A pinned certificate or key.
    Pinned,
    /// The peer proved a key that nobody vouches for: the caller has to judge it.
    KeyShown,
    /// Not at all.
    Anonymous,
}

impl Authentication {
    fn of_server(trust: &Trust) -> Self {
        match trust {
            Trust::Roots(_) | Trust::SystemRoots(_) => Self::Certificate,
            Trust::Pinned(_) | Trust::RawKeys(_) => Self::Pinned,
            _ => Self::KeyShown,
        }
    }

    fn of_client(auth: &ClientAuth) -> Self {
        match auth {
            ClientAuth::Roots(_) => Self::Certificate,
            ClientAuth::Pinned(_) | ClientAuth::RawKeys(_) | ClientAuth::Listed(..) => Self::Pinned,
            ClientAuth::AnyRawKey => Self::KeyShown,
            _ => Self::Anonymous,
        }
    }
}

/// A client's side.
#[derive(Clone, Debug)]
pub struct ClientConfig {
    pub(crate) tls: Arc<rustls::ClientConfig>,
    pub(crate) authentication: Authentication,
    pub(crate) alpn: Alpn,
    records: Records,
}

impl ClientConfig {
    /// A client that believes servers by `trust` and shows `identity` to those that ask.
    /// `settings` gives provider, clock and resumption; its ALPN is not used.
    pub fn new(
        trust: &Trust,
        identity: Option<&Identity>,
        alpn: Alpn,
        records: Records,
        settings: &TlsSettings,
    ) -> Result<Self, ConfigError> {
        let settings = session_settings(alpn, settings);
        let mut tls = towline_identity::client_config(trust, identity, &settings)?;
        tls.enable_secret_extraction = true;
        Ok(Self {
            tls: Arc::new(tls),
            authentication: Authentication::of_server(trust),
            alpn,
            records,
        })
    }

    /// Who shall make the records.
    pub fn records(&self) -> Records {
        self.records
    }

    /// How a server that it believes is known.
    pub fn authentication(&self) -> Authentication {
        self.authentication
    }
}

/// A server's side.
#[derive(Clone, Debug)]
pub struct ServerConfig {
    pub(crate) tls: Arc<rustls::ServerConfig>,
    pub(crate) authentication: Authentication,
    pub(crate) alpn: Alpn,
    records: Records,
}

impl ServerConfig {
    /// A server that shows `identity` and believes clients by `client_auth`.
    /// `settings` gives provider, clock and resumption; its ALPN is not used.
    pub fn new(
        identity: &Identity,
        client_auth: &ClientAuth,
        alpn: Alpn,
        records: Records,
        settings: &TlsSettings,
    ) -> Result<Self, ConfigError> {
        let settings = session_settings(alpn, settings);
        let mut tls = towline_identity::server_config(identity, client_auth, &settings)?;
        tls.enable_secret_extraction = true;
        Ok(Self {
            tls: Arc::new(tls),
            authentication: Authentication::of_client(client_auth),
            alpn,
            records,
        })
    }

    /// Who shall make the records.
    pub fn records(&self) -> Records {
        self.records
    }

    /// How a client that it believes is known.
    pub fn authentication(&self) -> Authentication {
        self.authentication
    }
}

fn session_settings(alpn: Alpn, settings: &TlsSettings) -> TlsSettings {
    let mut settings = settings.clone();
    settings.alpn = alpn.protocols();
    // 0-RTT has no place here: a socket's first write may be anything.
    settings.early_data = false;
    settings
}
