//! [`Channel`]: a connection as the link sees it: messages go in, messages and their fates come out.
//!
//! Over QUIC a batch is a datagram, or a stream of its own if it is too large; over TLS all are frames of
//! one stream, behind their length in 4 bytes. Readers are tasks that end with the channel.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use towline_link::MAX_CONTROL;
use towline_link::carriage::{Fill, MAX_MESSAGE, may_stream};
use towline_link::sender::{Carrier, Outgoing, Room};
use towline_quic::{DatagramFate, DatagramOptions};

use crate::stcp::Stream;
use crate::{Connection, ConnectionError, SendStream};

/// Messages that wait for the link.
const MAX_INPUTS: usize = 64;
/// Control messages that wait for the peer to take them, beside what its stream's buffer holds.
const MAX_CONTROLS: usize = 16;
/// Bytes that the system may keep of what was written over TLS and not sent.
const UNSENT_BYTES: u32 = 16 << 10;
/// What a connection over TCP is taken to need for a round trip: nothing measures it, and what is written waits in the
/// system or on the way, for long on a slow one. Nothing is lost on it, so that this only says when a batch of which nothing
/// is heard is sent again: the receiver could not take it.
const TCP_RTT: Duration = Duration::from_secs(30);
/// Bytes that a record of TLS takes beside what is in it (RFC 8446 §5.2).
const TLS_RECORD: u64 = 22;
/// The first byte of the frame that says why a connection over TLS ends.
const FAREWELL: u8 = 0x04;
/// Bytes of such a reason; what is beyond is left out.
const MAX_REASON: usize = 512;
/// How long a peer may take no byte over TLS.
const STUCK: Duration = Duration::from_secs(60);
/// Bytes of a batch over TCP, and of two: one goes while the one before is being written.
const TLS_BATCH: usize = 1_200;
const TLS_FREE: usize = 2 * TLS_BATCH;

/// What happened on a connection.
#[derive(Debug)]
pub(super) enum Input {
    Message(Bytes),
    Acked(u64),
    Lost(u64),
    /// It is over, and why.
    Ended(String),
}

#[derive(Debug)]
pub(super) struct Channel {
    inputs: mpsc::Receiver<Input>,
    way: Way,
    /// They end with it.
    _tasks: JoinSet<()>,
}

#[derive(Debug)]
enum Way {
    Quic {
        connection: Connection,
        control: mpsc::Sender<Bytes>,
        /// Bytes that the queue of datagrams holds when it is empty.
        queue: usize,
        streams: mpsc::Sender<(u64, Bytes)>,
    },
    Tls {
        frames: mpsc::Sender<(u64, Bytes)>,
        control: mpsc::Sender<Bytes>,
        carried: Arc<Carried>,
    },
}

/// Bytes that a connection over TLS carried.
#[derive(Debug, Default)]
struct Carried {
    sent: AtomicU64,
    received: AtomicU64,
}

impl Carried {
    fn add(counter: &AtomicU64, frame: usize) {
        // A length of 4 bytes stands before it.
        counter.fetch_add(frame as u64 + 4 + TLS_RECORD, Ordering::Relaxed);
    }
}

impl Channel {
    /// Over a connection on which nothing was said yet, as the end that opened it or not.
    pub(super) fn over_quic(connection: Connection, is_client: bool) -> Self {
        let (to, inputs) = mpsc::channel(MAX_INPUTS);
        let (control, for_control) = mpsc::channel(MAX_CONTROLS);
        // One at a time: what waits here could have been coded anew.
        let (streams, for_streams) = mpsc::channel(1);
        let queue = connection.datagram_send_buffer_space();
        let mut tasks = JoinSet::new();
        tasks.spawn(read_datagrams(connection.clone(), to.clone()));
        tasks.spawn(read_fates(connection.clone(), to.clone()));
        tasks.spawn(read_streams(connection.clone(), to.clone()));
        tasks.spawn(write_streams(connection.clone(), for_streams, to.clone()));
        tasks.spawn(control_stream(
            connection.clone(),
            is_client,
            for_control,
            to,
        ));
        Self {
            inputs,
            way: Way::Quic {
                connection,
                control,
                queue,
                streams,
            },
            _tasks: tasks,
        }
    }

    /// Over TLS.
    pub(super) fn over_tls(stream: Stream) -> Self {
        let (to, inputs) = mpsc::channel(MAX_INPUTS);
        let (frames, for_frames) = mpsc::channel(1);
        let (control, for_control) = mpsc::channel(MAX_CONTROLS);
        // What the system keeps could have been coded anew; where it can't be told, it keeps more.
        let socket = socket2::SockRef::from(stream.tcp());
        let _ = socket.set_tcp_notsent_lowat(UNSENT_BYTES);
        // A peer whose network is gone says nothing more.
        let often = socket2::TcpKeepalive::new()
            .with_time(STUCK)
            .with_interval(STUCK / 3)
            .with_retries(3);
        let _ = socket.set_tcp_keepalive(&often);
        let _ = socket.set_tcp_user_timeout(Some(STUCK));
        let mut tasks = JoinSet::new();
        let carried = Arc::new(Carried::default());
        let (mut reader, writer) = stream.into_split();
        let (counted, acked) = (Arc::clone(&carried), to.clone());
        tasks.spawn(async move {
            let why = loop {
                match read_frame(&mut reader, MAX_MESSAGE).await {
                    Ok(frame) if frame.first() == Some(&FAREWELL) => {
                        let reason = &frame[1..frame.len().min(1 + MAX_REASON)];
                        break format!("closed by the peer: {}", reason.escape_ascii());
                    }
                    Ok(frame) => {
                        Carried::add(&counted.received, frame.len());
                        if to.send(Input::Message(frame)).await.is_err() {
                            return;
                        }
                    }
                    Err(why) => break why,
                }
            };
            let _ = to.send(Input::Ended(why)).await;
        });
        // It ends when the channel does, after what was given to it.
        tokio::spawn(write_frames(
            writer,
            for_frames,
            for_control,
            Arc::clone(&carried),
            acked,
        ));
        Self {
            inputs,
            way: Way::Tls {
                frames,
                control,
                carried,
            },
            _tasks: tasks,
        }
    }

    /// What happens next. Cancel safe.
    pub(super) async fn input(&mut self) -> Input {
        let input = self.inputs.recv().await;
        input.unwrap_or_else(|| Input::Ended("the connection is gone".to_owned()))
    }

    /// What there is room for.
    pub(super) fn room(&self) -> Room {
        match &self.way {
            Way::Quic {
                connection,
                queue,
                streams,
                ..
            } => {
                let stats = connection.stats();
                let queued = queue.saturating_sub(connection.datagram_send_buffer_space());
                let fill = Fill {
                    in_flight: stats.bytes_in_flight,
                    queued: queued as u64,
                    window: stats.cwnd,
                    is_idle: streams.capacity() > 0,
                    datagram: connection.max_datagram_len().unwrap_or(0),
                    rtt: stats.smoothed_rtt,
                };
                fill.room()
            }
            Way::Tls { frames, .. } => Room {
                free: if frames.capacity() > 0 { TLS_FREE } else { 0 },
                alarms_only: false,
                datagram: TLS_BATCH,
                rtt: TCP_RTT,
            },
        }
    }

    /// Whether the peer takes control messages: nothing more is to be said to one that does not.
    pub(super) fn takes_control(&self) -> bool {
        let (Way::Quic { control, .. } | Way::Tls { control, .. }) = &self.way;
        control.capacity() > 0
    }

    /// Sends a message, for which there is room, to a peer that takes control messages. Whether the connection is over is
    /// told by [`input`](Self::input).
    ///
    /// # Errors
    /// The transmission, if it finds no place: that of a large batch while another one waits for its stream.
    pub(super) fn send(&self, message: Outgoing) -> Result<(), u64> {
        let bytes = Bytes::from(message.bytes);
        match (&self.way, message.carrier) {
            (Way::Quic { control, .. } | Way::Tls { control, .. }, Carrier::Control) => {
                let _ = control.try_send(bytes);
            }
            (Way::Tls { control, .. }, Carrier::Report { .. }) => {
                let _ = control.try_send(bytes);
            }
            (Way::Tls { frames, .. }, Carrier::Batch { transmission, .. }) => {
                let _ = frames.try_send((transmission, bytes));
            }
            (Way::Quic { connection, .. }, Carrier::Report { number }) => {
                let options = DatagramOptions::default().id(number);
                // The next one makes up for it.
                let _ = connection.send_datagram_with(b"", bytes, &options);
            }
            (
                Way::Quic {
                    connection,
                    streams,
                    ..
                },
                Carrier::Batch { transmission, .. },
            ) => {
                let fits = connection.max_datagram_len();
                if fits.is_some_and(|most| bytes.len() <= most) {
                    let options = DatagramOptions::default().id(transmission);
                    let sent = connection.send_datagram_with(b"", bytes, &options);
                    sent.map_err(|_| transmission)?;
                } else {
                    let sent = streams.try_send((transmission, bytes));
                    sent.map_err(|_| transmission)?;
                }
            }
        }
        Ok(())
    }

    /// Which connection it is, if it is one of QUIC.
    pub(super) fn quic(&self) -> Option<&Connection> {
        match &self.way {
            Way::Quic { connection, .. } => Some(connection),
            Way::Tls { .. } => None,
        }
    }

    /// Bytes that it carried, those that were sent first: UDP payload, or TCP's without the handshake.
    pub(super) fn carried(&self) -> (u64, u64) {
        match &self.way {
            Way::Quic { connection, .. } => {
                let stats = connection.stats();
                (stats.bytes_sent, stats.bytes_received)
            }
            Way::Tls { carried, .. } => (
                carried.sent.load(Ordering::Relaxed),
                carried.received.load(Ordering::Relaxed),
            ),
        }
    }

    /// Ends the connection and says why; one over TLS ends when the channel is dropped.
    pub(super) fn close(&self, reason: &str) {
        match &self.way {
            Way::Quic { connection, .. } => {
                connection.close(u64::from(!reason.is_empty()), reason.as_bytes());
            }
            Way::Tls { control, .. } if !reason.is_empty() => {
                let mut frame = vec![FAREWELL];
                frame.extend(reason.bytes().take(MAX_REASON));
                let _ = control.try_send(frame.into());
            }
            Way::Tls { .. } => {}
        }
    }
}

async fn read_datagrams(connection: Connection, to: mpsc::Sender<Input>) {
    let why = loop {
        match connection.read_datagram().await {
            Ok(message) => {
                if to.send(Input::Message(message)).await.is_err() {
                    return;
                }
            }
            Err(error) => break said(&error),
        }
    };
    let _ = to.send(Input::Ended(why)).await;
}

/// Why a connection ended, for those who can do something about it.
fn said(error: &ConnectionError) -> String {
    let is_refusal = matches!(error, ConnectionError::ClosedByPeer(_))
        && error.to_string().contains("CRYPTO_ERROR");
    match is_refusal {
        true => format!("the other end does not let this key in: name it there ({error})"),
        false => error.to_string(),
    }
}

async fn read_fates(connection: Connection, to: mpsc::Sender<Input>) {
    while let Ok((number, fate)) = connection.datagram_fate().await {
        let input = match fate {
            DatagramFate::Acked => Input::Acked(number),
            _ => Input::Lost(number),
        };
        if to.send(input).await.is_err() {
            return;
        }
    }
}

/// One stream after the other: each is a batch.
async fn read_streams(connection: Connection, to: mpsc::Sender<Input>) {
    while let Ok(mut stream) = connection.accept_uni().await {
        // One that ends before its time is a batch that comes again.
        if let Ok(message) = stream.read_to_end(MAX_MESSAGE).await
            && to.send(Input::Message(message.into())).await.is_err()
        {
            return;
        }
    }
}

async fn write_streams(
    connection: Connection,
    mut streams: mpsc::Receiver<(u64, Bytes)>,
    to: mpsc::Sender<Input>,
) {
    let mut finishing: JoinSet<usize> = JoinSet::new();
    let mut streamed = 0;
    while let Some((transmission, message)) = streams.recv().await {
        let len = message.len();
        while let Some(Ok(gone)) = finishing.try_join_next() {
            streamed -= gone;
        }
        while !may_stream(len, streamed, connection.stats().cwnd)
            && let Some(Ok(gone)) = finishing.join_next().await
        {
            streamed -= gone;
        }
        streamed += len;
        let Ok(mut stream) = connection.open_uni().await else {
            return;
        };
        if stream.write_chunk(message).await.is_err() {
            return;
        }
        let _ = stream.finish();
        let to = to.clone();
        // A receiver that could make nothing of it is asked again, as for a datagram.
        finishing.spawn(async move {
            let fate = match stream.finished().await {
                Ok(()) => Input::Acked(transmission),
                Err(_) => Input::Lost(transmission),
            };
            let _ = to.send(fate).await;
            len
        });
    }
    // Those that were written are still told of.
    while finishing.join_next().await.is_some() {}
}

async fn control_stream(
    connection: Connection,
    is_client: bool,
    messages: mpsc::Receiver<Bytes>,
    to: mpsc::Sender<Input>,
) {
    let opened = match is_client {
        true => connection.open_bi().await,
        false => connection.accept_bi().await,
    };
    let Ok((send, mut recv)) = opened else {
        return;
    };
    let mut writing = JoinSet::new();
    writing.spawn(write_control(send, messages));
    let why = loop {
        match read_frame(&mut recv, MAX_CONTROL).await {
            Ok(message) => {
                if to.send(Input::Message(message)).await.is_err() {
                    return;
                }
            }
            Err(why) => break why,
        }
    };
    // Why the connection ended is told by who reads datagrams.
    if connection.close_reason().is_none() {
        let _ = to.send(Input::Ended(why)).await;
    }
}

async fn write_control(mut send: SendStream, mut messages: mpsc::Receiver<Bytes>) {
    while let Some(message) = messages.recv().await {
        if send.write_chunk(framed(&message)).await.is_err() {
            return;
        }
    }
}

async fn write_frames(
    mut writer: impl AsyncWriteExt + Unpin,
    mut frames: mpsc::Receiver<(u64, Bytes)>,
    mut control: mpsc::Receiver<Bytes>,
    carried: Arc<Carried>,
    to: mpsc::Sender<Input>,
) {
    loop {
        let (transmission, message) = tokio::select! {
            biased;
            Some(message) = control.recv() => (None, message),
            Some((transmission, message)) = frames.recv() => (Some(transmission), message),
            else => break,
        };
        let frame = framed(&message);
        let written = async {
            writer.write_all(&frame).await?;
            writer.flush().await
        };
        // A peer that takes nothing is gone, whether the system knows it or not.
        let why = match tokio::time::timeout(STUCK, written).await {
            Ok(Ok(())) => None,
            Ok(Err(error)) => Some(error.to_string()),
            Err(_) => Some("the peer takes nothing".to_owned()),
        };
        if let Some(why) = why {
            let _ = to.send(Input::Ended(why)).await;
            return;
        }
        Carried::add(&carried.sent, message.len());
        // Nothing on TCP is lost; a batch that the receiver could not take comes again.
        if let Some(transmission) = transmission
            && to.send(Input::Acked(transmission)).await.is_err()
        {
            // Nobody listens: what is left to say is why.
            frames.close();
        }
    }
    let _ = tokio::time::timeout(STUCK, writer.shutdown()).await;
}

fn framed(message: &[u8]) -> Bytes {
    let mut frame = Vec::with_capacity(4 + message.len());
    frame.extend_from_slice(&(message.len() as u32).to_be_bytes());
    frame.extend_from_slice(message);
    frame.into()
}

async fn read_frame(
    reader: &mut (impl AsyncReadExt + Unpin),
    most: usize,
) -> Result<Bytes, String> {
    let len = reader.read_u32().await.map_err(|error| error.to_string())?;
    let len = len as usize;
    if len > most {
        return Err(format!(
            "the peer sent a frame of {len} bytes; {most} are taken"
        ));
    }
    // Memory grows with what comes, and not with what is announced.
    let mut frame = Vec::new();
    let read = reader.take(len as u64).read_to_end(&mut frame).await;
    match read {
        Ok(read) if read == len => Ok(frame.into()),
        Ok(_) => Err("the connection ended inside a frame".to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_frame_that_is_too_long_is_refused_before_it_is_read() {
        let frame = framed(b"0123456789");
        assert_eq!(read_frame(&mut &frame[..], 10).await.unwrap(), "0123456789");
        let why = read_frame(&mut &frame[..4], 9).await.unwrap_err();
        assert!(why.contains("10 bytes; 9 are taken"), "{why}");
        assert!(read_frame(&mut &frame[..9], 10).await.is_err());
    }
}
