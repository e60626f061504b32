//! Random operations beside a model of two byte streams.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use rand_chacha::ChaCha8Rng;
use rand_core::{Rng, SeedableRng};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use crate::peers::{SECOND, Sides, patience, within};

/// What one direction carries: bytes by their position.
fn byte_at(direction: u64, at: u64) -> u8 {
    (at.wrapping_mul(0x9e37_79b9).wrapping_add(direction * 77) >> 7) as u8
}

fn below(random: &mut ChaCha8Rng, most: u64) -> u64 {
    random.next_u64() % most.max(1)
}

/// What a future gives when it is asked once, and then dropped.
async fn at_once<T>(future: impl Future<Output = T>) -> Option<T> {
    let mut future = pin!(future);
    poll_fn(|cx| match future.as_mut().poll(cx) {
        Poll::Ready(value) => Poll::Ready(Some(value)),
        Poll::Pending => Poll::Ready(None),
    })
    .await
}

/// Writes `total` bytes in random pieces with random pauses and flushes, and ends the stream.
async fn write(
    mut stream: impl AsyncWrite + Unpin,
    direction: u64,
    total: u64,
    mut random: ChaCha8Rng,
) {
    let mut at = 0;
    while at < total {
        let most = [3, 100, 5_000, 16_385, 70_000, 200_000][below(&mut random, 6) as usize];
        let len = (1 + below(&mut random, most)).min(total - at);
        let piece: Vec<u8> = (at..at + len).map(|at| byte_at(direction, at)).collect();
        match below(&mut random, 4) {
            0 => {
                let written = stream.write(&piece).await.unwrap();
                assert!(written > 0, "a write takes something");
                at += written as u64;
            }
            1 => {
                // A write that is given up took nothing.
                let asks_once = tokio::time::timeout(Duration::ZERO, stream.write(&piece)).await;
                at += asks_once.map_or(0, |written| written.unwrap() as u64);
            }
            2 => {
                let middle = piece.len() / 2;
                let slices = [
                    std::io::IoSlice::new(&piece[..middle]),
                    std::io::IoSlice::new(&piece[middle..]),
                ];
                at += stream.write_vectored(&slices).await.unwrap() as u64;
            }
            _ => {
                stream.write_all(&piece).await.unwrap();
                at += len;
            }
        }
        match below(&mut random, 20) {
            0 => tokio::time::sleep(Duration::from_millis(below(&mut random, 5))).await,
            1 => stream.flush().await.unwrap(),
            2 => tokio::task::yield_now().await,
            _ => {}
        }
    }
    stream.shutdown().await.unwrap();
}

/// Reads to the end in random pieces; how much there was.
async fn read(mut stream: impl AsyncRead + Unpin, direction: u64, mut random: ChaCha8Rng) -> u64 {
    let mut at = 0;
    let mut buffer = vec![0; 200_000];
    loop {
        let most = [1, 7, 4_096, 16_384, 16_385, 200_000][below(&mut random, 6) as usize];
        let asks_once = below(&mut random, 5) == 0;
        let reading = stream.read(&mut buffer[..most]);
        let len = if asks_once {
            match at_once(reading).await {
                Some(len) => len.unwrap(),
                None => {
                    tokio::task::yield_now().await;
                    continue;
                }
            }
        } else {
            reading.await.unwrap()
        };
        if len == 0 {
            return at;
        }
        for byte in &buffer[..len] {
            assert_eq!(*byte, byte_at(direction, at), "byte {at}");
            at += 1;
        }
        if below(&mut random, 30) == 0 {
            tokio::time::sleep(Duration::from_millis(below(&mut random, 5))).await;
        }
    }
}

async fn play(seed: u64) {
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let mut fork = || ChaCha8Rng::seed_from_u64(random.next_u64());
    let mut choices = fork();
    let (near, far) = Sides::new().streams().await;
    if below(&mut choices, 2) == 0 {
        // Writes that do not fit; much less, and TCP itself waits for its timers.
        for stream in [&near, &far] {
            let _ = socket2::SockRef::from(stream.tcp()).set_send_buffer_size(16 * 1024);
        }
    }
    let mut total = || match below(&mut choices, 4) {
        0 => 0,
        1 => below(&mut choices, 1000),
        _ => below(&mut choices, 500_000),
    };
    let (up, down) = (total(), total());
    let split_own = below(&mut choices, 2) == 0;
    let server = {
        let (read_half, write_half) = far.into_split();
        tokio::spawn(write(write_half, 1, down, fork()));
        tokio::spawn(read(read_half, 0, fork()))
    };
    let got = if split_own {
        let (read_half, write_half) = near.into_split();
        let writing = tokio::spawn(write(write_half, 0, up, fork()));
        let got = read(read_half, 1, fork()).await;
        writing.await.unwrap();
        got
    } else {
        let (read_half, write_half) = tokio::io::split(near);
        let writing = tokio::spawn(write(write_half, 0, up, fork()));
        let got = read(read_half, 1, fork()).await;
        writing.await.unwrap();
        got
    };
    assert_eq!(got, down);
    assert_eq!(server.await.unwrap(), up);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn random_operations_keep_both_directions_whole() {
    let seeds = match std::env::var("STCP_SEED") {
        Ok(seed) => {
            let seed: u64 = seed.parse().expect("STCP_SEED is a number");
            seed..seed + 1
        }
        Err(_) => 0..60,
    };
    for seed in seeds {
        // The line that plays it again.
        eprintln!("STCP_SEED={seed} cargo test -p towline --test stcp random_operations");
        let played = tokio::spawn(play(seed));
        within(tokio::time::timeout(patience(20 * SECOND), played))
            .await
            .expect("no end")
            .unwrap();
    }
}
