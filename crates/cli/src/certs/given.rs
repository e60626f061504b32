//! A certificate and its key that somebody else renews, in the files of `--cert` and `--key`.
//!
//! The files are looked at every second and read again when they have changed: who connects from then
//! on is shown the new certificate, and nobody else notices. Where that does not come, the end is announced
//! before it does.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::task::spawn_blocking;
use tokio::time::interval;
use towline::config::{Certificates, Identity};

use super::serving::{Serving, pins};
use crate::exit::{Exit, Failure};
use crate::interrupt::Hangup;
use crate::printer::Printer;
use crate::units::date;
use crate::watched::Watched;

pub(super) const LOOK_EVERY: Duration = Duration::from_secs(1);
/// The end is announced this long before.
const WARN_BEFORE: Duration = Duration::from_secs(14 * 86_400);
const WARN_EVERY: Duration = Duration::from_secs(12 * 3600);

/// The files, and what was read from them last.
#[derive(Debug)]
pub(super) struct Given {
    cert: Watched,
    key: Watched,
    identity: Identity,
    state: State,
}

/// How what was read compares with the files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Same,
    /// They have changed and make no pair, maybe because one is replaced after the other.
    Unfinished,
    /// They are as before and still make none: somebody has been told.
    Wrong,
}

/// Reads a file named on the command line.
pub(crate) fn read(path: &Path) -> Result<Vec<u8>, Failure> {
    fs::read(path)
        .map_err(|error| Failure::usage(format!("{} cannot be read: {error}", path.display())))
}

/// The pair in two files.
pub(super) fn pair(cert: &Path, key: &Path) -> Result<Identity, Failure> {
    Identity::from_pem(&read(cert)?, &read(key)?)
        .map_err(|error| Failure::new(Exit::Tls, error.to_string()))
}

impl Given {
    pub(super) fn open(cert: PathBuf, key: PathBuf) -> Result<Self, Failure> {
        let (cert, key) = (Watched::new(cert), Watched::new(key));
        let identity = pair(cert.path(), key.path())?;
        Ok(Self {
            cert,
            key,
            identity,
            state: State::Same,
        })
    }

    /// What a server shows: always what is in the files.
    pub(super) fn serve(self, printer: Printer) -> Result<Serving, Failure> {
        let identity = self.identity.clone();
        let certificates = Certificates::new(identity.clone())
            .map_err(|error| Failure::new(Exit::Tls, error.to_string()))?;
        tokio::spawn(self.keep_up(certificates.clone(), printer));
        let shown = certificates.clone();
        Ok(Serving {
            identity,
            certificates: Some(certificates),
            pins: Arc::new(move || {
                let shown = shown.identity_for(None, towline::config::unix_now());
                pins(&shown)
            }),
        })
    }

    async fn keep_up(mut self, certificates: Certificates, printer: Printer) {
        let (mut warning, mut looking) = (interval(WARN_EVERY), interval(LOOK_EVERY));
        let mut hangup = Hangup::heard();
        loop {
            tokio::select! {
                _ = warning.tick() => warn_of_end(&self.identity, printer),
                () = hangup.recv() => looking.reset_immediately(),
                _ = looking.tick() => {
                    // Files are no business of the network's threads.
                    let looked = spawn_blocking(move || {
                        let found = self.look();
                        (self, found)
                    });
                    let Ok((given, found)) = looked.await else {
                        return;
                    };
                    self = given;
                    if let Some(found) = found {
                        self.show(found, &certificates, printer);
                        warning.reset_immediately();
                    }
                }
            }
        }
    }

    /// What is in the files, if it is not what was there before.
    fn look(&mut self) -> Option<Result<Identity, Failure>> {
        // Both are asked, whatever the first says.
        let has_changed = self.cert.has_changed() | self.key.has_changed();
        if !has_changed && self.state != State::Unfinished {
            return None;
        }
        match pair(self.cert.path(), self.key.path()) {
            Ok(now) => {
                self.state = State::Same;
                let is_new = now.certificate_chain() != self.identity.certificate_chain();
                is_new.then_some(Ok(now))
            }
            Err(_) if has_changed => {
                self.state = State::Unfinished;
                None
            }
            Err(failure) => {
                self.state = State::Wrong;
                Some(Err(failure))
            }
        }
    }

    fn show(
        &mut self,
        found: Result<Identity, Failure>,
        certificates: &Certificates,
        printer: Printer,
    ) {
        let set = found
            .map_err(|failure| failure.to_string())
            .and_then(|identity| {
                let set = certificates.set(identity.clone());
                set.map(|()| identity).map_err(|error| error.to_string())
            });
        match set {
            Ok(identity) => {
                let until = identity.validity().map(|(_, end)| date(end).to_string());
                let until = until.unwrap_or_default();
                printer.note(format_args!(
                    "towline: a new certificate, until {until}, is shown from now on"
                ));
                note_another_key(&self.identity, &identity, printer);
                self.identity = identity;
            }
            Err(why) => printer.note(format_args!(
                "towline: WARNING: {} and {} have changed and cannot be used: {why}; the certificate before is still shown",
                self.cert.path().display(),
                self.key.path().display()
            )),
        }
    }
}

/// Says so where the key changes, too.
pub(super) fn note_another_key(before: &Identity, now: &Identity, printer: Printer) {
    let (before, now) = (before.key_pin(), now.key_pin());
    if before != now {
        printer.note(format_args!(
            "towline: note: its key is another one: who was given the pin {before} needs {now}"
        ));
    }
}

/// Says when a certificate that we do not renew ends, before it does.
fn warn_of_end(identity: &Identity, printer: Printer) {
    let Some((_, end)) = identity.validity() else {
        return;
    };
    let now = towline::config::unix_now();
    if now > end {
        printer.note(format_args!(
            "towline: WARNING: our certificate ended on {}: nobody believes it; put a new one in its file",
            date(end)
        ));
    } else if now.as_secs() + WARN_BEFORE.as_secs() > end.as_secs() {
        printer.note(format_args!(
            "towline: note: our certificate ends on {}; put a new one in its file before",
            date(end)
        ));
    }
}
