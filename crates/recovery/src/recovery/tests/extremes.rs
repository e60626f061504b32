//! Peers that lie, clocks that jump and stand, round trips of nothing and of a minute: whatever
//! comes, the books stay right, the window stays within bounds, and something can happen next.

use proptest::prelude::*;

use super::*;

const ALGORITHMS: [Algorithm; 4] = [
    Algorithm::NewReno,
    Algorithm::Cubic,
    Algorithm::Bbr,
    Algorithm::LedbatPlusPlus,
];

/// More than anything acknowledged here could grow a window to.
const ABSURD: u64 = 1 << 32;

#[derive(Clone, Debug)]
enum Operation {
    /// Sends all that is permitted, at most so many packets, and says whether that was all.
    Send {
        most: u8,
        app_limited: bool,
    },
    /// An ACK of some of the newest packets; the delay and the counts are the peer's own.
    Ack {
        mask: u64,
        delay: u64,
        ecn: Option<(u64, u64, u64)>,
    },
    /// The same ACK once more.
    Replay,
    /// Of a number far ahead.
    NeverSent {
        by: u64,
    },
    /// Nanoseconds pass; then timers run if they are due.
    Wait {
        nanos: u64,
    },
    /// Exactly to the next deadline.
    Sleep,
    Switch {
        algorithm: usize,
    },
    Move,
    Refuse {
        size: u16,
    },
    Probe,
}

fn wait() -> impl Strategy<Value = u64> {
    prop_oneof![
        4 => Just(0),
        4 => 0u64..1_000_000,
        8 => 0u64..400_000_000,
        2 => Just(60_000_000_000),
        // Hours.
        1 => 0u64..36_000_000_000_000,
        1 => Just(1 << 50),
    ]
}

fn operation() -> impl Strategy<Value = Operation> {
    let delay =
        prop_oneof![4 => 0u64..30_000, 1 => Just(0), 1 => Just(u64::MAX), 1 => Just(1 << 62)];
    let count = || prop_oneof![3 => 0u64..200, 1 => Just((1u64 << 62) - 1), 1 => Just(u64::MAX)];
    let ecn = prop_oneof![
        4 => Just(None),
        2 => (count(), count(), count()).prop_map(Some),
    ];
    let mask = prop_oneof![
        Just(u64::MAX),
        any::<u64>(),
        Just(1),
        (0u32..64).prop_map(|b| 1 << b)
    ];
    prop_oneof![
        16 => (1u8..=255, any::<bool>())
            .prop_map(|(most, app_limited)| Operation::Send { most, app_limited }),
        16 => (mask, delay, ecn).prop_map(|(mask, delay, ecn)| Operation::Ack { mask, delay, ecn }),
        2 => Just(Operation::Replay),
        1 => (0u64..1 << 40).prop_map(|by| Operation::NeverSent { by }),
        12 => wait().prop_map(|nanos| Operation::Wait { nanos }),
        8 => Just(Operation::Sleep),
        1 => (0usize..4).prop_map(|algorithm| Operation::Switch { algorithm }),
        1 => Just(Operation::Move),
        1 => (1200u16..9000).prop_map(|size| Operation::Refuse { size }),
        4 => Just(Operation::Probe),
    ]
}

struct World {
    recovery: Recovery<u32>,
    owner: Owner,
    now: Time,
    /// ACKs sent so far: the newest, to be sent again.
    last: Vec<u64>,
}

impl World {
    fn new(algorithm: Algorithm, pacing: bool) -> Self {
        let config = Config {
            algorithm,
            pacing,
            // Without pacing HyStart++ holds growth down by the number of ACKs.
            hystart: pacing,
            datagram_sizes: DatagramSizes {
                initial: 1200,
                min: 1200,
                max: 8972,
                search: true,
            },
            ..Config::new(Side::Server)
        };
        let mut recovery = Recovery::new(config);
        recovery.set_handshake_confirmed();
        Self {
            recovery,
            owner: Owner::default(),
            now: at(1000),
            last: Vec::new(),
        }
    }

    fn packet(&mut self) {
        self.recovery.mark_train();
        let size = self.recovery.max_datagram_size();
        let kind = PacketKind::ACK_ELICITING;
        let mut frames = Vec::new();
        self.recovery
            .on_packet_sent(self.now, Application, size, kind, &mut frames);
    }

    fn ack(&mut self, numbers: &[u64], delay: u64, ecn: Option<EcnCounts>) {
        let Some(largest) = numbers.first() else {
            return;
        };
        let ranges = numbers.iter().map(|number| *number..=*number);
        let delay = Duration::from_micros(delay);
        self.recovery
            .on_ack_received(
                self.now,
                Application,
                *largest,
                delay,
                ecn,
                ranges,
                &mut self.owner,
            )
            .expect("all of these were sent");
    }

    fn run_timers(&mut self) {
        for _ in 0..10 {
            if self
                .recovery
                .next_timeout()
                .is_none_or(|(at, _)| at > self.now)
            {
                return;
            }
            self.recovery.on_timeout(self.now, &mut self.owner);
            while self.recovery.probes_owed(Application) > 0 {
                self.packet();
            }
        }
        panic!("a timer is due again and again at {:?}", self.now);
    }

    fn apply(&mut self, operation: &Operation) {
        match *operation {
            Operation::Send { most, app_limited } => {
                for _ in 0..most {
                    if !matches!(self.recovery.permit(self.now), Permit::Send { .. }) {
                        return;
                    }
                    self.packet();
                }
                if app_limited {
                    self.recovery.on_app_limited();
                }
            }
            Operation::Ack { mask, delay, ecn } => {
                let next = self.recovery.next_packet_number(Application);
                let numbers: Vec<u64> = (0..64)
                    .filter(|bit| mask >> bit & 1 == 1)
                    .filter_map(|bit| next.checked_sub(bit + 1))
                    .collect();
                let ecn = ecn.map(|(ect0, ect1, ce)| EcnCounts { ect0, ect1, ce });
                self.ack(&numbers, delay, ecn);
                self.last = numbers;
            }
            Operation::Replay => {
                let numbers = self.last.clone();
                self.ack(&numbers, 0, None);
            }
            Operation::NeverSent { by } => {
                let next = self.recovery.next_packet_number(Application) + by;
                let ranges = core::iter::once(next..=next);
                let owner = &mut self.owner;
                let answer = self.recovery.on_ack_received(
                    self.now,
                    Application,
                    next,
                    NO_DELAY,
                    None,
                    ranges,
                    owner,
                );
                assert_eq!(
                    answer,
                    Err(AckError::NeverSent {
                        packet_number: next
                    })
                );
            }
            Operation::Wait { nanos } => self.now += Duration::from_nanos(nanos),
            Operation::Sleep => {
                if let Some((at, _)) = self.recovery.next_timeout() {
                    self.now = self.now.max(at);
                }
            }
            Operation::Switch { algorithm } => {
                let before = self.recovery.congestion_window();
                self.recovery.set_algorithm(self.now, ALGORITHMS[algorithm]);
                let after = self.recovery.congestion_window();
                let datagram = u64::from(self.recovery.max_datagram_size());
                let most = (before + before / 2).max(4 * datagram);
                assert!(
                    (before / 2..=most).contains(&after),
                    "a switch made {after} of {before}"
                );
            }
            Operation::Move => self.recovery.change_path(self.now),
            Operation::Refuse { size } => {
                self.recovery.on_datagram_refused(size);
            }
            Operation::Probe => {
                self.recovery.on_full_sized_sent(30);
                if let Some(size) = self.recovery.mtu_probe_due(self.now) {
                    let kind = PacketKind::MTU_PROBE;
                    self.recovery
                        .on_packet_sent(self.now, Application, size, kind, &mut vec![]);
                }
            }
        }
        self.run_timers();
    }

    fn check(&mut self) {
        let stats = self.recovery.stats();
        let datagram = u64::from(stats.mtu);
        assert!(stats.cwnd >= 2 * datagram, "{stats:?}");
        assert!(stats.cwnd < ABSURD, "{stats:?}");
        assert!(stats.pacing_rate.is_none_or(|rate| rate > 0), "{stats:?}");
        let path = self.recovery.path.id;
        let outstanding: u64 = self
            .recovery
            .all
            .spaces
            .application()
            .ring
            .iter()
            .filter(|entry| entry.is_outstanding() && entry.in_flight() && entry.path == path)
            .map(|entry| u64::from(entry.size))
            .sum();
        assert_eq!(stats.bytes_in_flight, outstanding);
        // With something to send there is permission, or a time at which to ask again.
        match self.recovery.permit(self.now) {
            Permit::Send { bytes } => assert!(bytes >= datagram),
            Permit::Wait(until) => assert!(until > self.now, "{stats:?}"),
            Permit::Blocked => {
                let due = self.recovery.next_timeout();
                assert!(due.is_some(), "blocked for ever: {stats:?}");
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn no_peer_and_no_clock_breaks_books_bounds_or_progress(
        operations in prop::collection::vec(operation(), 1..200),
        algorithm in 0usize..4,
        pacing in any::<bool>(),
    ) {
        let mut world = World::new(ALGORITHMS[algorithm], pacing);
        for operation in &operations {
            world.apply(operation);
            world.check();
        }
    }

    /// An honest peer at any distance, from none to a minute.
    #[test]
    fn any_round_trip_carries_data(
        round_trip in prop_oneof![Just(0u64), 1u64..1000, 1000u64..400_000_000, Just(60_000_000_000)],
        algorithm in 0usize..4,
        pacing in any::<bool>(),
    ) {
        let mut world = World::new(ALGORITHMS[algorithm], pacing);
        let (mut sent, mut rounds) = (0, 0);
        while sent < 1000 {
            rounds += 1;
            prop_assert!(rounds < 20_000, "{sent} packets in {rounds} rounds");
            let mut flight = Vec::new();
            loop {
                match world.recovery.permit(world.now) {
                    Permit::Send { .. } if flight.len() < 200 => {
                        flight.push(world.recovery.next_packet_number(Application));
                        world.packet();
                    }
                    Permit::Wait(until) if flight.is_empty() => world.now = until,
                    _ => break,
                }
            }
            sent += flight.len();
            world.now += Duration::from_nanos(round_trip);
            flight.reverse();
            world.ack(&flight, 0, None);
            world.check();
        }
    }
}

#[test]
fn time_that_stands_still_lets_a_window_out_and_no_more() {
    for algorithm in ALGORITHMS {
        let mut world = World::new(algorithm, true);
        let mut sent = 0;
        while matches!(world.recovery.permit(world.now), Permit::Send { .. }) {
            world.packet();
            sent += 1;
            assert!(sent <= 100, "{algorithm}");
        }
        world.check();
    }
}

#[test]
fn one_packet_an_ack_grows_no_more_than_one_ack_for_all() {
    for algorithm in ALGORITHMS {
        let grown = |split: bool| {
            let mut world = World::new(algorithm, false);
            for _ in 0..6 {
                let mut flight = Vec::new();
                while matches!(world.recovery.permit(world.now), Permit::Send { .. }) {
                    flight.push(world.recovery.next_packet_number(Application));
                    world.packet();
                }
                world.now += ms(50);
                match split {
                    true => flight
                        .iter()
                        .for_each(|number| world.ack(&[*number], 0, None)),
                    false => {
                        flight.reverse();
                        world.ack(&flight, 0, None);
                    }
                }
            }
            world.recovery.congestion_window()
        };
        let (split, whole) = (grown(true), grown(false));
        assert!(split <= whole + whole / 10, "{algorithm}: {split}, {whole}");
    }
}

#[test]
fn replayed_acks_grow_nothing() {
    for algorithm in ALGORITHMS {
        let mut world = World::new(algorithm, false);
        for _ in 0..5 {
            world.packet();
        }
        world.now += ms(50);
        world.ack(&[4, 3, 2, 1, 0], 0, None);
        let before = world.recovery.stats();
        for _ in 0..100 {
            world.ack(&[4, 3, 2, 1, 0], 0, None);
            world.ack(&[2], 0, None);
        }
        assert_eq!(world.recovery.stats(), before, "{algorithm}");
    }
}

#[test]
fn an_ack_delay_that_lies_moves_no_minimum_and_no_window_up() {
    for algorithm in ALGORITHMS {
        let run = |delay: u64| {
            let mut world = World::new(algorithm, true);
            world.recovery.set_peer_max_ack_delay(ms(25));
            for _ in 0..40 {
                let mut flight = Vec::new();
                let end = world.now + ms(10);
                loop {
                    match world.recovery.permit(world.now) {
                        Permit::Send { .. } => {
                            flight.push(world.recovery.next_packet_number(Application));
                            world.packet();
                        }
                        Permit::Wait(until) if until < end => world.now = until,
                        _ => break,
                    }
                }
                world.now = end + ms(90);
                flight.reverse();
                world.ack(&flight, delay, None);
                world.check();
            }
            world.recovery.stats()
        };
        let honest = run(0);
        for delay in [1, 25_000, 25_001, 100_000, 1 << 40, 1 << 62, u64::MAX] {
            let lied = run(delay);
            assert!(
                lied.min_rtt.unwrap() >= honest.min_rtt.unwrap() - ms(1),
                "{algorithm}"
            );
            // At most max_ack_delay may be taken off a sample.
            let least = honest.smoothed_rtt.saturating_sub(ms(26));
            assert!(lied.smoothed_rtt >= least, "{algorithm}: {delay}");
            assert!(
                lied.cwnd <= honest.cwnd + honest.cwnd / 10,
                "{algorithm}: {delay}: {} instead of {}",
                lied.cwnd,
                honest.cwnd
            );
        }
    }
}
