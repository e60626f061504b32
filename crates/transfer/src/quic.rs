//! Towline's streams as the transfer protocol wants them, and the sorting of arriving ones.
//!
//! Every stream starts with a varint that says what it is for; a lane then names its
//! session. [`Lanes`] hands arriving lanes to the session that registered for them.

use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::mpsc;
use towline::{Connection, RecvStream, SendStream};

use crate::caps::MAX_LANES;
use crate::message::read_varint;
use crate::open::stream_kind;
use crate::pipe::{LaneWriter, OpenLane};

/// A stream must say what it is for within this time.
const PREAMBLE_TIMEOUT: Duration = Duration::from_secs(10);

/// Opens lanes on a connection.
#[derive(Clone)]
pub struct QuicLanes(pub Connection);

impl OpenLane for QuicLanes {
    type Lane = SendStream;

    async fn open(&self) -> io::Result<SendStream> {
        self.0
            .open_uni()
            .await
            .map_err(|error| io::Error::new(io::ErrorKind::NotConnected, error))
    }
}

impl LaneWriter for SendStream {
    async fn write_chunk(&mut self, block: Bytes) -> io::Result<()> {
        SendStream::write_chunk(self, block)
            .await
            .map_err(Into::into)
    }

    async fn finish(&mut self) -> io::Result<()> {
        SendStream::finish(self).map_err(Into::into)
    }
}

/// The sessions of one connection that expect lanes.
#[derive(Clone, Default)]
pub struct Lanes(Arc<Mutex<HashMap<u64, mpsc::Sender<RecvStream>>>>);

/// A session's registration; dropping it turns further lanes away.
pub struct Registration {
    lanes: Lanes,
    session: u64,
}

impl Lanes {
    fn lock(&self) -> MutexGuard<'_, HashMap<u64, mpsc::Sender<RecvStream>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Expects lanes for `session`; `None` if the connection has a session of that number.
    pub fn register(&self, session: u64) -> Option<(Registration, mpsc::Receiver<RecvStream>)> {
        // Room for one more than allowed, so that the session sees the excess.
        let (sender, receiver) = mpsc::channel(MAX_LANES + 1);
        let mut lanes = self.lock();
        if lanes.contains_key(&session) {
            return None;
        }
        lanes.insert(session, sender);
        drop(lanes);
        Some((
            Registration {
                lanes: self.clone(),
                session,
            },
            receiver,
        ))
    }

    /// Sorts arriving unidirectional streams until the connection ends.
    pub async fn accept_all(self, connection: Connection) {
        while let Ok(stream) = connection.accept_uni().await {
            tokio::spawn(self.clone().sort(stream));
        }
    }

    async fn sort(self, mut stream: RecvStream) {
        let preamble = async {
            let kind = read_varint(&mut stream).await?;
            let session = read_varint(&mut stream).await?;
            io::Result::Ok(kind.zip(session))
        };
        let preamble = tokio::time::timeout(PREAMBLE_TIMEOUT, preamble).await;
        let Ok(Ok(Some((stream_kind::LANE, session)))) = preamble else {
            return;
        };
        let sender = self.lock().get(&session).cloned();
        // A dropped stream is stopped: the peer learns that nobody reads it.
        if let Some(sender) = sender {
            let _ = sender.try_send(stream);
        }
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        self.lanes.lock().remove(&self.session);
    }
}

/// What an arriving bidirectional stream is for.
pub async fn read_kind(stream: &mut RecvStream) -> Option<u64> {
    match tokio::time::timeout(PREAMBLE_TIMEOUT, read_varint(stream)).await {
        Ok(Ok(kind)) => kind,
        _ => None,
    }
}
