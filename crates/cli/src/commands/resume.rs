//! A transfer that goes on when its connection is lost: `send`, and `recv` from a URL.
//!
//! 1. a session runs to its end, however that is;
//! 2. if the other side only fell silent, the next one is tried, for as long as [`Patience`] lasts;
//! 3. what all of them came to is printed as one result.
//!
//! What the other side says is final, and so is Ctrl-C.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use towline::{RecvStream, SendStream};
use towline_transfer::{Ended, Opening, Progress, Reason, Report, SessionError, stream_kind};

use crate::exit::{Exit, Failure};
use crate::interrupt::Interrupt;
use crate::net::{Client, ConnectArgs, options, receiving_options};
use crate::printer::Printer;
use crate::streams::open_session;
use crate::summary::{Role, Summary, conclude, interrupted};
use crate::url::Url;

/// The only transfer of its connection.
pub(crate) const SESSION: u64 = 1;

/// How long the end of the control stream may take to be acknowledged.
const LAST_WORDS: Duration = Duration::from_secs(1);
/// Between two tries to connect again: at first, and at most.
const RETRY_FIRST: Duration = Duration::from_millis(100);
const RETRY_MOST: Duration = Duration::from_secs(2);

/// Connects, and runs one session to its end.
pub(crate) trait Sessions {
    /// A session, or why there is none.
    async fn session(&self, interrupt: &mut Interrupt) -> Result<Session, Failure>;
}

/// A session that began, however it ended.
pub(crate) struct Session {
    pub(crate) client: Client,
    pub(crate) ended: Ended,
    pub(crate) progress: Arc<Progress>,
    /// Our half of the control stream, if its last words may still be on their way.
    pub(crate) control: Option<SendStream>,
}

/// Connects, and opens the control stream of [`SESSION`], unless Ctrl-C comes first.
pub(crate) async fn begin_session(
    role: Role,
    network: &ConnectArgs,
    url: &Url,
    printer: Printer,
    interrupt: &mut Interrupt,
) -> Result<(Client, (RecvStream, SendStream)), Failure> {
    let (idle, congestion) = (network.idle_timeout, &network.congestion);
    let (kind, options, moved) = match role.sends() {
        true => (stream_kind::PUSH, options(idle, congestion), "sent"),
        false => (
            stream_kind::PULL,
            receiving_options(idle, congestion),
            "received",
        ),
    };
    let opening = async {
        let client = network.connect(url, &options, printer).await?;
        let opening = Opening {
            session: SESSION,
            path: url.path.clone(),
        };
        match open_session(&client.connection, kind, opening).await {
            Ok(control) => Ok((client, control)),
            Err(failure) => {
                client.close(0, "").await;
                Err(failure)
            }
        }
    };
    tokio::select! {
        opened = opening => opened,
        () = interrupt.wait() => Err(Failure::new(
            Exit::Interrupted,
            format!("interrupted before anything was {moved}"),
        )),
    }
}

/// A transfer as its user asked for it.
#[derive(Clone, Copy)]
pub(crate) struct Transfer {
    pub(crate) role: Role,
    /// How long to try to connect again; zero gives up at once.
    pub(crate) retry: Duration,
    pub(crate) leave_out: bool,
    pub(crate) printer: Printer,
}

/// What the sessions before the last one came to.
#[derive(Default)]
struct Earlier {
    sessions: u32,
    report: Report,
    cpu: Duration,
}

impl Transfer {
    /// Runs sessions until everything is settled, or nothing more comes of it.
    pub(crate) async fn run(
        self,
        sessions: &impl Sessions,
        interrupt: &mut Interrupt,
    ) -> Result<Exit, Failure> {
        let mut one = sessions.session(interrupt).await?;
        let clock = Arc::clone(&one.progress);
        let mut earlier = Earlier::default();
        let mut patience = Patience::new(self.retry);
        loop {
            let result = conclude(&one.ended, &one.client.connection, self.leave_out).await;
            let next = match &result {
                Err(lost) if is_lost(&one.ended) && is_silence(lost) => {
                    let until = patience.after(&one);
                    self.again(sessions, lost, until, interrupt).await
                }
                _ => Ok(None),
            };
            let result = match next {
                Ok(Some(next)) => {
                    close(&one.client, one.ended.error.as_ref()).await;
                    earlier.add(&one.ended);
                    one = next;
                    continue;
                }
                Ok(None) => result,
                Err(failure) => Err(failure),
            };
            self.end(one, &earlier, clock.elapsed()).await;
            return result;
        }
    }

    /// A further session, as soon as the other side is there again; `None` if it does not come back.
    async fn again(
        self,
        sessions: &impl Sessions,
        lost: &Failure,
        until: Option<Instant>,
        interrupt: &mut Interrupt,
    ) -> Result<Option<Session>, Failure> {
        if interrupt.is_set() {
            return Err(interrupted());
        }
        let Some(until) = until else {
            return Ok(None);
        };
        self.printer.note(format_args!(
            "towline: {}; connecting again, for {} s at most",
            lost.message,
            self.retry.as_secs()
        ));
        let mut pause = RETRY_FIRST;
        while Instant::now() < until {
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                () = interrupt.wait() => return Err(interrupted()),
            }
            pause = (pause * 2).min(RETRY_MOST);
            match sessions.session(interrupt).await {
                Ok(session) => return Ok(Some(session)),
                Err(_) if interrupt.is_set() => return Err(interrupted()),
                Err(failure) if is_silence(&failure) => {
                    tracing::info!("not yet: {}", failure.message);
                }
                Err(failure) => return Err(failure),
            }
        }
        Ok(None)
    }

    /// Prints what all sessions came to, and takes leave.
    async fn end(self, one: Session, earlier: &Earlier, elapsed: Duration) {
        let Session {
            client,
            mut ended,
            control,
            ..
        } = one;
        earlier.add_to(&mut ended);
        Summary::new(self.role, &client.connection, &ended, elapsed).print(self.printer);
        if let (None, Some(mut control)) = (&ended.error, control) {
            // Closing drops what is not delivered.
            let _ = tokio::time::timeout(LAST_WORDS, control.finished()).await;
        }
        close(&client, ended.error.as_ref()).await;
    }
}

impl Earlier {
    fn add(&mut self, ended: &Ended) {
        self.sessions += 1;
        self.report.add(&ended.report);
        self.cpu += ended.cpu;
    }

    fn add_to(&self, last: &mut Ended) {
        if self.sessions > 0 {
            last.report.add_earlier(&self.report);
            last.cpu += self.cpu;
            // Of the sessions that broke, the other side's is not known.
            last.peer_cpu = None;
        }
    }
}

/// Whether the connection broke, and nobody ended the session.
fn is_lost(ended: &Ended) -> bool {
    matches!(ended.error, Some(SessionError::Lost(_)))
}

/// Whether the other side fell silent, or forgot us: it may come back. What it says is final.
fn is_silence(failure: &Failure) -> bool {
    matches!(failure.exit, Exit::Timeout | Exit::Connect)
}

/// Closes a transfer's connection with the reason the peer should show.
async fn close(client: &Client, error: Option<&SessionError>) {
    let code = match error {
        None => 0,
        Some(SessionError::Protocol(_)) => Reason::Protocol.code(),
        Some(SessionError::Cancelled) => Reason::Interrupted.code(),
        Some(_) => Reason::Io.code(),
    };
    let text = error
        .and_then(SessionError::farewell)
        .map(|refusal| refusal.text)
        .unwrap_or_default();
    client.close(code, &text).await;
}

/// How long to go on. What moved does not count, for it may be lost again: what counts are files
/// that are whole, and that a session could begin further on than the one before.
struct Patience {
    retry: Duration,
    /// What the best session since the last whole file found there, bytes.
    resumed: u64,
    until: Option<Instant>,
    /// The time is over, and one session more may show what the one before it brought.
    is_last: bool,
}

impl Patience {
    fn new(retry: Duration) -> Self {
        Self {
            retry,
            resumed: 0,
            until: None,
            is_last: false,
        }
    }

    /// Until when to try after this session; `None` to give up.
    fn after(&mut self, lost: &Session) -> Option<Instant> {
        let resumed = lost.progress.snapshot().bytes_resumed;
        self.after_session(lost.ended.report.files, resumed, Instant::now())
    }

    fn after_session(&mut self, files: u64, resumed: u64, now: Instant) -> Option<Instant> {
        if files > 0 || resumed > self.resumed {
            self.resumed = resumed;
            self.until = None;
            self.is_last = false;
        }
        if self.retry.is_zero() || self.is_last {
            return None;
        }
        match self.until {
            Some(until) if now < until => {}
            over => {
                self.is_last = over.is_some();
                self.until = Some(now + self.retry);
            }
        }
        self.until
    }
}

#[cfg(test)]
mod tests;
