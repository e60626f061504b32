//! Who we are and whom we believe, as flags of every `stcp` command.
//!
//! Raw keys by default: each side has a key of its own, kept from one start to the next, and is
//! given the other's pin. `--cert`, `--cacert` and `--x509` make it certificates. Whoever wants
//! a peer without proof has to say so.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

use serde_json::{Value, json};
use tokio::net::lookup_host;
use towline::config::{
    Cipher, CipherPreference, ClientAuth, Identity, KeyExchange, KeyExchangePreference, Trust,
};
use towline::identity::{IdentityKind, KeyPin, Pin};
use towline::stcp::{
    Alpn, Authentication, ClientConfig, ConnectError, Options, Records, ServerConfig, SessionError,
    Stream, client_config, server_config,
};

use crate::certs;
use crate::exit::{Exit, Failure};
use crate::printer::Printer;
use crate::url::parse_pin;

/// Who we are.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct IdentityArgs {
    /// Our certificate chain in PEM, for --key; without it we show a raw public key
    #[arg(long, value_name = "FILE", requires = "key")]
    pub(crate) cert: Option<PathBuf>,
    /// Our private key in PEM; without it a key is made and kept
    #[arg(long, value_name = "FILE")]
    pub(crate) key: Option<PathBuf>,
}

impl IdentityArgs {
    /// The identity, from files or kept.
    pub(crate) fn load(&self) -> Result<Identity, Failure> {
        let identity = match (&self.cert, &self.key) {
            (Some(cert), Some(key)) => Identity::from_pem(&certs::read(cert)?, &certs::read(key)?),
            (None, Some(key)) => Identity::raw_key_from_pem(&certs::read(key)?),
            _ => return certs::raw_key(),
        };
        identity.map_err(|error| Failure::new(Exit::Tls, error.to_string()))
    }
}

/// What both sides may choose.
#[derive(Clone, Debug, clap::Args)]
struct TlsArgs {
    /// Use only this cipher: aes128gcm, aes256gcm, chacha20
    #[arg(long, value_name = "NAME")]
    cipher: Option<Cipher>,
    /// Use only this key exchange: x25519mlkem768, x25519, p256
    #[arg(long, value_name = "NAME")]
    kx: Option<KeyExchange>,
    /// Insist that both sides name the protocol `stcp/1` (ALPN); else any TLS 1.3 peer will do
    #[arg(long)]
    require_alpn: bool,
}

impl TlsArgs {
    fn options(&self, records: Records) -> Options {
        let mut options = Options::default().records(records);
        if let Some(cipher) = self.cipher {
            options.ciphers = CipherPreference::only(cipher);
        }
        if let Some(kx) = self.kx {
            options.key_exchanges = KeyExchangePreference::only(kx);
        }
        if self.require_alpn {
            options.alpn = Alpn::Required;
        }
        options
    }
}

/// Flags of commands that connect.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct ConnectArgs {
    /// Pin of the server's key, as its `towline stcp key` prints it (repeatable)
    #[arg(long, value_name = "PIN")]
    pin: Vec<String>,
    /// The server shows a certificate: --pin is of it, or of its key
    #[arg(long)]
    x509: bool,
    /// Believe servers whose certificate chains to a CA in this PEM file
    #[arg(long, value_name = "FILE", conflicts_with = "pin")]
    cacert: Option<PathBuf>,
    /// Believe any server. Whoever sits on the path can read and change everything
    #[arg(long, conflicts_with_all = ["pin", "cacert"])]
    insecure: bool,
    /// The name in the server's certificate, if it is not the host connected to
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    #[command(flatten)]
    identity: IdentityArgs,
    #[command(flatten)]
    tls: TlsArgs,
}

/// A client's side, ready to connect.
#[derive(Clone)]
pub(crate) struct Client {
    config: ClientConfig,
    name: String,
    /// HOST:PORT.
    server: String,
}

impl ConnectArgs {
    /// Whether certificates are meant, and not raw keys.
    fn is_x509(&self) -> bool {
        self.x509 || self.cacert.is_some() || self.identity.cert.is_some()
    }

    fn trust(&self, printer: Printer) -> Result<Trust, Failure> {
        let pins: Vec<[Pin; 2]> = self
            .pin
            .iter()
            .map(|pin| parse_pin(pin).map_err(|why| Failure::usage(format!("--pin {pin}: {why}"))))
            .collect::<Result<_, _>>()?;
        if self.insecure {
            printer.note(
                "towline: WARNING: --insecure believes any server; whoever sits on the path can read and change everything",
            );
            return Ok(match self.is_x509() {
                true => Trust::InsecureAcceptAnyCertificate,
                false => Trust::InsecureAcceptAnyRawKey,
            });
        }
        if let Some(file) = &self.cacert {
            return Trust::roots_from_pem(&certs::read(file)?)
                .map_err(|error| Failure::new(Exit::Tls, format!("{}: {error}", file.display())));
        }
        match (pins.is_empty(), self.is_x509()) {
            (true, _) => Err(Failure::usage("nothing says which server to believe").next(
                "give --pin with what `towline stcp key` prints at the server, or --cacert FILE",
            )),
            (false, true) => Ok(Trust::Pinned(pins.concat())),
            (false, false) => Ok(Trust::RawKeys(key_pins(&pins))),
        }
    }

    /// Reads what is needed to connect to `server` (HOST:PORT).
    pub(crate) async fn client(
        &self,
        server: &str,
        records: Records,
        printer: Printer,
    ) -> Result<Client, Failure> {
        let trust = self.trust(printer)?;
        let identity = match (trust.kind(), &self.identity.cert) {
            // Without a certificate of ours there is none to show.
            (IdentityKind::X509, None) => None,
            _ => Some(self.identity.load()?),
        };
        let config = client_config(&trust, identity.as_ref(), &self.tls.options(records))
            .map_err(|error| Failure::usage(error.to_string()))?;
        // Wrong at the start, it is told at the start; later it may have moved.
        resolve(server).await?;
        let host = server
            .rsplit_once(':')
            .map_or(server, |(host, _)| host)
            .trim_matches(['[', ']']);
        Ok(Client {
            config,
            name: self.name.clone().unwrap_or_else(|| host.to_owned()),
            server: server.to_owned(),
        })
    }
}

impl Client {
    /// A connection to the server, wherever its name leads now.
    pub(crate) async fn open(&self) -> Result<Stream, ConnectError> {
        towline::stcp::connect(&*self.server, &self.name, &self.config).await
    }
}

/// The addresses of HOST:PORT.
pub(crate) async fn resolve(server: &str) -> Result<Vec<SocketAddr>, Failure> {
    let addresses: Vec<_> = lookup_host(server)
        .await
        .map_err(|error| {
            Failure::new(
                Exit::Connect,
                format!("`{server}` cannot be resolved: {error}"),
            )
            .next("write HOST:PORT, such as db.example.org:6380")
        })?
        .collect();
    match addresses.is_empty() {
        true => Err(Failure::new(
            Exit::Connect,
            format!("`{server}` has no address"),
        )),
        false => Ok(addresses),
    }
}

/// Flags of commands that listen.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct ListenArgs {
    /// Let in only clients with this key, as their `towline stcp key` prints it (repeatable)
    #[arg(long, value_name = "PIN")]
    client_pin: Vec<String>,
    /// Let in only clients whose certificate chains to a CA in this PEM file
    #[arg(
        long,
        value_name = "FILE",
        conflicts_with = "client_pin",
        requires = "cert"
    )]
    client_ca: Option<PathBuf>,
    /// Let in everybody: clients stay unknown
    #[arg(long, conflicts_with_all = ["client_pin", "client_ca"])]
    anonymous_clients: bool,
    #[command(flatten)]
    identity: IdentityArgs,
    #[command(flatten)]
    tls: TlsArgs,
}

/// A server's side, ready to listen.
pub(crate) struct Server {
    pub(crate) config: ServerConfig,
    /// What a client has to add to its command line.
    pub(crate) client_flags: String,
    pin: KeyPin,
}

impl ListenArgs {
    /// Reads what is needed to listen.
    pub(crate) fn server(&self, records: Records, printer: Printer) -> Result<Server, Failure> {
        let identity = self.identity.load()?;
        let auth = self.client_auth(identity.kind(), printer)?;
        let config = server_config(&identity, &auth, &self.tls.options(records))
            .map_err(|error| Failure::new(Exit::Tls, error.to_string()))?;
        let pin = identity.key_pin();
        let x509 = match identity.kind() {
            IdentityKind::X509 => " --x509",
            IdentityKind::RawKey => "",
        };
        Ok(Server {
            config,
            client_flags: format!("--pin {pin}{x509}"),
            pin,
        })
    }

    fn client_auth(&self, kind: IdentityKind, printer: Printer) -> Result<ClientAuth, Failure> {
        if self.anonymous_clients {
            printer.note(
                "towline: note: --anonymous-clients lets in everybody who can reach the port",
            );
            return Ok(ClientAuth::None);
        }
        if let Some(file) = &self.client_ca {
            return ClientAuth::roots_from_pem(&certs::read(file)?)
                .map_err(|error| Failure::new(Exit::Tls, format!("{}: {error}", file.display())));
        }
        if self.client_pin.is_empty() {
            return Err(Failure::usage("nothing says which clients to let in").next(
                "give --client-pin with what `towline stcp key` prints at the client, --client-ca FILE, or --anonymous-clients",
            ));
        }
        let pins: Vec<[Pin; 2]> = self
            .client_pin
            .iter()
            .map(|pin| {
                parse_pin(pin).map_err(|why| Failure::usage(format!("--client-pin {pin}: {why}")))
            })
            .collect::<Result<_, _>>()?;
        Ok(match kind {
            IdentityKind::X509 => ClientAuth::Pinned(pins.concat()),
            IdentityKind::RawKey => ClientAuth::RawKeys(key_pins(&pins)),
        })
    }
}

impl Server {
    /// For the record of a listening command.
    pub(crate) fn pin(&self) -> Value {
        json!(self.pin.to_string())
    }
}

fn key_pins(pins: &[[Pin; 2]]) -> Vec<KeyPin> {
    let keys = pins.iter().flatten().filter_map(|pin| match pin {
        Pin::Key(key) => Some(*key),
        Pin::Certificate(_) => None,
    });
    keys.collect()
}

/// How sure we are of a peer, for people and records.
pub(crate) fn assurance(authentication: Authentication) -> &'static str {
    match authentication {
        Authentication::Certificate => "certificate",
        Authentication::Pinned => "pinned",
        Authentication::KeyShown => "UNAUTHENTICATED (a key that nobody vouches for)",
        Authentication::Anonymous => "anonymous",
    }
}

/// Why an address cannot be listened on.
pub(crate) fn listen_failure(address: SocketAddr, error: &io::Error) -> Failure {
    let failure = Failure::new(Exit::Other, format!("cannot listen on {address}: {error}"));
    match error.kind() {
        io::ErrorKind::AddrInUse => {
            failure.next("choose another port, or stop the other program (`ss -tlpn` names it)")
        }
        io::ErrorKind::AddrNotAvailable => {
            failure.next("use an address of this machine, or 0.0.0.0")
        }
        io::ErrorKind::PermissionDenied => failure.next("use a port from 1024 up"),
        _ => failure,
    }
}

/// How a connection that did not come about ends a command.
pub(crate) fn connect_failure(error: &ConnectError, server: &str) -> Failure {
    let failure = |exit| Failure::new(exit, format!("{server}: {error}"));
    match error {
        ConnectError::Tcp(_) => failure(Exit::Connect)
            .next("check that the server runs, and that address and port are right"),
        ConnectError::Name(_) => failure(Exit::Usage),
        ConnectError::TimedOut(_) => failure(Exit::Timeout),
        ConnectError::Session(SessionError::PeerRejected(_)) => failure(Exit::Tls)
            .next("compare --pin with what `towline stcp key` prints at the server"),
        ConnectError::Session(SessionError::PeerMisbehaved { .. }) => failure(Exit::Protocol),
        _ => failure(Exit::Tls),
    }
}
