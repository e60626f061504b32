use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use super::*;

/// A folder that is removed when dropped.
struct Home(PathBuf);

impl Home {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("towline-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn kept(&self, anew: Anew, names: &[&str], day: u64) -> Result<Kept, Failure> {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let now = Duration::from_secs(1_767_225_600 + day * 86_400);
        kept_in(&self.0, anew, &names, UnixTime::since_unix_epoch(now))
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn the_key_stays_and_certificates_of_fourteen_days_are_renewed_under_it() {
    let home = Home::new("key-stays");
    let first = home.kept(Anew::Nothing, &[], 0).unwrap();
    assert!(first.new_key && first.new_certificate);
    let pin = first.identity.key_pin();
    for day in 0..60 {
        let kept = home.kept(Anew::Nothing, &[], day).unwrap();
        assert_eq!((kept.identity.key_pin(), kept.new_key), (pin, false));
        let now = Duration::from_secs(1_767_225_600 + day * 86_400).as_secs();
        let (begin, end) = kept.identity.validity().unwrap();
        assert!((begin.as_secs()..end.as_secs() - 6 * 86_400).contains(&now));
    }
    let mode = fs::metadata(&first.key_file).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    assert_eq!(fs::read_dir(&home.0).unwrap().count(), 2, "no drafts");

    let renewed = home.kept(Anew::Certificate, &["boat.example"], 61).unwrap();
    assert_eq!(renewed.identity.key_pin(), pin);
    let later = home.kept(Anew::Nothing, &[], 80).unwrap();
    assert_eq!(later.names, ["boat.example"], "names outlive renewals");
    let other = home.kept(Anew::Key, &[], 80).unwrap();
    assert!(other.new_key && other.identity.key_pin() != pin);
}

#[test]
fn a_key_that_cannot_be_used_is_not_replaced_without_a_word() {
    let home = Home::new("key-broken");
    let key = home.kept(Anew::Nothing, &[], 0).unwrap().key_file;
    let good = fs::read(&key).unwrap();
    fs::set_permissions(&key, fs::Permissions::from_mode(0o640)).unwrap();
    let failure = home.kept(Anew::Nothing, &[], 0).unwrap_err();
    assert!(failure.message.contains("0640"), "{failure}");
    assert!(failure.next.is_some_and(|next| next.contains("chmod 600")));
    assert_eq!(fs::read(&key).unwrap(), good);
    home.kept(Anew::Key, &[], 0).unwrap();
    assert_ne!(fs::read(&key).unwrap(), good, "as the message says");
    fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).unwrap();
    fs::write(&key, "no key").unwrap();
    let failure = home.kept(Anew::Nothing, &[], 0).unwrap_err();
    assert_eq!(failure.exit, Exit::Tls);
    assert_eq!(fs::read(&key).unwrap(), b"no key");
    fs::remove_file(&key).unwrap();
    std::os::unix::fs::symlink("elsewhere", &key).unwrap();
    let failure = home.kept(Anew::Nothing, &[], 0).unwrap_err();
    assert!(failure.message.contains("symbolic link"), "{failure}");
    fs::remove_file(&key).unwrap();
    fs::create_dir(&key).unwrap();
    let failure = home.kept(Anew::Nothing, &[], 0).unwrap_err();
    assert!(failure.message.contains("not a file"), "{failure}");
}
