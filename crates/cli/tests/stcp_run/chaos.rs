//! Connections opened, killed and half-closed at random, by programs that are this test program
//! again, run by `stcp run`. What was to arrive whole arrived whole.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::net::SERVER;

/// Set for this program when it plays a part.
pub(crate) const PART: &str = "TOWLINE_CHAOS_PART";
pub(crate) const PORT: u16 = 7000;
pub(crate) const CONNECTIONS: u64 = 1000;
const AT_ONCE: u64 = 40;

/// What the client asks of the server with its first byte.
const ECHO: u8 = b'e';
const RESET: u8 = b'r';
const CLOSE: u8 = b'c';

/// Plays the part that the environment names; returns whether there was one.
pub(crate) fn play() -> bool {
    match std::env::var(PART).as_deref() {
        Ok("server") => serve(),
        Ok("client") => connect_all(),
        _ => return false,
    }
    true
}

fn serve() {
    let listener = TcpListener::bind(("0.0.0.0", PORT)).unwrap();
    for stream in listener.incoming() {
        std::thread::spawn(move || answer(stream.unwrap()));
    }
}

/// Errors are the client's doing.
fn answer(mut stream: TcpStream) {
    let mut buffer = vec![0; 64 * 1024];
    let mut first = None;
    while let Ok(len) = stream.read(&mut buffer) {
        if len == 0 {
            let _ = stream.shutdown(Shutdown::Write);
            return;
        }
        match *first.get_or_insert(buffer[0]) {
            RESET => {
                let socket = socket2::SockRef::from(&stream);
                let _ = socket.set_linger(Some(Duration::ZERO));
                return;
            }
            CLOSE => return,
            _ => {}
        }
        if stream.write_all(&buffer[..len]).is_err() {
            return;
        }
    }
}

fn connect_all() {
    let next = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= CONNECTIONS {
                        return;
                    }
                    one(number);
                }
            });
        }
    });
}

/// One connection; its number decides what becomes of it.
fn one(number: u64) {
    let random = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20;
    let len = (random % 300_000) as usize + 1;
    let kind = number % 6;
    let mut data = crate::MARKER
        .repeat(len / crate::MARKER.len() + 1)
        .into_bytes();
    data[0] = match kind {
        0 => RESET,
        1 => CLOSE,
        _ => ECHO,
    };
    let mut stream = TcpStream::connect((SERVER, PORT)).unwrap();
    stream
        .set_read_timeout(Some(Duration::from_secs(60)))
        .unwrap();
    match kind {
        // Killed in the middle.
        2 => {
            let _ = stream.write_all(&data);
            let _ = socket2::SockRef::from(&stream).set_linger(Some(Duration::ZERO));
        }
        // Gone before a word.
        3 => std::thread::sleep(Duration::from_millis(random % 20)),
        // Whole, then half-closed, or half-closed while the echo is on its way.
        4 | 5 => {
            let writer = stream.try_clone().unwrap();
            let echoed = std::thread::scope(|scope| {
                let data = &data;
                scope.spawn(move || {
                    (&writer).write_all(data).unwrap();
                    writer.shutdown(Shutdown::Write).unwrap();
                });
                let mut echoed = Vec::new();
                stream.read_to_end(&mut echoed).unwrap();
                echoed
            });
            assert!(echoed == data, "{} of {} bytes", echoed.len(), data.len());
        }
        // The server ends it; however that looks, it must end.
        _ => {
            let _ = stream.write_all(&data);
            let mut rest = Vec::new();
            let ended = stream.read_to_end(&mut rest);
            let hangs = |error: &std::io::Error| {
                matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut)
            };
            assert!(!ended.is_err_and(|error| hangs(&error)), "it hangs");
        }
    }
}
