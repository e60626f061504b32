//! `towline relay --tun`: all of IP between two network namespaces.

use serde_json::{Value, json};
use towline_relay::tun::{
    CLIENT_ADDRESSES, DEFAULT_CLIENT_NAMESPACE, DEFAULT_SERVER_NAMESPACE, DEVICE_NAME,
    SERVER_ADDRESSES, TunConfig, TunCounters, TunError, TunRelay,
};

use super::links::{LinkArgs, LinkView, fill, print_link, print_nat, record};
use crate::exit::{Exit, Failure};
use crate::interrupt::Interrupt;
use crate::printer::Printer;
use crate::units::counted;

/// Relays between the namespaces of client and server until Ctrl-C; with `create` it makes them.
pub(super) async fn run(
    links: &LinkArgs,
    [client, server]: [Option<&str>; 2],
    create: bool,
    interrupt: Interrupt,
    printer: Printer,
) -> Result<Exit, Failure> {
    let (to_server, to_client) = links.configs()?;
    let client_namespace = client.unwrap_or(DEFAULT_CLIENT_NAMESPACE).to_owned();
    let server_namespace = server.unwrap_or(DEFAULT_SERVER_NAMESPACE).to_owned();
    let metrics = links.metrics.bind().await?;
    let mut relay = TunRelay::open(&TunConfig {
        client_namespace: client_namespace.clone(),
        server_namespace: server_namespace.clone(),
        create,
        to_server,
        to_client,
        nat: links.nat()?,
        seed: links.seed,
    })
    .map_err(|error| failure(&error))?;
    let ends = [
        ("client", &client_namespace, CLIENT_ADDRESSES),
        ("server", &server_namespace, SERVER_ADDRESSES),
    ];
    for (name, namespace, addresses) in &ends {
        printer.line(format_args!(
            "{name}: {} and {} in namespace {namespace}; ip netns exec {namespace} PROGRAM",
            addresses.v4, addresses.v6,
        ));
    }
    let [client, server] = ends.map(|(_, namespace, addresses)| {
        json!({
            "namespace": namespace,
            "ipv4": addresses.v4.to_string(),
            "ipv6": addresses.v6.to_string(),
        })
    });
    printer.record(&json!({
        "schema": "towline.tun/1",
        "device": DEVICE_NAME,
        "client": client,
        "server": server,
        "seed": links.seed,
    }));
    let monitor = relay.monitor();
    let watched = monitor.clone();
    let _metrics = metrics.serve(printer, move |text| {
        let now = watched.counters();
        let queues = [now.to_server_queue_bytes, now.to_client_queue_bytes];
        fill(text, &mut result_of(&now), queues);
    });
    // Devices and namespaces go with `work`, so before the summary.
    let work = move |stop: &_| {
        let result = relay.run(stop);
        (result, relay.counters())
    };
    let look = || {
        let now = monitor.counters();
        let view = |stats, queue_bytes| LinkView { stats, queue_bytes };
        [
            view(now.to_server, now.to_server_queue_bytes),
            view(now.to_client, now.to_client_queue_bytes),
        ]
    };
    let (result, counters) = links.relay(work, look, interrupt, printer).await?;
    summarise(&counters, printer);
    result.map_err(|error| {
        Failure::new(Exit::Other, format!("the relay's device failed: {error}"))
    })?;
    Ok(Exit::Interrupted)
}

fn summarise(counters: &TunCounters, printer: Printer) {
    print_nat(
        counters.rebindings,
        counters.packets_unmapped,
        "packet",
        printer,
    );
    print_link("up", "packet", &counters.to_server, printer);
    print_link("down", "packet", &counters.to_client, printer);
    if counters.lost_before_link > 0 {
        printer.line(format_args!(
            "{} lost before the links: the relay could not keep up",
            counted(counters.lost_before_link, "packet"),
        ));
    }
    let mut record = result_of(counters);
    record["schema"] = "towline.relay.tun/1".into();
    printer.record(&record);
}

fn result_of(counters: &TunCounters) -> Value {
    json!({
        "not_forwarded": counters.not_forwarded,
        "send_failures": counters.send_failures,
        "lost_before_link": counters.lost_before_link,
        "rebindings": counters.rebindings,
        "packets_unmapped": counters.packets_unmapped,
        "too_big_told": counters.too_big_told,
        "up": record(&counters.to_server),
        "down": record(&counters.to_client),
    })
}

/// Whose fault it is, and the next step.
fn failure(error: &TunError) -> Failure {
    let (exit, next) = match error {
        TunError::Link { .. }
        | TunError::Nat(_)
        | TunError::Name { .. }
        | TunError::SameNamespace { .. } => {
            return Failure::usage(error.to_string());
        }
        TunError::NoSuchNamespace { name } => (
            Exit::Usage,
            format!("make it with `ip netns add {name}`, or let the relay make both with --create"),
        ),
        TunError::NamespacesExist { names } => {
            let remove: Vec<String> = names.iter().map(|n| format!("ip netns del {n}")).collect();
            (
                Exit::Usage,
                format!(
                    "if a killed relay left them, remove them with `{}`; or use them without --create",
                    remove.join("; "),
                ),
            )
        }
        TunError::DeviceExists { .. } => (
            Exit::Usage,
            "end the other relay, or name other namespaces with --client-ns and --server-ns"
                .to_owned(),
        ),
        TunError::NotPermitted { .. } => (
            Exit::Other,
            "run it with sudo; the form `towline relay LISTEN UPSTREAM` for UDP needs no rights"
                .to_owned(),
        ),
        TunError::NoTun => (Exit::Other, "`modprobe tun` loads it".to_owned()),
        TunError::NoIpProgram => (
            Exit::Other,
            "install the package iproute2 (or iproute)".to_owned(),
        ),
        TunError::Ip { .. } | TunError::System { .. } => {
            return Failure::new(Exit::Other, error.to_string());
        }
    };
    Failure::new(exit, error.to_string()).next(next)
}
