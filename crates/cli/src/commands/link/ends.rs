//! The two ends of a link as commands make them: raw keys on both sides, each pinned by the other.

use std::net::SocketAddr;

use towline::config::{self, ClientAuth, Identity, Trust};
use towline::identity::{KeyPin, Pin};
use towline::link::{Dialer, Fallback, Listener, options};
use towline::{Endpoint, stcp};
use towline_link::carriage::SHORT_CID;

use crate::certs::CertArgs;
use crate::exit::{Exit, Failure};
use crate::failures::bind_failure;
use crate::net::reset_key;
use crate::printer::Printer;
use crate::url::Url;

/// The key that shows who we are, made at the first use.
pub(super) fn identity(printer: Printer) -> Result<Identity, Failure> {
    let ours = CertArgs {
        raw_key: true,
        ..CertArgs::default()
    };
    Ok(ours.serving(printer)?.identity)
}

/// The keys that a URL and what stands beside it believe.
pub(super) fn keys(url: &Url, more: &[KeyPin]) -> Result<Vec<KeyPin>, Failure> {
    let in_url = url.pins.iter().filter_map(|pin| match pin {
        Pin::Key(pin) => Some(*pin),
        Pin::Certificate(_) => None,
    });
    let keys: Vec<KeyPin> = in_url.chain(more.iter().copied()).collect();
    match keys.is_empty() {
        false => Ok(keys),
        true => Err(Failure::usage(format!(
            "{url} has no key: who answers there could be anybody"
        ))
        .next("append #sha256/… as `towline link keygen` prints it at the other end")),
    }
}

/// How to reach the end at `url`.
pub(super) fn dialer(
    url: &Url,
    keys: Vec<KeyPin>,
    fallback: bool,
    printer: Printer,
) -> Result<Dialer, Failure> {
    let identity = identity(printer)?;
    let trust = Trust::RawKeys(keys);
    let refused = |error: config::ConfigError| Failure::new(Exit::Tls, error.to_string());
    let client = config::client(&trust, Some(&identity), &options()).map_err(refused)?;
    let dialer = Dialer::new(url.host.clone(), url.port, client);
    if !fallback {
        return Ok(dialer);
    }
    let tls = stcp::client_config(&trust, Some(&identity), &tls_options());
    Ok(dialer.fallback(Fallback::Tls(tls.map_err(refused)?)))
}

/// A service that speaks something else over TLS is not taken for this one.
fn tls_options() -> stcp::Options {
    stcp::Options::default().alpn(stcp::Alpn::Required)
}

/// Listens for senders with these keys, or for all.
pub(super) async fn listener(
    address: SocketAddr,
    clients: &[KeyPin],
    with_tls: bool,
    printer: Printer,
) -> Result<(Listener, KeyPin), Failure> {
    let identity = identity(printer)?;
    let clients = match clients {
        [] => ClientAuth::None,
        keys => ClientAuth::RawKeys(keys.to_vec()),
    };
    let refused = |error: config::ConfigError| Failure::new(Exit::Tls, error.to_string());
    let server = config::server(&identity, &clients, &options()).map_err(refused)?;
    // The way back is short: a server's own connection IDs go with every packet of the boat.
    let endpoint = Endpoint::builder().server(server).cid_len(SHORT_CID);
    // A boat notices at once that a shore has restarted.
    let endpoint = match address.port() {
        0 => endpoint,
        _ => endpoint.reset_key(reset_key(&identity, address)),
    };
    let endpoint = endpoint
        .bind(address)
        .map_err(|error| bind_failure(address, &error))?;
    let tls = match with_tls {
        false => None,
        true => {
            let config =
                stcp::server_config(&identity, &clients, &tls_options()).map_err(refused)?;
            let listening = stcp::listen(endpoint.local_addr(), config).await;
            Some(listening.map_err(|error| {
                Failure::new(
                    Exit::Other,
                    format!("TCP {}: {error}", endpoint.local_addr()),
                )
                .next("choose another port, or switch TLS off")
            })?)
        }
    };
    Ok((Listener::new(endpoint, tls), identity.key_pin()))
}

/// A number that nobody can guess.
pub(super) fn random_u64() -> Result<u64, Failure> {
    let seed = towline::io::random_seed()
        .map_err(|error| Failure::new(Exit::Other, format!("no random numbers: {error}")))?;
    let (number, _) = seed.split_first_chunk().unwrap_or((&[0; 8], &[]));
    Ok(u64::from_be_bytes(*number))
}
