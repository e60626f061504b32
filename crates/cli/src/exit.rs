//! Exit codes, and failures that end a command: what happened and what to do next.

use std::fmt;
use std::process::ExitCode;

/// Shown at the end of `--help`.
pub(crate) const HELP: &str = "\
Exit codes:
    0  ok                               5  the peer broke the protocol
    1  another failure                  6  timeout: the peer went silent
    2  wrong usage or configuration     7  data not whole: some files did not go through
    3  cannot resolve or connect        8  a threshold was missed (--fail-if, sim matrix)
    4  certificate or TLS failure     130  interrupted

URLs:  towline://HOST[:PORT][/PATH][#sha256/PIN]   the port is 4433 if not given, of a link 4460
       https://HOST[:PORT][/PATH][#sha256/PIN]     of `towline web`; the port is 443 if not given";

/// How a command ends, as its exit code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    /// Everything asked for was done.
    Ok,
    /// A failure of no other kind.
    Other,
    /// Wrong usage or configuration.
    Usage,
    /// A name does not resolve, or nobody answers.
    Connect,
    /// Certificate or TLS failure.
    Tls,
    /// The peer broke the protocol.
    Protocol,
    /// The peer went silent.
    Timeout,
    /// Data is not whole.
    Partial,
    /// A threshold given by the user was missed.
    Threshold,
    /// Ctrl-C.
    Interrupted,
    /// The code of a program that was run.
    Program(u8),
}

impl Exit {
    /// The number a shell sees.
    pub(crate) const fn code(self) -> u8 {
        match self {
            Self::Ok => 0,
            Self::Other => 1,
            Self::Usage => 2,
            Self::Connect => 3,
            Self::Tls => 4,
            Self::Protocol => 5,
            Self::Timeout => 6,
            Self::Partial => 7,
            Self::Threshold => 8,
            Self::Interrupted => 130,
            Self::Program(code) => code,
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        exit.code().into()
    }
}

/// Why a command failed.
#[derive(Clone, Debug)]
pub(crate) struct Failure {
    pub(crate) exit: Exit,
    pub(crate) message: String,
    /// What the user can do about it.
    pub(crate) next: Option<String>,
}

impl Failure {
    /// A failure without advice.
    pub(crate) fn new(exit: Exit, message: impl Into<String>) -> Self {
        Self {
            exit,
            message: message.into(),
            next: None,
        }
    }

    /// Wrong usage or configuration.
    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self::new(Exit::Usage, message)
    }

    /// The same with the next step.
    pub(crate) fn next(mut self, next: impl Into<String>) -> Self {
        self.next = Some(next.into());
        self
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)?;
        match &self.next {
            Some(next) => write!(f, "\n  next: {next}"),
            None => Ok(()),
        }
    }
}
