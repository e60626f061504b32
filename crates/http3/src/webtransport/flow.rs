//! [`Flow`]: the limits of one session (draft-ietf-webtrans-http3-16 §5).
//!
//! Our limits on the peer only grow: what the application has read, and the streams that are over,
//! make room for as much again.

use towline_wire::http3::{SettingId, Settings};
use towline_wire::{Direction, MAX_STREAMS};

use super::dialect::Dialect;

#[cfg(test)]
mod tests;

/// What an end set, and how much of it is used.
#[derive(Clone, Copy, Debug)]
struct Limit {
    max: u64,
    used: u64,
    /// Somebody waits for more.
    wanted: bool,
    /// The limit that the peer was told we wait at.
    told: Option<u64>,
}

/// What we permit, and how much may be in use at a time.
#[derive(Clone, Copy, Debug)]
struct Window {
    size: u64,
    max: u64,
    /// The peer has used so much.
    used: u64,
    /// And so much of it is done with.
    done: u64,
    /// `max` grew since the peer heard of it.
    unsent: bool,
    /// `max` grows no farther.
    most: u64,
    /// A peer at its limit gets at least so much more at a time.
    least: u64,
}

/// The limits of one session, those of the peer and ours.
#[derive(Debug)]
pub(crate) struct Flow {
    data: Limit,
    streams: [Limit; 2],
    recv_data: Window,
    recv_streams: [Window; 2],
    /// A limit may be said again (drafts 13 and 14, §5.6.2).
    repeats: bool,
}

/// A limit was overrun, or one did not grow: WT_FLOW_CONTROL_ERROR.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Breach(pub(crate) &'static str);

/// What a session tells its peer of limits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Tell {
    MaxData(u64),
    MaxStreams(Direction, u64),
    DataBlocked(u64),
    StreamsBlocked(Direction, u64),
}

impl Flow {
    /// As both ends' SETTINGS say; what one does not say is 0.
    pub(crate) fn new(dialect: Dialect, ours: &Settings, theirs: &Settings) -> Self {
        let streams = [
            SettingId::WT_INITIAL_MAX_STREAMS_BIDI,
            SettingId::WT_INITIAL_MAX_STREAMS_UNI,
        ];
        let value = |settings: &Settings, id| settings.get(id).unwrap_or(0);
        let data = value(ours, SettingId::WT_INITIAL_MAX_DATA);
        Self {
            data: Limit::new(value(theirs, SettingId::WT_INITIAL_MAX_DATA)),
            streams: streams.map(|id| Limit::new(value(theirs, id).min(MAX_STREAMS))),
            recv_data: Window::new(data, u64::MAX, data / 8),
            recv_streams: streams
                .map(|id| Window::new(value(ours, id).min(MAX_STREAMS), MAX_STREAMS, 1)),
            repeats: dialect < Dialect::Draft16,
        }
    }

    /// Bytes that may be sent now.
    pub(crate) fn send_credit(&self) -> u64 {
        self.data.left()
    }

    pub(crate) fn may_open(&self, direction: Direction) -> bool {
        self.streams[direction.index()].left() > 0
    }

    pub(crate) fn on_sent(&mut self, n: u64) {
        self.data.used = self.data.used.saturating_add(n);
    }

    /// Of what was written so much will not be sent: whether somebody has waited for it.
    pub(crate) fn on_unsent(&mut self, n: u64) -> bool {
        self.data.used = self.data.used.saturating_sub(n);
        n > 0 && std::mem::take(&mut self.data.wanted)
    }

    pub(crate) fn on_opened(&mut self, direction: Direction) {
        self.streams[direction.index()].used += 1;
    }

    /// Somebody waits for bytes.
    pub(crate) fn want_credit(&mut self) {
        self.data.wanted = true;
    }

    /// Somebody waits for a stream.
    pub(crate) fn want_stream(&mut self, direction: Direction) {
        self.streams[direction.index()].wanted = true;
    }

    /// WT_MAX_DATA came; whether somebody has waited for it.
    pub(crate) fn on_max_data(&mut self, max: u64) -> Result<bool, Breach> {
        self.data.raise(max, self.repeats)
    }

    /// WT_MAX_STREAMS came; whether somebody has waited for it.
    pub(crate) fn on_max_streams(
        &mut self,
        direction: Direction,
        max: u64,
    ) -> Result<bool, Breach> {
        self.streams[direction.index()].raise(max, self.repeats)
    }

    /// The peer sent bytes, read by somebody or not.
    pub(crate) fn on_received(&mut self, n: u64) -> Result<(), Breach> {
        let reason = "the peer sent more than the session's limit permits";
        self.recv_data.take(n).ok_or(Breach(reason))
    }

    /// The application read bytes, or they will never be read.
    pub(crate) fn on_read(&mut self, n: u64) {
        self.recv_data.give_back(n);
    }

    /// The peer opened a stream.
    pub(crate) fn on_stream(&mut self, direction: Direction) -> Result<(), Breach> {
        let reason = "the peer opened more streams than the session's limit permits";
        self.recv_streams[direction.index()]
            .take(1)
            .ok_or(Breach(reason))
    }

    /// A stream of the peer's is over.
    pub(crate) fn on_stream_over(&mut self, direction: Direction) {
        self.recv_streams[direction.index()].give_back(1);
    }

    /// The peer waits for bytes at this limit.
    pub(crate) fn on_data_blocked(&mut self, at: u64) {
        self.recv_data.on_blocked(at);
    }

    /// The peer waits for streams at this limit.
    pub(crate) fn on_streams_blocked(&mut self, direction: Direction, at: u64) {
        self.recv_streams[direction.index()].on_blocked(at);
    }

    /// The next thing to tell the peer.
    pub(crate) fn poll_tell(&mut self) -> Option<Tell> {
        if let Some(max) = self.recv_data.poll() {
            return Some(Tell::MaxData(max));
        }
        if let Some(max) = self.data.poll() {
            return Some(Tell::DataBlocked(max));
        }
        Direction::ALL.into_iter().find_map(|direction| {
            let index = direction.index();
            let more = self.recv_streams[index].poll();
            more.map(|max| Tell::MaxStreams(direction, max))
                .or_else(|| {
                    let blocked = self.streams[index].poll();
                    blocked.map(|max| Tell::StreamsBlocked(direction, max))
                })
        })
    }
}

impl Limit {
    fn new(max: u64) -> Self {
        Self {
            max,
            used: 0,
            wanted: false,
            told: None,
        }
    }

    fn left(&self) -> u64 {
        self.max.saturating_sub(self.used)
    }

    /// A capsule has to raise its limit (draft-ietf-webtrans-http3-16 §5.6.2, §5.6.4), or in older drafts
    /// not to lower it.
    fn raise(&mut self, max: u64, repeats: bool) -> Result<bool, Breach> {
        if repeats && max == self.max {
            return Ok(false);
        }
        if max <= self.max {
            return Err(Breach("a limit of the session did not grow"));
        }
        self.max = max;
        Ok(std::mem::take(&mut self.wanted))
    }

    /// The limit we wait at, if the peer was not told.
    fn poll(&mut self) -> Option<u64> {
        let new = self.wanted && self.left() == 0 && self.told != Some(self.max);
        new.then(|| {
            self.told = Some(self.max);
            self.max
        })
    }
}

impl Window {
    fn new(size: u64, most: u64, least: u64) -> Self {
        Self {
            size,
            max: size,
            used: 0,
            done: 0,
            unsent: false,
            most,
            least,
        }
    }

    fn take(&mut self, n: u64) -> Option<()> {
        self.used = self.used.saturating_add(n);
        let within = self.used <= self.max;
        self.raise(self.least);
        within.then_some(())
    }

    fn give_back(&mut self, n: u64) {
        self.done = self.done.saturating_add(n).min(self.used);
        self.raise(self.least);
    }

    /// The peer waits at this limit: it gets what there is, if it is the newest that it knows.
    fn on_blocked(&mut self, at: u64) {
        if at == self.max {
            self.raise_to(self.next(), 1);
        }
    }

    fn next(&self) -> u64 {
        self.done.saturating_add(self.size).min(self.most)
    }

    /// Half a window is given back at once, so that few capsules are needed; to a peer that has used
    /// all of it, `least`: what else it has sent may be in nobody's way for long.
    fn raise(&mut self, least: u64) {
        let half = self.max.saturating_sub(self.done) <= self.size / 2;
        if half {
            self.raise_to(self.next(), 1);
        } else if self.used >= self.max {
            self.raise_to(self.next(), least);
        }
    }

    fn raise_to(&mut self, next: u64, least: u64) {
        if next.saturating_sub(self.max) >= least.max(1) {
            self.max = next;
            self.unsent = true;
        }
    }

    fn poll(&mut self) -> Option<u64> {
        std::mem::take(&mut self.unsent).then_some(self.max)
    }
}
