//! The clients of the measurements.

use std::time::{Duration, Instant};

use bench_contract::meter::{Meter, latency};
use bench_contract::sessions::{
    IDLE_BEFORE, SESSION_DATAGRAM_BYTES, SessionMeasure, SessionSettings,
};
use bench_contract::{BLOCK, Report};
use bytes::Bytes;
use tokio::task::{JoinSet, yield_now};
use tokio::time::{sleep, timeout};

use crate::stack::{
    Client, RecvHalf, SendHalf, Session, Stack, read_exact, read_to_end, send_bytes,
};
use crate::{Error, Result, print};

/// Datagrams between two looks at the clock; then others on this thread have their turn.
const BURST: u64 = 64;
/// How long a datagram may take before it counts as lost.
const LOST: Duration = Duration::from_secs(2);
/// For what was closed to leave, and what was queued.
const PARTING: Duration = Duration::from_millis(200);

/// Drives one measurement and prints its report.
pub(crate) async fn drive<S: Stack>(
    measure: SessionMeasure,
    settings: &SessionSettings,
) -> Result<()> {
    let client = S::dial(settings).await?;
    let report = match measure {
        SessionMeasure::Upload
        | SessionMeasure::Download
        | SessionMeasure::Duplex
        | SessionMeasure::Mux => transfers(&client, measure, settings).await?,
        SessionMeasure::Handshakes => handshakes(&client, settings).await?,
        SessionMeasure::Cold => cold(&client, settings).await?,
        SessionMeasure::Exchanges => exchanges(&client, settings).await?,
        SessionMeasure::Echo => echo(&client, settings).await?,
        SessionMeasure::Datagrams => datagrams(&client, settings).await?,
        SessionMeasure::Idle => return idle(&client, settings).await,
    };
    print(&report)?;
    sleep(PARTING).await;
    Ok(())
}

/// One session that does not count, and `sessions` that do; connecting is no part of the time.
async fn transfers(
    client: &impl Client,
    measure: SessionMeasure,
    settings: &SessionSettings,
) -> Result<Report> {
    let (up, down) = match measure {
        SessionMeasure::Download => (0, settings.bytes),
        SessionMeasure::Duplex => (settings.bytes, settings.bytes),
        _ => (settings.bytes, 0),
    };
    let block = Bytes::from(vec![0x5a; BLOCK]);
    let mut meter = Meter::start()?;
    let (mut time, mut bytes) = (Duration::ZERO, 0);
    for number in 0..=settings.sessions {
        let session = client.connect(settings.addr).await?;
        if number == 1 {
            meter = Meter::start()?;
        }
        let begun = Instant::now();
        if measure == SessionMeasure::Mux {
            let mut streams = JoinSet::new();
            for _ in 0..settings.streams {
                let (session, block) = (session.clone(), block.clone());
                streams.spawn(async move { transfer(&session, &block, up, down).await });
            }
            while let Some(done) = streams.join_next().await {
                done??;
            }
        } else {
            for _ in 0..settings.streams {
                transfer(&session, &block, up, down).await?;
            }
        }
        if number > 0 {
            time += begun.elapsed();
            bytes += settings.streams * (up + down);
        }
        session.close();
    }
    Ok(Report {
        seconds: time.as_secs_f64(),
        ..meter.stop(bytes)?
    })
}

/// One stream; over when all has arrived at both ends, which say how much that was.
async fn transfer(session: &impl Session, block: &Bytes, up: u64, down: u64) -> Result<()> {
    let (mut send, mut recv) = session.open().await?;
    let sending = async {
        send.write(&down.to_be_bytes()).await?;
        send_bytes(&mut send, block, up).await?;
        send.finish()
    };
    let receiving = async {
        let mut left = down;
        while left > 0 {
            let next = recv.skip(usize::try_from(left)?).await?;
            left -= next.ok_or("a stream ended early")? as u64;
        }
        let mut count = [0; 8];
        read_exact(&mut recv, &mut count).await?;
        if recv.skip(1).await?.is_some() {
            return Err("a stream is too long".into());
        }
        Ok::<_, Error>(u64::from_be_bytes(count))
    };
    let ((), arrived) = tokio::try_join!(sending, receiving)?;
    match arrived == up {
        true => Ok(()),
        false => Err(format!("{arrived} bytes arrived of {up}").into()),
    }
}

/// Connects, and closes when the session is ready: the distribution of the former, the rate of both.
async fn handshakes(client: &impl Client, settings: &SessionSettings) -> Result<Report> {
    let mut times = Times::of(settings);
    while times.more()? {
        let begun = Instant::now();
        let session = client.connect(settings.addr).await?;
        times.add(begun);
        session.close();
    }
    times.report()
}

/// Connects, exchanges and closes.
async fn cold(client: &impl Client, settings: &SessionSettings) -> Result<Report> {
    let message = vec![0x5a; usize::try_from(settings.bytes)?];
    let mut answer = message.clone();
    let mut times = Times::of(settings);
    while times.more()? {
        let begun = Instant::now();
        let session = client.connect(settings.addr).await?;
        exchange(&session, &message, &mut answer).await?;
        session.close();
        times.add(begun);
    }
    times.report()
}

async fn exchanges(client: &impl Client, settings: &SessionSettings) -> Result<Report> {
    let message = vec![0x5a; usize::try_from(settings.bytes)?];
    let mut answer = message.clone();
    let session = client.connect(settings.addr).await?;
    let mut times = Times::of(settings);
    while times.more()? {
        let begun = Instant::now();
        exchange(&session, &message, &mut answer).await?;
        times.add(begun);
    }
    let report = times.report();
    session.close();
    report
}

async fn exchange(session: &impl Session, message: &[u8], answer: &mut [u8]) -> Result<()> {
    let (mut send, mut recv) = session.open().await?;
    send.write(message).await?;
    send.finish()?;
    let length = read_to_end(&mut recv, answer).await?;
    match answer[..length] == *message {
        true => Ok(()),
        false => Err(format!("{length} other bytes came back").into()),
    }
}

async fn echo(client: &impl Client, settings: &SessionSettings) -> Result<Report> {
    let message = Bytes::from(vec![0x5a; SESSION_DATAGRAM_BYTES]);
    let session = client.connect(settings.addr).await?;
    let mut times = Times::of(settings);
    while times.more()? {
        let begun = Instant::now();
        session.send_datagram(message.clone()).await?;
        let answer = timeout(LOST, session.read_datagram()).await;
        if answer.map_err(|_| "a datagram was lost")?? != message {
            return Err("another datagram came back".into());
        }
        times.add(begun);
    }
    let report = times.report();
    session.close();
    report
}

/// As many as the stack takes; the server counts.
async fn datagrams(client: &impl Client, settings: &SessionSettings) -> Result<Report> {
    let session = client.connect(settings.addr).await?;
    let data = Bytes::from(vec![0x5a; SESSION_DATAGRAM_BYTES]);
    let meter = Meter::start()?;
    let time = Duration::from_secs(settings.seconds);
    let mut count = 0;
    while meter.elapsed() < time {
        for _ in 0..BURST {
            session.send_datagram(data.clone()).await?;
        }
        count += BURST;
        // Where sending never waits, nothing else would ever run.
        yield_now().await;
    }
    let report = meter.stop(count)?;
    sleep(PARTING).await;
    session.close();
    Ok(report)
}

/// Reports once all sessions stand and holds them until this process is killed.
async fn idle(client: &impl Client, settings: &SessionSettings) -> Result<()> {
    let mut sessions = Vec::new();
    let meter = Meter::start()?;
    for _ in 0..IDLE_BEFORE + settings.sessions {
        sessions.push(client.connect(settings.addr).await?);
    }
    print(&meter.stop(settings.sessions)?)?;
    std::future::pending().await
}

/// How long each of several things took; the first do not count.
struct Times {
    warm_up: u64,
    left: u64,
    nanos: Vec<u64>,
    meter: Option<Meter>,
}

impl Times {
    fn of(settings: &SessionSettings) -> Self {
        Self {
            warm_up: settings.warm_up(),
            left: settings.warm_up() + settings.count,
            nanos: Vec::new(),
            meter: None,
        }
    }

    /// Whether there is another.
    fn more(&mut self) -> Result<bool> {
        if self.warm_up == 0 && self.meter.is_none() {
            self.meter = Some(Meter::start()?);
        }
        Ok(self.left > 0)
    }

    fn add(&mut self, begun: Instant) {
        self.left -= 1;
        match self.warm_up {
            0 => self
                .nanos
                .push(u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX)),
            _ => self.warm_up -= 1,
        }
    }

    fn report(mut self) -> Result<Report> {
        let meter = self.meter.ok_or("nothing was measured")?;
        let report = meter.stop(self.nanos.len() as u64)?;
        Ok(Report {
            latency: latency(&mut self.nanos),
            ..report
        })
    }
}
