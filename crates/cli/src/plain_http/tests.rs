use std::net::SocketAddr;

use tokio::net::TcpStream;
use tokio::time::Instant;

use super::*;

/// One page with one word.
struct Word;

impl Site for Word {
    async fn get(&self, path: &str) -> Option<Content> {
        (path == "/word").then_some(Content {
            kind: "text/plain",
            body: Bytes::from_static(b"ahoy"),
        })
    }

    fn hint(&self) -> &'static str {
        "look at /word\n"
    }
}

/// Asks a server; returns all that it says.
async fn ask(address: SocketAddr, request: &[u8]) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(request).await.unwrap();
    let mut answer = Vec::new();
    // A refusal may be followed by a reset, for what was not read.
    let _ = stream.read_to_end(&mut answer).await;
    String::from_utf8(answer).unwrap()
}

/// A server on a free port, and its places.
async fn server() -> (SocketAddr, Arc<Semaphore>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let places = Arc::new(Semaphore::new(MAX_HTTP_CONNECTIONS));
    tokio::spawn(accept(listener, Arc::new(Word), Arc::clone(&places)));
    (address, places)
}

#[tokio::test]
async fn only_what_is_there_is_served() {
    let (address, _) = server().await;
    let answer = ask(address, b"GET /word?x=1 HTTP/1.1\r\nHost: x\r\n\r\n").await;
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 200 OK"), "{head}");
    assert!(head.contains("Content-Length: 4"), "{head}");
    assert_eq!(body, "ahoy");
    let answer = ask(address, b"HEAD /word HTTP/1.1\r\n\r\n").await;
    assert!(answer.starts_with("HTTP/1.1 200 OK") && answer.ends_with("\r\n\r\n"));
    let answer = ask(address, b"GET / HTTP/1.1\r\n\r\n").await;
    assert!(answer.starts_with("HTTP/1.1 404 ") && answer.ends_with("\r\n\r\nlook at /word\n"));
    let answer = ask(address, b"GET /\xff HTTP/1.1\r\n\r\n").await;
    assert!(answer.starts_with("HTTP/1.1 404 "), "{answer}");
    let answer = ask(address, b"POST /word HTTP/1.1\r\n\r\n").await;
    assert!(answer.starts_with("HTTP/1.1 405 "), "{answer}");
}

#[tokio::test]
async fn a_request_without_end_is_refused() {
    let (address, _) = server().await;
    let answer = ask(address, &[b'x'; MAX_REQUEST]).await;
    assert!(answer.starts_with("HTTP/1.1 431 "), "{answer}");
}

#[tokio::test]
async fn no_more_are_served_at_a_time_than_there_are_places() {
    let (address, places) = server().await;
    let mut silent = Vec::new();
    for _ in 0..MAX_HTTP_CONNECTIONS {
        silent.push(TcpStream::connect(address).await.unwrap());
    }
    while places.available_permits() > 0 {
        tokio::task::yield_now().await;
    }
    let mut asking = Box::pin(ask(address, b"GET /word HTTP/1.1\r\n\r\n"));
    let soon = tokio::time::timeout(Duration::from_millis(200), &mut asking);
    assert!(soon.await.is_err(), "one more than there are places");
    silent.pop();
    let answer = asking.await;
    assert!(answer.starts_with("HTTP/1.1 200 OK"), "{answer}");
}

#[tokio::test(start_paused = true)]
async fn who_says_nothing_is_let_go() {
    let (_silent, ours) = tokio::io::duplex(64);
    let began = Instant::now();
    assert!(answer_in_time(ours, &Word).await.is_err());
    assert_eq!(began.elapsed().as_secs(), PATIENCE.as_secs());
}
