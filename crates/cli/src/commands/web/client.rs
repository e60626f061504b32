//! Connections and sessions of the commands that measure with WebTransport.

use http::{Request, StatusCode};
use towline::config::Options;
use towline::http3;
use towline::webtransport::{self, ConnectError, Session};

use crate::exit::{Exit, Failure};
use crate::failures::{session_failure, session_refused};
use crate::net::{Client, ConnectArgs};
use crate::printer::Printer;
use crate::url::WebUrl;

/// Connects to the URL's server; `options` say how, but for the protocol.
pub(super) async fn connect(
    network: &ConnectArgs,
    url: &WebUrl,
    mut options: Options,
    printer: Printer,
) -> Result<Client, Failure> {
    options.alpn = vec![http3::ALPN.into()];
    let speaks =
        |builder: towline::EndpointBuilder| builder.webtransport(webtransport::Config::default());
    network
        .connect_with(&url.server, &options, printer, speaks)
        .await
}

/// Opens a session to a path of the server.
pub(super) async fn open(
    connection: towline::Connection,
    authority: &str,
    path: &str,
) -> Result<Session, Failure> {
    let head = Request::get(format!("https://{authority}{path}"))
        .body(())
        .map_err(|error| Failure::usage(error.to_string()))?;
    let session = webtransport::connect_over(connection, head, &[]).await;
    let session = session.map_err(|error| match error {
        ConnectError::Session(webtransport::Error::Refused(status)) => {
            refused(authority, path, status)
        }
        ConnectError::Session(error) => session_failure(&error),
        error => Failure::new(Exit::Protocol, error.to_string()),
    })?;
    tracing::info!(path, dialect = session.dialect().name(), "session open");
    Ok(session)
}

fn refused(authority: &str, path: &str, status: StatusCode) -> Failure {
    let what = match status {
        StatusCode::NOT_FOUND => format!("{authority} has no sessions at {path}"),
        _ => format!("{authority} takes no session at {path}"),
    };
    session_refused(
        format!("{what}: the server refused the session with status {status}"),
        status,
    )
}

/// Closes a connection of HTTP/3.
pub(super) async fn close(client: &Client) {
    let code = http3::ErrorCode::H3_NO_ERROR.as_u64();
    client.close(code, "").await;
}
