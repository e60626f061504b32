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
        Folder::open(self.0.clone()).settle(anew, &names, on(day))
    }

    fn rotated(&self, wish: Next, day: u64) -> Result<Kept, Failure> {
        Folder::open(self.0.clone()).rotate(wish, on(day))
    }

    fn files(&self) -> Vec<String> {
        let entries = fs::read_dir(&self.0).unwrap();
        let name = |entry: io::Result<fs::DirEntry>| entry.unwrap().file_name();
        let mut names: Vec<_> = entries
            .map(|entry| name(entry).into_string().unwrap())
            .collect();
        names.sort();
        names
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// So many days after 2026-01-01 00:00:00 UTC.
fn on(day: u64) -> UnixTime {
    UnixTime::since_unix_epoch(Duration::from_secs(1_767_225_600 + day * 86_400))
}

fn pins(kept: &Kept) -> Vec<String> {
    crate::certs::serving::pins(kept.rotation.certificates())
}

const ANOTHER: Next = Next {
    force: true,
    new_key: false,
};
const NEW_KEY: Next = Next {
    force: false,
    new_key: true,
};

#[test]
fn the_key_stays_and_certificates_of_fourteen_days_are_renewed_under_it() {
    let home = Home::new("key-stays");
    let first = home.kept(Anew::Nothing, &[], 0).unwrap();
    assert!(first.new_key && first.new_certificate);
    let pin = first.rotation.shown().key_pin();
    for day in 0..60 {
        let kept = home.kept(Anew::Nothing, &[], day).unwrap();
        assert_eq!(
            (kept.rotation.shown().key_pin(), kept.new_key),
            (pin, false)
        );
        let (begin, end) = kept.rotation.shown().validity().unwrap();
        assert!(begin <= on(day) && on(day) < end);
    }
    let mode = fs::metadata(&first.key_file).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    assert_eq!(home.files(), ["cert.pem", "key.pem"], "no drafts");

    let renewed = home.kept(Anew::Certificate, &["boat.example"], 61).unwrap();
    assert_eq!(renewed.rotation.shown().key_pin(), pin);
    let later = home.kept(Anew::Nothing, &[], 80).unwrap();
    assert_eq!(later.names, ["boat.example"], "names outlive renewals");
    let other = home.kept(Anew::Key, &[], 80).unwrap();
    assert!(other.new_key && other.rotation.shown().key_pin() != pin);
}

#[test]
fn the_next_certificate_takes_over_and_the_one_that_is_over_is_removed() {
    let home = Home::new("takes-over");
    home.kept(Anew::Certificate, &["boat.example"], 0).unwrap();
    let mut seen = std::collections::BTreeSet::new();
    let mut before: Vec<String> = Vec::new();
    for day in 0..60 {
        let kept = home.rotated(Next::default(), day).unwrap();
        assert_eq!(kept.names, ["boat.example"]);
        let now = pins(&kept);
        // The same, or the next one has moved up.
        assert!(
            before.is_empty() || now[0] == before[0] || now[0] == before[1],
            "day {day}"
        );
        assert_eq!(pins(&home.rotated(Next::default(), day).unwrap()), now);
        assert_eq!(home.files(), ["cert.pem", "key.pem", "next-cert.pem"]);
        seen.extend(now.clone());
        before = now;
    }
    // One for each week, and the next.
    assert_eq!(seen.len(), 1 + (60 - 14) / 7 + 2);
}

#[test]
fn rotating_twice_is_harmless_and_force_makes_another() {
    let home = Home::new("twice");
    let first = home.rotated(Next::default(), 0).unwrap();
    assert!(first.new_next && first.not_written.is_none());
    let again = home.rotated(Next::default(), 0).unwrap();
    assert!(!again.new_next);
    assert_eq!(pins(&again), pins(&first));
    let other = home.rotated(ANOTHER, 0).unwrap();
    assert!(other.new_next);
    assert_eq!(pins(&other)[0], pins(&first)[0]);
    assert_ne!(pins(&other)[1], pins(&first)[1]);
    // A new key is not what is there.
    let failure = home.rotated(NEW_KEY, 0).unwrap_err();
    assert!(failure.next.is_some_and(|next| next.contains("--force")));
    // A certificate that is made at once is followed by none of before.
    home.kept(Anew::Certificate, &[], 1).unwrap();
    assert_eq!(home.files(), ["cert.pem", "key.pem"]);
}

#[test]
fn a_new_key_takes_over_with_its_certificate_also_after_a_crash_between_the_two() {
    for crash in [false, true] {
        let home = Home::new(&format!("new-key-{crash}"));
        let first = home.rotated(NEW_KEY, 0).unwrap();
        let (old, new) = (first.rotation.shown(), first.rotation.next().unwrap());
        assert_ne!(old.key_pin(), new.key_pin());
        assert_eq!(
            home.files(),
            ["cert.pem", "key.pem", "next-cert.pem", "next-key.pem"]
        );
        let mode = fs::metadata(home.0.join("next-key.pem"))
            .unwrap()
            .permissions()
            .mode();
        assert_eq!(mode & 0o777, 0o600);
        assert!(!home.rotated(NEW_KEY, 1).unwrap().new_next, "as cron does");
        if crash {
            fs::rename(home.0.join("next-key.pem"), home.0.join("key.pem")).unwrap();
        }
        let later = home.kept(Anew::Nothing, &[], 14).unwrap();
        assert_eq!(later.rotation.shown().key_pin(), new.key_pin());
        assert!(!later.new_key && !later.new_certificate);
        assert_eq!(home.files(), ["cert.pem", "key.pem"]);
        let key = fs::read_to_string(&later.key_file).unwrap();
        assert_eq!(key, new.private_key_pem());
    }
    // Also where nobody looked until both were over.
    let home = Home::new("new-key-late");
    let first = home.rotated(NEW_KEY, 0).unwrap();
    let late = home.kept(Anew::Nothing, &[], 40).unwrap();
    let new = first.rotation.next().unwrap().key_pin();
    assert_eq!(late.rotation.shown().key_pin(), new);
    assert!(late.new_certificate && !late.new_key);
    assert_eq!(home.files(), ["cert.pem", "key.pem"]);
}

#[test]
fn programs_that_share_a_folder_agree_on_the_next_certificate() {
    let home = Home::new("shared");
    home.kept(Anew::Nothing, &[], 0).unwrap();
    let all: std::collections::BTreeSet<_> = std::thread::scope(|scope| {
        let looks: Vec<_> = (0..8)
            .map(|_| scope.spawn(|| pins(&home.rotated(Next::default(), 14).unwrap())))
            .collect();
        looks.into_iter().map(|look| look.join().unwrap()).collect()
    });
    assert_eq!(all.len(), 1, "{all:?}");
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
