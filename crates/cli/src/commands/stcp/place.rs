//! Where the program of a run is started, what is in force there, and how that is taken down again.

use std::ffi::OsString;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use rustix::process::{Pid, Signal};
use socket2::{Domain, Socket, Type};
use tokio::process::Command;
use towline_agent::{Agent, Programs, RelayPorts, Upgrade, guard_cgroup, upgrade_cgroup};

use super::cgroup::Cgroup;
use super::family::Family;
use super::redirect::Redirect;
use super::signals::Signals;
use super::strays::end_strays;
use crate::exit::{Exit, Failure};
use crate::printer::Printer;

/// How long the relay may go on for programs that have ended.
const LINGER: Duration = Duration::from_secs(30);

/// How long it does so without a word.
const PATIENCE: Duration = Duration::from_secs(1);

/// Where the program runs, and what is in force there.
pub(super) enum Place {
    Cgroup {
        cgroup: Cgroup,
        force: Force,
    },
    /// The preload shim, and a filter that refuses what goes past it. Both last by themselves.
    Shim {
        library: PathBuf,
        protocol: u16,
    },
    /// The same with an agent, in this process, that makes all TCP sockets.
    Agent {
        library: PathBuf,
        programs: Arc<Programs>,
        environment: String,
    },
}

/// What came of a trial.
pub(super) enum Probed {
    /// What is made here is encrypted.
    Well {
        /// Why nobody from another host could reach a program here.
        no_way_in: Option<String>,
    },
    /// A signal came.
    Interrupted(Exit),
}

/// What a tier has put in force.
pub(super) enum Force {
    Redirect {
        redirect: Redirect,
        agent: Arc<Agent>,
        ports: RelayPorts,
    },
    Upgrade(Upgrade),
}

impl Place {
    /// A program here.
    pub(super) fn enter(&self, command: &[OsString]) -> Command {
        let mut entering = Command::new("/proc/self/exe");
        entering.args(["stcp", "enter"]);
        match self {
            Self::Cgroup { cgroup, force } => {
                if let Force::Redirect { .. } = force {
                    entering.arg("--no-packets");
                }
                entering.arg("--cgroup").arg(cgroup.path())
            }
            Self::Shim { library, protocol } => entering
                .arg("--shim")
                .arg(library)
                .args(["--protocol", &protocol.to_string()]),
            Self::Agent {
                library,
                environment,
                ..
            } => entering
                .arg("--shim")
                .arg(library)
                .env("TOWLINE_STCP_AGENT", environment),
        };
        entering.arg("--").args(command);
        entering
    }

    /// A connection made here.
    pub(super) async fn probe(
        &self,
        probe: Vec<String>,
        signals: &mut Signals,
        printer: Printer,
    ) -> Result<Probed, Failure> {
        let mut command = vec![OsString::from("/proc/self/exe"), "stcp".into()];
        command.extend(probe.into_iter().map(OsString::from));
        let mut probe = self.enter(&command);
        probe.stdin(Stdio::null()).kill_on_drop(true);
        let probed = tokio::select! {
            biased;
            signal = signals.next() => {
                printer.note("towline: a signal came before the program was started");
                return Ok(Probed::Interrupted(Exit::Program(128 + signal.as_raw() as u8)));
            }
            probed = probe.output() => probed,
        };
        let why = match probed {
            Ok(ended) if ended.status.success() => {
                let why = String::from_utf8_lossy(&ended.stdout).trim().to_owned();
                return Ok(Probed::Well {
                    no_way_in: (!why.is_empty()).then_some(why),
                });
            }
            Ok(ended) => String::from_utf8_lossy(&ended.stderr).trim().to_owned(),
            Err(error) => error.to_string(),
        };
        Err(cannot(format!("a trial connection failed ({why})")))
    }

    /// Whether processes are left that must not be without what is in force.
    pub(super) fn is_populated(&self, family: &Family) -> bool {
        match self {
            Self::Cgroup { cgroup, .. } => cgroup.is_populated(),
            Self::Shim { .. } => false,
            Self::Agent { .. } => family.is_there(),
        }
    }

    pub(super) fn signal_all(&self, family: &Family, signal: Signal) {
        match self {
            Self::Cgroup { cgroup, .. } => drop(cgroup.signal_all(signal)),
            Self::Shim { .. } | Self::Agent { .. } => family.signal_all(signal),
        }
    }

    /// What is to be done now and then while `program` runs.
    pub(super) async fn look_after(
        &self,
        family: &Family,
        program: Option<Pid>,
    ) -> Result<(), Failure> {
        if let Self::Cgroup { .. } = self {
            return end_strays(family, program).await.map_err(|why| {
                Failure::new(Exit::Other, why).next(
                    "start no sessions in the program (`su -l`, `login` and `sshd` do under systemd)",
                )
            });
        }
        // Buries orphans.
        let _ = family.members(program);
        Ok(())
    }

    /// Whether it still is; what can be put back is. An error says nothing of it: there was no way to look.
    pub(super) fn keep_in_force(&self) -> Result<bool, String> {
        match self {
            Self::Cgroup {
                force: Force::Redirect { redirect, .. },
                ..
            } => redirect.keep(),
            _ => Ok(true),
        }
    }

    /// Every process ends, then what the program wrote has left, then what is in force goes, then the cgroup with its guard.
    pub(super) async fn take_down(
        self,
        family: &Family,
        has_begun: bool,
        printer: Printer,
    ) -> Result<(), Failure> {
        let wrong = |why| Failure::new(Exit::Other, why).next("see `towline stcp status`");
        let (cgroup, force) = match self {
            Self::Cgroup { cgroup, force } => (cgroup, force),
            Self::Shim { .. } => return Ok(()),
            Self::Agent { programs, .. } => {
                family.end_all().await.map_err(wrong)?;
                if has_begun {
                    linger(programs.drain(), printer).await?;
                }
                return Ok(());
            }
        };
        cgroup.end_all().await.map_err(wrong)?;
        match force {
            Force::Redirect {
                redirect,
                agent,
                ports,
            } => {
                // Connections need the redirect as long as they last.
                if has_begun {
                    linger(agent.drain_relay(ports), printer).await?;
                }
                redirect.remove().map_err(wrong)?;
            }
            Force::Upgrade(upgrade) => {
                upgrade.remove().map_err(|error| wrong(error.to_string()))?;
            }
        }
        cgroup.remove().map_err(wrong)
    }
}

/// The kernel would send what an ended program wrote; so does the relay.
async fn linger(drain: impl Future<Output = ()>, printer: Printer) -> Result<(), Failure> {
    let mut signals = Signals::install()?;
    let drain = async {
        tokio::pin!(drain);
        if tokio::time::timeout(PATIENCE, &mut drain).await.is_err() {
            printer.note(
                "towline: all programs have ended; what they wrote last is on its way still, until its peers \
                 have taken it and closed, or 30 s have passed (Ctrl-C gives it up)",
            );
            drain.await;
        }
    };
    tokio::select! {
        _ = tokio::time::timeout(LINGER, drain) => {}
        _ = signals.next_end() => {}
    }
    Ok(())
}

pub(super) fn redirect(
    cgroup: &Cgroup,
    agent: &Arc<Agent>,
    ports: RelayPorts,
    probe: SocketAddr,
) -> Result<(Force, Vec<String>), String> {
    guard_cgroup(cgroup.path())
        .map_err(|error| format!("the guard (cgroup BPF) cannot be put up: {error}"))?;
    let redirect = Redirect::install(cgroup, ports, probe)?;
    let force = Force::Redirect {
        redirect,
        agent: Arc::clone(agent),
        ports,
    };
    let mut probe = probe_at(probe);
    probe.push("--inbound".to_owned());
    Ok((force, probe))
}

pub(super) fn upgrade(cgroup: &Cgroup, protocol: u16) -> Result<(Force, Vec<String>), String> {
    let pin = super::cgroup::pin_path();
    // Of a killed run with our number: no program of it lives, or there would be no cgroup for us.
    let _ = std::fs::remove_dir_all(&pin);
    let upgrade = upgrade_cgroup(cgroup.path(), protocol, pin.clone()).map_err(|error| {
        format!(
            "`socket()` cannot be changed: {error} (is {} mounted? mount -t bpf bpf /sys/fs/bpf)",
            pin.parent().unwrap_or(&pin).display()
        )
    })?;
    Ok((Force::Upgrade(upgrade), probe_for(protocol)))
}

pub(super) fn probe_at(address: SocketAddr) -> Vec<String> {
    ["probe", "--address", &address.to_string()]
        .map(str::to_owned)
        .into()
}

pub(super) fn probe_for(protocol: u16) -> Vec<String> {
    ["probe", "--protocol", &protocol.to_string()]
        .map(str::to_owned)
        .into()
}

/// An address to probe: at this machine, and nobody listens there as long as the socket is held.
pub(super) fn reserve() -> Result<(Socket, SocketAddr), Failure> {
    let reserved = || {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
        socket.bind(&SocketAddr::from((Ipv4Addr::LOCALHOST, 0)).into())?;
        let address = socket
            .local_addr()?
            .as_socket()
            .ok_or(std::io::ErrorKind::AddrNotAvailable)?;
        Ok((socket, address))
    };
    reserved().map_err(|error: std::io::Error| cannot(format!("an address to probe: {error}")))
}

pub(super) fn cannot(why: impl Into<String>) -> Failure {
    let why = why.into();
    Failure::new(
        Exit::Other,
        format!("the program was not started, it would not be encrypted: {why}"),
    )
}
