//! Two transports joined in memory, for tests: no packets, no loss, little credit.
//!
//! Each stream has a window of so many bytes that are not read yet, so that writes block, and each end
//! may open so many streams. What happens at an end is a [`Notice`] there, told once, in order. A [`Host`]
//! is a connection on its end. Ends count what they are asked, and can record what they send.

use std::cell::{RefCell, RefMut};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::rc::Rc;

use bytes::Bytes;
use towline_wire::{Direction, Side, StreamId};

use crate::{ReadError, Transport, WriteError};

mod host;
mod messages;
#[cfg(test)]
mod tests;

pub use host::{Host, pump};
pub use messages::{GET, frame_bytes, get, response, section};

/// What an end hears of its transport.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Notice {
    /// The peer opened streams.
    Opened(Direction),
    /// A stream has bytes, an end or a reset.
    Readable(StreamId),
    /// A stream that was full has room.
    Writable(StreamId),
    /// The peer wants no more of a stream, with this code.
    Stopped(StreamId, u64),
    /// The peer permits more streams.
    Available(Direction),
    /// Datagrams arrived.
    Datagrams,
    /// The peer closed the connection with this code.
    Closed(u64),
}

/// What an end sent, where that is [recorded](End::record).
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Sent {
    /// It opened a stream.
    Open(StreamId),
    /// It wrote bytes.
    Bytes(StreamId, Bytes),
    /// It ended its half.
    Finish(StreamId),
    /// It gave its half up.
    Reset(StreamId, u64),
    /// It wants no more of the peer's half.
    Stop(StreamId, u64),
    /// It read what had come, so that there is room.
    Read(StreamId),
    /// It sent a datagram.
    Datagram(Bytes),
}

/// What the pair permits.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Unread bytes of a stream.
    pub window: usize,
    /// Streams that an end may open, by direction.
    pub streams: [u64; 2],
    /// The longest datagram; `None` for no datagrams.
    pub datagram: Option<usize>,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            window: 1 << 20,
            streams: [100, 100],
            datagram: Some(1200),
        }
    }
}

/// One direction of a stream.
#[derive(Default, Debug)]
struct Channel {
    bytes: VecDeque<u8>,
    /// All that ever came.
    arrived: u64,
    finished: bool,
    reset: Option<u64>,
    /// So many bytes come before a reset.
    reliable: u64,
    stopped: Option<u64>,
    /// The reader stopped it and awaits its length.
    awaited: bool,
    /// The writer met a full window.
    blocked: bool,
    /// The reader has seen the end, or stopped it.
    over: bool,
}

#[derive(Debug)]
struct Net {
    limits: Limits,
    /// By stream and who writes.
    channels: BTreeMap<(StreamId, Side), Channel>,
    opened: [[u64; 2]; 2],
    permitted: [[u64; 2]; 2],
    refused: BTreeSet<(usize, usize)>,
    accepted: [[u64; 2]; 2],
    notices: [VecDeque<Notice>; 2],
    datagrams: [VecDeque<Bytes>; 2],
    priorities: BTreeMap<(StreamId, Side), i64>,
    closed: [Option<(u64, Vec<u8>)>; 2],
    /// What each end was asked to do, so many times, and the bytes it wrote.
    calls: [u64; 2],
    written: [u64; 2],
    /// What each end sent, where that is wanted.
    recorded: [Option<Vec<Sent>>; 2],
}

/// One end of the pair.
#[derive(Clone, Debug)]
pub struct End {
    side: Side,
    net: Rc<RefCell<Net>>,
}

/// A client's end and a server's.
pub fn pair(limits: Limits) -> (End, End) {
    let net = Rc::new(RefCell::new(Net {
        limits,
        channels: BTreeMap::new(),
        opened: [[0; 2]; 2],
        permitted: [limits.streams; 2],
        refused: BTreeSet::new(),
        accepted: [[0; 2]; 2],
        notices: Default::default(),
        datagrams: Default::default(),
        priorities: BTreeMap::new(),
        closed: [None, None],
        calls: [0; 2],
        written: [0; 2],
        recorded: [None, None],
    }));
    let end = |side| End {
        side,
        net: Rc::clone(&net),
    };
    (end(Side::Client), end(Side::Server))
}

impl Net {
    fn tell(&mut self, side: Side, notice: Notice) {
        let notices = &mut self.notices[side as usize];
        if !notices.contains(&notice) {
            notices.push_back(notice);
        }
    }

    fn record(&mut self, side: Side, sent: impl FnOnce() -> Sent) {
        if let Some(recorded) = &mut self.recorded[side as usize] {
            recorded.push(sent());
        }
    }
}

impl End {
    /// The pair, for a call that counts as work.
    fn work(&self) -> RefMut<'_, Net> {
        let mut net = self.net.borrow_mut();
        net.calls[self.side as usize] += 1;
        net
    }

    /// Calls of the transport that this end has made.
    pub fn calls(&self) -> u64 {
        self.net.borrow().calls[self.side as usize]
    }

    /// Bytes that this end has written to streams and in datagrams.
    pub fn written(&self) -> u64 {
        self.net.borrow().written[self.side as usize]
    }

    /// From now on what this end sends is kept.
    pub fn record(&self) {
        self.net.borrow_mut().recorded[self.side as usize] = Some(Vec::new());
    }

    /// What this end sent since the last call, if that is recorded.
    pub fn take_recorded(&self) -> Vec<Sent> {
        let recorded = &mut self.net.borrow_mut().recorded[self.side as usize];
        recorded.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// The next thing that happened here.
    pub fn poll_notice(&self) -> Option<Notice> {
        self.net.borrow_mut().notices[self.side as usize].pop_front()
    }

    /// Lets this end open more streams.
    pub fn permit(&self, direction: Direction, more: u64) {
        let mut net = self.net.borrow_mut();
        let (side, index) = (self.side as usize, direction.index());
        net.permitted[side][index] += more;
        if net.refused.remove(&(side, index)) {
            net.tell(self.side, Notice::Available(direction));
        }
    }

    /// With which code and words this end closed the connection.
    pub fn closed(&self) -> Option<(u64, String)> {
        let net = self.net.borrow();
        let (code, reason) = net.closed[self.side as usize].clone()?;
        Some((code, String::from_utf8_lossy(&reason).into_owned()))
    }

    /// With which code this end reset its half of a stream.
    pub fn reset_code(&self, id: StreamId) -> Option<u64> {
        self.net.borrow().channels.get(&(id, self.side))?.reset
    }

    /// With which code this end stopped the peer's half of a stream.
    pub fn stop_code(&self, id: StreamId) -> Option<u64> {
        let net = self.net.borrow();
        net.channels.get(&(id, self.side.peer()))?.stopped
    }

    /// The priority this end gave a stream.
    pub fn priority(&self, id: StreamId) -> i64 {
        let net = self.net.borrow();
        net.priorities.get(&(id, self.side)).copied().unwrap_or(0)
    }

    /// Writes all of `bytes`, whatever the window, if the half is open.
    pub fn push(&self, id: StreamId, bytes: &[u8]) {
        let mut net = self.net.borrow_mut();
        let channel = net.channels.get_mut(&(id, self.side));
        let Some(channel) = channel.filter(|open| !open.finished && open.reset.is_none()) else {
            return;
        };
        channel.bytes.extend(bytes);
        channel.arrived += bytes.len() as u64;
        net.tell(self.side.peer(), Notice::Readable(id));
    }

    /// Everything that has arrived on a stream.
    pub fn take(&mut self, id: StreamId) -> Vec<u8> {
        let mut taken = Vec::new();
        while let Ok(Some(bytes)) = self.read(id, usize::MAX) {
            taken.extend_from_slice(&bytes);
        }
        taken
    }
}

impl Transport for End {
    fn side(&self) -> Side {
        self.side
    }

    fn open(&mut self, direction: Direction) -> Option<StreamId> {
        let mut net = self.work();
        let (side, index) = (self.side as usize, direction.index());
        let count = net.opened[side][index];
        if count == net.permitted[side][index] {
            net.refused.insert((side, index));
            return None;
        }
        net.opened[side][index] += 1;
        let id = StreamId::new(self.side, direction, count);
        net.record(self.side, || Sent::Open(id));
        net.channels.insert((id, self.side), Channel::default());
        if direction == Direction::Bidirectional {
            net.channels
                .insert((id, self.side.peer()), Channel::default());
        }
        net.tell(self.side.peer(), Notice::Opened(direction));
        Some(id)
    }

    fn accept(&mut self, direction: Direction) -> Option<StreamId> {
        let mut net = self.work();
        let (peer, index) = (self.side.peer(), direction.index());
        let count = net.accepted[peer as usize][index];
        if count == net.opened[peer as usize][index] {
            return None;
        }
        net.accepted[peer as usize][index] += 1;
        Some(StreamId::new(peer, direction, count))
    }

    fn read(&mut self, id: StreamId, max: usize) -> Result<Option<Bytes>, ReadError> {
        let mut net = self.work();
        let writer = self.side.peer();
        let channel = net
            .channels
            .get_mut(&(id, writer))
            .ok_or(ReadError::Closed)?;
        if channel.over {
            return Err(ReadError::Closed);
        }
        let position = channel.arrived - channel.bytes.len() as u64;
        let reliable = channel.reliable.min(channel.arrived);
        if let Some(code) = channel.reset
            && position >= reliable
        {
            channel.over = true;
            return Err(ReadError::Reset(code));
        }
        let max = match channel.reset {
            Some(_) => max.min((reliable - position) as usize),
            None => max,
        };
        if channel.bytes.is_empty() {
            channel.over = channel.finished;
            return if channel.finished {
                Ok(None)
            } else {
                Err(ReadError::Blocked)
            };
        }
        let len = max.min(channel.bytes.len());
        let bytes: Bytes = channel.bytes.drain(..len).collect();
        if std::mem::take(&mut channel.blocked) {
            net.tell(writer, Notice::Writable(id));
        }
        net.record(self.side, || Sent::Read(id));
        Ok(Some(bytes))
    }

    fn received(&self, id: StreamId) -> Option<u64> {
        let net = self.net.borrow();
        let channel = net.channels.get(&(id, self.side.peer()))?;
        Some(channel.arrived)
    }

    fn await_final_size(&mut self, id: StreamId) -> bool {
        let mut net = self.work();
        let channel = net.channels.get_mut(&(id, self.side.peer()));
        let open = channel.filter(|channel| !channel.finished && channel.reset.is_none());
        open.is_some_and(|channel| {
            channel.awaited = true;
            true
        })
    }

    fn take_final_size(&mut self, id: StreamId) -> Option<u64> {
        let mut net = self.work();
        let channel = net.channels.get_mut(&(id, self.side.peer()))?;
        let known = channel.finished || channel.reset.is_some();
        (known && std::mem::take(&mut channel.awaited)).then_some(channel.arrived)
    }

    fn write(&mut self, id: StreamId, data: &mut Bytes) -> Result<usize, WriteError> {
        let mut net = self.work();
        let window = net.limits.window;
        let channel = net
            .channels
            .get_mut(&(id, self.side))
            .ok_or(WriteError::Closed)?;
        if let Some(code) = channel.stopped {
            return Err(WriteError::Stopped(code));
        }
        if channel.finished || channel.reset.is_some() {
            return Err(WriteError::Closed);
        }
        let len = window.saturating_sub(channel.bytes.len()).min(data.len());
        if len < data.len() {
            channel.blocked = true;
        }
        if len == 0 && !data.is_empty() {
            return Err(WriteError::Blocked);
        }
        let bytes = data.split_to(len);
        channel.bytes.extend(&bytes);
        channel.arrived += len as u64;
        net.written[self.side as usize] += len as u64;
        net.record(self.side, || Sent::Bytes(id, bytes));
        net.tell(self.side.peer(), Notice::Readable(id));
        Ok(len)
    }

    fn finish(&mut self, id: StreamId) {
        let mut net = self.work();
        if let Some(channel) = net.channels.get_mut(&(id, self.side)) {
            channel.finished = true;
        }
        net.record(self.side, || Sent::Finish(id));
        net.tell(self.side.peer(), Notice::Readable(id));
    }

    fn reset(&mut self, id: StreamId, code: u64) {
        self.reset_at(id, code, 0);
    }

    fn reset_at(&mut self, id: StreamId, code: u64, reliable_size: u64) {
        let mut net = self.work();
        if let Some(channel) = net.channels.get_mut(&(id, self.side)) {
            if channel.reset.is_none() {
                channel.reliable = reliable_size;
            }
            channel.reset.get_or_insert(code);
        }
        net.record(self.side, || Sent::Reset(id, code));
        net.tell(self.side.peer(), Notice::Readable(id));
    }

    fn stop(&mut self, id: StreamId, code: u64) {
        let mut net = self.work();
        let peer = self.side.peer();
        let Some(channel) = net.channels.get_mut(&(id, peer)) else {
            return;
        };
        let told = channel.stopped.is_some() || channel.over;
        channel.stopped.get_or_insert(code);
        channel.over = true;
        channel.bytes.clear();
        if !told {
            net.tell(peer, Notice::Stopped(id, code));
        }
        net.record(self.side, || Sent::Stop(id, code));
    }

    fn set_priority(&mut self, id: StreamId, priority: i64) {
        let mut net = self.work();
        net.priorities.insert((id, self.side), priority);
    }

    fn recv_datagram(&mut self) -> Option<Bytes> {
        self.work().datagrams[self.side as usize].pop_front()
    }

    fn send_datagram(&mut self, payload: Bytes) -> bool {
        let mut net = self.work();
        if net.limits.datagram.is_none_or(|max| payload.len() > max) {
            return false;
        }
        let peer = self.side.peer();
        net.written[self.side as usize] += payload.len() as u64;
        net.record(self.side, || Sent::Datagram(payload.clone()));
        net.datagrams[peer as usize].push_back(payload);
        net.tell(peer, Notice::Datagrams);
        true
    }

    fn max_datagram_len(&self) -> Option<usize> {
        self.net.borrow().limits.datagram
    }

    fn close(&mut self, code: u64, reason: &[u8]) {
        let mut net = self.work();
        net.closed[self.side as usize].get_or_insert((code, reason.to_vec()));
        net.tell(self.side.peer(), Notice::Closed(code));
    }
}
