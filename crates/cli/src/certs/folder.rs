//! Our key and our certificates in their folder: the one that is shown and the next.
//!
//! Whoever looks here first when the next one's time has come puts it into the place of the one before.
//! Programs that share the folder do that one after another, under a lock on it, so that all of them show
//! and announce the same. A crash between two files leaves pairs that still fit: each certificate goes
//! with the key that it is for.

use std::fs::{self, File};
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::fs::OFlags;
use rustix::io::Errno;
use towline::config::{Identity, Rotation, UnixTime};
use towline::identity::GenerateError;

use super::home::home;
use crate::exit::{Exit, Failure};

const CERTIFICATE_FILE: &str = "cert.pem";
pub(super) const KEY_FILE: &str = "key.pem";
const NEXT_CERTIFICATE_FILE: &str = "next-cert.pem";
/// The next certificate's key, where it is another one.
const NEXT_KEY_FILE: &str = "next-key.pem";
/// A line before the PEM section, which PEM readers skip: the names in the certificate.
const NAMES_LINE: &str = "towline certificate for";
const DEFAULT_NAMES: [&str; 3] = ["localhost", "127.0.0.1", "::1"];

/// Our key and certificates.
#[derive(Debug)]
pub(crate) struct Kept {
    pub(crate) rotation: Rotation,
    pub(crate) names: Vec<String>,
    pub(crate) certificate_file: PathBuf,
    pub(crate) key_file: PathBuf,
    /// Where the next certificate is, if there is one.
    pub(crate) next_file: PathBuf,
    /// Whether the certificate was made just now, and whether the key was.
    pub(crate) new_certificate: bool,
    pub(crate) new_key: bool,
    /// Whether the next certificate was made just now.
    pub(crate) new_next: bool,
    /// Why what was made is not in its file. It is made again at the next start: only the key has to stay.
    pub(crate) not_written: Option<String>,
}

/// What is to be made although it is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Anew {
    Nothing,
    Certificate,
    Key,
}

/// How to come by a next certificate.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Next {
    /// Another one, although it is there.
    pub(crate) force: bool,
    /// Under a new key.
    pub(crate) new_key: bool,
}

/// Loads our key and certificate, and makes what is missing, over, or asked for.
pub(crate) fn kept(anew: Anew, names: &[String]) -> Result<Kept, Failure> {
    let folder = home("our key")?;
    Folder::open(folder).settle(anew, names, towline::config::unix_now())
}

/// The same with a next certificate, which is made if there is none.
pub(crate) fn rotated(wish: Next) -> Result<Kept, Failure> {
    let folder = home("our key")?;
    Folder::open(folder).rotate(wish, towline::config::unix_now())
}

impl Kept {
    /// The same key without a certificate; its pin is the same.
    pub(super) fn raw(&self) -> Result<Identity, Failure> {
        Identity::raw_key_from_der(self.rotation.shown().private_key_der())
            .map_err(|error| Failure::new(Exit::Tls, error.to_string()))
    }

    fn wrote(&mut self, file: &Path, result: io::Result<()>) {
        if let Err(error) = result {
            let why = format!("{} cannot be written: {error}", file.display());
            tracing::warn!("{why}");
            self.not_written = Some(why);
        }
    }
}

/// The folder, ours until this is dropped.
pub(super) struct Folder {
    path: PathBuf,
    /// Where folders cannot be locked, the last of two programs wins.
    _lock: Option<File>,
}

/// A certificate file, and the key it is for.
struct Pair {
    identity: Identity,
    /// Whether it stands in the next one's place.
    is_next: bool,
    is_under_next_key: bool,
}

impl Folder {
    pub(super) fn open(path: PathBuf) -> Self {
        let _ = fs::create_dir_all(&path);
        let lock = File::open(&path).and_then(|folder| folder.lock().map(|()| folder));
        Self {
            path,
            _lock: lock.ok(),
        }
    }

    /// Every file whose change matters.
    pub(super) fn files(path: &Path) -> [PathBuf; 4] {
        [
            CERTIFICATE_FILE,
            KEY_FILE,
            NEXT_CERTIFICATE_FILE,
            NEXT_KEY_FILE,
        ]
        .map(|name| path.join(name))
    }

    /// Key and certificate of `now`; what is over is removed.
    pub(super) fn settle(
        &self,
        anew: Anew,
        names: &[String],
        now: UnixTime,
    ) -> Result<Kept, Failure> {
        let [certificate_file, key_file, next_file, next_key_file] = Self::files(&self.path);
        let next_key = match anew {
            Anew::Nothing => read_key(&next_key_file)?,
            Anew::Certificate | Anew::Key => None,
        };
        let (mut key, new_key) = self.own_key(anew, now)?;
        let pairs = match anew {
            Anew::Nothing => self.pairs(&key, next_key.as_deref()),
            Anew::Certificate | Anew::Key => Vec::new(),
        };
        let kept = pairs.iter().map(|pair| pair.identity.clone());
        let rotation = Rotation::new(kept, now);
        let in_place = match &rotation {
            Some(rotation) => pairs
                .iter()
                .find(|it| is_same(&it.identity, rotation.shown())),
            // All are over, so a next one's time had come: its key's, too.
            None => pairs
                .iter()
                .find(|it| it.is_next && it.identity.validity().is_some_and(|(_, end)| end < now)),
        };
        if let Some(pair) = in_place
            && let (true, Some(next)) = (pair.is_under_next_key, &next_key)
        {
            put_in_place(&next_key_file, &key_file);
            key.clone_from(next);
        }
        if rotation.is_some() && in_place.is_some_and(|pair| pair.is_next) {
            put_in_place(&next_file, &certificate_file);
        }
        let names = match names {
            [] => names_in([&certificate_file, &next_file]),
            names => names.to_vec(),
        };
        let new_certificate = rotation.is_none();
        let rotation = match rotation {
            Some(rotation) => rotation,
            None => {
                let made = Identity::certify_pem(&key, &names, now);
                let made = made.map_err(|error| not_made(&key_file, &error))?;
                Rotation::new([made], now)
                    .ok_or_else(|| Failure::new(Exit::Tls, "the clock is beyond all dates"))?
            }
        };
        let mut kept = Kept {
            rotation,
            names,
            certificate_file,
            key_file,
            next_file,
            new_certificate,
            new_key,
            new_next: false,
            not_written: None,
        };
        if new_certificate {
            let written =
                keep_certificate(&kept.certificate_file, kept.rotation.shown(), &kept.names);
            kept.wrote(&kept.certificate_file.clone(), written);
        }
        self.remove_what_is_over(&kept, &pairs);
        Ok(kept)
    }

    /// As `settle`, with a next certificate.
    pub(super) fn rotate(&self, wish: Next, now: UnixTime) -> Result<Kept, Failure> {
        let mut kept = self.settle(Anew::Nothing, &[], now)?;
        if let (Some(next), false) = (kept.rotation.next(), wish.force) {
            let is_as_wished = !wish.new_key || next.key_pin() != kept.rotation.shown().key_pin();
            return is_as_wished.then_some(kept).ok_or_else(|| {
                Failure::new(Exit::Other, "the next certificate is there, under the present key")
                    .next("--force puts another one in its place; whoever was given its hash needs the new one's")
            });
        }
        let next = match wish.new_key {
            true => kept.rotation.successor_with_new_key(&kept.names, now),
            false => kept.rotation.successor(&kept.names, now),
        };
        let next = next.map_err(|error| not_made(&kept.key_file, &error))?;
        let next_key_file = self.path.join(NEXT_KEY_FILE);
        let written = match wish.new_key {
            true => keep_key(&next_key_file, &next.private_key_pem(), true),
            false => remove(&next_key_file),
        };
        let written = written.and_then(|()| keep_certificate(&kept.next_file, &next, &kept.names));
        kept.wrote(&kept.next_file.clone(), written);
        kept.rotation.set_next(next);
        kept.new_next = true;
        Ok(kept)
    }

    /// The key, and whether it was made just now.
    fn own_key(&self, anew: Anew, now: UnixTime) -> Result<(Vec<u8>, bool), Failure> {
        let key_file = self.path.join(KEY_FILE);
        let there = match anew {
            Anew::Key => None,
            Anew::Nothing | Anew::Certificate => read_key(&key_file)?,
        };
        if let Some(key) = there {
            return Ok((key, false));
        }
        let new = Identity::generate_dev::<&str>(&[], now)
            .map_err(|error| Failure::new(Exit::Other, error.to_string()))?;
        let text = new.private_key_pem();
        keep_key(&key_file, &text, anew == Anew::Key).map_err(|error| {
            let folder = self.path.display();
            Failure::new(
                Exit::Other,
                format!("our key cannot be kept in {folder}: {error}"),
            )
            .next("set TOWLINE_HOME to a folder that can be written, or give --cert and --key")
        })?;
        // Where folders cannot be locked another process may have been faster: its key counts.
        let key = read_key(&key_file)?.unwrap_or_else(|| text.into_bytes());
        Ok((key, true))
    }

    /// Certificates and the keys that they are for.
    fn pairs(&self, key: &[u8], next_key: Option<&[u8]>) -> Vec<Pair> {
        let mut pairs = Vec::new();
        for (name, is_next) in [(CERTIFICATE_FILE, false), (NEXT_CERTIFICATE_FILE, true)] {
            let chain = fs::read(self.path.join(name)).unwrap_or_default();
            let keys = [Some(key), next_key]
                .into_iter()
                .flatten()
                .zip([false, true]);
            pairs.extend(keys.filter_map(|(key, is_under_next_key)| {
                Some(Pair {
                    identity: Identity::from_pem(&chain, key).ok()?,
                    is_next,
                    is_under_next_key,
                })
            }));
        }
        pairs
    }

    /// The next one's files, if they are not the next one's any more.
    fn remove_what_is_over(&self, kept: &Kept, pairs: &[Pair]) {
        let next = kept.rotation.next();
        let pair = pairs
            .iter()
            .find(|pair| pair.is_next && next.is_some_and(|next| is_same(&pair.identity, next)));
        let is_over = [
            (pair.is_none(), NEXT_CERTIFICATE_FILE),
            (!pair.is_some_and(|it| it.is_under_next_key), NEXT_KEY_FILE),
        ];
        for (_, name) in is_over.into_iter().filter(|(is_over, _)| *is_over) {
            if let Err(error) = remove(&self.path.join(name)) {
                tracing::warn!("{name}, which is over, cannot be removed: {error}");
            }
        }
    }
}

fn is_same(one: &Identity, other: &Identity) -> bool {
    one.certificate_chain() == other.certificate_chain()
}

fn not_made(key_file: &Path, error: &GenerateError) -> Failure {
    Failure::new(Exit::Tls, format!("{}: {error}", key_file.display()))
}

/// Where it fails, the next look tries again, and finds the same meanwhile.
fn put_in_place(next: &Path, file: &Path) {
    if let Err(error) = fs::rename(next, file) {
        tracing::warn!("{} cannot be moved: {error}", next.display());
    }
}

fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// The names that the first of these certificates had, or the usual ones.
fn names_in<'a>(files: impl IntoIterator<Item = &'a PathBuf>) -> Vec<String> {
    let names = files.into_iter().find_map(|file| {
        let text = fs::read_to_string(file).ok()?;
        let names = text.lines().next()?.strip_prefix(NAMES_LINE)?;
        Some(names.split_whitespace().map(str::to_owned).collect())
    });
    names.unwrap_or_else(|| DEFAULT_NAMES.map(str::to_owned).to_vec())
}

/// The key file; `None` if there is none. What is there and cannot be used is never replaced
/// without a word: others were given its pin.
fn read_key(path: &Path) -> Result<Option<Vec<u8>>, Failure> {
    let wrong =
        |what: String| Failure::new(Exit::Tls, format!("our key, {}: {what}", path.display()));
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits() as i32;
    let file = fs::OpenOptions::new()
        .read(true)
        .custom_flags(flags)
        .open(path);
    let mut file = match file {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) if Errno::from_io_error(&error) == Some(Errno::LOOP) => {
            return Err(wrong(
                "it is a symbolic link, and has to be the key itself".into(),
            ));
        }
        Err(error) => return Err(wrong(error.to_string())),
    };
    let metadata = file.metadata().map_err(|error| wrong(error.to_string()))?;
    if !metadata.is_file() {
        return Err(wrong("it is not a file".into()));
    }
    if metadata.mode() & 0o077 != 0 {
        return Err(wrong(format!(
            "others may use it (mode {:04o})",
            metadata.mode() & 0o7777
        ))
        .next(format!(
            "if nobody has read it, `chmod 600 {}`; else `towline cert dev --new-key`, and give others the new pin",
            path.display()
        )));
    }
    let mut key = Vec::new();
    file.read_to_end(&mut key)
        .map_err(|error| wrong(error.to_string()))?;
    Ok(Some(key))
}

/// Puts a key in place whole. Unless it is to be replaced, whoever is faster wins.
fn keep_key(path: &Path, text: &str, replace: bool) -> io::Result<()> {
    let draft = write_draft(path, text, 0o600)?;
    if replace {
        return fs::rename(&draft, path);
    }
    let kept = match fs::hard_link(&draft, path) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(()),
        linked => linked,
    };
    fs::remove_file(&draft)?;
    kept
}

fn keep_certificate(path: &Path, identity: &Identity, names: &[String]) -> io::Result<()> {
    let pem = identity.certificate_pem().unwrap_or_default();
    let text = format!("{NAMES_LINE} {}\n{pem}", names.join(" "));
    let draft = write_draft(path, &text, 0o644)?;
    fs::rename(&draft, path)
}

/// A new file beside `path`, which takes its place when it is whole.
fn write_draft(path: &Path, text: &str, mode: u32) -> io::Result<PathBuf> {
    static DRAFTS: AtomicU32 = AtomicU32::new(0);
    let now = towline::config::unix_now().as_secs();
    let number = DRAFTS.fetch_add(1, Ordering::Relaxed);
    let draft = path.with_extension(format!("{}-{number}-{now}.tmp", std::process::id()));
    let mut file = fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(mode)
        .open(&draft)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    Ok(draft)
}

#[cfg(test)]
mod tests;
