//! The server: a process of its own on its own core, and the questions asked of it.

use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use towline::config::{self, ClientAuth};
use towline::{Connection, Endpoint};

use crate::{Outcome, identity, options, pin};

/// What a server says of itself.
#[derive(Clone, Debug, Default)]
pub(crate) struct Report {
    /// Stream bytes that transfers sent to it.
    pub(crate) received: u64,
    /// Its engine's counters, in words.
    pub(crate) doors: String,
}

pub(crate) struct Server {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    address: SocketAddr,
}

impl Server {
    /// Starts a server on `core`; it ends when this is dropped.
    pub(crate) fn start(core: usize, mbit: u32) -> Outcome<Self> {
        let program = std::env::current_exe()?;
        let mbit = mbit.to_string();
        // A child inherits the core of the thread that starts it.
        let start = move || -> Outcome<Child> {
            pin(core)?;
            Ok(Command::new(program)
                .args(["--server", "--mbit", &mbit])
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .spawn()?)
        };
        let mut child = std::thread::spawn(start)
            .join()
            .map_err(|_| "the server did not start")??;
        let input = child.stdin.take().ok_or("a server without an input")?;
        let output = child.stdout.take().ok_or("a server without an output")?;
        let mut output = BufReader::new(output);
        let mut line = String::new();
        output.read_line(&mut line)?;
        let address = line
            .trim()
            .parse()
            .map_err(|_| "the server did not listen")?;
        Ok(Self {
            child,
            input,
            output,
            address,
        })
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(crate) fn report(&mut self) -> Outcome<Report> {
        writeln!(self.input, "report")?;
        let mut line = String::new();
        self.output.read_line(&mut line)?;
        let (received, doors) = line
            .trim()
            .split_once(' ')
            .ok_or("the server ended before its time")?;
        Ok(Report {
            received: received.parse()?,
            doors: doors.to_owned(),
        })
    }

    /// Processor time it has spent, seconds.
    pub(crate) fn cpu(&self) -> Outcome<f64> {
        let text = std::fs::read_to_string(format!("/proc/{}/stat", self.child.id()))?;
        // The name in brackets may hold anything; user and system time are 12th and 13th behind it.
        let (_, fields) = text
            .rsplit_once(')')
            .ok_or("the system does not tell times")?;
        let ticks = |n| -> Outcome<u64> {
            let field = fields.split_whitespace().nth(n);
            Ok(field.ok_or("the system does not tell times")?.parse()?)
        };
        let ticks = ticks(11)? + ticks(12)?;
        let second = nix::unistd::sysconf(nix::unistd::SysconfVar::CLK_TCK)?.unwrap_or(100);
        Ok(ticks as f64 / second as f64)
    }

    /// Datagrams that the system dropped because the server's socket was full.
    pub(crate) fn drops(&self) -> Outcome<u64> {
        let text = std::fs::read_to_string("/proc/net/udp")?;
        let local = format!("0100007F:{:04X}", self.address.port());
        let mut rows = text.lines().map(str::split_whitespace);
        let row = rows.find_map(|mut row| (row.nth(1)? == local).then_some(row));
        let drops = row.and_then(Iterator::last);
        Ok(drops.ok_or("the system does not tell drops")?.parse()?)
    }

    /// Resident memory now, KiB.
    pub(crate) fn rss(&self) -> Outcome<u64> {
        self.status("VmRSS:")
    }

    /// The most resident memory it ever had, KiB.
    pub(crate) fn rss_peak(&self) -> Outcome<u64> {
        self.status("VmHWM:")
    }

    fn status(&self, field: &str) -> Outcome<u64> {
        let text = std::fs::read_to_string(format!("/proc/{}/status", self.child.id()))?;
        let line = text.lines().find_map(|line| line.strip_prefix(field));
        let figure = line.and_then(|rest| rest.trim().strip_suffix(" kB"));
        Ok(figure
            .ok_or("the system does not tell memory")?
            .trim()
            .parse()?)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The server's process: it ends with its input.
pub(crate) fn serve(mbit: u32) -> Outcome {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let config = config::server(&identity()?, &ClientAuth::None, &options(mbit))?;
        let endpoint = Endpoint::server(([127, 0, 0, 1], 0).into(), config)?;
        println!("{}", endpoint.local_addr());
        let received = Arc::new(AtomicU64::new(0));
        let (told, counted) = (endpoint.clone(), Arc::clone(&received));
        std::thread::spawn(move || {
            for line in std::io::stdin().lines().map_while(Result::ok) {
                if line == "report" {
                    println!("{} {}", counted.load(Ordering::Relaxed), doors(&told));
                }
            }
            std::process::exit(0);
        });
        while let Some(connection) = endpoint.accept().await {
            tokio::spawn(serve_one(connection, Arc::clone(&received)));
        }
        Ok(())
    })
}

fn doors(endpoint: &Endpoint) -> String {
    let mut all = String::new();
    for shard in endpoint.shard_stats() {
        let stats = shard.engine;
        all += &format!(
            "{} datagrams in, {} in handshake, {} admitted, {} refused, {} Retry, {} resets, \
             {} version negotiations, {} over budget, {} unroutable, {} units",
            shard.socket.datagrams_received,
            stats.handshakes,
            stats.admitted,
            stats.refused,
            stats.retries,
            stats.resets,
            stats.version_negotiations,
            stats.over_budget,
            stats.unroutable,
            stats.stateless_work,
        );
    }
    all
}

/// Reads what comes on one-way streams; sends for ever on two-way ones.
async fn serve_one(connection: Connection, received: Arc<AtomicU64>) {
    loop {
        tokio::select! {
            Ok(mut stream) = connection.accept_uni() => {
                let received = Arc::clone(&received);
                tokio::spawn(async move {
                    while let Ok(Some(chunk)) = stream.read_chunk(1 << 18).await {
                        received.fetch_add(chunk.len() as u64, Ordering::Relaxed);
                    }
                });
            }
            Ok((mut stream, _)) = connection.accept_bi() => {
                tokio::spawn(async move {
                    let data = Bytes::from(vec![7; 1 << 16]);
                    while stream.write_chunk(data.clone()).await.is_ok() {}
                });
            }
            else => return,
        }
    }
}
