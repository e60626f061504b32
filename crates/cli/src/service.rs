//! What a listening command does with a connection: sorts its streams to the services that
//! are switched on, and runs transfer sessions.
//!
//! `serve`, `recv --listen` and `perf server` differ only in the services they switch on.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::AsyncWriteExt;
use tokio::sync::{Semaphore, mpsc};
use towline::stats::Line;
use towline::{Connection, Endpoint, RecvStream, SendStream};
use towline_transfer::{
    Ended, Lanes, Opening, Progress, QuicLanes, Reason, Refusal, RelativePath, Root, SendPlan,
    SessionError, Store, accept, read_kind, read_opening, receive, refuse, send, stream_kind,
};

use crate::commands::echo;
use crate::commands::perf::PerfHost;
use crate::commands::perf::control::{Reply, write_json};
use crate::interrupt::Interrupt;
use crate::printer::Printer;
use crate::streams::{ECHO, PERF};
use crate::summary::{Role, Summary};
use crate::units::date;

/// Sessions one server runs at once; each may hold `MAX_LANES` + 2 file threads of the pool of 512.
const MAX_SESSIONS: usize = 32;

/// Time for closing notices to leave when a command ends.
const GOODBYE: Duration = Duration::from_secs(1);
/// Time for an opener to say what it wants.
const OPEN_TIMEOUT: Duration = Duration::from_secs(10);
/// Lanes a server uses when it sends files.
const LANES: usize = 4;

/// The services of one listening command.
pub(crate) struct Service {
    pub(crate) printer: Printer,
    pub(crate) interrupt: Interrupt,
    /// Streams and datagrams come back.
    pub(crate) echo: bool,
    pub(crate) perf: Option<PerfHost>,
    /// The folder whose files may be fetched.
    pub(crate) root: Option<PathBuf>,
    /// Where files are received.
    pub(crate) store: Option<Arc<Store>>,
    sessions: Semaphore,
    received: mpsc::UnboundedSender<Ended>,
}

impl Service {
    /// No service; the caller switches on what it wants. Ends of receiving sessions are
    /// told to `received`.
    pub(crate) fn new(
        printer: Printer,
        interrupt: Interrupt,
        received: mpsc::UnboundedSender<Ended>,
    ) -> Self {
        Self {
            printer,
            interrupt,
            echo: false,
            perf: None,
            root: None,
            store: None,
            sessions: Semaphore::new(MAX_SESSIONS),
            received,
        }
    }

    /// Serves connections until the endpoint is closed.
    pub(crate) async fn run(self: Arc<Self>, endpoint: Endpoint) {
        while let Some(connection) = endpoint.accept().await {
            tokio::spawn(Arc::clone(&self).connection(connection));
        }
    }

    async fn connection(self: Arc<Self>, connection: Connection) {
        tracing::info!(remote = %connection.remote_addr(), "connected");
        let lanes = Lanes::default();
        tokio::spawn(lanes.clone().accept_all(connection.clone()));
        if self.echo {
            tokio::spawn(echo::answer_datagrams(connection.clone()));
        }
        while let Ok((send, recv)) = connection.accept_bi().await {
            let (service, connection, lanes) =
                (Arc::clone(&self), connection.clone(), lanes.clone());
            tokio::spawn(async move { service.stream(connection, lanes, send, recv).await });
        }
        let reason = connection.close_reason();
        let stats = connection.stats();
        tracing::info!(remote = %connection.remote_addr(), ?reason, stats = %Line(&stats), "connection over");
    }

    async fn stream(
        &self,
        connection: Connection,
        lanes: Lanes,
        send: SendStream,
        mut recv: RecvStream,
    ) {
        match read_kind(&mut recv).await {
            Some(ECHO) if self.echo => echo::answer_stream(send, recv).await,
            Some(PERF) => match &self.perf {
                Some(perf) => perf.serve(connection, lanes, send, recv).await,
                None => refuse_measurement(send, "this server offers no measurements").await,
            },
            Some(stream_kind::PUSH) => self.push(&connection, &lanes, send, recv).await,
            Some(stream_kind::PULL) => self.pull(&connection, send, recv).await,
            // Dropping the stream tells the peer.
            _ => {}
        }
    }

    async fn opening(&self, recv: &mut RecvStream) -> Option<Opening> {
        let opening = tokio::time::timeout(OPEN_TIMEOUT, read_opening(recv)).await;
        opening.ok()?.ok()
    }

    /// A client sends files to us.
    async fn push(
        &self,
        connection: &Connection,
        lanes: &Lanes,
        mut send: SendStream,
        mut recv: RecvStream,
    ) {
        let Some(Opening {
            session,
            path: prefix,
        }) = self.opening(&mut recv).await
        else {
            return;
        };
        let Some(store) = &self.store else {
            return fatal(
                send,
                Reason::NotAllowed,
                "this server does not receive files; start it with --accept DIR",
            )
            .await;
        };
        let Ok(_permit) = self.sessions.try_acquire() else {
            return fatal(
                send,
                Reason::TooMuch,
                "this server has too many transfers; try again later",
            )
            .await;
        };
        let Some((_registration, arrivals)) = lanes.register(session) else {
            return fatal(send, Reason::Protocol, "this session number is in use").await;
        };
        if accept(&mut send).await.is_err() {
            return;
        }
        let progress = Arc::new(Progress::new());
        let ended = receive(
            (recv, send),
            arrivals,
            Arc::clone(store),
            prefix,
            Arc::clone(&progress),
            self.interrupt.flag(),
        )
        .await;
        self.conclude(connection, Role::ServerReceives, &ended, &progress)
            .await;
        let _ = self.received.send(ended);
    }

    /// A client fetches files from us.
    async fn pull(&self, connection: &Connection, mut send_half: SendStream, mut recv: RecvStream) {
        let Some(Opening { session, path }) = self.opening(&mut recv).await else {
            return;
        };
        let Some(root) = &self.root else {
            return fatal(
                send_half,
                Reason::NotAllowed,
                "this server offers no files; start it with --root DIR",
            )
            .await;
        };
        let Ok(_permit) = self.sessions.try_acquire() else {
            return fatal(
                send_half,
                Reason::TooMuch,
                "this server has too many transfers; try again later",
            )
            .await;
        };
        let Some(wanted) = find(root, path.as_ref()) else {
            return fatal(
                send_half,
                Reason::NotFound,
                "there is no such file or folder at the server",
            )
            .await;
        };
        if accept(&mut send_half).await.is_err() {
            return;
        }
        let progress = Arc::new(Progress::new());
        let plan = SendPlan {
            roots: vec![wanted],
            follow_links: false,
            lanes: LANES,
        };
        let lanes = QuicLanes(connection.clone());
        let ended = send(
            (recv, send_half),
            lanes,
            session,
            plan,
            Arc::clone(&progress),
            self.interrupt.flag(),
        )
        .await;
        self.conclude(connection, Role::ServerSends, &ended.ended, &progress)
            .await;
    }

    async fn conclude(
        &self,
        connection: &Connection,
        role: Role,
        ended: &Ended,
        progress: &Progress,
    ) {
        let summary = Summary::new(role, connection, ended, progress.elapsed());
        self.printer.line(date(towline::config::unix_now()));
        summary.print(self.printer);
        // A peer that broke the rules gets no second try on this connection.
        if let Some(SessionError::Protocol(what)) = &ended.error {
            connection.close(Reason::Protocol.code(), what.as_bytes());
        }
    }
}

/// What a path of a client names below `root`; nothing outside of it, whatever links say.
fn find(root: &std::path::Path, path: Option<&RelativePath>) -> Option<Root> {
    use std::os::unix::ffi::OsStrExt;
    let Some(path) = path else {
        return Some(Root {
            disk: root.to_path_buf(),
            name: None,
        });
    };
    let (_, name) = path.split();
    let name = RelativePath::parse(name.as_bytes()).ok()?;
    let disk = root
        .join(std::ffi::OsStr::from_bytes(path.as_bytes()))
        .canonicalize()
        .ok()?;
    disk.starts_with(root).then_some(Root {
        disk,
        name: Some(name),
    })
}

async fn fatal(send: SendStream, reason: Reason, text: &str) {
    let _ = refuse(send, Refusal::new(reason, text)).await;
}

async fn refuse_measurement(mut send: SendStream, text: &str) {
    let message = text.into();
    if write_json(&mut send, &Reply::Refused { message })
        .await
        .is_ok()
    {
        let _ = send.shutdown().await;
    }
}

/// Runs a service until Ctrl-C, or until `enough` says so after a receiving session.
pub(crate) async fn run_until_interrupted(
    service: Arc<Service>,
    endpoint: Endpoint,
    mut received: mpsc::UnboundedReceiver<Ended>,
    mut enough: impl FnMut(&Ended) -> bool,
) -> Option<Ended> {
    let mut interrupt = service.interrupt.clone();
    let serving = tokio::spawn(Arc::clone(&service).run(endpoint.clone()));
    let last = loop {
        tokio::select! {
            () = interrupt.wait() => break None,
            ended = received.recv() => match ended {
                Some(ended) if enough(&ended) => break Some(ended),
                Some(_) => {}
                None => break None,
            },
        }
    };
    let sessions = async {
        match &last {
            // The client closes first, when it has our last words.
            Some(_) => endpoint.wait_idle().await,
            // Sessions tell their peers before the connections go.
            None => drop(service.sessions.acquire_many(MAX_SESSIONS as u32).await),
        }
    };
    let _ = tokio::time::timeout(GOODBYE, sessions).await;
    // On a busy machine the connection's last word can arrive before the session's: both say why.
    match last {
        Some(_) => endpoint.close(0, b"the server is stopping"),
        None => endpoint.close(
            Reason::Interrupted.code(),
            b"the server was interrupted and is stopping",
        ),
    }
    let _ = tokio::time::timeout(GOODBYE, endpoint.wait_idle()).await;
    serving.abort();
    if let Some(store) = &service.store {
        store.tidy();
    }
    last
}
