//! Hosts on one clock and one wire: the order in which things happen, written once.
//!
//! An engine without I/O wants one thing of its caller: after any number of things that go in (trains,
//! the time, calls), and before it waits, take out all that comes out (trains, events, the next
//! deadline). A [`World`] does that for the tests of `quic`, for the lab and for whoever else drives
//! engines in virtual time. It is generic
//! over its hosts, so that it needs to know none of them, and over the wire between them: the
//! links of a `Network` or a [`Direct`] call. A [`Watch`] sees, changes and drops what goes by.
//! It chooses nothing by itself: the same calls give the same run.

mod host;
mod watch;
mod wire;

use std::net::SocketAddr;
use std::ops::Range;
use std::time::Duration;

use towline_wire::Time;

pub use host::{Host, Outgoing};
pub use watch::Watch;
pub use wire::{Direct, Train, Wire};

/// Where the clock of a world stands at first: one second, so that nothing is mistaken for "unset".
pub const START: Time = Time::from_nanos(1_000_000_000);

/// Trains or rounds at one moment, beyond which a host is not busy but broken.
const MOST_TURNS: u32 = 1 << 22;

/// Counts what happens at one moment.
#[derive(Default)]
struct Turns(u32);

impl Turns {
    fn count(&mut self, what: &str) {
        self.0 += 1;
        assert!(self.0 <= MOST_TURNS, "{what} never ends");
    }
}

/// Hosts, what joins them, and the clock of all of them.
///
/// The steps can be taken one by one, and whole: `flush` after a call into a host, `step` to the next
/// thing that happens. Each takes the [`Watch`] that sees it; `&mut ()` sees nothing.
#[derive(Debug)]
pub struct World<H, W> {
    /// The clock. A test may step it; `run_timers` then finds what has come due.
    pub now: Time,
    /// The hosts, each known by its place.
    pub hosts: Vec<H>,
    /// What joins them.
    pub net: W,
}

impl<H: Host, W: Wire> World<H, W> {
    /// A world at its [`START`].
    pub fn new(hosts: impl Into<Vec<H>>, net: W) -> Self {
        Self {
            now: START,
            hosts: hosts.into(),
            net,
        }
    }

    /// The place of the host that is reached at this address.
    pub fn place_of(&self, address: SocketAddr) -> Option<usize> {
        self.hosts.iter().position(|h| h.has_address(address))
    }

    // ---- single steps ----

    /// One train of host `at` goes on the wire. Tells whether there was one.
    pub fn send_train(&mut self, at: usize, watch: &mut impl Watch<H, W>) -> bool {
        let Some(train) = self.build(at, watch) else {
            return false;
        };
        let whole = self.net.carries_trains();
        let part = if whole { train.len } else { train.stride }.max(1);
        for first in (0..train.len).step_by(part) {
            let host = &self.hosts[at];
            let bytes = &host.train()[first..train.len.min(first + part)];
            let mut sent = train.of(host.address(), bytes);
            if !whole {
                sent.stride = bytes.len();
            }
            if watch.send(self.now, &mut self.hosts, at, &mut sent) {
                self.net.send(self.now, sent);
            }
        }
        watch.on_sent(self.now, at, &self.net);
        true
    }

    /// All that host `at` has to send now goes on the wire. Tells whether there was anything.
    ///
    /// # Panics
    /// When the host has more to send however much it has sent.
    pub fn transmit(&mut self, at: usize, watch: &mut impl Watch<H, W>) -> bool {
        let mut turns = Turns::default();
        while self.send_train(at, watch) {
            turns.count("what a host has to send");
        }
        turns.0 > 0
    }

    /// All that host `at` has to send now, in place of sending it.
    pub fn take(&mut self, at: usize, watch: &mut impl Watch<H, W>) -> Vec<Train> {
        let mut taken = Vec::new();
        while let Some(train) = self.build(at, watch) {
            let host = &self.hosts[at];
            taken.push(train.of(host.address(), &host.train()[..train.len]));
        }
        taken
    }

    fn build(&mut self, at: usize, watch: &mut impl Watch<H, W>) -> Option<Outgoing> {
        watch.enter(at);
        let train = watch.poll_transmit(self.now, &mut self.hosts, at);
        watch.leave();
        train
    }

    /// All events of host `at` go to the watch. Tells whether there were any.
    pub fn listen(&mut self, at: usize, watch: &mut impl Watch<H, W>) -> bool {
        let mut heard = false;
        loop {
            watch.enter(at);
            let event = self.hosts[at].poll_event();
            watch.leave();
            let Some(event) = event else {
                return heard;
            };
            heard = true;
            watch.on_event(self.now, &mut self.hosts, at, event);
        }
    }

    /// Hands a train to host `at`, whatever address it bears.
    pub fn deliver(&mut self, at: usize, mut train: Train, watch: &mut impl Watch<H, W>) {
        watch.enter(at);
        watch.deliver(self.now, &mut self.hosts, at, &mut train);
        watch.leave();
    }

    /// Delivers the next train, or notice, that has arrived by now; the place of its host, or `None` if
    /// there is none. Trains that arrive for nobody go to [`Watch::on_stray`].
    pub fn deliver_next(&mut self, watch: &mut impl Watch<H, W>) -> Option<usize> {
        while let Some(notice) = self.net.poll_too_big(self.now) {
            if let Some(at) = self.place_of(notice.source) {
                watch.enter(at);
                watch.on_too_big(self.now, &mut self.hosts, at, &notice);
                watch.leave();
                return Some(at);
            }
        }
        while let Some(train) = self.net.poll_deliver(self.now) {
            if let Some(at) = self.place_of(train.datagram.destination) {
                self.deliver(at, train, watch);
                return Some(at);
            }
            watch.on_stray(self.now, train, &mut self.net);
        }
        None
    }

    /// Delivers all that has arrived by now.
    pub fn arrive(&mut self, watch: &mut impl Watch<H, W>) {
        while self.deliver_next(watch).is_some() {}
    }

    /// Runs the timers of host `at` if they are due.
    pub fn run_timers_of(&mut self, at: usize, watch: &mut impl Watch<H, W>) {
        let due = self.hosts[at].next_timeout();
        if due.is_some_and(|due| due <= self.now) {
            watch.enter(at);
            watch.handle_timeout(self.now, &mut self.hosts, at);
            watch.leave();
        }
    }

    /// Runs all timers that are due.
    pub fn run_timers(&mut self, watch: &mut impl Watch<H, W>) {
        for at in 0..self.hosts.len() {
            self.run_timers_of(at, watch);
        }
    }

    /// When something next happens by itself: an arrival, or a timer.
    pub fn next_timeout(&self) -> Option<Time> {
        let hosts = self.hosts.iter().filter_map(Host::next_timeout);
        hosts.chain(self.net.next_timeout()).min()
    }

    // ---- the whole of it ----

    /// Sends what every host has to send and takes its events.
    pub fn flush(&mut self, watch: &mut impl Watch<H, W>) {
        for at in 0..self.hosts.len() {
            self.transmit(at, watch);
            self.listen(at, watch);
        }
    }

    /// Takes the events of these hosts and sends what they have to send, until they have neither:
    /// for a watch that acts on events.
    ///
    /// # Panics
    /// When each round makes another.
    pub fn settle(&mut self, hosts: Range<usize>, watch: &mut impl Watch<H, W>) {
        let (mut busy, mut turns) = (true, Turns::default());
        while busy {
            busy = false;
            turns.count("what hosts make each other do");
            for at in hosts.clone() {
                busy |= self.listen(at, watch);
            }
            for at in hosts.clone() {
                busy |= self.transmit(at, watch);
            }
        }
    }

    /// Goes on to the next thing that happens by itself; `false` if nothing ever will.
    pub fn step(&mut self, watch: &mut impl Watch<H, W>) -> bool {
        self.flush(watch);
        let Some(next) = self.next_timeout() else {
            return false;
        };
        self.now = self.now.max(next);
        self.arrive(watch);
        self.run_timers(watch);
        self.flush(watch);
        true
    }

    /// Lets `time` pass, whatever happens meanwhile.
    pub fn run_for(&mut self, time: Duration, watch: &mut impl Watch<H, W>) {
        let end = self.now + time;
        self.flush(watch);
        while self.next_timeout().is_some_and(|next| next <= end) {
            self.step(watch);
        }
        // The flush of a step may have put off what was to come, and the clock never goes back.
        self.now = self.now.max(end);
    }

    /// Over a direct wire: each train is at its receiver before its sender builds the next. Goes
    /// on until a turn of all hosts in which nobody sent anything; a turn takes `turn`.
    ///
    /// # Panics
    /// When hosts send forever, whatever time passes.
    pub fn pump(&mut self, turn: Duration, watch: &mut impl Watch<H, W>) {
        let (mut quiet, mut turns) = (false, Turns::default());
        while !quiet {
            quiet = true;
            for at in 0..self.hosts.len() {
                while self.send_train(at, watch) {
                    quiet = false;
                    turns.count("what hosts send each other");
                    while let Some(to) = self.deliver_next(watch) {
                        self.listen(to, watch);
                    }
                }
                self.listen(at, watch);
            }
            self.now += turn;
        }
    }

    /// As `run_for`, over a direct wire: timers, and a [`pump`](Self::pump) after each.
    pub fn pump_for(&mut self, time: Duration, turn: Duration, watch: &mut impl Watch<H, W>) {
        let end = self.now + time;
        self.pump(turn, watch);
        while let Some(next) = self.next_timeout().filter(|next| *next <= end) {
            self.now = self.now.max(next);
            self.run_timers(watch);
            self.pump(turn, watch);
        }
        self.now = self.now.max(end);
    }
}

#[cfg(test)]
mod tests;
