//! Secure TCP for programs that know nothing of it.
//!
//! [`Agent`] makes the handshakes for connections that the kernel module, a redirect or the preload
//! shim bring along, by a [`policy`] that is a file. Keys stay in its process, but for those of the
//! records, which go to the kernel module. [`run`] is what is put in force around a program.
//! `towline stcpd` and `towline stcp run` are made of it; what they print, and how they exit, is theirs.

#[cfg(target_os = "linux")]
mod agent;
pub mod policy;
#[cfg(target_os = "linux")]
pub mod run;

#[cfg(target_os = "linux")]
pub use agent::{
    Agent, AgentStats, ModuleDevice, Programs, Relay, RelayPorts, Upgrade, drop_privileges,
    forbid_clear_tcp, forbid_new_privileges, forbid_packets, guard_cgroup, inherited_sockets,
    is_upgraded, upgrade_cgroup, upgrade_is_available,
};
