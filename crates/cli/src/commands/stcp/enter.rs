//! What `stcp run` executes itself as, inside the cgroup: the way to the program, and the probe.

use std::ffi::OsString;
use std::io::{self, Read as _, Write as _};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use rustix::process::{Signal, set_parent_process_death_signal};
use socket2::{Domain, Socket, Type};
use towline_agent::{forbid_clear_tcp, forbid_packets, inherited_sockets, is_upgraded};

use crate::exit::{Exit, Failure};

/// What a shell says for a program that is there and cannot be executed.
const CANNOT_EXECUTE: u8 = 126;
/// What a shell says for a program that is not there.
const NOT_FOUND: u8 = 127;

/// How long the relay may take to answer the probe.
const PROBE_TIMEOUT: Duration = Duration::from_secs(5);

/// Flags of `enter`.
#[derive(clap::Args)]
pub(crate) struct EnterArgs {
    /// The cgroup's folder
    #[arg(long)]
    cgroup: Option<PathBuf>,
    /// No sockets whose packets the cgroup's guard does not see, or whose connections others make
    #[arg(long)]
    no_packets: bool,
    /// The preload shim, where there is no cgroup
    #[arg(long)]
    shim: Option<PathBuf>,
    /// The protocol of the module, for the shim; without it, the environment says where the agent is
    #[arg(long, requires = "shim")]
    protocol: Option<u16>,
    /// The program and its arguments
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, required = true)]
    command: Vec<OsString>,
}

impl EnterArgs {
    /// Becomes the program.
    pub(crate) fn run(self) -> Result<Exit, Failure> {
        refuse_inherited_sockets()?;
        let Some((program, arguments)) = self.command.split_first() else {
            return Err(Failure::usage("the program is missing"));
        };
        let mut command = Command::new(program);
        command.args(arguments);
        if let Some(cgroup) = &self.cgroup {
            let procs = cgroup.join("cgroup.procs");
            // 0 is the process that writes.
            std::fs::write(&procs, "0").map_err(|error| {
                Failure::new(Exit::Other, format!("{}: {error}", procs.display()))
            })?;
        }
        let no_filter = |error| Failure::new(Exit::Other, format!("the filter (seccomp): {error}"));
        if self.no_packets {
            forbid_packets().map_err(no_filter)?;
        }
        if let Some(shim) = &self.shim {
            forbid_clear_tcp(self.protocol).map_err(no_filter)?;
            command.env("LD_PRELOAD", before_others(shim));
            match self.protocol {
                Some(protocol) => {
                    command.env("TOWLINE_STCP_PROTOCOL", protocol.to_string());
                }
                // Without its agent the program would be deaf, and perhaps never rest.
                None => set_parent_process_death_signal(Some(Signal::TERM)).map_err(|error| {
                    Failure::new(
                        Exit::Other,
                        format!("the signal at the agent's end: {error}"),
                    )
                })?,
            }
        }
        let error = command.exec();
        let exit = match error.kind() {
            std::io::ErrorKind::NotFound => NOT_FOUND,
            _ => CANNOT_EXECUTE,
        };
        Err(Failure::new(
            Exit::Program(exit),
            format!("{}: {error}", program.display()),
        ))
    }
}

/// An internet socket that this process was started with would stay in clear.
pub(crate) fn refuse_inherited_sockets() -> Result<(), Failure> {
    let sockets = inherited_sockets()
        .map_err(|error| Failure::new(Exit::Other, format!("/proc/self/fd: {error}")))?;
    match sockets.first() {
        None => Ok(()),
        Some(descriptor) => Err(Failure::usage(format!(
            "descriptor {descriptor} is an internet socket from outside: it would not be encrypted"
        ))
        .next("start the program without inherited sockets (no socket activation)")),
    }
}

/// The shim before what else is preloaded: a memory allocator, say.
fn before_others(shim: &Path) -> OsString {
    let mut all = shim.as_os_str().to_owned();
    if let Some(others) = std::env::var_os("LD_PRELOAD").filter(|others| !others.is_empty()) {
        all.push(":");
        all.push(others);
    }
    all
}

/// Flags of `probe`: one of the first two.
#[derive(clap::Args)]
pub(crate) struct ProbeArgs {
    /// Where nobody is: the relay shall answer
    #[arg(
        long,
        required_unless_present = "protocol",
        conflicts_with = "protocol"
    )]
    address: Option<SocketAddr>,
    /// The module's protocol: a TCP socket shall be one of it
    #[arg(long)]
    protocol: Option<u16>,
    /// The relay shall reach a port here as well; why it does not is put out
    #[arg(long, requires = "address")]
    inbound: bool,
}

impl ProbeArgs {
    /// Ends well if a connection made here and now would be encrypted.
    pub(crate) fn run(self) -> Result<Exit, Failure> {
        let is_good = match (self.address, self.protocol) {
            (Some(address), _) => is_relayed(address, self.inbound),
            (None, Some(protocol)) => is_upgraded(protocol),
            (None, None) => Ok(false),
        };
        match is_good {
            Ok(true) => Ok(Exit::Ok),
            Ok(false) => Err(Failure::new(Exit::Other, "it would have been in clear")),
            Err(error) if is_lost(error.kind()) => {
                // Masqueraded, a packet of loopback's has an address that cannot be there.
                let why =
                    format!("{error}: does a firewall rule rewrite the addresses of loopback?");
                Err(Failure::new(Exit::Other, why)
                    .next("except the interface lo from it (`nft list ruleset`)"))
            }
            Err(error) => Err(Failure::new(Exit::Other, error.to_string())),
        }
    }
}

/// Whether a packet did not come to where it was sent.
fn is_lost(kind: std::io::ErrorKind) -> bool {
    use std::io::ErrorKind::{HostUnreachable, NetworkUnreachable, TimedOut};
    [HostUnreachable, NetworkUnreachable, TimedOut].contains(&kind)
}

fn is_relayed(address: SocketAddr, inbound: bool) -> io::Result<bool> {
    let door = inbound.then(listen_everywhere).transpose()?;
    let mut stream = TcpStream::connect_timeout(&address, PROBE_TIMEOUT)?;
    stream.set_read_timeout(Some(PROBE_TIMEOUT))?;
    if let Some(door) = &door {
        stream.write_all(&door.local_addr()?.port().to_be_bytes())?;
    }
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    let (port, why) = text.split_once('\n').unwrap_or((&text, ""));
    io::stdout().write_all(why.as_bytes())?;
    Ok(port == address.port().to_string())
}

/// At any port of every address, of IPv6 as well where there is that.
fn listen_everywhere() -> io::Result<TcpListener> {
    let listen = |address: SocketAddr| {
        let socket = Socket::new(Domain::for_address(address), Type::STREAM, None)?;
        if address.is_ipv6() {
            socket.set_only_v6(false)?;
        }
        socket.bind(&address.into())?;
        socket.listen(2)?;
        Ok(TcpListener::from(socket))
    };
    listen((Ipv6Addr::UNSPECIFIED, 0).into())
        .or_else(|_: io::Error| listen((Ipv4Addr::UNSPECIFIED, 0).into()))
}
