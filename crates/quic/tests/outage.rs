//! Outages: a path that falls silent for seconds and is back, both ways or one, and how soon data
//! flows again. Lengths are spread over the range, because the timers that matter double.

mod common;

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use common::{ALGORITHMS, CLIENT, Options, Pair, SERVER, delay, ms, secs};
use towline_quic::{Algorithm, Direction, StreamId, TransportConfig};
use towline_sim::LinkConfig;

const UNI: Direction = Direction::Unidirectional;
const BIDI: Direction = Direction::Bidirectional;

const RTT: Duration = ms(40);

/// The mark: 1.5 round trips and 0.3 s.
const MARK: Duration = ms(360);

/// From 1 to 10 s, no two of them a multiple of the other.
const LENGTHS: [u64; 10] = [1000, 1630, 2470, 3110, 3980, 4770, 5830, 7150, 8460, 10_000];

/// 20 Mbit/s with a round trip's worth of queue.
fn link() -> LinkConfig {
    LinkConfig {
        rate: Some(20_000_000),
        queue: Some(100_000),
        ..delay(20)
    }
}

fn pair(congestion: Algorithm, seed: u64) -> Pair {
    let transport = TransportConfig::default().congestion(congestion);
    Pair::connected(Options {
        seed,
        link: link(),
        client: transport.clone(),
        server: transport,
        ..Options::default()
    })
}

/// Which ways are silent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Silent {
    Both,
    FromClient,
    FromServer,
}

/// Nothing passes from now on for `length`.
fn silence(pair: &mut Pair, which: Silent, length: Duration) {
    let dark = link().with_blackout(pair.now, length);
    let (there, back) = pair.links;
    if which != Silent::FromServer {
        pair.net.set_config(there, dark.clone()).unwrap();
    }
    if which != Silent::FromClient {
        pair.net.set_config(back, dark).unwrap();
    }
}

/// Writes without end to a stream of `side`.
struct Bulk {
    side: usize,
    id: StreamId,
    at: Option<StreamId>,
    got: u64,
}

impl Bulk {
    fn start(pair: &mut Pair, side: usize) -> Self {
        let id = pair.conn(side).open(UNI).unwrap();
        Self {
            side,
            id,
            at: None,
            got: 0,
        }
    }

    /// Fills the sender's buffer, empties the receiver's.
    fn pump(&mut self, pair: &mut Pair) {
        let mut data = Bytes::from_static(&[0; 16_384]);
        while pair.conn(self.side).write(self.id, &mut data).is_ok() {
            data = Bytes::from_static(&[0; 16_384]);
        }
        let receiver = 1 - self.side;
        if self.at.is_none() {
            self.at = pair.conn(receiver).accept(UNI);
        }
        let mut bytes = Vec::new();
        if let Some(id) = self.at {
            pair.read_available(receiver, id, &mut bytes);
        }
        self.got += bytes.len() as u64;
    }
}

/// Runs for `time` with every bulk pumped.
fn pump_for(pair: &mut Pair, time: Duration, bulks: &mut [Bulk]) {
    let end = pair.now + time;
    while pair.now < end && pair.step() {
        for bulk in bulks.iter_mut() {
            bulk.pump(pair);
        }
    }
}

/// Time from the end of an outage until each receiver has more than it had.
fn time_until_data(
    pair: &mut Pair,
    which: Silent,
    length: Duration,
    bulks: &mut [Bulk],
) -> Duration {
    pump_for(pair, secs(2), bulks);
    silence(pair, which, length);
    let end = pair.now + length;
    // The last packets arrive, then nothing can.
    pump_for(pair, secs(1) / 2, bulks);
    let had: Vec<u64> = bulks.iter().map(|bulk| bulk.got).collect();
    pair.run_until(length + secs(20), |pair| {
        bulks.iter_mut().for_each(|bulk| bulk.pump(pair));
        bulks.iter().zip(&had).all(|(bulk, had)| bulk.got > *had)
    });
    pair.now.saturating_duration_since(end)
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}

/// The median over all lengths, of what `play` returns for each.
fn over_lengths(play: impl Fn(Duration, u64) -> Duration) -> Duration {
    median(
        (1..)
            .zip(LENGTHS)
            .map(|(seed, length)| play(ms(length), seed))
            .collect(),
    )
}

#[test]
fn a_transfer_goes_on_soon_after_an_outage() {
    for congestion in ALGORITHMS {
        for side in [CLIENT, SERVER] {
            let took = over_lengths(|length, seed| {
                let mut pair = pair(congestion, seed);
                let mut bulk = [Bulk::start(&mut pair, side)];
                time_until_data(&mut pair, Silent::Both, length, &mut bulk)
            });
            assert!(took <= MARK, "{congestion}, from {side}: {took:?}");
        }
    }
}

#[test]
fn a_transfer_goes_on_soon_after_an_outage_of_one_direction() {
    for which in [Silent::FromClient, Silent::FromServer] {
        for (congestion, side) in ALGORITHMS.iter().flat_map(|&a| [(a, CLIENT), (a, SERVER)]) {
            let took = over_lengths(|length, seed| {
                let mut pair = pair(congestion, seed);
                let mut bulk = [Bulk::start(&mut pair, side)];
                time_until_data(&mut pair, which, length, &mut bulk)
            });
            assert!(
                took <= MARK,
                "{which:?}, {congestion}, from {side}: {took:?}"
            );
        }
    }
}

#[test]
fn transfers_both_ways_go_on_soon_after_an_outage() {
    for congestion in ALGORITHMS {
        let took = over_lengths(|length, seed| {
            let mut pair = pair(congestion, seed);
            let mut bulks = [CLIENT, SERVER].map(|side| Bulk::start(&mut pair, side));
            time_until_data(&mut pair, Silent::Both, length, &mut bulks)
        });
        assert!(took <= MARK, "{congestion}: {took:?}");
    }
}

/// Asks a question so long after an outage began; the time from its end to the answer's first byte.
fn time_to_answer(seed: u64, length: Duration, asked: Duration) -> Duration {
    let mut pair = pair(Algorithm::Cubic, seed);
    pair.run_for(secs(2));
    silence(&mut pair, Silent::Both, length);
    let end = pair.now + length;
    pair.run_for(asked);
    let question = pair.send_stream(CLIENT, BIDI, b"question");
    let mut answered = false;
    let mut got = Vec::new();
    pair.run_until(length + secs(20), |pair| {
        if !answered && let Some(id) = pair.server().accept(BIDI) {
            pair.server().write_slice(id, b"answer").unwrap();
            pair.server().finish(id).unwrap();
            answered = true;
        }
        pair.read_available(CLIENT, question, &mut got)
    });
    assert_eq!(got, b"answer");
    pair.now.saturating_duration_since(end)
}

#[test]
fn a_question_asked_into_an_outage_is_answered_soon_after_it() {
    for asked in [ms(0), ms(300)] {
        let took = over_lengths(|length, seed| time_to_answer(seed, length, asked));
        // The question travels once more than data would.
        assert!(took <= MARK + RTT, "asked after {asked:?}: {took:?}");
    }
}

/// What the client sends into a path that lets nothing of it through for ten seconds, while `speak`
/// is called each millisecond: probe timeouts, and their period without backoff.
fn probe_timeouts_while(mut speak: impl FnMut(&mut Pair)) -> (u64, Duration) {
    let mut pair = pair(Algorithm::Cubic, 1);
    let mut bulk = [Bulk::start(&mut pair, CLIENT)];
    pump_for(&mut pair, secs(2), &mut bulk);
    let (there, _) = pair.links;
    let dark = link().with_blackout(pair.now, secs(10));
    pair.net.set_config(there, dark).unwrap();
    let before = pair.client().stats().probe_timeouts;
    for _ in 0..10_000 {
        pair.run_for(ms(1));
        speak(&mut pair);
    }
    let stats = pair.client().stats();
    (stats.probe_timeouts - before, stats.pto)
}

#[test]
fn a_peer_that_speaks_all_the_time_is_probed_once_a_period_at_most_and_few_times() {
    let (expiries, pto) = probe_timeouts_while(|pair| pair.server().ping());
    let most = secs(10).as_nanos() / pto.as_nanos() + 1;
    assert!(u128::from(expiries) <= most, "{expiries} of {most}");
    // Doubling alone makes seven of them.
    assert!((10..=20).contains(&expiries), "{expiries}");
}

#[test]
fn a_repeated_packet_does_not_make_a_probe_come_sooner() {
    let silent = probe_timeouts_while(|pair| pair.hosts[SERVER].hijacked = true);
    let kept = Rc::new(RefCell::new(Vec::new()));
    let repeated = probe_timeouts_while(|pair| {
        // One packet of the server's goes through, and again and again.
        if kept.borrow().is_empty() {
            let keep = Rc::clone(&kept);
            pair.tap = Some(Box::new(move |from, datagram| {
                if from == SERVER && keep.borrow().is_empty() {
                    keep.borrow_mut().clone_from(datagram);
                }
                true
            }));
            pair.server().ping();
            pair.flush();
            pair.run_for(RTT);
            pair.hosts[SERVER].hijacked = true;
        }
        let datagram = kept.borrow().clone();
        pair.deliver(CLIENT, &datagram);
    });
    assert!(repeated.0 <= silent.0 + 1, "{repeated:?}, {silent:?}");
}

#[test]
fn a_receiver_asks_a_silent_path_steadily_and_then_ever_more_rarely() {
    let mut options = Options {
        link: link(),
        ..Options::default()
    };
    options.client.max_idle_timeout = secs(300);
    options.server.max_idle_timeout = secs(300);
    let mut pair = Pair::connected(options);
    let id = pair.server().open(UNI).unwrap();
    pair.server().write_slice(id, b"more follows").unwrap();
    pair.run_for(ms(200));
    pair.hosts[SERVER].hijacked = true;
    let mut times = Vec::new();
    let (start, mut sent) = (pair.now, pair.hosts[CLIENT].sent_datagrams);
    while pair.now < start + secs(200) && pair.step() {
        let now_sent = pair.hosts[CLIENT].sent_datagrams;
        if now_sent > sent {
            times.push(pair.now.saturating_duration_since(start).as_secs_f64());
            sent = now_sent;
        }
    }
    times.retain(|time| *time < 200.0);
    // Ten seconds are covered; its own probe timeouts are among them.
    let steady = times.iter().filter(|time| **time < 10.0).count();
    let gaps = times.windows(2).take_while(|pair| pair[1] < 10.0);
    assert!(
        gaps.clone().all(|pair| pair[1] - pair[0] <= 0.301),
        "{times:?}"
    );
    assert!((30..=34).contains(&steady), "{steady} in {times:?}");
    assert!(times.len() <= steady + 16, "{times:?}");
}
