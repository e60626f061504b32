//! `--prices`: what the engine's work for datagrams of no connection costs in time, to hold its units against.
//!
//! One server endpoint without a socket; each kind of datagram from ever new prefixes, ten
//! thousand times, in as many quarters of a second as its budget wants. Processor time, so that
//! other programs do not matter much. The loop drives the engine by hand: it is what is measured.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use nix::time::ClockId;
use towline::Time;
use towline::config::{self, ClientAuth, RetryPolicy, ServerConfig};
use towline::engine::{DatagramMeta, Endpoint, EndpointConfig, TrainBuf};

use crate::hello::{DATAGRAM, Template};
use crate::{Outcome, identity, options};

const TIMES: u32 = 10_000;
/// Datagrams that every budget bears in a quarter of a second.
const AT_ONCE: u32 = 500;

type Change = fn(&mut ServerConfig);

/// Prints nanoseconds and units of each kind.
pub(crate) fn print() -> Outcome {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let template = runtime.block_on(Template::capture())?;
    let hello =
        |n: u32| template.packet(&u64::from(n).wrapping_mul(0x9e37_79b9).to_be_bytes(), &[]);
    let garbage = |n: u32| {
        let mut packet = hello(n)?;
        packet[DATAGRAM - 1] ^= 1;
        Ok(packet)
    };
    let junk = |n: u32| {
        let mut packet = vec![0x41; 60];
        packet[1..5].copy_from_slice(&n.to_be_bytes());
        Ok(packet)
    };
    let version = |n: u32| {
        let mut packet = vec![0xc3, 0xba, 0xbe, 0xba, 0xba, 4];
        packet.extend_from_slice(&n.to_be_bytes());
        packet.resize(DATAGRAM, 0);
        Ok(packet)
    };
    let always: Change = |server| server.retry = RetryPolicy::Always;
    let full: Change = |server| server.max_connections = 0;
    price("Retry", always, &hello)?;
    price("Version Negotiation", always, &version)?;
    price("reset", always, &junk)?;
    price("opening", |_| (), &garbage)?;
    price("opening and refusal", full, &hello)?;
    Ok(())
}

fn price(name: &str, change: Change, make: &dyn Fn(u32) -> Outcome<Vec<u8>>) -> Outcome {
    let mut server = config::server(&identity()?, &ClientAuth::None, &options(0))?;
    change(&mut server);
    let engine = EndpointConfig::from_seed([3; 32]);
    let mut endpoint = Endpoint::new(engine, Some(Arc::new(server)));
    let datagrams: Vec<_> = (0..TIMES).map(make).collect::<Outcome<_>>()?;
    let mut buf = TrainBuf::new();
    let mut now = Time::from_nanos(1_000_000_000);
    let spent = || ClockId::CLOCK_THREAD_CPUTIME_ID.now().map(Duration::from);
    let began = spent()?;
    for (n, mut bytes) in (0..TIMES).zip(datagrams) {
        if n % AT_ONCE == 0 {
            now += Duration::from_millis(250);
        }
        let meta = DatagramMeta {
            remote: SocketAddr::from((Ipv4Addr::from(0x0a00_0001 + (n << 8)), 1000)),
            local_ip: None,
            ecn: None,
            stride: bytes.len(),
        };
        endpoint.handle_datagrams(now, meta, &mut bytes);
        while endpoint.poll_transmit(now, &mut buf).is_some() {}
    }
    let each = (spent()? - began) / TIMES;
    let units = endpoint.stats().stateless_work as f64 / f64::from(TIMES);
    println!("{name}: {} ns, {units:.1} units", each.as_nanos());
    Ok(())
}
