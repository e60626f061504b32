//! What chance does to datagrams: one draw per datagram and kind of fault, at the time it is pushed.
//!
//! Owns the link's random streams and the loss model's state. Called by `Link::push` only, so a
//! datagram's luck depends on its place among those pushed and on nothing that happens in between.

use core::time::Duration;

use crate::aqm::Aqm;
use crate::rng::Draw;
use crate::{LinkConfig, LossModel};

/// What chance has in store for one datagram.
#[derive(Debug, Default)]
pub(crate) struct Fate {
    pub(crate) lost: bool,
    pub(crate) flipped_bit: Option<usize>,
    pub(crate) cut_to: Option<usize>,
    pub(crate) jitter: Duration,
    pub(crate) reordered: bool,
    pub(crate) duplicate: bool,
    /// What RED compares with, 0 to below 1.
    pub(crate) red_luck: f64,
}

/// The link's random streams, one per kind of fault, and the loss model's state.
#[derive(Debug)]
pub(crate) struct Faults {
    loss: Draw,
    corrupt: Draw,
    truncate: Draw,
    jitter: Draw,
    reorder: Draw,
    duplicate: Draw,
    red: Draw,
    in_bad_state: bool,
}

impl Faults {
    pub(crate) fn new(seed: u64, name: &str) -> Self {
        let draw = |stream| Draw::new(seed, name, stream);
        Self {
            loss: draw(0),
            corrupt: draw(1),
            truncate: draw(2),
            jitter: draw(3),
            reorder: draw(4),
            duplicate: draw(5),
            red: draw(6),
            in_bad_state: false,
        }
    }

    /// Draws for every datagram, whatever becomes of it, so that one drop does not shift the rest.
    pub(crate) fn draw(&mut self, config: &LinkConfig, payload_len: usize) -> Fate {
        let lost = self.draw_loss(&config.loss);
        let flipped_bit = (self.corrupt.chance(config.corrupt) && payload_len > 0)
            .then(|| self.corrupt.below(payload_len as u64 * 8) as usize);
        let cut_to = (self.truncate.chance(config.truncate) && payload_len > 0)
            .then(|| self.truncate.below(payload_len as u64) as usize);
        let jitter = u64::try_from(config.jitter.as_nanos()).unwrap_or(u64::MAX);
        let jitter = match jitter {
            0 => 0,
            limit => self.jitter.below(limit.saturating_add(1)),
        };
        Fate {
            lost,
            flipped_bit,
            cut_to,
            jitter: Duration::from_nanos(jitter),
            reordered: self.reorder.chance(config.reorder),
            duplicate: self.duplicate.chance(config.duplicate),
            red_luck: match config.aqm {
                Aqm::Red { .. } => self.red.unit(),
                _ => 0.0,
            },
        }
    }

    fn draw_loss(&mut self, model: &LossModel) -> bool {
        match *model {
            LossModel::None => false,
            LossModel::Bernoulli(p) => self.loss.chance(p),
            LossModel::GilbertElliott {
                enter_bad,
                leave_bad,
                loss_good,
                loss_bad,
            } => {
                let change = if self.in_bad_state {
                    leave_bad
                } else {
                    enter_bad
                };
                self.in_bad_state ^= self.loss.chance(change);
                let p = if self.in_bad_state {
                    loss_bad
                } else {
                    loss_good
                };
                self.loss.chance(p)
            }
        }
    }
}
