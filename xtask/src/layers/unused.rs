//! Imports that a manifest declares and no source file names.
//!
//! Only crates of this workspace: each such arrow stands in the table of `docs/architecture.md`
//! and must mean something. What ships has to name its dependencies itself; one that only tests
//! name belongs to the dev-dependencies.

use std::collections::BTreeSet;

use crate::Outcome;
use crate::tree::{Scope, Tree, Uses};
use crate::workspace::{Dependency, Kind, Package, Workspace};

/// A declared import that may stay although no file names it.
pub(super) struct Allowed {
    pub(super) package: &'static str,
    pub(super) import: &'static str,
    pub(super) why: &'static str,
}

/// What the manifests declare in vain today, and why it is not gone yet.
pub(super) const ALLOWED: &[Allowed] = &[
    Allowed {
        package: "towline-stcp",
        import: "towline-wire",
        why: "goes when the crates are cut anew",
    },
    Allowed {
        package: "towline-lab",
        import: "towline-identity",
        why: "goes when the crates are cut anew",
    },
    Allowed {
        package: "towline-cli",
        import: "towline-preload",
        why: "its tests load the library, which no `use` says",
    },
];

/// Unused imports that are not on the list, and rows of the list that nothing needs.
pub(super) fn broken(workspace: &Workspace, allowed: &[Allowed]) -> Outcome<Vec<String>> {
    let mut broken = Vec::new();
    let mut needed = BTreeSet::new();
    for package in &workspace.packages {
        for (dependency, why) in unused(workspace, package)? {
            let row = allowed
                .iter()
                .position(|row| row.package == package.name && row.import == dependency.package);
            match row {
                Some(row) => {
                    needed.insert(row);
                }
                None => broken.push(format!(
                    "{}: it declares {}, which {why}",
                    package.name, dependency.package
                )),
            }
        }
    }
    for (index, row) in allowed.iter().enumerate() {
        if !needed.contains(&index) {
            broken.push(format!(
                "{} is allowed to declare {} in vain ({}), and does not: delete the row in xtask/src/layers/unused.rs",
                row.package, row.import, row.why
            ));
        }
    }
    Ok(broken)
}

/// The dependencies of a crate that its code does not name, each with what is wrong.
fn unused<'a>(
    workspace: &Workspace,
    package: &'a Package,
) -> Outcome<Vec<(&'a Dependency, &'static str)>> {
    if package.dependencies.is_empty() {
        return Ok(Vec::new());
    }
    let names = |kind, scope| Ok::<_, String>(named(&workspace.trees(package, kind, scope)?));
    let shipped = names(Kind::Shipped, Scope::Shipped)?;
    let build = names(Kind::Build, Scope::WithTests)?;
    let mut tests = names(Kind::Test, Scope::WithTests)?;
    tests.extend(names(Kind::Shipped, Scope::WithTests)?);
    let mut found = Vec::new();
    for dependency in &package.dependencies {
        let name = &dependency.name_in_code;
        let why = match dependency.kind {
            Kind::Shipped if shipped.contains(name) => continue,
            Kind::Shipped if tests.contains(name) => {
                "only its tests use: move it to the dev-dependencies"
            }
            Kind::Test if tests.contains(name) => continue,
            Kind::Build if build.contains(name) => continue,
            Kind::Test => "no test uses",
            _ => "no source file uses",
        };
        found.push((dependency, why));
    }
    Ok(found)
}

fn named(trees: &[Tree]) -> BTreeSet<String> {
    trees
        .iter()
        .flat_map(|tree| Uses::of(tree).foreign)
        .collect()
}

#[cfg(test)]
mod tests;
