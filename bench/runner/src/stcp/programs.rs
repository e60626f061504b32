//! The programs: ours and the peers of rustls and OpenSSL are built, stunnel is the system's.

use std::path::{Path, PathBuf};
use std::process::Command;

use bench_runner::Outcome;
use bench_runner::build::{cargo, locked, target_folder};
use bench_runner::machine;
use bench_runner::material::make_material;
use serde_json::Value;

use crate::plan::Stack;

/// Where everything is.
pub(crate) struct Programs {
    pub(crate) towline: PathBuf,
    pub(crate) peer: PathBuf,
    /// Over the system's OpenSSL; why there is none.
    pub(crate) openssl: Outcome<PathBuf>,
    /// Certificates, the keys of both machines, stunnel's configuration.
    pub(crate) material: PathBuf,
    /// Of the server's key.
    pub(crate) server_pin: String,
    /// Of the client's key.
    pub(crate) client_pin: String,
    commit: String,
    stunnel: String,
}

impl Programs {
    pub(crate) fn find(root: &Path, build: bool) -> Outcome<Self> {
        let bench = root.join("bench");
        let target = target_folder(&bench)?;
        if build {
            cargo(root, &["-p", "towline-cli", "-p", "towline-preload"])?;
            cargo(&bench, &["-p", "bench-peers", "--bin", "bench-stcp-peer"])?;
        }
        let openssl = match build {
            true => cargo(&bench, &["-p", "bench-openssl"])
                .map_err(|why| format!("{why} (libssl-dev and pkg-config: make setup-system)")),
            false => Ok(()),
        };
        let material = target.join("material-stcp");
        make_material(&material)?;
        let mut programs = Self {
            towline: target_folder(root)?.join("release/towline"),
            peer: target.join("release/bench-stcp-peer"),
            openssl: openssl.map(|()| target.join("release/bench-openssl-peer")),
            material,
            server_pin: String::new(),
            client_pin: String::new(),
            commit: machine::commit(root),
            stunnel: stunnel_version(),
        };
        for program in [&programs.towline, &programs.peer] {
            if !program.is_file() {
                return Err(format!("{} was not built", program.display()));
            }
        }
        programs.server_pin = programs.pin("server")?;
        programs.client_pin = programs.pin("client")?;
        Ok(programs)
    }

    /// `towline stcp` on one of two machines, each with a key of its own.
    pub(crate) fn towline(&self, machine: &str) -> Command {
        let mut command = Command::new(&self.towline);
        command
            .env("TOWLINE_HOME", self.material.join(machine))
            .args(["stcp", "--json", "--quiet"]);
        command
    }

    fn pin(&self, machine: &str) -> Outcome<String> {
        let output = self.towline(machine).arg("key").output();
        let output = output.map_err(|error| format!("towline did not start: {error}"))?;
        let said: Value = serde_json::from_slice(&output.stdout)
            .map_err(|error| format!("`towline stcp key`: {error}"))?;
        let pin = said["pin"].as_str();
        Ok(pin.ok_or("`towline stcp key` told no pin")?.to_owned())
    }

    /// What was measured.
    pub(crate) fn version(&self, stack: Stack) -> String {
        match stack {
            Stack::Plain => "this kernel".to_owned(),
            Stack::Towline | Stack::Proxy | Stack::Relay | Stack::UserRelay => {
                format!("{} ({})", locked("towline"), self.commit)
            }
            Stack::Rustls => format!(
                "rustls {}, tokio-rustls {}",
                locked("rustls"),
                locked("tokio-rustls")
            ),
            Stack::Stunnel => self.stunnel.clone(),
            Stack::Openssl => machine::said("openssl", &["version"]),
        }
    }
}

/// It tells on standard error, in the second line.
fn stunnel_version() -> String {
    let output = Command::new("stunnel").arg("-version").output();
    let Ok(output) = output else {
        return "not here".to_owned();
    };
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let line = said.lines().find(|line| line.starts_with("stunnel "));
    let version = line.and_then(|line| line.split_whitespace().nth(1));
    format!("stunnel {}", version.unwrap_or("unknown"))
}
