//! `towline perf server`: an endpoint that does nothing but measure with its clients.

use std::net::SocketAddr;
use std::sync::Arc;

use serde_json::json;
use tokio::sync::mpsc;
use towline::Endpoint;
use towline::io::MAX_SHARDS;

use super::control::HostRecord;
use super::host::PerfHost;
use super::tune::TuneArgs;
use crate::exit::{Exit, Failure};
use crate::interrupt::Interrupt;
use crate::metrics::{self, MetricsArgs};
use crate::net::{ListenArgs, options};
use crate::printer::Printer;
use crate::service::{Service, run_until_interrupted};
use crate::stats;
use crate::units::Bytes;

/// Flags of `perf server`.
#[derive(clap::Args)]
pub(super) struct ServerArgs {
    /// Address and port to listen on; port 0 picks a free one
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:4433")]
    listen: SocketAddr,
    /// Endpoint shards, 1 to 64, to use as many cores: each has its own socket on the port and
    /// its share of the connections. One connection uses one shard
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=MAX_SHARDS as i64))]
    shards: u8,
    #[command(flatten)]
    tune: TuneArgs,
    #[command(flatten)]
    network: ListenArgs,
    #[command(flatten)]
    metrics: MetricsArgs,
}

impl ServerArgs {
    /// Measures with whoever comes, until Ctrl-C.
    pub(super) async fn run(self, printer: Printer) -> Result<Exit, Failure> {
        let interrupt = Interrupt::install(printer);
        let (received, ends) = mpsc::unbounded_channel();
        let mut service = Service::new(printer, interrupt, received);
        let mut options = options(self.network.idle_timeout, &self.network.congestion);
        self.tune.apply(&mut options);
        let metrics = self.metrics.bind().await?;
        let listening = self.network.listen_on_shards(
            self.listen,
            &options,
            usize::from(self.shards),
            printer,
        )?;
        let endpoint = listening.endpoint.clone();
        service.perf = Some(PerfHost::new(
            endpoint.clone(),
            self.network.congestion.name(),
        ));
        let url = listening.url();
        printer.line(format_args!("listening {}", endpoint.local_addr()));
        printer.line(format_args!("  towline perf client '{url}'"));
        let socket = HostRecord::new(&endpoint, self.network.congestion.name());
        printer.line(&socket);
        printer.record(&json!({
            "schema": "towline.listening/1",
            "address": endpoint.local_addr().to_string(),
            "url": url.to_string(),
            "host": socket,
        }));
        let _metrics = metrics.serve(printer, metrics::endpoint(endpoint.clone()));
        run_until_interrupted(Arc::new(service), endpoint.clone(), ends, |_| false).await;
        if self.shards > 1 {
            print_shards(&endpoint, printer);
        }
        Ok(Exit::Interrupted)
    }
}

/// What each shard did, at the end.
fn print_shards(endpoint: &Endpoint, printer: Printer) {
    let shards: Vec<_> = endpoint
        .shard_stats()
        .into_iter()
        .enumerate()
        .map(|(index, shard)| {
            printer.line(format_args!(
                "shard {index}: {} connections, {} refused, {} Retry, {} in, {} out, {} datagrams handed over",
                shard.engine.admitted,
                shard.engine.refused,
                shard.engine.retries,
                Bytes(shard.socket.bytes_received),
                Bytes(shard.socket.bytes_sent),
                shard.socket.datagrams_handed_over,
            ));
            json!({
                "connections": shard.engine.admitted,
                "refused": shard.engine.refused,
                "refusals": shard.engine.refusals,
                "invalid_tokens": shard.engine.invalid_tokens,
                "retries": shard.engine.retries,
                "version_negotiations": shard.engine.version_negotiations,
                "resets": shard.engine.resets,
                "unroutable": shard.engine.unroutable,
                "over_budget": shard.engine.over_budget,
                "stateless_work": shard.engine.stateless_work,
                "bytes_received": shard.socket.bytes_received,
                "bytes_sent": shard.socket.bytes_sent,
                "datagrams_handed_over": shard.socket.datagrams_handed_over,
                "engine": stats::record(&shard.engine),
                "socket": stats::record(&shard.socket),
            })
        })
        .collect();
    printer.record(&json!({ "schema": "towline.shards/1", "shards": shards }));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_help_of_shards_names_their_range() {
        use clap::Args;
        let command = ServerArgs::augment_args(clap::Command::new("server"));
        let shards = command.get_arguments().find(|arg| arg.get_id() == "shards");
        let help = shards.and_then(|arg| arg.get_help()).unwrap().to_string();
        assert!(help.contains(&format!("1 to {MAX_SHARDS}")), "{help}");
    }
}
