//! Lines of JSON, to a file or to standard output.
//!
//! At least once: a line that was written before its acknowledgement got lost is written again. With
//! [`LinesOptions::ids`] a reader can tell.

use std::path::{Path, PathBuf};

use tokio::fs::{File, OpenOptions};
use tokio::io::{AsyncReadExt as _, AsyncSeekExt as _, AsyncWriteExt as _, SeekFrom};

use super::promise::{Kind, SinkError};
use crate::{Entry, Ranges, Stream};

/// How a line looks.
#[derive(Clone, Copy, Debug, Default)]
pub struct LinesOptions {
    /// `{"stream":NAME,"id":HEX,"seq":N,"record":{…}}` instead of the record alone.
    pub ids: bool,
}

/// A sink of lines.
#[derive(Debug)]
pub struct Lines {
    kind: Kind,
    options: LinesOptions,
    to: To,
}

#[derive(Debug)]
enum To {
    Stdout(tokio::io::Stdout),
    File { path: PathBuf, file: Option<File> },
}

impl Lines {
    pub(super) fn stdout(kind: Kind, options: LinesOptions) -> Self {
        Self {
            kind,
            options,
            to: To::Stdout(tokio::io::stdout()),
        }
    }

    pub(super) fn file(path: PathBuf, options: LinesOptions) -> Self {
        Self {
            kind: Kind::Log,
            options,
            to: To::File { path, file: None },
        }
    }

    pub(super) fn kind(&self) -> Kind {
        self.kind
    }

    /// Nobody reads a file back, so it has nothing that is known.
    pub(super) async fn open(&mut self) -> Result<Ranges, SinkError> {
        if let To::File { path, file } = &mut self.to {
            *file = Some(open(path).await?);
        }
        Ok(Ranges::default())
    }

    pub(super) async fn write(
        &mut self,
        stream: &Stream,
        entries: &[Entry],
    ) -> Result<(), SinkError> {
        let mut text = Vec::new();
        for entry in entries {
            line(&mut text, self.options, stream, entry);
        }
        match &mut self.to {
            To::Stdout(stdout) => {
                let written = async {
                    stdout.write_all(&text).await?;
                    stdout.flush().await
                };
                // Who closed it will not open it again.
                written
                    .await
                    .map_err(|error| SinkError::permanent(format!("standard output: {error}")))
            }
            To::File { path, file } => {
                let mut opened = match file.take() {
                    Some(file) => file,
                    None => open(path).await?,
                };
                append(&mut opened, &text).await.map_err(|error| {
                    let path = path.display();
                    SinkError::passing(format!("{path} cannot be written: {error}"))
                })?;
                // After a failure, and after a dropped future, it is opened anew, and the line begun is ended.
                *file = Some(opened);
                Ok(())
            }
        }
    }
}

async fn append(file: &mut File, text: &[u8]) -> std::io::Result<()> {
    file.write_all(text).await?;
    file.flush().await?;
    file.sync_data().await
}

fn line(out: &mut Vec<u8>, options: LinesOptions, stream: &Stream, entry: &Entry) {
    if options.ids {
        let name = quoted(&stream.name);
        let (id, seq) = (stream.id, entry.seq);
        let head = format!(r#"{{"stream":{name},"id":"{id:016x}","seq":{seq},"record":"#);
        out.extend_from_slice(head.as_bytes());
    }
    entry.record.write_json(out);
    out.extend_from_slice(if options.ids { b"}\n" } else { b"\n" });
}

/// A JSON string.
fn quoted(text: &str) -> String {
    let mut out = String::from('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            c if c < ' ' => out.push_str(&format!("\\u{:04x}", u32::from(c))),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

/// Opens a file for appending. What a crash left of a line is ended, so that the next line is whole.
async fn open(path: &Path) -> Result<File, SinkError> {
    let opened = async {
        let mut file = OpenOptions::new()
            .create(true)
            .read(true)
            .append(true)
            .open(path)
            .await?;
        if let Some(folder) = path.parent() {
            // Its name must survive a power cut as well, and who made it may have been killed before this.
            let here = Path::new(".");
            let folder = if folder == Path::new("") {
                here
            } else {
                folder
            };
            File::open(folder).await?.sync_all().await?;
        }
        if file.seek(SeekFrom::End(0)).await? > 0 {
            file.seek(SeekFrom::End(-1)).await?;
            if file.read_u8().await? != b'\n' {
                file.write_all(b"\n").await?;
                file.flush().await?;
            }
        }
        Ok::<_, std::io::Error>(file)
    };
    opened.await.map_err(|error| {
        let what = format!("{} cannot be opened: {error}", path.display());
        SinkError::permanent(what)
    })
}
