//! Interop driver for quinn: hq-interop client and server behind the contract
//! in `../README.md`, over quinn's public API.
//!
//! quinn tells neither the cipher suite nor the key phase, so `witness` hands
//! rustls cipher suites that count the keys quinn asks them for.

mod witness;

use std::fs;
use std::io::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use interop_contract::{self as contract, ClientArgs, Role, ServerArgs, Summary};
use quinn::crypto::rustls::{QuicClientConfig, QuicServerConfig};
use quinn::{ConnectionError, VarInt};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use witness::Witness;

type Error = Box<dyn std::error::Error + Send + Sync>;

fn main() -> std::process::ExitCode {
    let role = match Role::from_args() {
        Ok(role) => role,
        Err(usage) => {
            eprintln!("{usage}");
            return 2.into();
        }
    };
    let runtime = match tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
    {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("quinn driver: {error}");
            return 1.into();
        }
    };
    let result = runtime.block_on(async {
        match role {
            Role::Server(args) => serve(args).await,
            Role::Client(args) => run_client(args).await,
        }
    });
    match result {
        Ok(()) => 0.into(),
        Err(error) => {
            eprintln!("quinn driver: {error}");
            1.into()
        }
    }
}

async fn serve(args: ServerArgs) -> Result<(), Error> {
    let listen = args.listen.ok_or("--listen is needed")?;
    let chain: Vec<_> = CertificateDer::pem_file_iter(&args.cert)?.collect::<Result<_, _>>()?;
    let key = PrivateKeyDer::from_pem_file(&args.key)?;
    let args = Arc::new(args);
    // What resumes sessions outlives the configurations.
    let sessions = rustls::server::ServerSessionMemoryCache::new(64);
    let witness = Arc::new(Witness::new(args.chacha20));
    let first = server_config(&chain, &key, &witness, &sessions)?;
    let endpoint = quinn::Endpoint::server(first, listen)?;
    println!("listening {}", endpoint.local_addr()?);
    contract::exit_when_stdin_closes();

    while let Some(incoming) = endpoint.accept().await {
        if args.retry && !incoming.remote_address_validated() {
            incoming.retry()?;
            continue;
        }
        let retried = incoming.remote_address_validated();
        // A configuration, and so a witness, for each connection.
        let witness = Arc::new(Witness::new(args.chacha20));
        let config = server_config(&chain, &key, &witness, &sessions)?;
        let connecting = incoming.accept_with(Arc::new(config))?;
        let args = args.clone();
        tokio::spawn(async move {
            match connecting.await {
                Ok(connection) => {
                    serve_connection(connection, args, witness, retried).await;
                }
                Err(error) => eprintln!("quinn server: {error}"),
            }
        });
    }
    Ok(())
}

fn server_config(
    chain: &[CertificateDer<'static>],
    key: &PrivateKeyDer<'static>,
    witness: &Arc<Witness>,
    sessions: &Arc<rustls::server::ServerSessionMemoryCache>,
) -> Result<quinn::ServerConfig, Error> {
    let mut tls = rustls::ServerConfig::builder_with_provider(witness.provider())
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .with_no_client_auth()
        .with_single_cert(chain.to_vec(), key.clone_key())?;
    tls.session_storage = sessions.clone();
    tls.alpn_protocols = vec![contract::ALPN.to_vec()];
    let crypto = QuicServerConfig::with_initial(Arc::new(tls), witness.initial())?;
    Ok(quinn::ServerConfig::with_crypto(Arc::new(crypto)))
}

async fn serve_connection(
    connection: quinn::Connection,
    args: Arc<ServerArgs>,
    witness: Arc<Witness>,
    retried: bool,
) {
    let files = Arc::new(AtomicU64::new(0));
    let bytes = Arc::new(AtomicU64::new(0));
    let first_address = connection.remote_address();
    let end = loop {
        let (send, recv) = match connection.accept_bi().await {
            Ok(stream) => stream,
            Err(error) => break error,
        };
        let (args, files, bytes) = (args.clone(), files.clone(), bytes.clone());
        tokio::spawn(async move {
            match serve_stream(send, recv, &args).await {
                Ok(length) => {
                    files.fetch_add(1, Ordering::Relaxed);
                    bytes.fetch_add(length, Ordering::Relaxed);
                }
                Err(error) => eprintln!("quinn server: {error}"),
            }
        });
    };
    let clean = matches!(
        &end,
        ConnectionError::ApplicationClosed(close) if close.error_code == VarInt::from_u32(0)
    );
    let summary = Summary {
        ok: clean,
        files: files.load(Ordering::Relaxed),
        bytes: bytes.load(Ordering::Relaxed),
        key_updates: Some(witness.key_updates()),
        key_updates_begun: None,
        cipher: witness.cipher(),
        retried: Some(retried),
        moved: Some(connection.remote_address() != first_address),
        resumed: None,
        ecn: None,
        reliable_size: None,
        error: (!clean).then(|| end.to_string()),
    };
    println!("connection {}", summary.to_json());
}

async fn serve_stream(
    mut send: quinn::SendStream,
    mut recv: quinn::RecvStream,
    args: &ServerArgs,
) -> Result<u64, Error> {
    let request = recv.read_to_end(contract::REQUEST_LIMIT).await?;
    let data = contract::requested_file(&args.root, &request)
        .ok_or_else(|| "bad request".to_owned())
        .and_then(|path| fs::read(&path).map_err(|e| format!("{}: {e}", path.display())));
    let data = match data {
        Ok(data) => data,
        Err(error) => {
            send.reset(VarInt::from_u32(contract::NOT_FOUND))?;
            return Err(error.into());
        }
    };
    for chunk in data.chunks(contract::CHUNK) {
        send.write_all(chunk).await?;
    }
    send.finish()?;
    Ok(data.len() as u64)
}

async fn run_client(args: ClientArgs) -> Result<(), Error> {
    let mut summary = Summary::default();
    let mut result = fetch_all(&args, &mut summary).await;
    if result.is_ok() && args.expect_retry && summary.retried != Some(true) {
        result = Err("no Retry was received".into());
    }
    summary.ok = result.is_ok();
    summary.error = result.as_ref().err().map(ToString::to_string);
    println!("{}", summary.to_json());
    result
}

async fn fetch_all(args: &ClientArgs, summary: &mut Summary) -> Result<(), Error> {
    let witness = Arc::new(Witness::new(args.chacha20));
    let mut roots = rustls::RootCertStore::empty();
    for certificate in CertificateDer::pem_file_iter(&args.ca)? {
        roots.add(certificate?)?;
    }
    let mut tls = rustls::ClientConfig::builder_with_provider(witness.provider())
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .with_root_certificates(roots)
        .with_no_client_auth();
    tls.alpn_protocols = vec![contract::ALPN.to_vec()];
    let crypto = QuicClientConfig::with_initial(Arc::new(tls), witness.initial())?;
    let config = quinn::ClientConfig::new(Arc::new(crypto));

    let remote = args.addr.ok_or("--addr is needed")?;
    let any = match remote {
        std::net::SocketAddr::V4(_) => "0.0.0.0:0",
        std::net::SocketAddr::V6(_) => "[::]:0",
    };
    let endpoint = quinn::Endpoint::client(any.parse()?)?;
    let mut paths = &args.paths[..];
    if args.resume
        && let Some((first, others)) = paths.split_first()
    {
        let connection = endpoint
            .connect_with(config.clone(), remote, &args.server_name)?
            .await?;
        let first = std::slice::from_ref(first);
        fetch_files(&endpoint, &connection, args, first, &witness, summary).await?;
        connection.close(VarInt::from_u32(0), b"");
        paths = others;
    }
    let connection = endpoint
        .connect_with(config, remote, &args.server_name)?
        .await?;

    let result = fetch_files(&endpoint, &connection, args, paths, &witness, summary).await;
    summary.key_updates = Some(witness.key_updates());
    summary.cipher = witness.cipher();
    summary.retried = Some(witness.retried());
    connection.close(VarInt::from_u32(0), b"");
    // Lets the CONNECTION_CLOSE leave; the rest of draining is not waited for.
    let _ = tokio::time::timeout(Duration::from_millis(500), endpoint.wait_idle()).await;
    result
}

async fn fetch_files(
    endpoint: &quinn::Endpoint,
    connection: &quinn::Connection,
    args: &ClientArgs,
    paths: &[String],
    witness: &Arc<Witness>,
    summary: &mut Summary,
) -> Result<(), Error> {
    let received = Arc::new(AtomicU64::new(0));
    let begun = Arc::new(AtomicU64::new(0));
    let to_migrate = Arc::new(AtomicBool::new(args.migrate));
    // Bytes received at which the next key update is tried.
    let update_at = Arc::new(AtomicU64::new(match args.key_update {
        true => contract::UPDATE_AFTER,
        false => u64::MAX,
    }));
    let mut fetches = Vec::new();
    for path in paths {
        let output = contract::output_file(&args.out, path).ok_or("a path without a name")?;
        let (connection, path) = (connection.clone(), path.clone());
        let (endpoint, to_migrate) = (endpoint.clone(), to_migrate.clone());
        let (received, begun, update_at) = (received.clone(), begun.clone(), update_at.clone());
        let witness = witness.clone();
        fetches.push(tokio::spawn(async move {
            let (mut send, mut recv) = connection.open_bi().await?;
            send.write_all(contract::request(&path).as_bytes()).await?;
            send.finish()?;
            let mut file = fs::File::create(output)?;
            while let Some(chunk) = recv.read_chunk(contract::CHUNK, true).await? {
                file.write_all(&chunk.bytes)?;
                let length = chunk.bytes.len() as u64;
                let total = received.fetch_add(length, Ordering::Relaxed) + length;
                if total >= contract::MIGRATE_AFTER && to_migrate.swap(false, Ordering::Relaxed) {
                    let mut any = endpoint.local_addr()?;
                    any.set_port(0);
                    endpoint.rebind(std::net::UdpSocket::bind(any)?)?;
                }
                if total >= update_at.load(Ordering::Relaxed) {
                    // quinn ignores the call while older keys are still kept,
                    // and makes the next keys at once when it does not.
                    let before = witness.key_updates();
                    connection.force_key_update();
                    let next = if witness.key_updates() > before {
                        begun.fetch_add(1, Ordering::Relaxed);
                        u64::MAX
                    } else {
                        total + contract::UPDATE_AGAIN_AFTER
                    };
                    update_at.store(next, Ordering::Relaxed);
                }
            }
            Ok::<(), Error>(())
        }));
    }
    for fetch in fetches {
        fetch.await??;
        summary.files += 1;
    }
    summary.bytes += received.load(Ordering::Relaxed);
    summary.key_updates_begun = Some(begun.load(Ordering::Relaxed));
    Ok(())
}
