//! The page of the cases over plain HTTP, and where pages post what they found.

use std::io::{BufRead, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
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
    /// On a free port of the loopback interface. `about` is told to pages that ask where WebTransport is.
    pub(crate) fn start(about: &Value) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (sender, results) = mpsc::channel();
        let about = about.to_string();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (about, sender) = (about.clone(), sender.clone());
                std::thread::spawn(move || answer(stream, &about, &sender));
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
fn answer(stream: TcpStream, about: &str, sender: &mpsc::Sender<Value>) -> Option<()> {
    let mut reader = BufReader::new(&stream);
    let mut line = String::new();
    reader.read_line(&mut line).ok()?;
    let mut words = line.split(' ');
    let (method, path) = (words.next()?.to_owned(), words.next()?.to_owned());
    let path = path.split('?').next()?;
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
    let (status, kind, body) = match (method.as_str(), path) {
        ("POST", "/result") => {
            let mut body = Vec::new();
            reader
                .take(length.min(LONGEST))
                .read_to_end(&mut body)
                .ok()?;
            sender.send(serde_json::from_slice(&body).ok()?).ok()?;
            ("204 No Content", "text/plain", Vec::new())
        }
        ("GET", "/towline.json") => ("200 OK", "application/json", about.into()),
        ("GET", path) => match file(path) {
            Some((kind, body)) => ("200 OK", kind, body),
            None => ("404 Not Found", "text/plain", Vec::new()),
        },
        _ => ("405 Method Not Allowed", "text/plain", Vec::new()),
    };
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    (&stream).write_all(head.as_bytes()).ok()?;
    (&stream).write_all(&body).ok()
}

/// What the tests have, and what the page of `serve --web` is made of.
fn file(path: &str) -> Option<(&'static str, Vec<u8>)> {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let (folder, name) = match path.split_at(path.get(1..)?.find('/').map_or(1, |at| at + 2)) {
        ("/js/", name) => (here.join("../../web/dist"), name),
        ("/tests/", name) => (here.join("tests/browsers"), name),
        ("/", "") => (here.join("../../web/page"), "index.html"),
        ("/", name) => (here.join("../../web/page"), name),
        _ => return None,
    };
    let kind = match Path::new(name).extension()?.to_str()? {
        "js" => "text/javascript",
        "html" => "text/html",
        "css" => "text/css",
        "svg" => "image/svg+xml",
        _ => return None,
    };
    let body = std::fs::read(folder.join(name)).ok()?;
    (!name.contains("..")).then_some((kind, body))
}
