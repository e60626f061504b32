//! The table of crates in `docs/architecture.md`, written from what the manifests declare.
//!
//! It stands between two comments of the page; the rest of the page is people's.

use super::rooms::{Layer, ROOMS};
use crate::workspace::{Kind, Package, Workspace};

/// The comment before the table.
pub(super) const BEGIN: &str =
    "<!-- The next table is written by `cargo xtask layers --write`. -->";
/// The comment behind it.
pub(super) const END: &str = "<!-- End of the written table. -->";

/// The page with the table as it would be written now; an error if it has no place for one.
pub(super) fn rewritten(page: &str, workspace: &Workspace) -> Result<String, String> {
    let places = page
        .split_once(BEGIN)
        .and_then(|(before, rest)| Some((before, rest.split_once(END)?.1)));
    let Some((before, after)) = places else {
        return Err(format!(
            "no place for the table of crates: it stands between `{BEGIN}` and `{END}`"
        ));
    };
    Ok(format!(
        "{before}{BEGIN}\n\n{}\n{END}{after}",
        table(workspace)
    ))
}

fn table(workspace: &Workspace) -> String {
    let mut text = "| crate | imports | for its tests also |\n|---|---|---|\n".to_owned();
    for room in ROOMS.iter().filter(|room| room.layer != Layer::Tool) {
        let Some(package) = workspace.package(room.package) else {
            continue;
        };
        let shipped = imports(package, Kind::Shipped);
        let tests: Vec<&str> = imports(package, Kind::Test)
            .into_iter()
            .filter(|name| !shipped.contains(name))
            .collect();
        text += &format!(
            "| `{}` | {} | {} |\n",
            short(room.package),
            cell(&shipped),
            cell(&tests)
        );
    }
    text
}

/// The imports of one kind, in the order of the rows.
fn imports(package: &Package, kind: Kind) -> Vec<&'static str> {
    ROOMS
        .iter()
        .map(|room| room.package)
        .filter(|name| {
            package
                .dependencies
                .iter()
                .any(|found| found.package == *name && (found.kind == kind))
        })
        .collect()
}

fn cell(names: &[&str]) -> String {
    if names.is_empty() {
        return "–".to_owned();
    }
    names
        .iter()
        .map(|name| short(name))
        .collect::<Vec<_>>()
        .join(" ")
}

fn short(package: &str) -> &str {
    package.trim_start_matches("towline-")
}

#[cfg(test)]
mod tests;
