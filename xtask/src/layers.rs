//! Who may import whom, checked from `cargo metadata` and from the engine's source.
//!
//! The tables below are the law; `docs/architecture.md` explains them. A new crate needs a row, a
//! new arrow needs an ADR. Five questions are asked: which workspace crates each crate imports
//! (and may, for its tests), whether the sans-I/O crates stay free of I/O, whether a component of
//! `quic/src/connection` reaches for another, whether `towline` lives without tokio, and whether its
//! default features bring what only some users ask for.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::Path;

use serde_json::Value;

use crate::Outcome;
use crate::exec::{capture, cargo, files_under, metadata, relative, root, run};
use crate::source::named_paths;

/// One crate: its layer, what it may import, and what its tests may import besides.
struct Room {
    package: &'static str,
    layer: Layer,
    imports: &'static [&'static str],
    test_imports: &'static [&'static str],
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Layer {
    Base,
    Protocol,
    Driver,
    Program,
    Tool,
}

const WIRE: &str = "towline-wire";
const RECOVERY: &str = "towline-recovery";
const IDENTITY: &str = "towline-identity";
const SIM: &str = "towline-sim";
const TESTKIT: &str = "towline-testkit";
const QUIC: &str = "towline-quic";
const MESSAGE: &str = "towline-message";
const STCP: &str = "towline-stcp";
const PRELOAD: &str = "towline-preload";
const LAB: &str = "towline-lab";
const TOWLINE: &str = "towline";
const AGENT: &str = "towline-agent";
const RELAY: &str = "towline-relay";
const TRANSFER: &str = "towline-transfer";

const ROOMS: &[Room] = &[
    Room {
        package: WIRE,
        layer: Layer::Base,
        imports: &[],
        test_imports: &[],
    },
    Room {
        package: RECOVERY,
        layer: Layer::Base,
        imports: &[WIRE],
        test_imports: &[SIM],
    },
    Room {
        package: IDENTITY,
        layer: Layer::Base,
        imports: &[],
        test_imports: &[TESTKIT],
    },
    Room {
        package: SIM,
        layer: Layer::Base,
        imports: &[WIRE],
        test_imports: &[],
    },
    Room {
        package: TESTKIT,
        layer: Layer::Base,
        imports: &[],
        test_imports: &[],
    },
    Room {
        package: QUIC,
        layer: Layer::Protocol,
        imports: &[WIRE, RECOVERY, IDENTITY],
        test_imports: &[SIM, TESTKIT],
    },
    Room {
        package: MESSAGE,
        layer: Layer::Protocol,
        imports: &[WIRE],
        test_imports: &[],
    },
    Room {
        package: STCP,
        layer: Layer::Protocol,
        imports: &[WIRE, IDENTITY],
        test_imports: &[TESTKIT],
    },
    // Its tests put `relay`, a floor above, between two endpoints; and are of all its own features.
    Room {
        package: TOWLINE,
        layer: Layer::Driver,
        imports: &[WIRE, IDENTITY, QUIC, MESSAGE, STCP],
        test_imports: &[RELAY, TOWLINE],
    },
    Room {
        package: LAB,
        layer: Layer::Driver,
        imports: &[WIRE, RECOVERY, IDENTITY, SIM, TESTKIT, QUIC, MESSAGE],
        test_imports: &[],
    },
    Room {
        package: AGENT,
        layer: Layer::Program,
        imports: &[WIRE, IDENTITY, STCP, TOWLINE],
        test_imports: &[],
    },
    Room {
        package: RELAY,
        layer: Layer::Program,
        imports: &[SIM, TOWLINE],
        test_imports: &[],
    },
    Room {
        package: TRANSFER,
        layer: Layer::Program,
        imports: &[WIRE, TOWLINE],
        test_imports: &[],
    },
    Room {
        package: PRELOAD,
        layer: Layer::Program,
        imports: &[WIRE],
        test_imports: &[],
    },
    Room {
        package: "towline-cli",
        layer: Layer::Program,
        imports: &[IDENTITY, TOWLINE, LAB, AGENT, RELAY, TRANSFER],
        test_imports: &[PRELOAD],
    },
    Room {
        package: "xtask",
        layer: Layer::Tool,
        imports: &[],
        test_imports: &[],
    },
];

/// Packages of the outside world that would bring sockets, clocks or threads into L0 and L1.
const IO_PACKAGES: &[&str] = &[
    "tokio",
    "mio",
    "async-io",
    "smol",
    "socket2",
    "quinn-udp",
    "libc",
    "nix",
    "rustix",
    "rand",
    "getrandom",
];

/// The components of a connection: side by side, none naming another.
const COMPONENTS: &[&str] = &["handshake", "acks", "cids", "paths", "datagrams", "streams"];

/// The floors above the components inside `connection`; no arrow runs back up to them.
const UPPER_FLOORS: &[&str] = &[
    "Connection",
    "dispatch",
    "input",
    "output",
    "schedule",
    "state",
];

/// Runs all questions and fails with every broken rule at once.
pub(crate) fn layers() -> Outcome {
    let mut broken = broken_imports(&metadata()?);
    broken.extend(unsafe_allowed());
    let (files, broken_components) = broken_components(&root().join("crates/quic/src/connection"));
    broken.extend(broken_components);
    broken.extend(tokio_in_bare_towline()?);
    broken.extend(unasked_in_default_towline()?);
    if !broken.is_empty() {
        let mut message = format!("{} broken rule(s)", broken.len());
        for rule in &broken {
            let _ = write!(message, "\n  {rule}");
        }
        return Err(message);
    }
    run(&mut cargo([
        "check",
        "--quiet",
        "--locked",
        "-p",
        TOWLINE,
        "--no-default-features",
    ]))?;
    println!(
        "layers: imports, sans-I/O, {files} component files, towline without tokio: all as drawn"
    );
    Ok(())
}

fn broken_imports(metadata: &Value) -> Vec<String> {
    let packages = metadata["packages"]
        .as_array()
        .map(Vec::as_slice)
        .unwrap_or_default();
    let members: BTreeSet<&str> = packages
        .iter()
        .filter_map(|package| package["name"].as_str())
        .collect();
    let mut broken = Vec::new();
    for package in packages {
        let Some(name) = package["name"].as_str() else {
            continue;
        };
        let Some(room) = ROOMS.iter().find(|room| room.package == name) else {
            broken.push(format!(
                "{name} has no row in xtask/src/layers.rs and docs/architecture.md"
            ));
            continue;
        };
        for dependency in package["dependencies"]
            .as_array()
            .map(Vec::as_slice)
            .unwrap_or_default()
        {
            let Some(imported) = dependency["name"].as_str() else {
                continue;
            };
            let for_tests = dependency["kind"].as_str() == Some("dev");
            let allowed = room.imports.contains(&imported)
                || (for_tests && room.test_imports.contains(&imported));
            if members.contains(imported) && !allowed {
                let kind = if for_tests {
                    "its tests import"
                } else {
                    "it imports"
                };
                broken.push(format!(
                    "{name}: {kind} {imported}, which its row does not allow"
                ));
            }
            if room.layer <= Layer::Protocol && !for_tests && IO_PACKAGES.contains(&imported) {
                broken.push(format!("{name} is sans-I/O and imports {imported}"));
            }
        }
    }
    broken
}

/// L0 and L1 crates whose root does not forbid unsafe code.
fn unsafe_allowed() -> Vec<String> {
    ROOMS
        .iter()
        .filter(|room| room.layer <= Layer::Protocol)
        .filter_map(|room| {
            let path = root()
                .join("crates")
                .join(room.package.trim_start_matches("towline-"))
                .join("src/lib.rs");
            let text = std::fs::read_to_string(&path).unwrap_or_default();
            (!text.contains("#![forbid(unsafe_code)]"))
                .then(|| format!("{} does not say #![forbid(unsafe_code)]", relative(&path)))
        })
        .collect()
}

/// The number of component files read, and the arrows between components or back up.
fn broken_components(connection: &Path) -> (usize, Vec<String>) {
    let mut broken = Vec::new();
    let mut read = 0;
    for path in files_under(connection, "rs") {
        let Some(module) = module_of(connection, &path) else {
            continue;
        };
        if !COMPONENTS.contains(&module[1].as_str()) {
            continue;
        }
        read += 1;
        let text = std::fs::read_to_string(&path).unwrap_or_default();
        for named in named_paths(&text, &module) {
            if let Some(why) = forbidden(&module[1], &named.segments) {
                broken.push(format!(
                    "{}:{}: {} {why}",
                    relative(&path),
                    named.line,
                    named.segments.join("::")
                ));
            }
        }
    }
    (read, broken)
}

/// Why a component may not name this path, if it may not.
fn forbidden(component: &str, segments: &[String]) -> Option<String> {
    let name = |at: usize| segments.get(at).map(String::as_str);
    match (name(0), name(1)) {
        (Some("connection"), Some(other)) if COMPONENTS.contains(&other) && other != component => {
            Some(format!(
                "({component} must not name {other}: pass a value instead)"
            ))
        }
        (Some("connection"), Some(other)) if UPPER_FLOORS.contains(&other) => {
            Some(format!("({component} must not reach up to {other})"))
        }
        (Some("connection"), None | Some("*")) => Some(format!(
            "({component} must name what it needs, not its parent)"
        )),
        (Some("Connection" | "endpoint"), _) => Some(format!("({component} must not reach up)")),
        _ => None,
    }
}

/// `connection/streams/id.rs` → `["connection", "streams", "id"]`; `None` for `connection/mod.rs`.
fn module_of(connection: &Path, path: &Path) -> Option<Vec<String>> {
    let inner = path.strip_prefix(connection).ok()?.with_extension("");
    let mut module = vec!["connection".to_owned()];
    module.extend(inner.iter().map(|part| part.to_string_lossy().into_owned()));
    if module.last().is_some_and(|last| last == "mod") {
        module.pop();
    }
    (module.len() > 1).then_some(module)
}

fn tokio_in_bare_towline() -> Outcome<Option<String>> {
    let tree = tree_of_towline(&["--no-default-features"])?;
    let found = tree.lines().find(|line| is_one_of(line, &["tokio"]));
    Ok(found.map(|line| format!("{TOWLINE} without default features depends on {line}")))
}

/// What only some users ask for is no part of what all of them compile.
fn unasked_in_default_towline() -> Outcome<Option<String>> {
    let tree = tree_of_towline(&[])?;
    let unasked = [SIM, STCP, AGENT, RELAY, TRANSFER, "toml"];
    let found = tree.lines().find(|line| is_one_of(line, &unasked));
    Ok(found.map(|line| format!("{TOWLINE} with default features depends on {line}")))
}

/// The packages that users of `towline` with these flags compile.
fn tree_of_towline(flags: &[&str]) -> Outcome<String> {
    let mut tree = cargo(["tree", "--quiet", "--locked", "-p", TOWLINE]);
    capture(tree.args(["-e", "normal", "--prefix", "none"]).args(flags))
}

/// Whether a line of cargo's tree is of a package whose name begins like one of these.
fn is_one_of(line: &str, names: &[&str]) -> bool {
    let package = line.split_whitespace().next().unwrap_or_default();
    names.iter().any(|name| package.starts_with(name))
}

#[cfg(test)]
mod tests;
