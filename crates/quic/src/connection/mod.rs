//! One QUIC connection: what an application may ask of it, and where its parts lie.
//!
//! Owned and driven by `Endpoint`. Contract: after any number of mutations (datagrams, timeouts,
//! public methods), and before a wait, drain `poll_transmit`, `poll_event` and `next_timeout`.
//! Nothing here reads a clock or draws randomness.
//!
//! The struct lies in `parts`, what is done with it in one file for each stage; here are the public
//! methods, each of which finds the component that owns the state and lets it act.

pub(crate) mod acks;
mod aftermath;
pub(crate) mod assemble;
mod assembler;
mod blocks;
mod cids;
mod close;
pub(crate) mod component;
pub(crate) mod datagrams;
mod delivery;
mod dispatch;
mod early;
mod establish;
pub(crate) mod events;
mod handshake;
mod input;
mod liveness;
mod migration;
mod observation;
mod observe;
pub(crate) mod output;
mod parts;
mod path_size;
mod paths;
pub(crate) mod protect;
mod received;
mod schedule;
mod sealer;
mod send_buffer;
pub(crate) mod state;
pub(crate) mod stats;
pub(crate) mod streams;
mod timeout;
pub(crate) mod timers;
mod turns;
#[cfg(test)]
mod worst_case;

use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroU64;
use std::time::Duration;

use bytes::Bytes;
use towline_identity::PeerIdentity;
use towline_recovery::{Algorithm, Controller, HostController, PoolMember};
use towline_wire::{ConnectionId, Direction, PacketNumberSpace, Side, StreamId, Time};

use crate::config::BandwidthShare;
use crate::error::{ConnectionError, ReadError, ResetAtError, SendDatagramError, WriteError};
pub(crate) use aftermath::{Aftermath, CidChanges, Holding, Status};
use cids::LocalCids;
use datagrams::DatagramOptions;
pub(crate) use establish::{FirstInitial, NewConnection};
use events::Event;
pub(crate) use input::Arrival;
pub use parts::Connection;
use streams::ReceivedChunk;

impl Connection {
    // ---- streams ----

    /// Opens a stream; `None` until the peer permits more (`Event::StreamsAvailable` follows).
    pub fn open(&mut self, direction: Direction) -> Option<StreamId> {
        if !self.lifecycle.is_established() {
            return None;
        }
        self.streams.open(direction)
    }

    /// How many streams can be opened now.
    pub fn openable(&self, direction: Direction) -> u64 {
        if self.lifecycle.is_established() {
            self.streams.openable(direction)
        } else {
            0
        }
    }

    /// Says that more streams are wanted than can be opened, as an [`open`](Self::open) that was
    /// refused: `Event::StreamsAvailable` follows once the peer permits more.
    pub fn await_streams(&mut self, direction: Direction) {
        self.streams.await_streams(direction);
    }

    /// How many streams of the peer's wait to be accepted.
    pub fn acceptable(&self, direction: Direction) -> u64 {
        self.streams.acceptable(direction)
    }

    /// Bytes written on streams that the peer has not acknowledged, whether they were sent or not.
    pub fn unacknowledged(&self) -> u64 {
        self.streams.unacknowledged()
    }

    /// The next stream the peer opened.
    pub fn accept(&mut self, direction: Direction) -> Option<StreamId> {
        self.streams.accept(direction)
    }

    /// Takes as much of `data` as there is room for and advances it; no byte is copied.
    ///
    /// # Errors
    /// `Blocked` when there is no room: `Event::Writable` follows. Others are final.
    pub fn write(&mut self, id: StreamId, data: &mut Bytes) -> Result<usize, WriteError> {
        self.alive().map_err(WriteError::ConnectionLost)?;
        self.streams.write(id, data)
    }

    /// As [`Self::write`], copying from a slice.
    ///
    /// # Errors
    /// As [`Self::write`].
    pub fn write_slice(&mut self, id: StreamId, data: &[u8]) -> Result<usize, WriteError> {
        self.alive().map_err(WriteError::ConnectionLost)?;
        self.streams.write_slice(id, data)
    }

    /// As [`Self::write`], of bytes that belong at `offset`: the next ones, others ahead of them, or
    /// some left out before. The peer gets them at once, which lets a relay pass on what arrived
    /// without waiting for what did not. Bytes left out take room until they are filled in, and
    /// filling in never blocks. Of bytes written twice the first copy stays. Returns how many bytes
    /// of the front of `data` were dealt with and cut off; the next one belongs that far on.
    ///
    /// # Errors
    /// As [`Self::write`].
    pub fn write_at(
        &mut self,
        id: StreamId,
        offset: u64,
        data: &mut Bytes,
    ) -> Result<usize, WriteError> {
        self.alive().map_err(WriteError::ConnectionLost)?;
        self.streams.write_at(id, offset, data)
    }

    /// Sets how urgent the sending half of a stream is among those of its group: higher goes first, 0
    /// at the start. This is the send order of W3C WebTransport.
    ///
    /// Takes effect with the next packet, for what was written before too, retransmissions
    /// included. While a stream can send (it has data, and credit for it), streams of lower
    /// priority in its group send nothing: they starve for as long as that lasts. Equals take turns:
    /// of what the path carries in a millisecond, at least a frame and about 16 KB at most. Datagrams
    /// and control frames go before stream data whatever its priority.
    ///
    /// # Errors
    /// `ClosedStream` when the sending half is over.
    pub fn set_priority(&mut self, id: StreamId, priority: i64) -> Result<(), WriteError> {
        self.alive().map_err(WriteError::ConnectionLost)?;
        self.streams.set_priority(id, priority)
    }

    /// The priority of a stream; `None` when its sending half is over.
    pub fn priority(&self, id: StreamId) -> Option<i64> {
        self.streams.place(id).map(|place| place.order)
    }

    /// Puts the sending half of a stream into a group, any number of the application's; all are in
    /// group 0 at the start. Groups that can send take turns as long as those of streams, whatever
    /// is in them: priorities count inside one only. This is the send group of W3C WebTransport.
    ///
    /// # Errors
    /// `ClosedStream` when the sending half is over.
    pub fn set_send_group(&mut self, id: StreamId, group: u32) -> Result<(), WriteError> {
        self.alive().map_err(WriteError::ConnectionLost)?;
        self.streams.set_send_group(id, group)
    }

    /// The group of a stream; `None` when its sending half is over.
    pub fn send_group(&self, id: StreamId) -> Option<u32> {
        self.streams.place(id).map(|place| place.group)
    }

    /// Ends the stream after what was written.
    ///
    /// # Errors
    /// When it was already finished, reset or stopped; `MissingBytes` when [`Self::write_at`] left
    /// some out.
    pub fn finish(&mut self, id: StreamId) -> Result<(), WriteError> {
        self.alive().map_err(WriteError::ConnectionLost)?;
        self.streams.finish(id)
    }

    /// Abandons the sending half; unsent data is dropped. No effect on a stream that is over.
    pub fn reset(&mut self, id: StreamId, error_code: u64) {
        if self.lifecycle.is_open() {
            let code = error_code.min(towline_wire::MAX_VARINT);
            self.streams.reset(id, code, &mut self.events);
        }
    }

    /// Abandons the sending half beyond its first `reliable_size` bytes, which arrive all the same,
    /// the reset after them (RESET_STREAM_AT, draft-ietf-quic-reliable-stream-reset-07). Called again
    /// it may only lower the size, as [`Self::reset`] does to 0; the first code stays.
    ///
    /// # Errors
    /// `Unsupported` by the peer, unless the size is 0; `MissingBytes` when so much was not written.
    pub fn reset_at(
        &mut self,
        id: StreamId,
        error_code: u64,
        reliable_size: u64,
    ) -> Result<(), ResetAtError> {
        self.alive().map_err(ResetAtError::ConnectionLost)?;
        if reliable_size > 0 && !self.handshake.peer_takes_reset_at() {
            return Err(ResetAtError::Unsupported);
        }
        let code = error_code.min(towline_wire::MAX_VARINT);
        self.streams
            .reset_at(id, code, reliable_size, &mut self.events)
    }

    /// Takes up to `max` contiguous bytes without copying; `None` at the end of the stream.
    ///
    /// # Errors
    /// `Blocked` when nothing is there: `Event::Readable` follows. Others are final.
    pub fn read(&mut self, id: StreamId, max: usize) -> Result<Option<Bytes>, ReadError> {
        let result = self.streams.read(id, max);
        self.or_lost(result)
    }

    /// Copies contiguous bytes into `out`; `None` at the end of the stream.
    ///
    /// # Errors
    /// As [`Self::read`].
    pub fn read_slice(&mut self, id: StreamId, out: &mut [u8]) -> Result<Option<usize>, ReadError> {
        let result = self.streams.read_slice(id, out);
        self.or_lost(result)
    }

    /// Takes up to `max` bytes without copying, the lowest there are in the stream, whatever is
    /// missing before them; `None` at the end of the stream. Each byte is handed out once, and its
    /// credit returned. Ordered reads may come before, none after the first call.
    ///
    /// # Errors
    /// `Blocked` when nothing is there: `Event::Readable` follows. Others are final.
    pub fn read_unordered(
        &mut self,
        id: StreamId,
        max: usize,
    ) -> Result<Option<ReceivedChunk>, ReadError> {
        self.read_unordered_below(id, u64::MAX, max)
    }

    /// As [`Self::read_unordered`], of bytes below offset `below` only. What is not yet wanted
    /// stays in the stream's window, which keeps the peer from sending too far ahead.
    ///
    /// # Errors
    /// As [`Self::read_unordered`]. `Blocked` also while all that is there is for later; then
    /// `Event::Readable` follows when more arrives.
    pub fn read_unordered_below(
        &mut self,
        id: StreamId,
        below: u64,
        max: usize,
    ) -> Result<Option<ReceivedChunk>, ReadError> {
        let result = self.streams.read_unordered(id, below, max);
        self.or_lost(result)
    }

    /// The code with which the peer reset a stream that we read, without reading it; `None` where there
    /// will be no reset: all data is here, read or not, or [`Self::stop`] was called.
    ///
    /// A code that was told ends the stream, as if a read had told it; after a [`Self::reset_at`] of
    /// the peer's it is told once all that is delivered is here, which can be read still.
    ///
    /// # Errors
    /// `Blocked` while neither is known: `Event::Readable` follows. Others are final.
    pub fn received_reset(&mut self, id: StreamId) -> Result<Option<u64>, ReadError> {
        let result = self.streams.received_reset(id);
        self.or_lost(result)
    }

    /// The length of a stream we read, once its end or its reset arrived and until it is read.
    pub fn final_size(&self, id: StreamId) -> Option<u64> {
        self.streams.final_size(id)
    }

    /// Bytes that have arrived of a stream we read, read or not; `None` once nothing more can be read.
    pub fn received_len(&self, id: StreamId) -> Option<u64> {
        self.streams.received_len(id)
    }

    /// Bytes that the peer will count of a stream we write: all that was written, or the final size of a
    /// reset. `None` once all was acknowledged.
    pub fn sent_len(&self, id: StreamId) -> Option<u64> {
        self.streams.sent_len(id)
    }

    /// Asks for the final size of a stream that was [stopped](Self::stop): when the peer says it,
    /// `Event::Readable` follows and [`take_final_size`](Self::take_final_size) tells it once. `false`
    /// where there is nothing to wait for.
    pub fn await_final_size(&mut self, id: StreamId) -> bool {
        self.streams.await_final_size(id)
    }

    /// See [`await_final_size`](Self::await_final_size).
    pub fn take_final_size(&mut self, id: StreamId) -> Option<u64> {
        self.streams.take_final_size(id)
    }

    /// Whether something waits to be sent, flow-control credit included. After a read that freed
    /// too little for an update there is nothing, and whoever drives the endpoint can sleep on.
    pub fn wants_transmit(&self) -> bool {
        self.has_pending(PacketNumberSpace::Application)
    }

    /// Asks the peer to stop sending and drops what it sent. No effect on a stream that is over.
    pub fn stop(&mut self, id: StreamId, error_code: u64) {
        if self.lifecycle.is_open() {
            self.streams
                .stop(id, error_code.min(towline_wire::MAX_VARINT));
        } else {
            self.streams.discard(id);
        }
    }

    // ---- datagrams ----

    /// Queues an unreliable datagram.
    ///
    /// # Errors
    /// When the peer takes none, it does not fit a packet, or the queue is full.
    pub fn send_datagram(&mut self, mut data: Bytes) -> Result<(), SendDatagramError> {
        self.try_send_datagram(&mut data)
    }

    /// As [`send_datagram`](Self::send_datagram), for callers that try again: `data` is taken, and
    /// empty then, only if it was queued.
    ///
    /// # Errors
    /// The same.
    pub fn try_send_datagram(&mut self, data: &mut Bytes) -> Result<(), SendDatagramError> {
        // Without a greatest age no time is needed.
        self.send_datagram_with(Time::ZERO, b"", data, &DatagramOptions::default())
    }

    /// As [`try_send_datagram`](Self::try_send_datagram), with a greatest age, an order, a sender of
    /// several, or an id under which [`Event::DatagramFate`] tells what became of it. `prefix` goes
    /// before `data`; up to 16 bytes of it cost no allocation, and `data` is never copied then but
    /// into the packet.
    ///
    /// # Errors
    /// The same.
    pub fn send_datagram_with(
        &mut self,
        now: Time,
        prefix: &[u8],
        data: &mut Bytes,
        options: &DatagramOptions,
    ) -> Result<(), SendDatagramError> {
        self.alive().map_err(SendDatagramError::ConnectionLost)?;
        let room = self.datagram_room();
        self.datagrams
            .send(now, prefix, data, options, room, &mut self.events)
    }

    /// How many datagrams of the largest size the send queue has room for; 0 if the peer takes none.
    pub fn queueable_datagrams(&self) -> usize {
        self.datagrams.queueable(self.datagram_room())
    }

    /// Bytes that the send queue has room for. While it is not 0, a datagram of no more bytes, and of no
    /// more than [`Self::max_datagram_len`], is not refused as `Full`. 0 if the peer takes none, and after
    /// the end.
    pub fn datagram_send_buffer_space(&self) -> usize {
        match self.lifecycle.is_open() {
            true => self.datagrams.free(),
            false => 0,
        }
    }

    /// Says that a datagram waits for room, as a [`send_datagram`](Self::send_datagram) that found
    /// the queue full: `Event::DatagramSendable` follows once half of it has left.
    pub fn await_datagram_room(&mut self) {
        self.datagrams.await_room();
    }

    /// How many datagrams received wait to be read.
    pub fn received_datagrams(&self) -> usize {
        self.datagrams.received()
    }

    /// The oldest datagram received.
    pub fn recv_datagram(&mut self) -> Option<Bytes> {
        self.datagrams.recv()
    }

    /// Largest datagram that can be sent now; `None` if the peer takes none.
    pub fn max_datagram_len(&self) -> Option<usize> {
        self.datagrams.max_len(self.datagram_room())
    }

    // ---- the connection ----

    /// Closes with an application code and up to 512 bytes of reason; unsent data is dropped.
    pub fn close(&mut self, now: Time, error_code: u64, reason: &[u8]) {
        if self
            .lifecycle
            .close_by_application(error_code.min(towline_wire::MAX_VARINT), reason)
        {
            self.on_closing(now);
        }
    }

    /// Sends a PING with the next packet.
    pub fn ping(&mut self) {
        self.liveness.ping();
    }

    /// Goes on with another congestion controller, from the present window.
    pub fn set_congestion(&mut self, now: Time, algorithm: Algorithm) {
        self.paths.state_mut().set_algorithm(now, algorithm);
    }

    /// Goes on under the host's common background controller.
    pub fn set_background(&mut self, now: Time, host: &HostController) {
        let member = host.join(self.paths.state().max_datagram_size());
        self.paths
            .state_mut()
            .set_controller(now, Controller::Host(Box::new(member)));
    }

    /// The congestion controller configured or last set by name; a connection under a
    /// [`HostController`] or a controller of the application's own has that one instead.
    pub fn congestion(&self) -> Algorithm {
        self.paths.state().algorithm()
    }

    /// Changes the strict limit, bytes a second of UDP payload over every packet.
    pub fn set_rate_limit(&mut self, limit: Option<NonZeroU64>) {
        self.recovery.set_rate_limit(limit);
    }

    /// The strict limit in force.
    pub fn rate_limit(&self) -> Option<NonZeroU64> {
        self.recovery.rate_limit()
    }

    /// Joins a bandwidth pool, or leaves it.
    pub fn set_bandwidth(&mut self, share: Option<&BandwidthShare>) {
        self.recovery
            .set_pool_member(share.map(BandwidthShare::join));
    }

    /// The connection's place in a bandwidth pool, whose class and weight can be changed.
    pub fn bandwidth(&self) -> Option<&PoolMember> {
        self.recovery.pool_member()
    }

    /// How many bidirectional streams the peer may have open at once from now on, at most 2^60. More are
    /// permitted at once; fewer as streams end, for what was permitted stays (RFC 9000 §4.6).
    pub fn set_max_concurrent_bidi_streams(&mut self, streams: u64) {
        self.streams
            .set_max_concurrent(Direction::Bidirectional, streams);
    }

    /// As [`Self::set_max_concurrent_bidi_streams`], of unidirectional streams.
    pub fn set_max_concurrent_uni_streams(&mut self, streams: u64) {
        self.streams
            .set_max_concurrent(Direction::Unidirectional, streams);
    }

    /// The window for all that the peer sends on streams, bytes, at most 2^62 − 1, which auto-tuning
    /// changes no more. A larger one is granted at once; a smaller one takes effect as data is read, for
    /// what was granted stays (RFC 9000 §4.1).
    pub fn set_receive_window(&mut self, bytes: u64) {
        self.streams.set_receive_window(bytes);
    }

    /// How many bytes may be written and not yet acknowledged, on all streams together
    /// ([`TransportConfig::send_buffer`]). What was written stays, whatever the limit; with 0 nothing
    /// more is taken.
    ///
    /// [`TransportConfig::send_buffer`]: crate::TransportConfig::send_buffer
    pub fn set_send_window(&mut self, bytes: u64) {
        self.streams.set_send_window(bytes, &mut self.events);
    }

    /// Moves to new 1-RTT keys (RFC 9001 §6); `false` if it is not permitted yet.
    pub fn initiate_key_update(&mut self) -> bool {
        self.lifecycle.is_confirmed() && self.sealer.protection.initiate_update()
    }

    /// The peer's address, which changes when it moves or its NAT forgets: `Event::PathChanged`.
    pub fn remote(&self) -> SocketAddr {
        self.paths.remote()
    }

    /// The address of ours that the peer's last packets were sent to, where the socket tells it.
    pub fn local_ip(&self) -> Option<IpAddr> {
        self.paths.received_at()
    }

    /// Which end this is.
    pub fn side(&self) -> Side {
        self.side
    }

    /// The handshake is complete and the connection open.
    pub fn is_established(&self) -> bool {
        self.lifecycle.is_established()
    }

    /// The handshake is confirmed and the connection open.
    pub fn is_confirmed(&self) -> bool {
        self.lifecycle.is_confirmed()
    }

    /// The connection is over; see [`Self::close_reason`].
    pub fn is_closed(&self) -> bool {
        !self.lifecycle.is_open()
    }

    /// Why the connection ended.
    pub fn close_reason(&self) -> Option<&ConnectionError> {
        self.lifecycle.close_reason()
    }

    /// Who the peer is; `None` before its credentials arrived or if it showed none.
    pub fn peer_identity(&self) -> Option<PeerIdentity> {
        self.handshake.peer_identity()
    }

    /// The application protocol agreed on.
    pub fn alpn(&self) -> Option<&[u8]> {
        self.handshake.alpn()
    }

    /// Server: the name the client asked for (SNI).
    pub fn server_name(&self) -> Option<&str> {
        self.handshake.server_name()
    }

    /// The TLS cipher suite agreed on.
    pub fn cipher_suite(&self) -> Option<rustls::CipherSuite> {
        self.handshake.cipher_suite()
    }

    /// The key exchange group agreed on.
    pub fn key_exchange(&self) -> Option<rustls::NamedGroup> {
        self.handshake.key_exchange()
    }

    /// The TLS session was resumed from an earlier connection.
    pub fn is_resumed(&self) -> bool {
        self.handshake.is_resumed()
    }

    /// Fills `out` with keying material both ends share (RFC 8446 §7.5).
    ///
    /// # Errors
    /// Before the handshake is complete.
    pub fn export_keying_material(
        &self,
        out: &mut [u8],
        label: &[u8],
        context: Option<&[u8]>,
    ) -> Result<(), rustls::Error> {
        self.handshake.export_keying_material(out, label, context)
    }

    /// What had arrived before the end can still be read; waiting for more cannot.
    fn or_lost<T>(&self, result: Result<T, ReadError>) -> Result<T, ReadError> {
        match result {
            Err(ReadError::Blocked) => {
                self.alive().map_err(ReadError::ConnectionLost)?;
                Err(ReadError::Blocked)
            }
            other => other,
        }
    }

    pub(super) fn alive(&self) -> Result<(), ConnectionError> {
        match self.lifecycle.close_reason() {
            Some(reason) if !self.lifecycle.is_open() => Err(reason.clone()),
            _ => Ok(()),
        }
    }

    // ---- driven by the endpoint ----

    pub(crate) fn poll_event(&mut self) -> Option<Event> {
        self.events.pop()
    }

    pub(crate) fn local_cids(&mut self) -> &mut LocalCids {
        &mut self.local_cids
    }

    /// Our connection IDs in use.
    pub(crate) fn local_cid_list(&self) -> impl Iterator<Item = ConnectionId> + '_ {
        self.local_cids.active()
    }

    /// The round trip to a server for the next connection to it; `None` if it was not measured. Of
    /// the smoothed one what goes beyond twice the least is queue that is gone by then.
    pub(crate) fn rtt_to_remember(&self) -> Option<Duration> {
        let rtt = self.paths.state().rtt();
        let least = rtt.min().filter(|_| self.side.is_client())?;
        self.handshake
            .is_complete()
            .then(|| rtt.smoothed().min(2 * least))
    }
}
