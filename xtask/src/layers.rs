//! Who may import whom, checked from `cargo metadata` and from the engine's source.
//!
//! The table in `rooms` is the law; `docs/architecture.md` explains it. A new crate needs a row, a
//! new arrow needs an ADR. It asks which workspace crates each crate imports (and may, for its
//! tests), whether code names each of them (`unused`), whether the page's table says so (`table`),
//! whether the sans-I/O crates stay free of I/O (`sans_io`), whether a component of `quic/src/connection`
//! reaches for another, who else holds the `Connection` (`connection`), whether files go round in
//! circles (`circles`), whether `towline` lives without tokio, and whether its default features bring
//! what only some users ask for.

mod circles;
mod connection;
mod rooms;
mod sans_io;
mod table;
mod unused;

use std::collections::BTreeSet;
use std::fmt::Write as _;

use serde_json::Value;

use crate::Outcome;
use crate::exec::{capture, cargo, metadata, root, run};
use crate::tree::{Scope, Tree, Uses};
use crate::workspace::{Kind, Workspace};
use rooms::{AGENT, Layer, QUIC, RELAY, ROOMS, SIM, STCP, TOWLINE, TRANSFER};
pub(crate) use rooms::{is_sans_io, is_tool};

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

/// The floors above the components inside `connection`; no arrow runs back up to them. Whoever holds
/// the `Connection` is one, and a test asks that of `connection::FILES`.
const UPPER_FLOORS: &[&str] = &[
    "Connection",
    "aftermath",
    "close",
    "dispatch",
    "establish",
    "input",
    "migration",
    "observation",
    "observe",
    "output",
    "parts",
    "path_size",
    "schedule",
    "state",
    "stats",
    "timeout",
];

/// The page that holds the table of crates.
const PAGE: &str = "docs/architecture.md";

/// Asks everything and fails with every broken rule at once; `--write` rewrites the table first.
pub(crate) fn layers(arguments: &[String]) -> Outcome {
    let write = match arguments {
        [] => false,
        [only] if only == "--write" => true,
        _ => return Err("usage: cargo xtask layers [--write]".to_owned()),
    };
    let metadata = metadata()?;
    let workspace = Workspace::of(&metadata);
    let mut broken = broken_imports(&metadata);
    broken.extend(idle_rows(&workspace));
    broken.extend(unused::broken(&workspace, unused::ALLOWED)?);
    broken.extend(stale_table(&workspace, write)?);
    broken.extend(sans_io::broken(&workspace)?);
    let (files, broken_components) = broken_components(&engine(&workspace, Scope::WithTests)?);
    broken.extend(broken_components);
    if files == 0 {
        broken.push(format!(
            "{QUIC} has no component of a connection to look at"
        ));
    }
    let arrows = arrows(&workspace)?;
    broken.extend(circles::broken(&arrows));
    broken.extend(connection::broken(
        &engine(&workspace, Scope::Shipped)?,
        connection::FILES,
    ));
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
        "layers: imports, sans-I/O, {files} component files, {} arrows between files, towline without tokio: all as drawn",
        arrows.len()
    );
    Ok(())
}

/// The engine's library.
fn engine(workspace: &Workspace, scope: Scope) -> Outcome<Tree> {
    workspace
        .package(QUIC)
        .map(|package| workspace.trees(package, Kind::Shipped, scope))
        .transpose()?
        .and_then(|trees| trees.into_iter().next())
        .ok_or_else(|| format!("the workspace has no {QUIC}"))
}

/// The arrows between the files of every crate.
fn arrows(workspace: &Workspace) -> Outcome<circles::Arrows> {
    let mut arrows = circles::Arrows::new();
    for package in &workspace.packages {
        for tree in workspace.trees(package, Kind::Shipped, Scope::Shipped)? {
            arrows.extend(circles::arrows(&tree));
        }
    }
    Ok(arrows)
}

/// Groups of files inside a crate that all reach one another.
pub(crate) fn circles_of(workspace: &Workspace) -> Outcome<Vec<Vec<String>>> {
    let arrows = arrows(workspace)?;
    Ok(circles::circles(circles::ends(&arrows))
        .into_iter()
        .map(|circle| circle.into_iter().map(str::to_owned).collect())
        .collect())
}

/// Rows without a crate, and imports that a row allows and its crate does not declare.
fn idle_rows(workspace: &Workspace) -> Vec<String> {
    let mut broken = Vec::new();
    for room in ROOMS {
        let Some(package) = workspace.package(room.package) else {
            broken.push(format!(
                "{} has a row in xtask/src/layers/rooms.rs and is no crate of the workspace",
                room.package
            ));
            continue;
        };
        for (allowed, kind) in [
            (room.imports, Kind::Shipped),
            (room.test_imports, Kind::Test),
        ] {
            for import in allowed.iter().filter(|import| {
                !package
                    .dependencies
                    .iter()
                    .any(|found| found.package == **import && found.kind == kind)
            }) {
                broken.push(format!(
                    "{}: its row in xtask/src/layers/rooms.rs allows {import}, which it does not declare",
                    room.package
                ));
            }
        }
    }
    broken
}

fn stale_table(workspace: &Workspace, write: bool) -> Outcome<Option<String>> {
    let path = root().join(PAGE);
    let page = std::fs::read_to_string(&path).map_err(|error| format!("{PAGE}: {error}"))?;
    let now = table::rewritten(&page, workspace).map_err(|why| format!("{PAGE}: {why}"))?;
    if write {
        std::fs::write(&path, now).map_err(|error| format!("{PAGE}: {error}"))?;
        return Ok(None);
    }
    Ok((page != now)
        .then(|| format!("{PAGE}: its table of crates is stale: run `cargo xtask layers --write`")))
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
                "{name} has no row in xtask/src/layers/rooms.rs and docs/architecture.md"
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

/// The number of component files read, and the arrows between components or back up.
fn broken_components(engine: &Tree) -> (usize, Vec<String>) {
    let component = |module: &[String]| match module {
        [connection, component, ..] if connection == "connection" => {
            COMPONENTS.iter().find(|known| *known == component).copied()
        }
        _ => None,
    };
    let read = engine
        .files_with_modules()
        .filter(|(_, module)| component(module).is_some())
        .count();
    let broken = Uses::of(engine)
        .named
        .iter()
        .filter_map(|named| {
            // What is re-exported is judged where it is defined.
            let component = component(&named.module)?;
            let why = forbidden(component, &named.segments)
                .or_else(|| forbidden(component, &named.place))?;
            Some(format!(
                "{}:{}: {} {why}",
                engine.files[named.file].path,
                named.line,
                named.segments.join("::")
            ))
        })
        .collect();
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
