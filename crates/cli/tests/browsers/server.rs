//! The WebTransport server of the cases; `cases.js` says what each path does. It keeps what clients
//! told it, for the test to look at.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use towline::config::{self, ClientAuth, Options};
use towline::webtransport::{self, Connection, Dialect, Error, Server, Session, SessionRequest};
use towline::{Endpoint, ReadError, RecvStream, SendStream, WriteError, http3};

const CHUNK: usize = 64 * 1024;

/// What clients told the server.
#[derive(Clone, Debug, Default)]
pub(crate) struct Heard {
    pub(crate) resets: Vec<u64>,
    pub(crate) stops: Vec<u64>,
    pub(crate) closes: Vec<(u32, String)>,
    pub(crate) dialects: BTreeSet<Dialect>,
}

type Book = Arc<Mutex<Heard>>;

pub(crate) struct Running {
    pub(crate) address: SocketAddr,
    /// SHA-256 of the certificate.
    pub(crate) pin: String,
    book: Book,
    _endpoint: Endpoint,
}

impl Running {
    /// On a free port of the loopback interface.
    pub(crate) fn start() -> Self {
        let names = ["localhost", "127.0.0.1"];
        let identity = webtransport::generate_certificate(&names, config::unix_now()).unwrap();
        let options = Options::new(http3::ALPN);
        let server = config::server(&identity, &ClientAuth::None, &options).unwrap();
        let endpoint = Endpoint::builder()
            .server(server)
            .webtransport(webtransport::Config::default())
            .bind("127.0.0.1:0".parse().unwrap())
            .unwrap();
        let book = Book::default();
        let door = Server::new(&endpoint).unwrap();
        tokio::spawn(serve(door, Arc::clone(&book)));
        Self {
            address: endpoint.local_addr(),
            pin: identity.certificate_pin().unwrap().to_string(),
            book,
            _endpoint: endpoint,
        }
    }

    pub(crate) fn heard(&self) -> Heard {
        self.book.lock().unwrap().clone()
    }
}

async fn serve(door: Server, book: Book) {
    while let Some(connection) = door.accept().await {
        tokio::spawn(sessions(connection, Arc::clone(&book)));
    }
}

async fn sessions(connection: Connection, book: Book) {
    while let Some(request) = connection.accept().await {
        tokio::spawn(session(request, Arc::clone(&book)));
    }
}

async fn session(request: SessionRequest, book: Book) {
    book.lock().unwrap().dialects.insert(request.dialect());
    let path = request.path().to_owned();
    let parts: Vec<&str> = path.split('/').skip(1).collect();
    match parts[..] {
        ["echo"] => echo(request.accept().unwrap(), book).await,
        ["codes"] => codes(request.accept().unwrap()).await,
        ["close", code, reason] => {
            let session = request.accept().unwrap();
            session.close(code.parse().unwrap(), &reason.replace("%20", " "));
            session.closed().await;
        }
        ["drain"] => {
            let session = request.accept().unwrap();
            session.drain();
            session.closed().await;
        }
        ["protocol"] => {
            let second = request.protocols().get(1).cloned();
            let session = request.accept_with(second.as_deref(), http::HeaderMap::new());
            session.unwrap().closed().await;
        }
        ["open", both, one_way, length] => {
            let numbers = [both, one_way, length].map(|text| text.parse::<usize>().unwrap());
            open(request.accept().unwrap(), numbers).await;
        }
        ["refuse"] => request.reject(http::StatusCode::FORBIDDEN),
        _ => request.reject(http::StatusCode::NOT_FOUND),
    }
}

async fn echo(session: Session, book: Book) {
    let streams = async {
        while let Ok((send, recv)) = session.accept_bi().await {
            tokio::spawn(mirror(send, recv, Arc::clone(&book)));
        }
    };
    let one_way = async {
        while let Ok(recv) = session.accept_uni().await {
            let (session, book) = (session.clone(), Arc::clone(&book));
            tokio::spawn(async move {
                if let Ok(send) = session.open_uni().await {
                    mirror(send, recv, book).await;
                }
            });
        }
    };
    let datagrams = async {
        while let Ok(datagram) = session.read_datagram().await {
            let _ = session.send_datagram(datagram);
        }
    };
    tokio::join!(streams, one_way, datagrams);
    if let Error::Closed { code, reason, .. } = session.closed().await {
        book.lock().unwrap().closes.push((code, reason));
    }
}

/// Bytes go back, and so do codes.
async fn mirror(mut send: SendStream, mut recv: RecvStream, book: Book) {
    loop {
        let read = tokio::select! {
            read = recv.read_chunk(CHUNK) => read,
            stopped = send.stopped() => {
                if let Ok(Some(code)) = stopped {
                    book.lock().unwrap().stops.push(code);
                    recv.stop(code);
                }
                return;
            }
        };
        match read {
            Ok(Some(chunk)) => match send.write_chunk(chunk).await {
                Ok(()) => {}
                Err(WriteError::Stopped(code)) => {
                    book.lock().unwrap().stops.push(code);
                    recv.stop(code);
                    return;
                }
                Err(_) => return,
            },
            Ok(None) => {
                let _ = send.finish();
                return;
            }
            Err(ReadError::Reset(code)) => {
                book.lock().unwrap().resets.push(code);
                send.reset(code);
                return;
            }
            Err(_) => return,
        }
    }
}

/// Resets and stops streams with the codes that they name.
async fn codes(session: Session) {
    while let Ok((mut send, mut recv)) = session.accept_bi().await {
        let mut code = [0; 8];
        if recv.read_exact(&mut code).await.is_ok() {
            let code = u64::from_be_bytes(code);
            send.reset(code);
            recv.stop(code);
        }
    }
}

/// Opens streams, compares what comes back, and closes with the result.
async fn open(session: Session, [both, one_way, length]: [usize; 3]) {
    let content = |number: usize| -> Bytes { (0..length).map(|at| (number + at) as u8).collect() };
    for number in 0..one_way {
        let mut send = session.open_uni().await.unwrap();
        send.write_chunk(content(both + number)).await.unwrap();
        send.finish().unwrap();
    }
    let mut right = 0;
    for number in 0..both {
        let (mut send, mut recv) = session.open_bi().await.unwrap();
        send.write_chunk(content(number)).await.unwrap();
        send.finish().unwrap();
        let back = recv.read_to_end(length + 1).await;
        right += usize::from(back.is_ok_and(|back| back == content(number)));
    }
    session.close(u32::from(right != both), &format!("{right} came back"));
    session.closed().await;
}
