//! What endpoints of the package are made of.

use std::io;

use towline::config::TransportConfig;
use towline::handles::Sessions;
use towline::io::{Shard, Socket};
use towline::webtransport::Config;
use towline::{Endpoint, EndpointBuilder};

use crate::certificate::Certificate;
use crate::errors::Failure;
use crate::transport::Transport;

/// On a socket of the system's, or on a simulated one.
pub(crate) type AnyShard = Shard<Box<dyn Socket>, Sessions>;
/// An endpoint that was made, and its shards.
pub(crate) type Made = (Endpoint, Vec<AnyShard>);

/// The endpoint and the one shard that it has here.
pub(crate) fn the_shard((endpoint, mut shards): Made) -> io::Result<(Endpoint, AnyShard)> {
    let shard = shards.pop();
    Ok((
        endpoint,
        shard.ok_or_else(|| io::Error::other("an endpoint has a shard"))?,
    ))
}

/// Streams that one session may have open at a client: a connection carries that one alone, and its own
/// limit counts.
const ANY_STREAMS: u64 = 1 << 20;

/// An endpoint that takes clients if it has a certificate: for sessions, and requests where it takes
/// them, or, with `alpn`, for connections of these protocols.
pub(crate) fn endpoint(
    certificate: Option<&Certificate>,
    alpn: Option<Vec<Vec<u8>>>,
    transport: Option<&Transport>,
    takes_requests: bool,
) -> Result<EndpointBuilder, Failure> {
    let settings = match transport {
        Some(transport) => transport.config()?,
        None => TransportConfig::default(),
    };
    let mut sessions = Config {
        takes_requests,
        ..Config::default()
    };
    let limits = &mut sessions.sessions;
    match certificate {
        None => {
            limits.initial_max_streams_bidi = ANY_STREAMS;
            limits.initial_max_streams_uni = ANY_STREAMS;
        }
        Some(_) => {
            limits.initial_max_streams_bidi = settings.max_concurrent_bidi_streams;
            limits.initial_max_streams_uni = settings.max_concurrent_uni_streams;
        }
    }
    let speaks_http3 = alpn.is_none();
    let mut builder = Endpoint::builder();
    if let Some(certificate) = certificate {
        builder = builder.server(certificate.server_config(alpn, settings)?);
    }
    Ok(match speaks_http3 {
        true => builder.webtransport(sessions),
        false => builder,
    })
}
