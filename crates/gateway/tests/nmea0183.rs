//! NMEA 0183 over TCP, UDP and from a reader.
#![cfg(feature = "nmea0183")]

mod common;

use common::{free_port, next, until};
use tokio::io::AsyncWriteExt as _;
use tokio::net::{TcpListener, UdpSocket};
use towline_gateway::{Nmea0183Options, Source, Status, Translator};

/// 2014-06-01T10:48:28Z.
fn now() -> i64 {
    1_401_619_708_000
}

const HEADING: &str = "$IIHDT,274.5,T*26\r\n";
const DEPTH: &str = "$IIDPT,4.1,0.0*45\r\n";
const AIS: &str = "!AIVDM,1,1,,A,13aEOK?P00PD2wVMdLDRhgvL289?,0*26\r\n";
const DAMAGED: &str = "$IIHDT,274.6,T*26\r\n";

fn path_of(record: &towline_link::codec::Record) -> String {
    let json: serde_json::Value = serde_json::from_str(&record.to_json()).unwrap();
    let path = &json["updates"][0]["values"][0]["path"];
    path.as_str().unwrap().to_owned()
}

async fn heading_and_depth_come(source: &mut Source) {
    assert_eq!(path_of(&next(source).await), "navigation.headingTrue");
    assert_eq!(
        path_of(&next(source).await),
        "environment.depth.belowTransducer"
    );
    let counts = source.counts();
    assert_eq!((counts.malformed, counts.unsupported), (1, 1), "{counts:?}");
}

#[tokio::test]
async fn sentences_over_tcp_become_deltas_and_the_connection_is_made_again() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("tcp://{}", listener.local_addr().unwrap());
    let mut source = Source::nmea0183(Nmea0183Options::new(url), now).unwrap();
    let (mut stream, _) = listener.accept().await.unwrap();
    let text = [AIS, DAMAGED, HEADING, DEPTH].concat();
    stream.write_all(text.as_bytes()).await.unwrap();
    heading_and_depth_come(&mut source).await;
    drop(stream);
    until("it is down", || {
        matches!(source.status(), Status::Down { .. })
    })
    .await;
    let (mut stream, _) = listener.accept().await.unwrap();
    stream.write_all(HEADING.as_bytes()).await.unwrap();
    next(&mut source).await;
}

#[tokio::test]
async fn sentences_over_udp_become_deltas() {
    let port = free_port();
    let url = format!("udp://127.0.0.1:{port}");
    let mut source = Source::nmea0183(Nmea0183Options::new(url), now).unwrap();
    until("it listens", || source.status() == Status::Up).await;
    let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let to = ("127.0.0.1", port);
    let several = [AIS, DAMAGED, HEADING].concat();
    socket.send_to(several.as_bytes(), to).await.unwrap();
    socket.send_to(DEPTH.trim().as_bytes(), to).await.unwrap();
    heading_and_depth_come(&mut source).await;
    // The largest datagram there is, of nothing.
    socket.send_to(&vec![b'x'; 65_507], to).await.unwrap();
    socket.send_to(DEPTH.as_bytes(), to).await.unwrap();
    next(&mut source).await;
    assert_eq!(source.counts().malformed, 2);
}

#[tokio::test]
async fn sentences_from_a_reader_become_deltas_until_it_ends() {
    let text = [AIS, DAMAGED, HEADING, DEPTH].concat();
    let translator = Translator::new("nmea0183", None);
    let mut source = Source::nmea0183_lines(std::io::Cursor::new(text), translator, now);
    heading_and_depth_come(&mut source).await;
    assert_eq!(source.next().await.unwrap(), None);
    let why = source.counts().last_malformed.unwrap();
    assert!(why.starts_with("line 2: the checksum is"), "{why}");
}

#[tokio::test]
async fn an_address_that_is_none_is_refused() {
    for url in ["ws://a", "tcp://:1", "a"] {
        Source::nmea0183(Nmea0183Options::new(url), now).unwrap_err();
    }
}
