//! `towline relay`: stands between two real programs and behaves like a bad network.
//!
//! Owns the flags, what is printed, and the wait for Ctrl-C; the relays are the library's: one for
//! UDP between addresses, one for all of IP between network namespaces ([`tun`]).

#[cfg(target_os = "linux")]
mod tun;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::{Instant, MissedTickBehavior, interval_at};
use towline_relay::{LinkConfig, LinkStats, Relay, RelayConfig, RelayCounters, RelayError};

use crate::exit::{Exit, Failure};
use crate::failures::bind_failure;
use crate::interrupt::Interrupt;
use crate::metrics::{Exposition, MetricsArgs};
use crate::printer::Printer;
use crate::units::{BitRate, Bytes, counted, parse_positive_duration, rate};

/// Flags of `relay`.
#[derive(clap::Args)]
#[command(
    after_help = "A SPEC is a list such as rate=100mbit,delay=50ms,jitter=2ms,queue=64kb,aqm=codel,ecn=on,police=5mbit:32kb,loss=2%,reorder=1%,dup=0.5%,corrupt=0.1%,mtu=1400,blackout=5s+5s (start + length), with steps=0s:50mbit;20s:10mbit in place of rate where it changes. Only the --tun form carries ECN marks.

With --tun the relay joins two network namespaces and carries every IP packet (TCP, UDP, ICMP) between them, on Linux, as root:
    towline relay --tun --create --both rate=20mbit,delay=20ms,queue=100kb
    ip netns exec towline-server SERVER        it has 10.77.2.2 and fd77:2::2
    ip netns exec towline-client CLIENT        it has 10.77.1.2 and fd77:1::2
Sizes in a SPEC are then those of whole IP packets; a packet with a corrupted bit is mostly refused by the receiving kernel, which looks like loss."
)]
pub(crate) struct RelayArgs {
    /// Address and port for the clients; port 0 picks a free one
    #[arg(value_name = "LISTEN", required_unless_present = "tun")]
    listen: Option<SocketAddr>,
    /// Address and port of the server
    #[arg(value_name = "UPSTREAM", required_unless_present = "tun")]
    upstream: Option<SocketAddr>,
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
    #[arg(long, value_name = "N", default_value_t = towline_relay::DEFAULT_MAX_CLIENTS)]
    max_clients: usize,
    /// Report both links this often, 100ms or more
    #[arg(short = 'i', long, value_name = "TIME", value_parser = parse_positive_duration)]
    interval: Option<Duration>,
    /// Carry whole IP packets between two network namespaces
    #[arg(long, conflicts_with_all = ["listen", "upstream", "max_clients"])]
    tun: bool,
    /// With --tun, the namespace of the clients [default: towline-client]
    #[arg(long, value_name = "NAME")]
    client_ns: Option<String>,
    /// With --tun, the namespace of the server [default: towline-server]
    #[arg(long, value_name = "NAME")]
    server_ns: Option<String>,
    /// With --tun, make both namespaces, and remove them at the end
    #[arg(long)]
    create: bool,
    #[command(flatten)]
    metrics: MetricsArgs,
}

/// What both relays count of one link.
#[derive(Clone, Copy, Debug, Default)]
struct LinkView {
    stats: LinkStats,
    queue_bytes: u64,
}

impl RelayArgs {
    /// Relays until Ctrl-C.
    pub(crate) async fn run(self, printer: Printer) -> Result<Exit, Failure> {
        if self
            .interval
            .is_some_and(|interval| interval < Duration::from_millis(100))
        {
            return Err(Failure::usage("--interval must be at least 100 ms"));
        }
        // Not the parser's: it waives what an argument requires if another present one excludes it.
        if !self.tun && (self.create || self.client_ns.is_some() || self.server_ns.is_some()) {
            return Err(Failure::usage(
                "--client-ns, --server-ns and --create go with --tun, which takes no addresses",
            ));
        }
        let interrupt = Interrupt::install(printer);
        match (self.tun, self.listen, self.upstream) {
            (false, Some(listen), Some(upstream)) => {
                self.run_udp(listen, upstream, interrupt, printer).await
            }
            #[cfg(target_os = "linux")]
            (true, _, _) => self.run_tun(interrupt, printer).await,
            #[cfg(not(target_os = "linux"))]
            (true, _, _) => Err(Failure::usage(
                "--tun needs Linux: only there are network namespaces",
            )),
            // The parser does not let this through.
            (false, _, _) => Err(Failure::usage("LISTEN and UPSTREAM are missing")),
        }
    }

    async fn run_udp(
        &self,
        listen: SocketAddr,
        upstream: SocketAddr,
        interrupt: Interrupt,
        printer: Printer,
    ) -> Result<Exit, Failure> {
        let mut config = RelayConfig::new(listen, upstream);
        (config.to_upstream, config.to_client) = self.links()?;
        config.seed = self.seed;
        config.max_clients = self.max_clients;
        let metrics = self.metrics.bind().await?;
        let mut relay = Relay::bind(config).map_err(|error| match &error {
            RelayError::Listen { address, error } => bind_failure(*address, error),
            _ => Failure::usage(error.to_string()),
        })?;
        printer.line(format_args!(
            "listening {} for {upstream}",
            relay.local_addr(),
        ));
        printer.record(&json!({
            "schema": "towline.listening/1",
            "address": relay.local_addr().to_string(),
            "upstream": upstream.to_string(),
            "seed": self.seed,
        }));
        let monitor = relay.monitor();
        let watched = monitor.clone();
        let _metrics = metrics.serve(printer, move |text| {
            let now = watched.counters();
            let queues = [now.to_upstream_queue_bytes, now.to_client_queue_bytes];
            let mut record = result_of(&now);
            record["clients_now"] = now.clients.into();
            fill(text, &mut record, queues);
        });
        let (result, counters) = self
            .relay(
                move |stop| {
                    let result = relay.run(stop);
                    (result, relay.counters())
                },
                || {
                    let now = monitor.counters();
                    let view = |stats, queue_bytes| LinkView { stats, queue_bytes };
                    [
                        view(now.to_upstream, now.to_upstream_queue_bytes),
                        view(now.to_client, now.to_client_queue_bytes),
                    ]
                },
                interrupt,
                printer,
            )
            .await?;
        summarise(&counters, printer);
        result.map_err(|error| {
            Failure::new(Exit::Other, format!("the relay's socket failed: {error}"))
        })?;
        Ok(Exit::Interrupted)
    }

    /// The links up and down.
    fn links(&self) -> Result<(LinkConfig, LinkConfig), Failure> {
        if let Some(both) = &self.both {
            let link = link("--both", Some(both))?;
            return Ok((link.clone(), link));
        }
        Ok((
            link("--up", self.up.as_deref())?,
            link("--down", self.down.as_deref())?,
        ))
    }

    /// Runs `work` on a thread of its own until it ends or Ctrl-C comes, reporting meanwhile what
    /// `look` sees of the links up and down.
    async fn relay<T: Send + 'static>(
        &self,
        work: impl FnOnce(&AtomicBool) -> (io::Result<()>, T) + Send + 'static,
        look: impl Fn() -> [LinkView; 2],
        mut interrupt: Interrupt,
        printer: Printer,
    ) -> Result<(io::Result<()>, T), Failure> {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let mut running = tokio::task::spawn_blocking(move || work(&stopped));
        let reporting = async {
            match self.interval {
                Some(interval) => report(interval, look, printer).await,
                None => std::future::pending().await,
            }
        };
        let ended = tokio::select! {
            ended = &mut running => ended,
            () = reporting => running.await,
            () = interrupt.wait() => {
                stop.store(true, Ordering::Relaxed);
                running.await
            }
        };
        ended.map_err(|error| Failure::new(Exit::Other, format!("the relay ended: {error}")))
    }
}

/// A row for each link every `interval`, for ever.
async fn report(interval: Duration, look: impl Fn() -> [LinkView; 2], printer: Printer) {
    let begun = Instant::now();
    let mut ticks = interval_at(begun + interval, interval);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let (mut last, mut last_at) = (look(), begun);
    loop {
        ticks.tick().await;
        let (at, now) = (Instant::now(), look());
        let seconds = at.saturating_duration_since(begun).as_secs_f64();
        let mut links = serde_json::Map::new();
        for (name, (now, last)) in ["up", "down"].into_iter().zip(now.iter().zip(&last)) {
            let delivered = now.stats.bytes_delivered - last.stats.bytes_delivered;
            let bytes_per_second = rate(delivered, at.saturating_duration_since(last_at));
            let drops = now.stats.drops.total() - last.stats.drops.total();
            let delay = mean_queue_delay(&now.stats, &last.stats);
            printer.line(format_args!(
                "{seconds:7.2} s  {name:<4} {:<15} queue {:<11} delay {:<10} dropped {drops}",
                BitRate(bytes_per_second).to_string(),
                Bytes(now.queue_bytes).to_string(),
                // An unmeasured value is a dash, never zero.
                delay.map_or("-".to_owned(), |delay| format!("{:.2} ms", delay * 1e3)),
            ));
            let mut link = record(&now.stats);
            link["queue_bytes"] = now.queue_bytes.into();
            link["bits_per_second"] = (bytes_per_second * 8.0).into();
            link["queue_delay"] = delay.into();
            links.insert(name.to_owned(), link);
        }
        printer.record(&json!({
            "schema": "towline.relay.interval/1",
            "seconds": seconds,
            "up": links["up"],
            "down": links["down"],
        }));
        (last, last_at) = (now, at);
    }
}

/// Seconds that what left the bottleneck since `last` waited for it, on average.
fn mean_queue_delay(now: &LinkStats, last: &LinkStats) -> Option<f64> {
    let left = now.datagrams_out - last.datagrams_out;
    let waited = now.queue_delay_total.saturating_sub(last.queue_delay_total);
    (left > 0).then(|| waited.as_secs_f64() / left as f64)
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
    print_link("up", "datagram", &counters.to_upstream, printer);
    print_link("down", "datagram", &counters.to_client, printer);
    let mut record = result_of(counters);
    record["schema"] = "towline.relay/1".into();
    printer.record(&record);
}

fn result_of(counters: &RelayCounters) -> Value {
    json!({
        "clients": counters.clients_total,
        "datagrams_refused": counters.datagrams_refused,
        "up": record(&counters.to_upstream),
        "down": record(&counters.to_client),
    })
}

/// A relay's record as metrics, with what waits in the links' queues up and down.
fn fill(text: &mut Exposition, record: &mut Value, queues: [u64; 2]) {
    for (link, bytes) in ["up", "down"].into_iter().zip(queues) {
        record[link]["queue_bytes"] = bytes.into();
    }
    let gauges = [
        "clients_now",
        "queue_bytes",
        "queue_peak_bytes",
        "queue_delay",
    ];
    text.record("relay", record, &gauges);
}

fn print_link(name: &str, unit: &str, link: &LinkStats, printer: Printer) {
    printer.line(format_args!(
        "{name:<4} in {} ({}), out {} ({}), dropped {}: loss {}, queue {}, aqm {}, blackout {}; marked CE {}, duplicated {}, reordered {}, corrupted {}",
        counted(link.datagrams_in, unit),
        Bytes(link.bytes_in),
        link.datagrams_delivered,
        Bytes(link.bytes_delivered),
        link.drops.total(),
        link.drops.loss,
        link.drops.queue,
        link.drops.aqm,
        link.drops.blackout,
        link.ce_marks,
        link.duplicated,
        link.reordered,
        link.corrupted,
    ));
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
        "ce_marks": link.ce_marks,
        "queue_peak_bytes": link.queue_peak_bytes,
        "datagrams_out": link.datagrams_out,
        "bytes_out": link.bytes_out,
        "queue_delay": mean_queue_delay(link, &LinkStats::default()),
    })
}
