//! Bad paths: how long a transfer is silent around an outage, and when the first byte of an answer
//! comes where packets of the handshake are lost. Both stacks run this code, with their defaults.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use bench_contract::{AT_ONCE, LISTENING, Role, Settings};
use bytes::Bytes;
use clap::{Parser, ValueEnum};
use serde_json::json;
use tokio::task::JoinSet;

use crate::stack::{Connection, Endpoint, RecvHalf as _, SendHalf as _, Stack};
use crate::{Result, exit, quinn::Quinn, towline::Towline};

/// Least silence of a transfer that is told.
const GAP: Duration = Duration::from_millis(500);

/// Longest a handshake and its answer may take.
const PATIENCE: Duration = Duration::from_secs(20);

/// Bytes of the answer to a handshake's question.
const ANSWER: u64 = 1000;

static ZEROS: [u8; 16 * 1024] = [0; 16 * 1024];

/// One end of a run.
#[derive(Parser)]
struct Cli {
    stack: Name,
    role: Role,
    /// The client downloads for `seconds`; otherwise it connects `count` times
    #[arg(long)]
    transfer: bool,
    /// All handshakes from one endpoint, which may remember the server
    #[arg(long)]
    one_endpoint: bool,
    #[command(flatten)]
    settings: Settings,
}

#[derive(Clone, Copy, ValueEnum)]
enum Name {
    Towline,
    Quinn,
}

/// The body of the binary.
pub fn main() -> ExitCode {
    let cli = Cli::parse();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let result = runtime.map_err(Into::into).and_then(|runtime| {
        runtime.block_on(async {
            match cli.stack {
                Name::Towline => run::<Towline>(&cli).await,
                Name::Quinn => run::<Quinn>(&cli).await,
            }
        })
    });
    exit("bench-paths-peer", result)
}

async fn run<S: Stack>(cli: &Cli) -> Result<()> {
    match (cli.role, cli.transfer) {
        (Role::Server, _) => serve::<S>(&cli.settings).await,
        (Role::Client, true) => transfer::<S>(&cli.settings).await,
        (Role::Client, false) => handshakes::<S>(cli).await,
    }
}

/// Answers the one question of each connection with as many bytes as it asks for.
async fn serve<S: Stack>(settings: &Settings) -> Result<()> {
    let mut endpoint = S::listen(settings)?;
    println!("{LISTENING}{}", endpoint.local_addr()?);
    while let Some(accepting) = endpoint.accept().await {
        tokio::spawn(async move {
            if let Err(error) = answer(accepting).await {
                eprintln!("{error}");
            }
        });
    }
    Ok(())
}

async fn answer<C: Connection>(accepting: impl Future<Output = Result<C>>) -> Result<()> {
    let mut connection = accepting.await?;
    let (mut send, mut recv) = connection.accept().await?;
    let mut question = [0; 8];
    let mut known = 0;
    while known < question.len() {
        match recv.read(&mut question[known..]).await? {
            Some(more) => known += more,
            None => return Err("a question of less than eight bytes".into()),
        }
    }
    let mut left = u64::from_be_bytes(question);
    while left > 0 {
        let len = left.min(ZEROS.len() as u64);
        send.write_chunk(Bytes::from_static(&ZEROS[..len as usize]))
            .await?;
        left -= len;
    }
    send.finish().await?;
    connection.closed().await;
    Ok(())
}

/// Downloads, and tells each long silence when it is over.
async fn transfer<S: Stack>(settings: &Settings) -> Result<()> {
    let endpoint = S::dial(settings)?;
    let mut connection = endpoint.connect(settings.addr).await?;
    let (mut send, mut recv) = connection.open().await?;
    send.write(&u64::MAX.to_be_bytes()).await?;
    let end = Instant::now() + Duration::from_secs(settings.seconds);
    let mut last = Instant::now();
    while last < end {
        let left = end.saturating_duration_since(Instant::now());
        let Ok(data) = tokio::time::timeout(left, recv.skip()).await else {
            break;
        };
        if data?.is_none() {
            return Err("the server ended the transfer".into());
        }
        let now = Instant::now();
        let gap = now - last;
        if gap >= GAP {
            println!(
                "{}",
                json!({"schema": "bench.paths.gap/1", "seconds": gap.as_secs_f64()})
            );
        }
        last = now;
    }
    connection.close();
    Ok(())
}

/// Connects, asks, and takes the time until the first byte of the answer, some at once.
async fn handshakes<S: Stack>(cli: &Cli) -> Result<()> {
    let settings = &cli.settings;
    let shared = S::dial(settings)?;
    let mut under_way = JoinSet::new();
    let (mut seconds, mut failed) = (Vec::new(), 0_u64);
    for number in 0..settings.count + AT_ONCE {
        if (number >= AT_ONCE || number >= settings.count)
            && let Some(done) = under_way.join_next().await
        {
            match done? {
                Ok(took) => seconds.push(took),
                Err(error) => {
                    eprintln!("{error}");
                    failed += 1;
                }
            }
        }
        if number < settings.count {
            let own = (!cli.one_endpoint).then(|| S::dial(settings)).transpose()?;
            let begin = Instant::now();
            let connecting = own.as_ref().unwrap_or(&shared).connect(settings.addr);
            under_way.spawn(async move {
                let took = tokio::time::timeout(PATIENCE, first_byte(begin, connecting)).await;
                drop(own);
                took.unwrap_or_else(|_| Err("no answer in 20 s".into()))
            });
        }
    }
    println!(
        "{}",
        json!({"schema": "bench.paths.handshakes/1", "seconds": seconds, "failed": failed})
    );
    Ok(())
}

/// Seconds from `begin` until the first byte of the answer.
async fn first_byte<C: Connection>(
    begin: Instant,
    connecting: impl Future<Output = Result<C>>,
) -> Result<f64> {
    let mut connection = connecting.await?;
    let (mut send, mut recv) = connection.open().await?;
    send.write(&ANSWER.to_be_bytes()).await?;
    send.finish().await?;
    recv.skip().await?;
    let took = begin.elapsed().as_secs_f64();
    connection.close();
    Ok(took)
}
