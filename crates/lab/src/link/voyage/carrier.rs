//! [`Channel`]: how messages of the link go over a connection, as the driver carries them.
//!
//! A batch is a datagram, or a stream of its own if it is too large; what must be in order goes over one stream
//! of both, behind its length.

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;
use towline_link::MAX_CONTROL;
use towline_link::carriage::{Fill, MAX_MESSAGE, may_stream};
use towline_link::sender::{Carrier, Outgoing, Room};
use towline_quic::{
    Connection, ConnectionHandle, DatagramFate, DatagramOptions, Direction, Event, StreamId,
};
use towline_wire::Time;

/// What happened.
pub(super) enum Input {
    Message(Bytes),
    Acked(u64),
    Lost(u64),
}

pub(super) struct Channel {
    pub(super) handle: ConnectionHandle,
    is_client: bool,
    control: Option<StreamId>,
    to_control: VecDeque<Bytes>,
    from_control: Vec<u8>,
    /// Bytes that the queue of datagrams holds when it is empty.
    queue: usize,
    /// A batch that waits for the one before it to be written.
    waiting: Option<(u64, Bytes)>,
    writing: Option<(StreamId, Bytes)>,
    /// The batches on streams that the peer does not have yet.
    finishing: BTreeMap<StreamId, (u64, usize)>,
    /// Bytes of those.
    streamed: usize,
    /// Streams that came, of which the first is read.
    reading: VecDeque<StreamId>,
    read: Vec<u8>,
    pub(super) streams: u64,
}

impl Channel {
    pub(super) fn new(
        handle: ConnectionHandle,
        connection: &mut Connection,
        is_client: bool,
    ) -> Self {
        let control = is_client.then(|| connection.open(Direction::Bidirectional));
        Self {
            handle,
            is_client,
            control: control.flatten(),
            to_control: VecDeque::new(),
            from_control: Vec::new(),
            queue: connection.datagram_send_buffer_space(),
            waiting: None,
            writing: None,
            finishing: BTreeMap::new(),
            streamed: 0,
            reading: VecDeque::new(),
            read: Vec::new(),
            streams: 0,
        }
    }

    /// Bytes of datagrams that wait to leave.
    pub(super) fn queued(&self, connection: &Connection) -> usize {
        let free = connection.datagram_send_buffer_space();
        match connection.is_closed() {
            true => 0,
            false => self.queue.saturating_sub(free),
        }
    }

    pub(super) fn room(&self, connection: &Connection) -> Room {
        let stats = connection.stats();
        let fill = Fill {
            in_flight: stats.bytes_in_flight,
            queued: self.queued(connection) as u64,
            window: stats.cwnd,
            is_idle: self.waiting.is_none(),
            datagram: connection.max_datagram_len().unwrap_or(0),
            rtt: stats.smoothed_rtt,
        };
        fill.room()
    }

    /// Sends a message. What finds no place is lost, and this is its transmission.
    pub(super) fn send(
        &mut self,
        now: Time,
        connection: &mut Connection,
        message: Outgoing,
    ) -> Result<(), u64> {
        let mut bytes = Bytes::from(message.bytes);
        match message.carrier {
            Carrier::Control => {
                let mut frame = (bytes.len() as u32).to_be_bytes().to_vec();
                frame.extend_from_slice(&bytes);
                self.to_control.push_back(frame.into());
            }
            Carrier::Report { number } => {
                let options = DatagramOptions::default().id(number);
                let _ = connection.send_datagram_with(now, b"", &mut bytes, &options);
            }
            Carrier::Batch { transmission, .. } => {
                let fits = connection.max_datagram_len();
                if fits.is_some_and(|most| bytes.len() <= most) {
                    let options = DatagramOptions::default().id(transmission);
                    let sent = connection.send_datagram_with(now, b"", &mut bytes, &options);
                    sent.map_err(|_| transmission)?;
                } else if self.waiting.is_none() {
                    self.waiting = Some((transmission, bytes));
                } else {
                    // A large alarm while a large batch waits.
                    return Err(transmission);
                }
            }
        }
        self.write(connection);
        Ok(())
    }

    /// Writes what streams take.
    fn write(&mut self, connection: &mut Connection) {
        if let Some(control) = self.control {
            while let Some(bytes) = self.to_control.front_mut() {
                let written = connection.write(control, bytes);
                if written.is_err() || !bytes.is_empty() {
                    break;
                }
                self.to_control.pop_front();
            }
        }
        loop {
            if let Some((id, bytes)) = &mut self.writing {
                if connection.write(*id, bytes).is_err() || !bytes.is_empty() {
                    return;
                }
                let _ = connection.finish(*id);
                self.writing = None;
            }
            let Some((_, bytes)) = &self.waiting else {
                return;
            };
            if !may_stream(bytes.len(), self.streamed, connection.stats().cwnd) {
                return;
            }
            let Some(id) = connection.open(Direction::Unidirectional) else {
                return;
            };
            self.streams += 1;
            if let Some((transmission, bytes)) = self.waiting.take() {
                self.streamed += bytes.len();
                self.finishing.insert(id, (transmission, bytes.len()));
                self.writing = Some((id, bytes));
            }
        }
    }

    /// What an event of the connection means.
    pub(super) fn on_event(&mut self, connection: &mut Connection, event: &Event) -> Vec<Input> {
        let mut inputs = Vec::new();
        match event {
            Event::DatagramReceived => {
                while let Some(message) = connection.recv_datagram() {
                    inputs.push(Input::Message(message));
                }
            }
            Event::DatagramFate { id, fate } => inputs.push(match fate {
                DatagramFate::Acked => Input::Acked(*id),
                _ => Input::Lost(*id),
            }),
            Event::Finished(id) => {
                if let Some((transmission, len)) = self.finishing.remove(id) {
                    self.streamed -= len;
                    inputs.push(Input::Acked(transmission));
                }
                self.write(connection);
            }
            Event::Writable(_) | Event::StreamsAvailable(_) => self.write(connection),
            Event::Opened(Direction::Bidirectional) if !self.is_client => {
                self.control = self
                    .control
                    .or_else(|| connection.accept(Direction::Bidirectional));
                self.read_control(connection, &mut inputs);
                self.write(connection);
            }
            Event::Opened(direction) => {
                while let Some(id) = connection.accept(*direction) {
                    self.reading.push_back(id);
                }
                self.read_streams(connection, &mut inputs);
            }
            Event::Readable(id) if Some(*id) == self.control => {
                self.read_control(connection, &mut inputs);
            }
            Event::Readable(_) => self.read_streams(connection, &mut inputs),
            _ => {}
        }
        inputs
    }

    fn read_control(&mut self, connection: &mut Connection, inputs: &mut Vec<Input>) {
        let Some(control) = self.control else {
            return;
        };
        while let Ok(Some(bytes)) = connection.read(control, usize::MAX) {
            self.from_control.extend_from_slice(&bytes);
        }
        while let Some((len, rest)) = self.from_control.split_first_chunk() {
            let len = u32::from_be_bytes(*len) as usize;
            assert!(len <= MAX_CONTROL, "a control message of {len} bytes");
            let Some(message) = rest.get(..len) else {
                return;
            };
            inputs.push(Input::Message(message.to_vec().into()));
            self.from_control.drain(..4 + len);
        }
    }

    fn read_streams(&mut self, connection: &mut Connection, inputs: &mut Vec<Input>) {
        while let Some(id) = self.reading.front().copied() {
            let message = loop {
                match connection.read(id, usize::MAX) {
                    Ok(Some(bytes)) => self.read.extend_from_slice(&bytes),
                    Ok(None) => break std::mem::take(&mut self.read),
                    Err(towline_quic::ReadError::Blocked) => return,
                    // One that ends before its time.
                    Err(_) => {
                        self.read.clear();
                        break Vec::new();
                    }
                }
            };
            assert!(message.len() <= MAX_MESSAGE, "a batch too large");
            self.reading.pop_front();
            if !message.is_empty() {
                inputs.push(Input::Message(message.into()));
            }
        }
    }
}
