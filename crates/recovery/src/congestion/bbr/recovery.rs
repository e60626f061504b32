//! The recovery period that losses open, and what they changed, should they prove spurious.
//!
//! `Bbr` opens one at most once per flight and asks for the undo when all its losses were
//! acknowledged after all.

use towline_wire::Time;

use super::ecn::RoundMarks;
use super::model::Bounds;
use super::state::State;
use crate::congestion::interface::opens_recovery;

/// What a loss changed, kept until its recovery period is known to be justified.
#[derive(Clone, Copy, Debug)]
pub(super) struct Undo {
    pub(super) bounds: Bounds,
    /// The probing state that the loss ended.
    pub(super) probe: Option<State>,
}

/// The latest recovery period.
#[derive(Clone, Debug, Default)]
pub(super) struct RecoveryPeriod {
    start: Option<Time>,
    is_open: bool,
    undo: Option<Undo>,
}

impl RecoveryPeriod {
    /// None, and what was sent until now opens none.
    pub(super) fn none_since(now: Time) -> Self {
        Self {
            start: Some(now),
            ..Self::default()
        }
    }

    pub(super) fn start(&self) -> Option<Time> {
        self.start
    }

    pub(super) fn is_open(&self) -> bool {
        self.is_open
    }

    /// Whether the loss of a packet sent then opens a period.
    pub(super) fn opens(&self, sent: Time) -> bool {
        opens_recovery(self.start, sent)
    }

    /// Losses open a period. Once for each: a later loss in it must not save what the first changed.
    pub(super) fn open(&mut self, now: Time, bounds: Bounds) {
        *self = Self {
            start: Some(now),
            is_open: true,
            undo: Some(Undo {
                bounds,
                probe: None,
            }),
        };
    }

    /// Losses open one that nothing undoes.
    pub(super) fn open_for_good(&mut self, now: Time) {
        *self = Self {
            start: Some(now),
            is_open: true,
            undo: None,
        };
    }

    /// What was sent then was acknowledged; returns whether that ends the period.
    pub(super) fn on_ack(&mut self, sent: Time) -> bool {
        let ends = self.is_open && self.opens(sent);
        self.is_open &= !ends;
        ends
    }

    /// Remembers the probe that losses end, should they be spurious; marks never are.
    pub(super) fn save_probe(&mut self, probe: State, marks: RoundMarks) {
        match &mut self.undo {
            Some(_) if marks.too_high => self.undo = None,
            Some(undo) => undo.probe = Some(probe),
            None => {}
        }
    }

    /// The losses were spurious: ends the period, and says what they changed if that is known.
    pub(super) fn take_undo(&mut self) -> Option<Undo> {
        let undo = self.undo.take()?;
        self.is_open = false;
        Some(undo)
    }
}
