//! HyStart++ (RFC 9406): leave slow start when the round trip grows, before the queue overflows.
//!
//! `NewReno` and `Cubic` ask it in slow start how far to grow and whether to leave. It works in
//! the first slow start only, and sees only ACKs of flights that filled the window: what the
//! application left unfilled says nothing about the queue.
//!
//! One deviation: the RFC compares the minimum of all samples of a round so far, here it is that of
//! the round's latest eight. A queue that begins in the middle of a long round is then seen one
//! round trip earlier: on 100 Mbit/s and 200 ms with half a BDP of buffer NewReno then loses 0.42 of
//! what it would without HyStart++, and 0.70 by the letter. Eight samples in a row still have to agree, and a false alarm is taken back.

use core::time::Duration;

use super::interface::AckSample;

const MIN_RTT_THRESH: Duration = Duration::from_millis(4);
const MAX_RTT_THRESH: Duration = Duration::from_millis(16);
const MIN_RTT_DIVISOR: u32 = 8;
/// Samples a round needs before it is judged.
pub(crate) const N_RTT_SAMPLE: u32 = 8;
const CSS_GROWTH_DIVISOR: u64 = 4;
const CSS_ROUNDS: u32 = 5;
/// Growth per ACK in datagrams for a sender that does not pace (RFC 9406 §4.3, L).
const UNPACED_LIMIT: u64 = 8;

/// What slow start does with an ACK.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Growth {
    /// Bytes to add to the window.
    pub(crate) bytes: u64,
    /// Slow start is over: the threshold becomes the window.
    pub(crate) leave: bool,
}

/// The state of slow start.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HyStart {
    phase: Phase,
    paced: bool,
    round: u64,
    last_round_min: Option<Duration>,
    this_round_min: Option<Duration>,
    samples: u32,
    /// The latest samples, in nanoseconds.
    recent: [u64; N_RTT_SAMPLE as usize],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Plain slow start, for ever.
    Off,
    SlowStart,
    /// Conservative slow start, to find out whether the delay grew for good.
    Conservative {
        baseline: Duration,
        rounds: u32,
    },
}

impl HyStart {
    pub(crate) fn new(enabled: bool, paced: bool) -> Self {
        Self {
            phase: if enabled {
                Phase::SlowStart
            } else {
                Phase::Off
            },
            paced,
            round: 0,
            last_round_min: None,
            this_round_min: None,
            samples: 0,
            recent: [0; N_RTT_SAMPLE as usize],
        }
    }

    /// Loss, mark or exit: later slow starts run without it.
    pub(crate) fn stop(&mut self) {
        self.phase = Phase::Off;
    }

    /// Whether it needs its samples now.
    pub(crate) fn is_active(&self) -> bool {
        self.phase != Phase::Off
    }

    /// An ACK in slow start of a flight that filled the window; `acked` bytes may grow it.
    pub(crate) fn on_ack(&mut self, sample: &AckSample, acked: u64, datagram: u64) -> Growth {
        if self.phase == Phase::Off {
            return Growth {
                bytes: acked,
                leave: false,
            };
        }
        let mut leave = false;
        if sample.round != self.round {
            leave = self.on_round_end();
            self.round = sample.round;
        }
        if let Some(rtt) = sample.rtt {
            self.this_round_min = Some(self.this_round_min.map_or(rtt, |min| min.min(rtt)));
            let nanos = u64::try_from(rtt.as_nanos()).unwrap_or(u64::MAX);
            self.recent[self.samples as usize % N_RTT_SAMPLE as usize] = nanos;
            self.samples += 1;
        }
        if !leave && self.samples >= N_RTT_SAMPLE {
            self.judge();
        }
        if leave {
            self.stop();
        }
        let acked = match self.paced {
            true => acked,
            false => acked.min(UNPACED_LIMIT * datagram),
        };
        let bytes = match self.phase {
            Phase::Conservative { .. } => acked / CSS_GROWTH_DIVISOR,
            _ if leave => acked / CSS_GROWTH_DIVISOR,
            _ => acked,
        };
        Growth { bytes, leave }
    }

    /// Returns whether the conservative rounds are used up.
    fn on_round_end(&mut self) -> bool {
        self.last_round_min = self.this_round_min.take();
        self.samples = 0;
        match &mut self.phase {
            Phase::Conservative { rounds, .. } => {
                // The round in which it was entered counts, partial as it is.
                *rounds += 1;
                *rounds >= CSS_ROUNDS
            }
            _ => false,
        }
    }

    fn judge(&mut self) {
        let this = Duration::from_nanos(self.recent.iter().copied().min().unwrap_or_default());
        match self.phase {
            Phase::SlowStart => {
                let Some(last) = self.last_round_min else {
                    return;
                };
                let threshold = (last / MIN_RTT_DIVISOR).clamp(MIN_RTT_THRESH, MAX_RTT_THRESH);
                if this >= last.saturating_add(threshold) {
                    self.phase = Phase::Conservative {
                        baseline: this,
                        rounds: 0,
                    };
                }
            }
            // A false alarm: the delay went down again.
            Phase::Conservative { baseline, .. } if this < baseline => {
                self.phase = Phase::SlowStart;
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests;
