//! Both ends of one connection, and whether the way it ended is explained.
//!
//! Owns the two applications and the ledger; called by the swarm with every event of the world.
//! A connection may end as its applications asked, or by a timeout that harm on its links
//! explains; everything else is a violation.

use std::time::Duration;

use towline_quic::{
    ClientConfig, Close, Connection, ConnectionError, ConnectionHandle, Event, TimeoutReason,
    TransportErrorCode,
};
use towline_wire::{Side, Time};

use super::app::App;
use super::ledger::{Half, Ledger};
use super::plan::ConversationPlan;
use crate::violation::{Invariant, Violation};
use crate::world::{CheckedWorld, HostId, START};

/// Bytes of a close reason that the engine promises to carry.
const REASON_KEPT: usize = 512;

/// One end.
#[derive(Debug)]
pub struct End {
    host: HostId,
    handle: Option<ConnectionHandle>,
    app: Option<App>,
    /// When the handshake ended.
    established: Option<Time>,
    closed: Option<(Time, ConnectionError)>,
    drained: bool,
    /// Our application closed, at this time.
    closed_by_app: Option<Time>,
}

impl End {
    fn new(host: HostId) -> Self {
        Self {
            host,
            handle: None,
            app: None,
            established: None,
            closed: None,
            drained: false,
            closed_by_app: None,
        }
    }

    /// Its connection, while there is one.
    pub fn connection<'w>(&self, world: &'w CheckedWorld) -> Option<&'w Connection> {
        world.endpoint(self.host).connection(self.handle?)
    }

    /// Why its connection ended.
    pub fn closed(&self) -> Option<&ConnectionError> {
        self.closed.as_ref().map(|(_, error)| error)
    }
}

/// A connection of a client with a server.
#[derive(Debug)]
pub struct Conversation {
    plan: ConversationPlan,
    ends: [End; 2],
    ledger: Ledger,
    /// Idle timeout of both ends, if there is one.
    idle: Option<Duration>,
    /// This end acknowledged what it did not receive: its own data is its own affair.
    liar: Option<Side>,
}

/// A CONNECTION_CLOSE on unharmed links has arrived after this long.
const CLOSE_ARRIVES: Duration = Duration::from_secs(2);

/// Probes in a row after which the next may come later than an idle timeout.
const MANY_PROBES: u32 = 3;

const SIDES: [Side; 2] = [Side::Client, Side::Server];

impl Conversation {
    /// A conversation that has not begun; `seed` decides the bytes moved, `idle` is the smaller of
    /// both ends' idle timeouts.
    pub fn new(
        plan: ConversationPlan,
        hosts: [HostId; 2],
        seed: u64,
        idle: Option<Duration>,
    ) -> Self {
        Self {
            plan,
            ends: hosts.map(End::new),
            ledger: Ledger::new(seed),
            idle,
            liar: None,
        }
    }

    /// `side` acknowledged what it did not receive. From now on the conversation need not be
    /// completed, and its peer may end it.
    pub fn on_lie(&mut self, side: Side) {
        self.liar = Some(side);
    }

    /// One end lied.
    pub fn has_liar(&self) -> bool {
        self.liar.is_some()
    }

    /// Everything `sender` wanted to send was acknowledged, given up or not wanted.
    pub fn is_sent(&self, sender: Side) -> bool {
        let end = self.end(sender);
        end.app.as_ref().is_some_and(App::has_begun_everything)
            && self
                .ledger
                .halves_of(sender)
                .all(|half| half.acknowledged || half.reset.is_some() || half.stop_heard)
    }

    /// The client connects.
    ///
    /// # Errors
    /// The engine refused.
    pub fn start(
        &mut self,
        world: &mut CheckedWorld,
        config: &ClientConfig,
    ) -> Result<(), Violation> {
        let (now, remote) = (world.now(), world.address(self.ends[1].host));
        let client = world.endpoint_mut(self.ends[0].host);
        match client.connect(now, config, remote, towline_testkit::SERVER_NAME) {
            Ok(handle) => {
                self.ends[0].handle = Some(handle);
                Ok(())
            }
            Err(e) => Err(Violation::new(Invariant::Liveness, now, e.to_string())),
        }
    }

    /// The script.
    pub fn plan(&self) -> &ConversationPlan {
        &self.plan
    }

    /// One end.
    pub fn end(&self, side: Side) -> &End {
        &self.ends[side as usize]
    }

    /// The truth so far.
    pub fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// The client's host.
    pub fn client_host(&self) -> HostId {
        self.ends[0].host
    }

    /// Everything planned was done, at both ends.
    pub fn is_complete(&self) -> bool {
        let begun = |end: &End| end.app.as_ref().is_some_and(App::has_begun_everything);
        self.ends.iter().all(begun) && self.ledger.halves().all(|(_, half)| half.is_settled())
    }

    /// Nothing is left to be sent; a slow reader may still be reading. Then nothing keeps an
    /// idle timeout from passing.
    fn has_sent_everything(&self) -> bool {
        let begun = |end: &End| end.app.as_ref().is_some_and(App::has_begun_everything);
        let sent = |half: &Half| half.acknowledged || half.reset.is_some() || half.stop_heard;
        self.ends.iter().all(begun) && self.ledger.halves().all(|(_, half)| sent(half))
    }

    /// Either end's connection is over.
    pub fn has_ended(&self) -> bool {
        self.ends.iter().any(|end| end.closed.is_some())
    }

    /// When an application next acts by itself; not while its host stands still.
    pub fn next_timeout(&self, world: &CheckedWorld) -> Option<Time> {
        let live = self.ends.iter().filter(|end| end.closed.is_none());
        let awake = live.filter(|end| !world.is_frozen(end.host));
        let apps = awake.filter_map(|end| end.app.as_ref()?.next_timeout());
        apps.chain(self.abrupt_close(world)).min()
    }

    /// When the plan closes in the middle of things.
    fn abrupt_close(&self, world: &CheckedWorld) -> Option<Time> {
        let end = &self.ends[self.plan.close.side as usize];
        if world.is_frozen(end.host) {
            return None;
        }
        let after = self.plan.close.after.filter(|_| end.closed.is_none())?;
        Some(end.established? + after)
    }

    /// Whether an event of this handle belongs here; an `Accepted` makes it so.
    pub fn claims(
        &self,
        world: &CheckedWorld,
        host: HostId,
        handle: ConnectionHandle,
        event: &Event,
    ) -> bool {
        if let Some(end) = self.ends.iter().find(|end| end.host == host) {
            if end.handle.is_some() {
                return end.handle == Some(handle);
            }
            let client = world.address(self.ends[0].host);
            return *event == Event::Accepted && world.accepted(host, handle) == Some(client);
        }
        false
    }

    /// Takes an event of one of its connections.
    ///
    /// # Errors
    /// What it tells is not true, or the connection ended without an excuse.
    pub fn on_event(
        &mut self,
        world: &mut CheckedWorld,
        host: HostId,
        handle: ConnectionHandle,
        event: &Event,
    ) -> Result<(), Violation> {
        let now = world.now();
        let side = SIDES[usize::from(host == self.ends[1].host)];
        let end = &mut self.ends[side as usize];
        match event {
            Event::Accepted | Event::Connected => {
                end.handle = Some(handle);
                end.established = Some(now);
                let plan = match side {
                    Side::Client => &self.plan.client,
                    Side::Server => &self.plan.server,
                };
                end.app = Some(App::new(side, plan, now));
            }
            Event::Closed(error) => {
                if end.closed.is_some() {
                    let what = format!("{side:?} was told twice that it is closed: {error}");
                    return Err(Violation::new(Invariant::Close, now, what));
                }
                end.closed = Some((now, error.clone()));
                return self.judge_close(world, side, error);
            }
            Event::Drained => {
                if end.closed.is_none() {
                    let what = format!("{side:?} drained without a close reason");
                    return Err(Violation::new(Invariant::Close, now, what));
                }
                end.drained = true;
            }
            _ if end.closed.is_some() => {}
            _ => {
                let connection = world.endpoint_mut(host).connection_mut(handle);
                if let (Some(app), Some(connection)) = (&mut end.app, connection) {
                    app.on_event(event, connection, &mut self.ledger)
                        .map_err(|what| delivery(now, side, &what))?;
                }
            }
        }
        Ok(())
    }

    /// Lets the applications act. Returns whether the engine was called.
    ///
    /// # Errors
    /// The engine's answer was wrong.
    pub fn run(&mut self, world: &mut CheckedWorld) -> Result<bool, Violation> {
        let now = world.now();
        if self.abrupt_close(world).is_some_and(|at| at <= now) {
            self.close(world)?;
            return Ok(true);
        }
        let mut acted = false;
        for side in SIDES {
            let end = &mut self.ends[side as usize];
            let (Some(app), Some(handle), None) = (&mut end.app, end.handle, &end.closed) else {
                continue;
            };
            if !app.is_due(now) || world.is_frozen(end.host) {
                continue;
            }
            if let Some(connection) = world.endpoint_mut(end.host).connection_mut(handle)
                && !connection.is_closed()
            {
                acted = true;
                app.run(now, connection, &mut self.ledger)
                    .map_err(|what| delivery(now, side, &what))?;
            }
        }
        Ok(acted)
    }

    /// The application that the plan names closes; a host that stands still goes on for it.
    ///
    /// # Errors
    /// A broken invariant.
    pub fn close(&mut self, world: &mut CheckedWorld) -> Result<(), Violation> {
        let now = world.now();
        let end = &mut self.ends[self.plan.close.side as usize];
        world.thaw(end.host)?;
        let Some(handle) = end.handle else {
            return Ok(());
        };
        if let Some(connection) = world.endpoint_mut(end.host).connection_mut(handle)
            && !connection.is_closed()
        {
            end.closed_by_app = Some(now);
            connection.close(now, self.plan.close.code, &self.plan.close.reason);
        }
        Ok(())
    }

    fn judge_close(
        &self,
        world: &CheckedWorld,
        side: Side,
        error: &ConnectionError,
    ) -> Result<(), Violation> {
        let (own, peer) = (self.end(side), self.end(side.peer()));
        let now = world.now();
        let harmed_since = |time: Time| {
            world
                .last_harm(own.host, peer.host)
                .is_some_and(|h| h >= time)
        };
        if *error == ConnectionError::TimedOut(TimeoutReason::Idle)
            && let Some(idle) = self.idle
            && let Some(alive_at) = world.kept_alive(own.host, peer.host)
            && own.established.is_some_and(|at| at < alive_at)
            && now < alive_at + idle
        {
            let what = format!("{side:?} timed out, but had news of its peer at {alive_at:?}");
            return Err(Violation::new(Invariant::Liveness, now, what));
        }
        let excused = match error {
            // The victim objects, and the liar hears of it or not.
            _ if self.liar.is_some() && is_end_of_a_lie(error) => true,
            ConnectionError::ClosedLocally => own.closed_by_app.is_some(),
            ConnectionError::ClosedByPeer(Close::Application { code, reason }) => {
                let kept = self.plan.close.reason.len().min(REASON_KEPT);
                peer.closed_by_app.is_some()
                    && *code == self.plan.close.code
                    && reason[..] == self.plan.close.reason[..kept]
            }
            // A Retry token that arrives after its time (RFC 9000 §8.1.2).
            ConnectionError::ClosedByPeer(Close::Transport {
                code: TransportErrorCode::INVALID_TOKEN,
                ..
            }) => own.established.is_none() && harmed_since(START),
            // The application's words do not go into handshake packets (RFC 9000 §10.2.3).
            ConnectionError::ClosedByPeer(Close::Transport { code, .. }) => {
                peer.closed_by_app.is_some() && *code == TransportErrorCode::APPLICATION_ERROR
            }
            ConnectionError::TimedOut(TimeoutReason::Handshake) => {
                own.established.is_none() && harmed_since(START)
            }
            ConnectionError::TimedOut(TimeoutReason::Idle) => {
                // A close takes its time to arrive.
                let told = peer
                    .closed_by_app
                    .is_some_and(|at| !harmed_since(at) && at + CLOSE_ARRIVES < now);
                let gone = peer.closed.is_some() && !told;
                // A server that never heard the end of the handshake gives up without a word.
                let forgotten = peer.established.is_none() && harmed_since(START);
                // Probes back off exponentially while the path is bad (RFC 9002 §6.2.1); the next
                // one may be due after the idle timeout.
                let backed_off = world.probes_in_a_row(own.host, peer.host) >= MANY_PROBES
                    && harmed_since(START);
                // A peer that took our stop for the path's round trip probes as seldom.
                let slow = peer
                    .connection(world)
                    .map_or(Duration::ZERO, |c| c.stats().pto);
                let slow = world.was_ever_frozen(own.host)
                    && self.idle.is_some_and(|idle| 2 * slow > idle);
                gone || forgotten
                    || backed_off
                    || slow
                    || (self.has_sent_everything() && !told)
                    || harmed_since(world.last_delivery(own.host, peer.host))
            }
            ConnectionError::StatelessReset => {
                peer.drained || (peer.established.is_none() && harmed_since(START))
            }
            _ => false,
        };
        if excused {
            return Ok(());
        }
        let invariant = match error {
            ConnectionError::TimedOut(_) => Invariant::Liveness,
            _ => Invariant::Close,
        };
        let what = format!(
            "{side:?} ended without an excuse: {error} ({error:?}); last harm {:?}, last delivery {:?}; {}",
            world.last_harm(own.host, peer.host),
            world.last_delivery(own.host, peer.host),
            self.undone(world),
        );
        Err(Violation::new(invariant, now, what))
    }

    /// What is still undone, for a report.
    pub fn undone(&self, world: &CheckedWorld) -> String {
        use std::fmt::Write as _;
        let mut text = String::new();
        for (side, end) in SIDES.into_iter().zip(&self.ends) {
            let stats = end.connection(world).map(Connection::stats);
            let _ = write!(text, "{side:?}: ");
            match (&end.app, &end.closed) {
                (_, Some((at, error))) => {
                    let _ = write!(text, "closed at {at:?} ({error}); ");
                }
                (None, None) => text.push_str("handshake unfinished; "),
                (Some(app), None) => {
                    let begun = app.has_begun_everything();
                    let _ = write!(text, "everything begun {begun}; ");
                }
            }
            if let Some(s) = stats {
                let _ = write!(
                    text,
                    "cwnd {}, in flight {}, pto_count {}, pto {:?}; ",
                    s.cwnd, s.bytes_in_flight, s.pto_count, s.pto
                );
            }
        }
        for (id, half) in self
            .ledger
            .halves()
            .filter(|(_, h)| !h.is_settled())
            .take(4)
        {
            let _ = write!(text, "{id:?}: {half:?}; ");
        }
        text
    }
}

/// How a connection may end on which one end lied, besides as planned.
fn is_end_of_a_lie(error: &ConnectionError) -> bool {
    match error {
        ConnectionError::PeerMisbehaved { code, .. }
        | ConnectionError::ClosedByPeer(Close::Transport { code, .. }) => {
            *code == TransportErrorCode::PROTOCOL_VIOLATION
        }
        ConnectionError::TimedOut(TimeoutReason::Idle) | ConnectionError::StatelessReset => true,
        _ => false,
    }
}

fn delivery(now: Time, side: Side, what: &str) -> Violation {
    Violation::new(Invariant::Delivery, now, format!("{side:?}: {what}"))
}
