//! The paths of a connection (RFC 9000 §8, §9): addresses, whether they are proven, how much may be
//! sent to them before that, challenges, and what recovery knows of each.
//!
//! Data takes the `active` path. `candidate` is probed or answered while data stays where it is; the
//! newest wins. `previous` is where the connection goes back to if the peer does not prove that it is
//! where its packets came from. Nothing else is kept of any address, however many a peer shows.
//! `migration` decides when a path takes another one's place.

mod amplification;
mod path;
mod responses;
mod validation;

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use towline_recovery::{DatagramSizes, PathId, PathState};
use towline_wire::{
    ConnectionId, PATH_CHALLENGE_LEN, PATH_RESPONSE_LEN, PING_LEN, PacketNumberSpace, Time, Writer,
    write_path_challenge, write_path_response, write_ping,
};

use super::component::PacketWriter;
use crate::crypto::path_challenge;
pub(crate) use path::Path;
use responses::Responses;
use validation::{LEAST_WAIT, Validation};

/// Which path a datagram came on, or a packet leaves on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Which {
    /// The path that data takes.
    Active,
    /// The one that is probed.
    Candidate,
    /// The one before, until the active one is validated.
    Previous,
}

/// What an answer to a challenge proved.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Proof {
    pub(crate) which: Which,
    /// The path is proven for the first time.
    pub(crate) first: bool,
}

/// How often what happened; they only grow.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PathCounters {
    /// Times that data took to another path.
    pub(crate) changes: u64,
    /// Paths whose other end proved that it is there.
    pub(crate) validated: u64,
    /// Paths whose other end did not.
    pub(crate) failed: u64,
}

/// The paths of one connection.
#[derive(Debug)]
pub(crate) struct Paths {
    active: Path,
    candidate: Option<Box<Path>>,
    previous: Option<Box<Path>>,
    /// The path of the datagram that is looked at; `None` for a new one of the peer's.
    arriving: Option<Which>,
    /// Challenges in packets that came on no path that is known.
    stray: Responses,
    /// What the peer's last packets were addressed to, where the socket tells it.
    received_at: Option<IpAddr>,
    /// Nobody answered where the peer seemed to have moved: the next address is to prove itself
    /// before data goes there.
    distrusts: bool,
    newest: PathId,
    /// The connection ID of ours that the peer's latest packets on the active path had.
    dcid: ConnectionId,
    /// When an answer last left although the window was full.
    answered_alone: Option<Time>,
    /// A client moved to the address that the server prefers.
    preferred: bool,
    /// What challenges are made from, and how many there were.
    key: u64,
    challenges: u64,
    pub(crate) counters: PathCounters,
}

impl Paths {
    /// Of a new connection, whose first path is `state`'s. Nobody else may know `key`, from which
    /// challenges are made.
    pub(crate) fn new(
        state: PathState,
        remote: SocketAddr,
        local_ip: Option<IpAddr>,
        validated: bool,
        key: u64,
    ) -> Self {
        let mut active = Path::new(state, remote, local_ip, 0, !validated);
        // The handshake proves it, or there is no connection.
        active.proven = true;
        Self {
            newest: active.state.id(),
            active,
            dcid: ConnectionId::EMPTY,
            answered_alone: None,
            preferred: false,
            key,
            challenges: 0,
            candidate: None,
            previous: None,
            arriving: Some(Which::Active),
            stray: Responses::default(),
            received_at: local_ip,
            distrusts: false,
            counters: PathCounters::default(),
        }
    }

    /// What recovery knows of the path that data takes.
    #[inline]
    pub(crate) fn state(&self) -> &PathState {
        &self.active.state
    }

    #[inline]
    pub(crate) fn state_mut(&mut self) -> &mut PathState {
        &mut self.active.state
    }

    /// The path that data takes.
    pub(crate) fn active(&self) -> &Path {
        &self.active
    }

    /// The connection ID under which data goes, by its sequence number.
    pub(crate) fn set_active_cid(&mut self, cid: u64) {
        self.active.cid = cid;
    }

    pub(crate) fn get(&self, which: Which) -> Option<&Path> {
        match which {
            Which::Active => Some(&self.active),
            Which::Candidate => self.candidate.as_deref(),
            Which::Previous => self.previous.as_deref(),
        }
    }

    pub(crate) fn get_mut(&mut self, which: Which) -> Option<&mut Path> {
        match which {
            Which::Active => Some(&mut self.active),
            Which::Candidate => self.candidate.as_deref_mut(),
            Which::Previous => self.previous.as_deref_mut(),
        }
    }

    /// Where packets go that belong to no other path.
    pub(crate) fn remote(&self) -> SocketAddr {
        self.active.remote()
    }

    pub(crate) fn local_ip(&self) -> Option<IpAddr> {
        self.active.local_ip()
    }

    /// Bytes that may be sent before the address is proven; `u64::MAX` after.
    #[inline]
    pub(crate) fn budget(&self) -> u64 {
        self.active.budget()
    }

    /// Bytes were sent on the path that data takes.
    #[inline]
    pub(crate) fn on_sent(&mut self, bytes: usize) {
        self.active.amplification.on_sent(bytes);
    }

    /// The address that data goes to is proven, otherwise than by a challenge.
    pub(crate) fn validate(&mut self) {
        self.active.amplification.validate();
    }

    // ---- input ----

    /// Which path a datagram from `remote` to `local_ip` came on, if it is one that is known.
    #[inline]
    pub(crate) fn find(&self, remote: SocketAddr, local_ip: Option<IpAddr>) -> Option<Which> {
        if self.active.is_between(remote, local_ip) && self.candidate.is_none() {
            return Some(Which::Active);
        }
        // One that names its own address comes before one that leaves it to the system.
        let paths = [Which::Active, Which::Candidate, Which::Previous];
        let known = paths.map(|which| (which, self.get(which)));
        let is_exact = |path: &Path| path.remote() == remote && path.local_ip() == local_ip;
        let exact = known.iter().find(|(_, path)| path.is_some_and(is_exact));
        let matches = |path: &Path| path.is_between(remote, local_ip);
        let any = || known.iter().find(|(_, path)| path.is_some_and(matches));
        exact.or_else(any).map(|(which, _)| *which)
    }

    /// Datagrams of so many bytes came on the path that data takes.
    #[inline]
    pub(crate) fn on_received(&mut self, bytes: usize, dcid: &ConnectionId) {
        self.active.amplification.on_received(bytes);
        if self.dcid != *dcid {
            self.dcid = *dcid;
        }
    }

    /// Whether the peer uses the connection ID of ours that it used before.
    pub(crate) fn is_addressed_as_before(&self, dcid: &ConnectionId) -> bool {
        self.dcid == *dcid
    }

    /// The peer's packets on the path that data takes now have this connection ID of ours.
    pub(crate) fn note_dcid(&mut self, dcid: &ConnectionId) {
        self.dcid = *dcid;
    }

    /// The datagram that is looked at came on this path, on a new one if it is `None`.
    pub(crate) fn set_arriving(&mut self, which: Option<Which>) {
        self.arriving = which;
        self.stray = Responses::default();
    }

    /// Whether the datagram that is looked at came on another path than data takes.
    #[inline]
    pub(crate) fn is_arriving_elsewhere(&self) -> bool {
        self.arriving != Some(Which::Active)
    }

    /// The local address of the peer's last packets, where it is known.
    pub(crate) fn received_at(&self) -> Option<IpAddr> {
        self.received_at
    }

    /// Authentic packets came, addressed to this address of ours.
    pub(crate) fn on_received_at(&mut self, local_ip: Option<IpAddr>) {
        if local_ip.is_some() {
            self.received_at = local_ip;
        }
    }

    /// An authentic datagram of so many bytes came on `which`.
    pub(crate) fn on_authentic(&mut self, which: Which, bytes: usize) {
        if let Some(path) = self.get_mut(which) {
            path.amplification.on_received(bytes);
        }
    }

    /// The peer asks on a path that nothing is known of.
    pub(crate) fn has_stray_challenge(&self) -> bool {
        !self.stray.is_empty()
    }

    /// A challenge is answered on the path it came on (RFC 9000 §8.2.2, §19.17).
    pub(crate) fn on_path_challenge(&mut self, now: Time, data: [u8; 8]) {
        let arriving = self.arriving;
        match (arriving, arriving.and_then(|which| self.get_mut(which))) {
            (Some(Which::Active), Some(path)) => path.responses.push(data),
            (_, Some(path)) => path.on_challenged_beside(now, data),
            (_, None) => self.stray.push(data),
        }
    }

    /// An answer proves the path that its challenge was sent on, whichever it came back on (RFC 9000
    /// §8.2.3, §19.18). `None` for an answer to nothing.
    pub(crate) fn on_path_response(&mut self, now: Time, data: [u8; 8]) -> Option<Proof> {
        let paths = [Which::Active, Which::Candidate, Which::Previous];
        let answered = paths.into_iter().find_map(|which| {
            let validation = self.get(which)?.validation.as_ref()?;
            let round_trip = validation.answered(now, data)?;
            Some((which, round_trip, validation.was_full()))
        });
        let (which, round_trip, was_full) = answered?;
        let path = self.get_mut(which)?;
        let first = !std::mem::replace(&mut path.proven, true);
        path.amplification.validate();
        path.validation = None;
        if let Some(round_trip) = round_trip {
            path.state.seed_rtt(round_trip);
        }
        if !was_full {
            // Whether it carries datagrams of 1200 bytes is still to be shown (RFC 9000 §8.2.1).
            let pto = path.state.pto(PacketNumberSpace::Application);
            path.challenge(now, pto);
        }
        self.counters.validated += u64::from(first);
        Some(Proof { which, first })
    }

    // ---- output ----

    pub(crate) fn has_pending(&self) -> bool {
        !self.active.responses.is_empty()
    }

    /// One PATH_RESPONSE a packet, in a full-sized datagram so that the peer learns whether the
    /// path carries one (RFC 9000 §8.2.2); never retransmitted (§13.3). The PING shows a peer that
    /// somebody copies our packets where we are (RFC 9000 §9.3.3).
    pub(crate) fn write_frames(&mut self, w: &mut PacketWriter<'_, '_>) {
        if w.remaining() >= PATH_RESPONSE_LEN + PING_LEN
            && let Some(data) = self.active.responses.pop()
        {
            write_path_response(w.w, data);
            write_ping(w.w);
            w.mark_ack_eliciting();
            w.expand_datagram = true;
        }
    }

    /// A path on which a challenge is due, or an answer where no data goes.
    pub(crate) fn next_probe(&self) -> Option<Which> {
        let paths = [Which::Active, Which::Candidate, Which::Previous];
        paths.into_iter().find(|which| {
            self.get(*which).is_some_and(|path| {
                path.has_probe(*which == Which::Active) && path.budget() >= LEAST_PROBE
            })
        })
    }

    /// Whether `next_probe` may find one: what every turn asks.
    #[inline]
    pub(crate) fn has_probe(&self) -> bool {
        let quiet =
            self.active.validation.is_none() && self.candidate.is_none() && self.previous.is_none();
        !quiet && self.next_probe().is_some()
    }

    /// Whether an answer on the path that data takes may leave although nothing else can. What fills
    /// the window may be lost for as long as the peer does not know where we are, which only the
    /// answer tells it; so one goes beyond it now and then.
    pub(crate) fn may_answer_alone(&mut self, now: Time) -> bool {
        let rested = self
            .answered_alone
            .is_none_or(|at| now.saturating_duration_since(at) >= LEAST_WAIT);
        let may = rested && self.has_pending() && self.budget() >= LEAST_PROBE;
        if may {
            self.answered_alone = Some(now);
        }
        may
    }

    /// What is due on a path: an answer, and a challenge, which is returned; nobody
    /// can guess it (RFC 9000 §8.2.1).
    pub(crate) fn write_probe(&mut self, which: Which, w: &mut Writer<'_>) -> Option<[u8; 8]> {
        let active = which == Which::Active;
        let (challenges, key) = (self.challenges + 1, self.key);
        let path = self.get_mut(which)?;
        if w.remaining() >= PATH_RESPONSE_LEN
            && let Some(data) = path.responses.pop()
        {
            write_path_response(w, data);
        }
        let is_due = path.validation.as_deref().is_some_and(Validation::is_due);
        let challenge = (is_due && w.remaining() >= PATH_CHALLENGE_LEN)
            .then(|| path_challenge(key, challenges));
        if let Some(data) = challenge {
            self.challenges = challenges;
            write_path_challenge(w, data);
        }
        if active && w.remaining() > 0 {
            // Data goes here: the peer is to see that.
            write_ping(w);
        }
        challenge
    }

    /// A probe of so many bytes was sent on a path, with a challenge or without.
    pub(crate) fn on_probe_sent(
        &mut self,
        now: Time,
        which: Which,
        challenge: Option<[u8; 8]>,
        bytes: usize,
    ) {
        let Some(path) = self.get_mut(which) else {
            return;
        };
        path.amplification.on_sent(bytes);
        if challenge.is_some() {
            path.asked = Some(now);
        }
        if let (Some(data), Some(validation)) = (challenge, &mut path.validation) {
            validation.on_sent(now, data, bytes >= FULL_PROBE);
        }
    }

    // ---- time ----

    /// The next deadline of a validation.
    #[inline]
    pub(crate) fn next_timeout(&self) -> Option<Time> {
        let others = [self.candidate.as_deref(), self.previous.as_deref()];
        let paths = others.into_iter().flatten().chain([&self.active]);
        paths
            .filter_map(|path| path.validation.as_deref())
            .map(Validation::deadline)
            .min()
    }

    /// Deadlines that have passed: the paths that did not answer in time.
    pub(crate) fn on_timeout(&mut self, now: Time) -> [Option<Which>; 3] {
        [Which::Active, Which::Candidate, Which::Previous].map(|which| {
            let path = self.get_mut(which)?;
            let silent = path.validation.as_mut()?.on_timeout(now);
            if silent {
                path.validation = None;
            }
            silent.then_some(which)
        })
    }

    // ---- change ----

    /// A path of which nothing is known: the peer was seen on it (`follows`), or we try it. `sizes` are
    /// those of datagrams to `remote`.
    pub(crate) fn make(
        &mut self,
        remote: SocketAddr,
        local_ip: Option<IpAddr>,
        cid: u64,
        follows: bool,
        sizes: DatagramSizes,
    ) -> Path {
        self.newest = self.newest.next();
        let state = self.active.state.beside(self.newest, sizes);
        Path::new(state, remote, local_ip, cid, follows)
    }

    /// Tries `path` while data stays where it is. What the peer asked there is answered. Returns the
    /// one that was tried before, and is no more.
    pub(crate) fn try_path(&mut self, mut path: Path) -> Option<Box<Path>> {
        std::mem::swap(&mut path.responses, &mut self.stray);
        self.stray = Responses::default();
        self.candidate.replace(Box::new(path))
    }

    /// Gives the candidate up.
    pub(crate) fn drop_candidate(&mut self) -> Option<Box<Path>> {
        self.candidate.take()
    }

    pub(crate) fn drop_previous(&mut self) -> Option<Box<Path>> {
        self.previous.take()
    }

    /// Data takes `next` from now on. The round trip and the window begin anew, unless only a port
    /// changed (RFC 9000 §9.4). Returns the path that it took so far.
    pub(crate) fn replace_active(&mut self, now: Time, mut next: Path) -> Path {
        if next.differs_in_port_only(&self.active) {
            std::mem::swap(&mut next.state, &mut self.active.state);
        } else {
            next.state.take_over(now, &mut self.active.state);
        }
        self.preferred |= next.is_to_another_server_address(&self.active);
        self.counters.changes += 1;
        std::mem::replace(&mut self.active, next)
    }

    /// Answers to what the peer asked on the path that data now takes.
    pub(crate) fn adopt_stray(&mut self) {
        while let Some(data) = self.stray.pop() {
            self.active.responses.push(data);
        }
    }

    /// Where to go back to, while the active path is not proven. Returns what was kept before.
    pub(crate) fn keep_previous(&mut self, path: Path) -> Option<Box<Path>> {
        self.previous.replace(Box::new(path))
    }

    /// A client left a path for a proven one. Packets that the server sent from an address it had
    /// may still be under way (RFC 9000 §9.6.2), and what it asks there is answered.
    pub(crate) fn leave(&mut self, mut path: Path) {
        if self.active.is_to_another_server_address(&path) {
            path.validation = None;
            self.previous = Some(Box::new(path));
        }
    }

    /// A path is left before it was proven. What recovery knew of the way there is what it knew of the
    /// previous one, where they differ in a port only.
    pub(crate) fn drop_unproven(&mut self, mut path: Path) {
        if let Some(previous) = &mut self.previous
            && path.differs_in_port_only(previous)
        {
            std::mem::swap(&mut previous.state, &mut path.state);
        }
    }

    /// Whether one of the paths uses a connection ID of the peer's.
    pub(crate) fn uses_cid(&self, cid: u64) -> bool {
        let others = [self.candidate.as_deref(), self.previous.as_deref()];
        let mut paths = others.into_iter().flatten().chain([&self.active]);
        paths.any(|path| path.cid == cid)
    }

    /// Whether a client is where the server wants it: what forbade it to move does not hold there
    /// (RFC 9000 §18.2).
    pub(crate) fn is_at_preferred_address(&self) -> bool {
        self.preferred
    }

    pub(crate) fn is_proven(&self, which: Which) -> bool {
        self.get(which).is_some_and(Path::is_proven)
    }

    /// Whether the peer's next address is to prove itself before data goes there.
    pub(crate) fn set_distrust(&mut self, distrusts: bool) {
        self.distrusts = distrusts;
    }

    pub(crate) fn is_distrusting(&self) -> bool {
        self.distrusts
    }

    /// Bytes of memory held for paths that data does not take.
    pub(crate) fn held(&self) -> usize {
        let others = [&self.candidate, &self.previous];
        others.into_iter().flatten().count() * size_of::<Path>()
    }

    /// The peer is to prove that it is on `path`, which it was seen on. While it has not proved the one
    /// in use, moving on gains no time: else one who copies packets from many addresses could keep
    /// data from the peer for ever.
    pub(crate) fn challenge_next(&self, now: Time, path: &mut Path) {
        let pto = self.validation_pto();
        let pending = self.active.validation.as_ref();
        match pending.filter(|_| !self.active.proven) {
            Some(pending) => path.challenge_until(now, pto, pending.gives_up()),
            None => path.challenge(now, pto),
        }
    }

    /// The longer of two timeouts: that of the path in use, and that of a new one (RFC 9000 §8.2.4).
    pub(crate) fn validation_pto(&self) -> Duration {
        self.active.state.pto(PacketNumberSpace::Application)
    }
}

/// Bytes that a probe takes at least: a short header with the longest connection ID and number, an
/// answer, a challenge and the tag.
pub(crate) const LEAST_PROBE: u64 = 1 + 20 + 4 + 9 + 9 + 16;

/// A probe of so many bytes shows that the path carries what QUIC needs (RFC 9000 §8.2.1).
pub(crate) const FULL_PROBE: usize = 1200;
