//! Networks that change under one connection, on virtual time: a table of named scenarios. Each is a
//! transfer in a checked world, so every invariant of the swarm holds in it, and all of it must be done.

use std::time::Duration;

use towline_lab::swarm::{Features, Plan, Report, run};
use towline_lab::workload::{ConversationPlan, EndPlan, HalfPlan, StreamPlan};
use towline_lab::world::START;
use towline_quic::TransportConfig;
use towline_sim::{LinkConfig, NatConfig, Remap};
use towline_wire::{Direction, Side};

/// Bytes of the transfer: 0.8 s of the link's time.
const SIZE: u64 = 2_000_000;

/// 20 ms of round trip at 20 Mbit/s.
fn link() -> LinkConfig {
    LinkConfig {
        delay: Duration::from_millis(10),
        rate: Some(20_000_000),
        overhead: 28,
        ..LinkConfig::default()
    }
}

/// One transfer, by `sender`, over the plain link.
fn transfer(sender: Side) -> Plan {
    let mut plan = Plan::draw(7, Features::NONE);
    plan.links = vec![[link(), link()]];
    plan.nats = vec![None];
    plan.transports = [TransportConfig::default(), TransportConfig::default()];
    let stream = StreamPlan {
        direction: Direction::Unidirectional,
        start: Duration::ZERO,
        forward: HalfPlan {
            size: SIZE,
            ..HalfPlan::default()
        },
        back: HalfPlan::default(),
    };
    let end = |streams| EndPlan {
        streams,
        chunk: 60_000,
        ..EndPlan::default()
    };
    let (client, server) = match sender {
        Side::Client => (vec![stream], Vec::new()),
        Side::Server => (Vec::new(), vec![stream]),
    };
    plan.conversations = vec![ConversationPlan {
        client: end(client),
        server: end(server),
        close: plan.conversations[0].close.clone(),
    }];
    // The network stays as it is for the whole transfer.
    plan.heal_after = Duration::from_secs(120);
    plan
}

/// Runs a plan in which everything must be done, before the network is healed.
fn complete(name: &str, plan: &Plan) -> Report {
    let report = run(plan, None).unwrap_or_else(|violation| panic!("{name}: {violation}"));
    assert_eq!(report.completed, 1, "{name}: {report:?}");
    assert!(report.took < plan.heal_after, "{name}: {report:?}");
    report
}

/// When a NAT forgets, in milliseconds from the client's first packet.
const PHASES: [(&str, u64); 8] = [
    ("while_the_servers_hello_is_under_way", 15),
    ("while_the_clients_finished_is_under_way", 25),
    ("as_the_handshake_is_confirmed", 45),
    ("in_slow_start", 90),
    ("as_the_queue_fills", 200),
    ("in_the_middle", 450),
    ("with_the_last_packets", 860),
    ("after_the_end", 1500),
];

const CHANGES: [(&str, Remap); 3] = [
    ("port", Remap::Port),
    ("address", Remap::Address),
    ("nothing", Remap::Same),
];

const SENDERS: [(&str, Side); 2] = [("upload", Side::Client), ("download", Side::Server)];

#[test]
fn a_transfer_outlives_a_rebinding_in_every_phase() {
    let mut scenarios = 0;
    for (phase, millis) in PHASES {
        for (change, remap) in CHANGES {
            for (direction, sender) in SENDERS {
                let name = format!("{direction}_rebinding_of_{change}_{phase}");
                let mut plan = transfer(sender);
                let at = START + Duration::from_millis(millis);
                plan.nats = vec![Some(NatConfig::at(at, remap))];
                scenarios += 1;
                complete(&name, &plan);
            }
        }
    }
    assert_eq!(scenarios, 48);
}

#[test]
fn a_transfer_outlives_a_nat_that_never_stays_the_same() {
    for every in ["700ms", "400ms", "300ms"] {
        for (change, _) in CHANGES {
            for (direction, sender) in SENDERS {
                let name = format!("{direction}_rebinding_of_{change}_every_{every}");
                let mut plan = transfer(sender);
                let change = change.replace("nothing", "same");
                let nat = format!("every={every},change={change}");
                plan.nats = vec![Some(nat.parse().expect("a NAT"))];
                complete(&name, &plan);
            }
        }
    }
}

/// Where the client goes, and when in milliseconds; 0 is where it began.
const MOVES: [(&str, &[(u64, u8)]); 6] = [
    ("once_in_slow_start", &[(90, 1)]),
    ("once_in_the_middle", &[(450, 1)]),
    ("there_and_back", &[(200, 1), (500, 0)]),
    ("there_and_back_at_once", &[(450, 1), (455, 0)]),
    (
        "from_place_to_place",
        &[(150, 1), (300, 2), (450, 3), (600, 4)],
    ),
    (
        "back_and_forth",
        &[(150, 1), (250, 0), (350, 1), (450, 0), (550, 1), (650, 0)],
    ),
];

#[test]
fn a_transfer_outlives_its_clients_migration() {
    for (moves, times) in MOVES {
        for (direction, sender) in SENDERS {
            let mut plan = transfer(sender);
            let times = times.iter();
            plan.moves = times
                .map(|(at, to)| (Duration::from_millis(*at), *to))
                .collect();
            complete(&format!("{direction}_migration_{moves}"), &plan);
        }
    }
}

/// UDP payloads that paths carry: the least of IPv6, a tunnel, Ethernet, jumbo frames, a loopback device.
const MTUS: [usize; 5] = [1280, 1400, 1452, 8900, 65_507];

/// What the search may leave between what it found and what the path carries.
const RESOLUTION: usize = 20;

/// A transfer whose ends look for packets of any size.
fn searching(sender: Side) -> Plan {
    let mut plan = transfer(sender);
    let transport = TransportConfig::default().max_mtu(Some(65_507));
    plan.transports = [transport.clone(), transport];
    plan
}

fn of(sender: Side, mtus: [u16; 2]) -> usize {
    mtus[sender as usize].into()
}

#[test]
fn a_transfer_finds_what_its_path_carries() {
    for mtu in MTUS {
        for (direction, sender) in SENDERS {
            let name = format!("{direction}_over_a_path_of_{mtu}");
            // Beyond Ethernet's the ends look for more only if they are told to.
            let mut plan = match mtu {
                ..=1472 => transfer(sender),
                _ => searching(sender),
            };
            for link in plan.links.iter_mut().flatten() {
                link.mtu = Some(mtu);
            }
            let found = of(sender, complete(&name, &plan).mtus);
            assert!(found <= mtu, "{name}: {found}");
            if mtu <= 1472 {
                assert!(mtu - found < RESOLUTION, "{name}: {found}");
            }
        }
    }
}

/// What an MTU becomes in mid-flight.
const HOLES: [(&str, usize, usize); 4] = [
    ("from_1472_to_1300", 1472, 1300),
    ("from_1452_to_1280", 1452, 1280),
    ("from_8900_to_1400", 8900, 1400),
    ("from_65507_to_1200", 65_507, 1200),
];

#[test]
fn a_transfer_outlives_a_black_hole_in_mid_flight() {
    for (hole, before, after) in HOLES {
        for (phase, millis) in [("early", 150), ("in_the_middle", 450), ("late", 750)] {
            for (direction, sender) in SENDERS {
                for icmp in [false, true] {
                    let told = if icmp { "told" } else { "silent" };
                    let name = format!("{direction}_black_hole_{hole}_{phase}_{told}");
                    let mut plan = searching(sender);
                    let at = START + Duration::from_millis(millis);
                    for link in plan.links.iter_mut().flatten() {
                        link.mtu = Some(before);
                        *link = link.clone().with_mtu_from(at, after);
                        link.icmp = icmp;
                    }
                    let report = complete(&name, &plan);
                    assert!(of(sender, report.mtus) <= before, "{name}: {report:?}");
                }
            }
        }
    }
}
