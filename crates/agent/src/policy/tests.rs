use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use towline_identity::{Identity, KeyPin, KnownPeers};
use towline_wire::{Carrier, Side};

use super::known_peers::{KnownPeersFile, Meeting, Whose};
use super::{Destination, Policy, Refusal, own_key};

/// A folder that is removed when dropped.
pub(crate) struct Folder(pub(crate) PathBuf);

impl Folder {
    pub(crate) fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("towline-policy-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    pub(crate) fn policy(&self, text: &str) -> Result<Policy, String> {
        let path = self.0.join("stcp.toml");
        fs::write(&path, text).unwrap();
        let folder = format!("{}/", self.0.display());
        Policy::load(&path).map_err(|error| error.to_string().replace(&folder, ""))
    }

    fn key(&self, name: &str) -> KeyPin {
        own_key(&self.0.join(name)).unwrap().key_pin()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn key(byte: u8) -> KeyPin {
    KeyPin::from_bytes([byte; 32])
}

#[test]
fn a_policy_with_everything_is_read() {
    let folder = Folder::new();
    let (ours, other) = (folder.key("key.pem"), folder.key("other.pem"));
    let dev = Identity::generate_dev(&["a.example"], towline_identity::UnixTime::now()).unwrap();
    fs::write(folder.0.join("ca.pem"), dev.certificate_pem().unwrap()).unwrap();
    let policy = folder
        .policy(&format!(
            "[client]\nkey = \"key.pem\"\npins = [\"{}\"]\n\
             [server]\nkey = \"key.pem\"\nknown_peers = \"clients\"\n\
             [[destination]]\naddress = \"10.0.0.0/8:6379\"\nroots = \"ca.pem\"\nname = \"a.example\"\n\
             [[destination]]\naddress = \"::1\"\nkey = \"other.pem\"\nunauthenticated = \"any-key\"\n",
            key(1)
        ))
        .unwrap();
    assert_eq!(
        policy.own_keys(),
        [
            (Side::Server, ours),
            (Side::Client, ours),
            (Side::Client, other)
        ]
    );
    for peer in ["10.1.2.3:6379", "10.1.2.3:6380", "[::1]:5"] {
        let peer: SocketAddr = peer.parse().unwrap();
        for carrier in [Carrier::Module, Carrier::Preload, Carrier::Relay] {
            assert!(policy.handshake(Side::Client, carrier, peer).is_ok());
            assert!(policy.handshake(Side::Server, carrier, peer).is_ok());
        }
    }
}

#[test]
fn a_mistake_is_named_with_its_line() {
    let folder = Folder::new();
    folder.key("key.pem");
    let pin = key(1);
    for (text, words) in [
        ("[client", "line 1: this is not TOML"),
        ("[clients]", "line 1: `clients` is unknown"),
        ("client = 1", "line 1: `client` is a table"),
        (
            "\n[client]\n",
            "line 2: [client] does not say whom to believe",
        ),
        (
            "[client]\nunauthenticated = true",
            "line 2: `unauthenticated` is a text",
        ),
        (
            "[client]\nunauthenticated = \"yes\"",
            "line 2: `unauthenticated` is",
        ),
        (
            "[client]\nunauthenticated = \"any-client\"",
            "[client]: a client needs",
        ),
        ("[client]\npins = []", "line 2: `pins` is a list"),
        ("[client]\npins = [\"sha256/1\"]", "line 2: `pins`: after"),
        (
            "[client]\nknown_peers = \"k\"\npin = \"x\"",
            "line 3: `pin` is unknown",
        ),
        (
            "[client]\nknown_peers = \"k\"\nname = \"a b\"",
            "line 3: `a b` is not a name",
        ),
        (
            "[client]\ncertificate = \"c\"",
            "line 2: `certificate` needs its `key`",
        ),
        (
            "[client]\nkey = \"none.pem\"",
            "line 2: none.pem: No such file",
        ),
        (
            "[server]\nknown_peers = \"k\"",
            "line 1: [server] needs `key`",
        ),
        (
            "[server]\nkey = \"key.pem\"\nunauthenticated = \"any-certificate\"",
            "a server needs",
        ),
        (
            "[[destination]]\nroots = \"x\"",
            "[[destination]] needs `address`",
        ),
        (
            "[[destination]]\naddress = \"10.0.0.0/33\"",
            "line 2: `10.0.0.0/33` is not",
        ),
    ] {
        let error = folder.policy(text).unwrap_err();
        assert!(error.contains(words), "{text}: {error}");
        assert!(error.starts_with("stcp.toml, line "), "{error}");
    }
    let both = format!("[client]\nknown_peers = \"k\"\npins = [\"{pin}\"]");
    let error = folder.policy(&both).unwrap_err();
    assert!(error.contains("says twice whom to believe"), "{error}");
    let error = Policy::load(Path::new("/nonexistent/stcp.toml")).unwrap_err();
    assert!(error.to_string().starts_with("/nonexistent/stcp.toml: No"));
}

#[test]
fn a_side_that_the_policy_does_not_name_is_refused() {
    let folder = Folder::new();
    let policy = folder.policy("[client]\nknown_peers = \"k\"\n").unwrap();
    let peer = SocketAddr::from(([10, 0, 0, 1], 1));
    let refusal = policy.handshake(Side::Server, Carrier::Relay, peer).err();
    assert!(matches!(refusal, Some(Refusal::NoRule(Side::Server))));
    assert!(policy.handshake(Side::Client, Carrier::Relay, peer).is_ok());
}

#[test]
fn destinations_match_by_network_and_port() {
    let matches = |text: &str, address: &str| {
        Destination::parse(text)
            .unwrap_or_else(|| panic!("{text}"))
            .contains(address.parse().unwrap())
    };
    assert!(matches("10.0.0.1", "10.0.0.1:5"));
    assert!(matches("10.0.0.1", "[::ffff:10.0.0.1]:5"));
    assert!(!matches("10.0.0.1", "10.0.0.2:5"));
    assert!(matches("10.0.0.1:5", "10.0.0.1:5"));
    assert!(!matches("10.0.0.1:5", "10.0.0.1:6"));
    assert!(matches("10.0.0.0/8:5", "10.9.9.9:5"));
    assert!(!matches("10.0.0.0/8", "11.0.0.0:5"));
    assert!(matches("0.0.0.0/0", "11.0.0.0:5"));
    assert!(!matches("0.0.0.0/0", "[::1]:5"));
    assert!(matches("::/0", "[::1]:5"));
    assert!(matches("2001:db8::/32", "[2001:db8:1::1]:5"));
    assert!(matches("[2001:db8::]/32:5", "[2001:db8:1::1]:5"));
    assert!(!matches("2001:db8::/32", "[2001:db9::1]:5"));
    assert!(matches("[::1]:5", "[::1]:5"));
    assert!(matches("::ffff:10.0.0.1", "10.0.0.1:5"));
    assert!(matches("::ffff:10.0.0.0/104", "10.9.0.1:5"));
    assert!(!matches("::ffff:10.0.0.0/104", "11.9.0.1:5"));
    for text in ["", "a.example", "10.0.0.1/33", "10.0.0.1:x", "::/129"] {
        assert_eq!(Destination::parse(text), None, "{text}");
    }
}

#[test]
fn the_first_use_makes_a_key_once() {
    let folder = Folder::new();
    let home = folder.0.join("new");
    let first = Policy::first_use(&home).unwrap();
    let again = Policy::first_use(&home).unwrap();
    assert_eq!(first.own_keys(), again.own_keys());
    let mode = fs::metadata(home.join("stcp-key.pem")).unwrap();
    assert_eq!(
        std::os::unix::fs::PermissionsExt::mode(&mode.permissions()) & 0o777,
        0o600
    );
    fs::write(home.join("stcp-key.pem"), "damaged").unwrap();
    assert!(Policy::first_use(&home).is_err(), "not made anew");
}

#[test]
fn all_who_come_first_at_once_get_one_key() {
    let folder = Folder::new();
    let file = folder.0.join("new/key.pem");
    let begin = std::sync::Barrier::new(8);
    let pins: Vec<_> = std::thread::scope(|scope| {
        let one = || {
            begin.wait();
            own_key(&file).unwrap().key_pin()
        };
        let all: Vec<_> = (0..8).map(|_| scope.spawn(one)).collect();
        all.into_iter().map(|one| one.join().unwrap()).collect()
    });
    assert!(pins.iter().all(|pin| *pin == pins[0]), "{pins:?}");
    assert_eq!(fs::read_dir(folder.0.join("new")).unwrap().count(), 1);
}

/// As the agent does it.
fn meet(
    list: &KnownPeersFile,
    name: &str,
    key: KeyPin,
) -> Result<Meeting, super::KnownPeersFileError> {
    match list.look_up(name, &key)? {
        Some(meeting) => Ok(meeting),
        None => list.introduce(name, key),
    }
}

#[test]
fn a_peer_is_met_once_and_never_replaced() {
    let folder = Folder::new();
    let path = folder.0.join("known");
    let file = KnownPeersFile::new(path.clone(), Whose::Servers);
    assert_eq!(meet(&file, "a", key(1)).unwrap(), Meeting::First);
    assert_eq!(meet(&file, "a", key(1)).unwrap(), Meeting::Known);
    let changed = Meeting::Changed { expected: key(1) };
    assert_eq!(meet(&file, "a", key(2)).unwrap(), changed);
    assert_eq!(meet(&file, "a", key(1)).unwrap(), Meeting::Known);
    // Another process sees it, and so does this one what another writes.
    let other = KnownPeersFile::new(path.clone(), Whose::Servers);
    assert_eq!(meet(&other, "a", key(1)).unwrap(), Meeting::Known);
    assert_eq!(meet(&other, "b", key(1)).unwrap(), Meeting::First);
    assert_eq!(meet(&file, "b", key(1)).unwrap(), Meeting::Known);
    fs::write(&path, "a damaged list").unwrap();
    assert!(meet(&file, "b", key(1)).is_err(), "not taken for empty");
    assert!(meet(&file, "c", key(1)).is_err(), "not taken for empty");
}

#[test]
fn clients_at_one_address_are_known_by_their_keys() {
    let folder = Folder::new();
    let file = KnownPeersFile::new(folder.0.join("known"), Whose::Clients);
    for meeting in [Meeting::First, Meeting::Known] {
        for number in 0..16 {
            assert_eq!(meet(&file, "10.0.0.7", key(number)).unwrap(), meeting);
        }
    }
    let error = meet(&file, "10.0.0.7", key(16)).unwrap_err().to_string();
    assert!(error.contains("16 keys of clients at 10.0.0.7"), "{error}");
    assert_eq!(meet(&file, "10.0.0.8", key(16)).unwrap(), Meeting::First);
}

#[test]
fn peers_met_at_the_same_time_are_all_written_down() {
    let folder = Folder::new();
    let path = folder.0.join("known");
    // Two processes.
    let files = [0, 1].map(|_| KnownPeersFile::new(path.clone(), Whose::Servers));
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let file = &files[usize::from(thread) % 2];
            scope.spawn(move || {
                for number in 0..10 {
                    let name = format!("peer-{thread}-{number}");
                    assert_eq!(meet(file, &name, key(thread)).unwrap(), Meeting::First);
                }
            });
        }
    });
    let list = KnownPeers::parse(&fs::read(&path).unwrap()).unwrap();
    assert_eq!(list.iter().count(), 40);
}
