//! The cases: what is measured, of which stacks, in which setting.
//!
//! A case without a setting is one with every stack's own defaults.

use std::fmt;

use bench_contract::sessions::SessionMeasure;
use bench_runner::figures;
use clap::ValueEnum;

/// Rounds of a run that counts.
pub(crate) const ROUNDS: u32 = 5;
/// Of the stacks that take longest, and of what is only shown.
pub(crate) const FEW_ROUNDS: u32 = 3;
/// The setting in which a server permits many streams.
pub(crate) const MANY_STREAMS: &str = "20000 permitted streams";
/// The setting in which all streams of [`SessionMeasure::Mux`] can be open at once.
pub(crate) const ALL_AT_ONCE: &str = "1100 permitted streams";
/// The setting in which ours in Python runs on the loop that comes with Python, not on uvloop.
pub(crate) const OWN_LOOP: &str = "asyncio's own loop";

/// A measured stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Stack {
    /// This project, by its public API
    Towline,
    /// Rust, on quinn
    Wtransport,
    /// This project's Python package
    TowlinePython,
    /// Python over Rust, on quinn
    #[value(name = "pywebtransport-0.21.1")]
    Pywebtransport021,
    /// Python, on aioquic
    #[value(name = "pywebtransport-0.9.0")]
    Pywebtransport09,
    /// Python over Rust, on quinn
    WebTransportQuinn,
    /// Python
    Aioquic,
}

impl Stack {
    /// Those in Python, ours first.
    pub(crate) const PYTHON: [Self; 5] = [
        Self::TowlinePython,
        Self::Pywebtransport021,
        Self::Pywebtransport09,
        Self::WebTransportQuinn,
        Self::Aioquic,
    ];
    const RUST: [Self; 2] = [Self::Towline, Self::Wtransport];

    /// Asked for less, so that the run ends in time.
    fn is_slow(self) -> bool {
        matches!(self, Self::Aioquic | Self::Pywebtransport09)
    }
}

impl figures::Stack for Stack {
    fn name(self) -> &'static str {
        match self {
            Self::Towline => "towline",
            Self::Wtransport => "wtransport",
            Self::TowlinePython => "towline-python",
            Self::Pywebtransport021 => "pywebtransport-0.21.1",
            Self::Pywebtransport09 => "pywebtransport-0.9.0",
            Self::WebTransportQuinn => "web-transport-quinn",
            Self::Aioquic => "aioquic",
        }
    }
}

impl fmt::Display for Stack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(figures::Stack::name(*self))
    }
}

/// How much a stack is asked to do in one run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Load {
    pub(crate) sessions: u64,
    pub(crate) streams: u64,
    pub(crate) count: u64,
    pub(crate) seconds: u64,
}

/// What one run is asked to do.
#[derive(Clone, Debug)]
pub(crate) struct Case {
    /// Of `--only`.
    pub(crate) name: &'static str,
    /// The names of its results, and their units.
    pub(crate) results: &'static [(&'static str, &'static str)],
    /// What differs from the defaults.
    pub(crate) setting: Option<&'static str>,
    pub(crate) measure: SessionMeasure,
    pub(crate) stacks: Vec<Stack>,
    /// Bytes of each stream, a way.
    pub(crate) bytes: u64,
    load: Load,
    /// Of the slow stacks.
    slow: Load,
    pub(crate) permitted_streams: Option<u32>,
    /// AES-128-GCM for all.
    pub(crate) aes128: bool,
    /// On Python's own loop, not uvloop.
    pub(crate) own_loop: bool,
    /// Not more rounds than this.
    most_rounds: u32,
}

impl Case {
    pub(crate) fn load(&self, stack: Stack) -> Load {
        match stack.is_slow() {
            true => self.slow,
            false => self.load,
        }
    }
}

impl figures::Case for Case {
    type Stack = Stack;

    fn name(&self) -> &'static str {
        self.name
    }

    fn setting(&self) -> Option<&str> {
        self.setting
    }

    fn results(&self) -> &'static [(&'static str, &'static str)] {
        self.results
    }

    fn stacks(&self) -> &[Stack] {
        &self.stacks
    }

    fn keep(&mut self, kept: &[Stack]) {
        self.stacks.retain(|stack| kept.contains(stack));
    }

    fn rounds(&self, stack: Stack, wanted: u32) -> u32 {
        let wanted = wanted.min(self.most_rounds);
        match stack.is_slow() {
            true => wanted.min(FEW_ROUNDS),
            false => wanted,
        }
    }
}

/// What the runs of this comparison gave.
pub(crate) type Figures = figures::Figures<Case>;

/// Every case, in the order of running.
pub(crate) fn cases(quick: bool) -> Vec<Case> {
    let mut cases = transfers();
    cases.extend(round_trips());
    cases.extend(rates());
    let plain = cases.iter().filter(|case| case.setting.is_none());
    let own_loop: Vec<_> = plain.map(Case::on_own_loop).collect();
    cases.extend(own_loop);
    if quick {
        cases.iter_mut().for_each(shrink);
    }
    cases
}

fn case(
    name: &'static str,
    results: &'static [(&'static str, &'static str)],
    measure: SessionMeasure,
) -> Case {
    let load = Load {
        sessions: 1,
        streams: 1,
        count: 1,
        seconds: 1,
    };
    Case {
        name,
        results,
        setting: None,
        measure,
        stacks: [&Stack::RUST[..], &Stack::PYTHON].concat(),
        bytes: 0,
        load,
        slow: load,
        permitted_streams: None,
        aes128: false,
        own_loop: false,
        most_rounds: u32::MAX,
    }
}

impl Case {
    /// So many sessions with so many streams of so many bytes; of slow stacks fewer.
    fn streams(
        mut self,
        bytes: u64,
        [sessions, slow_sessions]: [u64; 2],
        streams: [u64; 2],
    ) -> Self {
        self.bytes = bytes;
        (self.load.sessions, self.slow.sessions) = (sessions, slow_sessions);
        [self.load.streams, self.slow.streams] = streams;
        self
    }

    /// So many connections, exchanges or datagrams; of slow stacks fewer.
    fn count(mut self, bytes: u64, [count, slow_count]: [u64; 2]) -> Self {
        self.bytes = bytes;
        (self.load.count, self.slow.count) = (count, slow_count);
        self
    }

    /// Beside the case with the defaults, of the stacks in Rust alone.
    fn with(mut self, setting: &'static str, change: impl FnOnce(&mut Self)) -> Self {
        self.setting = Some(setting);
        self.stacks = Stack::RUST.to_vec();
        change(&mut self);
        self
    }

    /// The same of ours in Python, on the other loop.
    fn on_own_loop(&self) -> Self {
        Self {
            setting: Some(OWN_LOOP),
            stacks: vec![Stack::TowlinePython],
            own_loop: true,
            most_rounds: FEW_ROUNDS,
            ..self.clone()
        }
    }
}

/// Bytes of a stream of the transfers in turn: 1 MB.
const MEGABYTE: u64 = 1_000_000;
/// Bytes of a stream of the transfers at once: 64 KB.
const SMALL: u64 = 65_536;

fn transfers() -> Vec<Case> {
    let ten =
        |name, results, measure| case(name, results, measure).streams(MEGABYTE, [20, 1], [10, 10]);
    let upload = || ten("upload", &[("upload_mb_s", "MB/s")], SessionMeasure::Upload);
    let download = || {
        ten(
            "download",
            &[("download_mb_s", "MB/s")],
            SessionMeasure::Download,
        )
    };
    let mux = || {
        let mux = case("mux", &[("mux_mb_s", "MB/s")], SessionMeasure::Mux);
        mux.streams(SMALL, [4, 1], [1000, 100])
    };
    let aes128 = |case: &mut Case| {
        case.aes128 = true;
        case.most_rounds = FEW_ROUNDS;
    };
    vec![
        upload(),
        download(),
        ten("duplex", &[("duplex_mb_s", "MB/s")], SessionMeasure::Duplex),
        mux(),
        mux().with(ALL_AT_ONCE, |case| case.permitted_streams = Some(1100)),
        upload().with("AES-128-GCM", aes128),
        download().with("AES-128-GCM", aes128),
    ]
}

fn round_trips() -> Vec<Case> {
    const HANDSHAKES: &[(&str, &str)] = &[("handshake_ms", "ms"), ("connections_per_s", "1/s")];
    let handshakes =
        || case("handshakes", HANDSHAKES, SessionMeasure::Handshakes).count(0, [500, 100]);
    let cold =
        |name, results, bytes| case(name, results, SessionMeasure::Cold).count(bytes, [300, 60]);
    let warm = |name, results, bytes| {
        case(name, results, SessionMeasure::Exchanges).count(bytes, [5000, 1000])
    };
    vec![
        handshakes(),
        handshakes().with(MANY_STREAMS, |case| case.permitted_streams = Some(20_000)),
        cold("cold64", &[("rr64_cold_ms", "ms")], 64),
        cold("cold1k", &[("rr1k_cold_ms", "ms")], 1024),
        warm("exchange64", &[("rr64_ms", "ms")], 64),
        warm("exchange1k", &[("rr1k_ms", "ms")], 1024),
        case(
            "datagram_rtt",
            &[("datagram_rtt_ms", "ms")],
            SessionMeasure::Echo,
        )
        .count(0, [5000, 1000]),
    ]
}

fn rates() -> Vec<Case> {
    let idle = || {
        let idle = case("idle", &[("idle_kb", "KB")], SessionMeasure::Idle);
        idle.streams(0, [500, 300], [0, 0])
    };
    let mut datagrams = case(
        "datagrams",
        &[("datagrams_per_s", "1/s")],
        SessionMeasure::Datagrams,
    );
    datagrams.load.seconds = 10;
    datagrams.slow.seconds = 10;
    vec![
        datagrams,
        idle(),
        idle().with(MANY_STREAMS, |case| case.permitted_streams = Some(20_000)),
    ]
}

/// Sizes for a look at whether everything works.
fn shrink(case: &mut Case) {
    for load in [&mut case.load, &mut case.slow] {
        load.sessions = load.sessions.div_ceil(4);
        load.count = load.count.div_ceil(5);
        load.seconds = load.seconds.min(2);
    }
}

#[cfg(test)]
mod tests;
