//! Data over bad paths: loss, reordering, repetition, corruption, blackouts, and what probes do.

mod common;

use std::cell::Cell;
use std::rc::Rc;

use common::wire::{has_frame, packets};
use common::{CLIENT, Options, Pair, SERVER, delay, ms, readable, secs};
use towline_quic::{Algorithm, Direction, TransportConfig};
use towline_sim::{LinkConfig, LossModel};
use towline_wire::Frame;

fn on(link: LinkConfig) -> Options {
    Options {
        link,
        ..Options::default()
    }
}

/// Changes both directions from now on.
fn set_links(pair: &mut Pair, there: LinkConfig, back: LinkConfig) {
    let (a, b) = pair.links;
    pair.net.set_config(a, there).unwrap();
    pair.net.set_config(b, back).unwrap();
}

fn random_loss(p: f64) -> LinkConfig {
    LinkConfig {
        loss: LossModel::Bernoulli(p),
        ..delay(20)
    }
}

#[test]
fn thirty_percent_loss_both_ways_only_slows() {
    for seed in 1..=5 {
        let mut pair = Pair::new(Options {
            seed,
            ..on(random_loss(0.3))
        });
        pair.connect();
        pair.established(secs(30));
        pair.transfer(CLIENT, 200_000, secs(120));
        pair.transfer(SERVER, 200_000, secs(120));
    }
}

#[test]
fn loss_in_bursts_only_slows() {
    for congestion in [Algorithm::NewReno, Algorithm::Cubic] {
        let transport = TransportConfig::default().congestion(congestion);
        let mut pair = Pair::connected(Options {
            client: transport.clone(),
            server: transport,
            ..on(delay(20))
        });
        let bursts = LinkConfig {
            loss: LossModel::GilbertElliott {
                enter_bad: 0.02,
                leave_bad: 0.2,
                loss_good: 0.0,
                loss_bad: 0.8,
            },
            ..delay(20)
        };
        set_links(&mut pair, bursts.clone(), bursts);
        pair.transfer(CLIENT, 500_000, secs(120));
    }
}

#[test]
fn reordering_beyond_the_packet_threshold_loses_nothing() {
    let mut pair = Pair::connected(Options {
        seed: 3,
        ..on(delay(20))
    });
    let shuffled = LinkConfig {
        reorder: 0.1,
        reorder_delay: ms(15),
        ..delay(20)
    };
    set_links(&mut pair, shuffled, delay(20));
    pair.transfer(CLIENT, 2_000_000, secs(30));
    pair.run_for(ms(200));
    let stats = pair.client().stats();
    assert!(stats.packets_spuriously_lost > 0, "{stats:?}");
    assert_eq!(stats.packets_lost, stats.packets_spuriously_lost);
}

#[test]
fn every_packet_twice_is_read_once() {
    let mut pair = Pair::connected(on(LinkConfig {
        duplicate: 1.0,
        ..delay(20)
    }));
    pair.transfer(CLIENT, 500_000, secs(10));
    let stats = pair.client().stats();
    assert_eq!((stats.packets_lost, stats.bytes_retransmitted), (0, 0));
}

#[test]
fn corrupted_and_truncated_packets_are_dropped_and_sent_again() {
    let mut pair = Pair::connected(on(delay(20)));
    let dirty = LinkConfig {
        corrupt: 0.2,
        truncate: 0.05,
        ..delay(20)
    };
    set_links(&mut pair, dirty.clone(), dirty);
    pair.transfer(CLIENT, 300_000, secs(60));
    assert!(pair.server().stats().decryption_failures > 0);
}

#[test]
fn a_blackout_of_five_seconds_needs_no_user() {
    for (there, back) in [(true, true), (true, false), (false, true)] {
        let mut pair = Pair::connected(on(LinkConfig {
            rate: Some(20_000_000),
            ..delay(20)
        }));
        let start = pair.now + ms(100);
        let link = |dark| {
            let link = LinkConfig {
                rate: Some(20_000_000),
                ..delay(20)
            };
            if dark {
                link.with_blackout(start, secs(5))
            } else {
                link
            }
        };
        set_links(&mut pair, link(there), link(back));
        let took = pair.transfer(CLIENT, 2_000_000, secs(30));
        assert!(took > secs(5), "{took:?}");
        // Back at work within one backed-off probe of the end, and then as fast as before.
        assert!(took < secs(13), "{took:?}");
    }
}

#[test]
fn losing_half_of_all_acknowledgements_costs_little() {
    let mut pair = Pair::connected(on(delay(20)));
    set_links(&mut pair, delay(20), random_loss(0.5));
    let took = pair.transfer(CLIENT, 2_000_000, secs(20));
    assert!(took < secs(5), "{took:?}");
    assert!(pair.client().stats().packets_lost < 20);
}

#[test]
fn a_lost_tail_is_repaired_by_a_probe() {
    let mut pair = Pair::connected(readable());
    pair.run_for(secs(1));
    let fin = |frame: &Frame<'_>| matches!(frame, Frame::Stream(s) if s.fin);
    let seen = pair.drop_first(CLIENT, 1, fin);
    let start = pair.now;
    let id = pair.send_stream(CLIENT, Direction::Unidirectional, b"the only packet");
    let at = pair.accept(SERVER, Direction::Unidirectional, secs(5));
    assert_eq!(at, id);
    let pto = pair.client().stats().pto;
    let took = pair.now.saturating_duration_since(start);
    // One probe timeout and the way there; the probe carries the data itself.
    assert!(took <= pto + ms(11), "{took:?} with a PTO of {pto:?}");
    assert_eq!(pair.read_to_end(SERVER, id, secs(1)), b"the only packet");
    assert!((2..=3).contains(&seen.count()));
}

#[test]
fn probe_timeouts_back_off_and_send_at_most_two_datagrams_each() {
    let mut pair = Pair::connected(Options {
        client: TransportConfig::default().max_idle_timeout(secs(60)),
        server: TransportConfig::default().max_idle_timeout(secs(60)),
        ..on(delay(20))
    });
    pair.run_for(secs(1));
    pair.transfer(CLIENT, 100_000, secs(5));
    pair.run_for(secs(1));
    let times = Rc::new(std::cell::RefCell::new(Vec::new()));
    let log = times.clone();
    let now = Rc::new(Cell::new(pair.now));
    let clock = now.clone();
    pair.tap = Some(Box::new(move |from, _| {
        if from == CLIENT {
            log.borrow_mut().push(clock.get());
        }
        false
    }));
    pair.send_stream(CLIENT, Direction::Unidirectional, &[7; 5000]);
    let end = pair.now + secs(30);
    while pair.now < end {
        pair.flush();
        now.set(
            pair.hosts[CLIENT]
                .endpoint
                .next_timeout()
                .map_or(end, |t| t.max(pair.now)),
        );
        if !pair.step() {
            break;
        }
    }
    let times = times.borrow();
    let mut bursts: Vec<(towline_quic::Time, usize)> = Vec::new();
    for &at in times.iter() {
        match bursts.last_mut() {
            Some((last, n)) if at.saturating_duration_since(*last) < ms(5) => *n += 1,
            _ => bursts.push((at, 1)),
        }
    }
    assert!(bursts.len() >= 5, "{bursts:?}");
    for pair in bursts[1..].windows(3) {
        assert!(pair[1].1 <= 2, "{bursts:?}");
        let gap = |i: usize| {
            pair[i + 1]
                .0
                .saturating_duration_since(pair[i].0)
                .as_secs_f64()
        };
        let growth = gap(1) / gap(0);
        assert!((1.9..=2.1).contains(&growth), "{growth}: {bursts:?}");
    }
}

#[test]
fn a_short_queue_is_found_and_respected() {
    for congestion in [Algorithm::NewReno, Algorithm::Cubic] {
        let link = LinkConfig {
            rate: Some(10_000_000),
            queue: Some(10 * 1200),
            ..delay(20)
        };
        let transport = TransportConfig::default().congestion(congestion);
        let mut pair = Pair::connected(Options {
            client: transport,
            ..on(link)
        });
        let took = pair.transfer(CLIENT, 2_000_000, secs(20));
        // 1.6 s at line rate.
        assert!(took < secs(5), "{congestion}: {took:?}");
        assert!(pair.client().stats().congestion_events > 0);
    }
}

#[test]
fn jitter_that_keeps_order_is_no_loss() {
    let mut pair = Pair::connected(on(LinkConfig {
        jitter: ms(30),
        ..delay(20)
    }));
    pair.transfer(CLIENT, 1_000_000, secs(30));
    assert_eq!(pair.client().stats().packets_lost, 0);
}

#[test]
fn both_directions_at_once_share_a_lossy_path() {
    let mut pair = Pair::connected(on(random_loss(0.05)));
    let data = common::pattern(200_000);
    let up = pair.send_stream(CLIENT, Direction::Unidirectional, &data);
    let down = pair.send_stream(SERVER, Direction::Unidirectional, &data);
    let mut got = [Vec::new(), Vec::new()];
    let mut done = [false; 2];
    pair.run_until(secs(30), |p| {
        for (side, id) in [(SERVER, up), (CLIENT, down)] {
            while p.conn(side).accept(Direction::Unidirectional).is_some() {}
            if !done[side] && p.conn(side).stats().packets_received > 0 {
                match p.conn(side).read(id, usize::MAX) {
                    Ok(Some(chunk)) => got[side].extend_from_slice(&chunk),
                    Ok(None) => done[side] = true,
                    Err(_) => {}
                }
            }
        }
        done == [true; 2]
    });
    assert!(got[0] == data && got[1] == data);
}

#[test]
fn lost_packets_of_every_kind_come_again_as_often_as_needed() {
    // Nine of ten datagrams vanish for two seconds.
    let mut pair = Pair::connected(Options {
        seed: 8,
        ..on(delay(20))
    });
    set_links(&mut pair, random_loss(0.9), random_loss(0.9));
    pair.send_stream(CLIENT, Direction::Bidirectional, b"question");
    pair.run_for(secs(2));
    set_links(&mut pair, delay(20), delay(20));
    let id = pair.accept(SERVER, Direction::Bidirectional, secs(20));
    assert_eq!(pair.read_to_end(SERVER, id, secs(5)), b"question");
    pair.server().write_slice(id, b"answer").unwrap();
    pair.server().finish(id).unwrap();
    assert_eq!(pair.read_to_end(CLIENT, id, secs(20)), b"answer");
}

#[test]
fn a_full_sized_packet_fits_every_mtu_and_smaller_paths_lose_it() {
    for mtu in [1200u16, 1452, 9000] {
        let transport = TransportConfig::default().mtu(mtu);
        let largest = Rc::new(Cell::new(0));
        let seen = largest.clone();
        let mut pair = Pair::new(Options {
            client: transport.clone(),
            server: transport,
            ..on(delay(10))
        });
        pair.tap = Some(Box::new(move |_, datagram| {
            seen.set(seen.get().max(datagram.len()));
            true
        }));
        pair.connect();
        pair.established(secs(5));
        pair.transfer(CLIENT, 300_000, secs(5));
        assert_eq!(largest.get(), usize::from(mtu));
        assert_eq!(pair.client().stats().mtu, mtu);
    }
}

#[test]
fn a_path_of_twenty_milliseconds_to_ten_seconds_carries_data() {
    for round_trip in [2u64, 200, 2_000, 8_000] {
        let mut pair = Pair::new(Options {
            client: TransportConfig::default()
                .handshake_timeout(secs(120))
                .max_idle_timeout(secs(120)),
            server: TransportConfig::default()
                .handshake_timeout(secs(120))
                .max_idle_timeout(secs(120)),
            ..on(delay(round_trip / 2))
        });
        pair.connect();
        pair.established(secs(110));
        pair.transfer(CLIENT, 30_000, secs(110));
        let rtt = pair.client().stats().min_rtt.unwrap();
        assert!(
            rtt >= ms(round_trip) && rtt < ms(round_trip + 30),
            "{rtt:?}"
        );
    }
}

#[test]
fn a_zero_round_trip_is_measured_without_dividing_by_it() {
    let mut pair = Pair::connected(on(delay(0)));
    pair.transfer(CLIENT, 1_000_000, secs(10));
    assert_eq!(pair.client().stats().packets_lost, 0);
}

#[test]
fn acknowledgements_alone_are_not_acknowledged() {
    let mut pair = Pair::connected(readable());
    pair.run_for(secs(1));
    let counts = Rc::new(Cell::new((0u32, 0u32)));
    let log = counts.clone();
    pair.tap = Some(Box::new(move |from, datagram| {
        let (client, server) = log.get();
        let bare = packets(datagram)
            .iter()
            .all(|_| !has_frame(datagram, |f| f.ack_eliciting()));
        log.set(match (from, bare) {
            (CLIENT, true) => (client + 1, server),
            (SERVER, true) => (client, server + 1),
            _ => (client, server),
        });
        true
    }));
    let before = [0, 1].map(|i| pair.hosts[i].sent_datagrams);
    pair.client().ping();
    pair.run_for(secs(20));
    let after = [0, 1].map(|i| pair.hosts[i].sent_datagrams);
    assert_eq!(after[CLIENT] - before[CLIENT], 1, "one PING");
    assert_eq!(after[SERVER] - before[SERVER], 1, "one ACK");
    assert_eq!(counts.get(), (0, 1));
}

#[test]
fn a_client_that_has_sent_nothing_yet_has_no_probe_to_send() {
    let mut pair = Pair::new(Options::default());
    let remote = pair.hosts[SERVER].address;
    let (now, config) = (pair.now, pair.client_config.clone());
    let endpoint = &mut pair.hosts[CLIENT].endpoint;
    endpoint
        .connect(now, &config, remote, towline_testkit::SERVER_NAME)
        .unwrap();
    assert!(endpoint.next_timeout().is_some_and(|at| at > now));
}
