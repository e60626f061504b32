//! The framed echo over TLS 1.3 by the system's OpenSSL, server or load.
//!
//! As the rustls side (`bench_peers::stcp`): echo, load and figures are `towline::stcp::echo`'s, and only
//! the stream is another. A package of its own, as it needs OpenSSL's headers (libssl-dev).

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::process::ExitCode;

use bench_contract::{LISTENING, Role, SERVER_NAME, Settings};
use bench_peers::stcp::measure;
use clap::Parser;
use openssl::error::ErrorStack;
use openssl::ssl::{
    Ssl, SslAcceptor, SslConnector, SslContextBuilder, SslFiletype, SslMethod, SslVersion,
};
use tokio::net::{TcpListener, TcpStream};
use tokio_openssl::SslStream;
use towline::stcp::echo::{self, Connect};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// One end of the echo. Of the settings, `connections` are the clients, `bytes` a payload's.
#[derive(Parser)]
struct Cli {
    role: Role,
    #[command(flatten)]
    settings: Settings,
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build();
    let result = match runtime {
        Ok(runtime) => runtime.block_on(run(&cli)),
        Err(error) => Err(error.into()),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bench-openssl-peer: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn run(cli: &Cli) -> Result<()> {
    let settings = &cli.settings;
    match cli.role {
        Role::Server => serve(settings).await,
        Role::Client => measure(Client::new(settings)?, settings).await,
    }
}

async fn serve(settings: &Settings) -> Result<()> {
    let file = |name: &str| settings.material.join(name);
    let mut tls = SslAcceptor::mozilla_modern_v5(SslMethod::tls_server())?;
    as_others(&mut tls)?;
    tls.set_certificate_chain_file(file("cert.pem"))?;
    tls.set_private_key_file(file("key.pem"), SslFiletype::PEM)?;
    tls.set_num_tickets(0)?;
    let tls = tls.build();
    let listener = TcpListener::bind(settings.addr).await?;
    println!("{LISTENING}{}", listener.local_addr()?);
    loop {
        let (tcp, _) = listener.accept().await?;
        tcp.set_nodelay(true)?;
        let mut stream = SslStream::new(Ssl::new(tls.context())?, tcp)?;
        tokio::spawn(async move {
            let accepted = Pin::new(&mut stream).accept().await;
            accepted.map_err(io::Error::other)?;
            echo::serve(stream).await
        });
    }
}

/// TLS 1.3, one AEAD, X25519.
fn as_others(tls: &mut SslContextBuilder) -> std::result::Result<(), ErrorStack> {
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
