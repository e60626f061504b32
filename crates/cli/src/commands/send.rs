//! `towline send`: files and folders to a server that receives.

use std::collections::HashSet;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use towline::SendStream;

use crate::display::Display;
use crate::exit::{Exit, Failure};
use crate::interrupt::Interrupt;
use crate::net::{Client, ConnectArgs, options};
use crate::printer::Printer;
use crate::streams::{QuicLanes, open_session};
use crate::summary::{Role, Summary, conclude};
use crate::transfer::caps::MAX_LANES;
use crate::transfer::message::{Reason, stream_kind};
use crate::transfer::path::RelativePath;
use crate::transfer::progress::Progress;
use crate::transfer::report::{Ended, Report, SessionError};
use crate::transfer::send::{SendEnded, SendPlan, send};
use crate::transfer::walk::Root;
use crate::units::parse_duration;
use crate::url::Url;

/// The only transfer of its connection.
const SESSION: u64 = 1;
/// How long the end of the control stream may take to be acknowledged.
const LAST_WORDS: Duration = Duration::from_secs(1);
/// Between two tries to connect again: at first, and at most.
const RETRY_FIRST: Duration = Duration::from_millis(100);
const RETRY_MOST: Duration = Duration::from_secs(2);

/// Flags of `send`.
#[derive(clap::Args)]
pub(crate) struct SendArgs {
    /// Files and folders; `.` sends a folder's contents without the folder
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Where to: the line the receiver printed. Its path is a folder below the destination
    #[arg(value_name = "URL")]
    url: Url,
    /// Files under way at once
    #[arg(short = 'P', long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u8).range(1..=MAX_LANES as i64))]
    parallel: u8,
    /// Send what symbolic links inside folders lead to, instead of the links
    #[arg(long)]
    follow_links: bool,
    /// Sockets, devices and links that lead elsewhere may stay behind: they are named, and no failure
    #[arg(long)]
    leave_out: bool,
    /// When the connection is lost, try for so long to connect again and go on; 0s gives up at once
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = parse_duration)]
    retry: Duration,
    #[command(flatten)]
    network: ConnectArgs,
}

/// A session that began, however it ended.
struct Sent {
    client: Client,
    sent: SendEnded<SendStream>,
    progress: Arc<Progress>,
}

impl SendArgs {
    /// Sends until everything is settled.
    pub(crate) async fn run(self, printer: Printer) -> Result<Exit, Failure> {
        let roots = roots(&self.files)?;
        let mut interrupt = Interrupt::install(printer);
        let mut earlier = Report::default();
        let mut one = self.session(roots.clone(), &mut interrupt, printer).await?;
        let mut until = None;
        loop {
            let result = conclude(&one.sent.ended, &one.client.connection, self.leave_out).await;
            let lost = match &result {
                Err(failure) if is_lost(&one.sent.ended) && is_silence(failure) => failure,
                _ => return self.end(one, earlier, result, printer).await,
            };
            if self.retry.is_zero() || interrupt.is_set() {
                return self.end(one, earlier, result, printer).await;
            }
            printer.note(format_args!(
                "towline: {}; connecting again, for {} s at most",
                lost.message,
                self.retry.as_secs()
            ));
            // A server that takes us and moves nothing gets no further time.
            if one.sent.ended.report.bytes_moved > 0 {
                until = None;
            }
            let until = *until.get_or_insert_with(|| Instant::now() + self.retry);
            match self.again(&roots, until, &mut interrupt, printer).await {
                Some(next) => {
                    close(&one.client, one.sent.ended.error.as_ref()).await;
                    earlier.add(&one.sent.ended.report);
                    one = next;
                }
                None => return self.end(one, earlier, result, printer).await,
            }
        }
    }

    /// A further session, as soon as the server is there again; `None` if it does not come back.
    async fn again(
        &self,
        roots: &[Root],
        until: Instant,
        interrupt: &mut Interrupt,
        printer: Printer,
    ) -> Option<Sent> {
        let mut pause = RETRY_FIRST;
        while Instant::now() < until {
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                () = interrupt.wait() => return None,
            }
            pause = (pause * 2).min(RETRY_MOST);
            match self.session(roots.to_vec(), interrupt, printer).await {
                Ok(sent) => return Some(sent),
                Err(failure) if !matches!(failure.exit, Exit::Connect | Exit::Timeout) => {
                    printer.note(format_args!("towline: {failure}"));
                    return None;
                }
                Err(failure) => tracing::info!("not yet: {}", failure.message),
            }
        }
        None
    }

    /// Connects and runs one session to its end.
    async fn session(
        &self,
        roots: Vec<Root>,
        interrupt: &mut Interrupt,
        printer: Printer,
    ) -> Result<Sent, Failure> {
        let progress = Arc::new(Progress::new());
        let connecting = async {
            let client = self
                .network
                .connect(
                    &self.url,
                    &options(self.network.idle_timeout, &self.network.congestion),
                    printer,
                )
                .await?;
            let control = open_session(
                &client.connection,
                stream_kind::PUSH,
                SESSION,
                self.url.path.clone(),
            )
            .await;
            match control {
                Ok(control) => Ok((client, control)),
                Err(failure) => {
                    client.close(0, "").await;
                    Err(failure)
                }
            }
        };
        let (client, control) = tokio::select! {
            connected = connecting => connected?,
            () = interrupt.wait() => return Err(Failure::new(Exit::Interrupted, "interrupted before anything was sent")),
        };
        let display = Display::start(printer, Arc::clone(&progress));
        let plan = SendPlan {
            roots,
            follow_links: self.follow_links,
            lanes: self.parallel.into(),
        };
        let lanes = QuicLanes(client.connection.clone());
        let moved = Arc::clone(&progress);
        let sent = send(control, lanes, SESSION, plan, moved, interrupt.flag()).await;
        drop(display);
        Ok(Sent {
            client,
            sent,
            progress,
        })
    }

    /// Prints what all sessions came to, and takes leave.
    async fn end(
        &self,
        one: Sent,
        earlier: Report,
        result: Result<Exit, Failure>,
        printer: Printer,
    ) -> Result<Exit, Failure> {
        let Sent {
            client,
            mut sent,
            progress,
        } = one;
        sent.ended.report.add_earlier(&earlier);
        let ended = &sent.ended;
        Summary::new(Role::ClientSends, &client.connection, ended, &progress).print(printer);
        if ended.error.is_none() {
            // Closing drops what is not delivered.
            let _ = tokio::time::timeout(LAST_WORDS, sent.control.finished()).await;
        }
        close(&client, sent.ended.error.as_ref()).await;
        result
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
pub(crate) async fn close(client: &crate::net::Client, error: Option<&SessionError>) {
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

/// The names under which files and folders arrive, checked before anything is opened.
fn roots(files: &[PathBuf]) -> Result<Vec<Root>, Failure> {
    let mut names = HashSet::new();
    let mut roots = Vec::new();
    for file in files {
        let metadata = std::fs::metadata(file).map_err(|error| {
            Failure::new(
                Exit::Other,
                format!("{} cannot be read: {error}", file.display()),
            )
            .next("check the path; nothing was sent")
        })?;
        if !metadata.is_file() && !metadata.is_dir() {
            return Err(Failure::usage(format!(
                "{} is neither a file nor a folder",
                file.display()
            )));
        }
        let name = name_of(file)?;
        if let Some(name) = &name
            && !names.insert(name.clone())
        {
            return Err(Failure::usage(format!(
                "two of the paths would arrive under the name `{name}`"
            ))
            .next("send them one after the other, to different folders of the URL"));
        }
        roots.push(Root {
            disk: file.clone(),
            name,
        });
    }
    Ok(roots)
}

fn name_of(file: &Path) -> Result<Option<RelativePath>, Failure> {
    match file.components().next_back() {
        Some(Component::Normal(name)) => RelativePath::parse(name.as_bytes())
            .map(Some)
            .map_err(|bad| Failure::usage(format!("{} cannot be sent: {}", file.display(), bad.0))),
        _ => Ok(None),
    }
}

#[cfg(test)]
mod tests;
