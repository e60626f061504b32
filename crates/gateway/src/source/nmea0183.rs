//! NMEA 0183 sentences over TCP, UDP, or from a reader.

use std::convert::Infallible;

use tokio::io::AsyncRead;
use tokio::net::UdpSocket;

use super::intake::{Ended, Gone, Intake, Peer};
use crate::lines::{Line, Lines};
use crate::nmea0183::MAX_SENTENCE;
use crate::url::Url;
use crate::{BadUrl, Refused, Status, Translator, connect};

/// The port of NMEA 0183 over TCP and UDP, by custom.
const PORT: u16 = 10_110;

/// Cap: bytes of one datagram of sentences; what is beyond is cut off.
pub(crate) const MAX_DATAGRAM: usize = 65_507;

/// Where sentences come from, and how they are called.
#[derive(Clone, Debug)]
pub struct Nmea0183Options {
    /// `tcp://host:10110` connects; `udp://0.0.0.0:10110` listens.
    pub url: String,
    /// The connection's name, as in `$source` = `label.GP`.
    pub label: String,
    /// Whose values they are; see [`Translator::new`].
    pub context: Option<String>,
}

impl Nmea0183Options {
    /// Under the label `nmea0183`, without a context.
    pub fn new(url: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            label: "nmea0183".to_owned(),
            context: None,
        }
    }
}

/// The same, checked.
pub(super) struct Talker {
    host: String,
    port: u16,
    is_udp: bool,
    translator: Translator,
    now: fn() -> i64,
}

impl Peer for Talker {
    async fn session(&self, intake: &Intake) -> Ended {
        let mut reading = Reading {
            translator: self.translator.clone(),
            now: self.now,
            intake,
            is_from_network: true,
        };
        let ended = match self.is_udp {
            true => self.udp(&mut reading).await,
            false => self.tcp(&mut reading).await,
        };
        let Err(ended) = ended;
        ended
    }
}

impl Talker {
    pub(super) fn new(options: Nmea0183Options, now: fn() -> i64) -> Result<Self, BadUrl> {
        let bad = |reason: &str| BadUrl::new(&options.url, reason);
        let url = Url::parse(&options.url)?;
        let is_udp = match url.scheme.as_str() {
            "tcp" => false,
            "udp" => true,
            _ => return Err(bad("tcp:// and udp:// are known")),
        };
        let host = match url.host.as_str() {
            "" if is_udp => "0.0.0.0".to_owned(),
            "" => return Err(bad("it has no host")),
            _ => url.host,
        };
        Ok(Self {
            host,
            port: url.port.unwrap_or(PORT),
            is_udp,
            translator: Translator::new(options.label, options.context),
            now,
        })
    }

    async fn tcp(&self, reading: &mut Reading<'_>) -> Result<Infallible, Ended> {
        let stream = connect::tcp(&self.host, self.port).await?;
        reading.intake.status(Status::Up);
        let mut lines = Lines::new(stream, MAX_SENTENCE);
        loop {
            let line = lines.next().await;
            let line = line.map_err(|error| format!("the connection was lost: {error}"))?;
            match line {
                Some(line) => reading.take("a sentence", &line).await?,
                None => {
                    return Err(Ended::Failed(
                        "the other end closed the connection".to_owned(),
                    ));
                }
            }
        }
    }

    async fn udp(&self, reading: &mut Reading<'_>) -> Result<Infallible, Ended> {
        let at = format!("{}:{}", self.host, self.port);
        let socket = UdpSocket::bind((self.host.as_str(), self.port)).await;
        let socket = socket.map_err(|error| format!("no socket at {at}: {error}"))?;
        reading.intake.status(Status::Up);
        let mut buffer = vec![0; MAX_DATAGRAM];
        loop {
            let received = socket.recv_from(&mut buffer).await;
            let (len, from) = received.map_err(|error| format!("{at}: {error}"))?;
            let what = format!("from {from}");
            for line in buffer[..len].split(|&byte| byte == b'\n') {
                reading.take(&what, &Line::Text(line)).await?;
            }
        }
    }
}

/// Reads to the end.
pub(super) async fn read(
    reader: impl AsyncRead + Unpin,
    translator: Translator,
    now: fn() -> i64,
    intake: Intake,
) {
    intake.status(Status::Up);
    let mut reading = Reading {
        translator,
        now,
        intake: &intake,
        is_from_network: false,
    };
    let mut lines = Lines::new(reader, MAX_SENTENCE);
    for number in 1u64.. {
        let line = match lines.next().await {
            Ok(Some(line)) => line,
            Ok(None) => return,
            Err(error) => return intake.fail(error.into()).await,
        };
        let what = format!("line {number}");
        if reading.take(&what, &line).await.is_err() {
            return;
        }
    }
}

/// Turns lines into records.
struct Reading<'a> {
    translator: Translator,
    now: fn() -> i64,
    intake: &'a Intake,
    is_from_network: bool,
}

impl Reading<'_> {
    async fn take(&mut self, what: &str, line: &Line<'_>) -> Result<(), Gone> {
        let text = match line {
            Line::Text(text) if text.trim_ascii().is_empty() => return Ok(()),
            Line::Text(text) => text,
            Line::TooLong(len) => {
                let why = format!("{what}: a sentence of {len} bytes");
                self.intake.malformed(&why, self.is_from_network);
                return Ok(());
            }
        };
        match self.translator.translate(text, (self.now)()) {
            Ok(Some(record)) => self.intake.record(record).await?,
            Ok(None) => {}
            Err(Refused::Unsupported(_)) => self.intake.unsupported(),
            Err(Refused::Malformed(why)) => {
                let why = format!("{what}: {why}");
                self.intake.malformed(&why, self.is_from_network);
            }
        }
        Ok(())
    }
}
