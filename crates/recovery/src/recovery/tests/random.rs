//! Random operations against a plain model of what is in flight.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::skipped::key_that_leaves_out;

#[derive(Clone, Debug)]
enum Operation {
    Send {
        space: usize,
        size: u16,
        kind: u8,
        frames: u8,
    },
    /// Acknowledges by a bit mask over the newest 64 numbers.
    Ack {
        space: usize,
        mask: u64,
    },
    Timeout,
    Wait {
        millis: u64,
    },
    Discard {
        space: usize,
    },
    Abandon {
        space: usize,
    },
    AppLimited,
    Blocked {
        blocked: bool,
    },
    Confirmed,
    /// A probe for larger datagrams, if one is due.
    Probe,
    Refuse {
        size: u16,
    },
    Switch {
        algorithm: usize,
    },
    /// The path changes.
    Move,
}

const ALGORITHMS: [Algorithm; 4] = [
    Algorithm::NewReno,
    Algorithm::Cubic,
    Algorithm::Bbr,
    Algorithm::LedbatPlusPlus,
];

fn operation() -> impl Strategy<Value = Operation> {
    let space = || prop_oneof![1 => 0usize..2, 6 => Just(2usize)];
    prop_oneof![
        20 => (space(), 20u16..1500, 0u8..3, 0u8..4).prop_map(|(space, size, kind, frames)| {
            Operation::Send { space, size, kind, frames }
        }),
        10 => (space(), any::<u64>(), any::<u64>())
            .prop_map(|(space, one, two)| Operation::Ack { space, mask: one & two }),
        4 => Just(Operation::Timeout),
        8 => (0u64..400).prop_map(|millis| Operation::Wait { millis }),
        1 => (0usize..2).prop_map(|space| Operation::Discard { space }),
        1 => space().prop_map(|space| Operation::Abandon { space }),
        2 => Just(Operation::AppLimited),
        1 => any::<bool>().prop_map(|blocked| Operation::Blocked { blocked }),
        1 => Just(Operation::Confirmed),
        4 => Just(Operation::Probe),
        1 => (1200u16..1500).prop_map(|size| Operation::Refuse { size }),
        1 => (0usize..4).prop_map(|algorithm| Operation::Switch { algorithm }),
        1 => Just(Operation::Move),
    ]
}

/// What the model knows of a packet that is neither acknowledged nor lost nor dropped.
type Model = BTreeMap<(usize, u64), (u16, bool, bool)>;

#[derive(Default)]
struct Fates {
    acked: BTreeMap<(usize, u32), u32>,
    lost: BTreeMap<(usize, u32), u32>,
    space: usize,
}

impl FrameOwner<(usize, u32)> for Fates {
    fn on_acked(&mut self, _: u64, frame: (usize, u32)) {
        *self.acked.entry(frame).or_default() += 1;
    }
    fn on_lost(&mut self, _: u64, frame: (usize, u32)) {
        assert!(
            !self.acked.contains_key(&frame),
            "lost after it was acknowledged"
        );
        *self.lost.entry(frame).or_default() += 1;
    }
    fn on_probe(&mut self, frame: (usize, u32)) {
        assert!(!self.acked.contains_key(&frame) && !self.lost.contains_key(&frame));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn bytes_in_flight_is_the_sum_of_what_is_outstanding(
        operations in prop::collection::vec(operation(), 1..300),
        algorithm in 0usize..4,
        client in any::<bool>(),
        pacing in any::<bool>(),
        // An early one, since few operations send hundreds of packets.
        skip_key in prop_oneof![
            Just(None),
            (1u64..40).prop_map(|number| Some(key_that_leaves_out(number))),
        ],
    ) {
        let algorithm = ALGORITHMS[algorithm];
        let side = if client { Side::Client } else { Side::Server };
        let datagram_sizes = DatagramSizes { initial: 1200, min: 1200, max: 1472, search: true };
        let config = Config { algorithm, pacing, skip_key, datagram_sizes, ..Config::new(side) };
        let mut recovery = Recovery::new(config);
        let mut fates = Fates::default();
        let mut model = Model::new();
        let mut skipped = Vec::new();
        let (mut now, mut next_frame) = (at(1), 0);
        for operation in operations {
            match operation {
                Operation::Send { space, size, kind, frames } => {
                    // Nothing is sent in a space whose keys are gone.
                    if recovery.all.spaces.get(PacketNumberSpace::ALL[space]).is_none() {
                        continue;
                    }
                    let kind = [
                        PacketKind::ACK_ELICITING,
                        PacketKind::PADDED_ACK,
                        PacketKind::ACK_ONLY,
                    ][usize::from(kind)];
                    let mut records: Vec<_> = (0..frames)
                        .map(|_| {
                            next_frame += 1;
                            (space, next_frame)
                        })
                        .collect();
                    let space_id = PacketNumberSpace::ALL[space];
                    let number = recovery.on_packet_sent(now, space_id, size, kind, &mut records);
                    model.insert((space, number), (size, kind.in_flight, true));
                    let next = recovery.next_packet_number(space_id);
                    skipped.extend((number + 1..next).map(|number| (space, number)));
                }
                Operation::Probe => {
                    recovery.on_full_sized_sent(30);
                    let Some(size) = recovery.mtu_probe_due(now) else { continue };
                    prop_assert!(recovery.bytes_in_flight() + u64::from(size) <= recovery.congestion_window());
                    let number = recovery.on_packet_sent(now, Application, size, PacketKind::MTU_PROBE, &mut vec![]);
                    model.insert((2, number), (size, true, true));
                    let next = recovery.next_packet_number(Application);
                    skipped.extend((number + 1..next).map(|number| (2, number)));
                }
                Operation::Ack { space, mask } => {
                    let space_id = PacketNumberSpace::ALL[space];
                    let next = recovery.next_packet_number(space_id);
                    let numbers: Vec<u64> = (0..64)
                        .filter(|bit| mask >> bit & 1 == 1)
                        .filter_map(|bit| next.checked_sub(bit + 1))
                        .filter(|number| !skipped.contains(&(space, *number)))
                        .collect();
                    let Some(largest) = numbers.first().copied() else { continue };
                    let ranges = numbers.iter().map(|number| *number..=*number);
                    fates.space = space;
                    let summary = recovery
                        .on_ack_received(now, space_id, largest, ms(3), None, ranges, &mut fates)
                        .unwrap();
                    let mut bytes = 0;
                    for number in &numbers {
                        if let Some((size, in_flight, _)) = model.remove(&(space, *number)) {
                            bytes += if in_flight { u64::from(size) } else { 0 };
                        }
                    }
                    prop_assert!(summary.newly_acked_bytes <= bytes);
                    forget_decided(&mut model, &recovery);
                }
                Operation::Timeout => {
                    let due = recovery.next_timeout().is_some_and(|(at, _)| at <= now);
                    let expired = recovery.on_timeout(now, &mut fates);
                    prop_assert!(due || expired.is_none());
                    forget_decided(&mut model, &recovery);
                }
                Operation::Wait { millis } => now += ms(millis),
                Operation::Discard { space } => {
                    recovery.discard_space(now, PacketNumberSpace::ALL[space]);
                    // Initial ends with Handshake, if not before.
                    model.retain(|(of, _), _| *of != space && (space != 1 || *of != 0));
                }
                Operation::Abandon { space } => {
                    recovery.abandon_space(PacketNumberSpace::ALL[space], &mut fates);
                    model.retain(|(of, _), _| *of != space);
                }
                Operation::AppLimited => recovery.on_app_limited(),
                Operation::Blocked { blocked } => recovery.set_amplification_blocked(now, blocked),
                Operation::Confirmed => recovery.set_handshake_confirmed(),
                Operation::Refuse { size } => {
                    recovery.on_datagram_refused(size);
                }
                Operation::Switch { algorithm } => {
                    recovery.set_algorithm(now, ALGORITHMS[algorithm]);
                }
                Operation::Move => {
                    recovery.change_path(now);
                    // What was sent before is in flight elsewhere.
                    model.values_mut().for_each(|(_, _, here)| *here = false);
                },
            }
            let expected: u64 = model
                .values()
                .filter(|(_, in_flight, here)| *in_flight && *here)
                .map(|(size, ..)| u64::from(*size))
                .sum();
            prop_assert_eq!(recovery.bytes_in_flight(), expected);
            match recovery.permit(now) {
                Permit::Send { bytes } => {
                    prop_assert!(bytes >= u64::from(recovery.max_datagram_size()));
                }
                Permit::Wait(until) => prop_assert!(until > now),
                Permit::Blocked => {}
            }
            let stats = recovery.stats();
            prop_assert!(stats.packets_spuriously_lost <= stats.packets_lost);
            prop_assert!(stats.packets_lost <= stats.packets_sent);
        }
        for (frame, times) in fates.acked.iter().chain(&fates.lost) {
            prop_assert_eq!(*times, 1, "frame {:?} was told twice", frame);
        }
    }
}

/// Below the ring's base everything is decided; the model learns of losses from there.
fn forget_decided(model: &mut Model, recovery: &Recovery<(usize, u32)>) {
    model.retain(|(space, number), _| {
        let space = recovery.all.spaces.get(PacketNumberSpace::ALL[*space]);
        space.is_some_and(|space| space.is_outstanding(*number))
    });
}
