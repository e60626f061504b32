//! `towline relay`: a UDP relay that behaves like a bad network, between two real programs.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::{Value, json};
use towline::relay::{LinkConfig, LinkStats, Relay, RelayConfig, RelayCounters, RelayError};

use crate::exit::{Exit, Failure};
use crate::interrupt::Interrupt;
use crate::net::bind_failure;
use crate::printer::Printer;
use crate::units::{Bytes, counted};

/// Flags of `relay`.
#[derive(clap::Args)]
#[command(
    after_help = "A SPEC is a list such as rate=100mbit,delay=50ms,jitter=2ms,queue=64kb,aqm=codel,police=5mbit:32kb,loss=2%,reorder=1%,dup=0.5%,corrupt=0.1%,mtu=1400,blackout=5s+5s (start + length), with steps=0s:50mbit;20s:10mbit in place of rate where it changes. The relay carries no ECN marks, so ecn=on finds nothing to mark."
)]
pub(crate) struct RelayArgs {
    /// Address and port for the clients; port 0 picks a free one
    #[arg(value_name = "LISTEN")]
    listen: SocketAddr,
    /// Address and port of the server
    #[arg(value_name = "UPSTREAM")]
    upstream: SocketAddr,
    /// The link from the clients to the server
    #[arg(long, value_name = "SPEC")]
    up: Option<String>,
    /// The link from the server to the clients
    #[arg(long, value_name = "SPEC")]
    down: Option<String>,
    /// The same link in both directions
    #[arg(long, value_name = "SPEC", conflicts_with_all = ["up", "down"])]
    both: Option<String>,
    /// The links' random choices repeat with the same seed
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Clients served at once
    #[arg(long, value_name = "N", default_value_t = towline::relay::DEFAULT_MAX_CLIENTS)]
    max_clients: usize,
}

impl RelayArgs {
    /// Relays until Ctrl-C.
    pub(crate) async fn run(self, printer: Printer) -> Result<Exit, Failure> {
        let mut interrupt = Interrupt::install(printer);
        let mut config = RelayConfig::new(self.listen, self.upstream);
        config.to_upstream = link("--up", self.up.as_deref().or(self.both.as_deref()))?;
        config.to_client = link("--down", self.down.as_deref().or(self.both.as_deref()))?;
        config.seed = self.seed;
        config.max_clients = self.max_clients;
        let mut relay = Relay::bind(config).map_err(|error| match &error {
            RelayError::Listen { address, error } => bind_failure(*address, error),
            _ => Failure::usage(error.to_string()),
        })?;
        printer.line(format_args!(
            "listening {} for {}",
            relay.local_addr(),
            self.upstream
        ));
        printer.record(&json!({
            "schema": "towline.listening/1",
            "address": relay.local_addr().to_string(),
            "upstream": self.upstream.to_string(),
            "seed": self.seed,
        }));

        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let mut running = tokio::task::spawn_blocking(move || {
            let result = relay.run(&stopped);
            (result, relay.counters())
        });
        let ended = tokio::select! {
            ended = &mut running => ended,
            () = interrupt.wait() => {
                stop.store(true, Ordering::Relaxed);
                running.await
            }
        };
        let (result, counters) = ended
            .map_err(|error| Failure::new(Exit::Other, format!("the relay ended: {error}")))?;
        summarise(&counters, printer);
        result.map_err(|error| {
            Failure::new(Exit::Other, format!("the relay's socket failed: {error}"))
        })?;
        Ok(Exit::Interrupted)
    }
}

fn link(flag: &str, spec: Option<&str>) -> Result<LinkConfig, Failure> {
    spec.map_or_else(|| Ok(LinkConfig::default()), str::parse)
        .map_err(|error| {
            Failure::usage(format!("{flag}: {error}"))
                .next("see `towline relay --help` for what a SPEC may hold")
        })
}

fn summarise(counters: &RelayCounters, printer: Printer) {
    printer.line(format_args!(
        "{} served",
        counted(counters.clients_total, "client")
    ));
    for (name, link) in [("up", &counters.to_upstream), ("down", &counters.to_client)] {
        printer.line(format_args!(
            "{name:<4} in {} ({}), out {} ({}), dropped {}: loss {}, queue {}, aqm {}, policer {}, blackout {}; duplicated {}, reordered {}, corrupted {}",
            counted(link.datagrams_in, "datagram"),
            Bytes(link.bytes_in),
            link.datagrams_delivered,
            Bytes(link.bytes_delivered),
            link.drops.total(),
            link.drops.loss,
            link.drops.queue,
            link.drops.aqm,
            link.drops.policer,
            link.drops.blackout,
            link.duplicated,
            link.reordered,
            link.corrupted,
        ));
    }
    printer.record(&json!({
        "schema": "towline.relay/1",
        "clients": counters.clients_total,
        "datagrams_refused": counters.datagrams_refused,
        "up": record(&counters.to_upstream),
        "down": record(&counters.to_client),
    }));
}

fn record(link: &LinkStats) -> Value {
    json!({
        "datagrams_in": link.datagrams_in,
        "bytes_in": link.bytes_in,
        "datagrams_delivered": link.datagrams_delivered,
        "bytes_delivered": link.bytes_delivered,
        "drops": {
            "mtu": link.drops.mtu,
            "queue": link.drops.queue,
            "aqm": link.drops.aqm,
            "policer": link.drops.policer,
            "listed": link.drops.listed,
            "loss": link.drops.loss,
            "blackout": link.drops.blackout,
            "capacity": link.drops.capacity,
        },
        "duplicated": link.duplicated,
        "reordered": link.reordered,
        "corrupted": link.corrupted,
        "truncated": link.truncated,
        "queue_peak_bytes": link.queue_peak_bytes,
        "datagrams_out": link.datagrams_out,
        "bytes_out": link.bytes_out,
        "queue_delay_total_us": u64::try_from(link.queue_delay_total.as_micros()).unwrap_or(u64::MAX),
    })
}
