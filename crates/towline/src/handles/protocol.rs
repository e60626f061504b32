//! [`Protocol`]: what stands between a connection and its handles.
//!
//! An endpoint has one made for each connection that agrees on an application protocol it was
//! [told of](super::EndpointBuilder::protocol). It runs under the shard's lock, like the handles, and
//! needs no task: it sees the connection's events first, acts on the engine's connection, and hands
//! streams to the application. Payload does not pass through it: it reads what it needs of a stream to
//! know whose it is, and leaves the rest to a handle.

use std::any::Any;
use std::fmt;
use std::sync::Arc;
use std::task::Waker;

use towline_quic::{Connection as Engine, ConnectionError, Event, ResetAtError};
use towline_wire::{StreamId, Time};

/// A protocol's part in one connection.
///
/// What the application asks of it goes through [`Connection::with_protocol`](crate::Connection::with_protocol). Tasks that wait for
/// something of it leave wakers in it, by its own rules.
pub trait Protocol: Any + Send {
    /// Something happened to the connection. The first event is `Accepted` or `Connected`.
    ///
    /// What it returns goes on to the connection's handles, and what it keeps they never hear of. An
    /// `Opened` that is kept obliges it to `accept` until there is no stream left, a `Readable` to
    /// read until nothing is there or a handle [is made](crate::Connection::adopt_recv); the engine does not
    /// tell twice. A `Stopped` of a stream that has no handle yet is to be remembered for
    /// [`adopt_send`](crate::Connection::adopt_send). The handles hear of the handshake and of the end in any case.
    fn on_event(&mut self, turn: &mut Turn<'_>, event: Event) -> Option<Event>;

    /// When [`on_timeout`](Self::on_timeout) is wanted next. Asked after each call of any kind.
    fn next_timeout(&self) -> Option<Time> {
        None
    }

    /// Bytes of memory that it keeps of what the peer sent. They count against the endpoint's
    /// [limit](crate::EndpointBuilder::memory_limit), as what the engine keeps does. Asked after each call that has
    /// a [`Turn`].
    fn held(&self) -> usize {
        0
    }

    /// The time it asked for has come.
    fn on_timeout(&mut self, turn: &mut Turn<'_>) {
        let _ = turn;
    }

    /// How many bytes of a stream the protocol has read itself, when its receiving half is
    /// [adopted](crate::Connection::adopt_recv): offsets and sizes that the handle tells count from behind them.
    fn bytes_read(&self, id: StreamId) -> u64 {
        let _ = id;
        0
    }

    /// How many bytes a handle may write to this stream now, if the protocol counts them: beside the windows of
    /// QUIC. Asked before each write. Whoever finds 0 waits until the protocol says
    /// [`Turn::call_handles`].
    fn send_allowance(&mut self, turn: &mut Turn<'_>, id: StreamId) -> Option<u64> {
        let _ = (turn, id);
        None
    }

    /// A handle wrote so many bytes.
    fn on_written(&mut self, id: StreamId, bytes: u64) {
        let _ = (id, bytes);
    }

    /// A handle read so many bytes.
    fn on_read(&mut self, turn: &mut Turn<'_>, id: StreamId, bytes: u64) {
        let _ = (turn, id, bytes);
    }

    /// A handle gives up what it sends, beyond the first `reliable_size` bytes. What it returns is the
    /// handle's answer; a handle that was dropped, or asks for size 0, wants none.
    ///
    /// # Errors
    /// As the engine's call.
    fn reset(
        &mut self,
        turn: &mut Turn<'_>,
        id: StreamId,
        code: u64,
        reliable_size: u64,
    ) -> Result<(), ResetAtError> {
        turn.connection.reset_at(id, code, reliable_size)
    }

    /// A handle wants no more of what it receives.
    fn stop(&mut self, turn: &mut Turn<'_>, id: StreamId, code: u64) {
        turn.connection.stop(id, code);
    }

    /// What a handle is told of the peer's code in a reset or a stop. A `Stopped` event is passed on with
    /// the code that it is to have.
    fn code_for_handle(&self, id: StreamId, code: u64) -> u64 {
        let _ = id;
        code
    }

    /// A handle comes to the end of what it receives, or to the peer's reset: so many bytes of the
    /// stream count, read or not. The engine has forgotten it. `on_half_over` follows.
    fn on_final_size(&mut self, turn: &mut Turn<'_>, id: StreamId, bytes: u64) {
        let _ = (turn, id, bytes);
    }

    /// A handle sends the end. Until the engine tells `Finished`, the peer can stop the stream and the
    /// handle [reset](Self::reset) it.
    fn on_finish(&mut self, turn: &mut Turn<'_>, id: StreamId) {
        self.on_half_over(turn, id, Half::Sending);
    }

    /// A handle is through with its half of a stream: it sent or read the end, gave it up, or was
    /// dropped. Once for each handle; of one that sends the end, [`on_finish`](Self::on_finish) says it.
    fn on_half_over(&mut self, turn: &mut Turn<'_>, id: StreamId, half: Half) {
        let _ = (turn, id, half);
    }

    /// The connection is over: whoever waits for something of the protocol must be woken. What has
    /// arrived can still be read. Called once, but not where no handle was left and nobody waits: then
    /// the protocol is dropped.
    fn on_end(&mut self, error: &ConnectionError, wake: &mut Vec<Waker>);
}

/// One direction of a stream, as an end sees it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Half {
    /// What this end sends.
    Sending,
    /// What this end receives.
    Receiving,
}

/// What a protocol acts on.
#[non_exhaustive]
pub struct Turn<'a> {
    /// The time, for the engine's calls.
    pub now: Time,
    /// The engine's connection. Calls on it are short: the shard waits for them.
    pub connection: &'a mut Engine,
    /// Woken when the shard's lock has been released.
    pub wake: &'a mut Vec<Waker>,
    /// What the handles of streams are to do or to be told.
    pub(super) notes: &'a mut Vec<Note>,
}

/// What a protocol says to the handles of a stream.
#[derive(Clone, Copy, Debug)]
pub(super) enum Note {
    /// Those that wait try again.
    Call(StreamId),
    /// The protocol has ended the stream.
    End(StreamId),
    /// A handle will be adopted.
    Expect(StreamId),
}

impl Turn<'_> {
    /// Handles of this stream that wait are to try again: the [allowance](Protocol::send_allowance) is
    /// more than 0.
    pub fn call_handles(&mut self, id: StreamId) {
        self.notes.push(Note::Call(id));
    }

    /// The protocol has ended both halves of this stream: whoever waits at its handles for anything
    /// hears so.
    pub fn end_handles(&mut self, id: StreamId) {
        self.notes.push(Note::End(id));
    }

    /// A handle of this stream's sending half is [adopted](crate::Connection::adopt_send) next: what is told of
    /// the stream meanwhile is kept for it.
    pub fn expect_handle(&mut self, id: StreamId) {
        self.notes.push(Note::Expect(id));
    }
}

/// Makes the protocol's part of a connection that agreed on it, whichever end began.
pub type ProtocolFactory = Arc<dyn Fn(&Engine) -> Box<dyn Protocol> + Send + Sync>;

/// The protocol of one entry, and what it waits for.
pub(super) struct Seat {
    protocol: Box<dyn Protocol>,
    /// When the sessions have it called.
    pub(super) at: Option<Time>,
}

impl Seat {
    pub(super) fn new(protocol: Box<dyn Protocol>) -> Self {
        Self { protocol, at: None }
    }

    pub(super) fn next_timeout(&self) -> Option<Time> {
        self.protocol.next_timeout()
    }

    /// What of an event the handles are told.
    pub(super) fn on_event(&mut self, turn: &mut Turn<'_>, event: Event) -> Option<Event> {
        let theirs = match &event {
            Event::Accepted | Event::Connected | Event::Confirmed | Event::Closed(_) => {
                Some(event.clone())
            }
            _ => None,
        };
        let passed = self.protocol.on_event(turn, event);
        self.note_held(turn.connection);
        theirs.or(passed)
    }

    pub(super) fn on_timeout(&mut self, turn: &mut Turn<'_>) {
        self.protocol.on_timeout(turn);
        self.note_held(turn.connection);
    }

    /// What the protocol holds counts as its connection's.
    pub(super) fn note_held(&self, connection: &mut Engine) {
        connection.set_held_above(self.protocol.held());
    }

    pub(super) fn on_end(&mut self, error: &ConnectionError, wake: &mut Vec<Waker>) {
        self.protocol.on_end(error, wake);
    }

    /// The protocol, for what handles do.
    pub(super) fn hooks(&mut self) -> &mut dyn Protocol {
        &mut *self.protocol
    }

    pub(super) fn code_for_handle(&self, id: StreamId, code: u64) -> u64 {
        self.protocol.code_for_handle(id, code)
    }

    pub(super) fn bytes_read(&self, id: StreamId) -> u64 {
        self.protocol.bytes_read(id)
    }

    /// The protocol, if it is a `P`.
    pub(super) fn of<P: Protocol>(&mut self) -> Option<&mut P> {
        let protocol: &mut dyn Any = &mut *self.protocol;
        protocol.downcast_mut()
    }
}

impl fmt::Debug for Seat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Seat")
            .field("at", &self.at)
            .finish_non_exhaustive()
    }
}
