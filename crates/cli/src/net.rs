//! Endpoints for commands: flags to configurations, and addresses. `failures` says what errors mean.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::path::PathBuf;
use std::time::Duration;

use tokio::task::JoinSet;
use towline::config::{self, ClientAuth, Identity, Options, Resumption, Trust};
use towline::engine::ServerConfig;
use towline::identity::{HashObstacle, IdentityKind, Pin};
use towline::{Connection, Endpoint, EndpointBuilder};
use towline_transfer::caps::{CONNECTION_WINDOW, STREAM_SEND_BUFFER, STREAM_WINDOW};

use crate::certs::{self, CertArgs, CertificatePins};
use crate::clients::ClientArgs;
use crate::congestion::CongestionArgs;
use crate::exit::{Exit, Failure};
use crate::failures::{Proof, bind_failure, connect_failure, no_pin, silent};
use crate::handshake::HANDSHAKE_TIMEOUT;
use crate::printer::Printer;
use crate::qlog::{QlogArgs, logging_into};
use crate::streams::ALPN;
use crate::units::parse_positive_duration;
use crate::url::{Url, WebUrl, parse_pin};

/// Silence after which a connection is given up, unless `--idle-timeout` says otherwise.
const IDLE_TIMEOUT: &str = "15s";
/// How long the first datagram of an answer may take: three of ours have left by then.
const FIRST_WAIT: Duration = Duration::from_secs(4);
/// After so long without an answer the port is looked at, and a second time after as long again.
const LOOK_AFTER: Duration = Duration::from_millis(300);
/// A second address is tried when the first has not answered for this long.
const NEXT_ADDRESS_AFTER: Duration = Duration::from_millis(250);
/// How long a closing notice may take to leave.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

/// Flags of every command that connects.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct ConnectArgs {
    /// Pin of the server's key or certificate, sha256/…, if the URL has none (repeatable)
    #[arg(long, value_name = "PIN")]
    pub(crate) pin: Vec<String>,
    /// Believe servers whose certificate chains to a CA in this PEM file
    #[arg(long, value_name = "FILE", conflicts_with = "pin")]
    pub(crate) cacert: Option<PathBuf>,
    /// Believe any server. Whoever sits on the path can read and change everything
    #[arg(long, conflicts_with_all = ["pin", "cacert"])]
    pub(crate) insecure: bool,
    #[command(flatten)]
    pub(crate) certificate: CertArgs,
    /// Give up when nothing arrives for this long
    #[arg(long, value_name = "TIME", default_value = IDLE_TIMEOUT, value_parser = parse_positive_duration)]
    pub(crate) idle_timeout: Duration,
    #[command(flatten)]
    pub(crate) congestion: CongestionArgs,
    #[command(flatten)]
    pub(crate) qlog: QlogArgs,
}

/// Flags of every command that listens.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct ListenArgs {
    #[command(flatten)]
    pub(crate) certificate: CertArgs,
    #[command(flatten)]
    pub(crate) clients: ClientArgs,
    /// Give a peer up when nothing arrives for this long
    #[arg(long, value_name = "TIME", default_value = IDLE_TIMEOUT, value_parser = parse_positive_duration)]
    pub(crate) idle_timeout: Duration,
    #[command(flatten)]
    pub(crate) congestion: CongestionArgs,
    #[command(flatten)]
    pub(crate) qlog: QlogArgs,
}

/// The options of a connection with these timeouts that sends in this way.
pub(crate) fn options(idle_timeout: Duration, congestion: &CongestionArgs) -> Options {
    let mut options = Options::new(ALPN);
    congestion.apply(&mut options.transport);
    options.transport.max_idle_timeout = idle_timeout;
    // Neither a slow disk nor a waiting user is silence.
    options.transport.keep_alive_interval = Some((idle_timeout / 3).min(Duration::from_secs(5)));
    options.transport.handshake_timeout = HANDSHAKE_TIMEOUT;
    options.transport.stream_send_buffer = STREAM_SEND_BUFFER;
    options
}

/// The same for a side that receives files.
///
/// The manifest waits unread on the control stream while the lanes work, so the connection's
/// window must hold a full stream window and leave room for the lanes: were it used up by
/// the manifest, nothing could ever be settled and no manifest be read.
pub(crate) fn receiving_options(idle_timeout: Duration, congestion: &CongestionArgs) -> Options {
    let mut options = options(idle_timeout, congestion);
    let transport = &mut options.transport;
    transport.max_stream_receive_window = STREAM_WINDOW;
    transport.receive_window = CONNECTION_WINDOW;
    transport.max_receive_window = transport.max_receive_window.max(CONNECTION_WINDOW);
    options
}

/// A client's connection and the endpoint that carries it.
pub(crate) struct Client {
    pub(crate) endpoint: Endpoint,
    pub(crate) connection: Connection,
}

impl Client {
    /// Closes the connection and waits until the notice has left.
    pub(crate) async fn close(&self, code: u64, reason: &str) {
        self.connection.close(code, reason.as_bytes());
        let _ = tokio::time::timeout(CLOSE_TIMEOUT, self.endpoint.wait_idle()).await;
    }
}

impl ConnectArgs {
    /// Whom to believe.
    fn trust(&self, url: &Url, printer: Printer) -> Result<Trust, Failure> {
        let mut pins = url.pins.clone();
        for pin in &self.pin {
            pins.extend(
                parse_pin(pin).map_err(|error| Failure::usage(format!("--pin {pin}: {error}")))?,
            );
        }
        let raw_key = self.shows_raw_key(url);
        match &self.cacert {
            _ if self.insecure => {
                printer.note(
                    "towline: WARNING: --insecure believes any server; whoever sits on the path can read and change everything",
                );
                Ok(match raw_key {
                    true => Trust::InsecureAcceptAnyRawKey,
                    false => Trust::InsecureAcceptAnyCertificate,
                })
            }
            Some(_) if !pins.is_empty() => Err(Failure::usage(
                "the URL has a pin, and --cacert is given too",
            )
            .next("remove one of the two")),
            Some(_) if raw_key => Err(Failure::usage(
                "a raw key has no certificate that --cacert could speak for",
            )
            .next("give --pin instead, or remove --raw-key")),
            Some(file) => Trust::roots_from_pem(&certs::read(file)?)
                .map_err(|error| Failure::new(Exit::Tls, format!("{}: {error}", file.display()))),
            None if !pins.is_empty() && raw_key => Ok(Trust::RawKeys(
                pins.iter()
                    .filter_map(|pin| match pin {
                        Pin::Key(pin) => Some(*pin),
                        Pin::Certificate(_) => None,
                    })
                    .collect(),
            )),
            None if !pins.is_empty() => Ok(Trust::Pinned(pins)),
            None if raw_key => Err(no_pin("")),
            None => {
                let roots = rustls_native_certs::load_native_certs().certs;
                if roots.is_empty() {
                    return Err(no_pin(", and this system has no certificate authorities"));
                }
                Ok(Trust::SystemRoots(roots))
            }
        }
    }

    fn shows_raw_key(&self, url: &Url) -> bool {
        self.certificate.raw_key || url.raw_key
    }

    /// Connects to the URL's server.
    pub(crate) async fn connect(
        &self,
        url: &Url,
        options: &Options,
        printer: Printer,
    ) -> Result<Client, Failure> {
        self.connect_with(url, options, printer, |builder| builder)
            .await
    }

    /// As `connect`, from an endpoint that `more` has a say in.
    pub(crate) async fn connect_with(
        &self,
        url: &Url,
        options: &Options,
        printer: Printer,
        prepare: impl Fn(EndpointBuilder) -> EndpointBuilder,
    ) -> Result<Client, Failure> {
        let trust = self.trust(url, printer)?;
        let proof = match trust {
            Trust::SystemRoots(_) => Proof::SystemRoots,
            _ if self.cacert.is_some() => Proof::GivenRoots,
            _ => Proof::Pin,
        };
        let identity = self.certificate.showing(self.shows_raw_key(url))?;
        let config = config::client(&trust, identity.as_ref(), options)
            .map_err(|error| Failure::usage(error.to_string()))?;
        let qlog = self.qlog.open()?;
        let addresses = resolve(&url.host, url.port).await?;
        let mut attempts = JoinSet::new();
        let mut addresses = addresses.into_iter();
        let mut failure = None;
        let mut more = true;
        loop {
            if more {
                match addresses.next() {
                    Some(address) => {
                        let (host, config) = (url.host.clone(), config.clone());
                        let builder = logging_into(qlog.clone(), prepare(Endpoint::builder()));
                        attempts.spawn(async move {
                            let endpoint = builder.bind(any_address(address)).map_err(|error| {
                                Failure::new(
                                    Exit::Connect,
                                    format!("no socket towards {address}: {error}"),
                                )
                            })?;
                            let result = tokio::select! {
                                result = endpoint.connect(address, &host, &config) => result,
                                failure = no_answer(&endpoint, address) => return Err(failure),
                            };
                            let connection =
                                result.map_err(|error| connect_failure(&error, address, proof))?;
                            Ok(Client {
                                endpoint,
                                connection,
                            })
                        });
                    }
                    None if attempts.is_empty() => break,
                    None => {}
                }
            }
            more = false;
            tokio::select! {
                Some(attempt) = attempts.join_next() => match attempt {
                    Ok(Ok(client)) => return Ok(client),
                    Ok(Err(error)) => {
                        more = true;
                        // What a server said is worth more than another one's silence.
                        match &failure {
                            Some(Failure { exit, .. }) if *exit != Exit::Connect => {}
                            _ => failure = Some(error),
                        }
                    }
                    Err(error) => failure = Some(Failure::new(Exit::Other, error.to_string())),
                },
                () = tokio::time::sleep(NEXT_ADDRESS_AFTER), if addresses.len() > 0 => more = true,
            }
        }
        Err(failure
            .unwrap_or_else(|| Failure::new(Exit::Connect, format!("{} has no address", url.host))))
    }
}

/// Ends when nothing has come from `address` and nothing will: its host says that nobody listens
/// there, or the first wait is over. Never ends once something came.
async fn no_answer(endpoint: &Endpoint, address: SocketAddr) -> Failure {
    let is_heard = || endpoint.socket_stats().datagrams_received > 0;
    let started = tokio::time::Instant::now();
    let mut refusals = 0;
    for _ in 0..2 {
        tokio::time::sleep(LOOK_AFTER).await;
        if is_heard() {
            return std::future::pending().await;
        }
        refusals += u32::from(is_refused(address).await);
    }
    // Twice, for an answer may just be on its way, and a forged refusal has to hit two ports.
    if refusals == 2 && !is_heard() {
        return Failure::new(
            Exit::Connect,
            format!("no answer from {address}: nothing listens at that UDP port"),
        )
        .next("check that the server runs, and that address and port are right");
    }
    tokio::time::sleep_until(started + FIRST_WAIT).await;
    if is_heard() {
        return std::future::pending().await;
    }
    silent(address, FIRST_WAIT)
}

/// Whether the host answers a datagram to `address` with "port unreachable" (ICMP).
///
/// A socket of its own, since only a connected one is told, and one byte, which no QUIC endpoint
/// answers.
async fn is_refused(address: SocketAddr) -> bool {
    let probe = async {
        let socket = tokio::net::UdpSocket::bind(any_address(address)).await?;
        socket.connect(address).await?;
        socket.send(&[0]).await?;
        socket.recv(&mut [0; 1]).await
    };
    match tokio::time::timeout(LOOK_AFTER, probe).await {
        Ok(Err(error)) => error.kind() == io::ErrorKind::ConnectionRefused,
        _ => false,
    }
}

/// The addresses of a host, IPv4 first.
async fn resolve(host: &str, port: u16) -> Result<Vec<SocketAddr>, Failure> {
    let mut addresses: Vec<_> = tokio::net::lookup_host((host, port))
        .await
        .map_err(|error| {
            Failure::new(
                Exit::Connect,
                format!("`{host}` cannot be resolved: {error}"),
            )
            .next("check the name in the URL")
        })?
        .collect();
    addresses.sort_by_key(SocketAddr::is_ipv6);
    addresses.dedup();
    Ok(addresses)
}

fn any_address(towards: SocketAddr) -> SocketAddr {
    let any = if towards.is_ipv4() {
        IpAddr::V4(Ipv4Addr::UNSPECIFIED)
    } else {
        IpAddr::V6(Ipv6Addr::UNSPECIFIED)
    };
    SocketAddr::new(any, 0)
}

/// A listening endpoint, and what clients need to know of it.
pub(crate) struct Listening {
    pub(crate) endpoint: Endpoint,
    /// Of the key, which outlives its certificates.
    pin: Pin,
    /// Of the certificates that are shown now and next, for browsers.
    pub(crate) certificate_pins: CertificatePins,
    /// Why browsers do not take it by its hash.
    pub(crate) hash_obstacle: Option<HashObstacle>,
    raw_key: bool,
    /// Every client may come in.
    is_open: bool,
}

impl ListenArgs {
    /// Binds `address`.
    pub(crate) fn listen(
        &self,
        address: SocketAddr,
        options: &Options,
        printer: Printer,
    ) -> Result<Listening, Failure> {
        self.listen_on_shards(address, options, 1, printer)
    }

    /// As `listen`, with that many shards.
    pub(crate) fn listen_on_shards(
        &self,
        address: SocketAddr,
        options: &Options,
        shards: usize,
        printer: Printer,
    ) -> Result<Listening, Failure> {
        let more = |config, builder: EndpointBuilder| builder.server(config).shards(shards);
        self.listen_with(address, options, printer, more)
    }

    /// As `listen`, where `more` makes the endpoint of its configuration.
    pub(crate) fn listen_with(
        &self,
        address: SocketAddr,
        options: &Options,
        printer: Printer,
        more: impl FnOnce(ServerConfig, EndpointBuilder) -> EndpointBuilder,
    ) -> Result<Listening, Failure> {
        let certs::Serving {
            identity,
            certificates,
            pins: certificate_pins,
        } = self.certificate.serving(printer)?;
        let mut options = options.clone();
        let clients = self.clients.rule(identity.kind())?;
        if !matches!(clients, ClientAuth::None) {
            // A client that is taken off the list must not come back on an old session.
            options.resumption = Resumption::Disabled;
        }
        let config = match certificates {
            None => config::server(&identity, &clients, &options),
            Some(certificates) => {
                config::server_with_certificates(&certificates, &clients, &options)
            }
        };
        let config = config.map_err(|error| Failure::new(Exit::Tls, error.to_string()))?;
        let mut builder = logging_into(self.qlog.open()?, more(config, Endpoint::builder()));
        if address.port() != 0 {
            builder = builder.reset_key(reset_key(&identity, address));
        }
        let endpoint = builder
            .bind(address)
            .map_err(|error| bind_failure(address, &error))?;
        Ok(Listening {
            endpoint,
            pin: Pin::Key(identity.key_pin()),
            certificate_pins,
            hash_obstacle: identity.hash_obstacle(),
            raw_key: identity.kind() == IdentityKind::RawKey,
            is_open: matches!(clients, ClientAuth::None),
        })
    }
}

/// The same after a restart at this address, so that connections of before end at once; another at
/// every other address.
pub(crate) fn reset_key(identity: &Identity, address: SocketAddr) -> [u8; 32] {
    let mut hasher = blake3::Hasher::new_derive_key("towline 2026-11 stateless reset key");
    hasher.update(identity.private_key_der().secret_der());
    hasher.update(address.to_string().as_bytes());
    *hasher.finalize().as_bytes()
}

impl Listening {
    /// The URL for clients, with the pin; `path` as it is to appear.
    pub(crate) fn url(&self) -> Url {
        let address = reachable(self.endpoint.local_addr());
        Url {
            host: address.ip().to_string(),
            port: address.port(),
            path: None,
            pins: vec![self.pin],
            raw_key: self.raw_key,
        }
    }

    /// The same for clients of HTTP/3.
    pub(crate) fn web_url(&self, path: &str) -> WebUrl {
        WebUrl {
            server: self.url(),
            target: path.to_owned(),
        }
    }

    /// Warns when everybody may come in.
    pub(crate) fn warn_if_public(&self, printer: Printer, what: &str) {
        if self.is_open && !self.endpoint.local_addr().ip().is_loopback() {
            printer.note(format_args!(
                "towline: note: anyone who can reach {} can {what}; --client-pin, --known-clients or --client-ca says who may",
                self.endpoint.local_addr()
            ));
        }
    }
}

/// Where others reach a listener.
pub(crate) fn reachable(mut address: SocketAddr) -> SocketAddr {
    if address.ip().is_unspecified() {
        address.set_ip(reachable_ip(address.ip()));
    }
    address
}

/// The address this machine uses towards others; connecting a UDP socket sends nothing.
fn reachable_ip(unspecified: IpAddr) -> IpAddr {
    let (any, elsewhere, loopback): (IpAddr, IpAddr, IpAddr) = if unspecified.is_ipv4() {
        (
            unspecified,
            Ipv4Addr::new(192, 0, 2, 1).into(),
            Ipv4Addr::LOCALHOST.into(),
        )
    } else {
        (
            unspecified,
            Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1).into(),
            Ipv6Addr::LOCALHOST.into(),
        )
    };
    UdpSocket::bind((any, 0))
        .and_then(|socket| {
            socket
                .connect((elsewhere, 9))
                .and_then(|()| socket.local_addr())
        })
        .map_or(loopback, |address| address.ip())
}

#[cfg(test)]
mod tests;
