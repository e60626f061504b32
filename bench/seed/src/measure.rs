//! The measurements: over real sockets on this machine, and on virtual time.

#[expect(unreachable_pub, reason = "the same file is a bench of crates/towline")]
#[path = "../../../crates/towline/benches/seed/loopback.rs"]
mod loopback;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use bytes::Bytes;
use tokio::task::JoinSet;
use towline::config::TransportConfig;
use towline_lab::shapes::{PATHS, Path, Played, SHAPES, Shape, play, transfer};
use towline_relay::{LinkConfig, Relay, RelayConfig};

use crate::published::{MESSAGE_SIZES, PRODUCTION, Production};
use loopback::{Failure, Loopback};

/// How long a connection is saturated.
const SATURATE: Duration = Duration::from_secs(2);

/// Connections at once in the row of four.
const FOUR: usize = 4;

/// One way of the path with a delay.
const ONE_WAY: Duration = Duration::from_millis(1);

/// The controllers of the long transfers, the default first.
pub(crate) const CONTROLLERS: [&str; 4] = ["cubic", "newreno", "bbr", "ledbat++"];

/// Rate of the path of the long transfers, bits a second: theirs is not known.
pub(crate) const LONG_RATE: u64 = 100_000_000;

/// What several rounds gave.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Spread {
    pub(crate) low: f64,
    pub(crate) median: f64,
    pub(crate) high: f64,
}

impl Spread {
    /// Of at least one value.
    pub(crate) fn of(mut values: Vec<f64>) -> Option<Self> {
        values.sort_by(f64::total_cmp);
        Some(Self {
            low: *values.first()?,
            median: *values.get(values.len() / 2)?,
            high: *values.last()?,
        })
    }
}

/// A shape from nothing: seconds.
pub(crate) struct Cold {
    pub(crate) shape: Shape,
    /// Over real sockets, connection set-up included.
    pub(crate) whole: Spread,
    /// The same without the set-up.
    pub(crate) after_handshake: Spread,
    /// On virtual time, one for each of `PATHS`.
    pub(crate) played: Vec<(Path, Played)>,
}

/// What established connections do over one network.
pub(crate) struct Warm {
    /// Seconds to a connection.
    pub(crate) establish: Spread,
    /// Seconds for the first message of a new connection, by size.
    pub(crate) messages: Vec<(usize, Spread)>,
    /// Seconds for a hundred messages of 1 KiB, one after the other.
    pub(crate) hundred: Spread,
    /// Smallest smoothed round trip that a connection saw, seconds.
    pub(crate) rtt: f64,
}

/// Bits a second of connections that send all they can.
pub(crate) struct Saturated {
    pub(crate) one: Spread,
    pub(crate) four: Spread,
}

/// One long transfer on virtual time, with each controller that this build has.
pub(crate) struct Long {
    pub(crate) published: &'static Production,
    pub(crate) played: Vec<(&'static str, Played)>,
}

/// Where the real connections run.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Network {
    /// Two sockets of the loopback interface.
    Loopback,
    /// The same with `towline-relay` between them: 1 ms each way.
    Relay,
}

pub(crate) async fn cold(rounds: usize, seed: u64) -> Result<Vec<Cold>, Failure> {
    let mut all = Vec::new();
    for shape in SHAPES {
        let ends = Loopback::new(TransportConfig::default().rate_limit(shape.rate_limit))?;
        let data = zeros(shape.bytes as usize);
        let (mut wholes, mut afters) = (Vec::new(), Vec::new());
        for _ in 0..rounds {
            let (connected, whole) = ends.connect_and_send(shape.streams, &data).await?;
            wholes.push(whole.as_secs_f64());
            afters.push((whole - connected).as_secs_f64());
        }
        let mut played = Vec::new();
        for path in PATHS {
            played.push((path, play(&shape, &path, seed)?));
        }
        all.push(Cold {
            shape,
            whole: spread(wholes)?,
            after_handshake: spread(afters)?,
            played,
        });
    }
    Ok(all)
}

pub(crate) async fn warm(network: Network, rounds: usize) -> Result<Warm, Failure> {
    let mut ends = Loopback::new(TransportConfig::default())?;
    let relay = match network {
        Network::Loopback => None,
        Network::Relay => Some(Between::start(ends.to)?),
    };
    if let Some(relay) = &relay {
        ends.to = relay.address;
    }
    let mut establish = Vec::new();
    let mut rtt = f64::INFINITY;
    let mut messages = Vec::new();
    for size in MESSAGE_SIZES {
        let data = zeros(size);
        let mut times = Vec::new();
        for _ in 0..rounds {
            let begin = Instant::now();
            let pair = ends.connect().await?;
            establish.push(begin.elapsed().as_secs_f64());
            times.push(pair.send(1, &data).await?.as_secs_f64());
            rtt = rtt.min(pair.near.rtt().as_secs_f64());
            pair.near.close(0, b"");
        }
        messages.push((size, spread(times)?));
    }
    let data = zeros(1 << 10);
    let mut hundreds = Vec::new();
    for _ in 0..rounds {
        let pair = ends.connect().await?;
        let begin = Instant::now();
        for _ in 0..100 {
            pair.send(1, &data).await?;
        }
        hundreds.push(begin.elapsed().as_secs_f64());
        pair.near.close(0, b"");
    }
    Ok(Warm {
        establish: spread(establish)?,
        messages,
        hundred: spread(hundreds)?,
        rtt,
    })
}

pub(crate) async fn saturated(rounds: usize) -> Result<Saturated, Failure> {
    let ends = Loopback::new(TransportConfig::default())?;
    let mut rates = [Vec::new(), Vec::new()];
    for _ in 0..rounds {
        for (count, rates) in [1, FOUR].into_iter().zip(&mut rates) {
            let mut all = JoinSet::new();
            for _ in 0..count {
                let pair = ends.connect().await?;
                all.spawn(async move { pair.saturate(SATURATE).await });
            }
            let mut bytes = 0;
            while let Some(read) = all.join_next().await {
                bytes += read??;
            }
            rates.push(bytes as f64 * 8.0 / SATURATE.as_secs_f64());
        }
    }
    let [one, four] = rates;
    Ok(Saturated {
        one: spread(one)?,
        four: spread(four)?,
    })
}

pub(crate) fn long(seed: u64) -> Result<Vec<Long>, Failure> {
    let mut all = Vec::new();
    for published in &PRODUCTION {
        let path = Path {
            name: "production",
            rate: LONG_RATE,
            rtt: Duration::from_millis(published.rtt_ms),
        };
        let mut played = Vec::new();
        for name in CONTROLLERS {
            // A controller that this build does not have has no column.
            if let Ok(congestion) = name.parse() {
                played.push((name, transfer(published.bytes, congestion, &path, seed)?));
            }
        }
        all.push(Long { published, played });
    }
    Ok(all)
}

fn zeros(len: usize) -> Bytes {
    Bytes::from(vec![0; len])
}

fn spread(values: Vec<f64>) -> Result<Spread, Failure> {
    Spread::of(values).ok_or_else(|| "at least one round is needed".into())
}

/// A relay on a thread of its own; it ends when this is dropped.
struct Between {
    address: SocketAddr,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Between {
    fn start(server: SocketAddr) -> Result<Self, Failure> {
        let link = LinkConfig {
            delay: ONE_WAY,
            ..LinkConfig::default()
        };
        let listen = SocketAddr::from(([127, 0, 0, 1], 0));
        let mut relay = Relay::bind(RelayConfig::new(listen, server).with_link(link))?;
        let address = relay.local_addr();
        let stop = Arc::new(AtomicBool::new(false));
        let told = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            if let Err(error) = relay.run(&told) {
                eprintln!("bench-seed: the relay ended: {error}");
            }
        });
        Ok(Self {
            address,
            stop,
            thread: Some(thread),
        })
    }
}

impl Drop for Between {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // It prints why it ended, if not for this.
            let _ = thread.join();
        }
    }
}
