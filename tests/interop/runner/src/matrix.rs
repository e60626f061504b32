//! Which runs there are, and running them a few at a time.

use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::Error;
use crate::case::{Passed, Run};
use crate::drivers::{Driver, Fleet, Stack};
use crate::material::Material;
use crate::options::{Options, Pairs};

/// How one run ended.
#[derive(Debug, Clone)]
pub(crate) enum Verdict {
    /// As it should.
    Passed(Box<Passed>),
    /// Not as it should; says how.
    Failed(String),
    /// It failed, and so does the peer in that role with every other peer; says how.
    PeersToo(String),
    /// Not run: a toolchain is missing, or one of the two cannot play it.
    Skipped(String),
}

/// A run and how it ended.
#[derive(Debug, Clone)]
pub(crate) struct Outcome {
    /// The run.
    pub(crate) run: Run,
    /// How it ended.
    pub(crate) verdict: Verdict,
}

/// Runs the whole matrix in `options.slots` slots; outcomes come in matrix order.
pub(crate) fn run(
    options: &Options,
    fleet: &Fleet,
    material: &Material,
    folder: &Path,
) -> Result<Vec<Outcome>, Error> {
    let runs = runs(options);
    let next = AtomicUsize::new(0);
    let outcomes: Mutex<Vec<Option<Outcome>>> = Mutex::new(vec![None; runs.len()]);
    std::thread::scope(|scope| {
        for _ in 0..options.slots {
            scope.spawn(|| {
                loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    let Some(run) = runs.get(index) else { break };
                    let verdict = verdict(run, fleet, material, folder);
                    announce(run, &verdict);
                    let outcome = Outcome { run: *run, verdict };
                    if let Ok(mut outcomes) = outcomes.lock() {
                        outcomes[index] = Some(outcome);
                    }
                }
            });
        }
    });
    let outcomes = outcomes.into_inner().map_err(|_| "a slot panicked")?;
    Ok(outcomes.into_iter().flatten().collect())
}

fn runs(options: &Options) -> Vec<Run> {
    let mut pairs = Vec::new();
    let mut all = options.peers.clone();
    match options.pairs {
        Pairs::Towline => {
            for &peer in &options.peers {
                pairs.push((Stack::Towline, peer));
                pairs.push((peer, Stack::Towline));
            }
        }
        Pairs::Peers | Pairs::All => {
            if options.pairs == Pairs::All {
                all.insert(0, Stack::Towline);
            }
            for &client in &all {
                for &server in &all {
                    if client != server || options.pairs == Pairs::All {
                        pairs.push((client, server));
                    }
                }
            }
        }
    }
    let mut runs = Vec::new();
    for &case in &options.cases {
        for &(client, server) in &pairs {
            runs.push(Run {
                case,
                client,
                server,
            });
        }
    }
    runs
}

fn verdict(run: &Run, fleet: &Fleet, material: &Material, folder: &Path) -> Verdict {
    for stack in [run.client, run.server] {
        match fleet.get(stack) {
            Driver::Ready(_) => {}
            Driver::Skipped(why) => return Verdict::Skipped(why.clone()),
            Driver::Broken(_) => {
                return Verdict::Failed(format!("the {} driver does not build", stack.name()));
            }
        }
    }
    if let Some(why) = run.cannot() {
        return Verdict::Skipped(why.to_owned());
    }
    let why = match run.execute(fleet, material, &folder.join(run.folder())) {
        Ok(passed) => return Verdict::Passed(Box::new(passed)),
        Err(error) => error.to_string(),
    };
    let mut tried = 0;
    for control in controls(run, fleet) {
        let place = folder.join(format!("control_{}_for_{}", control.folder(), run.folder()));
        if control.execute(fleet, material, &place).is_ok() {
            return Verdict::Failed(why);
        }
        tried += 1;
    }
    match tried {
        0 => Verdict::Failed(why),
        _ => Verdict::PeersToo(why),
    }
}

/// The same case with each other peer in Towline's place: none where a peer failed with a peer.
fn controls(run: &Run, fleet: &Fleet) -> Vec<Run> {
    let others = Stack::PEERS.into_iter().filter(|other| {
        let is_ready = |(stack, driver): &(Stack, Driver)| {
            stack == other && matches!(driver, Driver::Ready(_))
        };
        fleet.drivers.iter().any(is_ready)
    });
    let case = run.case;
    let runs = others.filter_map(|other| match (run.client, run.server) {
        (Stack::Towline, Stack::Towline) => None,
        (Stack::Towline, server) => Some(Run {
            case,
            client: other,
            server,
        }),
        (client, Stack::Towline) => Some(Run {
            case,
            client,
            server: other,
        }),
        _ => None,
    });
    runs.filter(|run| run.cannot().is_none()).collect()
}

fn announce(run: &Run, verdict: &Verdict) {
    let (case, client, server) = (run.case.name(), run.client.name(), run.server.name());
    let word = match verdict {
        Verdict::Passed(passed) => format!("ok, {:.2} s", passed.took.as_secs_f64()),
        Verdict::Failed(why) => format!("FAILED: {why}"),
        Verdict::PeersToo(why) => format!("failed, and so do its peers: {why}"),
        Verdict::Skipped(why) => format!("skipped: {why}"),
    };
    eprintln!("  {case:<9} {client} -> {server}: {word}");
}
