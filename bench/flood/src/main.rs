//! `make flood`: a server alone on one core; on another, a flood, honest clients, and transfers
//! that were running before. Everything stays on loopback and ends by itself.
//!
//! Sources are addresses out of 127.0.0.0/8, so that the server sees as many prefixes as it would
//! on the Internet. The server runs in a process of its own, of the same program.
//!
//! 1. `server` starts one for each row.
//! 2. `transfers` run undisturbed for a while: their rate is what they have to keep.
//! 3. `generator` begins; then `clients` connect, one after the other, each from its own prefix.
//! 4. `table` prints the row and judges it.

mod clients;
mod generator;
mod hello;
mod prices;
mod server;
mod table;
mod transfers;

use std::net::Ipv4Addr;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::{Parser, ValueEnum};
use nix::sched::{CpuSet, sched_setaffinity};
use nix::unistd::Pid;
use towline::config::{
    Identity, KeyExchange, KeyExchangePreference, Options, Resumption, TransportConfig, Trust,
};

use generator::Generator;
use hello::Template;
use server::Server;
use table::{Row, Table};
use transfers::Transfers;

/// What went wrong, in a sentence.
type Outcome<T = ()> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

const ALPN: &str = "flood";
const SERVER_NAME: &str = "flood.test";
/// Transfers at a time; half of them send to the server, half receive.
const TRANSFERS: u32 = 4;

/// What the flood is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Kind {
    /// None: the same clients and transfers, undisturbed.
    None,
    /// Short headers of connections that do not exist.
    Junk,
    /// Initial packets that are not authentic.
    Garbage,
    /// Genuine hellos whose senders hear nothing.
    Hellos,
    /// Genuine hellos whose senders answer a Retry and then fall silent.
    HalfOpen,
    /// Long headers of an unknown version.
    Versions,
}

impl Kind {
    /// Prefixes of the row "many". Whoever answers a Retry has the addresses it uses.
    fn many(self) -> u32 {
        match self {
            Self::HalfOpen => 256,
            _ => generator::MOST_PREFIXES,
        }
    }
}

/// A Towline server under floods.
#[derive(Parser, Debug)]
struct Arguments {
    /// Kinds of flood; all of them if none is named.
    #[arg(long, value_delimiter = ',')]
    only: Vec<Kind>,
    /// Datagrams of the flood in a second.
    #[arg(long, default_value_t = 20_000, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    rate: u32,
    /// Honest clients.
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=2000))]
    clients: u32,
    /// Seconds of each flood.
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u32).range(2..=120))]
    seconds: u32,
    /// What the running transfers may send, all together, in Mbit/s.
    #[arg(long, default_value_t = 300, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    mbit: u32,
    /// The most resident memory the server may have, in MiB.
    #[arg(long)]
    max_rss: Option<u64>,
    /// Cores of the server and of everything else.
    #[arg(long, default_value = "0,1", value_delimiter = ',', num_args = 2)]
    cores: Vec<usize>,
    /// A short run: floods of 3 s, 30 clients, and no evidence.
    #[arg(long)]
    quick: bool,
    /// Do not write the table into docs/evidence.
    #[arg(long)]
    no_evidence: bool,
    /// Print what the engine's work for datagrams of no connection costs, in nanoseconds and units, and end.
    #[arg(long)]
    prices: bool,
    /// The server's process.
    #[arg(long, hide = true)]
    server: bool,
}

fn main() -> ExitCode {
    let mut arguments = Arguments::parse();
    if arguments.quick {
        arguments.seconds = arguments.seconds.min(3);
        arguments.clients = arguments.clients.min(30);
    }
    let outcome = if arguments.server {
        server::serve(arguments.mbit).map(|()| true)
    } else if arguments.prices {
        prices::print().map(|()| true)
    } else {
        run(&arguments)
    };
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(8),
        Err(error) => {
            eprintln!("flood: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments) -> Outcome<bool> {
    let [server_core, own_core] = arguments.cores[..] else {
        return Err("--cores wants two".into());
    };
    pin(own_core)?;
    let kinds = if arguments.only.is_empty() {
        Kind::value_variants()
    } else {
        &arguments.only
    };
    let mut table = Table::new(arguments);
    for &kind in kinds {
        let one_and_many = [1, kind.many()];
        let prefixes = match kind {
            Kind::None => &one_and_many[..1],
            _ => &one_and_many[..],
        };
        for &prefixes in prefixes {
            let server = Server::start(server_core, arguments.mbit)?;
            let row = measure(arguments, kind, prefixes, server)?;
            table.add(row);
        }
    }
    let whole = !arguments.quick && arguments.only.is_empty();
    if whole && !arguments.no_evidence {
        table.write()?;
    }
    Ok(table.passed())
}

/// One row.
fn measure(arguments: &Arguments, kind: Kind, prefixes: u32, mut server: Server) -> Outcome<Row> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let address = server.address();
    runtime.block_on(async {
        let mut transfers = Transfers::start(address, arguments.mbit).await?;
        tokio::time::sleep(Duration::from_secs(1)).await;
        let quiet = transfers
            .measure(&mut server, Duration::from_secs(2))
            .await?;
        let rss_before = server.rss()?;
        let template = Template::capture().await?;
        let generator = match kind {
            Kind::None => None,
            _ => Some(Generator::start(
                kind,
                prefixes,
                arguments.rate,
                address,
                template,
            )?),
        };
        let lasts = Duration::from_secs(arguments.seconds.into());
        let (began, cpu_before) = (Instant::now(), server.cpu()?);
        let (connected, during) = tokio::join!(
            clients::connect_all(address, arguments.clients, lasts),
            transfers.measure(&mut server, lasts),
        );
        let flood = generator.map(Generator::stop).transpose()?;
        let cpu = (server.cpu()? - cpu_before) / began.elapsed().as_secs_f64();
        let report = server.report()?;
        Ok(Row {
            kind,
            prefixes,
            flood: flood.unwrap_or_default(),
            connected,
            quiet,
            during: during?,
            cpu,
            drops: server.drops()?,
            rss_before,
            rss_peak: server.rss_peak()?,
            report,
        })
    })
}

/// Runs this thread, and those it starts, on one core.
fn pin(core: usize) -> Outcome {
    let mut cores = CpuSet::new();
    cores.set(core)?;
    sched_setaffinity(Pid::from_raw(0), &cores)?;
    Ok(())
}

/// The server's identity, known to all.
fn identity() -> Outcome<Identity> {
    Ok(Identity::raw_key_from_seed(&[7; 32])?)
}

fn options(mbit: u32) -> Options {
    let mut options = Options::new(ALPN);
    // One datagram holds the whole hello, so that one packet of the flood is one client.
    options.key_exchanges = KeyExchangePreference::only(KeyExchange::X25519);
    options.resumption = Resumption::Disabled;
    let each = u64::from(mbit) * 1_000_000 / 8 / u64::from(TRANSFERS);
    options.transport = TransportConfig::default().rate_limit(std::num::NonZeroU64::new(each));
    options
}

fn client_config(mbit: u32) -> Outcome<towline::config::ClientConfig> {
    let trust = Trust::RawKeys(vec![identity()?.key_pin()]);
    Ok(towline::config::client(&trust, None, &options(mbit))?)
}

/// The `n`th honest address, each in a prefix of its own, far from those of the flood.
fn honest_address(n: u32) -> Ipv4Addr {
    let [.., high, low] = n.to_be_bytes();
    Ipv4Addr::new(127, 20 + high, low, 1)
}
