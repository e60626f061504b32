//! One run: a relay between fresh namespaces, a server in one, a client in the other.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use bench_contract::LISTENING;
use bench_runner::Outcome;
use bench_runner::process::Process;
use serde_json::Value;

/// The server's address in its namespace.
const SERVER: [u8; 4] = [10, 77, 2, 2];
/// How long a program may take to start, and to end.
const PATIENCE: Duration = Duration::from_secs(15);
/// One way, on the path with outages, and when the path falls silent after the relay's start.
const DELAY: Duration = Duration::from_millis(20);
const SILENT_AFTER: u32 = 5;
/// How long after an outage data is waited for.
const AFTERWARDS: u32 = 15;
/// UDP payload of full packets; both stacks begin with it.
const MTU: &str = "1200";

/// What is run.
pub(crate) struct Programs {
    pub(crate) towline: PathBuf,
    pub(crate) peer: PathBuf,
    pub(crate) material: PathBuf,
}

/// Whose transport both ends have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stack {
    Towline,
    Quinn,
}

impl Stack {
    pub(crate) const ALL: [Self; 2] = [Self::Towline, Self::Quinn];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Towline => "towline",
            Self::Quinn => "quinn",
        }
    }
}

/// Who makes the handshakes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Clients {
    /// An endpoint each: nothing is known of the path.
    Strangers,
    /// One endpoint for all: it may remember the server.
    OneEndpoint,
}

impl Clients {
    pub(crate) const ALL: [Self; 2] = [Self::Strangers, Self::OneEndpoint];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Strangers => "an endpoint each",
            Self::OneEndpoint => "one endpoint",
        }
    }
}

/// Seconds from the end of an outage of so many until a download has new data. The last data before
/// it passed the link when it fell silent and was under way for the link's delay.
pub(crate) fn outage(stack: Stack, length: u32, seed: u64, programs: &Programs) -> Outcome<f64> {
    let spec = format!(
        "rate=20mbit,delay={}ms,queue=100000b,blackout={SILENT_AFTER}s+{length}s",
        DELAY.as_millis()
    );
    let path = Path::lay(&spec, seed, programs)?;
    let seconds = SILENT_AFTER + length + AFTERWARDS;
    let server = path.server(stack, programs)?;
    let mut client = path.peer(stack, "client", programs);
    client.args(["--transfer", "--seconds", &seconds.to_string()]);
    let mut client = Process::start("the client", client, None)?;
    let patience = PATIENCE + Duration::from_secs(u64::from(seconds));
    let gap = client.find(patience, |line| record(line, "bench.paths.gap/1"))?;
    let _ = client.kill()?;
    let _ = server.kill()?;
    path.remove()?;
    let gap = gap["seconds"]
        .as_f64()
        .ok_or("a silence without a length")?;
    Ok(gap + DELAY.as_secs_f64() - f64::from(length))
}

/// Seconds from the start of each of so many handshakes until the first byte of an answer.
pub(crate) fn handshakes(
    stack: Stack,
    clients: Clients,
    count: u32,
    seed: u64,
    programs: &Programs,
) -> Outcome<Vec<f64>> {
    let path = Path::lay("delay=25ms,loss=3%", seed, programs)?;
    let server = path.server(stack, programs)?;
    let mut client = path.peer(stack, "client", programs);
    client.args(["--count", &count.to_string()]);
    if clients == Clients::OneEndpoint {
        client.arg("--one-endpoint");
    }
    let mut client = Process::start("the client", client, None)?;
    let patience = PATIENCE + Duration::from_secs(u64::from(count));
    let times = client.find(patience, |line| record(line, "bench.paths.handshakes/1"))?;
    let _ = server.kill()?;
    path.remove()?;
    if times["failed"] != 0 {
        return Err(format!("{} of {count} failed", times["failed"]));
    }
    let seconds = times["seconds"].as_array().into_iter().flatten();
    Ok(seconds.filter_map(Value::as_f64).collect())
}

/// `towline relay --tun` with namespaces of its own; they go with it.
struct Path {
    process: Option<Process>,
    client: String,
    server: String,
}

impl Path {
    fn lay(spec: &str, seed: u64, programs: &Programs) -> Outcome<Self> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = |end| format!("paths-{}-{number}-{end}", std::process::id());
        let (client, server) = (name("client"), name("server"));
        let mut command = Command::new(&programs.towline);
        command
            .args(["relay", "--tun", "--create", "--json", "--both", spec])
            .args(["--client-ns", &client, "--server-ns", &server])
            .args(["--seed", &seed.to_string()]);
        let mut path = Self {
            process: Some(Process::start("the relay", command, None)?),
            client,
            server,
        };
        if let Some(process) = &mut path.process {
            process.find(PATIENCE, |line| record(line, "towline.tun/1"))?;
        }
        Ok(path)
    }

    fn server(&self, stack: Stack, programs: &Programs) -> Outcome<Process> {
        let command = self.peer(stack, "server", programs);
        let mut server = Process::start("the server", command, None)?;
        server.find(PATIENCE, |line| line.starts_with(LISTENING).then_some(()))?;
        Ok(server)
    }

    fn peer(&self, stack: Stack, role: &str, programs: &Programs) -> Command {
        let namespace = match role {
            "client" => &self.client,
            _ => &self.server,
        };
        let mut command = Command::new("ip");
        command
            .args(["netns", "exec", namespace])
            .arg(&programs.peer)
            .args([stack.name(), role, "--mtu", MTU])
            .args(["--addr", &SocketAddr::from((SERVER, 5001)).to_string()])
            .arg("--material")
            .arg(&programs.material);
        command
    }

    /// Ends the relay. Losses that the link did not decide on would falsify everything.
    fn remove(mut self) -> Outcome {
        let process = self.process.take().ok_or("the relay is gone")?;
        let lines = process.interrupt(PATIENCE)?;
        let end = lines
            .iter()
            .rev()
            .find_map(|line| record(line, "towline.relay.tun/1"))
            .ok_or("the relay ended without a summary")?;
        for name in ["lost_before_link", "send_failures"] {
            if end[name] != 0 {
                return Err(format!("the relay counts {name}: {}", end[name]));
            }
        }
        Ok(())
    }
}

impl Drop for Path {
    fn drop(&mut self) {
        // Killed, it would leave its namespaces behind.
        if let Some(process) = self.process.take() {
            let _ = process.interrupt(PATIENCE);
        }
    }
}

/// The line as a record of this schema.
fn record(line: &str, schema: &str) -> Option<Value> {
    let value: Value = serde_json::from_str(line).ok()?;
    (value["schema"] == schema).then_some(value)
}
