//! `towline web get`: one request over HTTP/3, its answer to standard output or into a file.

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use http::{Method, Request};
use http_body_util::Empty;
use serde_json::json;
use tokio::time::Instant;
use towline::http3::{self, Connection, RecvBody};

use crate::exit::{Exit, Failure};
use crate::failures::http3_failure;
use crate::interrupt::Interrupt;
use crate::net::{ConnectArgs, options};
use crate::printer::Printer;
use crate::url::WebUrl;

/// Flags of `web get`.
#[derive(clap::Args)]
pub(crate) struct GetArgs {
    /// https://HOST[:PORT]/PATH[#sha256/PIN]
    #[arg(value_name = "URL")]
    url: WebUrl,
    /// Into this file instead of standard output
    #[arg(short, long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Fetch only the head, and show it
    #[arg(long, conflicts_with = "out")]
    head: bool,
    /// Fetch only these bytes: FIRST-LAST, FIRST- or -LENGTH
    #[arg(long, value_name = "RANGE", allow_hyphen_values = true)]
    range: Option<String>,
    #[command(flatten)]
    network: ConnectArgs,
}

impl GetArgs {
    /// Fetches it.
    pub(crate) async fn run(self, printer: Printer) -> Result<Exit, Failure> {
        let mut interrupt = Interrupt::install(printer);
        tokio::select! {
            done = self.fetch(printer) => done,
            () = interrupt.wait() => Ok(Exit::Interrupted),
        }
    }

    async fn fetch(&self, printer: Printer) -> Result<Exit, Failure> {
        let mut options = options(self.network.idle_timeout, &self.network.congestion);
        options.alpn = vec![http3::ALPN.into()];
        let speaks = |builder: towline::EndpointBuilder| builder.http3(http3::Config::default());
        let client = self
            .network
            .connect_with(&self.url.server, &options, printer, speaks)
            .await?;
        let Some(connection) = Connection::new(client.connection.clone()) else {
            return Err(Failure::new(Exit::Protocol, "the server speaks no HTTP/3"));
        };
        let done = self.request(&connection, printer).await;
        super::client::close(&client).await;
        done
    }

    async fn request(&self, connection: &Connection, printer: Printer) -> Result<Exit, Failure> {
        let started = Instant::now();
        let method = if self.head { Method::HEAD } else { Method::GET };
        let uri = format!("https://{}{}", self.url.authority(), self.url.target);
        let mut request = Request::builder().method(method).uri(uri);
        if let Some(range) = &self.range {
            request = request.header(http::header::RANGE, format!("bytes={range}"));
        }
        let request = request
            .body(Empty::<bytes::Bytes>::new())
            .map_err(|error| Failure::usage(error.to_string()))?;
        let answer = connection
            .request(request)
            .await
            .map_err(|error| http3_failure(&error))?;
        let (head, mut body) = answer.into_parts();
        let fields: Vec<_> = head
            .headers
            .iter()
            .map(|(name, value)| (name.as_str(), String::from_utf8_lossy(value.as_bytes())))
            .collect();
        if self.head {
            printer.line(format_args!("status {}", head.status));
            for (name, value) in &fields {
                printer.line(format_args!("{name}: {value}"));
            }
        }
        let bytes = match head.status.is_success() {
            true => self.keep(&mut body, printer).await?,
            false => 0,
        };
        printer.record(&json!({
            "schema": "towline.web.get/1",
            "status": head.status.as_u16(),
            "fields": fields,
            "bytes": bytes,
            "seconds": started.elapsed().as_secs_f64(),
        }));
        if head.status.is_success() || self.head {
            return Ok(Exit::Ok);
        }
        Err(Failure::new(
            Exit::Other,
            format!("the server answers {}", head.status),
        ))
    }

    /// Writes the body as it comes; its length.
    async fn keep(&self, body: &mut RecvBody, printer: Printer) -> Result<u64, Failure> {
        let mut out: Box<dyn Write + Send> = match &self.out {
            Some(path) => Box::new(File::create(path).map_err(|error| cannot_write(path, &error))?),
            // Standard output is for the record then.
            None if printer.prints_records() => Box::new(io::sink()),
            None => Box::new(io::stdout()),
        };
        let path = self.out.as_deref().unwrap_or(Path::new("standard output"));
        let mut bytes = 0;
        while let Some(chunk) = body.chunk().await.map_err(|error| http3_failure(&error))? {
            bytes += chunk.len() as u64;
            out.write_all(&chunk)
                .map_err(|error| cannot_write(path, &error))?;
        }
        out.flush().map_err(|error| cannot_write(path, &error))?;
        Ok(bytes)
    }
}

fn cannot_write(path: &Path, error: &io::Error) -> Failure {
    Failure::new(Exit::Other, format!("{}: {error}", path.display()))
}
