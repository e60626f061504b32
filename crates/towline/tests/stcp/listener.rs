//! What strangers can do to a listener, and what they can't.

use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::Instant;
use towline::stcp::{Limits, connect};

use crate::peers::{NAME, SECOND, Sides, within};

#[tokio::test]
async fn a_hundred_silent_clients_delay_nobody() {
    let sides = Sides::new();
    let (mut listener, address) = sides.listen().await;
    let server = tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move { stream.write_all(b"hello").await });
        }
    });
    let good = async || {
        let started = Instant::now();
        let mut stream = connect(address, NAME, &sides.client).await.unwrap();
        stream.read_exact(&mut [0; 5]).await.unwrap();
        started.elapsed()
    };
    let mut alone = Duration::MAX;
    for _ in 0..5 {
        alone = alone.min(within(good()).await);
    }
    let mut silent = Vec::new();
    for number in 0..100_usize {
        let mut tcp = TcpStream::connect(address).await.unwrap();
        // Some say nothing at all, some begin.
        tcp.write_all(&b"\x16\x03\x01\x02\x00\x01"[..number % 6])
            .await
            .unwrap();
        silent.push(tcp);
    }
    let mut among = Duration::MAX;
    for _ in 0..5 {
        among = among.min(within(good()).await);
    }
    assert!(
        among < alone + Duration::from_millis(100),
        "{among:?} after {alone:?}"
    );
    server.abort();
}

#[tokio::test]
async fn the_oldest_of_too_many_unfinished_handshakes_goes() {
    let sides = Sides::new();
    let (listener, address) = sides.listen().await;
    let mut listener = listener.with_limits(Limits::default().unfinished_handshakes(8));
    let server = tokio::spawn(async move {
        let accepted = listener.accept().await.map(drop);
        (accepted, listener)
    });
    let mut silent = Vec::new();
    for _ in 0..20 {
        silent.push(TcpStream::connect(address).await.unwrap());
        tokio::task::yield_now().await;
    }
    let stream = within(connect(address, NAME, &sides.client)).await.unwrap();
    let (accepted, listener) = within(server).await.unwrap();
    accepted.unwrap();
    assert!(listener.unfinished() <= 8, "{}", listener.unfinished());
    // Twenty silent ones and a good one, and eight places.
    assert!(
        listener.counters().dropped >= 12,
        "{:?}",
        listener.counters()
    );
    // The first one is the one that was let go.
    let gone = within(silent[0].read(&mut [0])).await;
    assert!(!matches!(gone, Ok(1..)), "{gone:?}");
    drop(stream);
}

#[tokio::test]
async fn a_handshake_has_its_time_and_every_failure_is_counted() {
    let sides = Sides::new();
    let (listener, address) = sides.listen().await;
    let mut listener =
        listener.with_limits(Limits::default().handshake_timeout(Duration::from_millis(200)));
    let _silent = TcpStream::connect(address).await.unwrap();
    let mut clear = TcpStream::connect(address).await.unwrap();
    clear.write_all(b"GET / HTTP/1.1\r\n\r\n").await.unwrap();
    let gone = TcpStream::connect(address).await.unwrap();
    drop(gone);
    let accepted = tokio::time::timeout(SECOND / 2, listener.accept()).await;
    assert!(accepted.is_err(), "nobody finished");
    let counters = listener.counters();
    assert_eq!(counters.timed_out, 1, "{counters:?}");
    assert_eq!(counters.refused, 2, "{counters:?}");
    assert_eq!(counters.accepted, 0);
    // What the plaintext client hears is no answer of ours in clear.
    let mut heard = Vec::new();
    let _ = within(clear.read_to_end(&mut heard)).await;
    assert_eq!(heard, b"");
    // And the next good one is welcome.
    let (near, far) =
        within(async { tokio::join!(connect(address, NAME, &sides.client), listener.accept()) })
            .await;
    near.unwrap();
    far.unwrap();
}
