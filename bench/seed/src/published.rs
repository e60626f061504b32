//! What Freenet published of its transport: every number here is theirs, with its day.
//!
//! Sources: the benchmark documents in freenet-core's repository of the days named, and for
//! production the issues and pull requests named (github.com/freenet/freenet-core). All of their
//! benchmarks ran on an in-process mock network, on another machine (an M-series Mac on 2025-12-17).

/// "Week 0", before any congestion control: fixed 3 MB/s, connection set-up included.
pub(crate) const WEEK_0_DAY: &str = "2025-12-14";

/// Whole time in milliseconds of the shapes, by their names in `towline_lab::shapes`.
pub(crate) const WEEK_0: [(&str, f64); 7] = [
    ("streaming/throughput/4096", 244.0),
    ("streaming/throughput/16384", 244.0),
    ("streaming/throughput/65536", 270.0),
    ("concurrent/streams/2", 255.0),
    ("concurrent/streams/5", 252.0),
    ("concurrent/streams/10", 284.0),
    ("rate_limit/1mb_with_3mbps_limit", 297.0),
];

/// With LEDBAT, and after the central rate limiter and sendmmsg were removed (PR 2338).
pub(crate) const WARM_DAYS: [&str; 2] = ["2025-12-17", "2025-12-20"];

/// Connection set-up in milliseconds on those days.
pub(crate) const ESTABLISH_MS: [f64; 2] = [243.0, 252.0];

/// Sizes of a single message, bytes.
pub(crate) const MESSAGE_SIZES: [usize; 4] = [1 << 10, 4 << 10, 16 << 10, 32 << 10];

/// Mbit/s of a single message without delay, by size, on those days.
pub(crate) const MESSAGE_MBIT: [[f64; 4]; 2] =
    [[2.17, 3.11, 71.01, 39.00], [6.81, 9.74, 19.56, 30.25]];

/// The same at a round trip of 2 ms.
pub(crate) const MESSAGE_2_MS_MBIT: [[f64; 4]; 2] =
    [[3.15, 21.41, 25.72, 22.71], [1.79, 2.54, 3.31, 3.21]];

/// Mbit/s of a hundred messages of 1 KiB, one after the other; not published again.
pub(crate) const HUNDRED_MBIT: [Option<f64>; 2] = [Some(2.46), None];

/// Mbit/s of one connection that sends all it can for 2 s.
pub(crate) const SATURATION_MBIT: [f64; 2] = [13.22, 6.78];

/// Mbit/s of four connections together.
pub(crate) const FOUR_MBIT: [f64; 2] = [0.70, 1.07];

/// One transfer seen in production.
pub(crate) struct Production {
    /// Where it is written.
    pub(crate) source: &'static str,
    /// What they ran then.
    pub(crate) what: &'static str,
    /// Bytes.
    pub(crate) bytes: u64,
    /// Round trip, milliseconds.
    pub(crate) rtt_ms: u64,
    /// Shortest and longest time given, seconds.
    pub(crate) seconds: [f64; 2],
}

/// The transfers whose size, round trip and time are all given.
pub(crate) const PRODUCTION: [Production; 4] = [
    Production {
        source: "#2532",
        what: "LEDBAT++, a slowdown each round trip",
        bytes: 2_300_000,
        rtt_ms: 137,
        seconds: [30.0, 30.0],
    },
    Production {
        source: "#2578, #2604",
        what: "LEDBAT++, slow start threshold stuck",
        bytes: 2_300_000,
        rtt_ms: 135,
        seconds: [18.0, 22.0],
    },
    Production {
        source: "#2619",
        what: "LEDBAT++, window held by its application limit",
        bytes: 2_400_000,
        rtt_ms: 165,
        seconds: [33.0, 39.0],
    },
    Production {
        source: "#2632",
        what: "LEDBAT++ after the repairs, 30 timeouts",
        bytes: 2_400_000,
        rtt_ms: 162,
        seconds: [4.9, 4.9],
    },
];
