//! The redirect of one run: an nftables table in the current network namespace.
//!
//! `out` and `in` redirect the connections of the cgroup's sockets to the relay's doors;
//! `guard_out` and `guard_in` answer with a reset to what was not redirected and yet would cross
//! the machine's edge. What stays on this machine stays as it is, and so does what a router forwards.
//!
//! `zone` has connection tracking remember programs' connections apart from all others: the relay's
//! own, to the same place and by chance from the same port, would else be taken for one of those
//! and redirected back to it.

use std::io::Write as _;
use std::net::SocketAddr;
use std::process::{Command, Stdio};

use towline::stcp::agent::RelayPorts;

use super::cgroup::{self, Cgroup, PREFIX};

/// The zone of programs' connections; any that nobody else uses.
const ZONE: u16 = 0x5c7c;

/// A table that is in force.
#[derive(Debug)]
pub(crate) struct Redirect {
    table: String,
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
        // A killed run may have had the same number.
        nft(&["-f", "-"], &format!("{}{rules}", without(&table)))?;
        Ok(Self { table })
    }

    /// Whether it is still there: others may flush all tables. An error says nothing of it.
    pub(crate) fn is_there(&self) -> Result<bool, String> {
        let table = format!("table inet {}", self.table);
        let tables = nft(&["list", "tables"], "")?;
        Ok(tables.lines().any(|line| line.trim() == table))
    }

    /// Removes it, if it is there.
    pub(crate) fn remove(self) -> Result<(), String> {
        nft(&["-f", "-"], &without(&self.table)).map(drop)
    }
}

/// Commands that remove a table, and are no error without it.
fn without(table: &str) -> String {
    format!("table inet {table}\ndelete table inet {table}\n")
}

fn rules(table: &str, cgroup: &str, ports: RelayPorts, probe: SocketAddr) -> String {
    let RelayPorts { inner, outer } = ports;
    let ours = format!("meta l4proto tcp socket cgroupv2 level 1 \"{cgroup}\"");
    format!(
        "table inet {table} {{
  chain zone {{
    type filter hook output priority -300; policy accept;
    {ours} fib daddr type != local ct original zone set {ZONE}
  }}
  chain out {{
    type nat hook output priority -100; policy accept;
    {ours} ip daddr {} tcp dport {} redirect to :{inner}
    fib daddr type local accept
    {ours} redirect to :{inner}
  }}
  chain in {{
    type nat hook prerouting priority -100; policy accept;
    iifname != \"lo\" fib daddr type local {ours} redirect to :{outer}
  }}
  chain guard_out {{
    type filter hook output priority 0; policy accept;
    {ours} fib daddr type != local reject with tcp reset
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

/// Whether nft can be used here.
pub(crate) fn is_available() -> Result<(), String> {
    nft(&["list", "tables"], "").map(drop)
}

/// Tables of runs whose process is gone.
pub(crate) fn left_over() -> Vec<String> {
    let Ok(tables) = nft(&["list", "tables"], "") else {
        return Vec::new();
    };
    tables
        .lines()
        .filter_map(|line| line.strip_prefix("table inet "))
        .filter(|name| cgroup::is_left_over(name))
        .map(str::to_owned)
        .collect()
}

#[cfg(test)]
mod tests {
    use towline::stcp::agent::RelayPorts;

    #[test]
    fn the_probe_is_redirected_before_what_is_local_is_let_alone() {
        let ports = RelayPorts {
            inner: 1001,
            outer: 1002,
        };
        let probe = "127.0.0.1:7".parse().unwrap();
        let rules = super::rules("t", "unified/x", ports, probe);
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
