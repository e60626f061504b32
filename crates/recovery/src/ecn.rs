//! Whether packets may be marked ECN-capable on this path (RFC 9000 §13.4.2, Appendix A.4).
//!
//! The first packets are marked ECT(0); once the peer's counts prove that marks arrive whole, all
//! are. A path or peer that clears, invents or mistakes marks, and a path that marks all packets or
//! loses the marked ones, is spared them from then on: this can only lower the rate. Called by
//! `Recovery`.

use towline_wire::EcnCounts;

/// Packets marked before the peer has confirmed any.
const TESTING_PACKETS: u64 = 10;

/// Probe timeouts in a row after which it may be the marks that do not arrive any more.
const SUSPICIOUS_TIMEOUTS: u32 = 3;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Switched off.
    Off,
    /// The first packets are marked, so many so far.
    Testing(u64),
    /// Enough were marked; what became of them is not known yet.
    Unknown,
    Capable,
    /// Nothing came through for a while: unmarked probes tell whether anything does.
    Suspended,
    Failed,
}

/// What is known of ECN on a path (RFC 9000 §13.4.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum EcnState {
    /// Packets are not marked: it is switched off, or was found not to work.
    #[default]
    Failed,
    /// The first packets are marked.
    Testing,
    /// What became of marks is not known yet, or not any more.
    Unknown,
    /// The path carries marks.
    Capable,
}

/// Validation of one path.
#[derive(Clone, Debug)]
pub(crate) struct Validation {
    state: State,
    /// Marked packets of this path that were lost while none was acknowledged.
    lost: u64,
    /// CE marks reported before the first packet that arrived as it was sent.
    only_ce: Option<u64>,
    /// Whether marks were suspended and no marked packet was acknowledged since.
    suspected: bool,
    /// Whether a packet of the peer's arrived marked.
    peer_marks: bool,
}

/// What is known of one packet number space; counts outlive the path.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SpaceCounts {
    /// Packets sent with ECT(0).
    marked: u64,
    /// The peer's totals as of its newest ACK.
    reported: EcnCounts,
}

impl Validation {
    pub(crate) fn new(enabled: bool) -> Self {
        Self {
            state: match enabled {
                true => State::Testing(0),
                false => State::Off,
            },
            lost: 0,
            only_ce: Some(0),
            suspected: false,
            peer_marks: false,
        }
    }

    /// Whether the next packets are to be marked.
    pub(crate) fn marks(&self) -> bool {
        matches!(self.state, State::Testing(_) | State::Capable)
    }

    /// Whether marks were confirmed.
    pub(crate) fn is_capable(&self) -> bool {
        self.state == State::Capable
    }

    /// What is known.
    pub(crate) fn state(&self) -> EcnState {
        match self.state {
            State::Off | State::Failed => EcnState::Failed,
            State::Testing(_) => EcnState::Testing,
            State::Unknown | State::Suspended => EcnState::Unknown,
            State::Capable => EcnState::Capable,
        }
    }

    /// A marked packet was sent.
    pub(crate) fn on_marked_sent(&mut self, space: &mut SpaceCounts) {
        space.marked += 1;
        if let State::Testing(sent) = &mut self.state {
            *sent += 1;
            if *sent >= TESTING_PACKETS {
                self.state = State::Unknown;
            }
        }
    }

    /// A probe timeout, the `in_a_row`th: before anything was heard it may be the marks, and after
    /// several a path that carried marks may lose them now. Unmarked packets find out; a path that
    /// falls silent again as soon as marks are back is not tried a third time.
    pub(crate) fn on_probe_timeout(&mut self, in_a_row: u32) {
        match self.state {
            State::Testing(_) => self.state = State::Unknown,
            State::Capable if in_a_row >= SUSPICIOUS_TIMEOUTS => self.suspect(),
            _ => {}
        }
    }

    /// An ack-eliciting packet arrived. `may_probe` tells whether a probe timeout of our own will
    /// find out if nothing is heard any more; without one, a peer that stops marking may be
    /// probing because our marked acknowledgements vanish: it gets unmarked ones.
    pub(crate) fn on_received(&mut self, marked: bool, may_probe: impl FnOnce() -> bool) {
        if marked {
            self.peer_marks = true;
        } else if self.peer_marks && self.state == State::Capable && !may_probe() {
            self.suspect();
        }
    }

    fn suspect(&mut self) {
        self.state = match self.suspected {
            true => State::Failed,
            false => State::Suspended,
        };
        self.suspected = true;
    }

    /// Marked packets were lost.
    pub(crate) fn on_marked_lost(&mut self, packets: u64) {
        if matches!(self.state, State::Testing(_) | State::Unknown) {
            self.lost += packets;
            if self.lost >= TESTING_PACKETS {
                self.state = State::Failed;
            }
        }
    }

    /// An ACK that raised the largest acknowledged. `newly_marked` counts the marked packets it
    /// acknowledges for the first time. Returns by how much the CE count rose, 0 if the counts
    /// are not to be believed.
    /// Counts that cannot be end the marking for good, early or late (RFC 9000 §13.4.2.2).
    pub(crate) fn on_ack(
        &mut self,
        space: &mut SpaceCounts,
        counts: Option<EcnCounts>,
        newly_marked: u64,
    ) -> u64 {
        if matches!(self.state, State::Off | State::Failed) {
            return 0;
        }
        if self.state == State::Suspended {
            self.state = State::Capable;
        }
        let Some(counts) = counts else {
            if newly_marked > 0 {
                self.state = State::Failed;
            }
            return 0;
        };
        let before = space.reported;
        let delta = |now: u64, before: u64| now.checked_sub(before);
        let (Some(ect0), Some(ce)) = (delta(counts.ect0, before.ect0), delta(counts.ce, before.ce))
        else {
            self.state = State::Failed;
            return 0;
        };
        let total = counts.ect0.checked_add(counts.ce);
        let too_many = total.is_none_or(|total| total > space.marked);
        if too_many || counts.ect1 > 0 || ect0.saturating_add(ce) < newly_marked {
            self.state = State::Failed;
            return 0;
        }
        space.reported = counts;
        if newly_marked > 0 {
            self.lost = 0;
            self.suspected = false;
            self.state = State::Capable;
        }
        if ect0 > 0 {
            self.only_ce = None;
        }
        if let Some(only_ce) = &mut self.only_ce {
            *only_ce += ce;
            if *only_ce >= TESTING_PACKETS {
                // No queue marks everything from the start: the path tells nothing.
                self.state = State::Failed;
                return 0;
            }
        }
        ce
    }
}

#[cfg(test)]
mod tests;
