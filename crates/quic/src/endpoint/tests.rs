use std::sync::Arc;

use towline_testkit::{SERVER_NAME, TlsOptions, tls_pair};

use super::*;
use crate::config::{CidGenerator, EndpointConfig};

#[test]
fn a_full_endpoint_refuses_to_connect_and_sends_nothing() {
    let tls = tls_pair(1, &TlsOptions::default());
    let config = ClientConfig::new(Arc::clone(&tls.client));
    let mut endpoint = Endpoint::new(EndpointConfig::from_seed([1; 32]), None);
    let remote = "10.0.0.2:2000".parse().unwrap();
    let now = Time::from_nanos(1);
    // A million connections, as far as the counter knows.
    endpoint.stats.connections = MAX_CONNECTIONS - 1;
    assert!(endpoint.connect(now, &config, remote, SERVER_NAME).is_ok());
    assert_eq!(
        endpoint.connect(now, &config, remote, SERVER_NAME),
        Err(ConnectError::TooManyConnections)
    );
    assert_eq!(endpoint.slots.len(), 1);
}

#[test]
fn no_key_of_a_connection_tells_another() {
    let mut endpoint = Endpoint::new(EndpointConfig::from_seed([1; 32]), None);
    let remote = "10.0.0.2:2000".parse().unwrap();
    let mut prepare = || endpoint.prepare(remote, None, ConnectionId::EMPTY).unwrap();
    let (a, b) = (prepare(), prepare());
    let keys = [a.skip_key, a.challenge_key, b.skip_key, b.challenge_key];
    let different: std::collections::BTreeSet<u64> = keys.into_iter().collect();
    assert_eq!(different.len(), keys.len());
}

/// Connection IDs of one byte.
struct Tiny;

impl CidGenerator for Tiny {
    fn cid_len(&self) -> usize {
        1
    }

    fn generate(&mut self, random: &[u8]) -> ConnectionId {
        ConnectionId::new(random).unwrap()
    }
}

#[test]
fn an_endpoint_whose_ids_are_used_up_refuses_to_connect() {
    let tls = tls_pair(1, &TlsOptions::default());
    let config = ClientConfig::new(Arc::clone(&tls.client));
    let mut engine = EndpointConfig::from_seed([1; 32]);
    engine.cid_generator = Box::new(Tiny);
    let mut endpoint = Endpoint::new(engine, None);
    let remote = "10.0.0.2:2000".parse().unwrap();
    let now = Time::from_nanos(1);
    let mut connect = || endpoint.connect(now, &config, remote, SERVER_NAME);
    let made = (0..300).filter(|_| connect().is_ok()).count();
    assert!((128..=256).contains(&made), "{made}");
    assert_eq!(connect(), Err(ConnectError::TooManyConnections));
}
