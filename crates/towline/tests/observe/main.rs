//! What observers of connections are told, and the qlog made of it: transfers in virtual time over a
//! link that loses two of a hundred datagrams.

#[path = "../common/mod.rs"]
mod common;
mod events;
mod http3;
mod qlog_files;
mod span;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use towline::Endpoint;
use towline::config::{self, ClientAuth, Identity, Trust};
use towline::engine::observe::ObserverFactory;
use towline::stats::{Total, Totals};
use towline::testing::{LinkConfig, LossModel, Sent, Simulation};

use common::options;

/// Bytes that the client sends.
const BYTES: usize = 1_000_000;

/// What a transfer came to, to the last packet: that of a connection's own statistics is before its
/// closing notice.
struct Outcome {
    trace: Vec<Sent>,
    client: Totals,
    server: Totals,
}

/// A counter of one end.
fn count(totals: &Totals, name: &str) -> u64 {
    match totals.iter().find(|(field, _)| field.name == name) {
        Some((_, Total::Sum(sum))) => sum,
        other => panic!("{name}: {other:?}"),
    }
}

/// A client sends [`BYTES`] to a server over 10 Mbit/s, 20 ms each way and 2 % loss, and closes.
fn transfer(seed: u64, observers: Option<Arc<dyn ObserverFactory>>) -> Outcome {
    let identity = Identity::generate_raw_key().unwrap();
    let trust = Trust::RawKeys(vec![identity.key_pin()]);
    let client_config = config::client(&trust, None, &options()).unwrap();
    let server_config = config::server(&identity, &ClientAuth::None, &options()).unwrap();
    let (here, there): (SocketAddr, SocketAddr) =
        (([192, 0, 2, 1], 1000).into(), ([192, 0, 2, 2], 443).into());
    let link = LinkConfig {
        rate: Some(10_000_000),
        delay: Duration::from_millis(20),
        loss: LossModel::Bernoulli(0.02),
        ..LinkConfig::default()
    };
    let mut world = Simulation::new(seed);
    world.join(here, there, link.clone(), link).unwrap();
    let builder = || match &observers {
        Some(observers) => Endpoint::builder().observers(Arc::clone(observers)),
        None => Endpoint::builder(),
    };
    let server = world
        .endpoint(builder().server(server_config), there)
        .unwrap();
    let client = world.endpoint(builder(), here).unwrap();
    let tasks = world.tasks();
    let (ours, theirs) = world.block_on(async move {
        let accepting = server.clone();
        tasks.spawn(async move {
            let connection = accepting.accept().await.unwrap();
            let mut stream = connection.accept_uni().await.unwrap();
            let got = stream.read_to_end(BYTES).await.unwrap();
            assert_eq!(got.len(), BYTES);
            connection.closed().await;
        });
        let connection = client
            .connect(there, "localhost", &client_config)
            .await
            .unwrap();
        let mut stream = connection.open_uni().await.unwrap();
        stream.write_all(&vec![7; BYTES]).await.unwrap();
        stream.finish().unwrap();
        stream.finished().await.unwrap();
        connection.close(0, b"done");
        client.wait_idle().await;
        server.wait_idle().await;
        (client.connection_totals(), server.connection_totals())
    });
    Outcome {
        trace: world.trace(),
        client: ours,
        server: theirs,
    }
}
