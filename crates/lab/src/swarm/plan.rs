//! Draws one run from its seed: links, transport settings, workload.
//!
//! Everything has its own stream of dice, so a feature turned off leaves the rest as it was.
//! Sizes and times are log-uniform: most runs are small, a few are not.

use std::fmt;
use std::time::Duration;

use towline_quic::{Algorithm, TransportConfig};
use towline_sim::{Aqm, EcnRewrite, LinkConfig, LossModel, NatConfig, Remap};
use towline_wire::{Direction, Side, Time};

use super::features::{Feature, Features};
use crate::random::Random;
use crate::workload::{ClosePlan, ConversationPlan, DatagramPlan, EndPlan, HalfPlan, StreamPlan};
use crate::world::{AckPlan, Freeze, START, Split};

/// One run of the swarm.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The seed it was drawn from.
    pub seed: u64,
    /// What is on.
    pub features: Features,
    /// By client: the links to and from the server.
    pub links: Vec<[LinkConfig; 2]>,
    /// By client: the NAT it is behind, if any.
    pub nats: Vec<Option<NatConfig>>,
    /// When the first client goes to another address of its own, by time: to its place of this
    /// number; 0 is where it began.
    pub moves: Vec<(Duration, u8)>,
    /// Settings of the clients and of the server.
    pub transports: [TransportConfig; 2],
    /// By client: what happens on its connection.
    pub conversations: Vec<ConversationPlan>,
    /// How one end of the first conversation acknowledges, if not as it should.
    pub adversary: Option<(Side, AckPlan)>,
    /// Who stops, and when.
    pub freezes: Vec<FreezePlan>,
    /// When the faults stop.
    pub heal_after: Duration,
}

/// The freezes of one host.
#[derive(Clone, Debug)]
pub struct FreezePlan {
    /// The number of the client; `None`: the server.
    pub client: Option<usize>,
    /// When, by start.
    pub freezes: Vec<Freeze>,
    /// Bytes that its socket holds meanwhile.
    pub socket: usize,
}

/// Streams of dice, besides one for each feature.
const CONFIG: u64 = 2000;
const WORKLOAD: u64 = 3000;
const LINKS: u64 = 4000;
const ADVERSARY: u64 = 5000;

/// Bytes of one connection: seven in ten move a little.
const LITTLE: (u64, u64) = (0, 100_000);
const MUCH: (u64, u64) = (100_000, 2_000_000);

/// Every controller there is.
const ALGORITHMS: [Algorithm; 4] = [
    Algorithm::NewReno,
    Algorithm::Cubic,
    Algorithm::Bbr,
    Algorithm::LedbatPlusPlus,
];

/// Pauses of a slow reader, all together; shorter than any idle timeout.
const LONGEST_PAUSE: f64 = 2.0;

/// Streams of one run.
const MOST_STREAMS: u64 = 300;

impl Plan {
    /// The plan of `seed`, with those of its features that are in `only`.
    pub fn draw(seed: u64, only: Features) -> Self {
        let features = Features::draw(seed).and(only);
        let clients = if features.has(Feature::ManyClients) {
            dice(seed, Feature::ManyClients).between(2, 3)
        } else {
            1
        };
        let mut config = Random::new(seed, CONFIG);
        let heal_after = config.log_duration(0.2, 60.0);
        let client = transport(&mut config, features, seed, Side::Client);
        let server = transport(&mut config, features, seed, Side::Server);
        let links = (0..clients)
            .map(|n| links(seed, n, features, heal_after))
            .collect();
        let transports = [client, server];
        let adversary = adversary(seed, features);
        let conversations = (0..clients)
            .map(|n| {
                let liar = adversary.filter(|_| n == 0).map(|(side, _)| side);
                conversation(seed, n, features, &transports, liar)
            })
            .collect();
        let freezes = freezes(seed, clients, features, heal_after);
        let thawed = freezes.iter().flat_map(|f| &f.freezes);
        let thawed = thawed.map(|f| f.start + f.lasts).max();
        Self {
            seed,
            features,
            links,
            nats: (0..clients)
                .map(|n| nat(seed, n, features, heal_after))
                .collect(),
            moves: moves(seed, features, heal_after),
            transports,
            conversations,
            adversary,
            freezes,
            heal_after: heal_after.max(thawed.unwrap_or_default()),
        }
    }

    /// The same with an honest receiver in the place of the adversary.
    #[must_use]
    pub fn honest(&self) -> Self {
        Self {
            adversary: None,
            ..self.clone()
        }
    }

    /// Stream bytes of all connections.
    pub fn total_bytes(&self) -> u64 {
        self.conversations
            .iter()
            .map(ConversationPlan::total_bytes)
            .sum()
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "seed {} features {}", self.seed, self.features)?;
        writeln!(
            f,
            "  faults for {:?}, {} bytes",
            self.heal_after,
            self.total_bytes()
        )?;
        for (there, back) in self.links.iter().map(|[a, b]| (a, b)) {
            writeln!(f, "  to server {there:?}\n  to client {back:?}")?;
        }
        for nat in self.nats.iter().flatten() {
            writeln!(f, "  NAT {nat}")?;
        }
        if !self.moves.is_empty() {
            writeln!(f, "  moves {:?}", self.moves)?;
        }
        let [client, server] = &self.transports;
        writeln!(f, "  client {client:?}\n  server {server:?}")?;
        for conversation in &self.conversations {
            writeln!(f, "  {conversation:?}")?;
        }
        if let Some((side, acks)) = &self.adversary {
            writeln!(f, "  {side:?} acknowledges by {acks:?}")?;
        }
        for freezes in &self.freezes {
            writeln!(f, "  {freezes:?}")?;
        }
        Ok(())
    }
}

/// What says whether a path's size is looked for.
const SEARCH: u64 = 0x6d74_7500;

fn dice(seed: u64, feature: Feature) -> Random {
    Random::new(seed, feature as u64)
}

fn transport(r: &mut Random, features: Features, seed: u64, side: Side) -> TransportConfig {
    let mut t = TransportConfig::default()
        .max_idle_timeout(r.log_duration(4.0, 120.0))
        .handshake_timeout(Duration::from_secs(r.pick(&[10, 30, 60])))
        .congestion(r.pick(&ALGORITHMS))
        .initial_mtu(if r.chance(0.5) {
            1200
        } else {
            r.between(1200, 9000) as u16
        })
        .mtu_search(Random::new(seed, SEARCH).chance(0.5))
        .initial_rtt(Duration::from_millis(r.pick(&[50, 100, 333])))
        .hystart(r.chance(0.7))
        .pacing(r.chance(0.7))
        .stream_send_buffer(r.log_whole(2_000, 512 << 10));
    if r.chance(0.5) {
        t.send_buffer = r.log_whole(1_000, 100_000);
    }
    let keep_alive = r.log_duration(0.2, 20.0);
    t.keep_alive_interval = r.chance(0.25).then_some(keep_alive);
    // One idle timeout is enough, and a client that is gone must not be waited for forever.
    if r.chance(0.1) && side.is_server() {
        t.max_idle_timeout = Duration::ZERO;
    }
    if features.has(Feature::PathMtu) {
        // The least that every path carries, and as much as there may be to find.
        let mut d = dice(seed, Feature::PathMtu);
        for _ in 0..100 * side as usize {
            d.bits();
        }
        t.initial_mtu = 1200;
        t.mtu_search = true;
        t.max_mtu = d.pick(&[None, Some(9000), Some(65_507)]);
    }
    if features.has(Feature::TinyWindows) {
        let mut d = dice(seed, Feature::TinyWindows);
        t.stream_receive_window = d.log_whole(500, 20_000);
        t.max_stream_receive_window = t.stream_receive_window * d.between(1, 4);
        t.receive_window = d.log_whole(500, 40_000);
        t.max_receive_window = t.receive_window * d.between(1, 4);
    }
    if features.has(Feature::FewStreams) {
        let mut d = dice(seed, Feature::FewStreams);
        t.max_concurrent_bidi_streams = d.between(1, 3);
        t.max_concurrent_uni_streams = d.between(1, 3);
    }
    if features.has(Feature::KeyUpdates) {
        t.key_update_interval = dice(seed, Feature::KeyUpdates).log_whole(5, 500);
    }
    if features.has(Feature::Datagrams) {
        let mut d = dice(seed, Feature::Datagrams);
        t.datagram_send_buffer = d.log_whole(2_000, 1 << 20) as usize;
        t.datagram_receive_buffer = d.log_whole(2_000, 1 << 20) as usize;
        if d.chance(0.3) {
            t.max_datagram_frame_size = Some(d.between(1, 1500) as u16);
        }
        if d.chance(0.1) {
            t.max_datagram_frame_size = None;
        }
    }
    if features.has(Feature::SparseAcks) {
        let mut d = Random::new(seed, 100 + 10 * Feature::SparseAcks as u64 + side as u64);
        if d.chance(0.7) {
            t.packets_per_ack = d.log_whole(1, 64) as u32;
            t.max_ack_delay = d.log_duration(0.001, 2.0);
        }
    }
    t
}

/// Lengths of the connection IDs of client and server.
pub(super) fn cid_lens(seed: u64, features: Features) -> [usize; 2] {
    if !features.has(Feature::CidLengths) {
        return [8; 2];
    }
    let mut d = dice(seed, Feature::CidLengths);
    [d.pick(&[0, 0, 4, 5, 20]), d.pick(&[4, 4, 8, 20])]
}

fn links(seed: u64, n: u64, features: Features, heal_after: Duration) -> [LinkConfig; 2] {
    let mut base = Random::new(seed, LINKS + n);
    let delay = base.log_duration(0.0001, 0.3);
    [0, 1].map(|direction| {
        let mut link = LinkConfig {
            delay,
            ..LinkConfig::default()
        };
        // The two directions of a fault differ, but come from its own dice.
        let roll = |feature| {
            let mut d = dice(seed, feature);
            for _ in 0..(2 * n + direction) * 16 {
                d.bits();
            }
            features.has(feature).then_some(d)
        };
        if let Some(mut d) = roll(Feature::Asymmetric)
            && direction == 1
        {
            link.delay = d.log_duration(0.0001, 0.5);
        }
        if let Some(mut d) = roll(Feature::Loss) {
            link.loss = LossModel::Bernoulli(d.log_uniform(0.001, 0.3));
        }
        if let Some(mut d) = roll(Feature::BurstLoss) {
            link.loss = LossModel::GilbertElliott {
                enter_bad: d.log_uniform(0.001, 0.1),
                leave_bad: d.log_uniform(0.05, 0.9),
                loss_good: 0.0,
                loss_bad: d.log_uniform(0.3, 1.0),
            };
        }
        if let Some(mut d) = roll(Feature::Reorder) {
            link.reorder = d.log_uniform(0.001, 0.5);
            link.reorder_delay = d.log_duration(0.0005, 0.2);
        }
        if let Some(mut d) = roll(Feature::Duplicate) {
            link.duplicate = d.log_uniform(0.001, 0.5);
        }
        if let Some(mut d) = roll(Feature::Corrupt) {
            link.corrupt = d.log_uniform(0.001, 0.2);
        }
        if let Some(mut d) = roll(Feature::Blackout) {
            for _ in 0..d.between(1, 3) {
                let start = START + d.duration_up_to(heal_after);
                link = link.with_blackout(start, d.log_duration(0.01, 12.0));
            }
        }
        if let Some(mut d) = roll(Feature::Rate) {
            link.rate = Some(d.log_whole(100_000, 1_000_000_000));
            link.overhead = 28;
        }
        if let Some(mut d) = roll(Feature::SmallQueue) {
            link.rate = link.rate.or(Some(d.log_whole(500_000, 50_000_000)));
            link.queue = Some(d.log_whole(10_000, 60_000));
        }
        if let Some(mut d) = roll(Feature::EcnMarks) {
            link.rate = link.rate.or(Some(d.log_whole(500_000, 50_000_000)));
            let wait = d.log_duration(0.001, 0.1);
            let size = d.log_whole(3_000, 30_000);
            link.ecn = true;
            link.aqm = d.pick(&[
                Aqm::CODEL,
                Aqm::Step(wait),
                Aqm::Red {
                    min: size,
                    max: 3 * size,
                    max_probability: 0.1,
                    weight: 0.02,
                },
            ]);
        }
        if let Some(mut d) = roll(Feature::Jitter) {
            link.jitter = d.log_duration(0.0001, 0.3);
            link.keep_order = d.chance(0.5);
        }
        path_mtu(&mut link, heal_after, roll);
        if let Some(mut d) = roll(Feature::EcnRewrite)
            && d.chance(0.7)
        {
            link.ecn_rewrite = Some(d.pick(&[
                EcnRewrite::Bleach,
                EcnRewrite::Ect0,
                EcnRewrite::Ect1,
                EcnRewrite::Ce,
            ]));
        }
        link
    })
}

/// How large packets may be on a link, and when that changes.
fn path_mtu(link: &mut LinkConfig, heal_after: Duration, roll: impl Fn(Feature) -> Option<Random>) {
    let Some(mut d) = roll(Feature::PathMtu) else {
        return;
    };
    let size = |d: &mut Random| match d.chance(0.5) {
        true => d.pick(&[1200, 1280, 1400, 1452, 1472, 8900, 65_507]),
        false => d.between(1200, 9000) as usize,
    };
    // Some of the dice are those of the transports.
    for _ in 0..200 {
        d.bits();
    }
    link.mtu = Some(size(&mut d));
    link.icmp = roll(Feature::TooBig).is_some();
    if let Some(mut d) = roll(Feature::MtuSteps) {
        let times = (0..d.between(1, 4)).map(|_| {
            let after = match d.chance(0.7) {
                true => d.log_duration(0.01, 3.0),
                false => d.duration_up_to(heal_after),
            };
            START + after
        });
        let mut times: Vec<Time> = times.collect();
        times.sort();
        times.dedup();
        link.mtu_steps = times.into_iter().map(|at| (at, size(&mut d))).collect();
    }
}

/// Where a client goes, most often early and back again.
fn moves(seed: u64, features: Features, heal_after: Duration) -> Vec<(Duration, u8)> {
    if !features.has(Feature::Moves) {
        return Vec::new();
    }
    let mut d = dice(seed, Feature::Moves);
    let mut times: Vec<Duration> = (0..d.between(1, 4))
        .map(|_| match d.chance(0.7) {
            true => d.log_duration(0.001, 3.0),
            false => d.duration_up_to(heal_after),
        })
        .collect();
    times.sort();
    times.dedup();
    times.into_iter().map(|at| (at, d.below(3) as u8)).collect()
}

/// The NAT of a client: rebindings while the faults last, most of them early, or short patience.
fn nat(seed: u64, n: u64, features: Features, heal_after: Duration) -> Option<NatConfig> {
    if !features.has(Feature::Nat) {
        return None;
    }
    let mut d = Random::new(seed, 100 + 10 * Feature::Nat as u64 + n);
    let mut nat = NatConfig {
        change: d.pick(&[Remap::Port, Remap::Port, Remap::Address, Remap::Same]),
        ..NatConfig::default()
    };
    let times = (0..d.between(1, 5)).map(|_| {
        let after = match d.chance(0.7) {
            true => d.log_duration(0.001, 3.0),
            false => d.duration_up_to(heal_after),
        };
        START + after
    });
    nat.rebind_at = times.collect();
    nat.rebind_at.sort();
    nat.rebind_at.dedup();
    let (every, idle) = (d.log_duration(0.2, 20.0), d.log_duration(0.5, 30.0));
    nat.every = d.chance(0.2).then_some(every);
    nat.idle = d.chance(0.3).then_some(idle);
    Some(nat)
}

/// Seldom enough for a victim to be slow, often enough for it to finish.
const STRETCH: (f64, f64) = (0.01, 0.8);

/// What the adversary's end is sent besides the workload, so that there is something to gain.
const BULK: (u64, u64) = (200_000, 4_000_000);

fn adversary(seed: u64, features: Features) -> Option<(Side, AckPlan)> {
    if !features.has(Feature::Plaintext) {
        return None;
    }
    let roll = |feature| features.has(feature).then(|| dice(seed, feature));
    let plan = AckPlan {
        hide: roll(Feature::HideLosses).map(|mut d| d.log_duration(0.01, 3.0)),
        late: roll(Feature::ClaimLate).map(|mut d| d.log_duration(0.1, 10.0)),
        knowing: Random::new(seed, ADVERSARY + 2).chance(0.3),
        split: roll(Feature::SplitAcks).map(|mut d| Split {
            by_packet: d.chance(0.5),
            // Of acknowledgements held back, every one would be a sample as old as that.
            ascending: d.chance(0.3) && !features.has(Feature::StretchAcks),
        }),
        stretch: roll(Feature::StretchAcks).map(|mut d| d.log_duration(STRETCH.0, STRETCH.1)),
    };
    let side = Random::new(seed, ADVERSARY).pick(&[Side::Client, Side::Server]);
    let any = features.and(Features::ADVERSARIES) != Features::NONE;
    any.then_some((side, plan))
}

fn bulk(seed: u64, transports: &[TransportConfig; 2]) -> StreamPlan {
    let size = Random::new(seed, ADVERSARY + 1).log_whole(BULK.0, BULK.1);
    StreamPlan {
        direction: Direction::Unidirectional,
        start: Duration::ZERO,
        forward: HalfPlan {
            size: size.min(smallest_window(transports) * 60),
            ..HalfPlan::default()
        },
        back: HalfPlan::default(),
    }
}

/// The longest a host stands still.
const LONGEST_FREEZE: Duration = Duration::from_secs(60);

fn freezes(seed: u64, clients: u64, features: Features, faults: Duration) -> Vec<FreezePlan> {
    if !features.has(Feature::Freeze) {
        return Vec::new();
    }
    let mut d = dice(seed, Feature::Freeze);
    let mut plans: Vec<FreezePlan> = (0..=clients)
        .map(|n| {
            let mut freezes: Vec<Freeze> = (0..d.between(1, 3))
                .map(|_| Freeze {
                    // Most workloads are over in a second.
                    start: d.log_duration(0.001, 1.0 + faults.as_secs_f64()),
                    lasts: if d.chance(0.5) {
                        d.duration_up_to(LONGEST_FREEZE)
                    } else {
                        d.log_duration(0.001, 2.0)
                    },
                })
                .collect();
            freezes.sort_by_key(|f| f.start);
            FreezePlan {
                client: (n < clients).then_some(n as usize),
                freezes,
                socket: d.log_whole(4_000, 400_000) as usize,
            }
        })
        .collect();
    // Most often one host stops and the others wait for it.
    if d.chance(0.8) {
        let one = d.below(plans.len() as u64) as usize;
        plans = vec![plans.swap_remove(one)];
    }
    plans
}

/// A budget of bytes and streams, spent by drawing.
struct Budget {
    bytes: u64,
    streams: u64,
}

fn conversation(
    seed: u64,
    n: u64,
    features: Features,
    transports: &[TransportConfig; 2],
    adversary: Option<Side>,
) -> ConversationPlan {
    let mut r = Random::new(seed, WORKLOAD + 10 * n);
    let (least, most) = if r.chance(0.3) { MUCH } else { LITTLE };
    let mut budget = Budget {
        bytes: r.log_whole(least, most),
        streams: r.log_whole(1, MOST_STREAMS),
    };
    // A window a round trip: large transfers would take all night.
    budget.bytes = budget.bytes.min(smallest_window(transports) * 60);
    let mut resets = features
        .has(Feature::ResetsAndStops)
        .then(|| Random::new(seed, WORKLOAD + 10 * n + 1));
    let client = end(&mut r, &mut budget, resets.as_mut());
    let server = end(&mut r, &mut budget, resets.as_mut());
    let mut plan = ConversationPlan {
        client,
        server,
        close: ClosePlan {
            side: r.pick(&[Side::Client, Side::Server]),
            after: None,
            code: r.log_whole(0, towline_wire::MAX_VARINT - 2),
            reason: vec![b'r'; r.log_whole(0, 600) as usize],
        },
    };
    let victim = match adversary {
        None => None,
        Some(Side::Client) => Some(&mut plan.server),
        Some(Side::Server) => Some(&mut plan.client),
    };
    if let Some(victim) = victim {
        victim.streams.insert(0, bulk(seed, transports));
    }
    extras(&mut plan, seed, n, features);
    plan
}

/// Bytes that any of these settings lets pass in a round trip.
pub(super) fn smallest_window(transports: &[TransportConfig; 2]) -> u64 {
    let of = |t: &TransportConfig| {
        let receiver = t.receive_window.min(t.stream_receive_window);
        receiver.min(t.send_buffer).min(t.stream_send_buffer)
    };
    of(&transports[0]).min(of(&transports[1]))
}

/// What the workload features add.
fn extras(plan: &mut ConversationPlan, seed: u64, n: u64, features: Features) {
    let stream = |feature: Feature| Random::new(seed, 100 + 10 * feature as u64 + n);
    if features.has(Feature::AbruptClose) {
        plan.close.after = Some(stream(Feature::AbruptClose).log_duration(0.0001, 5.0));
    }
    if features.has(Feature::Datagrams) {
        let mut d = stream(Feature::Datagrams);
        for end in [&mut plan.client, &mut plan.server] {
            if d.chance(0.7) {
                end.datagrams = Some(DatagramPlan {
                    count: d.log_whole(1, 1000) as u32,
                    size: d.log_whole(4, 1500) as usize,
                    interval: d.log_duration(0.00001, 0.02),
                });
            }
        }
    }
    plan.client.flows = features.has(Feature::Flows);
    plan.server.flows = plan.client.flows;
    if features.has(Feature::KeyUpdates) {
        let mut d = stream(Feature::KeyUpdates);
        for end in [&mut plan.client, &mut plan.server] {
            end.key_updates = (0..d.log_whole(0, 6))
                .map(|_| d.log_duration(0.001, 5.0))
                .collect();
            end.key_updates.sort();
        }
    }
    if features.has(Feature::Switches) {
        let mut d = stream(Feature::Switches);
        for end in [&mut plan.client, &mut plan.server] {
            end.switches = (0..d.log_whole(0, 10))
                .map(|_| (d.log_duration(0.001, 10.0), d.pick(&ALGORITHMS)))
                .collect();
            end.switches.sort_by_key(|(at, _)| *at);
        }
    }
    if features.has(Feature::SlowReader) {
        let mut d = stream(Feature::SlowReader);
        let bytes = plan.total_bytes();
        for end in [&mut plan.client, &mut plan.server] {
            if d.chance(0.6) {
                let pauses = d.between(1, 40);
                let longest = LONGEST_PAUSE / pauses as f64;
                let amount = bytes / pauses + 1;
                end.pace = Some((amount, d.log_duration(0.001, longest)));
            }
        }
    }
}

fn end(r: &mut Random, budget: &mut Budget, mut resets: Option<&mut Random>) -> EndPlan {
    let count = r.below(budget.streams + 1);
    budget.streams -= count;
    let mut streams: Vec<StreamPlan> = (0..count)
        .map(|_| {
            let direction = r.pick(&Direction::ALL);
            // Most begin at once, so that they compete.
            let late = r.chance(0.3);
            let start = r.log_duration(0.0001, 1.0);
            let forward = half(r, budget, resets.as_deref_mut());
            let back = half(r, budget, resets.as_deref_mut());
            StreamPlan {
                direction,
                start: if late { start } else { Duration::ZERO },
                forward,
                back: match direction {
                    Direction::Bidirectional => back,
                    Direction::Unidirectional => HalfPlan::default(),
                },
            }
        })
        .collect();
    streams.sort_by_key(|s| s.start);
    EndPlan {
        streams,
        chunk: r.log_whole(100, 65_000) as usize,
        ..EndPlan::default()
    }
}

fn half(r: &mut Random, budget: &mut Budget, resets: Option<&mut Random>) -> HalfPlan {
    let size = r.log_whole(0, budget.bytes);
    budget.bytes -= size;
    let mut half = HalfPlan {
        size,
        ..HalfPlan::default()
    };
    if let Some(d) = resets {
        let place = d.below(size + 1);
        if d.chance(0.2) {
            half.reset_at = Some(if d.chance(0.3) { size } else { place });
        }
        let place = d.below(size + 1);
        if d.chance(0.2) {
            half.stop_at = Some(place);
        }
    }
    half
}
