//! The runner's command line. It decides nothing beyond what was asked.

use std::path::PathBuf;

use crate::drivers::Stack;

const USAGE: &str = "\
usage: interop-wt-runner [--json FILE] [--peer NAME]... [--pairs WHICH] [--no-build]
  --peer    towline-python, aioquic, webtransport-go, wtransport, web-transport-quinn,
            pywebtransport-0.21.1, pywebtransport-0.9.0 (default: all)
  --pairs   towline: Towline, in Rust and in Python, with itself and with each peer, both roles (default)
            towline-python: of those the ones with the Python package
            all: every stack with every stack";

/// What was asked for.
#[derive(Debug)]
pub(crate) struct Options {
    /// Where the result goes as JSON.
    pub(crate) json: Option<PathBuf>,
    /// Stacks that take part beside Towline.
    pub(crate) peers: Vec<Stack>,
    /// Who meets whom.
    pub(crate) pairs: Pairs,
    /// Whether to build the drivers first.
    pub(crate) build: bool,
}

/// Which pairs of a client and a server are run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pairs {
    /// Those with an end of Towline's.
    Ours,
    /// Those with Towline's Python package.
    Python,
    /// All.
    All,
}

impl Pairs {
    /// Whether the pair is one of them.
    pub(crate) fn include(self, client: Stack, server: Stack) -> bool {
        match self {
            Pairs::Ours => client.is_ours() || server.is_ours(),
            Pairs::Python => [client, server].contains(&Stack::TowlinePython),
            Pairs::All => true,
        }
    }
}

impl Options {
    /// Reads the process's own arguments; the error is text for a person.
    pub(crate) fn from_args() -> Result<Options, String> {
        let mut options = Options {
            json: None,
            peers: Vec::new(),
            pairs: Pairs::Ours,
            build: true,
        };
        let mut args = std::env::args().skip(1);
        while let Some(arg) = args.next() {
            let mut value = || args.next().ok_or(format!("{arg} needs a value\n{USAGE}"));
            match arg.as_str() {
                "--json" => options.json = Some(value()?.into()),
                "--peer" => options.peers.push(peer(&value()?)?),
                "--pairs" => options.pairs = pairs(&value()?)?,
                "--no-build" => options.build = false,
                _ => return Err(format!("unknown argument {arg}\n{USAGE}")),
            }
        }
        if options.peers.is_empty() {
            options.peers = Stack::PEERS.to_vec();
        }
        Ok(options)
    }
}

fn peer(name: &str) -> Result<Stack, String> {
    let found = Stack::PEERS.into_iter().find(|peer| peer.name() == name);
    found.ok_or_else(|| format!("no such peer: {name}\n{USAGE}"))
}

fn pairs(text: &str) -> Result<Pairs, String> {
    match text {
        "towline" => Ok(Pairs::Ours),
        "towline-python" => Ok(Pairs::Python),
        "all" => Ok(Pairs::All),
        _ => Err(format!("no such pairs: {text}\n{USAGE}")),
    }
}
