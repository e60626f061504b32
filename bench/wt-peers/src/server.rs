//! The servers of the measurements.

use std::time::Duration;

use bench_contract::meter::{Meter, resident_kib};
use bench_contract::sessions::{
    IDLE_BEFORE, SESSION_DATAGRAM_BYTES, SessionMeasure, SessionSettings,
};
use bench_contract::{BLOCK, LISTENING, Report};
use bytes::Bytes;
use tokio::sync::mpsc;
use tokio::time::sleep;

use crate::stack::{
    RecvHalf, SendHalf, Server, Session, Stack, read_exact, read_to_end, send_bytes,
};
use crate::{Result, print};

/// Longest exchange.
const EXCHANGE_AT_MOST: usize = 4096;
/// For memory of handshakes to go, whose timers run still.
const SETTLE: Duration = Duration::from_secs(3);

/// Serves until it is killed.
pub(crate) async fn serve<S: Stack>(
    measure: SessionMeasure,
    settings: &SessionSettings,
) -> Result<()> {
    let server = S::listen(settings).await?;
    println!("{LISTENING}{}", server.local_addr()?);
    let (arrived, arrivals) = mpsc::unbounded_channel();
    if measure == SessionMeasure::Idle {
        tokio::spawn(watch_memory(arrivals, settings.sessions));
    }
    let block = Bytes::from(vec![0x5a; BLOCK]);
    while let Some(accepting) = server.accept().await {
        let (arrived, block) = (arrived.clone(), block.clone());
        tokio::spawn(async move {
            let session = match accepting.await {
                Ok(session) => session,
                Err(error) => return eprintln!("bench-wt-peer: no session: {error}"),
            };
            // Nobody listens but where memory is measured.
            let _ = arrived.send(());
            let served = match measure {
                SessionMeasure::Echo => echo(&session).await,
                SessionMeasure::Datagrams => count(&session).await,
                _ => streams(&session, measure, &block).await,
            };
            if let Err(error) = served {
                eprintln!("bench-wt-peer: {error}");
            }
        });
    }
    Ok(())
}

/// Serves the streams of a session until it is over.
async fn streams<S: Session>(session: &S, measure: SessionMeasure, block: &Bytes) -> Result<()> {
    while let Ok((send, recv)) = session.accept().await {
        let block = block.clone();
        tokio::spawn(async move {
            let served = match measure {
                SessionMeasure::Cold | SessionMeasure::Exchanges => exchange(send, recv).await,
                _ => transfer(send, recv, &block).await,
            };
            if let Err(error) = served {
                eprintln!("bench-wt-peer: a stream: {error}");
            }
        });
    }
    Ok(())
}

/// Counts what comes, sends as much as is asked for, and then the count.
async fn transfer(mut send: impl SendHalf, mut recv: impl RecvHalf, block: &Bytes) -> Result<()> {
    let mut wanted = [0; 8];
    read_exact(&mut recv, &mut wanted).await?;
    let counting = async {
        let mut received = 0;
        while let Some(length) = recv.skip(usize::MAX).await? {
            received += length as u64;
        }
        Result::Ok(received)
    };
    let sending = send_bytes(&mut send, block, u64::from_be_bytes(wanted));
    let (received, ()) = tokio::try_join!(counting, sending)?;
    send.write(&received.to_be_bytes()).await?;
    send.finish()
}

/// Sends back what came.
async fn exchange(mut send: impl SendHalf, mut recv: impl RecvHalf) -> Result<()> {
    let mut buffer = [0; EXCHANGE_AT_MOST];
    let length = read_to_end(&mut recv, &mut buffer).await?;
    send.write(&buffer[..length]).await?;
    send.finish()
}

/// Sends datagrams back until the session is over.
async fn echo(session: &impl Session) -> Result<()> {
    while let Ok(datagram) = session.read_datagram().await {
        session.send_datagram(datagram).await?;
    }
    Ok(())
}

/// Counts datagrams until the session is over; the time is that between the first and the last.
async fn count(session: &impl Session) -> Result<()> {
    let mut datagram = session.read_datagram().await;
    let meter = Meter::start()?;
    let mut last = Duration::ZERO;
    let mut count = 0;
    while let Ok(data) = datagram {
        if data.len() != SESSION_DATAGRAM_BYTES {
            return Err(format!("a datagram has {} bytes", data.len()).into());
        }
        count += 1;
        // A look at the clock for each datagram would be a part of its cost.
        if count % 64 == 0 {
            last = meter.elapsed();
        }
        datagram = session.read_datagram().await;
    }
    let report = meter.stop(count)?;
    print(&Report {
        seconds: last.as_secs_f64(),
        ..report
    })
}

/// Looks at this process's memory when the first sessions stand, and again when all do.
async fn watch_memory(mut arrivals: mpsc::UnboundedReceiver<()>, sessions: u64) -> Result<()> {
    for _ in 0..IDLE_BEFORE {
        arrivals.recv().await.ok_or("the server ended")?;
    }
    let before = resident_kib()?;
    let meter = Meter::start()?;
    for _ in 0..sessions {
        arrivals.recv().await.ok_or("the server ended")?;
    }
    sleep(SETTLE).await;
    let report = meter.stop(sessions)?;
    print(&Report {
        resident_kib: Some((before, resident_kib()?)),
        ..report
    })
}
