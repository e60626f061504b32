//! A thousand connections of secure TCP opened, killed and half-closed at random, under load.
//! Alone in its process: it counts descriptors.

#[path = "../../cli/src/framed_echo/frames.rs"]
#[allow(dead_code, unreachable_pub, reason = "the same file is the command's")]
mod echo;
#[path = "stcp/peers.rs"]
#[allow(dead_code, reason = "each test program uses a part of this module")]
mod peers;

use std::time::Duration;

use rand_chacha::ChaCha8Rng;
use rand_core::{Rng, SeedableRng};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use towline::stcp::connect;

use peers::{NAME, SECOND, Sides, patience, pattern, reset, slowness};

const CONNECTIONS: u64 = 1000;
const AT_ONCE: usize = 64;

fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

async fn one(sides: Sides, address: std::net::SocketAddr, mut random: ChaCha8Rng) {
    let choice = random.next_u64() % 8;
    let size = 1 + (random.next_u64() % 100_000) as usize;
    if choice == 0 {
        // Dies inside the handshake.
        let mut tcp = TcpStream::connect(address).await.unwrap();
        let _ = tcp
            .write_all(&b"\x16\x03\x01\x02\x00\x01"[..size % 7])
            .await;
        tokio::time::sleep(Duration::from_millis(size as u64 % 20)).await;
        if size.is_multiple_of(2) {
            reset(tcp);
        }
        return;
    }
    let stream = connect(address, NAME, &sides.client).await.unwrap();
    if choice < 4 {
        // Lives well.
        let mut client = echo::Client::new(stream, size);
        for _ in 0..size % 10 {
            client.exchange().await.unwrap();
        }
        client.finish().await.unwrap();
        return;
    }
    let mut frame = (size as u32).to_be_bytes().to_vec();
    frame.extend(pattern(size));
    let (mut read, mut write) = stream.into_split();
    let cut = match choice {
        4 => frame.len(),
        _ => size / 2,
    };
    let _ = write.write_all(&frame[..cut]).await;
    match choice {
        // Half-closed, in order, after a whole frame: the answer still comes.
        4 => {
            write.shutdown().await.unwrap();
            let mut answer = Vec::new();
            read.read_to_end(&mut answer).await.unwrap();
            assert_eq!(answer, frame);
        }
        // Half-closed inside a frame.
        5 => {
            let _ = write.shutdown().await;
            let _ = read.read_to_end(&mut Vec::new()).await;
        }
        // The writing half is dropped, or everything is.
        6 => {
            drop(write);
            let _ = read.read_to_end(&mut Vec::new()).await;
        }
        _ => {}
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_connections_come_and_go_and_leave_nothing() {
    let seed = std::env::var("STCP_SEED").map_or(1, |seed| seed.parse().unwrap());
    eprintln!("STCP_SEED={seed} cargo test -p towline --test stcp_chaos_connections");
    let sides = Sides::new();
    let (mut listener, address) = sides.listen().await;
    let before = descriptors();
    let (stop, mut stopped) = tokio::sync::oneshot::channel::<()>();
    let server = tokio::spawn(async move {
        let mut serving = JoinSet::new();
        loop {
            tokio::select! {
                accepted = listener.accept() => {
                    let stream = accepted.unwrap().0;
                    serving.spawn(echo::serve(stream));
                }
                Some(_) = serving.join_next() => {}
                _ = &mut stopped => break,
            }
        }
        while serving.join_next().await.is_some() {}
        listener
    });
    let work = async {
        let mut under_way = JoinSet::new();
        // Each has ten seconds for its handshake.
        let at_once = (AT_ONCE / slowness() as usize).max(1);
        for number in 0..CONNECTIONS {
            if under_way.len() == at_once {
                under_way.join_next().await.unwrap().unwrap();
            }
            let random = ChaCha8Rng::seed_from_u64(seed * 1_000_003 + number);
            under_way.spawn(one(sides.clone(), address, random));
        }
        while let Some(ended) = under_way.join_next().await {
            ended.unwrap();
        }
        stop.send(()).unwrap();
        server.await.unwrap()
    };
    let listener = tokio::time::timeout(patience(120 * SECOND), work)
        .await
        .expect("no end within 120 s");
    let accepted = listener.counters().accepted;
    assert!(accepted > CONNECTIONS * 3 / 4, "{:?}", listener.counters());
    drop(listener);
    // Aborted handshakes give their descriptors back at the runtime's next turn.
    let mut left = descriptors();
    for _ in 0..100 {
        if left <= before {
            return;
        }
        tokio::time::sleep(SECOND / 50).await;
        left = descriptors();
    }
    panic!("{left} descriptors, and {before} before");
}
