//! What an adversary makes of the packets of its host.

use towline_wire::{write_ping, write_short_header};

use std::ops::RangeInclusive;

use super::*;
use crate::world::START;

const DCID: [u8; 8] = [7; 8];

fn packet(number: u64, write: impl FnOnce(&mut Writer<'_>)) -> Vec<u8> {
    let mut bytes = vec![0; 1500];
    let mut w = Writer::new(&mut bytes);
    write_short_header(&mut w, &DCID, number, 2, false, false);
    let head = w.len();
    write(&mut w);
    // Enough for header protection.
    w.zeros((head + 2).saturating_sub(w.len()));
    w.bytes(&NULL_TAG);
    let len = w.len();
    bytes.truncate(len);
    bytes
}

/// The ACK ranges and the number of other frames of a datagram.
fn look(datagram: &[u8]) -> (Vec<Vec<(u64, u64)>>, usize) {
    let (mut acks, mut others) = (Vec::new(), 0);
    each_one_rtt(datagram, |packet| {
        let mut reader = Reader::new(packet.payload);
        while !reader.is_empty() {
            match Frame::parse(&mut reader).expect("what it writes can be read") {
                Frame::Ack(ack) => {
                    acks.push(ack.ranges().map(RangeInclusive::into_inner).collect());
                }
                Frame::Padding { .. } => {}
                _ => others += 1,
            }
        }
    });
    (acks, others)
}

fn adversary(plan: AckPlan) -> Adversary {
    let mut adversary = Adversary::new(plan, 1);
    for number in (0..100).filter(|n| *n != 42) {
        adversary.on_victim_sent(&packet(number, write_ping));
    }
    adversary
}

fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

/// An honest ACK of these ranges in a packet with a PING.
fn ack(number: u64, ranges: &[(u64, u64)]) -> Vec<u8> {
    packet(number, |w| {
        let ranges = ranges.iter().map(|(first, last)| *first..=*last);
        write_ack(w, 10, ranges, None);
        write_ping(w);
    })
}

#[test]
fn losses_are_hidden_once_they_are_old_and_a_number_never_sent_with_them() {
    let mut adversary = adversary(AckPlan {
        hide: Some(ms(100)),
        ..AckPlan::default()
    });
    let honest = [(60, 70), (45, 50), (30, 40)];
    let first = adversary.rewrite(START, &ack(1, &[(30, 31)]));
    assert_eq!(look(&first.expect("sent")).0, [[(30, 31)]]);
    let sent = adversary.rewrite(START, &ack(2, &honest)).expect("sent");
    assert_eq!(look(&sent), (vec![honest.to_vec()], 1));
    assert!(!adversary.claims_unsent(&sent) && !adversary.has_lied());
    let sent = adversary.rewrite(START + ms(100), &ack(3, &[(60, 90)]));
    let sent = sent.expect("sent");
    assert_eq!(look(&sent), (vec![vec![(30, 90)]], 1));
    assert!(adversary.claims_unsent(&sent) && adversary.has_lied());
}

#[test]
fn late_claims_come_one_by_one() {
    let mut adversary = adversary(AckPlan {
        late: Some(ms(500)),
        ..AckPlan::default()
    });
    adversary.rewrite(START, &ack(1, &[(0, 0)]));
    let mut shown = Vec::new();
    for n in 0..60 {
        // Every third packet arrives.
        let honest: Vec<(u64, u64)> = (0..=n.min(29)).rev().map(|i| (3 * i, 3 * i)).collect();
        let sent = adversary.rewrite(START + ms(20 * n), &ack(2 + n, &honest));
        let (acks, _) = look(&sent.expect("sent"));
        let numbers: u64 = acks[0].iter().map(|(first, last)| last - first + 1).sum();
        shown.push(numbers);
    }
    // 30 arrived, of 58 that did not about half were claimed, never many at once.
    let last = shown[shown.len() - 1];
    assert!((45..75).contains(&last), "{shown:?}");
    assert!(shown.windows(2).all(|w| w[1] >= w[0] && w[1] - w[0] < 8));
    assert!(adversary.has_lied());
}

#[test]
fn an_ack_is_split_into_as_many_frames_as_there_is_room_for() {
    for ascending in [false, true] {
        let mut adversary = adversary(AckPlan {
            split: Some(Split {
                by_packet: true,
                ascending,
            }),
            ..AckPlan::default()
        });
        let sent = adversary.rewrite(START, &ack(1, &[(60, 90), (10, 20)]));
        let sent = sent.expect("sent");
        let (acks, others) = look(&sent);
        let mut numbers: Vec<u64> = acks.iter().map(|ranges| ranges[0].0).collect();
        if ascending {
            numbers.reverse();
        }
        assert_eq!((numbers.len(), others), (42, 1));
        assert!(numbers.is_sorted_by(|a, b| a > b), "{numbers:?}");
        assert!(acks.iter().all(|ranges| ranges.len() == 1));
        assert!(sent.len() <= SMALLEST_DATAGRAM);
        assert!(!adversary.claims_unsent(&sent) && !adversary.has_lied());
        let many = adversary.rewrite(START, &ack(2, &[(0, 1000)]));
        let (acks, _) = look(&many.expect("sent"));
        assert!(acks.len() > 70, "{}", acks.len());
    }
}

#[test]
fn stretched_acks_are_rare_and_leave_nothing_out() {
    let mut adversary = adversary(AckPlan {
        stretch: Some(ms(100)),
        ..AckPlan::default()
    });
    let bare = |number, last| {
        packet(number, |w| {
            write_ack(w, 10, [last - 1..=last], None);
        })
    };
    assert!(adversary.rewrite(START, &bare(1, 5)).is_some());
    assert_eq!(adversary.rewrite(START + ms(50), &bare(2, 9)), None);
    let other = adversary.rewrite(START + ms(99), &ack(3, &[(11, 12)]));
    assert_eq!(look(&other.expect("the PING goes")), (vec![], 1));
    let sent = adversary.rewrite(START + ms(100), &bare(4, 20));
    let ranges = vec![(19, 20), (11, 12), (8, 9), (4, 5)];
    assert_eq!(look(&sent.expect("it is time")), (vec![ranges], 0));
}

#[test]
fn what_holds_no_ack_passes_unchanged() {
    let mut adversary = adversary(AckPlan {
        hide: Some(ms(1)),
        stretch: Some(ms(100)),
        ..AckPlan::default()
    });
    let ping = packet(1, write_ping);
    assert_eq!(adversary.rewrite(START, &ping), Some(ping.clone()));
    let noise = vec![0x47; 60];
    assert_eq!(adversary.rewrite(START, &noise), Some(noise.clone()));
}
