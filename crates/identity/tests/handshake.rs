//! Whole TLS 1.3 handshakes in memory, one test for each way of believing a peer: over rustls's
//! QUIC interface (as `quic` drives it), and once over its TCP interface (as `stcp` does).

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, date_time_ymd};
use rustls::crypto::aws_lc_rs::sign::any_supported_type;
use rustls::pki_types::{PrivatePkcs8KeyDer, ServerName};
use rustls::quic::{self, KeyChange, Version};
use rustls::server::{AlwaysResolvesServerRawPublicKeys, ResolvesServerCert};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::time_provider::TimeProvider;
use rustls::{AlertDescription, CertificateError, Error, HandshakeKind, NamedGroup, Side};
use towline_identity::{
    CertificateDer, Cipher, CipherPreference, ClientAuth, Expected, Identity, IdentityKind,
    KeyExchange, KeyExchangePreference, PeerIdentity, PeerRejected, Pin, PrivateKeyDer, Resumption,
    TlsSettings, Trust, UnixTime, client_config, provider, server_config,
};
use towline_identity::{
    CertificateList, Certificates, KeyList, KeyPin, Renewal, certificates_server_config,
    is_without_certificate, renewing_server_config,
};

/// What a refusal says of a rule with one pin.
fn only(pin: impl Into<Pin>) -> Option<Expected> {
    Some(Expected {
        first: pin.into(),
        has_others: false,
    })
}

/// 2026-01-01 00:00:00 UTC.
const START: u64 = 1_767_225_600;
const DAY: u64 = 86_400;

#[derive(Debug)]
struct Clock(AtomicU64);

impl TimeProvider for Clock {
    fn current_time(&self) -> Option<UnixTime> {
        let seconds = self.0.load(Ordering::Relaxed);
        Some(UnixTime::since_unix_epoch(Duration::from_secs(seconds)))
    }
}

/// One world: a clock, and settings for both sides.
struct World {
    clock: Arc<Clock>,
    settings: TlsSettings,
}

impl World {
    fn new() -> World {
        World::with(
            CipherPreference::default(),
            KeyExchangePreference::default(),
        )
    }

    fn with(ciphers: CipherPreference, groups: KeyExchangePreference) -> World {
        let clock = Arc::new(Clock(AtomicU64::new(START)));
        let provider = Arc::new(provider(&ciphers, &groups));
        let mut settings = TlsSettings::new(provider, clock.clone());
        settings.alpn = vec![b"towline-test".to_vec()];
        World { clock, settings }
    }

    fn now(&self) -> UnixTime {
        self.clock.current_time().unwrap()
    }

    fn dev(&self) -> Identity {
        Identity::generate_dev(&["server.test", "127.0.0.1"], self.now()).unwrap()
    }

    /// One handshake with fresh configurations.
    fn meet(
        &self,
        trust: Trust,
        client: Option<&Identity>,
        server: &Identity,
        client_auth: ClientAuth,
    ) -> Result<Met, Refused> {
        self.meet_as("server.test", trust, client, server, client_auth)
    }

    fn meet_as(
        &self,
        name: &str,
        trust: Trust,
        client: Option<&Identity>,
        server: &Identity,
        client_auth: ClientAuth,
    ) -> Result<Met, Refused> {
        let client = client_config(&trust, client, &self.settings).unwrap();
        let server = server_config(server, &client_auth, &self.settings).unwrap();
        handshake(name, &Arc::new(client), &Arc::new(server))
    }
}

/// A finished handshake.
#[derive(Debug)]
struct Met {
    /// Who the client met.
    server: Option<PeerIdentity>,
    /// Whom the server met.
    client: Option<PeerIdentity>,
    kind: HandshakeKind,
    group: Option<NamedGroup>,
    alpn: Option<Vec<u8>>,
}

/// The first refusal, and the alert that the other side is sent.
#[derive(Debug)]
struct Refused {
    by: Side,
    error: Error,
    alert: Option<AlertDescription>,
}

impl Refused {
    fn certificate(&self) -> &CertificateError {
        match &self.error {
            Error::InvalidCertificate(why) => why,
            other => panic!("expected a certificate error, got {other}"),
        }
    }
}

fn handshake(
    name: &str,
    client: &Arc<rustls::ClientConfig>,
    server: &Arc<rustls::ServerConfig>,
) -> Result<Met, Refused> {
    let name = ServerName::try_from(name.to_owned()).unwrap();
    let client = quic::ClientConnection::new(client.clone(), Version::V1, name, vec![1]).unwrap();
    let server = quic::ServerConnection::new(server.clone(), Version::V1, vec![2]).unwrap();
    let mut ends = [
        quic::Connection::from(client),
        quic::Connection::from(server),
    ];
    let mut one_rtt = [false; 2];
    loop {
        let mut moved = false;
        for (from, to, receiver) in [(0, 1, Side::Server), (1, 0, Side::Client)] {
            loop {
                let mut bytes = Vec::new();
                let change = ends[from].write_hs(&mut bytes);
                if bytes.is_empty() && change.is_none() {
                    break;
                }
                moved = true;
                one_rtt[from] |= matches!(change, Some(KeyChange::OneRtt { .. }));
                if bytes.is_empty() {
                    continue;
                }
                if let Err(error) = ends[to].read_hs(&bytes) {
                    let alert = ends[to].alert();
                    return Err(Refused {
                        by: receiver,
                        error,
                        alert,
                    });
                }
            }
        }
        if !moved {
            break;
        }
    }
    assert_eq!(one_rtt, [true; 2], "both sides must reach 1-RTT keys");
    let [client, server] = &ends;
    assert!(!client.is_handshaking() && !server.is_handshaking());
    let secret = |end: &quic::Connection| {
        end.export_keying_material([0u8; 32], b"EXPORTER-test", None)
            .unwrap()
    };
    assert_eq!(secret(client), secret(server));
    Ok(Met {
        server: PeerIdentity::from_peer_certificates(client.peer_certificates()),
        client: PeerIdentity::from_peer_certificates(server.peer_certificates()),
        kind: client.handshake_kind().unwrap(),
        group: client
            .negotiated_key_exchange_group()
            .map(|group| group.name()),
        alpn: client.alpn_protocol().map(<[u8]>::to_vec),
    })
}

/// A certificate authority, and identities that it issues.
struct Authority(Issuer<'static, KeyPair>, CertificateDer<'static>);

impl Authority {
    fn new() -> Authority {
        Authority::named("test authority")
    }

    fn named(name: &str) -> Authority {
        let pair = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(Vec::<String>::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, name);
        params.not_before = date_time_ymd(2025, 1, 1);
        params.not_after = date_time_ymd(2027, 1, 1);
        let certificate = params.self_signed(&pair).unwrap().der().clone();
        Authority(Issuer::new(params, pair), certificate)
    }

    fn issue(&self, name: &str) -> Identity {
        let pair = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        params.not_before = date_time_ymd(2025, 12, 1);
        params.not_after = date_time_ymd(2026, 2, 1);
        let certificate = params.signed_by(&pair, &self.0).unwrap().der().clone();
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(pair.serialize_der()));
        Identity::from_der(vec![certificate], key).unwrap()
    }

    fn trust(&self) -> Trust {
        Trust::Roots(vec![self.1.clone()])
    }
}

fn pinned(identity: &Identity) -> Trust {
    Trust::Pinned(vec![identity.certificate_pin().unwrap().into()])
}

#[test]
fn a_chain_to_a_root_is_believed() {
    let (world, authority) = (World::new(), Authority::new());
    let server = authority.issue("server.test");
    let met = world
        .meet(authority.trust(), None, &server, ClientAuth::None)
        .unwrap();
    assert_eq!(met.kind, HandshakeKind::Full);
    assert_eq!(met.group, Some(NamedGroup::X25519MLKEM768));
    assert_eq!(met.alpn.as_deref(), Some(&b"towline-test"[..]));
    assert_eq!(met.client, None);
    match met.server.unwrap() {
        PeerIdentity::X509 {
            certificate,
            key,
            subject,
        } => {
            assert_eq!(Some(certificate), server.certificate_pin());
            assert_eq!(key, server.key_pin());
            assert!(subject.contains("CN=server.test"), "{subject}");
        }
        other => panic!("expected a certificate, got {other}"),
    }
}

#[test]
fn a_wrong_name_is_refused_under_roots() {
    let (world, authority) = (World::new(), Authority::new());
    let server = authority.issue("other.test");
    let refused = world
        .meet(authority.trust(), None, &server, ClientAuth::None)
        .unwrap_err();
    assert_eq!(refused.by, Side::Client);
    assert!(
        matches!(
            refused.certificate(),
            CertificateError::NotValidForNameContext { .. }
        ),
        "{refused:?}"
    );
    assert_eq!(refused.alert, Some(AlertDescription::BadCertificate));
}

#[test]
fn an_unknown_root_is_refused_even_under_the_same_name() {
    let (world, authority) = (World::new(), Authority::new());
    let server = authority.issue("server.test");
    for (impostor, alert) in [
        (Authority::named("other"), AlertDescription::UnknownCA),
        (Authority::new(), AlertDescription::DecryptError),
    ] {
        let refused = world
            .meet(impostor.trust(), None, &server, ClientAuth::None)
            .unwrap_err();
        assert_eq!((refused.by, refused.alert), (Side::Client, Some(alert)));
    }
}

#[test]
fn an_expired_certificate_is_refused_by_the_given_clock() {
    let (world, authority) = (World::new(), Authority::new());
    let server = authority.issue("server.test");
    let meet = || world.meet(authority.trust(), None, &server, ClientAuth::None);
    assert!(meet().is_ok());
    world.clock.0.store(START + 32 * DAY, Ordering::Relaxed);
    let refused = meet().unwrap_err();
    assert!(
        matches!(
            refused.certificate(),
            CertificateError::ExpiredContext { .. }
        ),
        "{refused:?}"
    );
    assert_eq!(refused.alert, Some(AlertDescription::CertificateExpired));
}

#[test]
fn a_self_signed_certificate_can_be_its_own_root() {
    let world = World::new();
    let server = world.dev();
    let pem = server.certificate_pem().unwrap();
    let trust = || Trust::roots_from_pem(pem.as_bytes()).unwrap();
    assert!(world.meet(trust(), None, &server, ClientAuth::None).is_ok());
    let by_address = world.meet_as("127.0.0.1", trust(), None, &server, ClientAuth::None);
    assert!(by_address.is_ok());
    let refused = world
        .meet_as("192.0.2.9", trust(), None, &server, ClientAuth::None)
        .unwrap_err();
    assert_eq!(refused.alert, Some(AlertDescription::BadCertificate));
}

#[test]
fn a_pinned_certificate_is_believed_under_any_name() {
    let world = World::new();
    let server = world.dev();
    let met = world.meet_as(
        "192.0.2.9",
        pinned(&server),
        None,
        &server,
        ClientAuth::None,
    );
    assert_eq!(met.unwrap().server.unwrap().key_pin(), server.key_pin());
}

#[test]
fn a_pinned_key_survives_renewal_and_a_pinned_certificate_does_not() {
    let world = World::new();
    let old = Identity::generate_ed25519(&["a.test"], world.now(), Duration::from_secs(DAY));
    let old = old.unwrap();
    // The same key in a new certificate.
    let key = old.private_key_der();
    let pair = KeyPair::try_from(&key).unwrap();
    let mut params = CertificateParams::new(vec!["a.test".to_owned()]).unwrap();
    params.not_before = date_time_ymd(2025, 12, 1);
    params.not_after = date_time_ymd(2026, 2, 1);
    let renewed = params.self_signed(&pair).unwrap().der().clone();
    let renewed = Identity::from_der(vec![renewed], key).unwrap();

    let by_key = Trust::Pinned(vec![Pin::Key(old.key_pin())]);
    assert!(world.meet(by_key, None, &renewed, ClientAuth::None).is_ok());
    let refused = world
        .meet(pinned(&old), None, &renewed, ClientAuth::None)
        .unwrap_err();
    let why = PeerRejected::from_error(&refused.error).unwrap();
    assert_eq!(
        why,
        PeerRejected::CertificateNotPinned {
            expected: only(old.certificate_pin().unwrap()),
            certificate: renewed.certificate_pin().unwrap(),
            key: old.key_pin(),
        }
    );
}

#[test]
fn a_wrong_pin_names_what_was_presented() {
    let world = World::new();
    let (server, other) = (world.dev(), world.dev());
    let refused = world
        .meet(pinned(&other), None, &server, ClientAuth::None)
        .unwrap_err();
    assert_eq!(
        (refused.by, refused.alert),
        (Side::Client, Some(AlertDescription::CertificateUnknown))
    );
    let presented = server.certificate_pin().unwrap().to_string();
    assert!(
        refused.error.to_string().contains(&presented),
        "{}",
        refused.error
    );
}

#[test]
fn a_pinned_certificate_outside_its_dates_is_refused() {
    let world = World::new();
    let server = world.dev();
    let meet_at = |seconds| {
        world.clock.0.store(seconds, Ordering::Relaxed);
        world.meet(pinned(&server), None, &server, ClientAuth::None)
    };
    let (first, last) = (START - 3600, START - 3600 + 14 * DAY - 1);
    assert!(meet_at(first).is_ok());
    assert!(meet_at(last).is_ok());
    let early = meet_at(first - 1).unwrap_err();
    assert!(matches!(
        early.certificate(),
        CertificateError::NotValidYetContext { .. }
    ));
    let late = meet_at(last + 1).unwrap_err();
    assert!(matches!(
        late.certificate(),
        CertificateError::ExpiredContext { .. }
    ));
    assert_eq!(late.alert, Some(AlertDescription::CertificateExpired));
}

#[test]
fn a_raw_key_is_believed_by_its_pin() {
    let world = World::new();
    let server = Identity::generate_raw_key().unwrap();
    let trust = Trust::RawKeys(vec![server.key_pin()]);
    let met = world.meet(trust, None, &server, ClientAuth::None).unwrap();
    assert_eq!(
        met.server,
        Some(PeerIdentity::RawKey {
            spki: server.spki().to_vec(),
            key: server.key_pin(),
        })
    );
}

#[test]
fn a_wrong_raw_key_is_refused() {
    let world = World::new();
    let server = Identity::generate_raw_key().unwrap();
    let other = Identity::generate_raw_key().unwrap();
    let trust = Trust::RawKeys(vec![other.key_pin()]);
    let refused = world
        .meet(trust, None, &server, ClientAuth::None)
        .unwrap_err();
    assert_eq!(
        PeerRejected::from_error(&refused.error),
        Some(PeerRejected::KeyNotPinned {
            expected: only(other.key_pin()),
            key: server.key_pin()
        })
    );
}

#[test]
fn a_wrong_pin_is_told_with_what_was_expected_and_what_was_seen() {
    let world = World::new();
    let (server, other, third) = (world.dev(), world.dev(), world.dev());
    let certificate = server.certificate_pin().unwrap();
    let wanted = other.certificate_pin().unwrap();
    for (pins, others) in [
        (vec![Pin::Certificate(wanted)], false),
        (
            vec![Pin::Certificate(wanted), Pin::Key(third.key_pin())],
            true,
        ),
    ] {
        let trust = Trust::Pinned(pins);
        let refused = world.meet(trust, None, &server, ClientAuth::None);
        let text = refused.unwrap_err().error.to_string();
        for part in [
            format!(
                "certificate is {certificate} with the key {}",
                server.key_pin()
            ),
            format!(
                "we expect {wanted}{}",
                if others { " or others)" } else { ")" }
            ),
            "get its pin from the peer's owner".to_owned(),
        ] {
            assert!(text.contains(&part), "{text}");
        }
    }
}

#[test]
fn raw_keys_on_both_sides_know_each_other() {
    let world = World::new();
    let server = Identity::generate_raw_key().unwrap();
    let client = Identity::generate_raw_key().unwrap();
    let trust = Trust::RawKeys(vec![server.key_pin()]);
    let auth = ClientAuth::RawKeys(vec![client.key_pin()]);
    let met = world.meet(trust, Some(&client), &server, auth).unwrap();
    assert_eq!(met.server.unwrap().key_pin(), server.key_pin());
    assert_eq!(met.client.unwrap().key_pin(), client.key_pin());
}

#[test]
fn a_client_with_an_unknown_raw_key_is_refused_by_the_server() {
    let world = World::new();
    let server = Identity::generate_raw_key().unwrap();
    let [client, expected] = [(); 2].map(|()| Identity::generate_raw_key().unwrap());
    let trust = Trust::RawKeys(vec![server.key_pin()]);
    let auth = ClientAuth::RawKeys(vec![expected.key_pin()]);
    let refused = world
        .meet(trust.clone(), Some(&client), &server, auth)
        .unwrap_err();
    assert_eq!(refused.by, Side::Server);
    assert_eq!(
        PeerRejected::from_error(&refused.error),
        Some(PeerRejected::KeyNotPinned {
            expected: only(expected.key_pin()),
            key: client.key_pin()
        })
    );
    let met = world
        .meet(trust, Some(&client), &server, ClientAuth::AnyRawKey)
        .unwrap();
    assert_eq!(met.client.unwrap().key_pin(), client.key_pin());
}

#[test]
fn clients_stay_anonymous_where_nobody_asks_whatever_they_have() {
    let world = World::new();
    let raw = Identity::generate_raw_key().unwrap();
    let raw_client = Identity::generate_raw_key().unwrap();
    let raw_trust = Trust::RawKeys(vec![raw.key_pin()]);
    let (x509, x509_client) = (world.dev(), world.dev());
    let x509_trust = pinned(&x509);
    // In turns: what one offered says nothing of the next.
    for _ in 0..2 {
        for (trust, client, server) in [
            (&raw_trust, Some(&raw_client), &raw),
            (&raw_trust, None, &raw),
            (&x509_trust, Some(&x509_client), &x509),
            (&x509_trust, None, &x509),
        ] {
            let met = world.meet(trust.clone(), client, server, ClientAuth::None);
            let met = met.unwrap();
            assert_eq!(met.server.unwrap().key_pin(), server.key_pin());
            assert!(met.client.is_none());
        }
    }
}

#[test]
fn a_client_without_a_key_is_refused_where_one_is_asked() {
    let world = World::new();
    let server = Identity::generate_raw_key().unwrap();
    let trust = Trust::RawKeys(vec![server.key_pin()]);
    let refused = world
        .meet(trust, None, &server, ClientAuth::AnyRawKey)
        .unwrap_err();
    assert_eq!(refused.by, Side::Server);

    let server = world.dev();
    let refused = world
        .meet(
            pinned(&server),
            None,
            &server,
            Authority::new().client_auth(),
        )
        .unwrap_err();
    assert_eq!(refused.by, Side::Server);
    assert_eq!(refused.alert, Some(AlertDescription::CertificateRequired));
}

impl Authority {
    fn client_auth(&self) -> ClientAuth {
        ClientAuth::Roots(vec![self.1.clone()])
    }
}

#[test]
fn certificates_of_one_authority_work_on_both_sides() {
    let (world, authority) = (World::new(), Authority::new());
    let server = authority.issue("server.test");
    let client = authority.issue("client.test");
    let met = world
        .meet(
            authority.trust(),
            Some(&client),
            &server,
            authority.client_auth(),
        )
        .unwrap();
    let peer = met.client.unwrap();
    assert_eq!(
        (peer.kind(), peer.key_pin()),
        (IdentityKind::X509, client.key_pin())
    );

    let stranger = Authority::named("other").issue("client.test");
    let refused = world
        .meet(
            authority.trust(),
            Some(&stranger),
            &server,
            authority.client_auth(),
        )
        .unwrap_err();
    assert_eq!(refused.by, Side::Server);
    assert_eq!(refused.alert, Some(AlertDescription::UnknownCA));
}

#[test]
fn a_pin_of_the_key_is_good_for_years_and_certificates_are_renewed_under_it() {
    let world = World::new();
    let first = world.dev();
    let names = ["server.test".to_owned()];
    let told = Arc::new(std::sync::Mutex::new(Vec::new()));
    let seen = Arc::clone(&told);
    let renewed = Arc::new(move |identity: &Identity| {
        seen.lock().unwrap().push(identity.clone());
    });
    let renewal = Renewal::new(names.to_vec(), renewed);
    let server =
        renewing_server_config(&first, renewal, &ClientAuth::None, &world.settings).unwrap();
    let server = Arc::new(server);
    let mut certificates = std::collections::BTreeSet::new();
    for day in 0..800 {
        world.clock.0.store(START + day * DAY, Ordering::Relaxed);
        let trust = Trust::Pinned(vec![Pin::Key(first.key_pin())]);
        let client = client_config(&trust, None, &world.settings).unwrap();
        let met = handshake("server.test", &Arc::new(client), &server).unwrap();
        match met.server.unwrap() {
            PeerIdentity::X509 {
                certificate, key, ..
            } => {
                assert_eq!(key, first.key_pin());
                certificates.insert(certificate);
            }
            other => panic!("{other:?}"),
        }
    }
    let told = told.lock().unwrap().clone();
    assert_eq!(certificates.len(), told.len() + 1);
    assert!((100..=120).contains(&told.len()), "{}", told.len());
    for identity in &told {
        let (begin, end) = identity.validity().unwrap();
        assert!(end.as_secs() - begin.as_secs() < 14 * DAY, "for browsers");
        let root = Trust::Roots(identity.certificate_chain().to_vec());
        world
            .clock
            .0
            .store(begin.as_secs() + DAY, Ordering::Relaxed);
        world
            .meet(root, None, identity, ClientAuth::None)
            .expect("its names are good");
    }
    // A clock that was set back.
    world.clock.0.store(START - 400 * DAY, Ordering::Relaxed);
    let trust = Trust::Pinned(vec![Pin::Key(first.key_pin())]);
    let client = client_config(&trust, None, &world.settings).unwrap();
    handshake("server.test", &Arc::new(client), &server).unwrap();
}

#[test]
fn two_pins_overlap_and_the_old_one_is_believed_until_its_certificate_ends() {
    let world = World::new();
    let set = |now: u64| world.clock.0.store(now, Ordering::Relaxed);
    let made = |day: u64| {
        set(START + day * DAY);
        world.dev()
    };
    let (old, new) = (made(0), made(7));
    let certificates = Certificates::new(old.clone()).unwrap();
    let auth = ClientAuth::None;
    let server = certificates_server_config(&certificates, &auth, &world.settings).unwrap();
    let server = Arc::new(server);
    let meet = |pins: &[&Identity]| {
        let pins = pins.iter().map(|own| own.certificate_pin().unwrap().into());
        let client = client_config(&Trust::Pinned(pins.collect()), None, &world.settings).unwrap();
        let met = handshake("server.test", &Arc::new(client), &server)?;
        Ok::<_, Refused>(met.server.unwrap().key_pin())
    };
    set(START);
    assert_eq!(meet(&[&old]).unwrap(), old.key_pin());
    // Both pins are given out, and then the next certificate is put beside the first.
    assert_eq!(meet(&[&old, &new]).unwrap(), old.key_pin());
    certificates
        .set(CertificateList::new([old.clone(), new.clone()]))
        .unwrap();
    assert_eq!(meet(&[&old]).unwrap(), old.key_pin());
    set(START + 7 * DAY);
    assert_eq!(meet(&[&old, &new]).unwrap(), new.key_pin());
    // A server that was not told of the new one is believed to the last second of the old.
    certificates.set(old.clone()).unwrap();
    let (_, end) = old.validity().unwrap();
    set(end.as_secs());
    assert_eq!(meet(&[&old, &new]).unwrap(), old.key_pin());
    set(end.as_secs() + 1);
    let refused = meet(&[&old, &new]).unwrap_err();
    assert_eq!(refused.by, Side::Client);
    assert!(
        matches!(
            refused.certificate(),
            CertificateError::ExpiredContext { .. }
        ),
        "{refused:?}"
    );
    certificates.set(new.clone()).unwrap();
    assert_eq!(meet(&[&old, &new]).unwrap(), new.key_pin());
}

#[test]
fn each_name_has_its_certificate_and_a_name_without_one_is_refused() {
    let (world, authority) = (World::new(), Authority::new());
    let list = CertificateList::new([authority.issue("a.test"), authority.issue("*.b.test")]);
    let certificates = Certificates::new(list.default_identities([])).unwrap();
    let auth = ClientAuth::None;
    let server = certificates_server_config(&certificates, &auth, &world.settings).unwrap();
    let server = Arc::new(server);
    let meet = |name: &str| {
        let client = client_config(&authority.trust(), None, &world.settings).unwrap();
        handshake(name, &Arc::new(client), &server)
    };
    for name in ["a.test", "one.b.test", "two.b.test"] {
        assert!(meet(name).is_ok(), "{name}");
    }
    assert_eq!(certificates.refused(), 0);
    for name in ["c.test", "b.test", "192.0.2.1"] {
        let refused = meet(name).unwrap_err();
        assert_eq!(refused.by, Side::Server, "{name}");
        assert!(is_without_certificate(&refused.error), "{}", refused.error);
    }
    assert_eq!(certificates.refused(), 3);
}

/// A list that changes while the server runs.
#[derive(Debug, Default)]
struct Guests(std::sync::Mutex<Vec<KeyPin>>);

impl KeyList for Guests {
    fn contains(&self, key: &KeyPin) -> bool {
        self.0.lock().unwrap().contains(key)
    }
}

#[test]
fn a_list_of_clients_is_asked_at_every_handshake() {
    let world = World::new();
    let raw = || Identity::generate_raw_key().unwrap();
    for (server, client) in [(world.dev(), world.dev()), (raw(), raw())] {
        let guests = Arc::new(Guests::default());
        let auth = ClientAuth::Listed(server.kind(), Arc::clone(&guests) as Arc<dyn KeyList>);
        let trust = match server.kind() {
            IdentityKind::X509 => pinned(&server),
            IdentityKind::RawKey => Trust::RawKeys(vec![server.key_pin()]),
        };
        let meet = || world.meet(trust.clone(), Some(&client), &server, auth.clone());
        let refused = meet().unwrap_err();
        assert_eq!(refused.by, Side::Server);
        assert!(PeerRejected::from_error(&refused.error).is_some());
        guests.0.lock().unwrap().push(client.key_pin());
        assert_eq!(meet().unwrap().client.unwrap().key_pin(), client.key_pin());
        guests.0.lock().unwrap().clear();
        assert!(meet().is_err());
        let anonymous = world.meet(trust.clone(), None, &server, auth.clone());
        assert_eq!(anonymous.unwrap_err().by, Side::Server);
    }
}

#[test]
fn a_pinned_client_certificate_is_believed() {
    let world = World::new();
    let (server, client, other) = (world.dev(), world.dev(), world.dev());
    let auth = ClientAuth::Pinned(vec![Pin::Key(client.key_pin())]);
    let meet = |client| world.meet(pinned(&server), Some(client), &server, auth.clone());
    assert_eq!(
        meet(&client).unwrap().client.unwrap().key_pin(),
        client.key_pin()
    );
    let refused = meet(&other).unwrap_err();
    assert_eq!(refused.by, Side::Server);
    assert!(PeerRejected::from_error(&refused.error).is_some());
}

#[test]
fn the_insecure_rules_accept_anyone_and_tell_who_it_was() {
    let world = World::new();
    for (trust, server) in [
        (Trust::InsecureAcceptAnyCertificate, world.dev()),
        (
            Trust::InsecureAcceptAnyRawKey,
            Identity::generate_raw_key().unwrap(),
        ),
    ] {
        world.clock.0.store(START + 300 * DAY, Ordering::Relaxed);
        let met = world.meet(trust, None, &server, ClientAuth::None).unwrap();
        assert_eq!(met.server.unwrap().key_pin(), server.key_pin());
    }
}

#[test]
fn a_proof_that_its_sender_does_not_own_is_refused_by_every_rule() {
    let world = World::new();
    let victim = Identity::generate_raw_key().unwrap();
    let thief = any_supported_type(&Identity::generate_raw_key().unwrap().private_key_der());
    let thief = thief.unwrap();
    let raw = |spki: &[u8]| {
        let shown = CertificateDer::from(spki.to_vec());
        let key = Arc::new(CertifiedKey::new(vec![shown], thief.clone()));
        server_with(
            &world,
            Arc::new(AlwaysResolvesServerRawPublicKeys::new(key)),
        )
    };
    let dev = Identity::generate_ed25519(&["server.test"], world.now(), Duration::from_secs(DAY));
    let dev = dev.unwrap();
    let certificate = |chain: &[CertificateDer<'static>]| {
        let key = CertifiedKey::new(chain.to_vec(), thief.clone());
        server_with(&world, Arc::new(SingleCertAndKey::from(key)))
    };
    for (trust, server) in [
        (Trust::RawKeys(vec![victim.key_pin()]), raw(victim.spki())),
        (Trust::InsecureAcceptAnyRawKey, raw(victim.spki())),
        (pinned(&dev), certificate(dev.certificate_chain())),
        (
            Trust::Pinned(vec![Pin::Key(dev.key_pin())]),
            certificate(dev.certificate_chain()),
        ),
        (
            Trust::InsecureAcceptAnyCertificate,
            certificate(dev.certificate_chain()),
        ),
        (
            Trust::Roots(dev.certificate_chain().to_vec()),
            certificate(dev.certificate_chain()),
        ),
    ] {
        let client = client_config(&trust, None, &world.settings).unwrap();
        let refused = handshake("server.test", &Arc::new(client), &server).unwrap_err();
        assert_eq!(refused.by, Side::Client);
        assert_eq!(
            refused.alert,
            Some(AlertDescription::DecryptError),
            "{trust:?}"
        );
    }
}

fn server_with(world: &World, shown: Arc<dyn ResolvesServerCert>) -> Arc<rustls::ServerConfig> {
    let settings = &world.settings;
    let mut server = rustls::ServerConfig::builder_with_details(
        settings.provider.clone(),
        settings.time.clone(),
    )
    .with_protocol_versions(&[&rustls::version::TLS13])
    .unwrap()
    .with_no_client_auth()
    .with_cert_resolver(shown);
    server.alpn_protocols = settings.alpn.clone();
    Arc::new(server)
}

#[test]
fn a_client_of_one_kind_cannot_talk_to_a_server_of_the_other() {
    let world = World::new();
    let raw = Identity::generate_raw_key().unwrap();
    let trust = Trust::RawKeys(vec![raw.key_pin()]);
    assert!(
        world
            .meet(trust, None, &world.dev(), ClientAuth::None)
            .is_err()
    );
    let trust = Trust::InsecureAcceptAnyCertificate;
    assert!(world.meet(trust, None, &raw, ClientAuth::None).is_err());
}

#[test]
fn every_cipher_and_group_completes() {
    for cipher in [Cipher::Aes128Gcm, Cipher::Aes256Gcm, Cipher::ChaCha20] {
        for (group, name) in [
            (KeyExchange::X25519MlKem768, NamedGroup::X25519MLKEM768),
            (KeyExchange::X25519, NamedGroup::X25519),
            (KeyExchange::P256, NamedGroup::secp256r1),
        ] {
            let world = World::with(cipher.into(), group.into());
            let server = world.dev();
            let met = world
                .meet(pinned(&server), None, &server, ClientAuth::None)
                .unwrap();
            assert_eq!(met.group, Some(name), "{cipher} {group}");
        }
    }
}

#[test]
fn protocols_that_do_not_meet_are_refused() {
    let world = World::new();
    let server = world.dev();
    let client = client_config(&pinned(&server), None, &world.settings).unwrap();
    let mut settings = world.settings.clone();
    settings.alpn = vec![b"another".to_vec()];
    let server = server_config(&server, &ClientAuth::None, &settings).unwrap();
    let refused = handshake("server.test", &Arc::new(client), &Arc::new(server)).unwrap_err();
    assert_eq!(refused.alert, Some(AlertDescription::NoApplicationProtocol));
}

#[test]
fn resumption_keeps_the_identity_and_can_be_switched_off() {
    for (resumption, kind) in [
        (Resumption::default(), HandshakeKind::Resumed),
        (Resumption::Disabled, HandshakeKind::Full),
    ] {
        let mut world = World::new();
        world.settings.resumption = resumption;
        let [server, client] = [(); 2].map(|()| Identity::generate_raw_key().unwrap());
        let trust = Trust::RawKeys(vec![server.key_pin()]);
        let auth = ClientAuth::RawKeys(vec![client.key_pin()]);
        let client_tls = Arc::new(client_config(&trust, Some(&client), &world.settings).unwrap());
        let server_tls = Arc::new(server_config(&server, &auth, &world.settings).unwrap());
        let first = handshake("server.test", &client_tls, &server_tls).unwrap();
        assert_eq!(first.kind, HandshakeKind::Full);
        let second = handshake("server.test", &client_tls, &server_tls).unwrap();
        assert_eq!(second.kind, kind);
        assert_eq!(second.client, first.client);
        assert_eq!(second.server, first.server);
    }
}

#[test]
fn the_same_configurations_serve_tls_over_tcp() {
    let world = World::new();
    let server = world.dev();
    let client_tls = client_config(&pinned(&server), None, &world.settings).unwrap();
    let server_tls = server_config(&server, &ClientAuth::None, &world.settings).unwrap();
    let name = ServerName::try_from("server.test").unwrap();
    let mut client = rustls::ClientConnection::new(Arc::new(client_tls), name).unwrap();
    let mut server = rustls::ServerConnection::new(Arc::new(server_tls)).unwrap();
    while client.is_handshaking() || server.is_handshaking() {
        let mut wire = Vec::new();
        while client.wants_write() {
            client.write_tls(&mut wire).unwrap();
        }
        let mut input = wire.as_slice();
        while !input.is_empty() {
            server.read_tls(&mut input).unwrap();
            server.process_new_packets().unwrap();
        }
        let mut wire = Vec::new();
        while server.wants_write() {
            server.write_tls(&mut wire).unwrap();
        }
        let mut input = wire.as_slice();
        while !input.is_empty() {
            client.read_tls(&mut input).unwrap();
            client.process_new_packets().unwrap();
        }
    }
    assert_eq!(
        client.protocol_version(),
        Some(rustls::ProtocolVersion::TLSv1_3)
    );
}
