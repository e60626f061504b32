//! One cell of the table: a client runs the cases against a server.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use crate::Error;
use crate::drivers::{Fleet, Stack};
use crate::http3::site::{FILES, Site};
use crate::material::Material;
use crate::process::Process;

/// For a server to come up.
const START: Duration = Duration::from_secs(15);
/// For one case; clients give each up after 60 seconds.
const CASE: Duration = Duration::from_secs(75);

/// What a client does on a connection of its own; `tests/interop/README.md` says what must be seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Case {
    Site,
    Head,
    Ranges,
    Post,
    Trailers,
    Interim,
    GoAway,
}

impl Case {
    /// In the order in which they are run: the last ends the server.
    pub(crate) const ALL: [Case; 7] = [
        Case::Site,
        Case::Head,
        Case::Ranges,
        Case::Post,
        Case::Trailers,
        Case::Interim,
        Case::GoAway,
    ];

    /// As drivers know it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Case::Site => "site",
            Case::Head => "head",
            Case::Ranges => "ranges",
            Case::Post => "post",
            Case::Trailers => "trailers",
            Case::Interim => "interim",
            Case::GoAway => "goaway",
        }
    }

    /// Whether it asks for files.
    fn is_of_files(self) -> bool {
        matches!(self, Case::Site | Case::Head | Case::Ranges)
    }

    /// What a library lacks for it.
    fn lacking(self, client: Stack, server: Stack) -> Option<&'static str> {
        match (self, client, server) {
            // Its own server's answer, too, ends its connection with H3_MESSAGE_ERROR.
            (Case::Head, Stack::Aioquic, _) => {
                Some("aioquic's client takes the length that HEAD tells for a body's")
            }
            (Case::Ranges, _, Stack::Aioquic) => Some("aioquic has no file server"),
            (Case::GoAway, _, Stack::Aioquic) => Some("aioquic sends no GOAWAY"),
            _ => None,
        }
    }
}

/// How a case ended.
#[derive(Debug, Clone)]
pub(crate) enum Outcome {
    /// As it should; what was seen.
    Passed(String),
    /// Not as it should; says how.
    Failed(String),
    /// Not run; says what is lacking.
    Skipped(&'static str),
}

/// What came of one pair.
#[derive(Debug)]
pub(crate) struct Cell {
    pub(crate) client: Stack,
    pub(crate) server: Stack,
    /// One of each case.
    pub(crate) outcomes: Vec<(Case, Outcome)>,
}

/// What all cells share.
pub(crate) struct Place {
    /// The program `towline`.
    pub(crate) program: PathBuf,
    pub(crate) site: Site,
    pub(crate) material: Material,
    /// Takes the logs and what clients fetch.
    pub(crate) runs: PathBuf,
}

/// Runs the cases of `client` against `server`.
pub(crate) fn run(
    client: Stack,
    server: Stack,
    fleet: &Fleet,
    place: &Place,
) -> Result<Cell, Error> {
    let folder = format!("{}_{}", client.name(), server.name());
    let folder = place.runs.join(folder);
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(folder.join("out"))?;
    // Towline has a program that serves files, and a driver for the rest.
    let parts = match server {
        Stack::Towline => vec![
            ("files", of_program(place, &folder), true, false),
            ("driver", of_driver(server, fleet, place)?, false, true),
        ],
        _ => vec![("driver", of_driver(server, fleet, place)?, true, true)],
    };
    let mut outcomes = Vec::new();
    for (part, command, has_files, has_rest) in parts {
        let cases = Case::ALL
            .into_iter()
            .filter(|case| match case.is_of_files() {
                true => has_files,
                false => has_rest,
            });
        let (lacking, cases): (Vec<_>, Vec<_>) =
            cases.partition(|case| case.lacking(client, server).is_some());
        for case in lacking {
            let why = case.lacking(client, server).unwrap_or_default();
            outcomes.push((case, Outcome::Skipped(why)));
        }
        let log = folder.join(format!("server-{part}.log"));
        let serving = Process::start(command, &log)?;
        let address = serving
            .line("listening ", Instant::now() + START)
            .ok_or_else(|| format!("the {} server did not come up", server.name()))?;
        let mut command = fleet.get(client).command()?;
        command.arg("http3-client").arg(address);
        command.arg(&place.material.ca).arg(&place.site.list);
        command.arg(folder.join("out"));
        command.args(cases.iter().map(|case| case.name()));
        let log = folder.join(format!("client-{part}.log"));
        let asking = Process::start(command, &log)?;
        for case in cases {
            outcomes.push((case, outcome(&asking, case, place, &folder)));
        }
    }
    outcomes.sort_by_key(|(case, _)| *case as usize);
    Ok(Cell {
        client,
        server,
        outcomes,
    })
}

/// `towline serve --web`, as users get it.
fn of_program(place: &Place, folder: &Path) -> Command {
    let mut command = Command::new(&place.program);
    command.args(["serve", "--listen", "127.0.0.1:0", "--web"]);
    command.arg(&place.site.root);
    command.arg("--cert").arg(&place.material.cert);
    command.arg("--key").arg(&place.material.key);
    command.env("TOWLINE_HOME", folder.join("home"));
    command
}

fn of_driver(server: Stack, fleet: &Fleet, place: &Place) -> Result<Command, Error> {
    let mut command = fleet.get(server).command()?;
    command.arg("http3-server");
    command.arg(&place.material.cert).arg(&place.material.key);
    command.arg(&place.site.root);
    Ok(command)
}

/// What the client says of a case, and what its files say.
fn outcome(asking: &Process, case: Case, place: &Place, folder: &Path) -> Outcome {
    let started = Instant::now();
    let prefix = format!("{} ", case.name());
    let Some(line) = asking.line(&prefix, started + CASE) else {
        return Outcome::Failed("the client ended without a word".to_owned());
    };
    let Some(detail) = line.strip_prefix("ok ") else {
        return Outcome::Failed(line.trim_start_matches("failed ").to_owned());
    };
    if case != Case::Site {
        return Outcome::Passed(detail.to_owned());
    }
    let took = started.elapsed().as_secs_f64();
    match place.site.compare(&folder.join("out")) {
        Ok(bytes) => Outcome::Passed(format!("{FILES} files, {bytes} bytes, {took:.1} s")),
        Err(error) => Outcome::Failed(error.to_string()),
    }
}
