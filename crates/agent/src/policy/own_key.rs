//! Our keys in files: the raw key that is made at the first use, and those that a policy names.
//!
//! Whoever can read one can pose as us, and whoever can replace it chooses who we are. So the one that we
//! make is taken only from a file that is ours and that nobody else can read. One that a policy names may be a
//! service's, in a folder that nobody else writes in, and its group may read it, with a warning.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};

use towline_identity::Identity;

use super::error::PolicyError;

/// For names that no other thread has.
static DRAFTS: AtomicU32 = AtomicU32::new(0);

/// Permissions of others than the owner.
const OTHERS: u32 = 0o077;

/// Permission of the file's group to read.
const GROUP_READS: u32 = 0o040;

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
    check(&opened, file, &MADE).map_err(wrong)?;
    let pem = read(opened).map_err(|error| wrong(error.to_string()))?;
    // A new one instead of a broken one would have another pin, which somebody may have been given.
    Identity::raw_key_from_pem(&pem).map_err(|error| wrong(error.to_string()))
}

/// The bytes of a private key that a policy names.
///
/// # Errors
/// When it cannot be read, or others can read or change it; what to do.
pub(super) fn named_key(file: &Path) -> Result<Vec<u8>, String> {
    let opened = open(file).map_err(|error| error.to_string())?;
    let mode = check(&opened, file, &NAMED)?;
    if mode & GROUP_READS != 0 {
        tracing::warn!(file = %file.display(), "users of its group can read this private key");
    }
    read(opened).map_err(|error| error.to_string())
}

/// What is asked of a file with a key.
struct Demands {
    /// Permissions that others than the owner may have.
    shared: u32,
    /// Whether it may be another user's, in a folder of his own.
    of_others: bool,
    /// What to do about a file of another user's, besides making it ours.
    elsewhere: &'static str,
    /// What to do about a key that others know.
    anew: &'static str,
}

/// Of the one that we make.
const MADE: Demands = Demands {
    shared: 0,
    of_others: false,
    elsewhere: "take another folder (TOWLINE_HOME), or ",
    anew: "remove it, and a new one is made",
};

/// Of one that a policy names.
const NAMED: Demands = Demands {
    shared: GROUP_READS,
    of_others: true,
    elsewhere: "",
    anew: "take a new one",
};

/// Does not wait, whatever it is.
fn open(file: &Path) -> io::Result<File> {
    OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_NONBLOCK)
        .open(file)
}

fn read(opened: File) -> io::Result<Vec<u8>> {
    let mut pem = Vec::new();
    opened.take(MAX_FILE).read_to_end(&mut pem)?;
    Ok(pem)
}

/// Whether nobody else knows what is in the file, or could have put it there; its mode.
fn check(opened: &File, path: &Path, demands: &Demands) -> Result<u32, String> {
    let file = opened.metadata().map_err(|error| error.to_string())?;
    if !file.is_file() {
        return Err("this is no file; our key is read from one".into());
    }
    // SAFETY: the call takes nothing and cannot fail.
    let us = unsafe { libc::geteuid() };
    let owner = file.uid();
    // Root may run with the key of a service's user, in that user's folder.
    let is_ours = owner == us
        || owner == 0
        || ((us == 0 || demands.of_others) && is_out_of_reach(path, owner));
    if !is_ours {
        return Err(format!(
            "our key belongs to user {owner}, who knows it and can change it: {}make the file yours if you \
             trust it (`chown {us} FILE`)",
            demands.elsewhere
        ));
    }
    if file.mode() & OTHERS & !demands.shared != 0 {
        return Err(format!(
            "others may read or change our key (mode {:04o}): `chmod 600` it if nobody has, else {}",
            file.mode() & 0o7777,
            demands.anew
        ));
    }
    Ok(file.mode())
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
    use crate::policy::tests::Folder;

    /// Another user, to whom files can be given.
    fn somebody() -> Option<u32> {
        // SAFETY: the call takes nothing and cannot fail.
        if unsafe { libc::geteuid() } == 0 {
            return Some(54_321);
        }
        // The print macros would be captured.
        let _ = writeln!(
            io::stderr(),
            "SKIPPED a key of another user: only root can make one"
        );
        None
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
    fn a_policys_key_that_everybody_can_read_or_others_can_change_is_not_taken() {
        let folder = Folder::new();
        let file = folder.0.join("key.pem");
        own_key(&file).unwrap();
        let text = "[client]\nkey = \"key.pem\"\nknown_peers = \"known\"\n";
        for (mode, is_taken) in [
            (0o600, true),
            (0o400, true),
            (0o640, true),
            (0o644, false),
            (0o604, false),
            (0o660, false),
            (0o602, false),
        ] {
            fs::set_permissions(&file, fs::Permissions::from_mode(mode)).unwrap();
            let read = folder.policy(text);
            match is_taken {
                true => drop(read.unwrap()),
                false => {
                    let why = read.unwrap_err();
                    assert!(why.starts_with("stcp.toml, line 2: key.pem: "), "{why}");
                    assert!(why.contains(&format!("(mode {mode:04o})")), "{why}");
                }
            }
        }
    }

    #[test]
    fn a_policys_key_of_another_user_is_taken_from_a_folder_of_his_only() {
        let Some(somebody) = somebody() else {
            return;
        };
        let folder = Folder::new();
        let file = folder.0.join("key.pem");
        own_key(&file).unwrap();
        chown(&file, Some(somebody), None).unwrap();
        // Everybody may make folders in /tmp.
        let why = named_key(&file).unwrap_err();
        assert!(why.contains("belongs to user 54321"), "{why}");
        assert!(is_out_of_reach(Path::new("/etc/hostname"), somebody));
    }

    #[test]
    fn a_key_of_another_user_is_not_taken() {
        let Some(somebody) = somebody() else {
            return;
        };
        // Everybody may make folders in /tmp.
        let folder = Folder::new();
        let file = folder.0.join("home/key.pem");
        own_key(&file).unwrap();
        for path in [&file, &folder.0.join("home"), &folder.0] {
            chown(path, Some(somebody), None).unwrap();
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
