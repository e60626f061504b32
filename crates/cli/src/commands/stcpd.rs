//! `towline stcpd`: the agent of secure TCP for the kernel module.
//!
//! In order: the policy with its keys, the device, the privileges given up, READY to
//! the service manager; then it serves until SIGTERM. SIGHUP reads the policy again; a policy that
//! is wrong leaves the old one in force.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::process::{Resource, getrlimit, setrlimit};
use serde_json::{Value, json};
use tokio::signal::unix::{SignalKind, signal};
use towline_agent::policy::Policy;
use towline_agent::run::DEVICE;
use towline_agent::{Agent, ModuleDevice, drop_privileges};

use crate::exit::{Exit, Failure};
use crate::metrics::MetricsArgs;
use crate::printer::Printer;
use crate::service_manager::ServiceManager;
use crate::stats;

/// Where the policy is looked for.
pub(crate) const POLICY_FILE: &str = "/etc/towline/stcp.toml";

/// Which policy.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct PolicyArgs {
    /// The policy, TOML [default: /etc/towline/stcp.toml if it is there, else a key of our own and
    /// known peers in $TOWLINE_HOME]
    #[arg(long, value_name = "FILE")]
    policy: Option<PathBuf>,
}

impl PolicyArgs {
    /// Whether one was asked for.
    pub(crate) fn is_given(&self) -> bool {
        self.policy.is_some()
    }

    /// Reads it.
    pub(crate) fn load(&self) -> Result<Policy, Failure> {
        let file = match &self.policy {
            Some(file) => Some(file.as_path()),
            // A file that cannot be seen must not count as one that is not there.
            None => match Path::new(POLICY_FILE).try_exists() {
                Ok(true) => Some(Path::new(POLICY_FILE)),
                Ok(false) => None,
                Err(error) => {
                    return Err(Failure::usage(format!("{POLICY_FILE}: {error}")).next(
                        "have somebody who may read it let you, or give a policy with --policy",
                    ));
                }
            },
        };
        match file {
            Some(file) => Policy::load(file),
            None => Policy::first_use(&crate::certs::home("our key")?),
        }
        .map_err(|error| Failure::usage(error.to_string()))
    }

    /// Reads it again. One that was written is never replaced by one that nobody wrote.
    fn reload(&self, in_force: &Policy) -> Result<Policy, Failure> {
        match in_force.is_first_use() {
            true => self.load(),
            false => {
                Policy::load(in_force.source()).map_err(|error| Failure::usage(error.to_string()))
            }
        }
    }
}

/// Whether all that the policy needs while running can be had by who we are now.
fn check_access(policy: &Policy, args: &PolicyArgs) -> Result<(), Failure> {
    for list in policy.known_peers() {
        let folder = list.parent().unwrap_or(Path::new("."));
        rustix::fs::access(folder, rustix::fs::Access::WRITE_OK).map_err(|error| {
            let what = format!("new peers cannot be added to {}: {error}", list.display());
            Failure::usage(what).next("let the agent's user write in that folder")
        })?;
    }
    args.reload(policy).map(drop).map_err(|failure| {
        failure.next("SIGHUP would not be able to read it again: let the agent's user read it")
    })
}

/// What was made at the first use is to be the user's, who reads and writes it from now on.
fn hand_over(policy: &Policy, (uid, gid): (u32, u32)) -> io::Result<()> {
    for path in policy.first_use_files() {
        match std::os::unix::fs::lchown(path, Some(uid), Some(gid)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    Ok(())
}

/// Each connection under way takes a descriptor, so as many as we may have.
pub(crate) fn raise_descriptor_limit() {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    if let Err(error) = setrlimit(Resource::Nofile, limit) {
        tracing::warn!("the limit of descriptors cannot be raised: {error}");
    }
}

/// Flags of `stcpd`.
#[derive(Debug, clap::Args)]
pub(crate) struct StcpdArgs {
    #[command(flatten)]
    policy: PolicyArgs,
    /// The kernel module's device
    #[arg(long, value_name = "PATH", default_value = DEVICE)]
    device: PathBuf,
    /// Give up root for this user once everything is open
    #[arg(long, value_name = "NAME")]
    user: Option<String>,
    #[command(flatten)]
    metrics: MetricsArgs,
}

impl StcpdArgs {
    /// Serves until SIGTERM or Ctrl-C.
    pub(crate) async fn run(self, printer: Printer) -> Result<Exit, Failure> {
        raise_descriptor_limit();
        let policy = self.policy.load()?;
        let user = self.user.as_deref().map(user).transpose()?;
        // Asking has root load the module `tls`.
        let ktls = towline::stcp::ktls::is_available();
        let device = self.device()?;
        let cannot = |error| Failure::new(Exit::Other, format!("signals: {error}"));
        let mut terminate = signal(SignalKind::terminate()).map_err(cannot)?;
        let mut interrupt = signal(SignalKind::interrupt()).map_err(cannot)?;
        let mut hang_up = signal(SignalKind::hangup()).map_err(cannot)?;
        let metrics = self.metrics.bind().await?;
        if let Some(user) = user {
            hand_over(&policy, user)
                .and_then(|()| drop_privileges(user.0, user.1))
                .map_err(|error| {
                    Failure::new(Exit::Other, format!("root could not be given up: {error}"))
                })?;
        }
        check_access(&policy, &self.policy)?;
        describe(&policy, &self.device, &ktls, printer);
        let agent = Agent::new(policy);
        let watched = Arc::clone(&agent);
        let _metrics = metrics.serve(printer, move |text| text.stats("stcpd", &watched.stats()));
        let manager = ServiceManager::from_environment();
        manager.ready();
        let module = Arc::clone(&agent).serve_module(&device);
        let reload = async {
            loop {
                let _ = hang_up.recv().await;
                manager.reloading();
                match self.policy.reload(&agent.policy()) {
                    Ok(policy) => {
                        agent.replace_policy(policy);
                        printer.note("towline stcpd: the policy was read again");
                    }
                    Err(failure) => {
                        tracing::error!("the old policy stays in force: {failure}");
                    }
                }
                manager.ready();
            }
        };
        let ended = tokio::select! {
            ended = module => ended,
            () = reload => Ok(()),
            () = manager.keep_alive() => Ok(()),
            _ = terminate.recv() => Ok(()),
            _ = interrupt.recv() => Ok(()),
        };
        manager.stopping();
        let stats = agent.stats();
        printer.line(format_args!(
            "{} connections secured, {} refused",
            stats.established, stats.refused
        ));
        let mut record = stats::record(&stats);
        record.insert("schema".to_owned(), "towline.stcpd.ended/1".into());
        printer.record(&record);
        ended.map(|()| Exit::Ok).map_err(|error| {
            Failure::new(
                Exit::Other,
                format!("the kernel module's device failed: {error}"),
            )
            .next("is the module of the same release as this program, and still loaded?")
        })
    }

    fn device(&self) -> Result<ModuleDevice, Failure> {
        ModuleDevice::open(&self.device).map_err(|error| {
            let what = format!("{}: {error}", self.device.display());
            let failure = Failure::new(Exit::Other, what);
            match error.kind() {
                io::ErrorKind::ResourceBusy => failure.next("stop the agent that has it open"),
                io::ErrorKind::NotFound => failure.next("load the module: modprobe stcp"),
                _ => failure.next("run it as root; --user gives that up afterwards"),
            }
        })
    }
}

fn describe(policy: &Policy, device: &Path, ktls: &io::Result<()>, printer: Printer) {
    describe_policy(policy, printer);
    printer.line(format_args!("module     {}", device.display()));
    if let Err(error) = ktls {
        printer.note(format_args!(
            "towline stcpd: this kernel has no kTLS ({error}): connections will fail"
        ));
    }
    printer.record(&json!({
        "schema": "towline.stcpd/1",
        "policy": policy.source(),
        "device": device,
        "ktls": ktls.is_ok(),
        "keys": keys(policy),
        "believes": believes(policy),
    }));
}

/// Where it is, our keys, and whom it believes.
pub(crate) fn describe_policy(policy: &Policy, printer: Printer) {
    printer.line(format_args!("policy     {}", policy.source().display()));
    for (side, key) in policy.own_keys() {
        printer.line(format_args!("our key    {key} (as {side:?})"));
    }
    for (table, belief) in policy.tables() {
        printer.line(format_args!("believes   {table}: {belief}"));
    }
}

/// Our keys, for a record.
pub(crate) fn keys(policy: &Policy) -> Value {
    let key = |(side, key): &(_, _)| json!({ "side": format!("{side:?}").to_lowercase(), "pin": format!("{key}") });
    policy.own_keys().iter().map(key).collect()
}

/// Whom it believes, for a record.
pub(crate) fn believes(policy: &Policy) -> Value {
    let tables = policy.tables();
    tables
        .map(|(table, belief)| json!({ "table": table, "belief": belief }))
        .collect()
}

/// User and group numbers of a name in /etc/passwd.
fn user(name: &str) -> Result<(u32, u32), Failure> {
    const PASSWD: &str = "/etc/passwd";
    let text = std::fs::read_to_string(PASSWD)
        .map_err(|error| Failure::usage(format!("{PASSWD}: {error}")))?;
    text.lines()
        .find_map(|line| {
            let mut fields = line.split(':');
            (fields.next() == Some(name)).then_some(())?;
            let uid = fields.nth(1)?.parse().ok()?;
            Some((uid, fields.next()?.parse().ok()?))
        })
        .ok_or_else(|| {
            Failure::usage(format!("there is no user `{name}` in {PASSWD}")).next(format!(
                "make one: useradd --system --no-create-home {name}"
            ))
        })
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_user_is_found_by_its_whole_name() {
        assert_eq!(super::user("root").unwrap(), (0, 0));
        assert!(super::user("roo").is_err());
    }
}
