//! A raw key of our own in a file, made at its first use.
//!
//! Whoever can read it can pose as us, and whoever can replace it chooses who we are; so it is taken
//! only from a file that is ours and that nobody else can read.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};

use towline_identity::Identity;

use super::PolicyError;

/// For names that no other thread has.
static DRAFTS: AtomicU32 = AtomicU32::new(0);

/// Permissions of others than the owner.
const OTHERS: u32 = 0o077;

/// Permission of everybody to write.
const EVERYBODY_WRITES: u32 = 0o002;

/// Longest file that is read; a key has some 120 bytes.
const MAX_FILE: u64 = 64 * 1024;

/// The raw key in `file`, made now if there is none, for its owner only. Processes that come at
/// once get the same key.
///
/// # Errors
/// When the file holds no key, is not ours alone, or can be neither read nor made.
pub fn own_key(file: &Path) -> Result<Identity, PolicyError> {
    let wrong = |problem: String| PolicyError {
        file: file.to_owned(),
        line: None,
        problem,
    };
    let opened = match open(file) {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            let identity =
                Identity::generate_raw_key().map_err(|error| wrong(error.to_string()))?;
            keep(file, &identity)
                .map_err(|error| wrong(format!("our key cannot be kept: {error}")))?;
            open(file)
        }
        opened => opened,
    };
    let opened = opened.map_err(|error| wrong(error.to_string()))?;
    check(&opened, file).map_err(wrong)?;
    let mut pem = Vec::new();
    opened
        .take(MAX_FILE)
        .read_to_end(&mut pem)
        .map_err(|error| wrong(error.to_string()))?;
    // A new one instead of a broken one would have another pin, which somebody may have been given.
    Identity::raw_key_from_pem(&pem).map_err(|error| wrong(error.to_string()))
}

/// Does not wait, whatever it is.
fn open(file: &Path) -> io::Result<File> {
    OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_NONBLOCK)
        .open(file)
}

/// Whether nobody else knows what is in the file, or could have put it there.
fn check(opened: &File, path: &Path) -> Result<(), String> {
    let file = opened.metadata().map_err(|error| error.to_string())?;
    if !file.is_file() {
        return Err("this is no file; our key is read from one".into());
    }
    // SAFETY: the call takes nothing and cannot fail.
    let us = unsafe { libc::geteuid() };
    let owner = file.uid();
    // Root may run with the key of a service's user, in that user's folder.
    let is_ours = owner == us || owner == 0 || (us == 0 && is_out_of_reach(path, owner));
    if !is_ours {
        return Err(format!(
            "our key belongs to user {owner}, who knows it and can change it: take another folder \
             (TOWLINE_HOME), or make the file yours if you trust it (`chown {us} FILE`)"
        ));
    }
    if file.mode() & OTHERS != 0 {
        return Err(format!(
            "others may read or change our key (mode {:04o}): `chmod 600` it if nobody has, else remove it, \
             and a new one is made",
            file.mode() & 0o7777
        ));
    }
    Ok(())
}

/// Whether every folder above the file is root's or `owner`'s, and none is one in which everybody may make
/// folders.
fn is_out_of_reach(path: &Path, owner: u32) -> bool {
    let Ok(path) = fs::canonicalize(path) else {
        return false;
    };
    path.ancestors().skip(1).all(|folder| {
        fs::metadata(folder).is_ok_and(|folder| {
            [0, owner].contains(&folder.uid()) && folder.mode() & EVERYBODY_WRITES == 0
        })
    })
}

/// Puts the key in place whole, unless somebody else was faster.
fn keep(file: &Path, identity: &Identity) -> io::Result<()> {
    if let Some(folder) = file.parent() {
        fs::create_dir_all(folder)?;
    }
    let process = std::process::id();
    let (draft, mut out) = loop {
        let number = DRAFTS.fetch_add(1, Ordering::Relaxed);
        let draft = file.with_extension(format!("{process}-{number}.tmp"));
        // What is there already, a link say, is somebody else's.
        let made = OpenOptions::new()
            .write(true)
            .create_new(true)
            .custom_flags(libc::O_NOFOLLOW)
            .mode(0o600)
            .open(&draft);
        match made {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            made => break (draft, made?),
        }
    };
    let kept = out
        .write_all(identity.private_key_pem().as_bytes())
        .and_then(|()| out.sync_all())
        .and_then(|()| match fs::hard_link(&draft, file) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(()),
            linked => linked,
        });
    fs::remove_file(&draft)?;
    kept
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt as _, chown, symlink};

    use super::*;
    use crate::stcp::policy::tests::Folder;

    fn is_root() -> bool {
        // SAFETY: the call takes nothing and cannot fail.
        unsafe { libc::geteuid() == 0 }
    }

    fn refused(file: &Path) -> String {
        own_key(file).map(|_| ()).unwrap_err().problem
    }

    #[test]
    fn a_key_that_others_can_read_or_change_is_not_taken() {
        let folder = Folder::new();
        let file = folder.0.join("key.pem");
        let pin = own_key(&file).unwrap().key_pin();
        for mode in [0o644, 0o640, 0o620, 0o604, 0o601] {
            fs::set_permissions(&file, fs::Permissions::from_mode(mode)).unwrap();
            let why = refused(&file);
            assert!(why.contains(&format!("(mode {mode:04o})")), "{why}");
        }
        for mode in [0o600, 0o400] {
            fs::set_permissions(&file, fs::Permissions::from_mode(mode)).unwrap();
            assert_eq!(own_key(&file).unwrap().key_pin(), pin);
        }
    }

    #[test]
    fn a_key_of_another_user_is_not_taken() {
        if !is_root() {
            // The print macros would be captured.
            let _ = writeln!(
                io::stderr(),
                "SKIPPED a key of another user: only root can make one"
            );
            return;
        }
        const SOMEBODY: u32 = 54_321;
        // Everybody may make folders in /tmp.
        let folder = Folder::new();
        let file = folder.0.join("home/key.pem");
        own_key(&file).unwrap();
        for path in [&file, &folder.0.join("home"), &folder.0] {
            chown(path, Some(SOMEBODY), None).unwrap();
        }
        let why = refused(&file);
        assert!(why.contains("belongs to user 54321"), "{why}");
    }

    #[test]
    fn what_is_no_file_is_not_taken() {
        let folder = Folder::new();
        let path = std::ffi::CString::new(folder.0.join("fifo").as_os_str().as_encoded_bytes());
        // SAFETY: the path is a string that ends with zero.
        assert_eq!(unsafe { libc::mkfifo(path.unwrap().as_ptr(), 0o600) }, 0);
        for name in ["fifo", "."] {
            let why = refused(&folder.0.join(name));
            assert!(why.contains("this is no file"), "{why}");
        }
    }

    #[test]
    fn a_draft_overwrites_nothing_and_follows_no_link() {
        let folder = Folder::new();
        let (file, victim) = (folder.0.join("key.pem"), folder.0.join("victim"));
        fs::write(&victim, "precious").unwrap();
        let (process, next) = (std::process::id(), DRAFTS.load(Ordering::Relaxed));
        // Other tests make drafts meanwhile.
        for number in next..next + 100 {
            let draft = file.with_extension(format!("{process}-{number}.tmp"));
            symlink(&victim, draft).unwrap();
        }
        own_key(&file).unwrap();
        assert_eq!(fs::read(&victim).unwrap(), b"precious");
    }
}
