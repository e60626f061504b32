use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::Duration;

use super::{Direct, Host, Outgoing, START, Train, Watch, Wire, World};
use crate::{LinkConfig, LossModel, Network, Time, TooBig};

const STRIDE: usize = 4;
const MS: Duration = Duration::from_millis(1);

/// Sends what is put into its outbox, answers a ping with a pong, and pings once its timer is due.
struct Talker {
    address: SocketAddr,
    peer: SocketAddr,
    outbox: VecDeque<Vec<u8>>,
    train: Vec<u8>,
    timer: Option<Time>,
    /// Its second address, and whether it sends from there.
    second: Option<(SocketAddr, bool)>,
    /// Largest payloads that routers told it of.
    told: Vec<(Time, usize)>,
    /// When, in which stride, and what.
    heard: Vec<(Time, usize, Vec<u8>)>,
    events: VecDeque<Vec<u8>>,
}

impl Host for Talker {
    type Event = Vec<u8>;

    fn address(&self) -> SocketAddr {
        self.address
    }

    fn has_address(&self, address: SocketAddr) -> bool {
        address == self.address || self.second.is_some_and(|(second, _)| second == address)
    }

    fn handle_too_big(&mut self, now: Time, notice: &TooBig) {
        self.told.push((now, notice.mtu));
    }

    fn handle(&mut self, now: Time, train: &mut Train) {
        let payload = train.datagram.payload.clone();
        if payload == b"ping" {
            self.outbox.push_back(b"pong".to_vec());
        }
        self.heard.push((now, train.stride, payload.clone()));
        self.events.push_back(payload);
    }

    fn poll_transmit(&mut self, _: Time) -> Option<Outgoing> {
        self.train = self.outbox.pop_front()?;
        Some(Outgoing {
            source: self.second.filter(|(_, sends)| *sends).map(|(s, _)| s),
            destination: self.peer,
            ecn: Some(2),
            stride: STRIDE,
            len: self.train.len(),
        })
    }

    fn train(&self) -> &[u8] {
        &self.train
    }

    fn next_timeout(&self) -> Option<Time> {
        self.timer
    }

    fn handle_timeout(&mut self, _: Time) {
        self.timer = None;
        self.outbox.push_back(b"ping".to_vec());
    }

    fn poll_event(&mut self) -> Option<Vec<u8>> {
        self.events.pop_front()
    }
}

fn talkers() -> [Talker; 2] {
    let addresses = [1, 2].map(|n| SocketAddr::from(([10, 0, 0, n], 1)));
    [0, 1].map(|n| Talker {
        address: addresses[n],
        peer: addresses[1 - n],
        outbox: VecDeque::new(),
        train: Vec::new(),
        timer: None,
        second: None,
        told: Vec::new(),
        heard: Vec::new(),
        events: VecDeque::new(),
    })
}

fn linked(seed: u64, loss: LossModel) -> World<Talker, Network> {
    let hosts = talkers();
    let link = LinkConfig {
        delay: 10 * MS,
        loss,
        ..LinkConfig::default()
    };
    let mut net = Network::new(seed);
    net.join(hosts[0].address, hosts[1].address, link.clone(), link)
        .unwrap();
    World::new(hosts, net)
}

fn payloads<W>(world: &World<Talker, W>, at: usize) -> Vec<&[u8]> {
    let heard = world.hosts[at].heard.iter();
    heard.map(|(_, _, payload)| &payload[..]).collect()
}

/// A log of what is sent. It changes "over", drops "lost", and answers "more" as an application.
#[derive(Default)]
struct Log {
    lines: Vec<String>,
    inside: Option<usize>,
    strays: usize,
}

impl<W: Wire> Watch<Talker, W> for Log {
    fn enter(&mut self, at: usize) {
        assert_eq!(self.inside.replace(at), None);
    }

    fn leave(&mut self) {
        assert!(self.inside.take().is_some());
    }

    fn send(&mut self, now: Time, _: &mut [Talker], at: usize, train: &mut Train) -> bool {
        let payload = &mut train.datagram.payload;
        self.lines.push(format!("{now:?} {at} {payload:?}"));
        if payload == b"over" {
            payload[0] = b'O';
        }
        payload != b"lost"
    }

    fn on_event(&mut self, _: Time, hosts: &mut [Talker], at: usize, event: Vec<u8>) {
        if event == b"more" {
            hosts[at].outbox.push_back(b"here".to_vec());
        }
    }

    fn on_stray(&mut self, _: Time, _: Train, _: &mut W) {
        self.strays += 1;
    }
}

#[test]
fn a_step_ends_with_everything_out_again() {
    let mut world = linked(1, LossModel::None);
    world.hosts[0].timer = Some(START + 5 * MS);
    assert!(world.step(&mut ()));
    assert_eq!(world.now, START + 5 * MS);
    assert_eq!(world.next_timeout(), Some(START + 15 * MS));
    assert!(world.step(&mut ()) && world.step(&mut ()));
    assert_eq!(payloads(&world, 1), [b"ping"]);
    assert_eq!(world.hosts[0].heard[0].0, START + 25 * MS);
    assert!(!world.step(&mut ()));
}

#[test]
fn time_passes_to_the_end_and_no_further() {
    let mut world = linked(1, LossModel::None);
    world.hosts[0].timer = Some(START + 5 * MS);
    world.run_for(15 * MS, &mut ());
    assert_eq!(world.now, START + 15 * MS);
    let heard = [0, 1].map(|at| payloads(&world, at).len());
    assert_eq!(heard, [0, 1]);
}

#[test]
fn links_carry_datagrams_and_a_call_carries_trains() {
    let mut world = linked(1, LossModel::None);
    world.hosts[0].outbox.push_back(b"over the hills".to_vec());
    world.run_for(20 * MS, &mut ());
    assert_eq!(payloads(&world, 1), [&b"over"[..], b" the", b" hil", b"ls"]);

    let mut world = World::new(talkers(), Direct::trains());
    world.hosts[0].outbox.push_back(b"over the hills".to_vec());
    world.pump(MS, &mut ());
    let whole = (START, STRIDE, b"over the hills".to_vec());
    assert_eq!(world.hosts[1].heard, [whole]);

    world.hosts[0].outbox.push_back(b"taken off".to_vec());
    let taken = world.take(0, &mut ());
    let parts: Vec<_> = taken.iter().flat_map(Train::payloads).collect();
    assert_eq!(parts, [&b"take"[..], b"n of", b"f"]);
    assert_eq!(taken[0].datagram.ecn, Some(2));
}

#[test]
fn a_watch_changes_and_drops_what_is_sent() {
    let mut world = linked(1, LossModel::None);
    let mut log = Log::default();
    for word in [b"over", b"lost"] {
        world.hosts[0].outbox.push_back(word.to_vec());
    }
    world.run_for(20 * MS, &mut log);
    assert_eq!(
        (log.lines.len(), payloads(&world, 1)),
        (2, vec![&b"Over"[..]])
    );
}

#[test]
fn what_an_application_does_on_an_event_is_sent_at_once() {
    let mut world = World::new(talkers(), Direct::datagrams(MS));
    let mut log = Log::default();
    world.hosts[0].outbox.push_back(b"more".to_vec());
    world.settle(0..2, &mut log);
    world.now += MS;
    assert_eq!(world.deliver_next(&mut log), Some(1));
    world.settle(0..2, &mut log);
    assert_eq!(world.next_timeout(), Some(START + 2 * MS));
    world.run_for(5 * MS, &mut log);
    assert_eq!(payloads(&world, 0), [b"here"]);
}

#[test]
fn what_is_for_nobody_goes_to_the_watch() {
    let mut world = World::new(talkers(), Direct::datagrams(MS));
    let mut log = Log::default();
    world.hosts[0].peer = SocketAddr::from(([10, 9, 9, 9], 9));
    world.hosts[0].outbox.push_back(b"ping".to_vec());
    world.run_for(5 * MS, &mut log);
    assert_eq!((log.strays, world.hosts[1].heard.len()), (1, 0));
}

#[test]
fn a_pump_ends_after_a_turn_in_which_nobody_sent() {
    let mut world = World::new(talkers(), Direct::trains());
    world.hosts[1].timer = Some(START + 10 * MS);
    world.pump_for(20 * MS, MS, &mut ());
    // The first host's turn was over when the ping came.
    assert_eq!(world.hosts[0].heard[0].0, START + 10 * MS);
    assert_eq!(world.hosts[1].heard[0].0, START + 11 * MS);
    assert_eq!(world.now, START + 20 * MS);
}

#[test]
fn the_same_seed_is_the_same_run() {
    let run = |seed| {
        let mut world = linked(seed, LossModel::Bernoulli(0.5));
        let mut log = Log::default();
        for n in 0..100_u32 {
            world.hosts[0].outbox.push_back(n.to_be_bytes().to_vec());
        }
        world.run_for(50 * MS, &mut log);
        (log.lines, world.hosts[1].heard.clone())
    };
    assert_eq!(run(1), run(1));
    assert_ne!(run(1), run(2));
}

#[test]
fn a_host_sends_from_and_is_reached_at_each_of_its_addresses() {
    let mut world = linked(1, LossModel::None);
    let second = SocketAddr::from(([10, 1, 0, 1], 1));
    let server = world.hosts[1].address;
    let link = LinkConfig {
        delay: 20 * MS,
        ..LinkConfig::default()
    };
    world.net.join(second, server, link.clone(), link).unwrap();
    world.hosts[0].second = Some((second, true));
    world.hosts[0].outbox.push_back(b"move".to_vec());
    world.run_for(20 * MS, &mut ());
    assert_eq!(payloads(&world, 1), [b"move"]);
    world.hosts[1].peer = second;
    world.hosts[1].outbox.push_back(b"here".to_vec());
    world.run_for(20 * MS, &mut ());
    assert_eq!(payloads(&world, 0), [b"here"]);
}

#[test]
fn a_host_is_told_that_a_datagram_was_too_big() {
    let hosts = talkers();
    let link = LinkConfig {
        delay: 10 * MS,
        mtu: Some(3),
        icmp: true,
        ..LinkConfig::default()
    };
    let mut net = Network::new(1);
    net.join(hosts[0].address, hosts[1].address, link.clone(), link)
        .unwrap();
    let mut world = World::new(hosts, net);
    world.hosts[0].outbox.push_back(b"ping".to_vec());
    world.run_for(50 * MS, &mut ());
    assert_eq!(world.hosts[0].told, [(START + 10 * MS, 3)]);
    assert!(world.hosts[1].heard.is_empty());
}

/// Has always something to send, in answer to nothing.
struct Chatterer(SocketAddr);

impl Host for Chatterer {
    type Event = ();

    fn address(&self) -> SocketAddr {
        self.0
    }

    fn handle(&mut self, _: Time, _: &mut Train) {}

    fn poll_transmit(&mut self, _: Time) -> Option<Outgoing> {
        Some(Outgoing {
            source: None,
            destination: self.0,
            ecn: None,
            stride: 1,
            len: 0,
        })
    }

    fn train(&self) -> &[u8] {
        &[]
    }

    fn next_timeout(&self) -> Option<Time> {
        None
    }

    fn handle_timeout(&mut self, _: Time) {}

    fn poll_event(&mut self) -> Option<()> {
        None
    }
}

fn chattering() -> World<Chatterer, Direct> {
    let address = SocketAddr::from(([10, 0, 0, 1], 1));
    World::new([Chatterer(address)], Direct::default())
}

#[test]
#[should_panic(expected = "what a host has to send never ends")]
fn a_host_that_never_stops_sending_ends_the_run() {
    chattering().transmit(0, &mut ());
}

#[test]
#[should_panic(expected = "never ends")]
fn hosts_that_never_stop_over_a_direct_wire_end_the_run() {
    chattering().pump(MS, &mut ());
}

/// An event of the second host makes one of the first, and that puts off its timer.
struct PutOff;

impl<W: Wire> Watch<Talker, W> for PutOff {
    fn on_event(&mut self, _: Time, hosts: &mut [Talker], at: usize, _: Vec<u8>) {
        match at {
            0 => hosts[0].timer = Some(START + 100 * MS),
            _ => hosts[0].events.push_back(b"later".to_vec()),
        }
    }
}

#[test]
fn time_does_not_go_back_when_what_comes_next_is_put_off() {
    let mut world = linked(1, LossModel::None);
    world.hosts[0].timer = Some(START + 5 * MS);
    world.hosts[1].events.push_back(b"now".to_vec());
    world.run_for(10 * MS, &mut PutOff);
    assert_eq!(world.now, START + 100 * MS, "where the step went");
}
