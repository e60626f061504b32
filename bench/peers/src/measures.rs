//! The measurements, each as a server and a client over the traits of `stack`.
//!
//! Both ends measure from the moment all connections stand until the client knows that
//! everything arrived; what they print is a [`Report`]. The server leaves with its connections.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bench_contract::meter::{Meter, latency, resident_kib};
use bench_contract::{
    AT_ONCE, BLOCK, DATAGRAM_BYTES, ECHO_BYTES, LISTENING, MESSAGE_BYTES, MESSAGE_EVERY_MS,
    Measure, Report, Role, Settings,
};
use bytes::Bytes;
use tokio::task::JoinSet;
use tokio::time::{sleep, sleep_until, timeout};

use crate::alloc::Steady;
use crate::stack::{Connection, Endpoint, RecvHalf, SendHalf, Stack};
use crate::{Error, Result};

/// Round trips before the first that counts.
pub(crate) const WARM_UP: u64 = 1000;
/// How long closing notices may take to leave.
const LEAVE: Duration = Duration::from_secs(1);
/// How long an end waits for the other's last words.
const PATIENCE: Duration = Duration::from_secs(60);
/// Connections of [`Measure::Many`] that are served in one go; their turns follow each other.
const TURNS: u64 = 100;

/// Runs one end.
pub(crate) async fn run<S: Stack>(role: Role, measure: Measure, settings: &Settings) -> Result<()> {
    match role {
        Role::Server => {
            let mut endpoint = S::listen(settings)?;
            println!("{LISTENING}{}", endpoint.local_addr()?);
            let report = serve(&mut endpoint, measure, settings).await?;
            print(&report)?;
            // The last closing notices leave after the last measured moment.
            sleep(Duration::from_millis(100)).await;
        }
        Role::Client => {
            let mut endpoint = S::dial(settings)?;
            let report = drive(&mut endpoint, measure, settings).await?;
            print(&report)?;
            let _ = timeout(LEAVE, endpoint.wait_idle()).await;
        }
    }
    Ok(())
}

pub(crate) fn print(report: &Report) -> Result<()> {
    println!("{}", serde_json::to_string(report)?);
    Ok(())
}

async fn serve<E: Endpoint>(
    endpoint: &mut E,
    measure: Measure,
    settings: &Settings,
) -> Result<Report> {
    match measure {
        Measure::Bulk => serve_bulk(endpoint, settings).await,
        Measure::Handshakes => serve_handshakes(endpoint, settings).await,
        Measure::Echo => serve_echo(endpoint).await,
        Measure::Idle => serve_idle(endpoint, settings).await,
        Measure::Datagrams => serve_datagrams(endpoint).await,
        Measure::Many => serve_many(endpoint, settings).await,
    }
}

async fn drive<E: Endpoint>(
    endpoint: &mut E,
    measure: Measure,
    settings: &Settings,
) -> Result<Report> {
    match measure {
        Measure::Bulk => drive_bulk(endpoint, settings).await,
        Measure::Handshakes => drive_handshakes(endpoint, settings).await,
        Measure::Echo => drive_echo(endpoint, settings).await,
        Measure::Idle => drive_idle(endpoint, settings).await,
        Measure::Datagrams => drive_datagrams(endpoint, settings).await,
        Measure::Many => drive_many(endpoint, settings).await,
    }
}

/// Accepts connections until there are `count`, their handshakes side by side.
async fn accept_all<E: Endpoint>(endpoint: &mut E, count: u64) -> Result<Vec<E::Connection>> {
    let mut connections = Vec::with_capacity(usize::try_from(count)?);
    let mut handshakes: JoinSet<Result<E::Connection>> = JoinSet::new();
    while (connections.len() as u64) < count {
        tokio::select! {
            accepting = endpoint.accept() => {
                handshakes.spawn(accepting.ok_or("the endpoint closed")?);
            }
            Some(done) = handshakes.join_next() => connections.push(done??),
        }
    }
    Ok(connections)
}

async fn accept_one<E: Endpoint>(endpoint: &mut E) -> Result<E::Connection> {
    endpoint.accept().await.ok_or("the endpoint closed")?.await
}

/// Opens `count` connections, a few at once.
async fn connect_all<E: Endpoint>(
    endpoint: &E,
    settings: &Settings,
    count: u64,
) -> Result<Vec<E::Connection>> {
    let mut connections = Vec::with_capacity(usize::try_from(count)?);
    let mut handshakes = JoinSet::new();
    for started in 0..count {
        if started >= AT_ONCE {
            connections.push(joined(handshakes.join_next().await)?);
        }
        handshakes.spawn(endpoint.connect(settings.addr));
    }
    while let Some(done) = handshakes.join_next().await {
        connections.push(done??);
    }
    Ok(connections)
}

fn joined<T>(done: Option<Result<Result<T>, tokio::task::JoinError>>) -> Result<T> {
    done.ok_or("no task to wait for")??
}

async fn all<T: 'static>(tasks: &mut JoinSet<Result<T>>) -> Result<()> {
    while let Some(done) = tasks.join_next().await {
        done??;
    }
    Ok(())
}

/// `total` bytes; the receiver's report is what they are confirmed by.
async fn send_bytes(mut send: impl SendHalf, total: u64, steady: &Steady) -> Result<()> {
    let block = Bytes::from(vec![0x5a; BLOCK]);
    let mut left = total;
    while left > 0 {
        let part = block.slice(..BLOCK.min(usize::try_from(left)?));
        let length = part.len() as u64;
        send.write_chunk(part).await?;
        steady.add(length);
        left -= length;
    }
    send.finish().await
}

async fn receive_bytes(recv: &mut impl RecvHalf, steady: &Steady) -> Result<u64> {
    let mut received = 0;
    while let Some(length) = recv.skip().await? {
        received += length as u64;
        steady.add(length as u64);
    }
    Ok(received)
}

async fn read_to_end(recv: &mut impl RecvHalf) -> Result<Vec<u8>> {
    let mut all = Vec::new();
    let mut buffer = [0; 64];
    while let Some(length) = recv.read(&mut buffer).await? {
        all.extend_from_slice(&buffer[..length]);
    }
    Ok(all)
}

/// A stream begins with eight bytes: how much its server is to send, or nought if the client
/// will send. A server that received answers with the count.
async fn serve_bulk<E: Endpoint>(endpoint: &mut E, settings: &Settings) -> Result<Report> {
    let connections = accept_all(endpoint, settings.connections).await?;
    let meter = Meter::start()?;
    let steady = Arc::new(Steady::new(settings.bytes));
    let mut tasks = JoinSet::new();
    for mut connection in connections {
        let steady = Arc::clone(&steady);
        let streams = settings.streams;
        tasks.spawn(async move {
            let mut serving = JoinSet::new();
            for _ in 0..streams {
                let (send, recv) = connection.accept().await?;
                let steady = Arc::clone(&steady);
                serving.spawn(async move { serve_stream(send, recv, &steady).await });
            }
            all(&mut serving).await?;
            connection.closed().await;
            Ok::<_, Error>(connection.packets())
        });
    }
    let mut packets = Some(Default::default());
    while let Some(done) = tasks.join_next().await {
        add(&mut packets, done??);
    }
    finish_bulk(&meter, &steady, packets)
}

async fn serve_stream(
    mut send: impl SendHalf,
    mut recv: impl RecvHalf,
    steady: &Steady,
) -> Result<()> {
    let mut wanted = [0; 8];
    let mut have = 0;
    while have < wanted.len() {
        have += recv
            .read(&mut wanted[have..])
            .await?
            .ok_or("a stream ended early")?;
    }
    match u64::from_be_bytes(wanted) {
        0 => {
            let received = receive_bytes(&mut recv, steady).await?;
            send.write(&received.to_be_bytes()).await?;
            send.finish().await
        }
        wanted => send_bytes(send, wanted, steady).await,
    }
}

async fn drive_bulk<E: Endpoint>(endpoint: &mut E, settings: &Settings) -> Result<Report> {
    let connections = connect_all(endpoint, settings, settings.connections).await?;
    // As `towline perf` does: no stream is shorter than another.
    let each = settings
        .bytes
        .div_ceil(settings.connections * settings.streams);
    let upload = settings.upload;
    let meter = Meter::start()?;
    let steady = Arc::new(Steady::new(settings.bytes));
    let mut tasks = JoinSet::new();
    for mut connection in connections {
        let steady = Arc::clone(&steady);
        let streams = settings.streams;
        tasks.spawn(async move {
            let mut streaming = JoinSet::new();
            for _ in 0..streams {
                let (send, recv) = connection.open().await?;
                let steady = Arc::clone(&steady);
                streaming
                    .spawn(async move { drive_stream(send, recv, each, upload, &steady).await });
            }
            all(&mut streaming).await?;
            Ok::<_, Error>(connection)
        });
    }
    let mut packets = Some(Default::default());
    let mut connections = Vec::new();
    while let Some(done) = tasks.join_next().await {
        connections.push(done??);
    }
    for connection in &connections {
        add(&mut packets, connection.packets());
    }
    let report = finish_bulk(&meter, &steady, packets)?;
    for connection in &mut connections {
        connection.close();
    }
    Ok(report)
}

async fn drive_stream(
    mut send: impl SendHalf,
    mut recv: impl RecvHalf,
    each: u64,
    upload: bool,
    steady: &Steady,
) -> Result<()> {
    let wanted = if upload { 0 } else { each };
    send.write(&wanted.to_be_bytes()).await?;
    let received = if upload {
        send_bytes(send, each, steady).await?;
        let receipt = read_to_end(&mut recv).await?;
        u64::from_be_bytes(receipt.as_slice().try_into()?)
    } else {
        send.finish().await?;
        receive_bytes(&mut recv, steady).await?
    };
    if received == each {
        Ok(())
    } else {
        Err(format!("{received} bytes arrived of {each}").into())
    }
}

type Packets = Option<crate::stack::Packets>;

fn add(sum: &mut Packets, more: Packets) {
    *sum = match (*sum, more) {
        (Some(sum), Some(more)) => Some(crate::stack::Packets {
            sent: sum.sent + more.sent,
            bytes_sent: sum.bytes_sent + more.bytes_sent,
            received: sum.received + more.received,
        }),
        _ => None,
    };
}

fn finish_bulk(meter: &Meter, steady: &Steady, packets: Packets) -> Result<Report> {
    Ok(Report {
        packets_sent: packets.map(|packets| packets.sent),
        bytes_sent: packets.map(|packets| packets.bytes_sent),
        packets_received: packets.map(|packets| packets.received),
        allocations: steady.allocations(),
        ..meter.stop(steady.done())?
    })
}

/// Closes each connection as soon as its handshake is done here, so that the client knows.
async fn serve_handshakes<E: Endpoint>(endpoint: &mut E, settings: &Settings) -> Result<Report> {
    let mut meter = None;
    let mut handshakes: JoinSet<Result<()>> = JoinSet::new();
    let mut done = 0;
    while done < settings.count {
        tokio::select! {
            accepting = endpoint.accept() => {
                let accepting = accepting.ok_or("the endpoint closed")?;
                if meter.is_none() {
                    meter = Some(Meter::start()?);
                }
                handshakes.spawn(async { accepting.await?.close(); Ok(()) });
            }
            Some(joined) = handshakes.join_next() => {
                joined??;
                done += 1;
            }
        }
    }
    meter.ok_or("no handshake was asked for")?.stop(done)
}

async fn drive_handshakes<E: Endpoint>(endpoint: &mut E, settings: &Settings) -> Result<Report> {
    let meter = Meter::start()?;
    let mut handshakes = JoinSet::new();
    let mut done = 0;
    for started in 0..settings.count {
        if started >= AT_ONCE {
            joined(handshakes.join_next().await)?;
            done += 1;
        }
        let attempt = endpoint.connect(settings.addr);
        handshakes.spawn(async move {
            attempt.await?.closed().await;
            Ok::<_, Error>(())
        });
    }
    while let Some(last) = handshakes.join_next().await {
        last??;
        done += 1;
    }
    meter.stop(done)
}

async fn serve_echo<E: Endpoint>(endpoint: &mut E) -> Result<Report> {
    let mut connection = accept_one(endpoint).await?;
    let (send, recv) = connection.accept().await?;
    let meter = Meter::start()?;
    let count = echo(send, recv).await?;
    let report = meter.stop(count)?;
    connection.closed().await;
    Ok(report)
}

/// Sends back what comes until the other end finishes.
pub(crate) async fn echo(mut send: impl SendHalf, mut recv: impl RecvHalf) -> Result<u64> {
    let mut buffer = [0; 4 * ECHO_BYTES];
    let mut bytes = 0;
    while let Some(length) = recv.read(&mut buffer).await? {
        send.write(&buffer[..length]).await?;
        bytes += length as u64;
    }
    send.finish().await?;
    Ok(bytes / ECHO_BYTES as u64)
}

async fn drive_echo<E: Endpoint>(endpoint: &mut E, settings: &Settings) -> Result<Report> {
    let mut connection = endpoint.connect(settings.addr).await?;
    let (send, recv) = connection.open().await?;
    let report = ping(send, recv, settings.count).await?;
    connection.close();
    Ok(report)
}

/// `count` round trips, one at a time, and their distribution.
pub(crate) async fn ping(
    mut send: impl SendHalf,
    mut recv: impl RecvHalf,
    count: u64,
) -> Result<Report> {
    let message = [0x5a; ECHO_BYTES];
    let mut answer = [0; ECHO_BYTES];
    let mut nanos = Vec::with_capacity(usize::try_from(count)?);
    let mut meter = Meter::start()?;
    for round in 0..WARM_UP + count {
        if round == WARM_UP {
            meter = Meter::start()?;
        }
        let asked = Instant::now();
        send.write(&message).await?;
        let mut have = 0;
        while have < answer.len() {
            have += recv
                .read(&mut answer[have..])
                .await?
                .ok_or("the echo ended early")?;
        }
        if round >= WARM_UP {
            nanos.push(u64::try_from(asked.elapsed().as_nanos())?);
        }
    }
    let report = meter.stop(count)?;
    send.finish().await?;
    read_to_end(&mut recv).await?;
    Ok(Report {
        latency: latency(&mut nanos),
        ..report
    })
}

async fn serve_idle<E: Endpoint>(endpoint: &mut E, settings: &Settings) -> Result<Report> {
    let before = resident_kib()?;
    let connections = accept_all(endpoint, settings.connections).await?;
    // Handshake memory goes when the handshakes are confirmed and their timers have run out.
    sleep(Duration::from_secs(3)).await;
    let meter = Meter::start()?;
    sleep(Duration::from_secs(settings.seconds)).await;
    Ok(Report {
        resident_kib: Some((before, resident_kib()?)),
        ..meter.stop(connections.len() as u64)?
    })
}

/// Reports once all connections stand and holds them until this process is killed.
async fn drive_idle<E: Endpoint>(endpoint: &mut E, settings: &Settings) -> Result<Report> {
    let meter = Meter::start()?;
    let connections = connect_all(endpoint, settings, settings.connections).await?;
    print(&meter.stop(connections.len() as u64)?)?;
    std::future::pending().await
}

/// Counts until the client closes; the time is that between the first and the last datagram.
async fn serve_datagrams<E: Endpoint>(endpoint: &mut E) -> Result<Report> {
    let mut connection = accept_one(endpoint).await?;
    let first = connection.read_datagram().await?;
    let meter = Meter::start()?;
    let mut last = Duration::ZERO;
    let mut count = 0;
    let mut datagram = Ok(first);
    while let Ok(data) = datagram {
        if data.len() != DATAGRAM_BYTES {
            return Err(format!("a datagram has {} bytes", data.len()).into());
        }
        count += 1;
        // A look at the clock for each datagram would be a part of its cost.
        if count % 64 == 0 {
            last = meter.elapsed();
        }
        datagram = connection.read_datagram().await;
    }
    let report = meter.stop(count)?;
    Ok(Report {
        seconds: last.as_secs_f64(),
        ..report
    })
}

async fn drive_datagrams<E: Endpoint>(endpoint: &mut E, settings: &Settings) -> Result<Report> {
    let mut connection = endpoint.connect(settings.addr).await?;
    let data = Bytes::from(vec![0x5a; DATAGRAM_BYTES]);
    let meter = Meter::start()?;
    let time = Duration::from_secs(settings.seconds);
    let mut count = 0;
    while count % 64 != 0 || meter.elapsed() < time {
        connection.send_datagram(data.clone()).await?;
        count += 1;
    }
    let report = meter.stop(count)?;
    // What was queued leaves before the closing notice.
    sleep(Duration::from_millis(200)).await;
    connection.close();
    Ok(report)
}

/// Reads messages until all have come, then closes one connection: the client's sign.
async fn serve_many<E: Endpoint>(endpoint: &mut E, settings: &Settings) -> Result<Report> {
    let connections = accept_all(endpoint, settings.connections).await?;
    let messages = settings.connections * settings.seconds * 1000 / MESSAGE_EVERY_MS;
    let expected = messages * MESSAGE_BYTES as u64;
    let meter = Meter::start()?;
    let steady = Arc::new(Steady::new(expected));
    let (arrived, mut arrival) = tokio::sync::mpsc::channel(1);
    for mut connection in connections {
        let (steady, arrived) = (Arc::clone(&steady), arrived.clone());
        // The tasks go with the process.
        tokio::spawn(async move {
            let (_send, mut recv) = connection.accept().await?;
            while let Some(length) = recv.skip().await? {
                steady.add(length as u64);
                if steady.done() == expected {
                    connection.close();
                    let _ = arrived.send(()).await;
                }
            }
            Ok::<_, Error>(())
        });
    }
    timeout(PATIENCE, arrival.recv())
        .await
        .map_err(|_| format!("{} of {expected} bytes arrived", steady.done()))?;
    meter.stop(messages)
}

async fn drive_many<E: Endpoint>(endpoint: &mut E, settings: &Settings) -> Result<Report> {
    let connections = connect_all(endpoint, settings, settings.connections).await?;
    let mut streams = Vec::with_capacity(connections.len());
    let (ended, mut end) = tokio::sync::mpsc::channel(1);
    for mut connection in connections {
        streams.push(connection.open().await?);
        let ended = ended.clone();
        tokio::spawn(async move {
            connection.closed().await;
            let _ = ended.send(()).await;
        });
    }
    let message = Bytes::from(vec![0x5a; MESSAGE_BYTES]);
    let rounds = settings.seconds * 1000 / MESSAGE_EVERY_MS;
    let turn = Duration::from_millis(MESSAGE_EVERY_MS) / TURNS as u32;
    let at_once = streams.len().div_ceil(TURNS as usize).max(1);
    let meter = Meter::start()?;
    for round in 0..rounds {
        let mut next = tokio::time::Instant::now();
        for part in streams.chunks_mut(at_once) {
            sleep_until(next).await;
            next += turn;
            for (send, _) in part {
                send.write_chunk(message.clone()).await?;
            }
        }
        // A round that is late delays the next: it is never caught up in a burst.
        if round + 1 < rounds {
            sleep_until(next).await;
        }
    }
    let count = rounds * streams.len() as u64;
    timeout(PATIENCE, end.recv())
        .await
        .map_err(|_| "the server did not end the run")?;
    meter.stop(count)
}

#[cfg(test)]
mod tests;
