//! Where a page posts what it found, over plain HTTP.

use std::io::{BufRead, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc;
use std::time::Duration;

use serde_json::Value;

/// The longest result that is read.
const LONGEST: u64 = 1 << 20;

/// Serves until the test ends.
pub(crate) struct Site {
    pub(crate) address: SocketAddr,
    results: mpsc::Receiver<Value>,
}

impl Site {
    /// On a free port of the loopback interface.
    pub(crate) fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (sender, results) = mpsc::channel();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let sender = sender.clone();
                std::thread::spawn(move || answer(stream, &sender));
            }
        });
        Self { address, results }
    }

    /// What the page found.
    pub(crate) fn result(&self, patience: Duration) -> Option<Value> {
        self.results.recv_timeout(patience).ok()
    }
}

/// One request; a browser that goes away in the middle of it is no fault of ours.
fn answer(stream: TcpStream, sender: &mpsc::Sender<Value>) -> Option<()> {
    let mut reader = BufReader::new(&stream);
    let mut line = String::new();
    reader.read_line(&mut line).ok()?;
    let mut words = line.split(' ');
    let (method, path) = (words.next()?, words.next()?);
    let is_result = (method, path) == ("POST", "/result");
    let mut length = 0;
    loop {
        let mut field = String::new();
        reader.read_line(&mut field).ok()?;
        if field.trim().is_empty() {
            break;
        }
        if let Some(value) = field.to_ascii_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().ok()?;
        }
    }
    let status = match is_result {
        true => {
            let mut body = Vec::new();
            reader
                .take(length.min(LONGEST))
                .read_to_end(&mut body)
                .ok()?;
            sender.send(serde_json::from_slice(&body).ok()?).ok()?;
            "204 No Content"
        }
        false => "404 Not Found",
    };
    let head = format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
    (&stream).write_all(head.as_bytes()).ok()
}
