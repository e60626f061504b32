//! How many streams each end may open, and which of them a frame may name (RFC 9000 §2.1, §4.6).
//!
//! Owned by `Streams`, which makes the state of a stream when it is told to here: permission for
//! thousands costs a counter, and streams opened by implication an entry in a set of ranges. It
//! writes MAX_STREAMS and STREAMS_BLOCKED, and knows nothing of what streams carry.

use towline_wire::{
    Direction, MAX_STREAMS, RangeSet, Side, StreamId, TransportErrorCode, TransportParameters,
    write_max_streams, write_streams_blocked,
};

use super::flow::CONTROL_FRAME_ROOM;
use crate::config::TransportConfig;
use crate::connection::component::{PacketWriter, SentFrame};
use crate::connection::events::{Event, Events};
use crate::error::Violation;

/// Streams this side opens, of one direction.
#[derive(Debug, Default)]
struct LocalStreams {
    next: u64,
    limit: u64,
    /// The application was refused and waits for `StreamsAvailable`.
    refused: bool,
    reported: Option<u64>,
}

impl LocalStreams {
    fn owes_blocked(&self) -> bool {
        self.refused && self.reported != Some(self.limit)
    }
}

/// Streams the peer opens, of one direction.
#[derive(Debug)]
struct RemoteStreams {
    /// Streams below this index are open or were.
    opened: u64,
    accepted: u64,
    /// The limit told to the peer.
    limit: u64,
    window: u64,
    closed: u64,
    update_pending: bool,
    /// The peer said that `limit` is in its way.
    blocked: bool,
    /// Opened by implication (RFC 9000 §2.1), no state made yet; mostly there is none.
    implied: Option<Box<RangeSet>>,
    /// Bytes that those take, as of their last change: it is asked for after every packet.
    implied_held: usize,
}

impl RemoteStreams {
    fn new(window: u64) -> Self {
        let window = window.min(MAX_STREAMS);
        Self {
            opened: 0,
            accepted: 0,
            limit: window,
            window,
            closed: 0,
            update_pending: false,
            blocked: false,
            implied: None,
            implied_held: 0,
        }
    }

    /// The limit that could be told to the peer now. What it was told stays: a smaller window takes
    /// effect as streams end and no others are permitted (RFC 9000 §4.6).
    fn next_limit(&self) -> u64 {
        (self.closed + self.window).min(MAX_STREAMS).max(self.limit)
    }

    /// As many may be open at once from now on; more are permitted at once.
    fn set_window(&mut self, window: u64) {
        self.window = window.min(MAX_STREAMS);
        self.update_pending |= self.next_limit() > self.limit;
    }

    /// A new limit is told when an eighth of the window is free, or any of it to a blocked peer.
    fn consider_update(&mut self) {
        let threshold = if self.blocked {
            1
        } else {
            (self.window / 8).max(1)
        };
        if self.next_limit() - self.limit >= threshold {
            self.update_pending = true;
        }
    }

    /// Streams up to this one were opened, whose state is not made yet.
    fn imply(&mut self, index: u64) {
        let implied = self.implied.get_or_insert_default();
        implied.insert(self.opened..index + 1);
        self.opened = index + 1;
        self.note_held();
    }

    /// Whether the state of this stream is to be made: so far it was only implied.
    fn take_implied(&mut self, index: u64) -> bool {
        let Some(all) = self.implied.as_deref_mut() else {
            return false;
        };
        let implied = all.contains(index);
        if implied {
            all.remove(index..index + 1);
            self.note_held();
        }
        implied
    }

    fn trim(&mut self) {
        self.implied.take_if(|implied| implied.is_empty());
        if let Some(implied) = &mut self.implied {
            implied.trim();
        }
        self.note_held();
    }

    fn note_held(&mut self) {
        let held = |implied: &RangeSet| size_of::<RangeSet>() + implied.held();
        self.implied_held = self.implied.as_deref().map_or(0, held);
    }
}

/// Limits the peer gives each new stream for data we send.
#[derive(Debug, Default)]
struct PeerWindows {
    bidi_opened_by_us: u64,
    bidi_opened_by_peer: u64,
    uni: u64,
}

#[derive(Debug)]
pub(super) struct Limits {
    side: Side,
    local: [LocalStreams; 2],
    remote: [RemoteStreams; 2],
    peer_windows: PeerWindows,
}

impl Limits {
    pub(super) fn new(side: Side, config: &TransportConfig) -> Self {
        Self {
            side,
            local: Default::default(),
            remote: [
                RemoteStreams::new(config.max_concurrent_bidi_streams),
                RemoteStreams::new(config.max_concurrent_uni_streams),
            ],
            peer_windows: PeerWindows::default(),
        }
    }

    /// Limits from the peer's transport parameters.
    pub(super) fn set_peer_parameters(&mut self, p: &TransportParameters, events: &mut Events) {
        self.peer_windows = PeerWindows {
            bidi_opened_by_us: p.initial_max_stream_data_bidi_remote,
            bidi_opened_by_peer: p.initial_max_stream_data_bidi_local,
            uni: p.initial_max_stream_data_uni,
        };
        self.on_max_streams(Direction::Bidirectional, p.initial_max_streams_bidi, events);
        self.on_max_streams(Direction::Unidirectional, p.initial_max_streams_uni, events);
    }

    /// How many streams the peer may have open at once from now on.
    pub(super) fn set_max_concurrent(&mut self, dir: Direction, streams: u64) {
        self.remote[dir.index()].set_window(streams);
    }

    /// Bytes that may be sent on a new stream before the peer grants more.
    pub(super) fn send_window(&self, id: StreamId) -> u64 {
        match id.direction() {
            Direction::Unidirectional => self.peer_windows.uni,
            Direction::Bidirectional if id.initiator() == self.side => {
                self.peer_windows.bidi_opened_by_us
            }
            Direction::Bidirectional => self.peer_windows.bidi_opened_by_peer,
        }
    }

    /// Opens a stream of ours, unless the peer's limit forbids it.
    pub(super) fn open(&mut self, dir: Direction) -> Option<StreamId> {
        let local = &mut self.local[dir.index()];
        if local.next >= local.limit {
            local.refused = true;
            return None;
        }
        let id = StreamId::new(self.side, dir, local.next);
        local.next += 1;
        Some(id)
    }

    /// Streams that can be opened now.
    pub(super) fn openable(&self, dir: Direction) -> u64 {
        let local = &self.local[dir.index()];
        local.limit.saturating_sub(local.next)
    }

    /// More than [`Self::openable`] are wanted.
    pub(super) fn await_streams(&mut self, dir: Direction) {
        self.local[dir.index()].refused = true;
    }

    /// Streams of the peer's that wait to be accepted.
    pub(super) fn acceptable(&self, dir: Direction) -> u64 {
        let remote = &self.remote[dir.index()];
        remote.opened - remote.accepted
    }

    /// The next stream of the peer's, and whether its state is to be made.
    pub(super) fn accept(&mut self, dir: Direction) -> Option<(StreamId, bool)> {
        let remote = &mut self.remote[dir.index()];
        if remote.accepted >= remote.opened {
            return None;
        }
        let index = remote.accepted;
        remote.accepted += 1;
        let is_new = remote.take_implied(index);
        Some((StreamId::new(self.side.peer(), dir, index), is_new))
    }

    /// Checks a stream ID in a frame for our receiving (`true`) or sending half, and opens
    /// what it implies (RFC 9000 §2.1, §19.4, §19.5, §19.8, §19.10, §19.13). Returns whether the
    /// state of the stream is to be made.
    pub(super) fn admit(
        &mut self,
        id: StreamId,
        receiving: bool,
        events: &mut Events,
    ) -> Result<bool, Violation> {
        let state_error = |what| Err(Violation::new(TransportErrorCode::STREAM_STATE_ERROR, what));
        let dir = id.direction();
        if id.initiator() == self.side {
            if dir == Direction::Unidirectional && receiving {
                return state_error("frame for the receiving half of a send-only stream");
            }
            if id.index() >= self.local[dir.index()].next {
                return state_error("frame for a stream not yet created");
            }
            return Ok(false);
        }
        if dir == Direction::Unidirectional && !receiving {
            return state_error("frame for the sending half of a receive-only stream");
        }
        let remote = &mut self.remote[dir.index()];
        if id.index() >= remote.limit {
            return Err(Violation::new(
                TransportErrorCode::STREAM_LIMIT_ERROR,
                "opened more streams than permitted",
            ));
        }
        if id.index() >= remote.opened {
            if remote.accepted == remote.opened {
                events.push(Event::Opened(dir));
            }
            remote.imply(id.index());
        }
        Ok(remote.take_implied(id.index()))
    }

    /// Both halves of a stream are over: the peer may open another (RFC 9000 §4.6).
    pub(super) fn on_gone(&mut self, id: StreamId) {
        if id.initiator() == self.side {
            return;
        }
        let remote = &mut self.remote[id.direction().index()];
        remote.closed += 1;
        remote.consider_update();
    }

    pub(super) fn on_max_streams(&mut self, dir: Direction, max: u64, events: &mut Events) {
        let local = &mut self.local[dir.index()];
        if max > local.limit {
            local.limit = max;
            if std::mem::take(&mut local.refused) {
                events.push(Event::StreamsAvailable(dir));
            }
        }
    }

    /// STREAMS_BLOCKED (RFC 9000 §19.14): a few free streams are worth a MAX_STREAMS now.
    pub(super) fn on_streams_blocked(&mut self, dir: Direction, limit: u64) {
        let remote = &mut self.remote[dir.index()];
        if limit >= remote.limit {
            remote.blocked = true;
            remote.consider_update();
        }
    }

    pub(super) fn on_max_streams_lost(&mut self, dir: Direction) {
        self.remote[dir.index()].update_pending = true;
    }

    pub(super) fn on_streams_blocked_lost(&mut self, dir: Direction) {
        self.local[dir.index()].reported = None;
    }

    pub(super) fn has_pending(&self) -> bool {
        self.remote.iter().any(|r| r.update_pending)
            || self.local.iter().any(LocalStreams::owes_blocked)
    }

    pub(super) fn write_frames(&mut self, w: &mut PacketWriter<'_, '_>) {
        for dir in Direction::ALL {
            if w.remaining() < CONTROL_FRAME_ROOM {
                return;
            }
            let remote = &mut self.remote[dir.index()];
            if std::mem::take(&mut remote.update_pending) {
                remote.limit = remote.next_limit();
                remote.blocked = false;
                write_max_streams(w.w, dir, remote.limit);
                w.record(SentFrame::MaxStreams(dir));
            }
            let local = &mut self.local[dir.index()];
            if local.owes_blocked() && w.remaining() >= CONTROL_FRAME_ROOM {
                local.reported = Some(local.limit);
                write_streams_blocked(w.w, dir, local.limit);
                w.record(SentFrame::StreamsBlocked(dir));
            }
        }
    }

    /// Bytes of memory held.
    pub(super) fn held(&self) -> usize {
        self.remote.iter().map(|remote| remote.implied_held).sum()
    }

    /// Gives back unused memory.
    pub(super) fn trim(&mut self) {
        self.remote.iter_mut().for_each(RemoteStreams::trim);
    }

    /// Ranges of streams of the peer's that are only implied.
    #[cfg(test)]
    pub(super) fn implied(&self, dir: Direction) -> usize {
        self.remote[dir.index()]
            .implied
            .as_ref()
            .map_or(0, |implied| implied.len())
    }
}
