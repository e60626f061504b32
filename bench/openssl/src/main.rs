//! The framed echo over TLS 1.3 by the system's OpenSSL, server or load.
//!
//! As the rustls side (`bench_peers::stcp`): echo, load and figures are `bench_peers::echo`'s, and only
//! the stream is another. A package of its own, as it needs OpenSSL's headers (libssl-dev).

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::process::ExitCode;

use bench_contract::{Role, SERVER_NAME, Settings};
use bench_peers::Result;
use bench_peers::echo::Connect;
use bench_peers::stcp::{execute, measure, serve};
use clap::Parser;
use openssl::error::ErrorStack;
use openssl::ssl::{
    Ssl, SslAcceptor, SslConnector, SslContext, SslContextBuilder, SslFiletype, SslMethod,
    SslVersion,
};
use tokio::net::TcpStream;
use tokio_openssl::SslStream;

/// One end of the echo. Of the settings, `connections` are the clients, `bytes` a payload's.
#[derive(Parser)]
struct Cli {
    role: Role,
    #[command(flatten)]
    settings: Settings,
}

fn main() -> ExitCode {
    execute("bench-openssl-peer", run(&Cli::parse()))
}

async fn run(cli: &Cli) -> Result<()> {
    let settings = &cli.settings;
    match cli.role {
        Role::Server => {
            let context = acceptor(settings)?.into_context();
            serve(settings, |tcp| accept(context.clone(), tcp)).await
        }
        Role::Client => measure(Client::new(settings)?, settings).await,
    }
}

fn acceptor(settings: &Settings) -> Result<SslAcceptor, ErrorStack> {
    let file = |name: &str| settings.material.join(name);
    let mut tls = SslAcceptor::mozilla_modern_v5(SslMethod::tls_server())?;
    as_others(&mut tls)?;
    tls.set_certificate_chain_file(file("cert.pem"))?;
    tls.set_private_key_file(file("key.pem"), SslFiletype::PEM)?;
    tls.set_num_tickets(0)?;
    Ok(tls.build())
}

async fn accept(context: SslContext, tcp: TcpStream) -> io::Result<SslStream<TcpStream>> {
    let mut stream = SslStream::new(Ssl::new(&context)?, tcp)?;
    let accepted = Pin::new(&mut stream).accept().await;
    accepted.map_err(io::Error::other)?;
    Ok(stream)
}

/// TLS 1.3, one AEAD, X25519.
fn as_others(tls: &mut SslContextBuilder) -> Result<(), ErrorStack> {
    tls.set_min_proto_version(Some(SslVersion::TLS1_3))?;
    tls.set_ciphersuites("TLS_AES_128_GCM_SHA256")?;
    tls.set_groups_list("X25519")
}

#[derive(Clone)]
struct Client {
    connector: SslConnector,
    address: SocketAddr,
}

impl Client {
    fn new(settings: &Settings) -> Result<Self> {
        let mut tls = SslConnector::builder(SslMethod::tls_client())?;
        as_others(&mut tls)?;
        tls.set_ca_file(settings.material.join("ca.pem"))?;
        Ok(Self {
            connector: tls.build(),
            address: settings.addr,
        })
    }
}

impl Connect for Client {
    type Stream = SslStream<TcpStream>;

    async fn connect(&self) -> io::Result<Self::Stream> {
        let tcp = TcpStream::connect(self.address).await?;
        tcp.set_nodelay(true)?;
        let ssl = self.connector.configure()?.into_ssl(SERVER_NAME)?;
        let mut stream = SslStream::new(ssl, tcp)?;
        let connected = Pin::new(&mut stream).connect().await;
        connected.map_err(io::Error::other)?;
        Ok(stream)
    }
}
