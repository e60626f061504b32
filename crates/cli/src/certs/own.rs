//! Our own certificates as a server runs: the one in force is shown, and the next is there before its time.
//!
//! The folder is looked at every second, and at SIGHUP: `towline cert rotate` and other servers write there
//! too. Nothing is made from within a handshake.

use std::path::PathBuf;
use std::sync::Arc;

use tokio::sync::watch;
use tokio::task::spawn_blocking;
use tokio::time::interval;
use towline::config::{Certificates, Rotation, UnixTime, unix_now};

use super::folder::{Folder, KEY_FILE, Next};
use super::given::{LOOK_EVERY, note_another_key};
use super::home::home;
use super::serving::{Serving, pins};
use crate::exit::{Exit, Failure};
use crate::interrupt::Hangup;
use crate::printer::Printer;
use crate::units::date;
use crate::watched::Watched;

/// The folder, and what was found there last.
pub(super) struct Own {
    folder: PathBuf,
    files: Vec<Watched>,
    rotation: Rotation,
    /// What is wrong with the folder, which somebody has been told.
    wrong: Option<String>,
}

impl Own {
    /// With what is there, and with what is missing.
    pub(super) fn open() -> Result<Self, Failure> {
        Self::open_in(home("our key")?, unix_now())
    }

    fn open_in(folder: PathBuf, now: UnixTime) -> Result<Self, Failure> {
        let files = Folder::files(&folder).map(Watched::new).into();
        let rotation = with_next(&folder, now)?;
        Ok(Self {
            folder,
            files,
            rotation,
            wrong: None,
        })
    }

    /// What a server shows: always the one in force.
    pub(super) fn serve(self, printer: Printer) -> Result<Serving, Failure> {
        let identity = self.rotation.shown().clone();
        let certificates = Certificates::new(identity.clone())
            .map_err(|error| Failure::new(Exit::Tls, error.to_string()))?;
        let (latest, current) = watch::channel(pins(self.rotation.certificates()));
        tokio::spawn(self.keep_up(certificates.clone(), latest, printer));
        Ok(Serving {
            identity,
            certificates: Some(certificates),
            pins: Arc::new(move || current.borrow().clone()),
        })
    }

    async fn keep_up(
        mut self,
        certificates: Certificates,
        latest: watch::Sender<Vec<String>>,
        printer: Printer,
    ) {
        let (mut looking, mut hangup) = (interval(LOOK_EVERY), Hangup::heard());
        loop {
            let asked = tokio::select! {
                _ = looking.tick() => false,
                () = hangup.recv() => true,
            };
            // Files are no business of the network's threads.
            let looked = spawn_blocking(move || {
                let found = self.look(asked, unix_now());
                (self, found)
            });
            let Ok((own, found)) = looked.await else {
                return;
            };
            self = own;
            match found {
                Some(Ok(rotation)) => self.show(rotation, &certificates, &latest, printer),
                Some(Err(why)) => printer.note(format_args!(
                    "towline: WARNING: {why}; the certificates before are still shown"
                )),
                None => {}
            }
            if asked {
                printer.note(format_args!("towline: SIGHUP: {}", self.said()));
            }
        }
    }

    /// What is to be shown, if somebody has to hear of it.
    fn look(&mut self, asked: bool, now: UnixTime) -> Option<Result<Rotation, String>> {
        // All are asked, whatever the first says.
        let changed = self
            .files
            .iter_mut()
            .filter_map(|file| file.has_changed().then_some(()));
        let has_changed = changed.count() > 0;
        if !asked && !has_changed && !self.rotation.is_due(now) {
            return None;
        }
        // A key that is gone is not replaced under a running server.
        let found = match self.folder.join(KEY_FILE).exists() {
            true => with_next(&self.folder, now).map_err(|failure| failure.to_string()),
            false => Err(format!("our key is gone from {}", self.folder.display())),
        };
        match found {
            Ok(rotation) => {
                self.wrong = None;
                let is_new = pins(rotation.certificates()) != pins(self.rotation.certificates());
                is_new.then_some(Ok(rotation))
            }
            Err(why) => {
                let is_news = asked || self.wrong.as_ref() != Some(&why);
                self.wrong = Some(why.clone());
                is_news.then_some(Err(why))
            }
        }
    }

    fn show(
        &mut self,
        rotation: Rotation,
        certificates: &Certificates,
        latest: &watch::Sender<Vec<String>>,
        printer: Printer,
    ) {
        if let Err(error) = certificates.set(rotation.shown().clone()) {
            printer.note(format_args!("towline: WARNING: {error}"));
            return;
        }
        latest.send_replace(pins(rotation.certificates()));
        let before = std::mem::replace(&mut self.rotation, rotation);
        printer.note(format_args!("towline: {}", self.said()));
        note_another_key(before.shown(), self.rotation.shown(), printer);
    }

    /// What is shown, and what follows.
    fn said(&self) -> String {
        let all = pins(self.rotation.certificates());
        let (shown, next) = (&all[0], all.get(1));
        let until = date(self.rotation.swaps_at());
        let next = next.map_or_else(String::new, |next| format!(", then {next}"));
        format!("the certificate {shown} is shown until {until}{next}")
    }
}

fn with_next(folder: &std::path::Path, now: UnixTime) -> Result<Rotation, Failure> {
    let kept = Folder::open(folder.to_owned()).rotate(Next::default(), now)?;
    Ok(kept.rotation)
}
