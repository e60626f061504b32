//! Runs one plan: faults, heal, completion, silence, close, nothing left.
//!
//! 1. faults are on; the workload runs.
//! 2. when it is done, or the faults' time is up, every link is healed; a deadline runs (I2).
//! 3. all done: what is in flight settles, then the wire must be silent (I9), credit whole (I5).
//! 4. the applications close; both ends agree and drain (I10).
//! 5. the world is dropped; its memory must be back (I6).

use std::sync::Arc;
use std::time::Duration;

use towline_quic::{
    CidGenerator, ClientConfig, Connection, Endpoint, EndpointConfig, Event, NoCids, RetryPolicy,
    ServerConfig, ShardedCid, TransportErrorCode,
};
use towline_testkit::{TlsOptions, TlsPair, tls_pair};
use towline_wire::{Side, Time};

use super::features::Feature;
use super::plan::{FreezePlan, Plan, cid_lens, smallest_window};
use crate::violation::{Invariant, Violation};
use crate::workload::{self, Conversation};
use crate::world::{CheckedWorld, Cost, HostId, Limits, START, Trace, WorkCounter};

/// Bytes of heap this thread holds, by whoever can count them.
pub type Meter = fn() -> i64;

/// What a good run was like.
#[derive(Clone, Copy, Debug)]
pub struct Report {
    /// The hash of all that happened.
    pub trace: Trace,
    /// Virtual time it took.
    pub took: Duration,
    /// UDP datagrams sent.
    pub datagrams: u64,
    /// Connections whose whole workload was done.
    pub completed: usize,
    /// Most heap held during the run, where it was counted.
    pub peak_memory: i64,
    /// What the adversary, or whoever is honest in its place, did.
    pub receiver: Receiver,
    /// UDP payload of full-sized packets of the first conversation's client and server, as the
    /// application closed.
    pub mtus: [u16; 2],
}

/// The end of the first conversation that has an adversary in the plan.
#[derive(Clone, Copy, Debug, Default)]
pub struct Receiver {
    /// It acknowledged something that never arrived.
    pub lied: bool,
    /// How long it took until its victim took everything for delivered, from the start.
    pub fed: Option<Duration>,
    /// What its datagrams cost the victim, where that is counted.
    pub cost: Option<Cost>,
}

/// A liar is fed at most this many times as fast as an honest receiver: nothing of what it hides
/// goes out again, and few packets suffice to hide some losses before it is found out.
const MOST_GAIN: u32 = 10;

/// What bad luck may cost the honest one besides: blackouts, and probes that back off.
const LUCK: Duration = Duration::from_secs(30);

/// Work of a liar's byte, in honest ones'.
const MOST_WORK: u64 = 20;

impl Receiver {
    /// Holds this receiver against an honest one on the same network (I13, I15).
    pub(super) fn judge(&self, honest: &Self) -> Result<(), Violation> {
        let broken = |invariant, what| Err(Violation::new(invariant, START, what));
        if let (Some(own), Some(theirs)) = (self.fed, honest.fed)
            && own * MOST_GAIN + LUCK < theirs
        {
            let what = format!("an adversary was fed in {own:?}, an honest receiver in {theirs:?}");
            return broken(Invariant::Honesty, what);
        }
        if let (Some(own), Some(theirs)) = (self.cost, honest.cost)
            && !own.is_within(MOST_WORK, theirs)
        {
            let what = format!("an adversary made {own:?}, an honest receiver {theirs:?}");
            return broken(Invariant::Work, what);
        }
        Ok(())
    }
}

/// Heap a run may hold besides what it moves: TLS configurations, buffers, ledgers.
const BASE_MEMORY: i64 = 6 << 20;

/// Copies of each stream byte that may exist at once, with duplicates on the links.
const COPIES: i64 = 4;

/// How long an idle wire is watched.
const SILENCE: Duration = Duration::from_secs(5);

/// Steps of one run.
const MAX_STEPS: u64 = 3_000_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Faults until the heal.
    Faults,
    /// Perfect links until the deadline.
    Healed { deadline: Time },
    /// All done; in-flight packets get their acknowledgements, then one quiet second.
    Settling { deadline: Time, quiet: Option<Time> },
    /// Nothing may be sent.
    Silent { until: Time, sent: u64 },
    /// Closed; waiting for both ends to drain.
    Closing { deadline: Time },
}

struct Run<'p> {
    plan: &'p Plan,
    world: CheckedWorld,
    hosts: Vec<HostId>,
    conversations: Vec<Conversation>,
    phase: Phase,
    heal_at: Time,
    healed: bool,
    /// Moves of the plan that were made.
    moved: usize,
    /// Whose acknowledgements are looked at, and what came of them.
    watched: Option<Side>,
    receiver: Receiver,
    mtus: [u16; 2],
}

/// Runs `plan` from start to end.
///
/// # Errors
/// The first invariant broken.
pub fn run(plan: &Plan, meter: Option<Meter>) -> Result<Report, Violation> {
    run_watching(plan, plan.adversary.map(|(side, _)| side), meter)
}

/// As [`run`], and looks at how the victim of `watched` fares.
pub(super) fn run_watching(
    plan: &Plan,
    watched: Option<Side>,
    meter: Option<Meter>,
) -> Result<Report, Violation> {
    // What is made once for the whole process must not look like a leak of the first run.
    drop(tls(plan));
    workload::prepare();
    let before = meter.map_or(0, |m| m());
    let mut peak = 0;
    let report = {
        let mut run = Run::new(plan, watched)?;
        run.go(|now| {
            let held = meter.map_or(0, |m| m()) - before;
            peak = peak.max(held);
            let most = BASE_MEMORY + COPIES * plan.total_bytes() as i64;
            if held > most {
                let what = format!("{held} bytes of heap, more than {most}");
                return Err(Violation::new(Invariant::Memory, now, what));
            }
            Ok(())
        })?;
        Report {
            trace: run.world.trace(),
            took: run.world.now().saturating_duration_since(START),
            datagrams: run.world.datagrams_sent(),
            completed: run.conversations.iter().filter(|c| c.is_complete()).count(),
            peak_memory: 0,
            receiver: run.receiver(),
            mtus: run.mtus,
        }
    };
    let leaked = meter.map_or(0, |m| m()) - before;
    if leaked > 0 {
        let what = format!("{leaked} bytes of heap are still held after the end");
        return Err(Violation::new(Invariant::Memory, START + report.took, what));
    }
    Ok(Report {
        peak_memory: peak,
        ..report
    })
}

/// How the engine tells what work it did.
const WORK: Option<WorkCounter> = Some(|connection| connection.stats().work);

/// The smaller of both ends' idle timeouts, in whole milliseconds as they tell each other.
fn idle(plan: &Plan) -> Option<Duration> {
    let timeouts = plan.transports.iter().map(|t| t.max_idle_timeout);
    let least = timeouts.filter(|t| !t.is_zero()).min()?;
    Some(Duration::from_millis(least.as_millis() as u64))
}

fn tls(plan: &Plan) -> TlsPair {
    let options = TlsOptions {
        #[cfg(debug_assertions)]
        null_aead: plan.features.has(Feature::Plaintext),
        ..TlsOptions::default()
    };
    tls_pair(plan.seed, &options)
}

/// Makes generators of connection IDs of so many bytes.
fn cids(len: usize) -> impl Fn() -> Box<dyn CidGenerator> {
    move || match ShardedCid::with_len(0, len) {
        Ok(cids) => Box::new(cids),
        Err(_) => Box::new(NoCids),
    }
}

impl<'p> Run<'p> {
    fn new(plan: &'p Plan, watched: Option<Side>) -> Result<Self, Violation> {
        let tls = tls(plan);
        let mut world = CheckedWorld::new(plan.seed, plan.features.has(Feature::Plaintext));
        let [client_transport, server_transport] = plan.transports.clone().map(Arc::new);
        let mut server_config = ServerConfig::new(tls.server);
        server_config.transport = server_transport;
        server_config.retry = match plan.features.has(Feature::Retry) {
            true => RetryPolicy::Always,
            false => RetryPolicy::Never,
        };
        let secrets = |n: u8| {
            let mut seed = [n; 32];
            seed[..8].copy_from_slice(&plan.seed.to_le_bytes());
            EndpointConfig::from_seed(seed)
        };
        let [client_ids, server_ids] = cid_lens(plan.seed, plan.features).map(cids);
        let secrets_of_server = secrets(0).cid_generator(server_ids());
        let server = Endpoint::new(secrets_of_server, Some(Arc::new(server_config)));
        let server = world.add_host(server, true);
        let mut client_config = ClientConfig::new(tls.client);
        client_config.transport = client_transport;
        let mut hosts = vec![server];
        let mut conversations = Vec::new();
        for (n, (links, script)) in plan.links.iter().zip(&plan.conversations).enumerate() {
            let secrets = secrets(n as u8 + 1).cid_generator(client_ids());
            let client = world.add_host(Endpoint::new(secrets, None), false);
            let [there, back] = links.clone();
            world
                .join(client, server, there, back)
                .map_err(|e| Violation::new(Invariant::Panic, START, e.to_string()))?;
            let address = world.address(client);
            for (side, transport) in [Side::Client, Side::Server]
                .into_iter()
                .zip(&plan.transports)
            {
                let limits = Limits {
                    connection: transport.receive_window,
                    stream: transport.stream_receive_window,
                    streams: [
                        transport.max_concurrent_bidi_streams,
                        transport.max_concurrent_uni_streams,
                    ],
                };
                world.watch_mut().expect_limits(address, side, limits);
            }
            let seed = plan.seed.wrapping_mul(31).wrapping_add(n as u64);
            let ends = [client, server];
            let mut conversation = Conversation::new(script.clone(), ends, seed, idle(plan));
            conversation.start(&mut world, &client_config)?;
            hosts.push(client);
            conversations.push(conversation);
        }
        for (host, nat) in hosts[1..].iter().zip(&plan.nats) {
            if let Some(nat) = nat {
                let behind = world.set_nat(*host, nat.clone());
                debug_assert!(behind.is_ok(), "plans draw possible NATs");
            }
        }
        if let Some((side, acks)) = plan.adversary {
            let [own, victim] = match side {
                Side::Client => [hosts[1], server],
                Side::Server => [server, hosts[1]],
            };
            world.set_adversary(own, victim, acks, plan.seed);
        }
        for FreezePlan {
            client,
            freezes,
            socket,
        } in &plan.freezes
        {
            let host = client.map_or(server, |n| hosts[n + 1]);
            world.set_freezes(host, freezes, *socket);
        }
        if let Some(counter) = WORK {
            world.count_work(counter);
        }
        Ok(Self {
            plan,
            world,
            hosts,
            conversations,
            phase: Phase::Faults,
            heal_at: START + plan.heal_after,
            healed: false,
            moved: 0,
            watched,
            receiver: Receiver::default(),
            mtus: [0; 2],
        })
    }

    /// Looks at the watched receiver.
    fn watch_receiver(&mut self) {
        let Some(side) = self.watched else { return };
        let conversation = &mut self.conversations[0];
        if !self.receiver.lied && self.world.has_lied(self.hosts[0], self.hosts[1]) {
            self.receiver.lied = true;
            conversation.on_lie(side);
        }
        if self.receiver.fed.is_none() && conversation.is_sent(side.peer()) {
            self.receiver.fed = Some(self.world.now().saturating_duration_since(START));
        }
    }

    fn receiver(&self) -> Receiver {
        let cost = self.watched.and_then(|side| {
            let [server, client] = [self.hosts[0], self.hosts[1]].map(|h| self.world.address(h));
            let way = match side {
                Side::Client => [client, server],
                Side::Server => [server, client],
            };
            self.world.work().cost(way)
        });
        Receiver {
            cost,
            ..self.receiver
        }
    }

    fn go(
        &mut self,
        mut check_memory: impl FnMut(Time) -> Result<(), Violation>,
    ) -> Result<(), Violation> {
        for _ in 0..MAX_STEPS {
            self.make_moves();
            self.settle()?;
            self.watch_receiver();
            check_memory(self.world.now())?;
            if self.change_phase()? {
                continue;
            }
            let over = self.connections() == 0 && matches!(self.phase, Phase::Closing { .. });
            if over {
                return Ok(());
            }
            let apps = self
                .conversations
                .iter()
                .filter_map(|c| c.next_timeout(&self.world));
            let by_itself = self.world.next_timeout();
            let next_move = self.next_move().map(|(at, _)| at);
            let next = apps.chain(by_itself).chain(self.phase_timeout());
            let next = next.chain(next_move).min();
            let Some(next) = next else {
                return Err(self.stuck("everything is silent for good"));
            };
            self.world.advance(next)?;
        }
        Err(Violation::new(
            Invariant::Pace,
            self.world.now(),
            format!("more than {MAX_STEPS} steps"),
        ))
    }

    /// After the heal nobody moves.
    fn next_move(&self) -> Option<(Time, u8)> {
        if self.healed {
            return None;
        }
        let (at, place) = self.plan.moves.get(self.moved)?;
        Some((START + *at, *place))
    }

    fn make_moves(&mut self) {
        while let Some((at, place)) = self.next_move()
            && at <= self.world.now()
        {
            self.moved += 1;
            self.world.move_host(self.hosts[1], place);
        }
    }

    /// Lets endpoints and applications act until nobody has anything to do at this instant.
    fn settle(&mut self) -> Result<(), Violation> {
        for _ in 0..1000 {
            self.world.flush()?;
            let mut acted = false;
            while let Some((host, handle, event)) = self.world.poll_event() {
                acted = true;
                let world = &mut self.world;
                let owner = self
                    .conversations
                    .iter_mut()
                    .find_map(|c| c.claims(world, host, handle, &event).then_some(c));
                match owner {
                    Some(conversation) => conversation.on_event(world, host, handle, &event)?,
                    None => self.judge_unclaimed(&event)?,
                }
            }
            for conversation in &mut self.conversations {
                acted |= conversation.run(&mut self.world)?;
            }
            if !acted {
                return Ok(());
            }
        }
        Err(Violation::new(
            Invariant::Pace,
            self.world.now(),
            "endpoints and applications keep each other busy at one instant",
        ))
    }

    /// A server's connection that never finished its handshake, most often because a late
    /// duplicate of an Initial started it.
    fn judge_unclaimed(&self, event: &Event) -> Result<(), Violation> {
        use towline_quic::ConnectionError as E;
        let fault = match event {
            Event::Accepted => Some("a second connection of one client was accepted".to_owned()),
            // Null keys open what a client sent to an older connection of its, now forgotten.
            Event::Closed(E::PeerMisbehaved { code, .. })
                if self.plan.features.has(Feature::Plaintext)
                    && *code == TransportErrorCode::PROTOCOL_VIOLATION =>
            {
                None
            }
            Event::Closed(error @ (E::PeerMisbehaved { .. } | E::Tls { .. } | E::Internal(_))) => {
                Some(error.to_string())
            }
            _ => None,
        };
        match fault {
            Some(what) => Err(Violation::new(Invariant::Close, self.world.now(), what)),
            None => Ok(()),
        }
    }

    fn connections(&self) -> usize {
        let hosts = self.hosts.iter();
        hosts
            .map(|h| self.world.endpoint(*h).stats().connections)
            .sum()
    }

    fn phase_timeout(&self) -> Option<Time> {
        let heal = (!self.healed).then_some(self.heal_at);
        let own = match self.phase {
            Phase::Faults => None,
            Phase::Healed { deadline } | Phase::Closing { deadline } => Some(deadline),
            Phase::Settling { deadline, quiet } => {
                Some(quiet.unwrap_or_else(|| deadline + self.frozen_wait()))
            }
            Phase::Silent { until, .. } => Some(until),
        };
        heal.into_iter().chain(own).min()
    }

    fn all_done(&self) -> bool {
        self.conversations
            .iter()
            .all(|c| c.is_complete() || c.has_ended())
    }

    /// As [`Self::all_done`], but what a liar withheld from itself is not waited for.
    fn honest_done(&self) -> bool {
        self.conversations
            .iter()
            .all(|c| c.is_complete() || c.has_ended() || c.has_liar())
    }

    /// Returns whether the phase changed.
    fn change_phase(&mut self) -> Result<bool, Violation> {
        let now = self.world.now();
        if !self.healed && now >= self.heal_at {
            self.heal()?;
        }
        let next = match self.phase {
            Phase::Faults if self.all_done() => {
                if self.plan.features.has(Feature::LateClose) {
                    self.close()?
                } else {
                    self.heal()?;
                    self.settling()?
                }
            }
            Phase::Faults if self.healed => Phase::Healed {
                deadline: now + self.patience(),
            },
            Phase::Healed { .. } if self.all_done() => self.settling()?,
            Phase::Healed { deadline } if now >= deadline && self.honest_done() => self.close()?,
            Phase::Healed { deadline } if now >= deadline => {
                return Err(self.stuck("unfinished long after the faults stopped"));
            }
            Phase::Settling { deadline, quiet } => match self.settling_step(deadline, quiet)? {
                Some(phase) => phase,
                None => return Ok(false),
            },
            Phase::Silent { until, sent } if now >= until => {
                self.check_silence(sent)?;
                self.check_credit()?;
                self.close()?
            }
            Phase::Closing { deadline } if now >= deadline => {
                let what = format!("{} connections do not end", self.connections());
                return Err(Violation::new(Invariant::Close, now, what));
            }
            _ => return Ok(false),
        };
        self.phase = next;
        Ok(true)
    }

    fn heal(&mut self) -> Result<(), Violation> {
        if self.healed {
            return Ok(());
        }
        self.healed = true;
        self.world.heal()
    }

    fn settling(&mut self) -> Result<Phase, Violation> {
        let acks = self.plan.adversary.and_then(|(_, acks)| acks.stretch);
        if acks.is_some() {
            // What is not acknowledged is probed for, and the wire is never quiet.
            return self.close();
        }
        Ok(Phase::Settling {
            deadline: self.world.now() + self.patience() - self.frozen_wait(),
            quiet: None,
        })
    }

    /// Silence begins one second after nothing is in flight, on the wire or in the books.
    fn settling_step(
        &mut self,
        deadline: Time,
        quiet: Option<Time>,
    ) -> Result<Option<Phase>, Violation> {
        let now = self.world.now();
        // Who went on only now measures how long it stood still as it reads.
        let late = now >= deadline + self.frozen_wait();
        let in_flight = |c: &Connection| !c.is_closed() && c.stats().bytes_in_flight > 0;
        let busy = self.ends().any(in_flight);
        let keep_alive = self
            .plan
            .transports
            .iter()
            .any(|t| t.keep_alive_interval.is_some());
        // With keep-alives there may be a PING in flight at all times.
        // A client whose address changed before it heard from the server may have begun twice there.
        let begun = self
            .hosts
            .iter()
            .any(|h| self.world.endpoint(*h).stats().handshakes > 0);
        let quiet_now = !begun && (keep_alive || (!busy && self.world.is_network_empty()));
        Ok(match (quiet, quiet_now) {
            (Some(at), _) if now >= at => Some(Phase::Silent {
                until: now + SILENCE,
                sent: self.world.datagrams_sent(),
            }),
            (Some(_), true) => None,
            (Some(_), false) => Some(Phase::Settling {
                deadline,
                quiet: None,
            }),
            (None, true) => Some(Phase::Settling {
                deadline,
                quiet: Some(now + Duration::from_secs(if keep_alive { 20 } else { 1 })),
            }),
            (None, false) if late && self.conversations[0].has_liar() => Some(self.close()?),
            (None, false) if late => {
                return Err(self.stuck("bytes stay in flight"));
            }
            (None, false) => None,
        })
    }

    fn ends(&self) -> impl Iterator<Item = &Connection> {
        self.conversations.iter().flat_map(|c| {
            [Side::Client, Side::Server]
                .into_iter()
                .filter_map(|side| c.end(side).connection(&self.world))
        })
    }

    /// I9: what may be sent in the silence is keep-alives and their acknowledgements.
    fn check_silence(&self, sent_before: u64) -> Result<(), Violation> {
        let sent = self.world.datagrams_sent() - sent_before;
        let each: u64 = self
            .plan
            .transports
            .iter()
            .filter_map(|t| t.keep_alive_interval)
            .map(|interval| 2 * (SILENCE.as_nanos() / interval.as_nanos() + 2) as u64)
            .sum();
        // Where one end is gone, the other probes until it notices.
        let ended = self.conversations.iter().filter(|c| c.has_ended()).count() as u64;
        // A path that a client left is asked once more whether it is still there.
        let asked = if self.plan.moves.is_empty() { 0 } else { 20 };
        let most = each * self.conversations.len() as u64 + 40 * ended + asked;
        if sent > most {
            let what =
                format!("{sent} datagrams in {SILENCE:?} of idleness, at most {most} expected");
            return Err(Violation::new(Invariant::Silence, self.world.now(), what));
        }
        Ok(())
    }

    fn check_credit(&mut self) -> Result<(), Violation> {
        let now = self.world.now();
        for conversation in &self.conversations {
            if conversation.has_ended() || conversation.has_liar() {
                continue;
            }
            let client = self.world.address(conversation.client_host());
            for side in [Side::Client, Side::Server] {
                self.world
                    .watch_mut()
                    .check_credit_restored(now, client, side)?;
            }
        }
        Ok(())
    }

    fn close(&mut self) -> Result<Phase, Violation> {
        let first = &self.conversations[0];
        let ends = [Side::Client, Side::Server].map(|side| first.end(side));
        self.mtus = ends.map(|end| end.connection(&self.world).map_or(0, |c| c.stats().mtu));
        for conversation in &mut self.conversations {
            conversation.close(&mut self.world)?;
        }
        let idle = self
            .plan
            .transports
            .iter()
            .map(|t| t.max_idle_timeout)
            .max();
        let handshake = self
            .plan
            .transports
            .iter()
            .map(|t| t.handshake_timeout)
            .max();
        let most = idle.max(handshake).unwrap_or_default();
        let start = self.world.now().max(self.heal_at);
        // Three PTOs of a minute's round trip, which a host that stood still may yet give its peer.
        let stopped = match self.plan.freezes.is_empty() {
            true => Duration::ZERO,
            false => Duration::from_secs(600),
        };
        Ok(Phase::Closing {
            deadline: start + self.patience() + 2 * most + stopped,
        })
    }

    /// How long after the heal everything must be done: probe timeouts backed off during the
    /// faults, a window a round trip, streams a few at a time, readers that pause.
    fn patience(&self) -> Duration {
        let so_far = self.world.now().saturating_duration_since(START);
        let delays = self.plan.links.iter().flatten().map(|l| l.delay + l.jitter);
        let acks = self.plan.adversary.and_then(|(_, acks)| acks.stretch);
        let round_trip = 2 * delays.max().unwrap_or_default()
            + Duration::from_millis(60)
            + acks.unwrap_or_default();
        let window = smallest_window(&self.plan.transports);
        let streams = self.conversations.iter().map(|c| c.plan().stream_count());
        let streams = streams.max().unwrap_or(0) as u32;
        let windows = u32::try_from(self.plan.total_bytes() / window.max(1)).unwrap_or(u32::MAX);
        let rounds = 100 + 4 * windows + 6 * streams;
        Duration::from_secs(60) + 2 * so_far + self.frozen_wait() + round_trip * rounds
    }

    /// Who waited for a host that stood still may have taken that for the path's round trip.
    fn frozen_wait(&self) -> Duration {
        let waits = self.ends().filter(|_| !self.plan.freezes.is_empty());
        waits.map(|c| 6 * c.stats().pto).max().unwrap_or_default()
    }

    fn stuck(&self, what: &str) -> Violation {
        let undone: Vec<String> = self
            .conversations
            .iter()
            .filter(|c| !c.is_complete())
            .map(|c| c.undone(&self.world))
            .collect();
        let what = format!("{what} in {:?}: {}", self.phase, undone.join(" | "));
        Violation::new(Invariant::Liveness, self.world.now(), what)
    }
}
