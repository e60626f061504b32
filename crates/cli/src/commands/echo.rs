//! `towline echo`: round trips over a stream or in datagrams, like ping; and its server side.

use std::time::Duration;

use bytes::Bytes;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::Instant;
use towline::webtransport::Session;
use towline::{Connection, RecvStream, SendDatagramError, SendStream};
use towline_transfer::put_varint;

use crate::exit::{Exit, Failure};
use crate::failures::{connection_failure, session_failure};
use crate::interrupt::Interrupt;
use crate::net::{ConnectArgs, options};
use crate::printer::Printer;
use crate::stats::StatsRecord;
use crate::streams::ECHO;
use crate::under_way::UnderWay;
use crate::units::{millis, parse_duration, parse_size};
use crate::url::Url;

/// A sequence number starts every message.
pub(crate) const LEAST_SIZE: u64 = 8;
const MOST_SIZE: u64 = 16 << 20;
/// How long the last answers may take.
pub(crate) const LAST_ANSWERS: Duration = Duration::from_secs(2);
const CHUNK: usize = 64 * 1024;

/// Flags of `echo`.
#[derive(clap::Args)]
pub(crate) struct EchoArgs {
    /// The server
    #[arg(value_name = "URL")]
    url: Url,
    #[command(flatten)]
    pings: PingArgs,
    #[command(flatten)]
    network: ConnectArgs,
}

/// What is sent, and how often.
#[derive(clap::Args)]
pub(crate) struct PingArgs {
    /// Stop after so many; otherwise at Ctrl-C
    #[arg(short, long, value_name = "N")]
    count: Option<u64>,
    /// Bytes of each message, at least 8
    #[arg(short, long, value_name = "SIZE", default_value = "64", value_parser = parse_size)]
    size: u64,
    /// Time from one to the next
    #[arg(short, long, value_name = "TIME", default_value = "1s", value_parser = parse_duration)]
    interval: Duration,
    /// In datagrams, which may get lost, instead of over a stream
    #[arg(long)]
    datagram: bool,
}

/// Who sends everything back.
pub(crate) enum Peer {
    /// A server of Towline's own protocol.
    Own(Connection),
    /// A session of WebTransport.
    Web(Session),
}

impl Peer {
    fn connection(&self) -> &Connection {
        match self {
            Self::Own(connection) => connection,
            Self::Web(session) => session.transport(),
        }
    }

    /// A stream on which everything comes back.
    async fn open(&self) -> Result<(SendStream, RecvStream), Failure> {
        match self {
            Self::Own(connection) => {
                let opened = connection.open_bi().await;
                let (mut send, recv) = opened.map_err(|error| connection_failure(&error))?;
                let mut kind = Vec::new();
                put_varint(&mut kind, ECHO);
                let written = send.write_all(&kind).await;
                written.map_err(|_| self.broken())?;
                Ok((send, recv))
            }
            Self::Web(session) => session
                .open_bi()
                .await
                .map_err(|error| session_failure(&error)),
        }
    }

    fn max_datagram_len(&self) -> usize {
        let most = match self {
            Self::Own(connection) => connection.max_datagram_len(),
            Self::Web(session) => session.max_datagram_len(),
        };
        most.unwrap_or(0)
    }

    fn send_datagram(&self, datagram: Bytes) -> Result<(), SendDatagramError> {
        match self {
            Self::Own(connection) => connection.send_datagram(datagram),
            Self::Web(session) => session.send_datagram(datagram),
        }
    }

    async fn read_datagram(&self) -> Result<Bytes, Failure> {
        match self {
            Self::Own(connection) => {
                let datagram = connection.read_datagram().await;
                datagram.map_err(|error| connection_failure(&error))
            }
            Self::Web(session) => {
                let datagram = session.read_datagram().await;
                datagram.map_err(|error| session_failure(&error))
            }
        }
    }

    /// Why a stream ended.
    fn broken(&self) -> Failure {
        match self.connection().close_reason() {
            Some(reason) => connection_failure(&reason),
            None => Failure::new(Exit::Other, "the server does not echo"),
        }
    }
}

/// What came back.
#[derive(Debug, Default)]
struct Tally {
    sent: u64,
    received: u64,
    min: Option<Duration>,
    max: Duration,
    sum: f64,
    sum_of_squares: f64,
}

impl Tally {
    fn add(&mut self, rtt: Duration) {
        self.received += 1;
        self.min = Some(self.min.map_or(rtt, |min| min.min(rtt)));
        self.max = self.max.max(rtt);
        let seconds = rtt.as_secs_f64();
        self.sum += seconds;
        self.sum_of_squares += seconds * seconds;
    }

    fn mean(&self) -> Duration {
        Duration::from_secs_f64(self.sum / self.received.max(1) as f64)
    }

    /// The standard deviation, which ping calls mdev.
    fn deviation(&self) -> Duration {
        let count = self.received.max(1) as f64;
        let mean = self.sum / count;
        Duration::from_secs_f64((self.sum_of_squares / count - mean * mean).max(0.0).sqrt())
    }

    fn loss_percent(&self) -> f64 {
        (self.sent - self.received.min(self.sent)) as f64 * 100.0 / self.sent.max(1) as f64
    }
}

impl EchoArgs {
    /// Runs until the count is reached or Ctrl-C.
    pub(crate) async fn run(self, printer: Printer) -> Result<Exit, Failure> {
        self.pings.check()?;
        let mut interrupt = Interrupt::install(printer);
        let options = options(self.network.idle_timeout, &self.network.congestion);
        let client = tokio::select! {
            client = self.network.connect(&self.url, &options, printer) => client?,
            () = interrupt.wait() => return Ok(Exit::Interrupted),
        };
        let peer = Peer::Own(client.connection.clone());
        let done = self.pings.run(&peer, &mut interrupt, printer).await;
        client.close(0, "").await;
        done
    }
}

impl PingArgs {
    /// Whether messages of this size can be.
    pub(crate) fn check(&self) -> Result<(), Failure> {
        if (LEAST_SIZE..=MOST_SIZE).contains(&self.size) {
            return Ok(());
        }
        Err(Failure::usage(format!(
            "--size {} is not between {LEAST_SIZE} bytes and 16 MiB",
            self.size
        )))
    }

    /// Runs until the count is reached or Ctrl-C, and sums up.
    pub(crate) async fn run(
        &self,
        peer: &Peer,
        interrupt: &mut Interrupt,
        printer: Printer,
    ) -> Result<Exit, Failure> {
        let mut tally = Tally::default();
        let result = tokio::select! {
            result = self.measure(peer, &mut tally, printer) => result,
            () = interrupt.wait() => Ok(()),
        };
        self.summarise(peer.connection(), &tally, printer);
        result?;
        if interrupt.is_set() {
            Ok(Exit::Interrupted)
        } else if tally.received == 0 && tally.sent > 0 {
            Err(Failure::new(Exit::Timeout, "nothing came back")
                .next("the server may not offer echo over datagrams; try without --datagram"))
        } else {
            Ok(Exit::Ok)
        }
    }

    async fn measure(
        &self,
        peer: &Peer,
        tally: &mut Tally,
        printer: Printer,
    ) -> Result<(), Failure> {
        if self.datagram {
            self.over_datagrams(peer, tally, printer).await
        } else {
            self.over_a_stream(peer, tally, printer).await
        }
    }

    /// One after the other: a message is sent when its predecessor is back.
    async fn over_a_stream(
        &self,
        peer: &Peer,
        tally: &mut Tally,
        printer: Printer,
    ) -> Result<(), Failure> {
        let (mut send, mut recv) = peer.open().await?;
        let mut message = vec![0; self.size as usize];
        let mut answer = vec![0; self.size as usize];
        let mut ticks = tokio::time::interval(self.interval.max(Duration::from_micros(1)));
        for sequence in 0..self.count.unwrap_or(u64::MAX) {
            ticks.tick().await;
            message[..8].copy_from_slice(&sequence.to_be_bytes());
            tally.sent += 1;
            let started = Instant::now();
            // Both at once: a message may be larger than what the stream buffers on the way.
            let (written, read) = tokio::join!(
                AsyncWriteExt::write_all(&mut send, &message),
                AsyncReadExt::read_exact(&mut recv, &mut answer)
            );
            written.map_err(|_| peer.broken())?;
            read.map_err(|_| peer.broken())?;
            if answer != message {
                return Err(Failure::new(
                    Exit::Protocol,
                    "the server sent something else back",
                ));
            }
            self.show(
                sequence,
                started.elapsed(),
                tally,
                peer.connection(),
                printer,
            );
        }
        let _ = send.finish();
        Ok(())
    }

    async fn over_datagrams(
        &self,
        peer: &Peer,
        tally: &mut Tally,
        printer: Printer,
    ) -> Result<(), Failure> {
        let most = peer.max_datagram_len();
        if self.size > most as u64 {
            return Err(Failure::usage(format!(
                "--size {} does not fit into one datagram, which takes {most} bytes here",
                self.size
            )));
        }
        let mut ticks = tokio::time::interval(self.interval.max(Duration::from_micros(1)));
        let count = self.count.unwrap_or(u64::MAX);
        let mut under_way = UnderWay::default();
        let mut deadline: Option<Instant> = None;
        loop {
            if tally.sent == count && (tally.received == count || under_way.is_empty()) {
                return Ok(());
            }
            let last = deadline.unwrap_or_else(Instant::now);
            tokio::select! {
                _ = ticks.tick(), if tally.sent < count => {
                    let number = under_way.leaves(Instant::now());
                    match peer.send_datagram(numbered(number, self.size as usize)) {
                        Ok(()) | Err(SendDatagramError::Full) => {}
                        Err(SendDatagramError::ConnectionLost(error)) => return Err(connection_failure(&error)),
                        Err(error) => return Err(Failure::new(Exit::Other, error.to_string())),
                    }
                    tally.sent += 1;
                    if tally.sent == count {
                        deadline = Some(Instant::now() + LAST_ANSWERS);
                    }
                }
                answer = peer.read_datagram() => {
                    let answer = answer?;
                    if let Some(number) = number_of(&answer)
                        && let Some(rtt) = under_way.is_back(number, Instant::now())
                    {
                        self.show(number, rtt, tally, peer.connection(), printer);
                    }
                }
                () = tokio::time::sleep_until(last), if deadline.is_some() => return Ok(()),
            }
        }
    }

    fn show(
        &self,
        sequence: u64,
        rtt: Duration,
        tally: &mut Tally,
        connection: &Connection,
        printer: Printer,
    ) {
        tally.add(rtt);
        printer.line(format_args!(
            "seq={sequence} bytes={} rtt={} ms",
            self.size,
            millis(rtt)
        ));
        printer.record(&json!({
            "schema": "towline.echo.reply/1",
            "seq": sequence,
            "bytes": self.size,
            "rtt": rtt.as_secs_f64(),
            "smoothed_rtt": connection.rtt().as_secs_f64(),
        }));
    }

    fn summarise(&self, connection: &Connection, tally: &Tally, printer: Printer) {
        printer.line(format_args!(
            "--- {}: {} sent, {} received, {:.1} % loss",
            connection.remote_addr(),
            tally.sent,
            tally.received,
            tally.loss_percent(),
        ));
        if let Some(min) = tally.min {
            printer.line(format_args!(
                "rtt min/avg/max/mdev {}/{}/{}/{} ms",
                millis(min),
                millis(tally.mean()),
                millis(tally.max),
                millis(tally.deviation()),
            ));
        }
        let measured = |value: Duration| tally.min.map(|_| value.as_secs_f64());
        printer.record(&json!({
            "schema": "towline.echo/1",
            "peer": connection.remote_addr().to_string(),
            "over": if self.datagram { "datagram" } else { "stream" },
            "sent": tally.sent,
            "received": tally.received,
            "loss_percent": tally.loss_percent(),
            "rtt_min": tally.min.map(|rtt| rtt.as_secs_f64()),
            "rtt_avg": measured(tally.mean()),
            "rtt_max": measured(tally.max),
            "rtt_mdev": measured(tally.deviation()),
            "connection": StatsRecord::from(&connection.stats()),
        }));
    }
}

/// A message of so many bytes, at least [`LEAST_SIZE`], which begins with its number.
pub(crate) fn numbered(number: u64, size: usize) -> Bytes {
    let mut message = number.to_be_bytes().to_vec();
    message.resize(size, 0);
    message.into()
}

/// The number that a message begins with.
pub(crate) fn number_of(message: &[u8]) -> Option<u64> {
    message
        .first_chunk()
        .map(|number| u64::from_be_bytes(*number))
}

/// Server: everything on the stream goes back, to its end.
pub(crate) async fn answer_stream(mut send: SendStream, mut recv: RecvStream) {
    while let Ok(Some(chunk)) = recv.read_chunk(CHUNK).await {
        if send.write_chunk(chunk).await.is_err() {
            return;
        }
    }
    let _ = send.finish();
}

/// Server: every datagram goes back, unless the queue is full.
pub(crate) async fn answer_datagrams(connection: Connection) {
    while let Ok(datagram) = connection.read_datagram().await {
        if let Err(SendDatagramError::ConnectionLost(_)) = connection.send_datagram(datagram) {
            return;
        }
    }
}

#[cfg(test)]
mod tests;
