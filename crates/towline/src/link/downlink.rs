//! [`Listener`] and [`Downlink`]: the end that receives.

use std::ops::Range;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::Instant;
use towline_identity::PeerIdentity;
use towline_link::receiver::{Arrival, Receiver, ReceiverError, ReceiverStats};
use towline_wire::{RangeSet, Time};

use super::carrier::{Channel, Input};
use super::via::Via;
use crate::{Connection, Endpoint, stcp};

/// From a failed call to the next, and from one look at a peer that takes nothing to the next.
const AGAIN: Duration = Duration::from_secs(1);

/// Takes uplinks, over UDP and, if it is given a listener for it, over TLS.
#[derive(Debug)]
pub struct Listener {
    endpoint: Endpoint,
    tls: mpsc::Receiver<stcp::Stream>,
    _tasks: JoinSet<()>,
}

impl Listener {
    /// One on this endpoint, whose configuration is one with the link's [options](super::options). Call it
    /// inside a tokio runtime.
    #[must_use]
    pub fn new(endpoint: Endpoint, tls: Option<stcp::Listener>) -> Self {
        let (to, streams) = mpsc::channel(1);
        let mut tasks = JoinSet::new();
        if let Some(mut listener) = tls {
            tasks.spawn(async move {
                loop {
                    match listener.accept().await {
                        Ok((stream, _)) => {
                            if to.send(stream).await.is_err() {
                                return;
                            }
                        }
                        // Such as too many open files: the next call may do better.
                        Err(error) => {
                            tracing::error!("a link over TLS was not taken: {error}");
                            tokio::time::sleep(AGAIN).await;
                        }
                    }
                }
            });
        }
        Self {
            endpoint,
            tls: streams,
            _tasks: tasks,
        }
    }

    /// The next uplink; `None` once the endpoint is closed. Cancel safe.
    pub async fn accept(&mut self) -> Option<Downlink> {
        tokio::select! {
            connection = self.endpoint.accept() => connection.map(Downlink::over_quic),
            Some(stream) = self.tls.recv() => Some(Downlink::over_tls(stream)),
        }
    }

    /// The endpoint.
    #[must_use]
    pub fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }
}

/// Why a downlink ended.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DownlinkError {
    /// The connection did.
    #[error("{0}")]
    Ended(String),
    /// The sender sent what makes no sense; it was disconnected.
    #[error(transparent)]
    Refused(#[from] ReceiverError),
}

/// One uplink's connection, at the end that receives. A new connection of the same uplink is another one.
#[derive(Debug)]
pub struct Downlink {
    channel: Channel,
    receiver: Receiver,
    via: Via,
    peer: Option<PeerIdentity>,
    origin: Instant,
}

impl Downlink {
    fn over_quic(connection: Connection) -> Self {
        let peer = connection.peer_identity();
        Self::new(Channel::over_quic(connection, false), Via::Udp, peer)
    }

    fn over_tls(stream: stcp::Stream) -> Self {
        let peer = stream.peer().cloned();
        Self::new(Channel::over_tls(stream), Via::Tls, peer)
    }

    fn new(channel: Channel, via: Via, peer: Option<PeerIdentity>) -> Self {
        Self {
            channel,
            receiver: Receiver::new(),
            via,
            peer,
            origin: Instant::now(),
        }
    }

    fn now(&self) -> Time {
        Time::ZERO + self.origin.elapsed()
    }

    /// What comes next. The first is a hello, which [`accept`](Self::accept) answers. Messages to the sender
    /// leave while this is waited for. Cancel safe.
    ///
    /// # Errors
    /// When the connection is over.
    pub async fn next(&mut self) -> Result<Arrival, DownlinkError> {
        loop {
            while self.channel.takes_control()
                && let Some(message) = self.receiver.poll_message(self.now())
            {
                // What a receiver says is small.
                let _ = self.channel.send(message);
            }
            if let Some(arrival) = self
                .receiver
                .poll_early(self.now())
                .map_err(|e| self.refuse(e))?
            {
                return Ok(arrival);
            }
            let wake = match self.channel.takes_control() {
                true => self.receiver.poll_timeout(),
                false => Some(self.now() + AGAIN),
            };
            let wake = wake.map(|due| self.origin + due.saturating_duration_since(Time::ZERO));
            let input = tokio::select! {
                input = self.channel.input() => input,
                () = sleep_until(wake) => continue,
            };
            match input {
                Input::Message(bytes) => {
                    let arrival = self.receiver.handle_message(self.now(), &bytes);
                    if let Some(arrival) = arrival.map_err(|error| self.refuse(error))? {
                        return Ok(arrival);
                    }
                }
                Input::Acked(_) => {}
                Input::Lost(report) => {
                    let now = self.now();
                    self.receiver.on_lost(now, report);
                }
                Input::Ended(why) => return Err(DownlinkError::Ended(why)),
            }
        }
    }

    fn refuse(&self, error: ReceiverError) -> DownlinkError {
        self.channel.close(&error.to_string());
        error.into()
    }

    /// Takes the sender that said hello; `durable` are its records that are durable here.
    pub fn accept(&mut self, durable: RangeSet) {
        self.receiver.accept(durable);
    }

    /// Sends the sender away, and says why.
    pub fn reject(self, reason: &str) {
        self.channel.close(reason);
    }

    /// These were durable before, which could not be said when the sender was [accepted](Self::accept) and put
    /// [on hold](Self::on_hold); with this it no longer is.
    pub fn on_opened(&mut self, durable: &RangeSet) {
        let now = self.now();
        self.receiver.on_opened(now, durable);
    }

    /// These are durable.
    pub fn on_durable(&mut self, seqs: Range<u64>) {
        let now = self.now();
        self.receiver.on_durable(now, seqs);
    }

    /// There was no place for these; they come again when it is no longer on hold.
    pub fn on_discarded(&mut self, seqs: Range<u64>) {
        self.receiver.on_discarded(seqs);
    }

    /// On hold, the sender sends what is new alone, and keeps it.
    pub fn on_hold(&mut self, is_on_hold: bool) {
        self.receiver.on_hold(is_on_hold);
    }

    /// What carries it.
    #[must_use]
    pub fn via(&self) -> Via {
        self.via
    }

    /// Who the sender proved to be, if it was asked.
    #[must_use]
    pub fn peer(&self) -> Option<&PeerIdentity> {
        self.peer.as_ref()
    }

    /// The connection, if it is one of QUIC.
    #[must_use]
    pub fn connection(&self) -> Option<&Connection> {
        self.channel.quic()
    }

    /// Numbers that people watch.
    #[must_use]
    pub fn stats(&self) -> ReceiverStats {
        self.receiver.stats()
    }
}

async fn sleep_until(wake: Option<Instant>) {
    match wake {
        Some(wake) => tokio::time::sleep_until(wake).await,
        None => std::future::pending().await,
    }
}
