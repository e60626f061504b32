//! `towline send`: files and folders to a server that receives.

use std::collections::HashSet;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use crate::display::Display;
use crate::exit::{Exit, Failure};
use crate::interrupt::Interrupt;
use crate::net::{ConnectArgs, options};
use crate::printer::Printer;
use crate::streams::{QuicLanes, open_session};
use crate::summary::{Role, Summary, conclude};
use crate::transfer::caps::MAX_LANES;
use crate::transfer::message::{Reason, stream_kind};
use crate::transfer::path::RelativePath;
use crate::transfer::progress::Progress;
use crate::transfer::report::SessionError;
use crate::transfer::send::{SendPlan, send};
use crate::transfer::walk::Root;
use crate::url::Url;

/// The only transfer of its connection.
const SESSION: u64 = 1;
/// How long the end of the control stream may take to be acknowledged.
const LAST_WORDS: Duration = Duration::from_secs(1);

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
    #[command(flatten)]
    network: ConnectArgs,
}

impl SendArgs {
    /// Sends until everything is settled.
    pub(crate) async fn run(self, printer: Printer) -> Result<Exit, Failure> {
        let roots = roots(&self.files)?;
        let mut interrupt = Interrupt::install(printer);
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
        let mut sent = send(
            control,
            lanes,
            SESSION,
            plan,
            Arc::clone(&progress),
            interrupt.flag(),
        )
        .await;
        drop(display);
        let ended = &sent.ended;
        Summary::new(Role::ClientSends, &client.connection, ended, &progress).print(printer);
        let result = conclude(ended, &client.connection, self.leave_out).await;
        if ended.error.is_none() {
            // Closing drops what is not delivered.
            let _ = tokio::time::timeout(LAST_WORDS, sent.control.finished()).await;
        }
        close(&client, ended.error.as_ref()).await;
        result
    }
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
