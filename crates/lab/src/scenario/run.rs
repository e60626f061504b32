//! Plays a scenario: one virtual clock, the network, and each flow's two ends.
//!
//! At each moment: 1. the links change as planned; 2. samples are taken; 3. what arrived is
//! delivered; 4. timers and applications act. Whoever was touched sends at once.

use std::collections::VecDeque;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use towline_sim::{LinkConfig, LinkConfigError, LinkId, Network, RouteError};
use towline_testkit::{TlsOptions, tls_pair};
use towline_wire::Time;

use super::flow::Party;
use super::{BottleneckSample, Change, Flow, MAX_FLOWS, Outcome, Scenario};
use crate::world::START;

/// A scenario that cannot be played. The mistake of whoever wrote it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RunError {
    /// A link's settings are impossible.
    Link(LinkConfigError),
    /// More than [`MAX_FLOWS`], or none.
    Flows(usize),
    /// A flow cannot begin.
    Flow {
        /// Its name.
        name: String,
        /// Why.
        problem: String,
    },
}

impl fmt::Display for RunError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Link(error) => error.fmt(f),
            Self::Flows(count) => {
                write!(f, "{count} flows; a scenario has 1 to {MAX_FLOWS}")
            }
            Self::Flow { name, problem } => write!(f, "flow `{name}`: {problem}"),
        }
    }
}

impl std::error::Error for RunError {}

impl From<LinkConfigError> for RunError {
    fn from(error: LinkConfigError) -> Self {
        Self::Link(error)
    }
}

/// Plays `scenario` to its end.
///
/// # Errors
/// When it is impossible; nothing was played.
pub fn run(scenario: &Scenario) -> Result<Outcome, RunError> {
    let mut play = Play::new(scenario)?;
    play.go();
    Ok(play.outcome())
}

struct Play {
    network: Network,
    forward: LinkId,
    back: LinkId,
    parties: Vec<Party>,
    changes: VecDeque<Change>,
    end: Time,
    sample_every: Duration,
    next_sample: Time,
    next_bottleneck_sample: Time,
    bottleneck: Vec<BottleneckSample>,
    now: Time,
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
        let tls = tls_pair(scenario.seed, &TlsOptions::default());
        let mut parties = Vec::new();
        for (index, flow) in scenario.flows.iter().enumerate() {
            let addresses = addresses(index);
            lay(&mut network, flow, addresses, [forward, back])?;
            let party = Party::new(scenario.seed, index, flow, addresses, &tls)?;
            parties.push(party);
        }
        let mut changes: Vec<Change> = scenario.changes.clone();
        changes.sort_by_key(|change| change.at);
        Ok(Self {
            network,
            forward,
            back,
            parties,
            changes: changes.into(),
            end: START + scenario.duration,
            sample_every: scenario.sample_every.max(Duration::from_millis(1)),
            next_sample: START,
            next_bottleneck_sample: START,
            bottleneck: Vec::new(),
            now: START,
        })
    }

    fn go(&mut self) {
        while let Some(next) = self.next_event()
            && next <= self.end
            && !self.parties.iter().all(Party::is_over)
        {
            self.now = self.now.max(next);
            self.change_links();
            self.sample();
            while let Some(datagram) = self.network.poll_deliver(self.now) {
                if let Some(party) = self.parties.get_mut(flow_of(datagram.destination)) {
                    party.deliver(self.now, datagram, &mut self.network);
                }
            }
            for party in &mut self.parties {
                if party.wake().is_some_and(|at| at <= self.now) {
                    party.act(self.now, &mut self.network);
                }
            }
        }
    }

    fn next_event(&self) -> Option<Time> {
        let change = self.changes.front().map(|change| START + change.at);
        let parties = self.parties.iter().filter_map(Party::wake);
        parties
            .chain(self.network.next_timeout())
            .chain(change)
            .chain([self.next_sample, self.next_bottleneck_sample])
            .min()
    }

    fn change_links(&mut self) {
        while let Some(change) = self.changes.front()
            && START + change.at <= self.now
        {
            let Some(change) = self.changes.pop_front() else {
                return;
            };
            self.reconfigure(self.forward, change.forward);
            self.reconfigure(self.back, change.back);
        }
    }

    fn reconfigure(&mut self, link: LinkId, config: Option<LinkConfig>) {
        if let Some(config) = config {
            let possible = self.network.set_config(link, config);
            debug_assert!(possible.is_ok(), "every change was validated at the start");
        }
    }

    fn sample(&mut self) {
        let at = self.now.saturating_duration_since(START);
        if self.next_bottleneck_sample <= self.now {
            self.next_bottleneck_sample = self.now + Outcome::BOTTLENECK_SAMPLE;
            let link = self.network.link(self.forward);
            let stats = link.stats();
            let headers = u64::from(link.config().overhead) * stats.datagrams_delivered;
            self.bottleneck.push(BottleneckSample {
                at,
                queue: link.queue_bytes(self.now),
                carried: stats.bytes_delivered + headers,
                rate: link.config().rate,
            });
        }
        if self.next_sample <= self.now {
            self.next_sample = self.now + self.sample_every;
            for party in &mut self.parties {
                party.sample(at);
            }
        }
    }

    fn outcome(mut self) -> Outcome {
        let duration = self.now.saturating_duration_since(START);
        for party in &mut self.parties {
            party.sample(duration);
        }
        Outcome {
            forward: self.network.link(self.forward).stats(),
            back: self.network.link(self.back).stats(),
            bottleneck: self.bottleneck,
            flows: self.parties.into_iter().map(Party::outcome).collect(),
            duration,
        }
    }
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
    let [out, home] = paths;
    let laid: Result<(), RouteError> = network
        .route(sender, receiver, &out)
        .and_then(|()| network.route(receiver, sender, &home));
    debug_assert!(laid.is_ok(), "every link of the path was just added");
    Ok(())
}
