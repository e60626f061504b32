//! One run: a server and a client of one stack, and what the two say, as samples.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use bench_contract::sessions::SessionMeasure;
use bench_contract::{LISTENING, Report};
use bench_runner::Outcome;
use bench_runner::figures::Sample;
use bench_runner::process::{Process, Usage};

use crate::plan::{Case, Stack};
use crate::programs::Programs;

const SERVER_CORE: usize = 0;
const CLIENT_CORE: usize = 1;
/// How long a program may take to start, and to leave.
const START: Duration = Duration::from_secs(10);
/// How long a client may take, besides what its case says.
const PATIENCE: Duration = Duration::from_secs(60);

/// What came of the datagrams sent, beside how many arrive in a second.
pub(crate) const DELIVERED: &str = "% delivered";

/// What both ends reported, and spent from their beginning to their end.
struct Ends {
    /// Only of a server that counts something.
    server: Option<Report>,
    client: Report,
    server_usage: Usage,
    client_usage: Usage,
}

/// Runs `case` once with one stack.
pub(crate) fn run(case: &Case, stack: Stack, programs: &Programs) -> Outcome<Vec<Sample>> {
    let start = |role: &str, core, address: SocketAddr| -> Outcome<Process> {
        let mut command = programs.command(stack)?;
        command.args([role, &case.measure.to_string()]);
        command.args(["--addr", &address.to_string(), "--material"]);
        command.arg(&programs.material).args(flags(case, stack));
        Process::start(&format!("the {role}"), command, Some(core))
    };
    let mut server = start("server", SERVER_CORE, (Ipv4Addr::LOCALHOST, 0).into())?;
    let address = server.find(START, |line| line.strip_prefix(LISTENING)?.parse().ok())?;
    let mut client = start("client", CLIENT_CORE, address)?;
    let report = |line: &str| serde_json::from_str::<Report>(line).ok();
    let patience = PATIENCE + Duration::from_secs(case.load(stack).seconds);
    let client_report = client.find(patience, report)?;
    let counts = matches!(
        case.measure,
        SessionMeasure::Idle | SessionMeasure::Datagrams
    );
    let server_report = match counts {
        true => Some(server.find(patience, report)?),
        false => None,
    };
    let client_usage = match case.measure {
        // It holds its sessions until then.
        SessionMeasure::Idle => client.kill()?,
        _ => client.finish(START)?,
    };
    let ends = Ends {
        server: server_report,
        client: client_report,
        server_usage: server.kill()?,
        client_usage,
    };
    samples(case, stack, &ends)
}

fn flags(case: &Case, stack: Stack) -> Vec<String> {
    let load = case.load(stack);
    let numbers = [
        ("sessions", load.sessions),
        ("streams", load.streams),
        ("bytes", case.bytes),
        ("count", load.count),
        ("seconds", load.seconds),
    ];
    let mut flags: Vec<_> = numbers
        .iter()
        .flat_map(|(name, number)| [format!("--{name}"), number.to_string()])
        .collect();
    if let Some(streams) = case.permitted_streams {
        flags.extend(["--permitted-streams".to_owned(), streams.to_string()]);
    }
    if case.aes128 {
        flags.push("--aes128".to_owned());
    }
    if case.own_loop {
        flags.extend(["--event-loop".to_owned(), "asyncio".to_owned()]);
    }
    flags
}

fn samples(case: &Case, stack: Stack, ends: &Ends) -> Outcome<Vec<Sample>> {
    let (load, measure) = (case.load(stack), case.results[0].0);
    let client = &ends.client;
    let spent = |usage: Usage| usage.user + usage.system;
    let (server_cpu, client_cpu) = (spent(ends.server_usage), spent(ends.client_usage));
    match case.measure {
        SessionMeasure::Upload
        | SessionMeasure::Download
        | SessionMeasure::Duplex
        | SessionMeasure::Mux => {
            let ways = if case.measure == SessionMeasure::Duplex {
                2
            } else {
                1
            };
            let wanted = load.sessions * load.streams * case.bytes * ways;
            if client.count != wanted {
                return Err(format!("{} bytes of {wanted} arrived", client.count));
            }
            // The session that does not count took time too.
            let gigabytes = (wanted + wanted / load.sessions) as f64 / 1e9;
            Ok(vec![
                Sample::result(measure, client.count as f64 / 1e6 / client.seconds),
                Sample::detail(
                    "CPU s/GB on the worse side",
                    server_cpu.max(client_cpu) / gigabytes,
                ),
                Sample::detail("MB a run", client.count as f64 / 1e6),
            ])
        }
        SessionMeasure::Handshakes => {
            let mut samples = latencies(measure, client)?;
            let rate = client.count as f64 / client.seconds;
            samples.push(Sample::result(case.results[1].0, rate));
            let all = (client.count as f64) * (1.0 + WARM_UP);
            samples.push(Sample::detail("server CPU us", server_cpu * 1e6 / all));
            samples.push(Sample::detail("client CPU us", client_cpu * 1e6 / all));
            Ok(samples)
        }
        SessionMeasure::Cold | SessionMeasure::Exchanges | SessionMeasure::Echo => {
            latencies(measure, client)
        }
        SessionMeasure::Datagrams => {
            let server = ends.server.as_ref().ok_or("the server counted nothing")?;
            let count = server.count as f64;
            Ok(vec![
                Sample::result(measure, count / server.seconds),
                Sample::detail(DELIVERED, count / client.count as f64 * 100.0),
                Sample::detail("sender us", client_cpu * 1e6 / client.count as f64),
                Sample::detail("receiver us", server_cpu * 1e6 / count),
            ])
        }
        SessionMeasure::Idle => {
            let server = ends.server.as_ref();
            let resident = server.and_then(|server| server.resident_kib);
            let (before, after) = resident.ok_or("the server reported no memory")?;
            let grown = after.saturating_sub(before) as f64 * 1.024;
            let sessions = load.sessions as f64;
            Ok(vec![
                Sample::result(measure, grown / sessions),
                Sample::detail("sessions", sessions),
            ])
        }
    }
}

/// What does not count, for each that does.
const WARM_UP: f64 = bench_contract::sessions::WARM_UP_PERCENT as f64 / 100.0;

/// The median in milliseconds, and the rest of the distribution beside it.
fn latencies(measure: &'static str, client: &Report) -> Outcome<Vec<Sample>> {
    let latency = client.latency.ok_or("the client reported no times")?;
    Ok(vec![
        Sample::result(measure, latency.p50 / 1e3),
        Sample::detail("min", latency.min / 1e3),
        Sample::detail("p99", latency.p99 / 1e3),
        Sample::detail("max", latency.max / 1e3),
        Sample::detail("of", client.count as f64),
    ])
}

#[cfg(test)]
mod tests;
