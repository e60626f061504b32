//! `towline relay`: stands between two real programs and behaves like a bad network.
//!
//! Owns the flags and the form for UDP between addresses; [`tun`] is the one for all of IP between
//! network namespaces, and both run and report their [`links`] alike. The relays are the library's.

mod links;
#[cfg(target_os = "linux")]
mod tun;

use std::net::SocketAddr;

use serde_json::{Value, json};
use towline_relay::{Relay, RelayConfig, RelayCounters, RelayError};

use self::links::{LinkArgs, LinkView, fill, print_link, print_nat, record};

use crate::exit::{Exit, Failure};
use crate::failures::bind_failure;
use crate::interrupt::Interrupt;
use crate::printer::Printer;
use crate::units::counted;

/// Flags of `relay`.
#[derive(clap::Args)]
#[command(
    after_help = "A SPEC is a list such as rate=100mbit,delay=50ms,jitter=2ms,queue=64kb,aqm=codel,ecn=on,police=5mbit:32kb,loss=2%,reorder=1%,dup=0.5%,corrupt=0.1%,mtu=1400,blackout=5s+5s (start + length), with steps=0s:50mbit;20s:10mbit in place of rate where it changes, and mtu=1452;5s:1200 for an MTU that does: a smaller one is a black hole.

The NAT of --nat forgets its mappings: what comes from the server is dropped until the client sends, which gets it another port (change=port), another address (change=address) or the same again (change=same). It does so at given times (rebind=5s;9s), again and again (every=2s), or after silence (idle=30s). All times count from the relay's start.

With --tun the relay joins two network namespaces and carries every IP packet (TCP, UDP, ICMP) between them, on Linux, as root:
    towline relay --tun --create --both rate=20mbit,delay=20ms,queue=100kb
    ip netns exec towline-server SERVER        it has 10.77.2.2 and fd77:2::2
    ip netns exec towline-client CLIENT        it has 10.77.1.2 and fd77:1::2
Sizes in a SPEC are then those of whole IP packets; a packet with a corrupted bit is mostly refused by the receiving kernel, which looks like loss, unless mend=on makes its checksums right. Only this form carries ECN marks, rewrites ECN bits (remark=bleach, ect0, ect1 or ce), and tells senders of packets beyond the mtu (icmp=on)."
)]
pub(crate) struct RelayArgs {
    /// Address and port for the clients; port 0 picks a free one
    #[arg(value_name = "LISTEN", required_unless_present = "tun")]
    listen: Option<SocketAddr>,
    /// Address and port of the server
    #[arg(value_name = "UPSTREAM", required_unless_present = "tun")]
    upstream: Option<SocketAddr>,
    #[command(flatten)]
    links: LinkArgs,
    /// Clients served at once
    #[arg(long, value_name = "N", default_value_t = towline_relay::DEFAULT_MAX_CLIENTS)]
    max_clients: usize,
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
}

impl RelayArgs {
    /// Relays until Ctrl-C.
    pub(crate) async fn run(self, printer: Printer) -> Result<Exit, Failure> {
        self.links.check()?;
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
            (true, _, _) => {
                let namespaces = [self.client_ns.as_deref(), self.server_ns.as_deref()];
                tun::run(&self.links, namespaces, self.create, interrupt, printer).await
            }
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
        (config.to_upstream, config.to_client) = self.links.configs()?;
        config.nat = self.links.nat()?;
        config.seed = self.links.seed;
        config.max_clients = self.max_clients;
        let metrics = self.links.metrics.bind().await?;
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
            "seed": self.links.seed,
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
            .links
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
}

fn summarise(counters: &RelayCounters, printer: Printer) {
    printer.line(format_args!(
        "{} served",
        counted(counters.clients_total, "client")
    ));
    print_nat(
        counters.rebindings,
        counters.datagrams_unmapped,
        "datagram",
        printer,
    );
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
        "rebindings": counters.rebindings,
        "datagrams_unmapped": counters.datagrams_unmapped,
        "up": record(&counters.to_upstream),
        "down": record(&counters.to_client),
    })
}
