//! `towline stcp status`: which tiers this machine has, why not the others, what each refuses,
//! the module's counters, and what killed runs left behind.

use std::path::Path;

use serde_json::{Map, Value, json};
use towline_agent::policy::Policy;
use towline_agent::run::{Tier, left_over_commands};

use crate::commands::stcpd::{PolicyArgs, believes, describe_policy, keys};
use crate::exit::{Exit, Failure};
use crate::printer::Printer;

/// The module's counters, one value a file.
const COUNTERS: &str = "/sys/class/misc/stcp";
/// Among them: whether an agent serves the module.
const AGENT: &str = "agent";

/// Flags of `status`.
#[derive(clap::Args)]
pub(crate) struct StatusArgs {
    #[command(flatten)]
    policy: PolicyArgs,
}

impl StatusArgs {
    /// Prints it.
    pub(crate) fn run(self, printer: Printer) -> Result<Exit, Failure> {
        // The tiers are worth knowing even so.
        let policy = self.policy.load();
        let tiers = Tier::ALL.map(Tier::status);
        let chosen = tiers.iter().find(|status| status.state.is_ok());
        match chosen {
            Some(status) => printer.line(format_args!(
                "tier       {}: the best that works here",
                status.tier.name()
            )),
            None => printer.line("tier       none works here"),
        }
        for status in &tiers {
            let tier = status.tier;
            let state = match &status.state {
                Ok(()) => "works",
                Err(why) => why,
            };
            printer.line(format_args!("{:<10} {state}", tier.name()));
            printer.line(format_args!(
                "           from Linux {}",
                tier.kernel_floor()
            ));
            printer.line(format_args!("           shows programs {}", tier.peers()));
            for refused in tier.refuses() {
                printer.line(format_args!("           refuses {refused}"));
            }
        }
        match &policy {
            Ok(policy) => describe_policy(policy, printer),
            Err(failure) => printer.line(format_args!("policy     {failure}")),
        }
        let counters = counters();
        // The other tiers have their own.
        let agent = counters.get(AGENT).map(|there| there == 1);
        if let Some(agent) = agent {
            printer.line(match agent {
                true => "agent      running (towline stcpd)",
                false => "agent      not running (towline stcpd): the module's connections fail",
            });
        }
        for (name, value) in &counters {
            printer.line(format_args!("module     {name} {value}"));
        }
        let left = left_over_commands();
        warn_of_left_overs(&left, printer);
        printer.record(&json!({
            "schema": "towline.stcp.status/1",
            "tier": chosen.map(|status| status.tier.name()),
            "tiers": tiers.iter().map(|status| json!({
                "tier": status.tier.name(),
                "works": status.state.is_ok(),
                "why_not": status.state.as_ref().err(),
                "kernel_floor": status.tier.kernel_floor(),
                "peers": status.tier.peers(),
                "refuses": status.tier.refuses(),
            })).collect::<Vec<_>>(),
            "agent": agent,
            "policy": policy.as_ref().ok().map(Policy::source),
            "keys": policy.as_ref().map_or(json!([]), keys),
            "believes": policy.as_ref().map_or(json!([]), believes),
            "module": counters,
            "left_over": left,
        }));
        policy.map(|_| Exit::Ok)
    }
}

/// Names what is left over.
pub(crate) fn warn_of_left_overs(commands: &[String], printer: Printer) {
    if !commands.is_empty() {
        printer.note("towline: an earlier `stcp run` was killed; this removes what it left:");
    }
    for command in commands {
        printer.note(format_args!("  {command}"));
    }
}

fn counters() -> Map<String, Value> {
    let mut found = Map::new();
    let Ok(entries) = std::fs::read_dir(Path::new(COUNTERS)) else {
        return found;
    };
    for entry in entries.flatten() {
        let number = std::fs::read_to_string(entry.path())
            .ok()
            .and_then(|text| text.trim().parse::<u64>().ok());
        if let (Some(number), Ok(name)) = (number, entry.file_name().into_string()) {
            found.insert(name, number.into());
        }
    }
    found
}
