//! The tiers of secure TCP for unmodified programs: which are there on this machine, and why not.

use std::path::{Path, PathBuf};

use super::{cgroup, redirect};
use crate::upgrade_is_available;

/// The kernel module's device.
pub const DEVICE: &str = "/dev/stcp";

/// Where the module says its protocol.
const PROTOCOL: &str = "/sys/class/misc/stcp/protocol";

/// Where it says whether an agent serves it.
const AGENT: &str = "/sys/class/misc/stcp/agent";

/// The tiers, best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tier {
    /// The kernel module: sockets of its own protocol.
    Module,
    /// Everything by the relay, to which connections are redirected.
    Relay,
    /// Everything by the relay, to which the preload shim connects.
    UserRelay,
}

/// What there is to say of a tier.
#[derive(Clone, Debug)]
pub struct TierStatus {
    /// Which.
    pub tier: Tier,
    /// `Err` says what is missing.
    pub state: Result<(), String>,
}

impl Tier {
    /// All of them, best first.
    pub const ALL: [Self; 3] = [Self::Module, Self::Relay, Self::UserRelay];

    /// As `--tier` takes it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Module => "module",
            Self::Relay => "relay",
            Self::UserRelay => "user-relay",
        }
    }

    /// Whether it reaches programs that go past the preload shim.
    pub fn reaches_past_shim(self) -> Result<(), String> {
        match self {
            // Without the change of `socket()` the module's tier is the shim.
            Self::Module => can_change_sockets(),
            Self::Relay => Ok(()),
            Self::UserRelay => Err("it goes past the preload shim".to_owned()),
        }
    }

    /// The oldest kernel that has what it needs.
    pub fn kernel_floor(self) -> &'static str {
        match self {
            Self::Module => "6.1; static programs 6.6",
            Self::Relay => "5.13 with nftables and cgroup version 2",
            Self::UserRelay => "5.7 with seccomp",
        }
    }

    /// What a program sees as its peers, for the rules that it has about them.
    pub fn peers(self) -> &'static str {
        match self {
            Self::Module | Self::Relay => "its peers' own addresses",
            Self::UserRelay => {
                "its peers' own addresses; loopback's, where a static child asks for those of a connection that it inherits"
            }
        }
    }

    /// What it does not do.
    pub fn refuses(self) -> &'static [&'static str] {
        match self {
            Self::Module => &[
                "peers that do not speak TLS 1.3",
                "MSG_FASTOPEN, TCP_FASTOPEN_CONNECT, TCP_REPAIR, a TCP_ULP of the program's own",
                "streams other than TCP and MPTCP (SCTP), and families past it: SMC, RDS, TIPC, AF_PACKET, AF_XDP",
                "before Linux 6.6 or without root: static programs",
            ],
            Self::Relay => &[
                "peers that do not speak TLS 1.3",
                "protocols other than TCP, UDP and ICMP; UDP and ICMP pass as they are",
                "families past it: SMC, RDS, TIPC, AF_PACKET, AF_XDP",
                "programs with an internet socket inherited from outside",
            ],
            Self::UserRelay => &[
                "peers that do not speak TLS 1.3",
                "static programs and those that make system calls themselves (Go)",
                "protocols other than TCP, UDP and ICMP; UDP and ICMP pass as they are",
                "families past it: SMC, RDS, TIPC, AF_PACKET, AF_XDP",
                "MSG_FASTOPEN, io_uring, and programs that gain privileges (sudo)",
                "programs with an internet socket inherited from outside",
            ],
        }
    }

    /// Whether it can be used here and now.
    pub fn status(self) -> TierStatus {
        let state = match self {
            Self::Module => module(),
            Self::Relay => relay(),
            Self::UserRelay => shim().map(drop),
        };
        TierStatus { tier: self, state }
    }
}

fn module() -> Result<(), String> {
    module_protocol()?;
    // Every connection would fail.
    if std::fs::read_to_string(AGENT).is_ok_and(|agent| agent.trim() == "0") {
        return Err("no agent serves the kernel module: start `towline stcpd`".to_owned());
    }
    let Err(no_change) = can_change_sockets() else {
        return Ok(());
    };
    shim()
        .map(drop)
        .map_err(|no_shim| format!("{no_change}; {no_shim}"))
}

/// Whether `socket()` can be changed for a cgroup.
pub fn can_change_sockets() -> Result<(), String> {
    if !rustix::process::geteuid().is_root() {
        return Err("`socket()` cannot be changed without root".to_owned());
    }
    cgroup::mount()?;
    upgrade_is_available().map_err(|error| format!("`socket()` cannot be changed: {error}"))
}

/// The preload shim: beside this program as cargo puts it, in `lib` beside its `bin` as `make install`
/// does, or where packages put libraries.
pub fn shim() -> Result<PathBuf, String> {
    const NAME: &str = "libtowline_preload.so";
    let beside = std::env::current_exe().ok();
    let beside = beside.as_deref().and_then(Path::parent);
    let installed = beside
        .and_then(Path::parent)
        .map(|prefix| prefix.join("lib/towline"));
    let folders = [
        beside.map(Path::to_owned),
        installed,
        Some("/usr/lib/towline".into()),
        Some("/usr/local/lib/towline".into()),
    ];
    folders
        .into_iter()
        .flatten()
        .map(|folder: PathBuf| folder.join(NAME))
        .find(|file| file.exists())
        .ok_or_else(|| {
            format!(
                "the preload shim {NAME} is neither beside this program nor in ../lib/towline nor in \
                 /usr/lib/towline (cargo build -p towline-preload, or make install)"
            )
        })
}

/// The module's protocol number.
pub fn module_protocol() -> Result<u16, String> {
    if !Path::new(DEVICE).exists() {
        return Err(format!(
            "the kernel module is not loaded ({DEVICE} is missing)"
        ));
    }
    std::fs::read_to_string(PROTOCOL)
        .ok()
        .and_then(|text| text.trim().parse().ok())
        .ok_or_else(|| format!("the module does not say its protocol in {PROTOCOL}"))
}

fn relay() -> Result<(), String> {
    if !rustix::process::geteuid().is_root() {
        return Err("it needs root, for the redirect".to_owned());
    }
    cgroup::mount()?;
    redirect::is_available()
}
