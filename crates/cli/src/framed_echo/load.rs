//! Many clients of an echo server, and how long their answers take.

use std::future::Future;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::Barrier;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::{Client, Latencies};

/// Pause between attempts to connect again.
const PAUSE: Duration = Duration::from_millis(100);

/// Makes connections to one server.
pub trait Connect: Clone + Send + 'static {
    /// A connection.
    type Stream: AsyncRead + AsyncWrite + Unpin + Send;

    /// Makes one.
    fn connect(&self) -> impl Future<Output = io::Result<Self::Stream>> + Send;
}

/// What is asked for.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Connections, each with one request under way.
    pub clients: usize,
    /// Bytes of each payload.
    pub payload: usize,
    /// How long, from the moment when all are connected.
    pub duration: Duration,
}

/// What was measured.
#[derive(Clone, Debug)]
pub struct Load {
    /// From each request to its answer.
    pub latencies: Latencies,
    /// Connections that did not come about.
    pub connect_errors: u64,
    /// Requests without the right answer.
    pub errors: u64,
}

impl Load {
    fn new() -> Self {
        Self {
            latencies: Latencies::new(),
            connect_errors: 0,
            errors: 0,
        }
    }

    fn add(&mut self, other: &Self) {
        self.latencies.merge(&other.latencies);
        self.connect_errors += other.connect_errors;
        self.errors += other.errors;
    }
}

/// Runs all clients to the end.
pub async fn load(connect: impl Connect, plan: Plan) -> Load {
    let all_there = Arc::new(Barrier::new(plan.clients));
    let mut clients = JoinSet::new();
    for _ in 0..plan.clients {
        clients.spawn(client(connect.clone(), plan, Arc::clone(&all_there)));
    }
    let mut all = Load::new();
    while let Some(ended) = clients.join_next().await {
        match ended {
            Ok(load) => all.add(&load),
            Err(_) => all.errors += 1,
        }
    }
    all
}

/// One client: connects, waits for the others, and asks until the time is over.
async fn client(connect: impl Connect, plan: Plan, all_there: Arc<Barrier>) -> Load {
    let mut load = Load::new();
    let mut connection = connect.connect().await;
    all_there.wait().await;
    let mut now = Instant::now();
    let end = now + plan.duration;
    while now < end {
        match connection {
            Ok(stream) => {
                let mut client = Client::new(stream, plan.payload);
                match ask(&mut client, end, &mut load).await {
                    // How it ends is not measured.
                    Ok(()) => drop(client.finish().await),
                    Err(error) => {
                        load.errors += 1;
                        tracing::warn!("an exchange failed: {error}");
                    }
                }
            }
            Err(error) => {
                load.connect_errors += 1;
                tracing::warn!("no connection: {error}");
                tokio::time::sleep(PAUSE).await;
            }
        }
        now = Instant::now();
        if now >= end {
            break;
        }
        connection = connect.connect().await;
        now = Instant::now();
    }
    load
}

async fn ask<S: AsyncRead + AsyncWrite + Unpin>(
    client: &mut Client<S>,
    end: Instant,
    load: &mut Load,
) -> io::Result<()> {
    let mut before = Instant::now();
    while before < end {
        client.exchange().await?;
        let now = Instant::now();
        load.latencies.add(now - before);
        before = now;
    }
    Ok(())
}
