//! Where the program of a run is started, what is in force there, and how that is taken down again.

use std::ffi::OsString;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::pin::Pin;
use std::process::{Output, Stdio};
use std::sync::Arc;

use rustix::process::{Pid, Signal};
use socket2::{Domain, Socket, Type};
use tokio::process::Command;

use super::cgroup::Cgroup;
use super::family::Family;
use super::redirect::Redirect;
use super::strays::end_strays;
use crate::{Agent, Programs, RelayPorts, Upgrade, guard_cgroup, upgrade_cgroup};

/// Where the program runs, and what is in force there.
pub enum Place {
    /// A cgroup of its own.
    Cgroup {
        /// The cgroup.
        cgroup: Cgroup,
        /// What is in force in it.
        force: Force,
    },
    /// The preload shim, and a filter that refuses what goes past it. Both last by themselves.
    Shim {
        /// Where the shim is.
        library: PathBuf,
        /// The module's protocol.
        protocol: u16,
    },
    /// The same with an agent, in this process, that makes all TCP sockets.
    Agent {
        /// Where the shim is.
        library: PathBuf,
        /// The agent's side.
        programs: Arc<Programs>,
        /// What tells the shim where the agent is.
        environment: String,
    },
}

/// What a tier has put in force.
pub enum Force {
    /// Connections are redirected to a relay.
    Redirect {
        /// The redirect.
        redirect: Redirect,
        /// The agent that relays.
        agent: Arc<Agent>,
        /// The relay's ports.
        ports: RelayPorts,
    },
    /// `socket()` is changed.
    Upgrade(Upgrade),
}

impl Place {
    /// A program here.
    pub fn enter(&self, command: &[OsString]) -> Command {
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

    /// A trial connection made here. Its output is for [`no_way_in`].
    pub fn probe(&self, probe: Vec<String>) -> Command {
        let mut command = vec![OsString::from("/proc/self/exe"), "stcp".into()];
        command.extend(probe.into_iter().map(OsString::from));
        let mut probe = self.enter(&command);
        probe.stdin(Stdio::null()).kill_on_drop(true);
        probe
    }

    /// Whether processes are left that must not be without what is in force.
    pub fn is_populated(&self, family: &Family) -> bool {
        match self {
            Self::Cgroup { cgroup, .. } => cgroup.is_populated(),
            Self::Shim { .. } => false,
            Self::Agent { .. } => family.is_there(),
        }
    }

    /// A signal to every process of the run.
    pub fn signal_all(&self, family: &Family, signal: Signal) {
        match self {
            Self::Cgroup { cgroup, .. } => drop(cgroup.signal_all(signal)),
            Self::Shim { .. } | Self::Agent { .. } => family.signal_all(signal),
        }
    }

    /// What is to be done now and then while `program` runs. An error says which processes left and were
    /// ended.
    pub async fn look_after(&self, family: &Family, program: Option<Pid>) -> Result<(), String> {
        if let Self::Cgroup { .. } = self {
            return end_strays(family, program).await;
        }
        // Buries orphans.
        let _ = family.members(program);
        Ok(())
    }

    /// Whether it still is; what can be put back is. An error says nothing of it: there was no way to look.
    pub fn keep_in_force(&self) -> Result<bool, String> {
        match self {
            Self::Cgroup {
                force: Force::Redirect { redirect, .. },
                ..
            } => redirect.keep(),
            _ => Ok(true),
        }
    }

    /// Ends every process that must not be without what is in force.
    pub async fn end_all(&self, family: &Family) -> Result<(), String> {
        match self {
            Self::Cgroup { cgroup, .. } => cgroup.end_all().await,
            Self::Shim { .. } => Ok(()),
            Self::Agent { .. } => family.end_all().await,
        }
    }

    /// Waits until what the programs wrote last has left, where that goes through this process: the kernel
    /// would send what an ended program wrote; so does the relay.
    pub fn drain(&self) -> Option<Pin<Box<dyn Future<Output = ()> + Send + '_>>> {
        match self {
            Self::Agent { programs, .. } => Some(Box::pin(programs.drain())),
            // Connections need the redirect as long as they last.
            Self::Cgroup {
                force: Force::Redirect { agent, ports, .. },
                ..
            } => Some(Box::pin(agent.drain_relay(*ports))),
            _ => None,
        }
    }

    /// What is in force goes, then the cgroup with its guard. Every process has ended.
    pub fn take_down(self) -> Result<(), String> {
        let Self::Cgroup { cgroup, force } = self else {
            return Ok(());
        };
        match force {
            Force::Redirect { redirect, .. } => redirect.remove()?,
            Force::Upgrade(upgrade) => upgrade.remove().map_err(|error| error.to_string())?,
        }
        cgroup.remove()
    }
}

/// What a trial connection came to: why nobody from another host could reach a program there, if so.
/// An error says why it failed.
pub fn no_way_in(probed: io::Result<Output>) -> Result<Option<String>, String> {
    match probed {
        Ok(ended) if ended.status.success() => {
            let why = String::from_utf8_lossy(&ended.stdout).trim().to_owned();
            Ok((!why.is_empty()).then_some(why))
        }
        Ok(ended) => Err(String::from_utf8_lossy(&ended.stderr).trim().to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

/// Puts up guard and redirect; with the words of a probe.
///
/// # Errors
/// What cannot be put up, in words.
pub fn redirect(
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

/// Changes `socket()`; with the words of a probe.
///
/// # Errors
/// Why it cannot be changed, in words.
pub fn upgrade(cgroup: &Cgroup, protocol: u16) -> Result<(Force, Vec<String>), String> {
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

/// The words of a probe of a relay.
pub fn probe_at(address: SocketAddr) -> Vec<String> {
    ["probe", "--address", &address.to_string()]
        .map(str::to_owned)
        .into()
}

/// The words of a probe of the module's protocol.
pub fn probe_for(protocol: u16) -> Vec<String> {
    ["probe", "--protocol", &protocol.to_string()]
        .map(str::to_owned)
        .into()
}

/// An address to probe: at this machine, and nobody listens there as long as the socket is held.
pub fn reserve() -> io::Result<(Socket, SocketAddr)> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
    socket.bind(&SocketAddr::from((Ipv4Addr::LOCALHOST, 0)).into())?;
    let address = socket
        .local_addr()?
        .as_socket()
        .ok_or(io::ErrorKind::AddrNotAvailable)?;
    Ok((socket, address))
}
