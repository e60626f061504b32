//! Interop driver for Towline: hq-interop and HTTP/3, client and server, behind the contract
//! in `../README.md`, over the public API of the crate `towline` alone.

mod http3;
mod progress;

use std::fs;
use std::io::Write as _;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use interop_contract::{self as contract, ClientArgs, Role, ServerArgs, Summary};
use progress::Progress;
use towline::config::{
    self, Cipher, CipherPreference, ClientAuth, Identity, Options, RetryPolicy, Trust,
};
use towline::engine::Close;
use towline::{Connection, ConnectionError, Endpoint, ReadError, RecvStream, SendStream};

type Error = Box<dyn std::error::Error + Send + Sync>;

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("towline driver: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), Error> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let words: Vec<String> = std::env::args().skip(1).collect();
        if let Some(ended) = http3::run(&words).await {
            return ended;
        }
        match Role::from_args()? {
            Role::Server(args) => serve(args).await,
            Role::Client(args) => run_client(args).await,
        }
    })
}

fn options(chacha20: bool) -> Options {
    let mut options = Options::new(contract::ALPN);
    if chacha20 {
        options.ciphers = CipherPreference::only(Cipher::ChaCha20);
    }
    options
}

async fn serve(args: ServerArgs) -> Result<(), Error> {
    let listen = args.listen.ok_or("--listen is needed")?;
    let identity = Identity::from_pem(&fs::read(&args.cert)?, &fs::read(&args.key)?)?;
    let mut server = config::server(&identity, &ClientAuth::None, &options(args.chacha20))?;
    server.retry = match args.retry {
        true => RetryPolicy::Always,
        false => RetryPolicy::Never,
    };
    let endpoint = Endpoint::server(listen, server)?;
    println!("listening {}", endpoint.local_addr());
    contract::exit_when_stdin_closes();

    let args = Arc::new(args);
    while let Some(connection) = endpoint.accept().await {
        tokio::spawn(serve_connection(connection, args.clone()));
    }
    Ok(())
}

async fn serve_connection(connection: Connection, args: Arc<ServerArgs>) {
    let files = Arc::new(AtomicU64::new(0));
    let bytes = Arc::new(AtomicU64::new(0));
    let first_address = connection.remote_addr();
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
                Err(error) => eprintln!("towline server: {error}"),
            }
        });
    };
    let clean = matches!(
        &end,
        ConnectionError::ClosedByPeer(Close::Application { code: 0, .. })
    );
    let mut summary = Summary {
        ok: clean,
        files: files.load(Ordering::Relaxed),
        bytes: bytes.load(Ordering::Relaxed),
        // With RetryPolicy::Always, no connection exists without a Retry.
        retried: Some(args.retry),
        moved: Some(connection.remote_addr() != first_address),
        reliable_size: args.reset_at.then_some(contract::RELIABLE),
        error: (!clean).then(|| end.to_string()),
        ..Summary::default()
    };
    observe(&connection, &mut summary);
    println!("connection {}", summary.to_json());
}

async fn serve_stream(
    mut send: SendStream,
    mut recv: RecvStream,
    args: &ServerArgs,
) -> Result<u64, Error> {
    let request = recv.read_to_end(contract::REQUEST_LIMIT).await?;
    let data = contract::requested_file(&args.root, &request)
        .ok_or_else(|| "bad request".to_owned())
        .and_then(|path| fs::read(&path).map_err(|e| format!("{}: {e}", path.display())));
    let data = match data {
        Ok(data) => data,
        Err(error) => {
            send.reset(contract::NOT_FOUND.into());
            return Err(error.into());
        }
    };
    if args.reset_at {
        return send_in_part(&mut send, &data).await;
    }
    for chunk in data.chunks(contract::CHUNK) {
        send.write_all(chunk).await?;
    }
    send.finish()?;
    Ok(data.len() as u64)
}

/// Writes a little more than what will arrive whatever comes, and gives the rest up.
async fn send_in_part(send: &mut SendStream, data: &[u8]) -> Result<u64, Error> {
    let written = contract::RELIABLE as usize + contract::CHUNK;
    let beginning = data.get(..written).ok_or("the file is too short")?;
    send.write_all(beginning).await?;
    send.reset_at(contract::GIVEN_UP.into(), contract::RELIABLE)?;
    Ok(contract::RELIABLE)
}

async fn run_client(args: ClientArgs) -> Result<(), Error> {
    let args = Arc::new(args);
    let mut summary = Summary::default();
    let mut result = fetch_all(&args, &mut summary).await;
    if result.is_ok() && args.expect_retry && summary.retried == Some(false) {
        result = Err("no Retry was received".into());
    }
    summary.ok = result.is_ok();
    summary.error = result.as_ref().err().map(ToString::to_string);
    println!("{}", summary.to_json());
    result
}

async fn fetch_all(args: &Arc<ClientArgs>, summary: &mut Summary) -> Result<(), Error> {
    let trust = Trust::roots_from_pem(&fs::read(&args.ca)?)?;
    let client = config::client(&trust, None, &options(args.chacha20))?;
    let remote = args.addr.ok_or("--addr is needed")?;
    let any: SocketAddr = match remote {
        SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
        SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
    };
    let endpoint = Endpoint::client(any)?;
    let mut paths = &args.paths[..];
    if args.resume
        && let Some((first, others)) = paths.split_first()
    {
        let connection = endpoint.connect(remote, &args.server_name, &client).await?;
        let first = std::slice::from_ref(first);
        fetch_files(&endpoint, &connection, args, first, summary).await?;
        connection.close(0, b"");
        paths = others;
    }
    let connection = endpoint.connect(remote, &args.server_name, &client).await?;

    let result = fetch_files(&endpoint, &connection, args, paths, summary).await;
    observe(&connection, summary);
    connection.close(0, b"");
    // Lets the CONNECTION_CLOSE leave; the rest of draining is not waited for.
    let _ = tokio::time::timeout(Duration::from_millis(500), endpoint.wait_idle()).await;
    result
}

async fn fetch_files(
    endpoint: &Endpoint,
    connection: &Connection,
    args: &Arc<ClientArgs>,
    paths: &[String],
    summary: &mut Summary,
) -> Result<(), Error> {
    let progress = Arc::new(Progress::new(endpoint, args));
    let mut fetches = Vec::new();
    for path in paths {
        let (connection, path) = (connection.clone(), path.clone());
        let (progress, args) = (progress.clone(), args.clone());
        fetches.push(tokio::spawn(async move {
            fetch_file(&connection, &args, &path, &progress).await
        }));
    }
    for fetch in fetches {
        fetch.await??;
        summary.files += 1;
    }
    summary.bytes += progress.received();
    summary.key_updates_begun = Some(progress.updates_begun());
    match args.migrate {
        true => progress.check_moves(connection),
        false => Ok(()),
    }
}

async fn fetch_file(
    connection: &Connection,
    args: &ClientArgs,
    path: &str,
    progress: &Progress,
) -> Result<(), Error> {
    let output = contract::output_file(&args.out, path).ok_or("a path without a name")?;
    let (mut send, mut recv) = connection.open_bi().await?;
    send.write_all(contract::request(path).as_bytes()).await?;
    send.finish()?;
    let mut file = fs::File::create(output)?;
    loop {
        match recv.read_chunk(contract::CHUNK).await {
            Ok(Some(chunk)) => {
                file.write_all(&chunk)?;
                progress.on_received(connection, chunk.len())?;
            }
            Ok(None) if args.expect_reset => {
                return Err("the answer was not given up".into());
            }
            Ok(None) => return Ok(()),
            Err(ReadError::Reset(code))
                if args.expect_reset && code == u64::from(contract::GIVEN_UP) =>
            {
                return Ok(());
            }
            Err(error) => return Err(error.into()),
        }
    }
}

/// What the connection says about itself.
fn observe(connection: &Connection, summary: &mut Summary) {
    summary.key_updates = Some(connection.stats().key_updates);
    summary.resumed = Some(connection.is_resumed());
    summary.ecn = Some(connection.stats().ecn_capable);
    summary.cipher = connection.cipher_suite().unwrap_or_default().to_owned();
}
