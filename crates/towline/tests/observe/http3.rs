//! HTTP/3 and WebTransport in the logs of both ends.

use std::collections::BTreeMap;
use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{Empty, Full};
use serde_json::Value;
use towline::config::{self, ClientAuth, Identity, Trust};
use towline::http3::{self, RecvBody, Router};
use towline::qlog::QlogDir;
use towline::testing::{LinkConfig, Simulation};
use towline::webtransport::{Config, Connection, Server, SessionRequest, connect_to};
use towline::{Endpoint, EndpointBuilder};

use super::common::options;
use super::qlog_files::{Folder, files_of, read};

/// Bytes of an answer.
const ANSWER: usize = 25_000;

/// What happened above QUIC: names and data, in order.
fn above_quic(path: &PathBuf) -> Vec<(String, Value)> {
    let text = fs::read_to_string(path).unwrap();
    let records = text.split('\u{1e}').filter(|record| !record.is_empty());
    records
        .map(|record| serde_json::from_str::<Value>(record).unwrap())
        .filter_map(|record| Some((record["name"].as_str()?.to_owned(), record["data"].clone())))
        .filter(|(name, _)| !name.starts_with("quic:"))
        .collect()
}

/// The data of the events of a name.
fn named<'a>(events: &'a [(String, Value)], name: &str) -> Vec<&'a Value> {
    let of_name = events.iter().filter(|(have, _)| have == name);
    of_name.map(|(_, data)| data).collect()
}

/// Type and length of the frames of each stream, in order.
fn frames(events: &[(String, Value)], name: &str) -> BTreeMap<u64, Vec<(String, u64)>> {
    let mut frames: BTreeMap<u64, Vec<_>> = BTreeMap::new();
    for data in named(events, name) {
        let frame = &data["frame"];
        let kind = frame["frame_type"].as_str().unwrap().to_owned();
        let len = frame["raw"]["payload_length"].as_u64().unwrap();
        let stream = data["stream_id"].as_u64().unwrap();
        frames.entry(stream).or_default().push((kind, len));
    }
    frames
}

/// A request and a session with a stream and a datagram, which the server closes with code 7; another that
/// it refuses.
fn talk(folder: &Folder) {
    let identity = Identity::generate_raw_key().unwrap();
    let options = options().alpn(vec![http3::ALPN.into()]);
    let config = config::server(&identity, &ClientAuth::None, &options).unwrap();
    let trust = Trust::RawKeys(vec![identity.key_pin()]);
    let client_config = config::client(&trust, None, &options).unwrap();
    let logs = Arc::new(QlogDir::create(&folder.0).unwrap());
    let speaks = |builder: EndpointBuilder| {
        let config = Config {
            takes_requests: true,
            ..Config::default()
        };
        builder.observers(logs.clone()).webtransport(config)
    };
    let (here, there): (SocketAddr, SocketAddr) =
        (([192, 0, 2, 1], 1000).into(), ([192, 0, 2, 2], 443).into());
    let link = LinkConfig {
        delay: Duration::from_millis(10),
        ..LinkConfig::default()
    };
    let mut world = Simulation::new(1);
    world.join(here, there, link.clone(), link).unwrap();
    let server = speaks(Endpoint::builder()).server(config);
    let server = world.endpoint(server, there).unwrap();
    let client = world.endpoint(speaks(Endpoint::builder()), here).unwrap();
    let router = Router::new()
        .route("/file", |_: Request<RecvBody>| async {
            Response::new(Full::new(Bytes::from_static(&[1; ANSWER])))
        })
        .session_request("/chart", |request: SessionRequest| async move {
            let session = request
                .accept_with(Some("chart.1"), http::HeaderMap::new())
                .unwrap();
            let (_send, mut recv) = session.accept_bi().await.unwrap();
            assert_eq!(recv.read_to_end(10).await.unwrap(), b"hello");
            assert_eq!(session.read_datagram().await.unwrap(), "depth");
            session.close(7, "done");
        });
    let (door, tasks) = (Server::new(&server).unwrap(), world.tasks());
    let spawn = tasks.clone();
    tasks.spawn(async move {
        door.serve_with(router, |task| spawn.spawn(task)).await;
    });
    let tasks = world.tasks();
    world.block_on(async move {
        let uri = |path| format!("https://boat.example{path}");
        let head = Request::get(uri("/chart")).body(()).unwrap();
        let session = connect_to(&client, there, head, &["chart.1"], &client_config);
        let session = session.await.unwrap();
        let http = http3::Connection::new(session.transport().clone()).unwrap();
        let request = Request::get(uri("/file")).body(Empty::<Bytes>::new());
        let answer = http.request(request.unwrap()).await.unwrap();
        let body = answer.into_body().read_to_end(ANSWER).await.unwrap();
        assert_eq!(body.len(), ANSWER);
        let connection = Connection::new(http.clone());
        let head = Request::get(uri("/other")).body(()).unwrap();
        connection.open(head, &[]).await.unwrap_err();
        let (mut send, _recv) = session.open_bi().await.unwrap();
        send.write_all(b"hello").await.unwrap();
        send.finish().unwrap();
        session.send_datagram(Bytes::from_static(b"depth")).unwrap();
        session.closed().await;
        tasks.sleep(Duration::from_secs(1)).await;
        http.go_away();
        tasks.sleep(Duration::from_secs(1)).await;
        http.close();
        client.wait_idle().await;
        server.wait_idle().await;
    });
}

#[test]
fn the_logs_of_both_ends_tell_the_same_frames_sessions_and_capsules() {
    let folder = Folder::new("http3");
    talk(&folder);
    let files = files_of(&folder);
    for path in files.values() {
        let (reader, ..) = read(path);
        let schemas = format!("{:?}", reader.qlog.trace);
        assert!(
            schemas.contains("urn:ietf:params:qlog:events:http3-12"),
            "{schemas}"
        );
    }
    let [client, server] = ["client", "server"].map(|role| above_quic(&files[role]));

    // Whatever one end makes the other reads, in that order and with that length.
    for (from, to) in [(&client, &server), (&server, &client)] {
        let made = frames(from, "http3:frame_created");
        assert_eq!(made, frames(to, "http3:frame_parsed"));
        let capsules = named(from, "http:capsule_created");
        assert_eq!(capsules, named(to, "http:capsule_parsed"));
    }
    let answer = &frames(&server, "http3:frame_created")[&4];
    assert_eq!(answer[0].0, "headers");
    assert_eq!(answer[1..], [("data".to_owned(), ANSWER as u64)]);
    let control = &frames(&client, "http3:frame_created")[&2];
    let kinds: Vec<_> = control.iter().map(|(kind, _)| kind.as_str()).collect();
    assert_eq!(kinds, ["settings", "goaway"]);

    // What the streams are for, and the settings.
    for events in [&client, &server] {
        let types = named(events, "http3:stream_type_set");
        let of = |kind: &str| {
            let of_kind = types.iter().filter(|data| data["stream_type"] == kind);
            of_kind.count()
        };
        let counts = ["control", "qpack_encode", "qpack_decode", "request"].map(of);
        assert_eq!(counts, [2, 2, 2, 3]);
        let set = named(events, "http3:parameters_set");
        let initiators: Vec<_> = set.iter().map(|data| data["initiator"].clone()).collect();
        assert_eq!(initiators, ["local", "remote"]);
        assert!(set.iter().all(|data| data["h3_datagram"] == 1));
    }

    // A session from its beginning to its end.
    let sessions = |events: &[(String, Value)]| -> Vec<(String, Value)> {
        let own = events
            .iter()
            .filter(|(name, _)| name.starts_with("towline:session"));
        let of_first = own.filter(|(_, data)| data["session_id"] == 0);
        of_first.cloned().collect()
    };
    for (events, opener, closer) in [(&client, "local", "remote"), (&server, "remote", "local")] {
        let events = sessions(events);
        let names: Vec<_> = events.iter().map(|(name, _)| name.as_str()).collect();
        let wanted = ["requested", "accepted", "stream_opened", "closed"];
        assert_eq!(names, wanted.map(|name| format!("towline:session_{name}")));
        assert_eq!(events[0].1["dialect"], "draft-16");
        assert_eq!(events[1].1["protocol"], "chart.1");
        assert_eq!(events[2].1["initiator"], opener);
        let closed = &events[3].1;
        assert_eq!(closed["initiator"], closer);
        assert_eq!(
            (&closed["error_code"], &closed["reason"]),
            (&7.into(), &"done".into())
        );
    }
    for events in [&client, &server] {
        let refused = named(events, "towline:session_refused");
        assert_eq!(refused.len(), 1);
        assert_eq!(refused[0]["status"], 404);
    }
    // Only the server has closed.
    let closes = named(&server, "http:capsule_created");
    let closes = closes
        .iter()
        .filter(|data| data["capsule"]["error_code"] == 7);
    assert_eq!(closes.count(), 1);

    let datagrams = |events: &[(String, Value)], name: &str| -> Vec<(u64, u64)> {
        let number = |value: &Value| value.as_u64().unwrap();
        let told = named(events, name);
        let told = told.iter().map(|data| {
            (
                number(&data["quarter_stream_id"]),
                number(&data["raw"]["payload_length"]),
            )
        });
        told.collect()
    };
    assert_eq!(datagrams(&client, "http3:datagram_created"), [(0, 5)]);
    assert_eq!(datagrams(&server, "http3:datagram_parsed"), [(0, 5)]);
    // Nothing of what was said is in the files.
    for path in files.values() {
        let text = fs::read_to_string(path).unwrap();
        for secret in ["boat.example", "/chart", "hello", "depth"] {
            assert!(!text.contains(secret), "{secret}");
        }
    }
}
