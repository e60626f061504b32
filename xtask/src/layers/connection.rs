//! Which files may hold an `impl` of the engine's `Connection`.
//!
//! Every such file sees all of its fields, so the list is short and a new row needs a reason.

use crate::tree::Tree;

/// The type, and the crate it belongs to.
pub(super) const TYPE: &str = "Connection";

/// The files that may, and what each is for.
pub(super) const FILES: &[(&str, &str)] = &[
    (
        "crates/quic/src/connection/parts.rs",
        "the components, and what several stages ask of more than one",
    ),
    (
        "crates/quic/src/connection/mod.rs",
        "the public methods, which delegate",
    ),
    (
        "crates/quic/src/connection/input.rs",
        "a datagram on its way in",
    ),
    (
        "crates/quic/src/connection/dispatch.rs",
        "a frame on its way to its owner",
    ),
    (
        "crates/quic/src/connection/output.rs",
        "a datagram on its way out",
    ),
    (
        "crates/quic/src/connection/schedule.rs",
        "the order in which the components write",
    ),
    (
        "crates/quic/src/connection/migration.rs",
        "how it takes to another path",
    ),
    (
        "crates/quic/src/connection/establish.rs",
        "how a connection begins, on both sides",
    ),
    (
        "crates/quic/src/connection/close.rs",
        "how it ends, of its own will or another's",
    ),
    (
        "crates/quic/src/connection/path_size.rs",
        "what the system and routers say of datagrams that are too big",
    ),
    (
        "crates/quic/src/connection/timeout.rs",
        "what deadlines that have passed set off",
    ),
    (
        "crates/quic/src/connection/aftermath.rs",
        "what the endpoint is told after a change",
    ),
    (
        "crates/quic/src/connection/observe.rs",
        "what observers and log lines are told of all components",
    ),
    (
        "crates/quic/src/connection/stats.rs",
        "one reading of all components",
    ),
];

/// `impl`s in files that are not on the list, and rows of the list without one.
pub(super) fn broken(engine: &Tree, files: &[(&str, &str)]) -> Vec<String> {
    let Some((connection, _)) = engine.find_struct(TYPE) else {
        return vec![format!(
            "{}: there is not just one struct {TYPE}",
            engine.files[0].path
        )];
    };
    let mut broken = Vec::new();
    let mut needed: Vec<&str> = Vec::new();
    for found in engine.impls().iter().filter(|found| found.of == connection) {
        let path = &engine.files[found.file].path;
        match files.iter().find(|(listed, _)| listed == path) {
            Some((listed, _)) => needed.push(listed),
            None => broken.push(format!(
                "{path}:{}: an `impl` of {TYPE} in a file that is not on the list of xtask/src/layers/connection.rs",
                found.line
            )),
        }
    }
    for (listed, why) in files.iter().filter(|(path, _)| !needed.contains(path)) {
        broken.push(format!(
            "{listed} has no `impl` of {TYPE} any more ({why}): delete its row in xtask/src/layers/connection.rs"
        ));
    }
    broken
}

#[cfg(test)]
mod tests;
