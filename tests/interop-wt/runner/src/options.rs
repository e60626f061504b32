//! The runner's command line. It decides nothing beyond what was asked.

use std::path::PathBuf;

use crate::drivers::Stack;

const USAGE: &str = "\
usage: interop-wt-runner [--json FILE] [--peer NAME]... [--pairs towline|all] [--no-build]
  --peer    aioquic, webtransport-go, wtransport, web-transport-quinn, pywebtransport-0.21.1,
            pywebtransport-0.9.0 (default: all)
  --pairs   towline: Towline with itself and with each peer, both roles (default)
            all: every stack with every stack";

/// What was asked for.
#[derive(Debug)]
pub(crate) struct Options {
    /// Where the result goes as JSON.
    pub(crate) json: Option<PathBuf>,
    /// Stacks that take part beside Towline.
    pub(crate) peers: Vec<Stack>,
    /// Whether the peers meet each other too.
    pub(crate) all_pairs: bool,
    /// Whether to build the drivers first.
    pub(crate) build: bool,
}

impl Options {
    /// Reads the process's own arguments; the error is text for a person.
    pub(crate) fn from_args() -> Result<Options, String> {
        let mut options = Options {
            json: None,
            peers: Vec::new(),
            all_pairs: false,
            build: true,
        };
        let mut args = std::env::args().skip(1);
        while let Some(arg) = args.next() {
            let mut value = || args.next().ok_or(format!("{arg} needs a value\n{USAGE}"));
            match arg.as_str() {
                "--json" => options.json = Some(value()?.into()),
                "--peer" => options.peers.push(peer(&value()?)?),
                "--pairs" => options.all_pairs = all_pairs(&value()?)?,
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

fn all_pairs(text: &str) -> Result<bool, String> {
    match text {
        "towline" => Ok(false),
        "all" => Ok(true),
        _ => Err(format!("no such pairs: {text}\n{USAGE}")),
    }
}
