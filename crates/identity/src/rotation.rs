//! A server's own certificates, of which the next is known before it is shown.
//!
//! A page names the certificates it believes by their hashes (`serverCertificateHashes`), and none of them lives
//! longer than two weeks. A server that gives its pages two hashes, of the certificate it shows and of the next, can be
//! reached by them after the swap as well. Each certificate is the next in its first week and shown in its second, so
//! whoever has the older hash is believed until that one ends, and a pair of hashes is good for a week at least.
//!
//! Dates are arguments. Who keeps certificates, and who looks at the clock, is the caller's business: the command line
//! does both in `certs`.

use std::time::Duration;

use rustls::pki_types::UnixTime;

use crate::error::GenerateError;
use crate::generate::{BACKDATED_BY, DEV_LIFETIME};
use crate::identity::Identity;

/// From one swap to the next.
pub const ROTATE_EVERY: Duration = Duration::from_secs(DEV_LIFETIME.as_secs() / 2);

/// The next certificate is shown this long before the one before it ends, for peers whose clock is fast.
pub const SWAP_BEFORE_END: Duration = Duration::from_secs(3600);

/// The certificate that is shown, and the one that follows it.
///
/// ```
/// # use std::time::Duration;
/// # use towline_identity::{Certificates, Identity, Rotation, UnixTime};
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let now = UnixTime::since_unix_epoch(Duration::from_secs(1_767_225_600));
/// let names = ["boat.example"];
/// let first = Identity::generate_dev(&names, now)?;
/// let mut rotation = Rotation::new([first], now).ok_or("made just now")?;
/// rotation.set_next(rotation.successor(&names, now)?);
/// // Pages are given these two hashes.
/// assert_eq!(rotation.certificates().count(), 2);
/// let certificates = Certificates::new(rotation.shown().clone())?;
/// // From its swap on, and after a restart, the next is the one that is shown.
/// let then = rotation.swaps_at();
/// let rotation = Rotation::new(rotation.certificates().cloned(), then).ok_or("there is a next")?;
/// certificates.set(rotation.shown().clone())?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Rotation {
    shown: Identity,
    next: Option<Identity>,
}

impl Rotation {
    /// What to do at `now` with certificates that were kept, in any order: the oldest that is valid and not yet to be
    /// swapped is shown, and the one that ends soonest after it is the next. `None` where none can be shown: it is time
    /// for a new one. Raw keys are passed over.
    pub fn new(kept: impl IntoIterator<Item = Identity>, now: UnixTime) -> Option<Rotation> {
        let mut kept: Vec<_> = kept
            .into_iter()
            .filter_map(|identity| Some((identity.validity()?, identity)))
            .collect();
        kept.sort_by_key(|((_, end), _)| *end);
        let is_shown = |(begin, end): (UnixTime, UnixTime)| begin <= now && now < swap_at(end);
        let at = kept.iter().position(|(dates, _)| is_shown(*dates))?;
        let mut rest = kept.into_iter().skip(at);
        let ((_, end), shown) = rest.next()?;
        let follows = |begin: UnixTime, its_end: UnixTime| its_end > end && begin <= swap_at(end);
        let next = rest.find(|((begin, its_end), _)| follows(*begin, *its_end));
        Some(Rotation {
            shown,
            next: next.map(|(_, identity)| identity),
        })
    }

    /// The certificate to show.
    pub fn shown(&self) -> &Identity {
        &self.shown
    }

    /// The one after it, if there is one yet.
    pub fn next(&self) -> Option<&Identity> {
        self.next.as_ref()
    }

    /// Both, the one that is shown first: peers are given their hashes.
    pub fn certificates(&self) -> impl Iterator<Item = &Identity> {
        std::iter::once(&self.shown).chain(&self.next)
    }

    /// From when on the next is to be shown.
    pub fn swaps_at(&self) -> UnixTime {
        swap_at(end(&self.shown))
    }

    /// Whether something is to be done at `now`: there is no next certificate, its time has come, or the clock was
    /// set back to before the one that is shown.
    pub fn is_due(&self, now: UnixTime) -> bool {
        let begin = self.shown.validity().map(|(begin, _)| begin);
        self.next.is_none() || now >= self.swaps_at() || begin.is_some_and(|begin| now < begin)
    }

    /// A certificate that can be the next: under the same key, for `names`.
    ///
    /// # Errors
    /// When a name cannot stand in a certificate.
    pub fn successor<S: AsRef<str>>(
        &self,
        names: &[S],
        now: UnixTime,
    ) -> Result<Identity, GenerateError> {
        self.shown
            .certified_anew(names, self.successor_made_at(now))
    }

    /// As [`successor`](Self::successor), under a new key: whoever has the pin of the old one needs the new one too.
    ///
    /// # Errors
    /// The same.
    pub fn successor_with_new_key<S: AsRef<str>>(
        &self,
        names: &[S],
        now: UnixTime,
    ) -> Result<Identity, GenerateError> {
        Identity::generate_dev(names, self.successor_made_at(now))
    }

    /// Puts `next` in the place of the next certificate.
    pub fn set_next(&mut self, next: Identity) {
        self.next = Some(next);
    }

    /// The successor is as valid as one that is made then: not so early that it ends soon after the swap.
    fn successor_made_at(&self, now: UnixTime) -> UnixTime {
        let begin = end(&self.shown)
            .as_secs()
            .saturating_sub(ROTATE_EVERY.as_secs());
        let at = Duration::from_secs(begin.saturating_add(BACKDATED_BY.as_secs()));
        now.max(UnixTime::since_unix_epoch(at))
    }
}

fn swap_at(end: UnixTime) -> UnixTime {
    let at = end.as_secs().saturating_sub(SWAP_BEFORE_END.as_secs());
    UnixTime::since_unix_epoch(Duration::from_secs(at))
}

/// `new` took only certificates with dates.
fn end(identity: &Identity) -> UnixTime {
    let dates = identity.validity();
    dates.map_or(UnixTime::since_unix_epoch(Duration::ZERO), |(_, end)| end)
}

#[cfg(test)]
mod tests;
