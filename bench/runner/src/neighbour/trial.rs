//! One run: a relay between fresh namespaces, the case's senders in one and its receivers in the
//! other, and what the receivers and the bottleneck saw.
//!
//! Data goes down, from the server's namespace to the clients'. All flows start at the same time.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use bench_runner::Outcome;
use bench_runner::process::Process;
use serde_json::Value;

use crate::plan::{Case, Flow, Setting, Stack};
use crate::tcp::{Received, Sender};

/// The server's address in its namespace; a port for each flow.
const SERVER: [u8; 4] = [10, 77, 2, 2];
const FIRST_PORT: u16 = 5001;
/// IPv4 and UDP.
const UDP_HEADERS: u32 = 20 + 8;
/// How long a program may take to start, and to end.
const PATIENCE: Duration = Duration::from_secs(15);
/// How often the relay reports.
const SAMPLE: &str = "100ms";

/// What is run.
pub(crate) struct Programs {
    towline: PathBuf,
    /// Where `towline` keeps its certificate.
    home: PathBuf,
}

impl Programs {
    pub(crate) fn find(towline: PathBuf) -> Outcome<Self> {
        if !towline.is_file() {
            return Err(format!("{} was not built", towline.display()));
        }
        let home = towline.with_file_name("bench-neighbour-home");
        Ok(Self { towline, home })
    }

    fn command(&self) -> Command {
        let mut command = Command::new(&self.towline);
        command.env("TOWLINE_HOME", &self.home);
        command
    }

    fn command_in(&self, namespace: &str) -> Command {
        let mut command = Command::new("ip");
        command
            .args(["netns", "exec", namespace])
            .arg(&self.towline)
            .env("TOWLINE_HOME", &self.home);
        command
    }
}

/// What one flow got.
#[derive(Clone, Debug)]
pub(crate) struct FlowResult {
    pub(crate) flow: Flow,
    /// Application bits in each second, where they arrived.
    pub(crate) goodput: Vec<f64>,
    /// Bytes of a full IP packet.
    pub(crate) packet_bytes: u32,
}

/// What the bottleneck did over the tenth of a second before `at`.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LinkSample {
    /// Seconds since the flows started.
    pub(crate) at: f64,
    /// Seconds that packets waited; `None` if none left.
    pub(crate) queue_delay: Option<f64>,
    /// Since the relay started: bytes of packets that arrived, packets that came, and of those the
    /// ones that found the queue full.
    pub(crate) bytes: u64,
    pub(crate) packets: u64,
    pub(crate) dropped: u64,
}

/// One run's outcome.
#[derive(Clone, Debug)]
pub(crate) struct Trial {
    pub(crate) flows: Vec<FlowResult>,
    pub(crate) link: Vec<LinkSample>,
}

/// Runs `case` once.
pub(crate) fn run(case: &Case, setting: &Setting, programs: &Programs) -> Outcome<Trial> {
    let relay = Relay::start(setting, programs)?;
    let ready: Vec<Ready> = case
        .0
        .iter()
        .zip(FIRST_PORT..)
        .map(|(flow, port)| Ready::new(flow, port, &relay, setting, programs))
        .collect::<Outcome<_>>()?;
    let begin = Instant::now();
    let running: Vec<Running> = ready
        .into_iter()
        .map(|ready| ready.start(begin, &relay, setting, programs))
        .collect::<Outcome<_>>()?;
    let flows = running
        .into_iter()
        .map(|running| running.finish(setting))
        .collect::<Outcome<Vec<_>>>()?;
    let link = relay.stop(begin)?;
    if link.is_empty() {
        return Err("the relay reported nothing".to_owned());
    }
    Ok(Trial { flows, link })
}

/// Says what is missing before anything is measured.
pub(crate) fn check(setting: &Setting, programs: &Programs) -> Outcome {
    Relay::start(setting, programs).map(drop)
}

/// `towline relay --tun` with namespaces of its own; they go with it.
struct Relay {
    process: Option<Process>,
    started: Instant,
    client: String,
    server: String,
}

impl Relay {
    fn start(setting: &Setting, programs: &Programs) -> Outcome<Self> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = |end| format!("neighbour-{}-{number}-{end}", std::process::id());
        let (client, server) = (name("client"), name("server"));
        let mut command = programs.command();
        command
            .args(["relay", "--tun", "--create", "--json", "--interval", SAMPLE])
            .args(["--client-ns", &client, "--server-ns", &server])
            .args(["--both", &setting.spec()])
            .args(["--seed", &setting.seed.to_string()]);
        let process = Process::start("the relay", command, None)?;
        let mut relay = Self {
            process: Some(process),
            started: Instant::now(),
            client,
            server,
        };
        if let Some(process) = &mut relay.process {
            process.find(PATIENCE, |line| record(line, "towline.tun/1"))?;
        }
        relay.started = Instant::now();
        Ok(relay)
    }

    /// Ends it; its samples with the times counted from `begin`.
    fn stop(mut self, begin: Instant) -> Outcome<Vec<LinkSample>> {
        let process = self.process.take().ok_or("the relay is gone")?;
        let offset = begin.duration_since(self.started).as_secs_f64();
        let lines = process.interrupt(PATIENCE)?;
        let end = lines
            .iter()
            .rev()
            .find_map(|line| record(line, "towline.relay.tun/1"))
            .ok_or("the relay ended without a summary")?;
        // Losses that the bottleneck did not decide on would falsify everything.
        for name in ["lost_before_link", "send_failures"] {
            if end[name] != 0 {
                return Err(format!("the relay counts {name}: {}", end[name]));
            }
        }
        Ok(lines
            .iter()
            .filter_map(|line| sample(&record(line, "towline.relay.interval/1")?, offset))
            .collect())
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        // Killed, it would leave its namespaces behind.
        if let Some(process) = self.process.take() {
            let _ = process.interrupt(PATIENCE);
        }
    }
}

fn sample(record: &Value, offset: f64) -> Option<LinkSample> {
    let down = &record["down"];
    Some(LinkSample {
        at: record["seconds"].as_f64()? - offset,
        queue_delay: down["queue_delay"].as_f64(),
        bytes: down["bytes_delivered"].as_u64()?,
        packets: down["datagrams_in"].as_u64()?,
        dropped: down["drops"]["queue"].as_u64()?,
    })
}

/// A flow whose server listens.
struct Ready {
    flow: Flow,
    server: Server,
}

enum Server {
    Towline { process: Process, url: String },
    Linux(Sender),
}

impl Ready {
    fn new(
        flow: &Flow,
        port: u16,
        relay: &Relay,
        setting: &Setting,
        programs: &Programs,
    ) -> Outcome<Self> {
        let address = SocketAddr::from((SERVER, port));
        let server = match flow.stack {
            Stack::Linux => {
                Server::Linux(Sender::listen(&relay.server, address, &flow.controller)?)
            }
            Stack::Towline => {
                let mut command = programs.command_in(&relay.server);
                command
                    .args(["perf", "server", "--json", "--cc", &flow.controller])
                    .args(["--listen", &address.to_string()])
                    .args(mtu(setting));
                let mut process = Process::start("towline perf server", command, None)?;
                let listening =
                    process.find(PATIENCE, |line| record(line, "towline.listening/1"))?;
                let url = listening["url"]
                    .as_str()
                    .ok_or("towline perf server has no URL")?
                    .to_owned();
                Server::Towline { process, url }
            }
        };
        Ok(Self {
            flow: flow.clone(),
            server,
        })
    }

    fn start(
        self,
        begin: Instant,
        relay: &Relay,
        setting: &Setting,
        programs: &Programs,
    ) -> Outcome<Running> {
        let receiver = match self.server {
            Server::Linux(sender) => Receiver::Linux(sender.start(
                &relay.client,
                &self.flow.controller,
                begin,
                setting.seconds,
            )?),
            Server::Towline { process, url } => {
                let mut command = programs.command_in(&relay.client);
                command
                    .args(["perf", "client", &url, "--reverse", "--json"])
                    .args(["--interval", "1s", "--time"])
                    .arg(format!("{}s", setting.seconds))
                    .args(mtu(setting));
                Receiver::Towline {
                    client: Process::start("towline perf client", command, None)?,
                    _server: process,
                }
            }
        };
        Ok(Running {
            flow: self.flow,
            receiver,
        })
    }
}

fn mtu(setting: &Setting) -> Vec<String> {
    setting
        .mtu
        .map_or_else(Vec::new, |mtu| vec!["--mtu".to_owned(), mtu.to_string()])
}

/// A flow under way.
struct Running {
    flow: Flow,
    receiver: Receiver,
}

enum Receiver {
    Towline { client: Process, _server: Process },
    Linux(JoinHandle<Outcome<Received>>),
}

impl Running {
    fn finish(self, setting: &Setting) -> Outcome<FlowResult> {
        let seconds = setting.seconds as usize;
        let (bytes, packet_bytes) = match self.receiver {
            Receiver::Linux(receiver) => {
                let received = receiver
                    .join()
                    .map_err(|_| "a thread panicked".to_owned())??;
                (received.bytes, received.packet_bytes)
            }
            Receiver::Towline { mut client, .. } => {
                let patience = PATIENCE + Duration::from_secs(u64::from(setting.seconds));
                let record = client.find(patience, |line| record(line, "towline.perf/1"))?;
                towline_result(&record, seconds)?
            }
        };
        Ok(FlowResult {
            flow: self.flow,
            goodput: bytes.iter().map(|bytes| *bytes as f64 * 8.0).collect(),
            packet_bytes,
        })
    }
}

/// Bytes of each second, and of a full IP packet.
fn towline_result(record: &Value, seconds: usize) -> Outcome<(Vec<u64>, u32)> {
    let mut bytes = vec![0; seconds];
    for row in record["intervals"].as_array().into_iter().flatten() {
        let (Some(start), Some(count)) = (row["start"].as_f64(), row["bytes"].as_u64()) else {
            continue;
        };
        if let Some(sum) = bytes.get_mut(start.round() as usize) {
            *sum += count;
        }
    }
    let mtu = record["start"]["mtu"].as_u64().unwrap_or(0);
    let mtu = u32::try_from(mtu).map_err(|error| error.to_string())?;
    if bytes.iter().all(|bytes| *bytes == 0) || mtu == 0 {
        return Err("towline perf client reported nothing".to_owned());
    }
    Ok((bytes, mtu + UDP_HEADERS))
}

/// The line as a record of this schema.
fn record(line: &str, schema: &str) -> Option<Value> {
    let value: Value = serde_json::from_str(line).ok()?;
    (value["schema"] == schema).then_some(value)
}

#[cfg(test)]
mod tests;
