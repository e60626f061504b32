//! The two links of a relay: their flags, running over them until Ctrl-C, and what is said of them.
//!
//! Common to both forms of `towline relay`; it knows neither.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::{Instant, MissedTickBehavior, interval_at};
use towline_relay::{LinkConfig, LinkConfigError, LinkStats, NatConfig};

use crate::exit::{Exit, Failure};
use crate::interrupt::Interrupt;
use crate::metrics::{Exposition, MetricsArgs};
use crate::printer::Printer;
use crate::units::{BitRate, Bytes, counted, parse_positive_duration, rate};

/// Flags of both forms.
#[derive(clap::Args)]
pub(super) struct LinkArgs {
    /// The link from the clients to the server
    #[arg(long, value_name = "SPEC")]
    up: Option<String>,
    /// The link from the server to the clients
    #[arg(long, value_name = "SPEC")]
    down: Option<String>,
    /// The same link in both directions
    #[arg(long, value_name = "SPEC", conflicts_with_all = ["up", "down"])]
    both: Option<String>,
    /// A NAT before the clients that forgets its mappings, such as every=10s,change=port
    #[arg(long, value_name = "NAT")]
    nat: Option<String>,
    /// The links' random choices repeat with the same seed
    #[arg(long, default_value_t = 0)]
    pub(super) seed: u64,
    /// Report both links this often, 100ms or more
    #[arg(short = 'i', long, value_name = "TIME", value_parser = parse_positive_duration)]
    interval: Option<Duration>,
    #[command(flatten)]
    pub(super) metrics: MetricsArgs,
}

/// What both relays count of one link.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct LinkView {
    pub(super) stats: LinkStats,
    pub(super) queue_bytes: u64,
}

impl LinkArgs {
    /// What the parser cannot check.
    pub(super) fn check(&self) -> Result<(), Failure> {
        if self
            .interval
            .is_some_and(|interval| interval < Duration::from_millis(100))
        {
            return Err(Failure::usage("--interval must be at least 100 ms"));
        }
        Ok(())
    }

    /// The links up and down.
    pub(super) fn configs(&self) -> Result<(LinkConfig, LinkConfig), Failure> {
        if let Some(both) = &self.both {
            let link = link("--both", Some(both))?;
            return Ok((link.clone(), link));
        }
        Ok((
            link("--up", self.up.as_deref())?,
            link("--down", self.down.as_deref())?,
        ))
    }

    /// The NAT before the clients.
    pub(super) fn nat(&self) -> Result<NatConfig, Failure> {
        let nat = self
            .nat
            .as_deref()
            .map_or(Ok(NatConfig::default()), str::parse);
        nat.map_err(|error: LinkConfigError| {
            let problem = format!("--nat: `{}` {}", error.item(), error.problem());
            Failure::usage(problem).next("see `towline relay --help` for what a NAT may hold")
        })
    }

    /// Runs `work` on a thread of its own until it ends or Ctrl-C comes, reporting meanwhile what
    /// `look` sees of the links up and down.
    pub(super) async fn relay<T: Send + 'static>(
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

/// A relay's record as metrics, with what waits in the links' queues up and down.
pub(super) fn fill(text: &mut Exposition, record: &mut Value, queues: [u64; 2]) {
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

/// What the NAT did as a line, if it did anything.
pub(super) fn print_nat(rebindings: u64, unmapped: u64, unit: &str, printer: Printer) {
    if rebindings > 0 || unmapped > 0 {
        printer.line(format_args!(
            "NAT: {}, {} dropped without a mapping",
            counted(rebindings, "rebinding"),
            counted(unmapped, unit),
        ));
    }
}

/// One link's counters as a line.
pub(super) fn print_link(name: &str, unit: &str, link: &LinkStats, printer: Printer) {
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

/// One link's counters for programs.
pub(super) fn record(link: &LinkStats) -> Value {
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
        "ecn_rewritten": link.ecn_rewritten,
        "queue_peak_bytes": link.queue_peak_bytes,
        "datagrams_out": link.datagrams_out,
        "bytes_out": link.bytes_out,
        "queue_delay": mean_queue_delay(link, &LinkStats::default()),
    })
}
