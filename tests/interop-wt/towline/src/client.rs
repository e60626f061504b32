//! The client: the cases, each on a connection of its own.

use std::net::Ipv4Addr;

use interop_wt_contract as contract;
use interop_wt_contract::{Datagrams, Error};
use towline::config::{self, Identity, Trust};
use towline::engine::ClientConfig;
use towline::webtransport::{Config, Error as SessionError, Session, connect};
use towline::{Endpoint, RecvStream, SendStream};

struct Client {
    endpoint: Endpoint,
    config: ClientConfig,
    port: u16,
}

pub(crate) async fn run(identity: &Identity, port: u16) -> Result<(), Error> {
    let pin = identity.certificate_pin().ok_or("no certificate")?;
    let trust = Trust::Pinned(vec![pin.into()]);
    let endpoint = Endpoint::builder().webtransport(Config::default());
    let client = Client {
        endpoint: endpoint.bind((Ipv4Addr::LOCALHOST, 0).into())?,
        config: config::client(&trust, None, &crate::options())?,
        port,
    };
    contract::report("handshake", handshake(&client)).await;
    contract::report("bidirectional", bidirectional(&client)).await;
    contract::report("unidirectional", unidirectional(&client)).await;
    contract::report("datagrams", datagrams(&client)).await;
    contract::report("server-closes", server_closes(&client)).await;
    contract::report("client-closes", client_closes(&client)).await;
    Ok(())
}

impl Client {
    async fn session(&self, path: &str) -> Result<Session, Error> {
        let url = format!("https://localhost:{}{path}", self.port);
        Ok(connect(&self.endpoint, &url, &self.config).await?)
    }
}

async fn handshake(client: &Client) -> Result<String, Error> {
    let session = client.session("/echo").await?;
    Ok(format!("{:?}", session.dialect()))
}

async fn bidirectional(client: &Client) -> Result<String, Error> {
    let session = client.session("/echo").await?;
    let (send, recv) = session.open_bi().await?;
    let sent = tokio::spawn(send_all(send));
    let detail = compare(recv).await?;
    sent.await??;
    Ok(detail)
}

async fn unidirectional(client: &Client) -> Result<String, Error> {
    let session = client.session("/echo").await?;
    let send = session.open_uni().await?;
    let sent = tokio::spawn(send_all(send));
    let detail = compare(session.accept_uni().await?).await?;
    sent.await??;
    Ok(detail)
}

async fn send_all(mut send: SendStream) -> Result<(), Error> {
    send.write_all(&contract::pattern()).await?;
    send.finish()?;
    Ok(())
}

async fn compare(mut recv: RecvStream) -> Result<String, Error> {
    contract::compare(&recv.read_to_end(contract::TRANSFER).await?)
}

async fn datagrams(client: &Client) -> Result<String, Error> {
    let session = client.session("/echo").await?;
    let mut datagrams = Datagrams::default();
    loop {
        while let Some(datagram) = datagrams.next_to_send() {
            session.send_datagram(datagram.into())?;
        }
        datagrams.came_back(&session.read_datagram().await?)?;
        if let Some(detail) = datagrams.all_back() {
            return Ok(detail);
        }
    }
}

async fn server_closes(client: &Client) -> Result<String, Error> {
    let error = client.session("/close").await?.closed().await;
    let closed = match &error {
        SessionError::Closed {
            code,
            reason,
            by_peer: true,
        } => Some((u64::from(*code), reason.as_str())),
        _ => None,
    };
    contract::server_closed(closed, &error.to_string())
}

/// The runner looks at what the server says of it.
async fn client_closes(client: &Client) -> Result<String, Error> {
    let session = client.session("/echo").await?;
    session.close(contract::CLIENT_CODE, contract::CLIENT_REASON);
    tokio::time::sleep(contract::PARTING).await;
    Ok(String::new())
}
