//! One shard: a socket, its buffers and an engine endpoint, driven in fair turns.
//!
//! Called by whoever owns the loop; shares the engine with [`Handle`]s. Never waits.
//! A turn, in the order of this file:
//!
//! 1. `enter`: forget the dirty mark, take the mail of other shards, see how long nobody was here.
//! 2. `read_mail`: a few trains of the mail, each handled under the lock.
//! 3. `receive`: one batch of trains from the socket, each handled under the lock.
//! 4. `run_timers`: the engine's, if due, once what came before them has been read.
//! 5. `transmit`: trains from the engine to the socket, round robin over connections; one
//!    system call for each long train, one for many short ones (`collect`). A small datagram joins
//!    the train before it that goes the same way, whichever connection it belongs to.
//! 6. `hear_notices`: what routers said of datagrams that were too big.
//! 7. Repeat 2 to 6 until all are idle, the send side is blocked, or the budget is spent.
//! 8. `leave`: publish the counters, wake whoever the turn's events concern.

use std::fmt;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

use towline_quic::{
    ConnectionHandle, DatagramMeta, Endpoint, EndpointConfig, Event, ServerConfig, TrainBuf,
};
use towline_wire::Time;

use super::backlog::Backlog;
use super::clock::Clock;
use super::fallback::Complaints;
use super::handle::{Dispatch, Handle, Trains};
use super::neighbours::Neighbours;
use super::outbox::{Flush, Outbox};
use super::socket::{
    MAX_SEND_BATCH, Notice, RECEIVE_BUFFER_BYTES, ReceiveBatch, Socket, SocketInfo, TooBig,
};
use super::stats::SocketStats;
use super::udp::UdpSocket;

/// Datagrams, in and out together, after which a turn ends.
pub const DATAGRAMS_PER_TURN: usize = 2048;
/// Time after which a turn ends.
pub const TIME_PER_TURN: Duration = Duration::from_millis(1);
/// Trains of the mail handled before the socket is read again.
const MAIL_PER_ROUND: usize = 4;
/// Send calls made before the socket is read again.
const CALLS_PER_ROUND: usize = 8;
/// Trains are collected for one call until they have this many bytes together.
const BATCH_BYTES: usize = 48 * 1024;
/// Notices heard before the socket is read again.
const NOTICES_PER_ROUND: usize = 16;
/// Receive errors in one turn before it ends.
const RECEIVE_ERRORS_PER_TURN: usize = 16;

/// How a turn ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Turn {
    /// The turn ended on its budget: drive again soon, after giving others a turn.
    pub again: bool,
    /// A train waits for the socket to become writable.
    pub want_write: bool,
    /// The socket was read until it was empty.
    pub drained: bool,
}

/// A socket and the engine behind it.
pub struct Shard<S: Socket = UdpSocket, D: Dispatch = ()> {
    socket: S,
    handle: Handle<D>,
    clock: Clock,
    /// What other shards handed over, taken out of the lock and not handled yet.
    mail: Trains,
    inbox: ReceiveBatch,
    outbox: Outbox,
    /// Hold the bytes of the trains in `outbox`, in its order; made as they are needed.
    trains: Vec<TrainBuf>,
    max_segments: usize,
    neighbours: Neighbours<D>,
    complaints: Complaints,
    stats: SocketStats,
    /// Its connections are clients' alone: they can move.
    moves: bool,
    /// The socket is another one than before.
    rebound: bool,
    /// The socket was told something of datagrams sent.
    heard: bool,
    /// The end of the last turn.
    left_at: Time,
    /// What came while nobody was here is being read.
    backlog: Option<Backlog>,
    /// Wakers collected under the lock and woken outside it.
    wake: Vec<Waker>,
}

enum Sending {
    Idle,
    Busy,
    Blocked,
}

impl<S: Socket, D: Dispatch> Shard<S, D> {
    /// A shard on `socket`; with `server`, it accepts connections.
    pub fn new(
        socket: S,
        config: EndpointConfig,
        server: Option<Arc<ServerConfig>>,
        dispatch: D,
    ) -> Self {
        Self::with_clock(socket, config, server, dispatch, Clock::start())
    }

    /// As [`new`](Self::new), on another clock than the system's.
    pub fn with_clock(
        socket: S,
        config: EndpointConfig,
        server: Option<Arc<ServerConfig>>,
        dispatch: D,
        clock: Clock,
    ) -> Self {
        let outbox = Outbox::new();
        let max_segments = outbox.max_segments(&socket);
        let mut complaints = Complaints::default();
        complaints.warn(&socket.info());
        let moves = server.is_none();
        let mut endpoint = Endpoint::new(config, server);
        endpoint.set_may_fragment(socket.info().may_fragment);
        Self {
            handle: Handle::new(endpoint, dispatch, clock.clone(), socket.info()),
            socket,
            mail: Trains::new(),
            inbox: ReceiveBatch::new(),
            outbox,
            trains: vec![TrainBuf::with_max_segments(max_segments)],
            max_segments,
            neighbours: Neighbours::none(),
            complaints,
            stats: SocketStats::default(),
            moves,
            rebound: false,
            heard: false,
            left_at: clock.now(),
            clock,
            backlog: None,
            wake: Vec::new(),
        }
    }

    /// Makes this one of several shards of an endpoint.
    pub(super) fn join(&mut self, neighbours: Neighbours<D>) {
        self.neighbours = neighbours;
    }

    /// Access to the engine, for this and other threads.
    pub fn handle(&self) -> &Handle<D> {
        &self.handle
    }

    /// The clock that `now` is read from.
    pub fn clock(&self) -> &Clock {
        &self.clock
    }

    /// The descriptor to wait on; `None` for sockets of tests.
    pub fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.socket.fd()
    }

    /// The socket itself.
    pub fn socket(&self) -> &S {
        &self.socket
    }

    /// What the socket is bound to and was granted.
    pub fn info(&self) -> SocketInfo {
        SocketInfo {
            gso_segments: self.outbox.max_segments(&self.socket),
            gso_refused: self.outbox.gso_refused(),
            too_big: self.outbox.too_big(),
            ..self.socket.info()
        }
    }

    /// Sets who is woken when a handle has work for the shard.
    pub fn set_waker(&mut self, waker: &Waker) {
        let mut state = self.handle.lock();
        if state.waker.as_ref().is_some_and(|old| old.will_wake(waker)) {
            return;
        }
        let replaced = state.waker.replace(waker.clone());
        // Dropped without the lock: a waker may own a task that owns a handle.
        drop(state);
        drop(replaced);
    }

    /// When to drive next, if nothing else happens before. A time that has passed means now.
    pub fn next_timeout(&self) -> Option<Time> {
        let state = self.handle.lock();
        let (engine, dispatch) = (state.endpoint.next_timeout(), state.dispatch.next_timeout());
        drop(state);
        [engine, dispatch, self.outbox.retry_at()]
            .into_iter()
            .flatten()
            .min()
    }

    /// Whether nothing is left to drive the shard for, as far as its dispatcher knows: its connections
    /// and everybody who could make new ones are gone.
    pub fn is_over(&self) -> bool {
        self.handle
            .read(|endpoint, dispatch| dispatch.is_over(endpoint))
    }

    /// The next event, where the dispatcher `()` leaves them in the engine.
    pub fn poll_event(&mut self) -> Option<(ConnectionHandle, Event)> {
        self.handle.lock().endpoint.poll_event()
    }

    /// Takes one turn: receiving, timers, sending.
    ///
    /// After an absence, what came in the meantime counts as of when it came, where the system
    /// knows, and comes before the timers that passed.
    ///
    /// # Errors
    /// Only when the socket itself is unusable. What concerns single datagrams or
    /// peers is counted in [`SocketStats`] and repaired by loss recovery.
    pub fn drive(&mut self, now: Time) -> io::Result<Turn> {
        self.drive_if(now, true)
    }

    /// As [`drive`](Self::drive), but leaves the socket unread if it is known to be empty.
    ///
    /// # Errors
    /// As `drive`.
    pub fn drive_if(&mut self, now: Time, readable: bool) -> io::Result<Turn> {
        let turn = self.take_turn(now, readable);
        // After an error, too: the wakers collected so far are known to nobody else.
        self.leave();
        turn
    }

    fn take_turn(&mut self, now: Time, readable: bool) -> io::Result<Turn> {
        let began = self.clock.now();
        let mut elapsed = Duration::ZERO;
        let mut errors = 0;
        let mut budget = DATAGRAMS_PER_TURN;
        let mut turn = Turn::default();
        let mut readable = self.enter(now, readable);
        let mut timers_ran = false;
        loop {
            self.read_mail(now + elapsed, &mut budget);
            if readable {
                match self.receive(now + elapsed, &mut budget) {
                    Ok(()) => {}
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                        readable = false;
                        turn.drained = true;
                        self.backlog = None;
                    }
                    Err(error) if is_fatal(&error) => return Err(error),
                    Err(error) => {
                        // An ICMP message about some earlier datagram; the next call reads on.
                        tracing::debug!(%error, "receive error");
                        self.stats.receive_errors += 1;
                        errors += 1;
                    }
                }
            }
            if !readable && !timers_ran {
                timers_ran = true;
                self.run_timers(now + elapsed);
            }
            let sending = self.transmit(now + elapsed, &mut budget)?;
            turn.want_write =
                matches!(sending, Sending::Blocked) && self.outbox.retry_at().is_none();
            let heard = self.hear_notices(now + elapsed);
            if !heard && !readable && !matches!(sending, Sending::Busy) && self.mail.is_empty() {
                break;
            }
            elapsed = self.clock.now().saturating_duration_since(began);
            if budget == 0 || elapsed >= TIME_PER_TURN || errors >= RECEIVE_ERRORS_PER_TURN {
                turn.again = true;
                self.stats.budget_ends += 1;
                break;
            }
        }
        if !timers_ran && self.backlog.is_none() {
            self.run_timers(now + elapsed);
        }
        self.left_at = now + elapsed;
        Ok(turn)
    }

    /// Tries again to send the train that made a turn want to write.
    ///
    /// # Errors
    /// `WouldBlock` if the socket is still full; otherwise as `drive`.
    pub fn flush(&mut self, now: Time) -> io::Result<()> {
        let flush = self.flush_outbox(now);
        if self.hear_notices(now) {
            self.wake_all();
        }
        match flush? {
            Flush::Blocked => Err(io::ErrorKind::WouldBlock.into()),
            Flush::Done | Flush::RetryAt(_) => Ok(()),
        }
    }

    fn flush_outbox(&mut self, now: Time) -> io::Result<Flush> {
        let trains = &self.trains;
        self.outbox
            .flush(&mut self.socket, now, &mut self.stats, |slot| {
                trains[slot].filled()
            })
    }

    /// Returns whether the socket is to be read.
    fn enter(&mut self, now: Time, readable: bool) -> bool {
        let next_socket = self.handle.act(now, &mut self.wake, |state| {
            state.dirty = false;
            state.mail.take_into(&mut self.mail);
            state.next_socket.take()
        });
        if let Some(next) = next_socket {
            match self.socket.replace(next) {
                Ok(()) => self.on_new_socket(now),
                Err(error) => tracing::warn!(%error, "the new socket cannot be used; staying"),
            }
        }
        if self.backlog.is_none() {
            let buffer = self.socket.info().recv_buffer.granted;
            self.backlog = Backlog::after(self.left_at, now, buffer.max(RECEIVE_BUFFER_BYTES));
        }
        // Whoever says that nothing is there may not have looked since.
        let readable = readable || (self.backlog.is_some() && self.is_due(now));
        if !readable {
            self.backlog = None;
        }
        readable
    }

    /// The socket is another one: clients go on from its address.
    fn on_new_socket(&mut self, now: Time) {
        self.rebound = true;
        self.backlog = None;
        self.outbox.on_new_socket();
        self.max_segments = self.outbox.max_segments(&self.socket);
        for train in &mut self.trains {
            train.set_max_segments(self.max_segments);
        }
        tracing::info!(local = %self.socket.info().local_addr, "the endpoint has a new socket");
        let may_fragment = self.socket.info().may_fragment;
        self.handle.act(now, &mut self.wake, |state| {
            state.endpoint.set_may_fragment(may_fragment);
            state.endpoint.rebind(now);
        });
    }

    /// Whether the socket is another one than when this was asked last: what waits on the descriptor
    /// of the one before waits in vain.
    pub fn take_rebound(&mut self) -> bool {
        std::mem::take(&mut self.rebound)
    }

    /// Whether the socket was told something of datagrams sent, since this was asked last. Epoll calls it
    /// an error of the socket, which some reactors remember for as long as it is registered.
    pub fn take_heard(&mut self) -> bool {
        std::mem::take(&mut self.heard)
    }

    /// The socket's address may be no more. A server waits for it to come back, a client moves.
    #[cold]
    fn look_for_address(&mut self, now: Time) {
        if !self.moves {
            return;
        }
        match self.socket.leave_lost_address() {
            Ok(true) => self.on_new_socket(now),
            Ok(false) => {}
            Err(error) => tracing::debug!(%error, "no other socket to go on with"),
        }
    }

    /// A deadline of the engine's has passed.
    fn is_due(&self, now: Time) -> bool {
        let next = self.handle.lock().endpoint.next_timeout();
        next.is_some_and(|at| at <= now)
    }

    fn run_timers(&mut self, now: Time) {
        self.handle.act(now, &mut self.wake, |state| {
            if state.endpoint.next_timeout().is_some_and(|at| at <= now) {
                state.endpoint.handle_timeout(now);
            }
        });
    }

    fn read_mail(&mut self, now: Time, budget: &mut usize) {
        for _ in 0..MAIL_PER_ROUND {
            if *budget == 0 {
                break;
            }
            let Some((meta, mut train)) = self.mail.pop_front() else {
                break;
            };
            *budget = budget.saturating_sub(train.len().div_ceil(meta.stride.max(1)));
            self.handle.act(now, &mut self.wake, |state| {
                state.endpoint.handle_datagrams(now, meta, &mut train);
                state.mail.on_handled(&train);
                // What came behind leftovers of an earlier turn has no turn of its own to come.
                state.mail.take_into(&mut self.mail);
            });
        }
        self.wake_all();
    }

    fn receive(&mut self, now: Time, budget: &mut usize) -> io::Result<()> {
        // When a train came can be asked for the last one alone.
        self.inbox.offer_one(self.backlog.is_some());
        let count = loop {
            match self.socket.recv(&mut self.inbox) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                other => break other?,
            }
        };
        self.stats.calls_received += 1;
        for (meta, train) in self.inbox.trains(count) {
            if train.is_empty() {
                continue;
            }
            let datagrams = meta.len.div_ceil(meta.stride);
            *budget = budget.saturating_sub(datagrams);
            self.stats.datagrams_received += datagrams as u64;
            self.stats.bytes_received += meta.len as u64;
            let mut received = now;
            if let Some(backlog) = &mut self.backlog {
                let waited = self.socket.waited();
                let (came, more) = backlog.on_read(now, waited, meta.len, datagrams);
                received = came;
                if !more {
                    self.backlog = None;
                }
            }
            let meta = DatagramMeta {
                remote: meta.remote,
                local_ip: meta.local_ip,
                ecn: meta.ecn,
                stride: meta.stride,
            };
            let mut rest = train;
            while !rest.is_empty() {
                let (len, other) = self.neighbours.run(rest, meta.stride);
                let (run, behind) = rest.split_at_mut(len);
                rest = behind;
                if let Some(other) = other
                    && self.neighbours.hand_over(other, meta, run, &mut self.stats)
                {
                    continue;
                }
                self.handle.act(now, &mut self.wake, |state| {
                    state.endpoint.handle_datagrams(received, meta, run);
                });
            }
        }
        self.inbox.adapt(count);
        self.wake_all();
        Ok(())
    }

    fn transmit(&mut self, now: Time, budget: &mut usize) -> io::Result<Sending> {
        for _ in 0..CALLS_PER_ROUND {
            let idle = self.outbox.is_empty() && self.collect(now, budget);
            if self.outbox.is_empty() {
                return Ok(if idle { Sending::Idle } else { Sending::Busy });
            }
            match self.flush_outbox(now)? {
                Flush::Done => {}
                Flush::Blocked | Flush::RetryAt(_) => return Ok(Sending::Blocked),
            }
            let max_segments = self.outbox.max_segments(&self.socket);
            if std::mem::replace(&mut self.max_segments, max_segments) != max_segments {
                for train in &mut self.trains {
                    train.set_max_segments(max_segments);
                }
            }
            let shrunk = self.shrink(now);
            if self.outbox.take_address_in_doubt() {
                self.look_for_address(now);
                continue;
            }
            if idle && !shrunk {
                return Ok(Sending::Idle);
            }
        }
        Ok(Sending::Busy)
    }

    /// Passes on what routers say of datagrams that were too big; true if the socket was told anything.
    fn hear_notices(&mut self, now: Time) -> bool {
        for heard in 0..NOTICES_PER_ROUND {
            let Some(notice) = self.socket.poll_notice() else {
                return heard > 0;
            };
            self.heard = true;
            if let Notice::TooBig(notice) = notice {
                self.on_too_big(now, &notice);
            }
        }
        true
    }

    fn on_too_big(&mut self, now: Time, notice: &TooBig) {
        self.stats.too_big_told += 1;
        let TooBig {
            remote,
            mtu,
            quoted,
        } = notice;
        let ask = |endpoint: &mut Endpoint| endpoint.handle_too_big(now, *remote, *mtu, quoted);
        let believed = self
            .handle
            .act(now, &mut self.wake, |state| ask(&mut state.endpoint));
        if !believed {
            self.neighbours.ask(ask);
        }
    }

    /// Tells the engine which connections' datagrams were too big; true if there were any, which
    /// have something to send again.
    fn shrink(&mut self, now: Time) -> bool {
        let Some(mut next) = self.outbox.next_to_shrink() else {
            return false;
        };
        self.handle.act(now, &mut self.wake, |state| {
            loop {
                let (connection, len) = next;
                state.endpoint.handle_datagram_too_big(connection, len);
                match self.outbox.next_to_shrink() {
                    Some(another) => next = another,
                    None => break,
                }
            }
        });
        true
    }

    /// Builds trains for one system call; true if the engine has no more now.
    fn collect(&mut self, now: Time, budget: &mut usize) -> bool {
        let mut bytes = 0;
        while bytes < BATCH_BYTES && self.outbox.len() < MAX_SEND_BATCH && *budget > 0 {
            let slot = self.outbox.len();
            if slot == self.trains.len() {
                self.trains
                    .push(TrainBuf::with_max_segments(self.max_segments));
            }
            let train = &mut self.trains[slot];
            let transmit = self.handle.act(now, &mut self.wake, |state| {
                state.endpoint.poll_transmit(now, train)
            });
            let Some(transmit) = transmit else {
                return true;
            };
            let segments = transmit.len.div_ceil(transmit.segment_size.max(1));
            bytes += transmit.len;
            *budget = budget.saturating_sub(segments);
            if self.outbox.may_join(&transmit)
                && let [.., last, built] = &mut self.trains[..=slot]
                && last.join(built)
            {
                self.outbox.join(transmit.len);
            } else {
                self.outbox.load(&transmit);
            }
        }
        false
    }

    /// Publishes the counters and wakes whoever the turn's events concern.
    fn leave(&mut self) {
        let info = self.info();
        if self.outbox.take_complaint() {
            self.complaints.warn(&info);
        }
        let mut state = self.handle.lock();
        state.info = info;
        state.stats = self.stats;
        drop(state);
        self.wake_all();
    }

    fn wake_all(&mut self) {
        for waker in self.wake.drain(..) {
            waker.wake();
        }
    }
}

impl<S: Socket, D: Dispatch> Drop for Shard<S, D> {
    fn drop(&mut self) {
        let mut state = self.handle.lock();
        state.gone = true;
        let mail = std::mem::take(&mut state.mail);
        state.dispatch.on_shard_gone(&mut self.wake);
        drop(state);
        drop(mail);
        self.wake_all();
    }
}

/// Errors that say the descriptor is not a usable socket.
fn is_fatal(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(libc::EBADF | libc::ENOTSOCK | libc::EFAULT | libc::EINVAL)
    )
}

impl<S: Socket, D: Dispatch> fmt::Debug for Shard<S, D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shard")
            .field("socket", &self.socket.info())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod absence;
#[cfg(test)]
mod tests;
