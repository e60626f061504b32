//! Hosts that stop: nothing is read, no timer runs, nothing is sent; then they go on.
//!
//! What arrives meanwhile waits in the host's socket as far as there is room. A host that goes on
//! reads its socket datagram by datagram, each dated by its arrival, sends in between, and runs its
//! timers after that, as the driver does. Owned by a host of the world.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::Duration;

use towline_sim::{Datagram, START};
use towline_wire::Time;

/// When a host stops, counted from the start of the world.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Freeze {
    /// When it begins.
    pub start: Duration,
    /// How long it lasts.
    pub lasts: Duration,
}

/// The freezes of one host, and its socket.
#[derive(Debug, Default)]
pub(super) struct Freezes {
    /// Still to come: from when to when, in order and apart.
    to_come: VecDeque<[Time; 2]>,
    until: Option<Time>,
    /// It stood still before, or does now.
    ever: bool,
    /// With the times of arrival, and the host's address as the others saw it then.
    socket: VecDeque<((Time, SocketAddr), Datagram)>,
    held: usize,
    room: usize,
}

impl Freezes {
    /// Freezes in order of their start; those that overlap the one before are left out. The
    /// socket holds up to `room` bytes.
    pub(super) fn new(freezes: &[Freeze], room: usize) -> Self {
        let mut to_come: VecDeque<[Time; 2]> = VecDeque::new();
        for freeze in freezes {
            let start = START + freeze.start;
            if to_come.back().is_none_or(|[_, until]| *until < start) {
                to_come.push_back([start, start + freeze.lasts]);
            }
        }
        Self {
            to_come,
            room,
            ..Self::default()
        }
    }

    pub(super) fn is_frozen(&self) -> bool {
        self.until.is_some()
    }

    pub(super) fn was_ever_frozen(&self) -> bool {
        self.ever
    }

    /// When it next stops or goes on.
    pub(super) fn next_timeout(&self) -> Option<Time> {
        self.until
            .or_else(|| self.to_come.front().map(|[start, _]| *start))
    }

    /// Stops if it is time to.
    pub(super) fn begin(&mut self, now: Time) {
        if self.until.is_none()
            && let Some([start, until]) = self.to_come.front().copied()
            && start <= now
        {
            self.to_come.pop_front();
            self.until = Some(until);
            self.ever = true;
        }
    }

    /// A datagram for the socket of a host that stands still. Returns whether there was room.
    pub(super) fn keep(&mut self, arrival: (Time, SocketAddr), datagram: Datagram) -> bool {
        let fits = self.held + datagram.payload.len() <= self.room;
        if fits {
            self.held += datagram.payload.len();
            self.socket.push_back((arrival, datagram));
        }
        fits
    }

    /// Whether the time to go on has come.
    pub(super) fn is_over(&self, now: Time) -> bool {
        self.until.is_some_and(|until| until <= now)
    }

    /// Goes on with what is in the socket.
    pub(super) fn end(&mut self) -> VecDeque<((Time, SocketAddr), Datagram)> {
        self.until = None;
        self.held = 0;
        std::mem::take(&mut self.socket)
    }

    /// No more of them.
    pub(super) fn cancel(&mut self) {
        self.to_come.clear();
    }
}
