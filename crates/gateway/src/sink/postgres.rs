//! PostgreSQL: each record exactly once.
//!
//! Records and our cursor are written by one statement, which is one transaction: whatever is killed, either both are
//! there or neither. A record's key is its stream and number, so that writing it again does nothing.
//!
//! ```sql
//! towline_records(stream_name text, stream_id bigint, seq bigint, received timestamptz, record json)
//! towline_cursors(stream_name text, stream_id bigint, ranges int8multirange)
//! ```
//!
//! `record` is `json` and not `jsonb`, since that would lose the order of keys, bits of numbers and `\u0000`;
//! `record::jsonb` converts what has none of it. `stream_id` has the 64 bits of [`Stream::id`], with a sign.

use std::fmt;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::task::AbortHandle;
use tokio::time::timeout;
use tokio_postgres::config::SslMode;
use tokio_postgres::tls::{ChannelBinding, MakeTlsConnect, TlsConnect, TlsStream};
use tokio_postgres::{Client, Config, NoTls, Statement};
use tokio_rustls::{TlsConnector, client};

use super::promise::SinkError;
use crate::tls::system_roots;
use crate::{BadUrl, Entry, Ranges, Status, Stream};

/// A server that answers nothing for so long is given up.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Only who owns the schema may make tables, so they are made where they are missing only.
const TABLES: &str = "
CREATE TABLE IF NOT EXISTS towline_records (
    stream_name text NOT NULL,
    stream_id bigint NOT NULL,
    seq bigint NOT NULL,
    received timestamptz NOT NULL DEFAULT now(),
    record json NOT NULL,
    PRIMARY KEY (stream_name, stream_id, seq)
);
CREATE TABLE IF NOT EXISTS towline_cursors (
    stream_name text NOT NULL,
    stream_id bigint NOT NULL,
    ranges int8multirange NOT NULL,
    PRIMARY KEY (stream_name, stream_id)
);";

const HAS_TABLES: &str = "SELECT to_regclass('towline_records') IS NOT NULL \
     AND to_regclass('towline_cursors') IS NOT NULL, current_setting('server_encoding')";

/// A server may be told not to wait for its disk; our cursor has to.
const WAIT_FOR_DISK: &str = "SELECT set_config('synchronous_commit', 'on', false) \
     WHERE current_setting('synchronous_commit') = 'off'";

const WRITE: &str = "
WITH records AS (
    INSERT INTO towline_records (stream_name, stream_id, seq, record)
    SELECT $1, $2, t.seq, t.record::json FROM unnest($3::bigint[], $4::text[]) AS t (seq, record)
    ON CONFLICT DO NOTHING
)
INSERT INTO towline_cursors AS held (stream_name, stream_id, ranges)
SELECT $1, $2, range_agg(int8range(t.low, t.high)) FROM unnest($5::bigint[], $6::bigint[]) AS t (low, high)
ON CONFLICT (stream_name, stream_id) DO UPDATE SET ranges = held.ranges + excluded.ranges";

const READ: &str = "SELECT lower(range), upper(range) FROM (SELECT unnest(ranges) AS range \
     FROM towline_cursors WHERE stream_name = $1 AND stream_id = $2) AS held ORDER BY 1 DESC LIMIT $3";

/// Which database.
#[derive(Clone, Debug)]
pub struct PostgresOptions {
    /// `postgresql://user:password@host/database?sslmode=require`, or `host=/run/postgresql dbname=boats`. PostgreSQL
    /// 14 or newer. TLS is used where the server has it, and then its certificate must be right, unless
    /// `sslmode=disable`.
    pub url: String,
    /// Whom to trust; `None` is [`system_roots`].
    pub tls: Option<Arc<ClientConfig>>,
}

/// A sink to PostgreSQL.
pub struct Postgres {
    config: Config,
    tls: Option<Arc<ClientConfig>>,
    connection: Option<Connection>,
    status: Status,
}

impl fmt::Debug for Postgres {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Postgres")
            .field("config", &self.config)
            .field("status", &self.status)
            .finish()
    }
}

/// Ends its task with it.
struct Connection {
    client: Client,
    write: Statement,
    read: Statement,
    task: AbortHandle,
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Postgres {
    pub(super) fn new(options: PostgresOptions) -> Result<Self, BadUrl> {
        let config: Result<Config, _> = options.url.parse();
        // A password may be in it, so the text is not repeated.
        let mut config =
            config.map_err(|error| BadUrl::new("postgresql://…", error.to_string()))?;
        config
            .application_name("towline")
            .connect_timeout(CONNECT_TIMEOUT)
            .keepalives_idle(Duration::from_secs(15))
            .keepalives_interval(Duration::from_secs(5))
            .keepalives_retries(3);
        Ok(Self {
            config,
            tls: options.tls,
            connection: None,
            status: Status::Connecting,
        })
    }

    pub(super) fn status(&self) -> Status {
        match &self.connection {
            Some(connection) if !connection.client.is_closed() => Status::Up,
            Some(_) => Status::Down {
                why: "the server closed the connection".to_owned(),
            },
            None => self.status.clone(),
        }
    }

    pub(super) async fn open(&mut self, stream: &Stream) -> Result<Ranges, SinkError> {
        let id = stream.id.cast_signed();
        let most = crate::ranges::MAX_RANGES as i64;
        let rows = self
            .on_connection(async |connection| {
                let values: [&(dyn tokio_postgres::types::ToSql + Sync); 3] =
                    [&stream.name, &id, &most];
                Ok(connection.client.query(&connection.read, &values).await?)
            })
            .await?;
        let mut ranges = Ranges::default();
        for row in rows.iter().rev() {
            let end = |at| {
                let end: Option<i64> = row.try_get(at).ok()?;
                u64::try_from(end?).ok()
            };
            let (Some(low), Some(high)) = (end(0), end(1)) else {
                let what = "towline_cursors has a range without an end: somebody changed it";
                return Err(SinkError::permanent(what));
            };
            ranges.insert(low..high);
        }
        Ok(ranges)
    }

    pub(super) async fn write(
        &mut self,
        stream: &Stream,
        entries: &[Entry],
    ) -> Result<(), SinkError> {
        if entries.is_empty() {
            return Ok(());
        }
        if stream.name.contains('\0') {
            return Err(SinkError::permanent(
                "the boat's name has a zero byte in it",
            ));
        }
        let id = stream.id.cast_signed();
        // Left out: no other boat waits for it.
        let too_large =
            |seq| SinkError::of_entry(seq, "a sequence number of 2^63 or more".to_owned());
        let mut numbers = Vec::with_capacity(entries.len());
        for entry in entries {
            // Its range ends one above.
            let below = i64::try_from(entry.seq).ok().filter(|&seq| seq < i64::MAX);
            numbers.push(below.ok_or_else(|| too_large(entry.seq))?);
        }
        let records: Vec<String> = entries.iter().map(|entry| entry.record.to_json()).collect();
        let ranges: Ranges = entries.iter().map(|entry| entry.seq).collect();
        let ends = ranges.iter();
        let (low, high): (Vec<i64>, Vec<i64>) = ends
            .map(|range| (range.start.cast_signed(), range.end.cast_signed()))
            .unzip();
        self.on_connection(async |connection| {
            let values: [&(dyn tokio_postgres::types::ToSql + Sync); 6] =
                [&stream.name, &id, &numbers, &records, &low, &high];
            connection
                .client
                .execute(&connection.write, &values)
                .await?;
            Ok(())
        })
        .await
    }

    /// Connects if need be. A connection with an error, or with an answer that nobody waited for, is dropped.
    async fn on_connection<T>(
        &mut self,
        run: impl AsyncFnOnce(&Connection) -> Result<T, Failed>,
    ) -> Result<T, SinkError> {
        let used = async {
            let connection = match self.connection.take() {
                Some(connection) if !connection.client.is_closed() => connection,
                _ => connect(&self.config, self.tls.clone()).await?,
            };
            let value = run(&connection).await?;
            Ok::<_, Failed>((connection, value))
        };
        let failed = match timeout(ANSWER_TIMEOUT, used).await {
            Ok(Ok((connection, value))) => {
                self.connection = Some(connection);
                return Ok(value);
            }
            Ok(Err(failed)) => failed.explain(),
            Err(_) => SinkError::passing("the database does not answer"),
        };
        self.status = Status::Down {
            why: failed.to_string(),
        };
        Err(failed)
    }
}

async fn connect(config: &Config, tls: Option<Arc<ClientConfig>>) -> Result<Connection, Failed> {
    let (client, task) = if config.get_ssl_mode() == SslMode::Disable {
        let (client, connection) = config.connect(NoTls).await?;
        (client, tokio::spawn(run(connection)).abort_handle())
    } else {
        let tls = match tls {
            Some(tls) => tls,
            None => system_roots().map_err(|error| {
                Failed::Ours(SinkError::permanent(format!(
                    "{error}; or say sslmode=disable"
                )))
            })?,
        };
        let (client, connection) = config.connect(Rustls(tls)).await?;
        (client, tokio::spawn(run(connection)).abort_handle())
    };
    match prepare(&client).await {
        Ok((write, read)) => Ok(Connection {
            client,
            write,
            read,
            task,
        }),
        Err(failed) => {
            task.abort();
            Err(failed)
        }
    }
}

async fn prepare(client: &Client) -> Result<(Statement, Statement), Failed> {
    let row = client.query_one(HAS_TABLES, &[]).await?;
    let (has_tables, encoding): (bool, String) = (row.try_get(0)?, row.try_get(1)?);
    if !matches!(encoding.as_str(), "UTF8" | "SQL_ASCII") {
        let what =
            format!("the database's encoding is {encoding}: make one with ENCODING 'UTF8' for it");
        return Err(Failed::Ours(SinkError::permanent(what)));
    }
    if !has_tables {
        client.batch_execute(TABLES).await?;
    }
    client.query(WAIT_FOR_DISK, &[]).await?;
    Ok((client.prepare(WRITE).await?, client.prepare(READ).await?))
}

/// Moves the connection's bytes until it ends; whoever uses it hears why.
async fn run(connection: impl Future<Output = Result<(), tokio_postgres::Error>>) {
    if let Err(error) = connection.await {
        tracing::debug!(sink = "PostgreSQL", "connection: {error}");
    }
}

enum Failed {
    Database(tokio_postgres::Error),
    Ours(SinkError),
}

impl From<tokio_postgres::Error> for Failed {
    fn from(error: tokio_postgres::Error) -> Self {
        Self::Database(error)
    }
}

impl Failed {
    fn explain(self) -> SinkError {
        let error = match self {
            Self::Database(error) => error,
            Self::Ours(error) => return error,
        };
        if let Some(told) = error.as_db_error() {
            let code = told.code().code();
            let what = format!("the database says: {} ({code})", told.message());
            // Classes of SQLSTATE that no repetition mends: data, authorization, no such database, rights and
            // names, features.
            let is_permanent = ["22", "28", "3D", "42", "0A"]
                .iter()
                .any(|class| code.starts_with(class));
            return match is_permanent {
                true => SinkError::permanent(what),
                false => SinkError::passing(what),
            };
        }
        let mut what = format!("the database: {error}");
        let mut cause = std::error::Error::source(&error);
        let mut is_certificate = false;
        while let Some(error) = cause {
            what = format!("{what}: {error}");
            // rustls's errors come wrapped in those of I/O, which have no source for them.
            let inner = error
                .downcast_ref::<io::Error>()
                .and_then(io::Error::get_ref);
            is_certificate |= inner.is_some_and(|inner| {
                matches!(
                    inner.downcast_ref(),
                    Some(rustls::Error::InvalidCertificate(_))
                )
            });
            cause = error.source();
        }
        match is_certificate {
            true => SinkError::permanent(format!(
                "{what}. Trust its authority, or say sslmode=disable where nobody else can listen"
            )),
            false => SinkError::passing(what),
        }
    }
}

/// TLS for the driver.
#[derive(Clone)]
struct Rustls(Arc<ClientConfig>);

struct Handshake {
    config: Arc<ClientConfig>,
    name: ServerName<'static>,
}

struct Secured<S>(client::TlsStream<S>);

impl<S: AsyncRead + AsyncWrite + Send + Unpin + 'static> MakeTlsConnect<S> for Rustls {
    type Stream = Secured<S>;
    type TlsConnect = Handshake;
    type Error = io::Error;

    fn make_tls_connect(&mut self, domain: &str) -> io::Result<Handshake> {
        // A Unix socket has no name; its server speaks no TLS either.
        let name = if domain.is_empty() {
            "localhost"
        } else {
            domain
        };
        let name = ServerName::try_from(name.to_owned()).map_err(io::Error::other)?;
        Ok(Handshake {
            config: Arc::clone(&self.0),
            name,
        })
    }
}

impl<S: AsyncRead + AsyncWrite + Send + Unpin + 'static> TlsConnect<S> for Handshake {
    type Stream = Secured<S>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Secured<S>>> + Send>>;

    fn connect(self, stream: S) -> Self::Future {
        Box::pin(async move {
            let connector = TlsConnector::from(self.config);
            Ok(Secured(connector.connect(self.name, stream).await?))
        })
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> TlsStream for Secured<S> {
    /// The certificate is verified, so binding a password to it adds nothing here.
    fn channel_binding(&self) -> ChannelBinding {
        ChannelBinding::none()
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for Secured<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, buffer)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Secured<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}
