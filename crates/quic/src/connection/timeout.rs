//! What deadlines set off when they have passed.
//!
//! 1. `handle_timeout`: the endpoint says what time it is.
//! 2. `run_timers`: the connection's own timers, then those of acknowledgements, of datagrams and of
//!    recovery.
//! 3. `on_timer`: what each of its own means.

use towline_recovery::Expired;
use towline_wire::{PacketNumberSpace, Time};

use super::aftermath::Aftermath;
use super::events::Event;
use super::parts::Connection;
use super::timers::Timer;
use crate::error::{ConnectionError, TimeoutReason};

impl Connection {
    /// Runs every deadline that has passed.
    pub(crate) fn handle_timeout(&mut self, now: Time) -> Aftermath {
        let _span = self.enter_span();
        self.run_timers(now);
        self.aftermath(now)
    }

    fn run_timers(&mut self, now: Time) {
        while let Some(timer) = self.liveness.take_expired(now) {
            self.on_timer(now, timer);
        }
        if !self.lifecycle.is_open() {
            return;
        }
        self.acks.on_timeout(now);
        self.datagrams.on_timeout(now, &mut self.events);
        if self.paths.next_timeout().is_some_and(|at| at <= now) {
            self.on_path_timeout(now);
        }
        let due = self
            .recovery
            .next_timeout(self.paths.state())
            .is_some_and(|(at, _)| at <= now);
        if due {
            let size = self.paths.state().max_datagram_size();
            let (recovery, path, mut owner) = self.split_for_delivery();
            let expired = recovery.on_timeout(path, now, &mut owner);
            self.note_datagram_size(size);
            if let Some(expired) = expired
                && self.is_observed()
            {
                self.observe_timeout(now, expired);
            }
            if matches!(expired, Some(Expired::Pto { .. })) {
                self.on_probe_timeout(now);
            }
        }
    }

    /// A question may have been asked into an outage: whoever waits for the answer begins to probe
    /// for the path, as if data had stopped.
    ///
    /// A server that has dropped its Handshake keys learns from no Handshake packet that a NAT gave
    /// its client another address, so a client's probe has a 1-RTT packet beside it (RFC 9002 §6.2.4).
    fn on_probe_timeout(&mut self, now: Time) {
        if self.lifecycle.is_established() && !self.lifecycle.is_confirmed() {
            self.liveness.ping();
        }
        if self.streams.has_open_receiver() && self.liveness.is_unwatched() {
            let pto = self.paths.state().pto(PacketNumberSpace::Application);
            self.liveness.await_data(now, pto);
        }
    }

    fn on_timer(&mut self, now: Time, timer: Timer) {
        let pto = self.paths.state().pto(PacketNumberSpace::Application);
        match timer {
            Timer::Idle => self.end_now(ConnectionError::TimedOut(TimeoutReason::Idle)),
            Timer::Handshake => self.end_now(ConnectionError::TimedOut(TimeoutReason::Handshake)),
            Timer::KeepAlive => {
                // A handshake is kept alive by its own probes, and has no 1-RTT packets for a PING.
                if self.lifecycle.is_established() {
                    self.liveness.on_keep_alive(now);
                }
            }
            Timer::Liveness => {
                if self.streams.has_open_receiver() {
                    self.liveness.on_liveness(now, pto);
                }
            }
            Timer::KeyDiscard => self.sealer.protection.discard_previous(),
            Timer::Close => {
                self.lifecycle.on_period_over();
                self.events.push(Event::Drained);
            }
            // Pacing only wakes; the others have owners of their own.
            Timer::Pacing
            | Timer::LossDetection
            | Timer::AckDelay
            | Timer::DatagramAge
            | Timer::PathValidation => {}
        }
    }
}
