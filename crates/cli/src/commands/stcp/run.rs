//! `towline stcp run CMD…`: an unmodified program whose TCP connections are encrypted.
//!
//! The program runs in a cgroup of its own. In the relay tier: relay, cgroup, guard, redirect, a probe
//! from inside the cgroup, the program. In the module tier the change of `socket()` takes the place
//! of guard and redirect; where that cannot be had (Linux before 6.6, or no root), the preload shim
//! and a filter without a cgroup. In the tier user-relay the same shim and filter, and an agent here
//! that makes all TCP sockets, which it relays. Nothing is started unless all before it is in force.
//! At the end the other way round: every process of the run has ended before the rest goes. If this
//! process is killed, all of it stays, and connections are refused or encrypted still.

use std::ffi::OsString;
use std::os::unix::process::ExitStatusExt as _;
use std::process::ExitStatus;
use std::sync::Arc;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;
use tokio::process::Child;
use towline_agent::run::{
    Cgroup, Family, Force, Place, Tier, TierStatus, can_change_sockets, left_over_commands,
    module_protocol, no_way_in, open_relay, past_shim, probe_at, probe_for, redirect, reserve,
    shim, upgrade,
};
use towline_agent::{Agent, Programs};

use super::enter::refuse_inherited_sockets;
use super::signals::{Signals, is_in_foreground, is_of_keys, is_programs_own};
use super::status::warn_of_left_overs;
use crate::commands::stcpd::{PolicyArgs, raise_descriptor_limit};
use crate::exit::{Exit, Failure};
use crate::printer::Printer;

/// How long the program's processes have after SIGTERM.
const GRACE: Duration = Duration::from_secs(10);

/// How often is looked whether the cgroup is empty by now.
const LOOK: Duration = Duration::from_millis(200);

/// How often is looked whether the redirect and its routes are still there. Meanwhile the guard holds.
const CHECK: Duration = Duration::from_secs(5);

/// How often is looked whether somebody has left.
const HEADCOUNT: Duration = Duration::from_secs(1);

/// How long the relay may go on for programs that have ended.
const LINGER: Duration = Duration::from_secs(30);

/// How long it does so without a word.
const PATIENCE: Duration = Duration::from_secs(1);

/// Shown at the end of `--help`.
const HELP: &str = "\
What follows CMD is CMD's own; `--` before it ends our options: towline stcp run --tier relay -- CMD -v

Exit codes:
    CMD's own once it has begun; 128+N if signal N ended it, or came before it was started
    126  CMD cannot be executed      127  CMD is not there
    1    CMD was not started, or had to be ended, as it would not have been encrypted
    2    wrong usage or configuration: CMD was not started

With --json a record of the tier and CMD's process comes on stdout, where CMD writes as well.";

/// Flags of `run`.
#[derive(clap::Args)]
#[command(after_help = HELP)]
pub(crate) struct RunArgs {
    /// Which tier; without it the best that works here
    #[arg(long, value_enum)]
    tier: Option<TierArg>,
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

/// The tiers, best first.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum TierArg {
    /// The kernel module: sockets of its own protocol
    Module,
    /// Everything by the relay, to which connections are redirected
    Relay,
    /// Everything by the relay, to which the preload shim connects
    UserRelay,
}

impl From<TierArg> for Tier {
    fn from(tier: TierArg) -> Self {
        match tier {
            TierArg::Module => Self::Module,
            TierArg::Relay => Self::Relay,
            TierArg::UserRelay => Self::UserRelay,
        }
    }
}

/// What came of a trial.
enum Probed {
    /// What is made there is encrypted.
    Well {
        /// Why nobody from another host could reach a program there.
        no_way_in: Option<String>,
    },
    /// A signal came.
    Interrupted(Exit),
}

impl RunArgs {
    /// Runs the program to its end; its exit code is ours.
    pub(crate) async fn run(self, printer: Printer) -> Result<Exit, Failure> {
        refuse_inherited_sockets()?;
        let tier = self.tier()?;
        // Before anything is put in force, which a signal would leave behind.
        let signals = Signals::install()?;
        warn_of_left_overs(&left_over_commands(), printer);
        let family = Family::adopt()
            .map_err(|error| cannot(format!("orphans cannot be adopted: {error}")))?;
        match tier {
            Tier::Relay => self.run_relayed(&family, signals, printer).await,
            Tier::Module => self.run_upgraded(&family, signals, printer).await,
            Tier::UserRelay => self.run_by_agent(&family, signals, printer).await,
        }
    }

    fn tier(&self) -> Result<Tier, Failure> {
        let past_shim = self.command.first().and_then(|name| past_shim(name));
        let judge = |tier| self.judge(tier, past_shim);
        let wanted: Vec<_> = match self.tier {
            Some(tier) => vec![judge(tier.into())],
            None => Tier::ALL.map(judge).into(),
        };
        if let Some(status) = wanted.iter().find(|status| status.state.is_ok()) {
            return Ok(status.tier);
        }
        let why = |status: TierStatus| {
            let why = status.state.err()?;
            Some(format!("{}: {why}", status.tier.name()))
        };
        let why: Vec<_> = wanted.into_iter().filter_map(why).collect();
        let why = why.join("; ");
        if self.tier.is_none() {
            return Err(
                cannot(format!("no tier works here ({why})")).next("see `towline stcp status`")
            );
        }
        let other = Tier::ALL
            .into_iter()
            .find(|tier| judge(*tier).state.is_ok());
        let next = match other {
            Some(tier) => format!("leave out --tier: {} would do", tier.name()),
            None => "see `towline stcp status`: no other tier works here either".to_owned(),
        };
        Err(cannot(format!("this tier does not work here ({why})")).next(next))
    }

    /// Whether a tier can be used for this program, which may go past the shim in some way.
    fn judge(&self, tier: Tier, past_shim: Option<&str>) -> TierStatus {
        let mut status = tier.status();
        let judged = match (&status.state, past_shim) {
            (Err(_), _) => return status,
            (Ok(()), _) if tier == Tier::Module && self.policy.is_given() => Err(
                "its handshakes are by the agent's policy (`towline stcpd --policy`), not by --policy"
                    .to_owned(),
            ),
            (Ok(()), Some(how)) => tier
                .reaches_past_shim()
                .map_err(|why| format!("the program {how}, and {why}")),
            (Ok(()), None) => Ok(()),
        };
        status.state = judged;
        status
    }

    async fn run_relayed(
        self,
        family: &Family,
        signals: Signals,
        printer: Printer,
    ) -> Result<Exit, Failure> {
        raise_descriptor_limit();
        let agent = Agent::new(self.policy.load()?);
        let relay = open_relay().map_err(cannot)?;
        let ports = relay.ports();
        let (_reserved, probe) = reserve().map_err(no_address)?;
        // In a task of its own: whatever this function waits for, the relay goes on.
        let serving = tokio::spawn(Arc::clone(&agent).serve_relay(relay, probe));
        let ended = self
            .run_in_cgroup(Tier::Relay, family, signals, printer, |cgroup| {
                redirect(cgroup, &agent, ports, probe)
            })
            .await;
        serving.abort();
        ended
    }

    async fn run_upgraded(
        self,
        family: &Family,
        signals: Signals,
        printer: Printer,
    ) -> Result<Exit, Failure> {
        let protocol = module_protocol().map_err(cannot)?;
        if can_change_sockets().is_ok() {
            return self
                .run_in_cgroup(Tier::Module, family, signals, printer, |cgroup| {
                    upgrade(cgroup, protocol)
                })
                .await;
        }
        let shim = Place::Shim {
            library: shim().map_err(cannot)?,
            protocol,
        };
        let probe = probe_for(protocol);
        self.run_to_the_end(Tier::Module, shim, family, probe, signals, printer)
            .await
    }

    async fn run_by_agent(
        self,
        family: &Family,
        signals: Signals,
        printer: Printer,
    ) -> Result<Exit, Failure> {
        raise_descriptor_limit();
        let library = shim().map_err(cannot)?;
        let agent = Agent::new(self.policy.load()?);
        let (_reserved, probe) = reserve().map_err(no_address)?;
        let programs = Programs::open(agent, probe)
            .map_err(|error| cannot(format!("the agent's socket: {error}")))?;
        let programs = Arc::new(programs);
        let place = Place::Agent {
            library,
            environment: programs.environment(),
            programs: Arc::clone(&programs),
        };
        let serving = tokio::spawn(programs.serve());
        let ended = self
            .run_to_the_end(
                Tier::UserRelay,
                place,
                family,
                probe_at(probe),
                signals,
                printer,
            )
            .await;
        serving.abort();
        ended
    }

    /// `force` puts in force what the tier needs and says how to probe it.
    async fn run_in_cgroup(
        &self,
        tier: Tier,
        family: &Family,
        signals: Signals,
        printer: Printer,
        force: impl FnOnce(&Cgroup) -> Result<(Force, Vec<String>), String>,
    ) -> Result<Exit, Failure> {
        let cgroup = Cgroup::create().map_err(cannot)?;
        match force(&cgroup) {
            Ok((force, probe)) => {
                let place = Place::Cgroup { cgroup, force };
                self.run_to_the_end(tier, place, family, probe, signals, printer)
                    .await
            }
            Err(why) => {
                if let Err(why) = cgroup.remove() {
                    printer.note(format_args!("towline: {why}"));
                }
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
        mut signals: Signals,
        printer: Printer,
    ) -> Result<Exit, Failure> {
        let (has_begun, ended) = match try_out(&place, probe, &mut signals, printer).await {
            Ok(Probed::Well { no_way_in }) => {
                if let Some(why) = &no_way_in {
                    printer.note(format_args!(
                        "towline: connections from other hosts will be refused: {why}"
                    ));
                }
                let running = self.run_at(tier, &place, family, no_way_in, signals, printer);
                (true, running.await)
            }
            Ok(Probed::Interrupted(exit)) => (false, Ok(exit)),
            Err(failure) => (false, Err(failure)),
        };
        // What came of the program matters more.
        if let Err(failure) = take_down(place, family, has_begun, printer).await {
            printer.note(format_args!("towline: {failure}"));
        }
        ended
    }

    async fn run_at(
        &self,
        tier: Tier,
        place: &Place,
        family: &Family,
        no_way_in: Option<String>,
        signals: Signals,
        printer: Printer,
    ) -> Result<Exit, Failure> {
        let child = place
            .enter(&self.command)
            .spawn()
            .map_err(|error| cannot(error.to_string()))?;
        printer.note(format_args!(
            "towline: tier {}; the program sees {}",
            tier.name(),
            tier.peers()
        ));
        printer.record(&json!({
            "schema": "towline.stcp.run/1",
            "tier": tier.name(),
            "peers": tier.peers(),
            "pid": child.id(),
            "no_way_in": no_way_in,
        }));
        wait(child, signals, place, family, printer).await
    }
}

/// A connection made where the program will run.
async fn try_out(
    place: &Place,
    probe: Vec<String>,
    signals: &mut Signals,
    printer: Printer,
) -> Result<Probed, Failure> {
    let mut probe = place.probe(probe);
    let probed = tokio::select! {
        biased;
        signal = signals.next() => {
            printer.note("towline: a signal came before the program was started");
            return Ok(Probed::Interrupted(Exit::Program(128 + signal.as_raw() as u8)));
        }
        probed = probe.output() => probed,
    };
    no_way_in(probed)
        .map(|no_way_in| Probed::Well { no_way_in })
        .map_err(|why| cannot(format!("a trial connection failed ({why})")))
}

/// Every process ends, then what the program wrote has left, then what is in force goes, then the cgroup with its guard.
async fn take_down(
    place: Place,
    family: &Family,
    has_begun: bool,
    printer: Printer,
) -> Result<(), Failure> {
    let wrong = |why| Failure::new(Exit::Other, why).next("see `towline stcp status`");
    place.end_all(family).await.map_err(wrong)?;
    if has_begun && let Some(drain) = place.drain() {
        linger(drain, printer).await?;
    }
    place.take_down().map_err(wrong)
}

/// Waits for what is on its way still, as long as that is bearable.
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
                if is_programs_own(signal) {
                    if let (Some(pid), None) = (pid, status) {
                        let _ = kill_process(pid, signal);
                    }
                    continue;
                }
                if deadline.is_some() {
                    printer.note("towline: everything is ended at once");
                    family.signal_all(Signal::KILL);
                    break;
                }
                // The terminal has told the program of its keys itself.
                let is_told = is_of_keys(signal) && is_in_foreground();
                match (pid, status) {
                    (Some(pid), None) if !is_told => { let _ = kill_process(pid, signal); }
                    (_, Some(_)) => { place.signal_all(family, signal); }
                    _ => {}
                }
                if !is_of_keys(signal) || status.is_some() {
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
                let looked = place.look_after(family, pid.filter(|_| status.is_none())).await;
                looked.map_err(|why| {
                    Failure::new(Exit::Other, why).next(
                        "start no sessions in the program (`su -l`, `login` and `sshd` do under systemd)",
                    )
                })?;
            }
            _ = check.tick() => {
                // Where it cannot be told, the guard holds still.
                let in_force = place.keep_in_force().unwrap_or_else(|why| {
                    tracing::warn!("whether the redirect and its routes are there cannot be told now: {why}");
                    true
                });
                if !in_force {
                    return Err(Failure::new(
                        Exit::Other,
                        "somebody removed the redirect (`nft flush ruleset`?): the program was ended; the guard \
                         let no clear byte out",
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

fn no_address(error: std::io::Error) -> Failure {
    cannot(format!("an address to probe: {error}"))
}

fn cannot(why: impl Into<String>) -> Failure {
    let why = why.into();
    Failure::new(
        Exit::Other,
        format!("the program was not started, it would not be encrypted: {why}"),
    )
}
