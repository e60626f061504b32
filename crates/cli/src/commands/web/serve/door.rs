//! The WebTransport side of `serve --web`: what happens on each path of it.
//!
//! `web/README.md` has the table: `/echo` and `/datagrams` send everything back, `/upload` counts,
//! `/download` sends as much as it is asked for, `/chat` passes messages on. Nothing here waits for
//! one session on behalf of another.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::StatusCode;
use tokio::time::Instant;
use towline::webtransport::{Connection, Server, Session, SessionRequest};
use towline::{RecvStream, SendStream};

use super::chat::Chat;
use super::files;
use crate::commands::echo;

/// Bytes read or written at a time.
const CHUNK: usize = 64 * 1024;
/// The least time between two counts on `/upload`.
const COUNT_EVERY: Duration = Duration::from_millis(100);

/// Answers every session, and with a folder every request, until the endpoint is closed.
pub(super) async fn serve(server: Server, root: Option<Arc<Path>>) {
    let chat = Arc::new(Chat::new());
    while let Some(connection) = server.accept().await {
        if let Some(root) = &root {
            tokio::spawn(files::serve(connection.http().clone(), Arc::clone(root)));
        }
        tokio::spawn(sessions(connection, Arc::clone(&chat)));
    }
}

async fn sessions(connection: Connection, chat: Arc<Chat>) {
    while let Some(request) = connection.accept().await {
        tracing::info!(path = request.path(), origin = ?request.origin(), "WebTransport session");
        tokio::spawn(session(request, Arc::clone(&chat)));
    }
}

async fn session(request: SessionRequest, chat: Arc<Chat>) {
    // Without its query.
    let path = request.path().split('?').next().unwrap_or_default();
    let work = match path {
        "/echo" | "/datagrams" => Work::Echo,
        "/upload" => Work::Upload,
        "/download" => Work::Download,
        "/chat" => Work::Chat,
        _ => return request.reject(StatusCode::NOT_FOUND),
    };
    let session = match request.accept() {
        Ok(session) => session,
        Err(error) => {
            tracing::info!("session not opened: {error}");
            return;
        }
    };
    match work {
        Work::Echo => {
            tokio::join!(
                echo_streams(&session),
                echo_one_way(&session),
                echo_datagrams(&session)
            );
        }
        Work::Upload => {
            while let Ok((send, recv)) = session.accept_bi().await {
                tokio::spawn(count(send, recv));
            }
        }
        Work::Download => {
            while let Ok((send, recv)) = session.accept_bi().await {
                tokio::spawn(send_as_asked(send, recv));
            }
        }
        Work::Chat => chat.serve(session).await,
    }
}

/// What a path stands for.
enum Work {
    Echo,
    Upload,
    Download,
    Chat,
}

async fn echo_streams(session: &Session) {
    while let Ok((send, recv)) = session.accept_bi().await {
        tokio::spawn(echo::answer_stream(send, recv));
    }
}

/// What comes on a stream of one direction goes back on one of the other.
async fn echo_one_way(session: &Session) {
    while let Ok(recv) = session.accept_uni().await {
        let session = session.clone();
        tokio::spawn(async move {
            if let Ok(send) = session.open_uni().await {
                echo::answer_stream(send, recv).await;
            }
        });
    }
}

async fn echo_datagrams(session: &Session) {
    while let Ok(datagram) = session.read_datagram().await {
        // One that finds no room is lost, as on the network.
        let _ = session.send_datagram(datagram);
    }
}

/// Says how much has come, now and then and at the end: eight bytes, the highest first.
async fn count(mut send: SendStream, mut recv: RecvStream) {
    let mut total = 0_u64;
    let mut said = Instant::now();
    while let Ok(Some(chunk)) = recv.read_chunk(CHUNK).await {
        total += chunk.len() as u64;
        if said.elapsed() >= COUNT_EVERY {
            said = Instant::now();
            if send.write_all(&total.to_be_bytes()).await.is_err() {
                return;
            }
        }
    }
    if send.write_all(&total.to_be_bytes()).await.is_ok() {
        let _ = send.finish();
    }
}

/// Reads how many bytes are wanted, and sends them: each is its offset's lowest eight bits.
async fn send_as_asked(mut send: SendStream, mut recv: RecvStream) {
    let mut wanted = [0; 8];
    if recv.read_exact(&mut wanted).await.is_err() {
        return;
    }
    let mut wanted = u64::from_be_bytes(wanted);
    let chunk: Bytes = (0..CHUNK).map(|at| at as u8).collect::<Vec<_>>().into();
    while wanted > 0 {
        let length = usize::try_from(wanted).unwrap_or(CHUNK).min(CHUNK);
        if send.write_chunk(chunk.slice(..length)).await.is_err() {
            return;
        }
        wanted -= length as u64;
    }
    let _ = send.finish();
}
