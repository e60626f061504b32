//! Two network namespaces with a veth pair between them: a path of 1500 bytes, with GSO and GRO.

use std::net::Ipv4Addr;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::Outcome;

/// MTU of both ends, IP packets of so many bytes.
const PATH: &str = "1500";

/// The namespaces; they go with it.
pub struct Veth {
    server: String,
    client: String,
}

impl Veth {
    /// Where the server's end is.
    pub const SERVER: Ipv4Addr = Ipv4Addr::new(10, 78, 0, 1);
    const CLIENT: Ipv4Addr = Ipv4Addr::new(10, 78, 0, 2);

    /// Makes both.
    ///
    /// # Errors
    /// Not root, or no `ip` here: says which command failed.
    pub fn lay() -> Outcome<Self> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = |end| format!("bench-{}-{number}-{end}", std::process::id());
        let pair = Self {
            server: name("server"),
            client: name("client"),
        };
        let (server, client) = (pair.server.as_str(), pair.client.as_str());
        ip(&["netns", "add", server])?;
        ip(&["netns", "add", client])?;
        ip(&[
            "-n", server, "link", "add", "path", "mtu", PATH, "type", "veth", "peer", "name",
            "path", "mtu", PATH, "netns", client,
        ])?;
        for (namespace, address) in [(server, Self::SERVER), (client, Self::CLIENT)] {
            let address = format!("{address}/24");
            ip(&["-n", namespace, "addr", "add", &address, "dev", "path"])?;
            ip(&["-n", namespace, "link", "set", "path", "up"])?;
            ip(&["-n", namespace, "link", "set", "lo", "up"])?;
        }
        Ok(pair)
    }

    /// A command that runs at the server's end.
    pub fn at_server(&self, command: &Command) -> Command {
        within(&self.server, command)
    }

    /// A command that runs at the client's end.
    pub fn at_client(&self, command: &Command) -> Command {
        within(&self.client, command)
    }
}

impl Drop for Veth {
    fn drop(&mut self) {
        for namespace in [&self.server, &self.client] {
            let _ = ip(&["netns", "del", namespace]);
        }
    }
}

/// The same program with the same arguments; `ip` becomes it, so it costs nothing in a measurement.
fn within(namespace: &str, command: &Command) -> Command {
    let mut inside = Command::new("ip");
    inside.args(["netns", "exec", namespace]);
    inside.arg(command.get_program()).args(command.get_args());
    inside
}

fn ip(arguments: &[&str]) -> Outcome<()> {
    let line = || format!("`ip {}`", arguments.join(" "));
    let output = Command::new("ip")
        .args(arguments)
        .output()
        .map_err(|error| format!("{}: {error}", line()))?;
    match output.status.success() {
        true => Ok(()),
        false => Err(format!(
            "{}: {} (namespaces want root)",
            line(),
            String::from_utf8_lossy(&output.stderr).trim()
        )),
    }
}
