//! `towline echo`: round trips over a stream or in datagrams, like ping; and its server side.

use std::time::Duration;

use bytes::Bytes;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::Instant;
use towline::{Connection, RecvStream, SendDatagramError, SendStream};
use towline_transfer::put_varint;

use crate::exit::{Exit, Failure};
use crate::failures::connection_failure;
use crate::interrupt::Interrupt;
use crate::net::{Client, ConnectArgs, options};
use crate::printer::Printer;
use crate::stats::StatsRecord;
use crate::streams::ECHO;
use crate::units::{millis, parse_duration, parse_size};
use crate::url::Url;

/// A sequence number starts every message.
const LEAST_SIZE: u64 = 8;
const MOST_SIZE: u64 = 16 << 20;
/// How long the last answers may take.
const LAST_ANSWERS: Duration = Duration::from_secs(2);
const CHUNK: usize = 64 * 1024;

/// Flags of `echo`.
#[derive(clap::Args)]
pub(crate) struct EchoArgs {
    /// The server
    #[arg(value_name = "URL")]
    url: Url,
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
    #[command(flatten)]
    network: ConnectArgs,
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
        if !(LEAST_SIZE..=MOST_SIZE).contains(&self.size) {
            return Err(Failure::usage(format!(
                "--size {} is not between {LEAST_SIZE} bytes and 16 MiB",
                self.size
            )));
        }
        let mut interrupt = Interrupt::install(printer);
        let options = options(self.network.idle_timeout, &self.network.congestion);
        let client = tokio::select! {
            client = self.network.connect(&self.url, &options, printer) => client?,
            () = interrupt.wait() => return Ok(Exit::Interrupted),
        };
        let mut tally = Tally::default();
        let result = tokio::select! {
            result = self.measure(&client, &mut tally, printer) => result,
            () = interrupt.wait() => Ok(()),
        };
        self.summarise(&client, &tally, printer);
        client.close(0, "").await;
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
        client: &Client,
        tally: &mut Tally,
        printer: Printer,
    ) -> Result<(), Failure> {
        if self.datagram {
            self.over_datagrams(&client.connection, tally, printer)
                .await
        } else {
            self.over_a_stream(&client.connection, tally, printer).await
        }
    }

    /// One after the other: a message is sent when its predecessor is back.
    async fn over_a_stream(
        &self,
        connection: &Connection,
        tally: &mut Tally,
        printer: Printer,
    ) -> Result<(), Failure> {
        let (mut send, mut recv) = connection
            .open_bi()
            .await
            .map_err(|error| connection_failure(&error))?;
        let mut kind = Vec::new();
        put_varint(&mut kind, ECHO);
        let mut message = vec![0; self.size as usize];
        let mut answer = vec![0; self.size as usize];
        let mut ticks = tokio::time::interval(self.interval.max(Duration::from_micros(1)));
        let broken = |_| match connection.close_reason() {
            Some(reason) => connection_failure(&reason),
            None => Failure::new(Exit::Other, "the server does not echo"),
        };
        send.write_all(&kind)
            .await
            .map_err(|error| broken(error.into()))?;
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
            written.map_err(broken)?;
            read.map_err(broken)?;
            if answer != message {
                return Err(Failure::new(
                    Exit::Protocol,
                    "the server sent something else back",
                ));
            }
            self.show(sequence, started.elapsed(), tally, connection, printer);
        }
        let _ = send.finish();
        Ok(())
    }

    async fn over_datagrams(
        &self,
        connection: &Connection,
        tally: &mut Tally,
        printer: Printer,
    ) -> Result<(), Failure> {
        let most = connection.max_datagram_len().unwrap_or(0);
        if self.size > most as u64 {
            return Err(Failure::usage(format!(
                "--size {} does not fit into one datagram, which takes {most} bytes here",
                self.size
            )));
        }
        let mut ticks = tokio::time::interval(self.interval.max(Duration::from_micros(1)));
        let count = self.count.unwrap_or(u64::MAX);
        // When each was sent; answers are looked up by number, so duplicates do not count.
        let mut under_way = std::collections::VecDeque::new();
        let mut deadline: Option<Instant> = None;
        loop {
            if tally.sent == count && (tally.received == count || under_way.is_empty()) {
                return Ok(());
            }
            let last = deadline.unwrap_or_else(Instant::now);
            tokio::select! {
                _ = ticks.tick(), if tally.sent < count => {
                    let mut message = vec![0; self.size as usize];
                    message[..8].copy_from_slice(&tally.sent.to_be_bytes());
                    match connection.send_datagram(Bytes::from(message)) {
                        Ok(()) | Err(SendDatagramError::Full) => {}
                        Err(SendDatagramError::ConnectionLost(error)) => return Err(connection_failure(&error)),
                        Err(error) => return Err(Failure::new(Exit::Other, error.to_string())),
                    }
                    under_way.push_back((tally.sent, Instant::now()));
                    tally.sent += 1;
                    if under_way.len() > 4096 {
                        under_way.pop_front();
                    }
                    if tally.sent == count {
                        deadline = Some(Instant::now() + LAST_ANSWERS);
                    }
                }
                answer = connection.read_datagram() => {
                    let answer = answer.map_err(|error| connection_failure(&error))?;
                    let Some(sequence) = answer.first_chunk::<8>().map(|bytes| u64::from_be_bytes(*bytes)) else { continue };
                    if let Some(at) = under_way.iter().position(|(sent, _)| *sent == sequence)
                        && let Some((_, started)) = under_way.remove(at)
                    {
                        self.show(sequence, started.elapsed(), tally, connection, printer);
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

    fn summarise(&self, client: &Client, tally: &Tally, printer: Printer) {
        printer.line(format_args!(
            "--- {}: {} sent, {} received, {:.1} % loss",
            client.connection.remote_addr(),
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
            "peer": client.connection.remote_addr().to_string(),
            "over": if self.datagram { "datagram" } else { "stream" },
            "sent": tally.sent,
            "received": tally.received,
            "loss_percent": tally.loss_percent(),
            "rtt_min": tally.min.map(|rtt| rtt.as_secs_f64()),
            "rtt_avg": measured(tally.mean()),
            "rtt_max": measured(tally.max),
            "rtt_mdev": measured(tally.deviation()),
            "connection": StatsRecord::from(&client.connection.stats()),
        }));
    }
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
