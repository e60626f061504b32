//! The cases: what is measured, of which stacks, in which setting.
//!
//! A case without a setting is the one its marks are about; the others are shown beside it.

use std::fmt;

use bench_contract::{Aead, Measure};
use bench_runner::figures;
use clap::ValueEnum;

/// Rounds of a run that counts.
pub(crate) const ROUNDS: u32 = 5;

/// A measured stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub(crate) enum Stack {
    Towline,
    Quinn,
    S2nQuic,
    QuicGo,
    /// Raw UDP with offloads and packet protection, and no protocol
    Floor,
    /// TLS 1.3 over TCP, by rustls
    Tls,
}

impl figures::Stack for Stack {
    fn name(self) -> &'static str {
        match self {
            Stack::Towline => "towline",
            Stack::Quinn => "quinn",
            Stack::S2nQuic => "s2n-quic",
            Stack::QuicGo => "quic-go",
            Stack::Floor => "floor",
            Stack::Tls => "tls",
        }
    }
}

impl fmt::Display for Stack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(figures::Stack::name(*self))
    }
}

/// Where the two processes may run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Placement {
    /// The server on the first core, the client on the second.
    Apart,
    /// Both on the first core.
    OneCore,
    /// Wherever the scheduler likes.
    Free,
}

/// Through what ours is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// `towline perf`, as it is shipped.
    Cli,
    /// The driver over the public API, as for the peers.
    Api,
    /// The same with an allocator that counts.
    Counting,
}

/// What one run is asked to do.
#[derive(Clone, Debug)]
pub(crate) struct Case {
    /// Of `--only`.
    pub(crate) name: &'static str,
    /// The names of its results, and their units.
    pub(crate) results: &'static [(&'static str, &'static str)],
    /// What differs from the case that is judged.
    pub(crate) setting: Option<String>,
    pub(crate) measure: Measure,
    pub(crate) stacks: Vec<Stack>,
    pub(crate) placement: Placement,
    pub(crate) way: Way,
    pub(crate) bytes: u64,
    pub(crate) upload: bool,
    pub(crate) streams: u64,
    pub(crate) connections: u64,
    pub(crate) count: u64,
    pub(crate) seconds: u64,
    /// UDP payload of all packets; `None` leaves it to the stack.
    pub(crate) mtu: Option<u16>,
    /// Between two namespaces, not over the loopback device.
    pub(crate) over_veth: bool,
    pub(crate) cipher: Aead,
    pub(crate) idle_timeout: Option<u64>,
    pub(crate) permitted_streams: Option<u32>,
    /// Not more rounds than this.
    pub(crate) most_rounds: u32,
}

const BULK: &[(&str, &str)] = &[("bulk_s_per_gb", "s/GB")];
const BULK_DEFAULT: &[(&str, &str)] = &[("bulk_default_s_per_gb", "s/GB")];
const HANDSHAKES: &[(&str, &str)] = &[("handshakes_per_s", "1/s"), ("handshake_server_us", "us")];
const ECHO: &[(&str, &str)] = &[("echo64_p50_us", "us"), ("echo64_p99_us", "us")];
const IDLE: &[(&str, &str)] = &[("idle_kib", "KiB")];
const ALLOCATIONS: &[(&str, &str)] = &[("allocs_per_packet", "1")];
const DATAGRAMS: &[(&str, &str)] = &[("datagrams_per_s", "1/s")];
const MANY: &[(&str, &str)] = &[("many_us_per_packet", "us")];

/// Silence that does not end a connection while thousands are opened.
const LONG_SILENCE: u64 = 900;

impl Case {
    fn new(
        name: &'static str,
        results: &'static [(&'static str, &'static str)],
        measure: Measure,
        stacks: &[Stack],
    ) -> Self {
        Self {
            name,
            results,
            setting: None,
            measure,
            stacks: stacks.to_vec(),
            placement: Placement::Apart,
            way: Way::Api,
            bytes: 1 << 30,
            upload: false,
            streams: 1,
            connections: 1,
            count: 1,
            seconds: 10,
            mtu: Some(1472),
            over_veth: false,
            cipher: Aead::default(),
            idle_timeout: None,
            permitted_streams: None,
            most_rounds: u32::MAX,
        }
    }

    fn setting(mut self, setting: impl Into<String>) -> Self {
        self.setting = Some(setting.into());
        self
    }
}

impl figures::Case for Case {
    type Stack = Stack;

    fn name(&self) -> &'static str {
        self.name
    }

    fn setting(&self) -> Option<&str> {
        self.setting.as_deref()
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

    fn rounds(&self, _: Stack, wanted: u32) -> u32 {
        wanted.min(self.most_rounds)
    }

    fn is_named(&self, name: &str) -> bool {
        self.name == name
            || (self.name != "matrix" && self.results.iter().any(|(result, _)| *result == name))
    }
}

/// What the runs of this comparison gave.
pub(crate) type Figures = figures::Figures<Case>;

/// Every case, in the order of running.
pub(crate) fn cases(quick: bool, soak: bool) -> Vec<Case> {
    use Stack::{Floor, QuicGo, Quinn, S2nQuic, Tls, Towline};
    let mut cases = vec![
        Case {
            way: Way::Cli,
            ..Case::new(
                "bulk",
                BULK,
                Measure::Bulk,
                &[Towline, Quinn, S2nQuic, Floor, QuicGo],
            )
        },
        Case {
            way: Way::Cli,
            upload: true,
            ..Case::new(
                "bulk",
                BULK,
                Measure::Bulk,
                &[Towline, Quinn, S2nQuic, QuicGo],
            )
        }
        .setting("upload"),
        Case {
            way: Way::Cli,
            mtu: None,
            over_veth: true,
            ..Case::new(
                "bulk_default",
                BULK_DEFAULT,
                Measure::Bulk,
                &[Towline, Quinn, S2nQuic, QuicGo],
            )
        },
        Case {
            way: Way::Counting,
            ..Case::new("allocs", ALLOCATIONS, Measure::Bulk, &[Towline, Quinn])
        },
        Case {
            count: 8000,
            ..Case::new(
                "handshakes",
                HANDSHAKES,
                Measure::Handshakes,
                &[Towline, Quinn, S2nQuic, QuicGo],
            )
        },
        Case {
            count: 200_000,
            ..Case::new(
                "echo",
                ECHO,
                Measure::Echo,
                &[Towline, Quinn, S2nQuic, QuicGo, Tls],
            )
        },
        Case {
            count: 200_000,
            placement: Placement::Free,
            most_rounds: 2,
            ..Case::new(
                "echo",
                ECHO,
                Measure::Echo,
                &[Towline, Quinn, S2nQuic, QuicGo, Tls],
            )
        }
        .setting("unpinned"),
        Case {
            connections: 2000,
            seconds: 1,
            idle_timeout: Some(LONG_SILENCE),
            ..Case::new("idle", IDLE, Measure::Idle, &[Towline, Quinn, S2nQuic])
        },
        // Fewer connections: quinn's need 2.3 MB each here.
        Case {
            connections: 1000,
            seconds: 1,
            idle_timeout: Some(LONG_SILENCE),
            permitted_streams: Some(20_000),
            ..Case::new("idle", IDLE, Measure::Idle, &[Towline, Quinn, S2nQuic])
        }
        .setting("20000 streams"),
        Case::new(
            "datagrams",
            DATAGRAMS,
            Measure::Datagrams,
            &[Towline, Quinn],
        ),
        Case {
            mtu: None,
            over_veth: true,
            ..Case::new(
                "datagrams",
                DATAGRAMS,
                Measure::Datagrams,
                &[Towline, Quinn],
            )
        }
        .setting("defaults"),
        Case {
            connections: 10_000,
            idle_timeout: Some(LONG_SILENCE),
            most_rounds: 3,
            ..Case::new("many", MANY, Measure::Many, &[Towline, Quinn])
        },
    ];
    cases.extend(matrix());
    if soak {
        cases.push(
            Case {
                connections: 100_000,
                seconds: 60,
                idle_timeout: Some(LONG_SILENCE),
                most_rounds: 1,
                ..Case::new("soak", IDLE, Measure::Idle, &[Towline])
            }
            .setting("100000 connections"),
        );
    }
    if quick {
        cases.iter_mut().for_each(shrink);
    }
    cases
}

/// What decides bulk transfers, one thing changed at a time, in both directions.
fn matrix() -> Vec<Case> {
    let base = || Case {
        most_rounds: 3,
        ..Case::new(
            "matrix",
            BULK,
            Measure::Bulk,
            &[Stack::Towline, Stack::Quinn],
        )
    };
    let variants = [
        base().setting("by the API"),
        Case {
            placement: Placement::OneCore,
            ..base()
        }
        .setting("one core"),
        Case {
            streams: 8,
            ..base()
        }
        .setting("8 streams"),
        Case {
            streams: 64,
            ..base()
        }
        .setting("64 streams"),
        Case {
            connections: 100,
            ..base()
        }
        .setting("100 connections"),
        Case {
            cipher: Aead::Aes256gcm,
            ..base()
        }
        .setting("AES-256-GCM"),
        Case {
            cipher: Aead::Chacha20,
            ..base()
        }
        .setting("ChaCha20"),
        Case {
            mtu: Some(8900),
            ..base()
        }
        .setting("packets of 8900"),
        Case {
            mtu: Some(65_507),
            ..base()
        }
        .setting("packets of 65507"),
    ];
    let both = variants.into_iter().flat_map(|case| {
        let setting = case.setting.clone().unwrap_or_default();
        let upload = Case {
            upload: true,
            ..case.clone()
        };
        [
            case.setting(format!("download, {setting}")),
            upload.setting(format!("upload, {setting}")),
        ]
    });
    both.collect()
}

/// Sizes for a look at whether everything works.
fn shrink(case: &mut Case) {
    case.bytes /= 8;
    case.count = (case.count / 20).max(1);
    case.seconds = case.seconds.min(2);
    case.connections = match case.name {
        "matrix" => case.connections,
        _ => case.connections.div_ceil(10),
    };
}

#[cfg(test)]
mod tests;
