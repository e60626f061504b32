//! Plays a scenario: one virtual clock, the network, and each flow's two ends.
//!
//! At each moment: 1. the links change as planned; 2. samples are taken; 3. what arrived is
//! delivered; 4. timers and applications act. Whoever was touched sends at once.

use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::num::NonZeroU64;
use std::ops::ControlFlow;
use std::time::Duration;

use towline_quic::{BandwidthShare, HostController, Pool};
use towline_sim::{LinkConfig, LinkId, Network, RouteError, Train, Watch, World};
use towline_testkit::{TlsOptions, tls_pair};
use towline_wire::Time;

use super::capacity::Capacity;
use super::error::RunError;
use super::flow::Party;
use super::{BottleneckSample, Change, Flow, MAX_FLOWS, Outcome, START, Scenario};
use crate::host::Host;

/// Plays `scenario` to its end.
///
/// # Errors
/// When it is impossible; nothing was played.
pub fn run(scenario: &Scenario) -> Result<Outcome, RunError> {
    run_with(scenario, |_| ControlFlow::Continue(()))
}

/// The same, telling `progress` the virtual time that has passed, from sample to sample. When it
/// breaks off, the outcome holds what was seen until then.
///
/// # Errors
/// When the scenario is impossible; nothing was played.
pub fn run_with(
    scenario: &Scenario,
    progress: impl FnMut(Duration) -> ControlFlow<()>,
) -> Result<Outcome, RunError> {
    let mut play = Play::new(scenario)?;
    play.go(progress);
    Ok(play.outcome())
}

struct Play {
    world: World<Host, Network>,
    forward: LinkId,
    back: LinkId,
    parties: Vec<Party>,
    pool: Option<Pool>,
    changes: VecDeque<Change>,
    end: Time,
    sample_every: Duration,
    next_sample: Time,
    next_bottleneck_sample: Time,
    bottleneck: Vec<BottleneckSample>,
    /// Of a forward link whose rate follows a schedule.
    capacity: Option<Capacity>,
    /// Datagrams that left the bottleneck by the last sample, and their waits together.
    waited: (u64, Duration),
}

/// Raw traffic: what arrives where there is no endpoint.
struct Raw<'a>(&'a mut [Party]);

impl Watch<Host, Network> for Raw<'_> {
    fn on_stray(&mut self, now: Time, train: Train, network: &mut Network) {
        if let Some(party) = self.0.get_mut(flow_of(train.datagram.destination)) {
            party.deliver_raw(now, train.datagram, network);
        }
    }
}

fn capacity(link: &LinkConfig) -> Option<Capacity> {
    link.schedule.as_ref().map(Capacity::new)
}

/// The two addresses of flow number `index`: who sends, who receives.
fn addresses(index: usize) -> [SocketAddr; 2] {
    [1, 2].map(|end| {
        let ip = Ipv4Addr::new(10, (index >> 8) as u8, index as u8, end);
        SocketAddr::new(IpAddr::V4(ip), 4433)
    })
}

/// The flow an address belongs to.
fn flow_of(address: SocketAddr) -> usize {
    match address.ip() {
        IpAddr::V4(ip) => {
            let [_, high, low, _] = ip.octets();
            usize::from(high) << 8 | usize::from(low)
        }
        IpAddr::V6(_) => usize::MAX,
    }
}

impl Play {
    fn new(scenario: &Scenario) -> Result<Self, RunError> {
        if scenario.flows.is_empty() || scenario.flows.len() > MAX_FLOWS {
            return Err(RunError::Flows(scenario.flows.len()));
        }
        for change in &scenario.changes {
            for link in change.forward.iter().chain(&change.back) {
                link.validate()?;
            }
        }
        let mut network = Network::new(scenario.seed);
        let forward = network.add_link("forward", scenario.forward.clone())?;
        let back = network.add_link("back", scenario.back.clone())?;
        let options = TlsOptions {
            post_quantum: scenario.post_quantum,
            ..TlsOptions::default()
        };
        let tls = tls_pair(scenario.seed, &options);
        let (mut parties, mut hosts) = (Vec::new(), Vec::new());
        let commons = Commons::new(scenario);
        for (index, flow) in scenario.flows.iter().enumerate() {
            let addresses = addresses(index);
            lay(&mut network, flow, addresses, [forward, back])?;
            let flow = commons.enrol(flow);
            let party = Party::new(scenario.seed, index, flow, addresses, &tls, &mut hosts)?;
            parties.push(party);
        }
        let mut changes: Vec<Change> = scenario.changes.clone();
        changes.sort_by_key(|change| change.at);
        let mut world = World::new(hosts, network);
        world.now = START;
        Ok(Self {
            world,
            forward,
            back,
            parties,
            pool: commons.pool,
            changes: changes.into(),
            end: START + scenario.duration,
            sample_every: scenario.sample_every.max(Duration::from_millis(1)),
            next_sample: START,
            next_bottleneck_sample: START,
            bottleneck: Vec::new(),
            capacity: capacity(&scenario.forward),
            waited: (0, Duration::ZERO),
        })
    }

    fn go(&mut self, mut progress: impl FnMut(Duration) -> ControlFlow<()>) {
        while let Some(next) = self.next_event()
            && next <= self.end
            && !self.parties.iter().all(Party::is_over)
        {
            self.world.now = self.world.now.max(next);
            self.change_links();
            if self.sample() && progress(self.passed()).is_break() {
                return;
            }
            while let Some(at) = self.world.deliver_next(&mut Raw(&mut self.parties)) {
                let flow = flow_of(self.world.hosts[at].address);
                self.parties[flow].settle(&mut self.world);
            }
            for party in &mut self.parties {
                if party.wake().is_some_and(|at| at <= self.world.now) {
                    party.act(&mut self.world);
                }
            }
        }
    }

    fn passed(&self) -> Duration {
        self.world.now.saturating_duration_since(START)
    }

    fn next_event(&self) -> Option<Time> {
        let change = self.changes.front().map(|change| START + change.at);
        let parties = self.parties.iter().filter_map(Party::wake);
        parties
            .chain(self.world.net.next_timeout())
            .chain(change)
            .chain([self.next_sample, self.next_bottleneck_sample])
            .min()
    }

    fn change_links(&mut self) {
        while let Some(change) = self.changes.front()
            && START + change.at <= self.world.now
        {
            let Some(change) = self.changes.pop_front() else {
                return;
            };
            self.reconfigure(self.forward, change.forward);
            self.reconfigure(self.back, change.back);
            if let (Some(pool), Some(total)) = (&self.pool, change.pool) {
                pool.set_total(bytes(total));
            }
        }
    }

    fn reconfigure(&mut self, link: LinkId, config: Option<LinkConfig>) {
        if let Some(config) = config {
            if link == self.forward {
                self.capacity = capacity(&config);
            }
            let possible = self.world.net.set_config(link, config);
            debug_assert!(possible.is_ok(), "every change was validated at the start");
        }
    }

    /// Takes the samples that are due; tells whether the flows' were.
    fn sample(&mut self) -> bool {
        let (now, at) = (self.world.now, self.passed());
        if self.next_bottleneck_sample <= now {
            self.next_bottleneck_sample = now + Outcome::BOTTLENECK_SAMPLE;
            let sample = self.bottleneck_sample(at);
            self.bottleneck.push(sample);
        }
        let is_due = self.next_sample <= now;
        if is_due {
            self.next_sample = now + self.sample_every;
            for party in &mut self.parties {
                party.sample(at, &self.world.hosts);
            }
        }
        is_due
    }

    fn bottleneck_sample(&mut self, at: Duration) -> BottleneckSample {
        let link = self.world.net.link(self.forward);
        let stats = link.stats();
        let queue = link.queue_bytes(self.world.now);
        let headers = u64::from(link.config().overhead) * stats.datagrams_delivered;
        let (rate, delay) = match (link.config().rate, &self.capacity) {
            (Some(rate), _) => {
                let wait = queue as f64 * 8.0 / rate.max(1) as f64;
                (Some(rate), Duration::from_secs_f64(wait))
            }
            (None, Some(capacity)) => {
                let (out, wait) = self.waited;
                self.waited = (stats.datagrams_out, stats.queue_delay_total);
                let left = u32::try_from(stats.datagrams_out - out).unwrap_or(u32::MAX);
                let before = self.bottleneck.last().map_or(Duration::ZERO, |s| s.delay);
                let wait = (stats.queue_delay_total - wait).checked_div(left);
                let mean = capacity.mean(at, Outcome::BOTTLENECK_SAMPLE);
                (Some(mean), wait.unwrap_or(before))
            }
            (None, None) => (None, Duration::ZERO),
        };
        BottleneckSample {
            at,
            queue,
            carried: stats.bytes_delivered + headers,
            rate,
            delay,
        }
    }

    fn outcome(mut self) -> Outcome {
        let duration = self.passed();
        for party in &mut self.parties {
            party.sample(duration, &self.world.hosts);
        }
        Outcome {
            forward: self.world.net.link(self.forward).stats(),
            back: self.world.net.link(self.back).stats(),
            bottleneck: self.bottleneck,
            flows: self.parties.into_iter().map(Party::outcome).collect(),
            duration,
        }
    }
}

/// What flows of one run share.
struct Commons {
    background: HostController,
    pool: Option<Pool>,
}

impl Commons {
    fn new(scenario: &Scenario) -> Self {
        Self {
            background: HostController::new(),
            pool: scenario.pool.map(|total| Pool::new(bytes(total))),
        }
    }

    /// The flow as it takes part in them.
    fn enrol(&self, flow: &Flow) -> Flow {
        let mut flow = flow.clone();
        if flow.background {
            flow.transport.background = Some(self.background.clone());
        }
        if let (Some(pool), Some((class, weight))) = (&self.pool, flow.share) {
            let share = BandwidthShare::new(pool.clone())
                .class(class)
                .weight(weight);
            flow.transport.bandwidth = Some(share);
        }
        flow
    }
}

/// Bits as bytes per second.
fn bytes(bits: NonZeroU64) -> NonZeroU64 {
    NonZeroU64::new(bits.get() / 8).unwrap_or(NonZeroU64::MIN)
}

/// Lays a flow's two routes: its own access link, then the shared one.
fn lay(
    network: &mut Network,
    flow: &Flow,
    [sender, receiver]: [SocketAddr; 2],
    [forward, back]: [LinkId; 2],
) -> Result<(), RunError> {
    let [there, return_way] = match flow.reverse {
        false => [forward, back],
        true => [back, forward],
    };
    let mut paths = [vec![there], vec![return_way]];
    if !flow.access_delay.is_zero() {
        for path in &mut paths {
            let access = LinkConfig {
                delay: flow.access_delay,
                ..LinkConfig::default()
            };
            path.insert(0, network.add_link(&format!("access {sender}"), access)?);
        }
    }
    if let Some(nat) = &flow.nat {
        network.set_nat(sender, nat.clone())?;
    }
    let [out, home] = paths;
    let laid: Result<(), RouteError> = network
        .route(sender, receiver, &out)
        .and_then(|()| network.route(receiver, sender, &home));
    debug_assert!(laid.is_ok(), "every link of the path was just added");
    Ok(())
}
