//! Why there is no session, in words: what the error says at one end, and the log at the other.

use std::fmt::{Debug, Write as _};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::StatusCode;
use towline::Endpoint;
use towline::config::{self, ClientAuth, Identity, Trust, UnixTime};
use towline::http3::{self, SettingId, Settings};
use towline::testing::{LinkConfig, Simulation};
use towline::webtransport::{
    Config, ConnectError, Dialect, Dialects, Error, HashObstacle, connect_to, generate_certificate,
};
use towline_http3::pair::{frame_bytes, section};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

use crate::common::options;
use crate::world::{World, request, there};

fn offers(dialects: &[Dialect]) -> Config {
    let mut config = Config::default();
    config.sessions.dialects = Dialects::of(dialects);
    config
}

#[track_caller]
fn assert_says(error: &impl ToString, words: &[&str]) {
    let text = error.to_string();
    for word in words {
        assert!(text.contains(word), "{text}");
    }
}

/// Why this client has no session with this server.
fn asks_in_vain(client: Config, server: Server) -> ConnectError {
    let mut world = match server {
        Server::Sessions(server) => World::with(client, *server),
        Server::Requests => World::of(
            Endpoint::builder().webtransport(client),
            Endpoint::builder().http3(http3::Config::default()),
        ),
    };
    let asked = world.asks(request("/"), &[]);
    world.run(asked).unwrap_err()
}

/// What a server speaks.
enum Server {
    Sessions(Box<Config>),
    Requests,
}

#[test]
fn a_server_that_lacks_a_setting_or_speaks_another_draft_is_told_in_the_error() {
    let of_old = asks_in_vain(
        offers(&[Dialect::Draft02]),
        Server::Sessions(Box::new(offers(&[Dialect::Draft16]))),
    );
    let of_none = asks_in_vain(Config::default(), Server::Requests);
    for error in [of_old, of_none] {
        assert!(matches!(error, ConnectError::Session(Error::NotAsked(_))));
        assert_says(
            &error,
            &[
                "SETTINGS name no version of WebTransport that this end speaks",
                "switch WebTransport on at the peer",
            ],
        );
    }
}

#[test]
fn an_origin_that_is_refused_is_told_by_a_status_and_in_the_servers_log() {
    let log = Log::default();
    let error = tracing::subscriber::with_default(log.clone(), || {
        let mut world = World::new();
        let head = http::Request::get("https://boat.example/chart")
            .header("origin", "https://elsewhere.example");
        let (asked, door) = (world.asks(head.body(()).unwrap(), &[]), world.door());
        world.run(async move {
            let refuse = async {
                let connection = door.accept().await.unwrap();
                let request = connection.accept().await.unwrap();
                assert_eq!(request.origin(), Some("https://elsewhere.example"));
                request.reject(StatusCode::FORBIDDEN);
                connection
            };
            let (asked, _connection) = tokio::join!(asked, refuse);
            asked.unwrap_err()
        })
    });
    assert_says(&error, &["the server refused the session with status 403"]);
    let line = log.line("a session was refused");
    for words in ["403", "/chart", "https://elsewhere.example"] {
        assert!(line.contains(words), "{line}");
    }
}

/// A client of bare bytes: its SETTINGS, and a request for a session.
fn bare_client(settings: &[(SettingId, u64)]) -> Vec<String> {
    let log = Log::default();
    let mut said = Settings::new();
    for (id, value) in settings {
        said.set(*id, *value);
    }
    let mut payload = Vec::new();
    said.emit(&mut payload);
    let control = [vec![0], frame_bytes(4, &payload)].concat();
    let head = section(&[
        (":method", "CONNECT"),
        (":protocol", "webtransport-h3"),
        (":scheme", "https"),
        (":authority", "boat.example"),
        (":path", "/"),
    ]);
    let server = Endpoint::builder().webtransport(Config::default());
    tracing::subscriber::with_default(log.clone(), || {
        let mut world = World::of(Endpoint::builder(), server);
        let (client, config, door) = (world.client.clone(), world.config(), world.door());
        let answer = world.run(async move {
            let connected = client.connect(there(), "boat.example", &config);
            let (connection, _served) = tokio::join!(connected, door.accept());
            let connection = connection.unwrap();
            let mut uni = connection.open_uni().await.unwrap();
            uni.write_all(&control).await.unwrap();
            let (mut send, mut recv) = connection.open_bi().await.unwrap();
            send.write_all(&frame_bytes(1, &head)).await.unwrap();
            recv.read_to_end(1000).await.unwrap()
        });
        // A HEADERS frame, whose fields are in the tables: a status.
        assert_eq!(answer.first(), Some(&1), "{answer:?}");
    });
    let lines = log.0.lock().unwrap();
    lines.clone()
}

#[test]
fn a_client_that_lacks_a_setting_or_speaks_another_draft_is_told_in_the_servers_log() {
    for (settings, words) in [
        (
            &[(SettingId::WT_ENABLED, 1)][..],
            "lack H3_DATAGRAM = 1, which WebTransport needs",
        ),
        (
            &[(SettingId::H3_DATAGRAM, 1)],
            "name no version of WebTransport that this end speaks",
        ),
        (
            &[
                (SettingId::H3_DATAGRAM, 1),
                (SettingId::WT_MAX_SESSIONS_DRAFT14, 1),
            ],
            ":protocol belongs to a version of WebTransport that its SETTINGS do not name",
        ),
    ] {
        let lines = bare_client(settings);
        let said =
            |line: &&String| line.contains("WT_REQUIREMENTS_NOT_MET") && line.contains(words);
        assert!(lines.iter().any(|line| said(&line)), "{lines:#?}");
    }
}

/// A client that goes by a pin, and a server with this certificate.
fn pinned(server: &Identity, trust: &Trust) -> ConnectError {
    let options = options().alpn(vec![http3::ALPN.into()]);
    let config = config::server(server, &ClientAuth::None, &options).unwrap();
    let here = "192.0.2.1:1000".parse().unwrap();
    let link = LinkConfig {
        delay: Duration::from_millis(10),
        ..LinkConfig::default()
    };
    let mut world = Simulation::new(1);
    world.join(here, there(), link.clone(), link).unwrap();
    let builder = || Endpoint::builder().webtransport(Config::default());
    let _server = world.endpoint(builder().server(config), there()).unwrap();
    let client = world.endpoint(builder(), here).unwrap();
    let config = config::client(trust, None, &options).unwrap();
    world.block_on(async move {
        let asked = connect_to(&client, there(), request("/"), &[], &config);
        asked.await.unwrap_err()
    })
}

#[test]
fn a_pin_that_is_wrong_or_whose_certificate_has_ended_is_told_in_the_error() {
    let now = config::unix_now();
    let (server, other) = (
        generate_certificate(&["boat.example"], now).unwrap(),
        generate_certificate(&["boat.example"], now).unwrap(),
    );
    let pin = |identity: &Identity| identity.certificate_pin().unwrap();
    let trust = |identity: &Identity| Trust::Pinned(vec![pin(identity).into()]);
    let wrong = pinned(&server, &trust(&other));
    let (seen, expected) = (pin(&server).to_string(), pin(&other).to_string());
    assert_says(
        &wrong,
        &[
            &seen,
            &format!("we expect {expected})"),
            "get its pin from the peer's owner",
        ],
    );

    let month = Duration::from_secs(30 * 86_400);
    let then = UnixTime::since_unix_epoch(Duration::from_secs(now.as_secs()) - month);
    let old = generate_certificate(&["boat.example"], then).unwrap();
    assert_says(&pinned(&old, &trust(&old)), &["expired", "not valid after"]);
}

#[test]
fn whether_browsers_take_a_certificate_by_its_hash_is_known_before_it_is_served() {
    let now = config::unix_now();
    let ours = generate_certificate(&["localhost"], now).unwrap();
    assert_eq!(ours.hash_obstacle(), None);
    let month = Duration::from_secs(30 * 86_400);
    let other = Identity::generate_ed25519(&["localhost"], now, month).unwrap();
    let obstacle = other.hash_obstacle().unwrap();
    assert!(matches!(obstacle, HashObstacle::Key(_)));
    assert_says(
        &obstacle,
        &["its key is Ed25519", "browsers want ECDSA with P-256"],
    );
}

/// Keeps the lines of a log.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<String>>>);

impl Log {
    #[track_caller]
    fn line(&self, words: &str) -> String {
        let lines = self.0.lock().unwrap();
        let found = lines.iter().find(|line| line.contains(words));
        found.unwrap_or_else(|| panic!("{lines:#?}")).clone()
    }
}

struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        let _ = write!(self.0, "{field}={value:?} ");
    }
}

impl Subscriber for Log {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= tracing::Level::INFO
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut line = Line(String::new());
        event.record(&mut line);
        self.0.lock().unwrap().push(line.0);
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}
