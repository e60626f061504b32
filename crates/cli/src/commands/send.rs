//! `towline send`: files and folders to a server that receives.

use std::collections::HashSet;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use towline_transfer::{Progress, QuicLanes, RelativePath, Root, SendPlan, caps::MAX_LANES, send};

use crate::commands::resume::{SESSION, Session, Sessions, Transfer, begin_session};
use crate::display::Display;
use crate::exit::{Exit, Failure};
use crate::interrupt::Interrupt;
use crate::net::ConnectArgs;
use crate::printer::Printer;
use crate::summary::Role;
use crate::units::parse_duration;
use crate::url::Url;

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
    /// When the receiver is killed or vanishes, try for so long to connect again and go on; 0s gives up at
    /// once. One that is interrupted (Ctrl-C) says so, and ends the transfer: a person chose to
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = parse_duration)]
    retry: Duration,
    #[command(flatten)]
    network: ConnectArgs,
}

impl SendArgs {
    /// Sends until everything is settled.
    pub(crate) async fn run(self, printer: Printer) -> Result<Exit, Failure> {
        let roots = roots(&self.files)?;
        let mut interrupt = Interrupt::install(printer);
        let transfer = Transfer {
            role: Role::ClientSends,
            retry: self.retry,
            leave_out: self.leave_out,
            printer,
        };
        let sending = Sending {
            args: self,
            roots,
            printer,
        };
        transfer.run(&sending, &mut interrupt).await
    }
}

struct Sending {
    args: SendArgs,
    roots: Vec<Root>,
    printer: Printer,
}

impl Sessions for Sending {
    async fn session(&self, interrupt: &mut Interrupt) -> Result<Session, Failure> {
        let args = &self.args;
        let (client, control) = begin_session(
            Role::ClientSends,
            &args.network,
            &args.url,
            self.printer,
            interrupt,
        )
        .await?;
        let progress = Arc::new(Progress::new());
        let display = Display::start(self.printer, Arc::clone(&progress));
        let plan = SendPlan {
            roots: self.roots.clone(),
            follow_links: args.follow_links,
            lanes: args.parallel.into(),
        };
        let lanes = QuicLanes(client.connection.clone());
        let moved = Arc::clone(&progress);
        let sent = send(control, lanes, SESSION, plan, moved, interrupt.flag()).await;
        drop(display);
        Ok(Session {
            client,
            ended: sent.ended,
            progress,
            control: Some(sent.control),
        })
    }
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
