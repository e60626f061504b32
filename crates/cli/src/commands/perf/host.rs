//! The server's part of a measurement: counts what arrives, or sends until it is told to stop.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinSet;
use tokio::time::Instant;
use towline::{Connection, Endpoint, RecvStream, SendStream};
use towline_transfer::{CpuMeter, Lanes, put_varint, stream_kind};

use super::control::{
    HostRecord, Later, MAX_STREAMS, Reply, Request, advice, read_json, write_json,
};
use crate::stats::StatsRecord;

/// Measurements a server runs at once.
const MAX_MEASUREMENTS: usize = 16;
/// Bytes handed to a stream at once.
const BLOCK: usize = 64 * 1024;
/// Most bytes taken from a stream at once.
const READ_AT_MOST: usize = 256 * 1024;
/// How often, and how long at most, a server waits for bytes that were acknowledged to be counted.
const LOOK: Duration = Duration::from_millis(2);
const COUNT_PATIENCE: Duration = Duration::from_secs(1);
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);

/// Offers measurements on a listening endpoint.
pub(crate) struct PerfHost {
    endpoint: Endpoint,
    congestion: String,
    room: Semaphore,
}

impl PerfHost {
    /// `congestion` is what the endpoint's connections use.
    pub(crate) fn new(endpoint: Endpoint, congestion: String) -> Self {
        Self {
            endpoint,
            congestion,
            room: Semaphore::new(MAX_MEASUREMENTS),
        }
    }

    /// One measurement; the peer's mistakes end it, nothing else.
    pub(crate) async fn serve(
        &self,
        connection: Connection,
        lanes: Lanes,
        mut send: SendStream,
        mut recv: RecvStream,
    ) {
        let result = self
            .measure(&connection, &lanes, &mut send, &mut recv)
            .await;
        if let Err(error) = result {
            tracing::info!(remote = %connection.remote_addr(), %error, "measurement ended early");
        }
        let _ = send.finish();
    }

    async fn measure(
        &self,
        connection: &Connection,
        lanes: &Lanes,
        send: &mut SendStream,
        recv: &mut RecvStream,
    ) -> io::Result<()> {
        let request = tokio::time::timeout(REQUEST_TIMEOUT, read_json::<Request>(recv)).await;
        let Some(request) = request.map_err(|_| io::ErrorKind::TimedOut)?? else {
            return Ok(());
        };
        let refused = |message: &str| Reply::Refused {
            message: message.to_owned(),
        };
        let seconds = 0.0..=86_400.0;
        if !(1..=MAX_STREAMS).contains(&request.streams)
            || !seconds.contains(&request.omit)
            || !(0.05..=86_400.0).contains(&request.interval)
        {
            return write_json(send, &refused("a number in the request is out of range")).await;
        }
        let Ok(_permit) = self.room.try_acquire() else {
            return write_json(
                send,
                &refused("too many measurements are running; try again later"),
            )
            .await;
        };
        let Some((_registration, arrivals)) = lanes.register(request.session) else {
            return write_json(send, &refused("this session number is in use")).await;
        };
        let host = HostRecord::new(&self.endpoint, self.congestion.clone());
        write_json(send, &Reply::Ready { host }).await?;

        let counter = Arc::new(AtomicU64::new(0));
        let mut workers = JoinSet::new();
        if request.reverse {
            let each = request
                .bytes
                .map(|bytes| bytes.div_ceil(request.streams.into()));
            for _ in 0..request.streams {
                let (connection, counter) = (connection.clone(), Arc::clone(&counter));
                workers.spawn(async move {
                    let _ = send_lane(&connection, request.session, each, &counter).await;
                });
            }
        } else {
            workers.spawn(count_lanes(arrivals, Arc::clone(&counter)));
        }

        let mut meter = CpuMeter::start();
        let mut started = Instant::now();
        let mut counted_from = 0;
        let omit_until = started + Duration::from_secs_f64(request.omit);
        let mut omitting = request.omit > 0.0;
        let mut ticks = tokio::time::interval(Duration::from_secs_f64(request.interval));
        let mut stop = std::pin::pin!(read_json::<Later>(recv));
        loop {
            tokio::select! {
                _ = ticks.tick() => {
                    let stats = StatsRecord::from(&connection.stats());
                    write_json(send, &Reply::Interval { stats }).await?;
                }
                () = tokio::time::sleep_until(omit_until), if omitting => {
                    omitting = false;
                    meter = CpuMeter::start();
                    started = Instant::now();
                    counted_from = counter.load(Relaxed);
                }
                later = &mut stop => match later? {
                    Some(Later::Stop) => break,
                    None => return Ok(()),
                },
            }
        }
        if let (Some(bytes), false) = (request.bytes, request.reverse) {
            let streams = u64::from(request.streams);
            let wanted = bytes.div_ceil(streams).saturating_mul(streams);
            // Acknowledged by the transport is not yet counted by our tasks.
            let counted = async {
                while counter.load(Relaxed) < wanted {
                    tokio::time::sleep(LOOK).await;
                }
            };
            let _ = tokio::time::timeout(COUNT_PATIENCE, counted).await;
        }
        let result = Reply::Result {
            bytes: counter.load(Relaxed) - counted_from,
            seconds: started.elapsed().as_secs_f64(),
            cpu_seconds: meter.spent().as_secs_f64(),
            stats: StatsRecord::from(&connection.stats()),
            advice: advice(&self.endpoint.socket_info()),
        };
        workers.abort_all();
        write_json(send, &result).await
    }
}

/// Sends until `most` bytes are gone, or until the task is aborted.
pub(super) async fn send_lane(
    connection: &Connection,
    session: u64,
    most: Option<u64>,
    counter: &AtomicU64,
) -> io::Result<()> {
    let mut lane = connection.open_uni().await.map_err(io::Error::other)?;
    let mut preamble = Vec::new();
    put_varint(&mut preamble, stream_kind::LANE);
    put_varint(&mut preamble, session);
    lane.write_chunk(preamble.into()).await?;
    let block = payload();
    let mut left = most.unwrap_or(u64::MAX);
    while left > 0 {
        let mut part = block.slice(..block.len().min(usize::try_from(left).unwrap_or(usize::MAX)));
        while !part.is_empty() {
            let written = lane.write_some(&mut part).await? as u64;
            counter.fetch_add(written, Relaxed);
            left -= written;
        }
    }
    lane.finished().await.map_err(Into::into)
}

/// Bytes that do not compress, made once for each lane and sent again and again.
pub(crate) fn payload() -> Bytes {
    let mut data = vec![0; BLOCK];
    blake3::Hasher::new()
        .update(b"towline perf")
        .finalize_xof()
        .fill(&mut data);
    data.into()
}

async fn count_lanes(mut arrivals: mpsc::Receiver<RecvStream>, counter: Arc<AtomicU64>) {
    let mut readers = JoinSet::new();
    while let Some(lane) = arrivals.recv().await {
        let counter = Arc::clone(&counter);
        readers.spawn(async move { count_lane(lane, &counter).await });
    }
    while readers.join_next().await.is_some() {}
}

/// Reads a lane to its end; its bytes are only counted.
pub(super) async fn count_lane(mut lane: RecvStream, counter: &AtomicU64) {
    while let Ok(Some(chunk)) = lane.read_chunk(READ_AT_MOST).await {
        counter.fetch_add(chunk.len() as u64, Relaxed);
    }
}
