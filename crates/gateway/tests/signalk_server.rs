//! A real Signal K server, in `TOWLINE_SIGNALK_SERVER`: a directory in whose `node_modules` it is
//! (`npm install signalk-server@2.23.0`).
#![cfg(all(feature = "signalk", feature = "nmea0183"))]

mod common;

use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use common::{PATIENCE, Scratch, free_port, next, record, skip, stream, until, until_up};
use tokio::net::UdpSocket;
use tokio::time::{Instant, sleep, timeout};
use towline_gateway::{Entry, SignalKOptions, SignalKSinkOptions, Sink, Source, Status};
use towline_link::codec::Record;

/// It takes its time on a busy machine.
const START: Duration = Duration::from_secs(90);

struct Server {
    child: Child,
    _scratch: Scratch,
    http: u16,
    tcp: u16,
    udp: u16,
    nmea: u16,
}

impl Server {
    /// `None`, after saying so, where there is none.
    fn start() -> Option<Self> {
        let Some(directory) = std::env::var_os("TOWLINE_SIGNALK_SERVER").map(PathBuf::from) else {
            let why =
                "TOWLINE_SIGNALK_SERVER names no directory with signalk-server in node_modules";
            skip("Signal K server", why);
            return None;
        };
        let program = directory.join("node_modules/signalk-server/bin/signalk-server");
        let scratch = Scratch::new();
        let (http, tcp, udp, nmea) = (free_port(), free_port(), free_port(), free_port());
        let input = |id: &str, kind: &str, port: u16| {
            serde_json::json!({
                "id": id, "enabled": true, "pipeElements": [{
                    "type": "providers/simple",
                    "options": {
                        "logging": false, "type": kind,
                        "subOptions": { "type": "udp", "port": port.to_string() },
                    },
                }],
            })
        };
        let settings = serde_json::json!({
            "vessel": { "uuid": "urn:mrn:signalk:uuid:c0d79334-4e25-4245-8892-54e8ccc8021d" },
            "interfaces": {
                "mdns": false, "tcp": true, "nmea-tcp": false, "appstore": false, "webapps": false,
            },
            "port": http,
            "mdns": false,
            "pipedProviders": [input("udpin", "SignalK", udp), input("nmeain", "NMEA0183", nmea)],
        });
        fs::write(scratch.path().join("settings.json"), settings.to_string()).unwrap();
        fs::write(scratch.path().join("package.json"), "{}").unwrap();
        let child = Command::new("node")
            .arg(program)
            .arg("-c")
            .arg(scratch.path())
            .env("TCPSTREAMPORT", tcp.to_string())
            .env("PORT", http.to_string())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        Some(Self {
            child,
            _scratch: scratch,
            http,
            tcp,
            udp,
            nmea,
        })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn delta(source: &str, value: f64) -> Record {
    record(&format!(
        r#"{{"context":"vessels.urn:mrn:signalk:uuid:c0d79334-4e25-4245-8892-54e8ccc8021d","updates":[{{"$source":"{source}","source":{{"label":"n2k","src":"3"}},"timestamp":"2026-01-01T00:00:00.000Z","values":[{{"path":"navigation.speedThroughWater","value":{value}}}]}}]}}"#
    ))
}

/// Delivers until the value comes out at the source.
async fn goes_through(sink: &mut Sink, source: &mut Source, name: &str, value: f64) {
    let boat = stream("a", 1);
    let entry = Entry {
        seq: 0,
        record: delta(name, value),
    };
    sink.deliver(&boat, &[entry]).await.unwrap();
    comes(source, name, &format!(r#""value":{value}"#)).await;
}

async fn comes(source: &mut Source, name: &str, what: &str) {
    let found = timeout(PATIENCE, async {
        loop {
            let text = next(source).await.to_json();
            if text.contains(&format!(r#""$source":"{name}""#)) && text.contains(what) {
                break;
            }
        }
    });
    found.await.expect("it came through");
}

#[tokio::test]
async fn deltas_go_in_by_every_way_and_come_out_by_both() {
    let Some(server) = Server::start() else {
        return;
    };
    let web = format!("ws://127.0.0.1:{}", server.http);
    let tcp = format!("tcp://127.0.0.1:{}", server.tcp);
    let mut source = Source::signalk(SignalKOptions::new(&web)).unwrap();
    let start = Instant::now();
    while source.status() != Status::Up {
        assert!(
            start.elapsed() < START,
            "it does not start: {:?}",
            source.status()
        );
        sleep(Duration::from_millis(100)).await;
    }
    let mut by_tcp = Source::signalk(SignalKOptions::new(&tcp)).unwrap();
    until("the TCP source is up", || by_tcp.status() == Status::Up).await;
    let udp = format!("udp://127.0.0.1:{}", server.udp);
    let mut value = 1.25;
    for url in [&web, &tcp, &udp] {
        let mut sink = Sink::signalk(SignalKSinkOptions::new(url)).unwrap();
        until_up(&sink).await;
        goes_through(&mut sink, &mut source, "test.ways", value).await;
        comes(&mut by_tcp, "test.ways", &format!(r#""value":{value}"#)).await;
        value += 1.0;
    }
    // Its own parser, beside ours.
    let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let sentence = b"$IIHDT,274.5,T*26\r\n";
    socket
        .send_to(sentence, ("127.0.0.1", server.nmea))
        .await
        .unwrap();
    let value = r#"{"path":"navigation.headingTrue","value":4.790928797818346}"#;
    comes(&mut source, "nmeain.II", value).await;
    // Its greeting, on each connection, is no record.
    let counts = source.counts();
    assert_eq!((counts.malformed, counts.unsupported), (0, 1), "{counts:?}");
}
