//! Signal K over servers that the tests play.
#![cfg(feature = "signalk")]

mod common;

use std::any::Any;
use std::sync::Arc;
use std::time::Duration;

use common::{delta, entries, next, stream, until, until_up};
use futures_util::{SinkExt as _, StreamExt as _};
use rustls::crypto::aws_lc_rs;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::handshake::server::{ErrorResponse, Request, Response};
use tokio_tungstenite::{WebSocketStream, accept_async, accept_hdr_async};
use towline_gateway::{Entry, SignalKOptions, SignalKSinkOptions, Sink, Source, Status};
use towline_link::codec::MAX_TEXT;

const HELLO: &str = r#"{"name":"signalk-server","version":"2.23.0","self":"vessels.urn:x","roles":["master","main"]}"#;

async fn listen(scheme: &str) -> (TcpListener, String) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("{scheme}://{}", listener.local_addr().unwrap());
    (listener, url)
}

async fn accept(listener: &TcpListener) -> WebSocketStream<TcpStream> {
    let (stream, _) = listener.accept().await.unwrap();
    accept_async(stream).await.unwrap()
}

fn source(url: &str) -> Source {
    Source::signalk(SignalKOptions::new(url)).unwrap()
}

fn why(status: &Status) -> &str {
    match status {
        Status::Down { why } => why,
        _ => "",
    }
}

#[tokio::test]
async fn a_source_asks_for_everything_and_passes_deltas_on() {
    let (listener, url) = listen("ws").await;
    let mut source = source(&url);
    let (stream, _) = listener.accept().await.unwrap();
    let mut asked = String::new();
    #[expect(clippy::result_large_err, reason = "the callback's type is given")]
    let look = |request: &Request, response: Response| -> Result<Response, ErrorResponse> {
        asked = request.uri().to_string();
        Ok(response)
    };
    let mut server = accept_hdr_async(stream, look).await.unwrap();
    assert_eq!(
        asked,
        "/signalk/v1/stream?subscribe=all&sendCachedValues=true"
    );
    for text in [HELLO, "[1]", "{", r#"{"requestId":1}"#] {
        server.send(Message::text(text)).await.unwrap();
    }
    let too_long = format!("{{\"a\":\"{}\"}}", "x".repeat(MAX_TEXT));
    server.send(Message::text(too_long)).await.unwrap();
    server
        .send(Message::text(delta(1).to_json()))
        .await
        .unwrap();
    let binary = delta(2).to_json().into_bytes();
    server.send(Message::Binary(binary.into())).await.unwrap();
    assert_eq!(next(&mut source).await, delta(1));
    assert_eq!(next(&mut source).await, delta(2));
    assert_eq!(source.status(), Status::Up);
    let counts = source.counts();
    assert_eq!((counts.malformed, counts.unsupported), (3, 2), "{counts:?}");
}

#[tokio::test]
async fn a_source_connects_again_by_itself() {
    let (listener, url) = listen("ws").await;
    let mut source = source(&url);
    for number in 0..2 {
        let mut server = accept(&listener).await;
        server
            .send(Message::text(delta(number).to_json()))
            .await
            .unwrap();
        assert_eq!(next(&mut source).await, delta(number));
        drop(server);
        until("it is down", || !why(&source.status()).is_empty()).await;
    }
}

#[tokio::test]
async fn a_message_longer_than_is_waited_for_costs_the_connection_and_not_the_source() {
    let (listener, url) = listen("ws").await;
    let mut source = source(&url);
    let mut server = accept(&listener).await;
    let flood = Message::text("x".repeat((4 << 20) + 1));
    let flooding = tokio::spawn(async move {
        let _ = server.send(flood).await;
        let _ = server.next().await;
    });
    until("it is down", || why(&source.status()).contains("too long")).await;
    flooding.await.unwrap();
    let mut server = accept(&listener).await;
    server
        .send(Message::text(delta(1).to_json()))
        .await
        .unwrap();
    assert_eq!(next(&mut source).await, delta(1));
    assert_eq!(source.counts().malformed, 1);
}

#[tokio::test]
async fn some_paths_of_one_context_are_asked_for_by_a_message() {
    let (listener, url) = listen("ws").await;
    let _source = Source::signalk(SignalKOptions {
        context: "vessels.self".to_owned(),
        paths: vec!["navigation.*".to_owned(), "a\"b".to_owned()],
        ..SignalKOptions::new(url)
    })
    .unwrap();
    let mut server = accept(&listener).await;
    let asked = server.next().await.unwrap().unwrap();
    let expected =
        r#"{"context":"vessels.self","subscribe":[{"path":"navigation.*"},{"path":"a\"b"}]}"#;
    assert_eq!(asked.to_text().unwrap(), expected);
}

#[tokio::test]
async fn a_silent_server_is_asked_and_then_given_up() {
    let (listener, url) = listen("ws").await;
    let options = SignalKOptions {
        ping_after: Duration::from_millis(50),
        idle_timeout: Duration::from_millis(300),
        ..SignalKOptions::new(url)
    };
    let mut source = Source::signalk(options).unwrap();
    // One that answers pings is kept for as long as it likes.
    let mut server = accept(&listener).await;
    let quiet = timeout(Duration::from_millis(900), async {
        while server.next().await.is_some() {}
    });
    quiet.await.unwrap_err();
    server
        .send(Message::text(delta(1).to_json()))
        .await
        .unwrap();
    assert_eq!(next(&mut source).await, delta(1));
    // This one does not read any more.
    until("it is given up", || {
        why(&source.status()).contains("silent")
    })
    .await;
}

#[tokio::test]
async fn a_token_goes_in_the_header_and_a_refusal_says_what_to_do() {
    let (listener, url) = listen("ws").await;
    let options = SignalKOptions {
        token: Some("abc.def".to_owned()),
        ..SignalKOptions::new(url)
    };
    let source = Source::signalk(options.clone()).unwrap();
    let (mut stream, _) = listener.accept().await.unwrap();
    let mut head = vec![0; 4096];
    let len = stream.read(&mut head).await.unwrap();
    let head = String::from_utf8_lossy(&head[..len]).to_lowercase();
    assert!(head.contains("authorization: bearer abc.def"), "{head}");
    let refusal = b"HTTP/1.1 401 Unauthorized\r\ncontent-length: 0\r\n\r\n";
    stream.write_all(refusal).await.unwrap();
    until("it is refused", || why(&source.status()).contains("token")).await;

    let tcp = SignalKOptions {
        url: "tcp://localhost".to_owned(),
        ..options
    };
    let error = Source::signalk(tcp).unwrap_err().to_string();
    assert!(error.contains("token"), "{error}");
    for url in ["http://a", "ws://", "a"] {
        Source::signalk(SignalKOptions::new(url)).unwrap_err();
        Sink::signalk(SignalKSinkOptions::new(url)).unwrap_err();
    }
}

#[tokio::test]
async fn tls_wants_a_certificate_that_is_trusted() {
    let provider = Arc::new(aws_lc_rs::default_provider());
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let server = rustls::ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(
            vec![made.cert.der().clone()],
            rustls::pki_types::PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap(),
        )
        .unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(server));
    let client = |trusts: bool| {
        let mut roots = rustls::RootCertStore::empty();
        if trusts {
            roots.add(made.cert.der().clone()).unwrap();
        }
        let config = rustls::ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        Some(Arc::new(config))
    };
    let (listener, _) = listen("wss").await;
    let url = format!("wss://localhost:{}", listener.local_addr().unwrap().port());
    let options = |trusts| SignalKOptions {
        tls: client(trusts),
        ..SignalKOptions::new(&url)
    };
    let stranger = Source::signalk(options(false)).unwrap();
    let (stream, _) = listener.accept().await.unwrap();
    acceptor.accept(stream).await.map(drop).unwrap_err();
    until("it is refused", || {
        why(&stranger.status()).contains("certificate")
    })
    .await;
    drop(stranger);

    let mut source = Source::signalk(options(true)).unwrap();
    let (stream, _) = listener.accept().await.unwrap();
    let mut server = accept_async(acceptor.accept(stream).await.unwrap())
        .await
        .unwrap();
    server
        .send(Message::text(delta(1).to_json()))
        .await
        .unwrap();
    assert_eq!(next(&mut source).await, delta(1));
}

#[tokio::test]
async fn a_source_over_tcp_subscribes_and_reads_lines() {
    let (listener, url) = listen("tcp").await;
    let mut source = source(&url);
    let (stream, _) = listener.accept().await.unwrap();
    let (reader, mut writer) = stream.into_split();
    let mut asked = String::new();
    BufReader::new(reader).read_line(&mut asked).await.unwrap();
    assert_eq!(
        asked,
        "{\"context\":\"*\",\"subscribe\":[{\"path\":\"*\"}]}\r\n"
    );
    let text = format!("{HELLO}\r\nnonsense\r\n{}\r\n", delta(1).to_json());
    writer.write_all(text.as_bytes()).await.unwrap();
    assert_eq!(next(&mut source).await, delta(1));
    assert_eq!(
        (source.counts().malformed, source.counts().unsupported),
        (1, 1)
    );
    drop(writer);
    until("it is down", || why(&source.status()).contains("closed")).await;
}

#[tokio::test]
async fn a_sink_sends_deltas_over_a_websocket_and_drops_while_it_is_down() {
    let (listener, url) = listen("ws").await;
    let mut sink = Sink::signalk(SignalKSinkOptions::new(url)).unwrap();
    let boat = stream("a", 1);
    let error = sink.deliver(&boat, &entries(0..1)).await.unwrap_err();
    assert!(!error.is_permanent());
    let mut server = accept(&listener).await;
    until_up(&sink).await;
    server.send(Message::text(HELLO)).await.unwrap();
    sink.deliver(&boat, &entries(1..3)).await.unwrap();
    for number in 1..3 {
        let message = server.next().await.unwrap().unwrap();
        // Pings come in between.
        let message = match message {
            Message::Ping(_) => server.next().await.unwrap().unwrap(),
            other => other,
        };
        assert_eq!(message.to_text().unwrap(), delta(number).to_json());
    }
    drop(server);
    until("it is down", || !why(&sink.status()).is_empty()).await;
    sink.deliver(&boat, &entries(3..4)).await.unwrap_err();
    let mut server = accept(&listener).await;
    until_up(&sink).await;
    sink.deliver(&boat, &entries(4..5)).await.unwrap();
    loop {
        let message = server.next().await.unwrap().unwrap();
        if let Message::Text(text) = message {
            assert_eq!(text.as_str(), delta(4).to_json(), "nothing old comes");
            break;
        }
    }
    assert!(sink.write(&boat, &[]).await.unwrap_err().is_permanent());
}

#[tokio::test]
async fn a_burst_larger_than_the_queue_goes_to_a_server_that_reads() {
    let (listener, url) = listen("tcp").await;
    let mut sink = Sink::signalk(SignalKSinkOptions::new(url)).unwrap();
    let (server, _) = listener.accept().await.unwrap();
    let reading = tokio::spawn(async move {
        let mut lines = BufReader::new(server).lines();
        for number in 0..1000 {
            let line = lines.next_line().await.unwrap().unwrap();
            assert_eq!(line, delta(number).to_json());
        }
    });
    until_up(&sink).await;
    sink.deliver(&stream("a", 1), &entries(0..1000))
        .await
        .unwrap();
    reading.await.unwrap();
}

#[tokio::test]
async fn a_server_that_does_not_read_is_waited_for() {
    for scheme in ["tcp", "ws"] {
        let (listener, url) = listen(scheme).await;
        let mut sink = Sink::signalk(SignalKSinkOptions::new(url)).unwrap();
        let accepted: Box<dyn Any> = match scheme {
            "ws" => Box::new(accept(&listener).await),
            _ => Box::new(listener.accept().await.unwrap()),
        };
        until_up(&sink).await;
        let boat = stream("a", 1);
        let long = |seq| {
            let text = format!("{{\"long\":\"{}\"}}", "x".repeat(500_000));
            let record = common::record(&text);
            Entry { seq, record }
        };
        let some: Vec<Entry> = (0..4).map(long).collect();
        // The buffers of the connection fill.
        for rounds in 0.. {
            assert!(rounds < 20, "everything went somewhere");
            let delivered = sink.deliver(&boat, &some);
            match timeout(Duration::from_millis(500), delivered).await {
                Ok(delivered) => delivered.unwrap(),
                Err(_) => break,
            }
        }
        // It is gone while a delivery waits for it.
        let before = sink.connections();
        let (delivered, ()) = tokio::join!(sink.deliver(&boat, &some), async {
            drop(accepted);
        });
        assert!(!delivered.unwrap_err().is_permanent());
        until("it is down", || !why(&sink.status()).is_empty()).await;
        assert_eq!((before, sink.connections()), (1, 1));
        let next = async {
            match scheme {
                "ws" => drop(accept(&listener).await),
                _ => drop(listener.accept().await.unwrap()),
            }
        };
        let up = async { until("it is up again", || sink.connections() == 2).await };
        tokio::join!(next, up);
    }
}

#[tokio::test]
async fn a_sink_writes_lines_over_tcp_and_a_datagram_a_delta_over_udp() {
    let boat = stream("a", 1);
    let (listener, url) = listen("tcp").await;
    let mut sink = Sink::signalk(SignalKSinkOptions::new(url)).unwrap();
    let (server, _) = listener.accept().await.unwrap();
    until_up(&sink).await;
    sink.deliver(&boat, &entries(0..2)).await.unwrap();
    let mut lines = BufReader::new(server).lines();
    for number in 0..2 {
        assert_eq!(
            lines.next_line().await.unwrap().unwrap(),
            delta(number).to_json()
        );
    }

    let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let url = format!("udp://{}", socket.local_addr().unwrap());
    let mut sink = Sink::signalk(SignalKSinkOptions::new(url)).unwrap();
    until_up(&sink).await;
    let mut some = entries(0..3);
    let long = format!("{{\"updates\":\"{}\"}}", "x".repeat(70_000));
    some[1].record = common::record(&long);
    let error = sink.deliver(&boat, &some).await.unwrap_err();
    assert_eq!(error.entry(), Some(1));
    assert!(error.to_string().contains("use tcp:// or ws://"), "{error}");
    sink.deliver(&boat, &some[2..]).await.unwrap();
    let mut buffer = vec![0; 70_000];
    for number in [0, 2] {
        let len = socket.recv(&mut buffer).await.unwrap();
        assert_eq!(buffer[..len], *delta(number).to_json().as_bytes());
    }
}
