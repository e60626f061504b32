//! `towline stcp run CMD…`: an unmodified program whose TCP connections are encrypted.
//!
//! The program runs in a cgroup of its own. In the relay tier: relay, cgroup, guard, redirect, a probe
//! from inside the cgroup, the program. In the module tier the change of `socket()` takes the place
//! of guard and redirect; where that cannot be had (Linux before 6.6, or no root), the preload shim
//! and a filter without a cgroup. In the tiers ktls and user-relay the same shim and filter, and an agent
//! here that makes all TCP sockets: real ones with their keys, or its own, which it relays. Nothing is
//! started unless all before it is in force. At the end the other way round: every process of the run
//! has ended before the rest goes. If this process is killed, all of it stays, and connections are
//! refused or encrypted still.

use std::ffi::OsString;
use std::io::IsTerminal as _;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::process::ExitStatusExt as _;
use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;
use socket2::{Domain, Socket, Type};
use tokio::process::{Child, Command};
use tokio::signal::unix::{SignalKind, signal};
use towline::stcp::agent::{
    Agent, Members, Programs, Relay, RelayPorts, Upgrade, guard_cgroup, upgrade_cgroup,
};

use super::cgroup::Cgroup;
use super::family::Family;
use super::program::is_static;
use super::redirect::Redirect;
use super::status::{left_over_commands, warn_of_left_overs};
use super::strays::end_strays;
use super::tiers::{Tier, can_change_sockets, module_protocol, shim};
use crate::commands::stcpd::{PolicyArgs, raise_descriptor_limit};
use crate::exit::{Exit, Failure};
use crate::printer::Printer;

/// How long the program's processes have after SIGTERM.
const GRACE: Duration = Duration::from_secs(10);

/// How long the relay may go on for programs that have ended.
const LINGER: Duration = Duration::from_secs(30);

/// How often is looked whether the cgroup is empty by now.
const LOOK: Duration = Duration::from_millis(200);

/// How often is looked whether the redirect is still there. Meanwhile the guard holds.
const CHECK: Duration = Duration::from_secs(5);

/// How often is looked whether somebody has left.
const HEADCOUNT: Duration = Duration::from_secs(1);

/// Flags of `run`.
#[derive(clap::Args)]
pub(crate) struct RunArgs {
    /// Which tier; without it the best that works here
    #[arg(long, value_enum)]
    tier: Option<Tier>,
    #[command(flatten)]
    policy: PolicyArgs,
    /// The program and its arguments
    #[arg(
        trailing_var_arg = true,
        allow_hyphen_values = true,
        required = true,
        value_name = "CMD"
    )]
    command: Vec<OsString>,
}

impl RunArgs {
    /// Runs the program to its end; its exit code is ours.
    pub(crate) async fn run(self, printer: Printer) -> Result<Exit, Failure> {
        let tier = self.tier()?;
        warn_of_left_overs(&left_over_commands(), printer);
        let family = Family::adopt()
            .map_err(|error| cannot(format!("orphans cannot be adopted: {error}")))?;
        let family = Arc::new(family);
        match tier {
            Tier::Relay => self.run_relayed(&family, printer).await,
            Tier::Module => self.run_upgraded(&family, printer).await,
            Tier::UserRelay => self.run_by_agent(tier, None, &family, printer).await,
            Tier::Ktls => {
                let living = Arc::clone(&family);
                let members: Members = Box::new(move || living.living());
                self.run_by_agent(tier, Some(members), &family, printer)
                    .await
            }
        }
    }

    fn tier(&self) -> Result<Tier, Failure> {
        let mut tried: Vec<_> = match self.tier {
            Some(tier) => vec![tier.status()],
            None => Tier::ALL.map(Tier::status).into(),
        };
        if self.command.first().is_some_and(|name| is_static(name)) {
            for status in &mut tried {
                let reached = status.tier.reaches_static();
                let state = std::mem::replace(&mut status.state, Ok(()));
                status.state = state.and_then(|()| {
                    reached.map_err(|why| format!("the program is static, and {why}"))
                });
            }
        }
        if let Some(status) = tried.iter().find(|status| status.state.is_ok()) {
            return Ok(status.tier);
        }
        let why: Vec<_> = tried
            .iter()
            .filter_map(|status| {
                let why = status.state.as_ref().err()?;
                Some(format!("{}: {why}", status.tier.name()))
            })
            .collect();
        Err(cannot(format!("no tier works here ({})", why.join("; ")))
            .next("see `towline stcp status`"))
    }

    async fn run_relayed(self, family: &Family, printer: Printer) -> Result<Exit, Failure> {
        raise_descriptor_limit();
        let agent = Agent::new(self.policy.load()?);
        let relay = Relay::open().map_err(|error| cannot(format!("the relay's ports: {error}")))?;
        let ports = relay.ports();
        let (_reserved, probe) = reserve()?;
        // In a task of its own: whatever this function waits for, the relay goes on.
        let serving = tokio::spawn(Arc::clone(&agent).serve_relay(relay, probe));
        let ended = self
            .run_in_cgroup(Tier::Relay, family, printer, |cgroup| {
                redirect(cgroup, &agent, ports, probe)
            })
            .await;
        serving.abort();
        ended
    }

    async fn run_upgraded(self, family: &Family, printer: Printer) -> Result<Exit, Failure> {
        if self.policy.is_given() {
            return Err(cannot("in this tier handshakes are by the agent's policy")
                .next("give --policy to `towline stcpd`, or take --tier relay"));
        }
        let protocol = module_protocol().map_err(cannot)?;
        if can_change_sockets().is_ok() {
            return self
                .run_in_cgroup(Tier::Module, family, printer, |cgroup| {
                    upgrade(cgroup, protocol)
                })
                .await;
        }
        let shim = Place::Shim {
            library: shim().map_err(cannot)?,
            protocol,
        };
        let probe = probe_for(protocol);
        self.run_to_the_end(Tier::Module, shim, family, probe, printer)
            .await
    }

    /// With `members` the kernel makes the records.
    async fn run_by_agent(
        self,
        tier: Tier,
        members: Option<Members>,
        family: &Family,
        printer: Printer,
    ) -> Result<Exit, Failure> {
        raise_descriptor_limit();
        let library = shim().map_err(cannot)?;
        let agent = Agent::new(self.policy.load()?);
        let (_reserved, probe) = reserve()?;
        let programs = Programs::open(agent, probe, members)
            .map_err(|error| cannot(format!("the agent's socket: {error}")))?;
        let programs = Arc::new(programs);
        let place = Place::Agent {
            library,
            environment: programs.environment(),
            programs: Arc::clone(&programs),
        };
        let serving = tokio::spawn(programs.serve());
        let ended = self
            .run_to_the_end(tier, place, family, probe_at(probe), printer)
            .await;
        serving.abort();
        ended
    }

    /// `force` puts in force what the tier needs and says how to probe it.
    async fn run_in_cgroup(
        &self,
        tier: Tier,
        family: &Family,
        printer: Printer,
        force: impl FnOnce(&Cgroup) -> Result<(Force, Vec<String>), String>,
    ) -> Result<Exit, Failure> {
        let cgroup = Cgroup::create().map_err(cannot)?;
        match force(&cgroup) {
            Ok((force, probe)) => {
                let place = Place::Cgroup { cgroup, force };
                self.run_to_the_end(tier, place, family, probe, printer)
                    .await
            }
            Err(why) => {
                cgroup.remove().map_err(cannot)?;
                Err(cannot(why))
            }
        }
    }

    /// The probe, the program, and everything down again.
    async fn run_to_the_end(
        &self,
        tier: Tier,
        place: Place,
        family: &Family,
        probe: Vec<String>,
        printer: Printer,
    ) -> Result<Exit, Failure> {
        let ended = self.run_at(tier, &place, family, probe, printer).await;
        place.take_down(family).await?;
        ended
    }

    async fn run_at(
        &self,
        tier: Tier,
        place: &Place,
        family: &Family,
        probe: Vec<String>,
        printer: Printer,
    ) -> Result<Exit, Failure> {
        let signals = Signals::install()?;
        let mut command = vec![OsString::from("/proc/self/exe"), "stcp".into()];
        command.extend(probe.into_iter().map(OsString::from));
        let probed = place.enter(&command).stdin(Stdio::null()).output().await;
        let why = match probed {
            Ok(ended) if ended.status.success() => None,
            Ok(ended) => Some(String::from_utf8_lossy(&ended.stderr).trim().to_owned()),
            Err(error) => Some(error.to_string()),
        };
        if let Some(why) = why {
            return Err(cannot(format!("a trial connection failed ({why})")));
        }
        let child = place
            .enter(&self.command)
            .spawn()
            .map_err(|error| cannot(error.to_string()))?;
        printer.record(&json!({
            "schema": "towline.stcp.run/1",
            "tier": tier.name(),
            "pid": child.id(),
        }));
        wait(child, signals, place, family, printer).await
    }
}

/// Where the program runs, and what is in force there.
enum Place {
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

/// What a tier has put in force.
enum Force {
    Redirect {
        redirect: Redirect,
        agent: Arc<Agent>,
        ports: RelayPorts,
    },
    Upgrade(Upgrade),
}

impl Place {
    /// A program here.
    fn enter(&self, command: &[OsString]) -> Command {
        let mut entering = Command::new("/proc/self/exe");
        entering.args(["stcp", "enter"]);
        match self {
            Self::Cgroup { cgroup, .. } => entering.arg("--cgroup").arg(cgroup.path()),
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

    /// Whether processes are left that must not be without what is in force.
    fn is_populated(&self, family: &Family) -> bool {
        match self {
            Self::Cgroup { cgroup, .. } => cgroup.is_populated(),
            Self::Shim { .. } => false,
            Self::Agent { .. } => family.is_there(),
        }
    }

    fn signal_all(&self, family: &Family, signal: Signal) {
        match self {
            Self::Cgroup { cgroup, .. } => drop(cgroup.signal_all(signal)),
            Self::Shim { .. } | Self::Agent { .. } => family.signal_all(signal),
        }
    }

    /// What is to be done now and then while `program` runs.
    async fn look_after(&self, family: &Family, program: Option<Pid>) -> Result<(), Failure> {
        if let Self::Cgroup { .. } = self {
            return end_strays(family, program).await.map_err(|why| {
                Failure::new(Exit::Other, why).next(
                    "start no sessions in the program (`su -l`, `login` and `sshd` do under systemd)",
                )
            });
        }
        // Buries orphans.
        family.members(program);
        Ok(())
    }

    fn is_in_force(&self) -> bool {
        match self {
            Self::Cgroup {
                force: Force::Redirect { redirect, .. },
                ..
            } => redirect.is_there(),
            _ => true,
        }
    }

    /// Every process ends, then what is in force goes, then the cgroup with its guard.
    async fn take_down(self, family: &Family) -> Result<(), Failure> {
        let wrong = |why| Failure::new(Exit::Other, why).next("see `towline stcp status`");
        let (cgroup, force) = match self {
            Self::Cgroup { cgroup, force } => (cgroup, force),
            Self::Shim { .. } => return Ok(()),
            Self::Agent { programs, .. } => {
                family.end_all().await.map_err(wrong)?;
                return linger(programs.drain()).await;
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
                linger(agent.drain_relay(ports)).await?;
                // If somebody flushed it, it is gone already.
                if redirect.is_there() {
                    redirect.remove().map_err(wrong)?;
                }
            }
            Force::Upgrade(upgrade) => {
                upgrade.remove().map_err(|error| wrong(error.to_string()))?;
            }
        }
        cgroup.remove().map_err(wrong)
    }
}

/// The kernel would send what an ended program wrote; so does the relay.
async fn linger(drain: impl Future<Output = ()>) -> Result<(), Failure> {
    let mut signals = Signals::install()?;
    tokio::select! {
        _ = tokio::time::timeout(LINGER, drain) => {}
        _ = signals.next() => {}
    }
    Ok(())
}

fn redirect(
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
    Ok((force, probe_at(probe)))
}

fn upgrade(cgroup: &Cgroup, protocol: u16) -> Result<(Force, Vec<String>), String> {
    let pin = super::cgroup::pin_path();
    let upgrade = upgrade_cgroup(cgroup.path(), protocol, pin.clone()).map_err(|error| {
        format!(
            "`socket()` cannot be changed: {error} (is {} mounted? mount -t bpf bpf /sys/fs/bpf)",
            pin.parent().unwrap_or(&pin).display()
        )
    })?;
    Ok((Force::Upgrade(upgrade), probe_for(protocol)))
}

fn probe_at(address: SocketAddr) -> Vec<String> {
    ["probe", "--address", &address.to_string()]
        .map(str::to_owned)
        .into()
}

fn probe_for(protocol: u16) -> Vec<String> {
    ["probe", "--protocol", &protocol.to_string()]
        .map(str::to_owned)
        .into()
}

fn cannot(why: impl Into<String>) -> Failure {
    let why = why.into();
    Failure::new(
        Exit::Other,
        format!("the program was not started, it would not be encrypted: {why}"),
    )
}

/// An address to probe: at this machine, and nobody listens there as long as the socket is held.
fn reserve() -> Result<(Socket, SocketAddr), Failure> {
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

/// The signals that are passed on.
struct Signals {
    interrupt: tokio::signal::unix::Signal,
    terminate: tokio::signal::unix::Signal,
    hang_up: tokio::signal::unix::Signal,
}

impl Signals {
    fn install() -> Result<Self, Failure> {
        let catch = |kind| {
            signal(kind).map_err(|error| Failure::new(Exit::Other, format!("signals: {error}")))
        };
        Ok(Self {
            interrupt: catch(SignalKind::interrupt())?,
            terminate: catch(SignalKind::terminate())?,
            hang_up: catch(SignalKind::hangup())?,
        })
    }

    async fn next(&mut self) -> Signal {
        tokio::select! {
            _ = self.interrupt.recv() => Signal::INT,
            _ = self.terminate.recv() => Signal::TERM,
            _ = self.hang_up.recv() => Signal::HUP,
        }
    }
}

/// Until the program and every process it left have ended, or have to.
async fn wait(
    mut child: Child,
    mut signals: Signals,
    place: &Place,
    family: &Family,
    printer: Printer,
) -> Result<Exit, Failure> {
    let pid = child.id().and_then(|pid| Pid::from_raw(pid as i32));
    let mut look = tokio::time::interval(LOOK);
    let mut check = tokio::time::interval(CHECK);
    let mut headcount = tokio::time::interval(HEADCOUNT);
    let mut status: Option<ExitStatus> = None;
    let mut deadline = None;
    loop {
        tokio::select! {
            ended = child.wait(), if status.is_none() => {
                let ended = ended.map_err(|error| Failure::new(Exit::Other, error.to_string()))?;
                status = Some(ended);
                if place.is_populated(family) {
                    printer.note("towline: the program has ended; the processes that it left keep their encryption until they end");
                }
            }
            signal = signals.next() => {
                if deadline.is_some() {
                    printer.note("towline: everything is ended at once");
                    family.signal_all(Signal::KILL);
                    break;
                }
                // The terminal has told the program of Ctrl-C itself.
                let is_told = signal == Signal::INT && std::io::stdin().is_terminal();
                match (pid, status) {
                    (Some(pid), None) if !is_told => { let _ = kill_process(pid, signal); }
                    (_, Some(_)) => { place.signal_all(family, signal); }
                    _ => {}
                }
                if signal != Signal::INT || status.is_some() {
                    deadline = Some(tokio::time::Instant::now() + GRACE);
                }
            }
            () = expired(deadline) => {
                printer.note("towline: the program does not end; it is killed");
                family.signal_all(Signal::KILL);
                break;
            }
            _ = look.tick(), if status.is_some() => {}
            _ = headcount.tick() => {
                place.look_after(family, pid.filter(|_| status.is_none())).await?;
            }
            _ = check.tick() => {
                if !place.is_in_force() {
                    return Err(Failure::new(
                        Exit::Other,
                        "somebody removed the redirect (`nft flush ruleset`?): the program was ended; \
                         the guard let no clear byte out",
                    ));
                }
            }
        }
        if status.is_some() && !place.is_populated(family) {
            break;
        }
    }
    Ok(match status {
        Some(status) => exit_of(status),
        None => Exit::Program(128 + Signal::TERM.as_raw() as u8),
    })
}

async fn expired(deadline: Option<tokio::time::Instant>) {
    match deadline {
        Some(deadline) => tokio::time::sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}

/// As a shell says it.
fn exit_of(status: ExitStatus) -> Exit {
    let code = status
        .code()
        .or_else(|| status.signal().map(|signal| 128 + signal));
    Exit::Program(code.and_then(|code| u8::try_from(code).ok()).unwrap_or(1))
}
