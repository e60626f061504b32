//! The redirect of one run: an nftables table in the current network namespace.
//!
//! `out` and `in` redirect the connections of the cgroup's sockets to the relay's doors;
//! `guard_out` and `guard_in` answer with a reset to what was not redirected and yet would cross
//! the machine's edge. What stays on this machine stays as it is, and so does what a router forwards.
//!
//! `zone` has connection tracking remember programs' connections apart from all others: the relay's
//! own, to the same place and by chance from the same port, would else be taken for one of those
//! and redirected back to it. The relay's to programs are apart as well: they have the addresses that
//! the peers' own have.
//!
//! `back` marks what programs answer to those, so that it is routed to the relay (`routes`). A new
//! connection to an address from which a socket of the cgroup's has lately answered the relay is redirected even
//! if no socket of the cgroup's is found for it: a program's end that waits for its time to pass (TIME_WAIT)
//! is of no cgroup, and would keep the peer from using its port again. What the relay sends there does not
//! count: another program may have the port by now, and would never get it.

use std::io::Write as _;
use std::net::SocketAddr;
use std::process::{Command, Stdio};

use super::cgroup::{self, Cgroup, PREFIX};
use super::routes::{self, Routes};
use crate::{Relay, RelayPorts};

/// The zones of programs' connections, and of the relay's to programs; any that nobody else uses.
const ZONE: u16 = 0x5c7c;
const RELAYS_ZONE: u16 = 0x5c7d;

/// A table that is in force, and the way back.
#[derive(Debug)]
pub struct Redirect {
    table: String,
    routes: Routes,
}

impl Redirect {
    /// Installs it, all or nothing.
    pub(crate) fn install(
        cgroup: &Cgroup,
        ports: RelayPorts,
        probe: SocketAddr,
    ) -> Result<Self, String> {
        let table = format!("{PREFIX}{}", std::process::id());
        let rules = rules(&table, cgroup.nft_path(), ports, probe);
        let routes = Routes::install()?;
        // A killed run may have had the same number.
        match nft(&["-f", "-"], &format!("{}{rules}", without(&table))) {
            Ok(_) => Ok(Self { table, routes }),
            Err(why) => {
                let _ = routes.remove();
                Err(why)
            }
        }
    }

    /// Whether all of it is still there: others may flush all tables. Routes are put back, if only they are gone. An
    /// error says nothing of it.
    pub(crate) fn keep(&self) -> Result<bool, String> {
        let has_table = tables()?.contains(&self.table);
        if has_table {
            self.routes.keep()?;
        }
        Ok(has_table)
    }

    /// Removes it, if it is there.
    pub(crate) fn remove(self) -> Result<(), String> {
        let removed = self.routes.remove();
        nft(&["-f", "-"], &without(&self.table))?;
        removed
    }
}

/// Commands that remove a table, and are no error without it.
fn without(table: &str) -> String {
    format!("table inet {table}\ndelete table inet {table}\n")
}

fn rules(table: &str, cgroup: &str, ports: RelayPorts, probe: SocketAddr) -> String {
    let RelayPorts { inner, outer, mark } = ports;
    let ours = format!("meta l4proto tcp socket cgroupv2 level 1 \"{cgroup}\"");
    let relays = format!("meta mark {mark} meta l4proto tcp");
    let from_outside = "iifname != \"lo\" fib daddr type local";
    format!(
        "table inet {table} {{
  set reached4 {{ type ipv4_addr . inet_service; flags dynamic,timeout; timeout 2m; size 65535; }}
  set reached6 {{ type ipv6_addr . inet_service; flags dynamic,timeout; timeout 2m; size 65535; }}
  chain zone {{
    type filter hook output priority -300; policy accept;
    {relays} ct original zone set {RELAYS_ZONE} accept
    {ours} fib daddr type != local ct original zone set {ZONE}
  }}
  chain back {{
    type route hook output priority -150; policy accept;
    {relays} ct mark set {mark}
    {relays} tcp flags syn meta mark set 0
    ct direction reply ct mark {mark} {ours} update @reached4 {{ ip saddr . tcp sport }}
    ct direction reply ct mark {mark} {ours} update @reached6 {{ ip6 saddr . tcp sport }}
    ct direction reply ct mark {mark} meta mark set {mark}
  }}
  chain out {{
    type nat hook output priority -100; policy accept;
    {ours} ip daddr {} tcp dport {} redirect to :{inner}
    fib daddr type local accept
    {ours} redirect to :{inner}
  }}
  chain in {{
    type nat hook prerouting priority -100; policy accept;
    {from_outside} {ours} redirect to :{outer}
    {from_outside} ip daddr . tcp dport @reached4 redirect to :{outer}
    {from_outside} ip6 daddr . tcp dport @reached6 redirect to :{outer}
  }}
  chain guard_out {{
    type filter hook output priority 0; policy accept;
    meta mark != {mark} {ours} fib daddr type != local reject with tcp reset
  }}
  chain guard_in {{
    type filter hook input priority 0; policy accept;
    iifname != \"lo\" {ours} reject with tcp reset
  }}
}}
",
        probe.ip(),
        probe.port()
    )
}

/// Runs nft; what it wrote, or what it complained of.
fn nft(arguments: &[&str], input: &str) -> Result<String, String> {
    let mut child = Command::new("nft")
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| match error.kind() {
            std::io::ErrorKind::NotFound => {
                "nft is not installed (apt-get install nftables)".to_owned()
            }
            _ => format!("nft: {error}"),
        })?;
    if let Some(mut stdin) = child.stdin.take() {
        stdin
            .write_all(input.as_bytes())
            .map_err(|error| format!("nft: {error}"))?;
    }
    let ended = child
        .wait_with_output()
        .map_err(|error| format!("nft: {error}"))?;
    if ended.status.success() {
        return Ok(String::from_utf8_lossy(&ended.stdout).into_owned());
    }
    let said = String::from_utf8_lossy(&ended.stderr);
    Err(format!("nft: {}", said.lines().next().unwrap_or("failed")))
}

/// Whether nft can be used here, and ip.
pub(crate) fn is_available() -> Result<(), String> {
    nft(&["list", "tables"], "")?;
    routes::is_available()
}

/// Tables of runs whose process is gone.
pub(crate) fn left_over() -> Vec<String> {
    let mut tables = tables().unwrap_or_default();
    tables.retain(|name| cgroup::is_left_over(name));
    tables
}

/// Tables of runs.
fn tables() -> Result<Vec<String>, String> {
    let tables = nft(&["list", "tables"], "")?;
    let names = tables
        .lines()
        .filter_map(|line| line.strip_prefix("table inet "));
    let ours = names.filter(|name| name.starts_with(PREFIX));
    Ok(ours.map(|name| name.trim().to_owned()).collect())
}

/// The ports to which tables of runs redirect, of killed ones as well.
fn doors() -> Result<Vec<u16>, String> {
    let mut doors = Vec::new();
    for table in tables()? {
        match nft(&["list", "table", "inet", &table], "") {
            Ok(rules) => doors.extend(doors_in(&rules)),
            Err(why) if tables()?.contains(&table) => return Err(why),
            // It redirects nothing any more.
            Err(_) => {}
        }
    }
    Ok(doors)
}

fn doors_in(rules: &str) -> impl Iterator<Item = u16> {
    let after = rules.split("redirect to :").skip(1);
    after.filter_map(|rest| rest.split_whitespace().next()?.parse().ok())
}

/// A relay to whose doors nothing is redirected yet. The programs of a killed run still are to the ones it had, and
/// at ours they would go by this run's policy.
pub fn open_relay() -> Result<Relay, String> {
    let mut others = doors()?;
    loop {
        let relay = Relay::open(routes::mark(), &others)
            .map_err(|error| format!("the relay's ports: {error}"))?;
        let RelayPorts { inner, outer, .. } = relay.ports();
        // A run may have been killed since we looked; from now on nobody else can have these doors.
        let now = doors()?;
        if ![inner, outer].iter().any(|door| now.contains(door)) {
            return Ok(relay);
        }
        others = now;
    }
}

#[cfg(test)]
mod tests {
    use crate::RelayPorts;

    #[test]
    fn the_probe_is_redirected_before_what_is_local_is_let_alone() {
        let ports = RelayPorts {
            inner: 1001,
            outer: 1002,
            mark: 1003,
        };
        let probe = "127.0.0.1:7".parse().unwrap();
        let rules = super::rules("t", "unified/x", ports, probe);
        let doors: Vec<_> = super::doors_in(&rules).collect();
        assert_eq!(doors, [1001, 1001, 1002, 1002, 1002]);
        let place = |words: &str| {
            rules
                .find(words)
                .unwrap_or_else(|| panic!("{words}: {rules}"))
        };
        assert!(place("ip daddr 127.0.0.1 tcp dport 7") < place("fib daddr type local accept"));
        let all = "level 1 \"unified/x\" redirect to :1001";
        assert!(place("fib daddr type local accept") < place(all));
        assert!(place(all) < place("redirect to :1002"));
        // To a socket that listens at every address, what is only forwarded would seem to be for it.
        let arriving = "iifname != \"lo\" fib daddr type local meta l4proto tcp socket";
        assert!(place(arriving) < place("redirect to :1002"));
    }
}
