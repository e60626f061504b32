//! One slice: a server and what stands before it on one core, a load and what it goes through on
//! the other, fresh processes each time.

use std::fs;
use std::net::{SocketAddr, TcpListener};
use std::process::Command;
use std::time::Duration;

use bench_contract::LISTENING;
use bench_runner::Outcome;
use bench_runner::process::{Process, Usage};
use serde_json::Value;

use crate::plan::{Cell, Route, Stack};
use crate::programs::Programs;

const SERVER_CORE: usize = 0;
const CLIENT_CORE: usize = 1;
/// How long a program may take to start, and to end.
const PATIENCE: Duration = Duration::from_secs(20);
/// Idle connections whose memory is measured, and those that warm the server up; together they
/// fit into the usual limit of open files.
const IDLE: u64 = 800;
const IDLE_BEFORE: u64 = 100;
/// The server's address in its namespace.
const TUN_SERVER: [u8; 4] = [10, 77, 2, 2];
const VETH_SERVER: [u8; 4] = [10, 77, 3, 2];
const CLIENT_NAMESPACE: &str = "bench-stcp-client";
const SERVER_NAMESPACE: &str = "bench-stcp-server";
/// The link of the row over namespaces, each way.
const TUN_LINK: &str = "rate=100mbit,delay=10ms,queue=250kb";

/// What one slice gave.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sample {
    pub(crate) requests_per_s: f64,
    pub(crate) mb_per_s: f64,
    pub(crate) avg_ms: f64,
    pub(crate) p50_ms: f64,
    pub(crate) p95_ms: f64,
    pub(crate) p99_ms: f64,
    /// Connections that did not come about, and requests without the right answer.
    pub(crate) errors: f64,
    /// Processor seconds for 10^9 bytes of payload, of everything on the worse core.
    pub(crate) worse_s_per_gb: f64,
}

/// Runs `cell` over `stack` once.
pub(crate) fn run(cell: &Cell, stack: Stack, seconds: u32, programs: &Programs) -> Outcome<Sample> {
    let slice = Slice {
        cell,
        seconds,
        programs,
        ip: match cell.route {
            Route::Loopback => [127, 0, 0, 1],
            Route::Veth => VETH_SERVER,
            Route::Tun => TUN_SERVER,
        },
    };
    match cell.route {
        Route::Loopback => slice.run(stack),
        Route::Veth => {
            let _namespaces = Namespaces::make()?;
            slice.run(stack)
        }
        Route::Tun => {
            let link = link(programs)?;
            let result = slice.run(stack);
            // Killed it would leave its namespaces.
            link.interrupt(PATIENCE)?;
            result
        }
    }
}

/// Resident memory of an echo server for each connection that was used once and waits, KiB.
pub(crate) fn idle(stack: Stack, programs: &Programs) -> Outcome<f64> {
    let material = |name: &str| programs.material.join(name);
    let any = SocketAddr::from(([127, 0, 0, 1], 0)).to_string();
    let server = match stack {
        Stack::Rustls => {
            let mut command = Command::new(&programs.peer);
            command.args(["server", "--addr", &any, "--material"]);
            command.arg(&programs.material);
            command
        }
        _ => {
            let mut command = programs.towline("server");
            command.args([
                "echo-server",
                "--listen",
                &any,
                "--anonymous-clients",
                "--cert",
            ]);
            command.arg(material("cert.pem")).arg("--key");
            command.arg(material("key.pem"));
            command
        }
    };
    let mut server = Process::start("the server", server, None)?;
    let address = server.find(PATIENCE, listening)?;
    let hold = |connections: u64| -> Outcome<Process> {
        let mut command = Command::new(&programs.peer);
        command.args([
            "client",
            "--hold",
            "--addr",
            &address.to_string(),
            "--material",
        ]);
        command.arg(&programs.material);
        command.args(["--connections", &connections.to_string()]);
        if stack == Stack::Towline {
            command.arg("--towline");
        }
        let mut client = Process::start("the client", command, None)?;
        client.find(PATIENCE, |line| (line == "holding").then_some(()))?;
        // Whatever a server does a moment later.
        std::thread::sleep(Duration::from_secs(1));
        Ok(client)
    };
    let _first = hold(IDLE_BEFORE)?;
    let before = server.resident_kib()?;
    let _rest = hold(IDLE)?;
    let after = server.resident_kib()?;
    Ok(after.saturating_sub(before) as f64 / IDLE as f64)
}

/// `towline relay --tun`, which makes the namespaces and removes them.
fn link(programs: &Programs) -> Outcome<Process> {
    let mut command = Command::new(&programs.towline);
    command.args(["relay", "--tun", "--create", "--json", "--both", TUN_LINK]);
    command.args([
        "--client-ns",
        CLIENT_NAMESPACE,
        "--server-ns",
        SERVER_NAMESPACE,
    ]);
    let mut relay = Process::start("the relay", command, None)?;
    relay.find(PATIENCE, |line| line.contains("towline.").then_some(()))?;
    Ok(relay)
}

/// Two network namespaces and the veth between them; removed when dropped.
struct Namespaces;

impl Namespaces {
    fn make() -> Outcome<Self> {
        // Of a run that was killed.
        drop(Self);
        let script = format!(
            "set -e
            ip netns add {CLIENT_NAMESPACE}; ip netns add {SERVER_NAMESPACE}
            ip -n {CLIENT_NAMESPACE} link add eth0 type veth peer name eth0 netns {SERVER_NAMESPACE}
            ip -n {CLIENT_NAMESPACE} addr add 10.77.3.1/24 dev eth0
            ip -n {SERVER_NAMESPACE} addr add 10.77.3.2/24 dev eth0
            for name in {CLIENT_NAMESPACE} {SERVER_NAMESPACE}; do
                ip -n $name link set lo up; ip -n $name link set eth0 up
            done"
        );
        // From now on it removes what there is of them.
        let namespaces = Self;
        let made = Command::new("sh").args(["-c", &script]).output();
        let made = made.map_err(|error| format!("sh did not start: {error}"))?;
        match made.status.success() {
            true => Ok(namespaces),
            false => Err(String::from_utf8_lossy(&made.stderr).trim().to_owned()),
        }
    }
}

impl Drop for Namespaces {
    fn drop(&mut self) {
        for name in [CLIENT_NAMESPACE, SERVER_NAMESPACE] {
            let _ = Command::new("ip").args(["netns", "del", name]).output();
        }
    }
}

struct Slice<'s> {
    cell: &'s Cell,
    seconds: u32,
    programs: &'s Programs,
    ip: [u8; 4],
}

impl Slice<'_> {
    fn run(&self, stack: Stack) -> Outcome<Sample> {
        let (servers, address) = self.servers(stack)?;
        let (relays, address) = self.client_relays(stack, address)?;
        let load = self.load(stack, address)?;
        self.sample(stack, load, servers, relays)
    }

    fn any_port(&self) -> String {
        SocketAddr::from((self.ip, 0)).to_string()
    }

    /// The echo server and its relay; the address for clients.
    fn servers(&self, stack: Stack) -> Outcome<(Vec<Process>, SocketAddr)> {
        let programs = self.programs;
        let mut command = self.towline("server", stack);
        command.args(["echo-server", "--listen", &self.any_port()]);
        match stack {
            Stack::Plain | Stack::Proxy | Stack::Stunnel | Stack::Relay | Stack::UserRelay => {
                command.arg("--plain");
            }
            Stack::Towline => {
                command.args([
                    "--client-pin",
                    &programs.client_pin,
                    "--cipher",
                    "aes128gcm",
                ]);
            }
            Stack::Rustls | Stack::Openssl => {
                command = self.peer(stack)?;
                command.args(["server", "--addr", &self.any_port(), "--material"]);
                command.arg(&programs.material);
            }
        }
        let mut server = self.start("the server", command, SERVER_CORE)?;
        let address = server.find(PATIENCE, listening)?;
        let (relay, address) = match stack {
            Stack::Proxy => {
                let mut command = programs.towline("server");
                command.args(["proxy", "server", "--listen", &self.any_port()]);
                command.args(["--connect", &address.to_string()]);
                command.args([
                    "--client-pin",
                    &programs.client_pin,
                    "--cipher",
                    "aes128gcm",
                ]);
                let mut relay = self.start("the server's proxy", command, SERVER_CORE)?;
                let address = relay.find(PATIENCE, listening)?;
                (relay, address)
            }
            Stack::Stunnel => self.stunnel("server", address, SERVER_CORE)?,
            _ => return Ok((vec![server], address)),
        };
        Ok((vec![relay, server], address))
    }

    /// What the load goes through on its own core.
    fn client_relays(
        &self,
        stack: Stack,
        server: SocketAddr,
    ) -> Outcome<(Vec<Process>, SocketAddr)> {
        match stack {
            Stack::Proxy => {
                let mut command = self.programs.towline("client");
                command.args(["proxy", "client", "--listen", &self.any_port()]);
                command.args(["--connect", &server.to_string()]);
                command.args(["--pin", &self.programs.server_pin, "--cipher", "aes128gcm"]);
                let mut relay = self.start("the client's proxy", command, CLIENT_CORE)?;
                let address = relay.find(PATIENCE, listening)?;
                Ok((vec![relay], address))
            }
            Stack::Stunnel => {
                let (relay, address) = self.stunnel("client", server, CLIENT_CORE)?;
                Ok((vec![relay], address))
            }
            _ => Ok((Vec::new(), server)),
        }
    }

    fn stunnel(
        &self,
        side: &str,
        connect: SocketAddr,
        core: usize,
    ) -> Outcome<(Process, SocketAddr)> {
        let free = TcpListener::bind(SocketAddr::from((self.ip, 0)))
            .and_then(|listener| listener.local_addr());
        let accept = free.map_err(|error| format!("no free port: {error}"))?;
        let file = |name: &str| self.programs.material.join(name).display().to_string();
        let identity = match side {
            "server" => format!("cert = {}\nkey = {}", file("cert.pem"), file("key.pem")),
            _ => format!(
                "client = yes\nCAfile = {}\nverifyChain = yes\ncheckHost = localhost",
                file("ca.pem")
            ),
        };
        let configuration = format!(
            "foreground = yes\npid =\ndebug = notice\noutput = /dev/stdout\n\
             socket = l:TCP_NODELAY=1\nsocket = r:TCP_NODELAY=1\n\
             sslVersion = TLSv1.3\nciphersuites = TLS_AES_128_GCM_SHA256\ncurves = X25519\n\
             [echo]\naccept = {accept}\nconnect = {connect}\n{identity}\n"
        );
        let path = self.programs.material.join(format!("stunnel-{side}.conf"));
        fs::write(&path, configuration).map_err(|error| format!("{}: {error}", path.display()))?;
        let mut command = Command::new("stunnel");
        command.arg(&path);
        let mut stunnel = self.start("stunnel", command, core)?;
        stunnel.find(PATIENCE, |line| {
            line.contains("Configuration successful").then_some(())
        })?;
        // It says so a moment before it listens.
        std::thread::sleep(Duration::from_millis(200));
        Ok((stunnel, accept))
    }

    fn load(&self, stack: Stack, server: SocketAddr) -> Outcome<Process> {
        let programs = self.programs;
        let (size, clients) = (self.cell.size.to_string(), self.cell.clients.to_string());
        let seconds = self.seconds.to_string();
        let mut command = self.towline("client", stack);
        command.args(["echo-load", &server.to_string(), "--size", &size]);
        command.args(["--clients", &clients, "--duration", &seconds]);
        match stack {
            Stack::Plain | Stack::Proxy | Stack::Stunnel | Stack::Relay | Stack::UserRelay => {
                command.arg("--plain");
            }
            Stack::Towline => {
                command.args(["--pin", &programs.server_pin, "--cipher", "aes128gcm"]);
            }
            Stack::Rustls | Stack::Openssl => {
                command = self.peer(stack)?;
                command.args(["client", "--addr", &server.to_string(), "--material"]);
                command.arg(&programs.material);
                command.args(["--bytes", &size, "--connections", &clients]);
                command.args(["--seconds", &seconds]);
            }
        }
        self.start("the load", command, CLIENT_CORE)
    }

    /// `towline stcp`, and where the stack is a tier under `towline stcp run`.
    fn towline(&self, machine: &str, stack: Stack) -> Command {
        let mut command = self.programs.towline(machine);
        if let Some(tier) = stack.tier() {
            command.args(["run", "--tier", tier, "--"]);
            command.arg(&self.programs.towline);
            command.args(["stcp", "--json", "--quiet"]);
        }
        command
    }

    /// The program of a stack that is not ours.
    fn peer(&self, stack: Stack) -> Outcome<Command> {
        let program = match stack {
            Stack::Openssl => self.programs.openssl.as_ref().map_err(Clone::clone)?,
            _ => &self.programs.peer,
        };
        Ok(Command::new(program))
    }

    fn start(&self, name: &str, command: Command, core: usize) -> Outcome<Process> {
        let command = match (self.cell.route, core) {
            (Route::Loopback, _) => command,
            (_, SERVER_CORE) => within(SERVER_NAMESPACE, &command),
            (_, _) => within(CLIENT_NAMESPACE, &command),
        };
        Process::start(name, command, Some(core))
    }

    fn sample(
        &self,
        stack: Stack,
        mut load: Process,
        servers: Vec<Process>,
        relays: Vec<Process>,
    ) -> Outcome<Sample> {
        let patience = PATIENCE + Duration::from_secs(self.seconds.into());
        let record: Value = load.find(patience, |line| {
            let record: Value = serde_json::from_str(line).ok()?;
            (record["schema"] == "towline.stcp.echo-load/1").then_some(record)
        })?;
        // It ends with another code if there were errors, which are counted below.
        let mut client = load.finish_anyhow(PATIENCE)?;
        for relay in relays {
            client = sum(client, relay.kill()?);
        }
        let mut server = Usage::default();
        for process in servers {
            // Killed, `stcp run` would leave what it has put in force, and its program.
            let usage = match stack.tier() {
                Some(_) => process.terminate(PATIENCE)?,
                None => process.kill()?,
            };
            server = sum(server, usage);
        }
        let number = |name: &str| {
            let value = record[name].as_f64();
            value.ok_or_else(|| format!("the load told no {name}"))
        };
        let requests = number("requests")?;
        if requests == 0.0 {
            return Err("no request was answered".to_owned());
        }
        let gigabytes = requests * 2.0 * self.cell.size as f64 / 1e9;
        let worse = (client.user + client.system).max(server.user + server.system);
        Ok(Sample {
            requests_per_s: number("requests_per_s")?,
            mb_per_s: number("mb_per_s")?,
            avg_ms: number("avg_ms")?,
            p50_ms: number("p50_ms")?,
            p95_ms: number("p95_ms")?,
            p99_ms: number("p99_ms")?,
            errors: number("errors")? + number("connect_errors")?,
            worse_s_per_gb: worse / gigabytes,
        })
    }
}

/// The same command inside a network namespace.
fn within(namespace: &str, command: &Command) -> Command {
    // `ip netns exec` would hide the cgroups, which `stcp run` needs.
    let mut inside = Command::new("nsenter");
    inside
        .arg(format!("--net=/run/netns/{namespace}"))
        .arg(command.get_program())
        .args(command.get_args());
    for (name, value) in command.get_envs() {
        if let Some(value) = value {
            inside.env(name, value);
        }
    }
    inside
}

fn sum(a: Usage, b: Usage) -> Usage {
    Usage {
        user: a.user + b.user,
        system: a.system + b.system,
    }
}

/// The address in what a server prints, ours or the peer's.
fn listening(line: &str) -> Option<SocketAddr> {
    if let Some(address) = line.strip_prefix(LISTENING) {
        return address.parse().ok();
    }
    let record: Value = serde_json::from_str(line).ok()?;
    record["address"].as_str()?.parse().ok()
}
