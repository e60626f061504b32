//! What a run of secure TCP puts in force around a program, and how that goes again.
//!
//! A [`Place`] is where the program is started: a cgroup with a guard and a redirect, one in which
//! `socket()` is changed, or the preload shim with a filter. [`Tier`] says what this machine can do. The
//! program executes itself anew as `stcp enter` to go there, so this is for the `towline` command alone,
//! which has the signals, the output and the exit codes.

mod cgroup;
mod family;
mod place;
mod program;
mod redirect;
mod routes;
mod strays;
mod tiers;

pub use cgroup::Cgroup;
pub use family::Family;
pub use place::{Force, Place, no_way_in, probe_at, probe_for, redirect, reserve, upgrade};
pub use program::past_shim;
pub use redirect::{Redirect, open_relay};
pub use tiers::{DEVICE, Tier, TierStatus, can_change_sockets, module_protocol, shim};

/// The commands that remove what killed runs left. It is closed, not open: connections of their
/// programs are refused.
pub fn left_over_commands() -> Vec<String> {
    let tables = redirect::left_over()
        .into_iter()
        .map(|table| format!("nft delete table inet {table}"));
    let cgroups = cgroup::left_over()
        .into_iter()
        .map(|path| cgroup::removal(&path));
    let pins = cgroup::left_over_pins()
        .into_iter()
        .map(|pin| format!("rm -r {}", pin.display()));
    // Programs first, or they would go on without the rest.
    cgroups
        .chain(tables)
        .chain(routes::left_over())
        .chain(pins)
        .collect()
}
