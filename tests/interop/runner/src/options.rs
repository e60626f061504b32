//! The runner's command line. It decides nothing beyond what was asked.

use std::path::PathBuf;

use crate::case::Case;
use crate::drivers::Stack;
use crate::http3::PEERS;

const USAGE: &str = "\
usage: interop-runner [--json FILE] [--case NAME]... [--peer NAME]... [--pairs towline|peers|all]
                      [--slots N] [--no-build]
       interop-runner --http3 [--peer NAME]... [--no-build]
  --case    handshake, transfer, chacha20, retry, keyupdate, loss, rebind-port, rebind-addr,
            connectionmigration, ipv6, resumption, ecn, reset-stream-at
            (default: all)
  --peer    quinn, quic-go, aioquic (default: all)
  --pairs   towline: Towline with each peer, both roles (default)
            peers: the peers among themselves; all: everything, each stack with itself too
  --http3   HTTP/3 instead: Towline, quic-go and aioquic, each client with each server";

/// Which client-server pairs a run covers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pairs {
    /// Towline as client and as server of each peer.
    Towline,
    /// Every peer with every other peer: proves the drivers, not Towline.
    Peers,
    /// Every stack with every stack.
    All,
}

/// What was asked for.
#[derive(Debug)]
pub(crate) struct Options {
    /// Where the result goes as JSON.
    pub(crate) json: Option<PathBuf>,
    /// Cases to run.
    pub(crate) cases: Vec<Case>,
    /// Peers to run them with.
    pub(crate) peers: Vec<Stack>,
    /// Pairs to form.
    pub(crate) pairs: Pairs,
    /// Runs at the same time.
    pub(crate) slots: usize,
    /// Whether to build the drivers first.
    pub(crate) build: bool,
    /// Whether the table is HTTP/3's.
    pub(crate) http3: bool,
}

impl Options {
    /// Reads the process's own arguments; the error is text for a person.
    pub(crate) fn from_args() -> Result<Options, String> {
        let mut options = Options {
            json: None,
            cases: Vec::new(),
            peers: Vec::new(),
            pairs: Pairs::Towline,
            slots: 2,
            build: true,
            http3: false,
        };
        let mut args = std::env::args().skip(1);
        while let Some(arg) = args.next() {
            let mut value = || args.next().ok_or(format!("{arg} needs a value"));
            match arg.as_str() {
                "--json" => options.json = Some(value()?.into()),
                "--case" => options.cases.push(find(&Case::ALL, Case::name, &value()?)?),
                "--peer" => options
                    .peers
                    .push(find(&Stack::PEERS, Stack::name, &value()?)?),
                "--pairs" => options.pairs = pairs(&value()?)?,
                "--slots" => {
                    options.slots = value()?
                        .parse()
                        .ok()
                        .filter(|slots| *slots > 0)
                        .ok_or("--slots needs a number above 0")?;
                }
                "--no-build" => options.build = false,
                "--http3" => options.http3 = true,
                _ => return Err(format!("unknown argument {arg}\n{USAGE}")),
            }
        }
        if options.cases.is_empty() {
            options.cases = Case::ALL.to_vec();
        }
        if options.peers.is_empty() {
            options.peers = Stack::PEERS.to_vec();
        }
        if options.http3 {
            options.peers.retain(|peer| PEERS.contains(peer));
        }
        Ok(options)
    }
}

fn find<T: Copy>(all: &[T], name: fn(T) -> &'static str, wanted: &str) -> Result<T, String> {
    all.iter()
        .copied()
        .find(|item| name(*item) == wanted)
        .ok_or_else(|| format!("no such name: {wanted}\n{USAGE}"))
}

fn pairs(text: &str) -> Result<Pairs, String> {
    match text {
        "towline" => Ok(Pairs::Towline),
        "peers" => Ok(Pairs::Peers),
        "all" => Ok(Pairs::All),
        _ => Err(format!("no such pairs: {text}\n{USAGE}")),
    }
}
