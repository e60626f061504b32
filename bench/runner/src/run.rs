//! One run: a server and a client of one stack, and what the two say, as samples.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use bench_contract::{LISTENING, Measure, Report};
use bench_runner::Outcome;
use bench_runner::figures::{Sample, Stack as _};
use bench_runner::process::{Process, Usage};
use bench_runner::veth::Veth;
use serde_json::Value;

use crate::plan::{Case, Placement, Stack, Way};
use crate::programs::Programs;

/// How long a server may take to listen.
const START: Duration = Duration::from_secs(10);
/// How long a client may take for a bulk transfer, and for anything else besides what its case
/// says.
const PATIENCE: Duration = Duration::from_secs(60);
/// Connections a second that even a busy machine should see opened.
const LEAST_HANDSHAKES: u64 = 200;
/// How long a server may take to leave after its client.
const LEAVE: Duration = Duration::from_secs(70);

/// What both ends reported.
struct Ends {
    server: Report,
    client: Report,
}

impl Ends {
    fn of(&self, sends: bool, upload: bool) -> &Report {
        if sends == upload {
            &self.client
        } else {
            &self.server
        }
    }
}

/// Runs `case` once with one stack.
pub(crate) fn run(case: &Case, stack: Stack, programs: &Programs) -> Outcome<Vec<Sample>> {
    let ends = match (stack, case.way) {
        (Stack::Towline, Way::Cli) => by_cli(case, programs)?,
        (Stack::QuicGo, _) => by_driver(case, stack, programs.quic_go()?, programs)?,
        (_, Way::Counting) => by_driver(case, stack, &programs.counting, programs)?,
        _ => by_driver(case, stack, &programs.peer, programs)?,
    };
    samples(case, stack, &ends)
}

fn cores(case: &Case) -> (Option<usize>, Option<usize>) {
    match case.placement {
        Placement::Apart => (Some(0), Some(1)),
        Placement::OneCore => (Some(0), Some(0)),
        Placement::Free => (None, None),
    }
}

fn by_driver(case: &Case, stack: Stack, program: &Path, programs: &Programs) -> Outcome<Ends> {
    let (server_core, client_core) = cores(case);
    let command = |role: &str, address: SocketAddr| {
        let mut command = Command::new(program);
        if stack != Stack::QuicGo {
            command.arg(stack.name());
        }
        command.args([role, measure_name(case.measure)]);
        command.arg("--addr").arg(address.to_string());
        command.arg("--material").arg(&programs.material);
        command.args(flags(case));
        // What a peer may open costs the one that permits it.
        if let (Some(streams), "server") = (case.permitted_streams, role) {
            command.args(["--permitted-streams", &streams.to_string()]);
        }
        command
    };
    let path = Route::of(case)?;
    let server = path.at_server(command("server", path.server()));
    let mut server = Process::start("the server", server, server_core)?;
    let address = server.find(START, |line| line.strip_prefix(LISTENING)?.parse().ok())?;
    let client = path.at_client(command("client", address));
    let mut client = Process::start("the client", client, client_core)?;
    let report = |line: &str| serde_json::from_str::<Report>(line).ok();
    let seconds = match case.measure {
        Measure::Bulk => 0,
        _ => 2 * case.seconds + case.connections.max(case.count) / LEAST_HANDSHAKES,
    };
    let patience = PATIENCE + Duration::from_secs(seconds);
    let client_report = match client.find(patience, report) {
        Ok(report) => report,
        // A server that failed knows more than its client, which only lost a connection.
        Err(why) => match server.find(Duration::from_secs(1), report) {
            Ok(_) => return Err(why),
            Err(its) => return Err(format!("{why}; {its}")),
        },
    };
    let server_report = server.find(LEAVE + Duration::from_secs(case.seconds), report)?;
    match case.measure {
        // It holds its connections until then.
        Measure::Idle => client.kill()?,
        _ => client.finish(LEAVE)?,
    };
    server.finish(LEAVE)?;
    Ok(Ends {
        server: server_report,
        client: client_report,
    })
}

/// What lies between the two processes.
enum Route {
    Loopback,
    Veth(Veth),
}

impl Route {
    fn of(case: &Case) -> Outcome<Self> {
        match case.over_veth {
            true => Veth::lay().map(Self::Veth),
            false => Ok(Self::Loopback),
        }
    }

    /// Where the server listens, on any port.
    fn server(&self) -> SocketAddr {
        let address = match self {
            Self::Loopback => Ipv4Addr::LOCALHOST,
            Self::Veth(_) => Veth::SERVER,
        };
        SocketAddr::from((address, 0))
    }

    fn at_server(&self, command: Command) -> Command {
        match self {
            Self::Loopback => command,
            Self::Veth(veth) => veth.at_server(&command),
        }
    }

    fn at_client(&self, command: Command) -> Command {
        match self {
            Self::Loopback => command,
            Self::Veth(veth) => veth.at_client(&command),
        }
    }
}

fn measure_name(measure: Measure) -> &'static str {
    match measure {
        Measure::Bulk => "bulk",
        Measure::Handshakes => "handshakes",
        Measure::Echo => "echo",
        Measure::Idle => "idle",
        Measure::Datagrams => "datagrams",
        Measure::Many => "many",
    }
}

fn flags(case: &Case) -> Vec<String> {
    let mut flags = Vec::new();
    let mut add = |name: &str, value: String| flags.extend([format!("--{name}"), value]);
    add("bytes", case.bytes.to_string());
    add("streams", case.streams.to_string());
    add("connections", case.connections.to_string());
    add("count", case.count.to_string());
    add("seconds", case.seconds.to_string());
    if let Some(mtu) = case.mtu {
        add("mtu", mtu.to_string());
    }
    add("cipher", case.cipher.to_string());
    if let Some(seconds) = case.idle_timeout {
        add("idle-timeout", seconds.to_string());
    }
    if case.upload {
        flags.push("--upload".to_owned());
    }
    flags
}

/// `towline perf`, as it is shipped.
fn by_cli(case: &Case, programs: &Programs) -> Outcome<Ends> {
    let (server_core, client_core) = cores(case);
    let perf = |role: &str| {
        let mut command = Command::new(&programs.towline);
        command.args(["perf", role, "--json", "--quiet", "--kx", "x25519"]);
        command.args(["--cipher", &case.cipher.to_string()]);
        if let Some(mtu) = case.mtu {
            command.args(["--mtu", &mtu.to_string()]);
        }
        command
    };
    let path = Route::of(case)?;
    let mut command = perf("server");
    command.args(["--listen", &path.server().to_string()]);
    let command = path.at_server(command);
    let mut server = Process::start("`towline perf server`", command, server_core)?;
    let address = server.find(START, |line| {
        let record: Value = serde_json::from_str(line).ok()?;
        Some(record["address"].as_str()?.to_owned())
    })?;
    let mut command = perf("client");
    command.arg(format!("towline://{address}"));
    command.args(["--insecure", "--bytes", &case.bytes.to_string()]);
    command.args(["--parallel", &case.streams.to_string()]);
    if !case.upload {
        command.arg("--reverse");
    }
    let command = path.at_client(command);
    let mut client = Process::start("`towline perf client`", command, client_core)?;
    let record = client.find(PATIENCE, |line| serde_json::from_str::<Value>(line).ok())?;
    let client_usage = client.finish(LEAVE)?;
    let server_usage = server.kill()?;
    Ok(Ends {
        server: perf_report(&record["end"]["there"], server_usage)?,
        client: perf_report(&record["end"]["here"], client_usage)?,
    })
}

/// One end's sums in `towline perf`'s record. The record has processor time as one number; it is
/// split as the whole process's was.
fn perf_report(end: &Value, usage: Usage) -> Outcome<Report> {
    let number = |value: &Value| value.as_f64().ok_or("`towline perf` reported no numbers");
    let cpu = number(&end["cpu_seconds"])?;
    let user = cpu * usage.user / (usage.user + usage.system).max(f64::MIN_POSITIVE);
    let connection = &end["connection"];
    Ok(Report {
        seconds: number(&end["seconds"])?,
        cpu_user: user,
        cpu_system: cpu - user,
        count: end["bytes"]
            .as_u64()
            .ok_or("`towline perf` reported no bytes")?,
        packets_sent: connection["packets_sent"].as_u64(),
        bytes_sent: connection["bytes_sent"].as_u64(),
        packets_received: connection["packets_received"].as_u64(),
        ..Report::default()
    })
}

fn samples(case: &Case, stack: Stack, ends: &Ends) -> Outcome<Vec<Sample>> {
    let (server, client) = (&ends.server, &ends.client);
    match case.measure {
        // The floor program sends from the client, whatever it is asked for.
        Measure::Bulk => bulk(case, ends, case.upload || stack == Stack::Floor),
        Measure::Handshakes => {
            let each = |report: &Report| report.cpu() * 1e6 / report.count as f64;
            Ok(vec![
                Sample::result("handshakes_per_s", client.count as f64 / client.seconds),
                Sample::result("handshake_server_us", each(server)),
                Sample::detail("client us", each(client)),
            ])
        }
        Measure::Echo => {
            let latency = client.latency.ok_or("the client reported no round trips")?;
            Ok(vec![
                Sample::result("echo64_p50_us", latency.p50),
                Sample::result("echo64_p99_us", latency.p99),
                Sample::detail("p99.9 us", latency.p999),
                Sample::detail("client CPU us", client.cpu() * 1e6 / client.count as f64),
            ])
        }
        Measure::Idle => {
            let (before, after) = server.resident_kib.ok_or("the server reported no memory")?;
            let grown = after.saturating_sub(before) as f64;
            Ok(vec![
                Sample::result("idle_kib", grown / server.count as f64),
                Sample::detail("GB in all", grown * 1024.0 / 1e9),
                Sample::detail("% of a core", server.cpu() / server.seconds * 100.0),
            ])
        }
        Measure::Datagrams => {
            let each = |report: &Report| report.cpu() * 1e6 / report.count as f64;
            Ok(vec![
                Sample::result("datagrams_per_s", server.count as f64 / server.seconds),
                Sample::detail(
                    "% of sent",
                    server.count as f64 / client.count as f64 * 100.0,
                ),
                Sample::detail("sender us", each(client)),
                Sample::detail("receiver us", each(server)),
            ])
        }
        Measure::Many => {
            let each = |report: &Report| report.cpu() * 1e6 / report.count as f64;
            Ok(vec![
                Sample::result("many_us_per_packet", each(server).max(each(client))),
                Sample::detail("sender us", each(client)),
                Sample::detail("receiver us", each(server)),
                Sample::detail("seconds", client.seconds),
            ])
        }
    }
}

fn bulk(case: &Case, ends: &Ends, upload: bool) -> Outcome<Vec<Sample>> {
    let (sender, receiver) = (ends.of(true, upload), ends.of(false, upload));
    if sender.count < case.bytes || receiver.count < case.bytes {
        return Err(format!(
            "{} bytes arrived of {}",
            receiver.count, case.bytes
        ));
    }
    if case.way == Way::Counting {
        let per_packet = |report: &Report, packets: Option<u64>| {
            let allocations = report.allocations? as f64;
            // They were counted in the middle half of the transfer.
            Some(allocations / (packets? as f64 / 2.0))
        };
        let missing = "nothing counted allocations";
        let sender = per_packet(sender, sender.packets_sent).ok_or(missing)?;
        let receiver = per_packet(receiver, receiver.packets_received).ok_or(missing)?;
        return Ok(vec![
            Sample::result("allocs_per_packet", sender.max(receiver)),
            Sample::detail("sender", sender),
            Sample::detail("receiver", receiver),
        ]);
    }
    let gigabytes = receiver.count as f64 / 1e9;
    let worse = sender.cpu().max(receiver.cpu()) / gigabytes;
    let mut samples = vec![
        Sample::result(case.results[0].0, worse),
        Sample::detail("sender user", sender.cpu_user / gigabytes),
        Sample::detail("system", sender.cpu_system / gigabytes),
        Sample::detail("receiver user", receiver.cpu_user / gigabytes),
        Sample::detail("system ", receiver.cpu_system / gigabytes),
        Sample::detail("Gbit/s", gigabytes * 8.0 / receiver.seconds),
    ];
    samples.extend(
        sender
            .seal_ns
            .map(|ns| Sample::detail("ns to seal a packet", ns)),
    );
    let packets = sender.packets_sent.map(|packets| packets as f64);
    if let (Some(packets), Some(bytes)) = (packets, sender.bytes_sent) {
        samples.push(Sample::detail("B/datagram", bytes as f64 / packets));
    }
    if let (Some(packets), Some(acks)) = (packets, receiver.packets_sent) {
        samples.push(Sample::detail("packets/ACK", packets / acks.max(1) as f64));
    }
    Ok(samples)
}
