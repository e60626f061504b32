//! The end that receives: a listener, sinks.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::task::JoinSet;
use towline::link::Via;
use towline_gateway::{
    Kind, LinesOptions, NatsOptions, PostgresOptions, Shore, SignalKSinkOptions, Sink,
};

use super::super::config::{Config, Sink as SinkConfig};
use super::super::ends;
use super::super::reports::Reports;
use crate::exit::{Exit, Failure};
use crate::interrupt::Interrupt;
use crate::metrics::Bound;
use crate::net::reachable;
use crate::printer::Printer;
use crate::service_manager::ServiceManager;
use crate::units::millis;

/// Numbers of a report that go up and down.
const GAUGES: &[&str] = &["links"];

pub(super) async fn run(config: Config, metrics: Bound, printer: Printer) -> Result<Exit, Failure> {
    let Some(listen) = &config.listen else {
        return Err(Failure::usage("no [listen]"));
    };
    let mut interrupt = Interrupt::of_a_server(printer);
    let kinds: Vec<&str> = config.sinks.iter().map(kind).collect();
    let sinks = config
        .sinks
        .iter()
        .map(open)
        .collect::<Result<Vec<Sink>, Failure>>()?;
    let keys: Vec<_> = config.clients.iter().map(|client| client.key).collect();
    let (mut listener, key) = ends::listener(listen.address, &keys, listen.tls, printer).await?;
    if keys.is_empty() && !listen.address.ip().is_loopback() {
        printer.note(
            "towline: WARNING: no [[client]] is named, so whoever reaches this port can send; name each with its key",
        );
    }
    let clients: HashMap<_, _> = config
        .clients
        .iter()
        .map(|client| (client.name.clone(), client.key))
        .collect();
    let shore = Shore::start(sinks, clients);
    let address = listener.endpoint().local_addr();
    let url = format!("towline://{}", reachable(address));
    printer.line(format_args!("listening {address}"));
    printer.line(format_args!("  [peer]"));
    printer.line(format_args!("  url = \"{url}\""));
    printer.line(format_args!("  key = \"{key}\""));
    printer.record(&json!({
        "schema": "towline.listening/1",
        "address": address.to_string(),
        "url": format!("{url}#{key}"),
    }));
    let reports = Reports::start(&config, metrics, GAUGES, printer);
    let manager = ServiceManager::from_environment();
    manager.ready();
    let alive = manager.keep_alive();
    tokio::pin!(alive);
    let mut links = JoinSet::new();
    let mut ticks = tokio::time::interval(Duration::from_secs(1));
    loop {
        tokio::select! {
            link = listener.accept() => match link {
                Some(link) => {
                    links.spawn(Arc::clone(&shore).serve(link));
                }
                None => return Err(Failure::new(Exit::Other, "the socket is gone")),
            },
            // Why it ended is in the log.
            Some(_) = links.join_next() => {}
            _ = ticks.tick() => {
                reports.tell(describe(&config, &shore, &kinds, links.len()));
            }
            () = &mut alive => {}
            () = interrupt.wait() => break,
        }
    }
    manager.stopping();
    listener.endpoint().close(0, b"");
    listener.endpoint().wait_idle().await;
    Ok(Exit::Interrupted)
}

fn kind(sink: &SinkConfig) -> &'static str {
    match sink {
        SinkConfig::Signalk { .. } => "signalk",
        SinkConfig::Stdout { .. } => "stdout",
        SinkConfig::File { .. } => "file",
        SinkConfig::Nats { .. } => "nats",
        SinkConfig::Postgres { .. } => "postgres",
    }
}

fn open(sink: &SinkConfig) -> Result<Sink, Failure> {
    let bad = |error: towline_gateway::BadUrl| Failure::usage(format!("[[sink]] {error}"));
    match sink {
        SinkConfig::Signalk { url, token } => {
            let mut options = SignalKSinkOptions::new(url.clone());
            options.token.clone_from(token);
            Sink::signalk(options).map_err(bad)
        }
        SinkConfig::Stdout { live, ids } => {
            let kind = if *live { Kind::Live } else { Kind::Log };
            Ok(Sink::stdout(kind, LinesOptions { ids: *ids }))
        }
        SinkConfig::File { path, ids } => Ok(Sink::file(path.clone(), LinesOptions { ids: *ids })),
        SinkConfig::Nats {
            url,
            subject,
            stream,
            token,
            credentials,
            horizon,
            replicas,
            state,
        } => {
            let mut options = NatsOptions::new(url.clone(), state.clone());
            options.token.clone_from(token);
            if let Some(path) = credentials {
                let text = std::fs::read_to_string(path).map_err(|error| {
                    Failure::usage(format!("[[sink]] credentials {}: {error}", path.display()))
                })?;
                options.credentials = Some(text);
            }
            if let Some(subject) = subject {
                options.subject.clone_from(subject);
            }
            if let Some(stream) = stream {
                options.stream.clone_from(stream);
            }
            if let Some(horizon) = horizon {
                options.duplicate_window = *horizon;
            }
            if let Some(replicas) = replicas {
                options.replicas = *replicas;
            }
            Sink::nats(options).map_err(bad)
        }
        SinkConfig::Postgres { url } => {
            let options = PostgresOptions {
                url: url.clone(),
                tls: None,
            };
            Sink::postgres(options).map_err(bad)
        }
    }
}

fn describe(config: &Config, shore: &Shore, kinds: &[&str], links: usize) -> Value {
    let senders: Vec<Value> = shore
        .senders()
        .into_iter()
        .map(|(name, sender)| {
            let via = sender.via.map(|via| match via {
                Via::Udp => "udp",
                Via::Tls => "tls",
            });
            json!({
                "name": name,
                "via": via,
                "rtt_ms": sender.rtt.map(millis),
                "records": sender.receiver.records,
                "batches": sender.receiver.batches,
                "duplicates": sender.receiver.duplicates,
                "discarded": sender.receiver.discarded,
                "reports": sender.receiver.reports,
                "held": sender.held,
                "stale": sender.stale,
                "is_on_hold": sender.is_on_hold,
            })
        })
        .collect();
    let sinks: Vec<Value> = shore
        .sinks()
        .into_iter()
        .zip(kinds)
        .map(|(sink, kind)| {
            json!({
                "kind": kind,
                "is_log": sink.kind == Kind::Log,
                "records": sink.records,
                "refused": sink.refused,
                "trouble": sink.trouble,
            })
        })
        .collect();
    let records: u64 = shore
        .senders()
        .iter()
        .map(|(_, sender)| sender.receiver.records)
        .sum();
    json!({
        "schema": "towline.link.show/1",
        "name": config.name,
        "role": "shore",
        "state": "live",
        "links": links,
        "records": records,
        "missed": shore.missed(),
        "senders": senders,
        "sinks": sinks,
    })
}
