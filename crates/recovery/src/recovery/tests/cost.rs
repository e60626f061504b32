//! What ACK frames cost, in counted work: ranges and records looked at.

use super::*;

/// ACK frames that a peer can put into one packet.
const FRAMES: usize = 150;

/// 128,000 packets in flight of which all but the oldest are acknowledged, one ACK for each 100.
fn long_run() -> Bench {
    let mut bench = bench();
    // Time alone finds losses from here on, so the oldest stays.
    let path = &mut bench.recovery.path;
    path.reordering.widen(ms(1), &path.rtt);
    bench.send(0);
    bench.ack(1000, &[0..=0]);
    let oldest = bench.send(1000);
    let mut last = oldest;
    for round in 0..1280 {
        bench.send_train(1000, 100);
        bench.ack(1010, &[last + 1..=last + 100]);
        last += 100;
        assert_eq!(round, (last - oldest) / 100 - 1);
    }
    bench
}

#[test]
fn a_packet_full_of_repeated_acks_costs_little_more_than_one() {
    let mut bench = long_run();
    let newest = bench.recovery.next_packet_number(Application) - 1;
    assert_eq!(bench.recovery.all.spaces.application().tracked(), 128_001);
    let mut work = 0;
    for _ in 0..FRAMES {
        work += bench.ack(1011, &[2..=newest]).work;
    }
    // The first joins 1280 runs, the others step over one.
    assert!(work <= 2 * 1280 + 40 * FRAMES as u32, "{work}");
}

/// As many losses as are remembered, all of them below what is in flight.
fn many_losses() -> (Bench, u64) {
    let mut bench = bench();
    bench.send(0);
    bench.ack(100, &[0..=0]);
    let lost = crate::MAX_LOST_REMEMBERED as u64;
    bench.send_train(200, lost + 3);
    bench.ack(300, &[lost + 1..=lost + 3]);
    assert_eq!(bench.recovery.stats().packets_lost, lost);
    (bench, lost)
}

#[test]
fn a_packet_full_of_claims_of_lost_packets_costs_each_loss_once() {
    let (mut bench, lost) = many_losses();
    let mut work = 0;
    for _ in 0..FRAMES {
        let summary = bench.ack(310, &[lost + 2..=lost + 2, 1..=lost]);
        work += summary.work;
    }
    assert!(u64::from(work) <= lost + 60 * FRAMES as u64, "{work}");
    assert_eq!(bench.recovery.stats().packets_spuriously_lost, lost);
}

#[test]
fn claims_of_single_losses_cost_a_search_each() {
    let (mut bench, lost) = many_losses();
    let (mut work, mut ranges) = (0, 0);
    // Every other loss from the top: as many ranges as packets have room for.
    for high in (10..lost).rev().step_by(400) {
        let mut claimed = vec![lost + 2..=lost + 2];
        let numbers = (0..190).map_while(|n| high.checked_sub(2 * n));
        claimed.extend(numbers.map(|number| number..=number));
        ranges += claimed.len() as u32;
        work += bench.ack(310, &claimed).work;
    }
    assert!(work <= 40 * ranges, "{work} for {ranges}");
}

#[test]
fn an_honest_receivers_acks_cost_a_few_units_a_packet() {
    let mut bench = bench();
    let (mut work, mut acked) = (0, 0);
    for packet in 0..10_000u64 {
        bench.send(packet);
        if packet >= 100 && packet % 2 == 1 {
            let newest = packet - 100;
            work += bench
                .ack(packet, &[newest.saturating_sub(200)..=newest])
                .work;
            acked = newest;
        }
    }
    assert!(u64::from(work) <= 6 * acked, "{work} for {acked}");
}
