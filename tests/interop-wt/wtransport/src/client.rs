//! The client: the cases, each on a connection of its own.

use std::net::Ipv4Addr;
use std::path::Path;

use interop_wt_contract as contract;
use interop_wt_contract::{Datagrams, Error};
use wtransport::endpoint::endpoint_side;
use wtransport::error::ConnectionError;
use wtransport::tls::Certificate;
use wtransport::{ClientConfig, Connection, Endpoint, RecvStream, SendStream};

struct Client {
    endpoint: Endpoint<endpoint_side::Client>,
    port: u16,
}

pub(crate) async fn run(folder: &Path, port: u16) -> Result<(), Error> {
    let certificate = Certificate::load_pemfile(contract::certificate(folder)).await?;
    let config = ClientConfig::builder()
        .with_bind_address((Ipv4Addr::LOCALHOST, 0).into())
        .with_server_certificate_hashes([certificate.hash()])
        .build();
    let client = Client {
        endpoint: Endpoint::client(config)?,
        port,
    };
    contract::report("handshake", handshake(&client)).await;
    contract::report("bidirectional", bidirectional(&client)).await;
    contract::report("unidirectional", unidirectional(&client)).await;
    contract::report("datagrams", datagrams(&client)).await;
    contract::report("server-closes", server_closes(&client)).await;
    contract::skip("client-closes", crate::NO_CLOSE);
    Ok(())
}

impl Client {
    async fn session(&self, path: &str) -> Result<Connection, Error> {
        let url = format!("https://127.0.0.1:{}{path}", self.port);
        Ok(self.endpoint.connect(url).await?)
    }
}

async fn handshake(client: &Client) -> Result<String, Error> {
    client.session("/echo").await?;
    Ok(String::new())
}

async fn bidirectional(client: &Client) -> Result<String, Error> {
    let session = client.session("/echo").await?;
    let (send, recv) = session.open_bi().await?.await?;
    let sent = tokio::spawn(send_all(send));
    let detail = contract::compare(&read_all(recv).await?)?;
    sent.await??;
    Ok(detail)
}

async fn unidirectional(client: &Client) -> Result<String, Error> {
    let session = client.session("/echo").await?;
    let send = session.open_uni().await?.await?;
    let sent = tokio::spawn(send_all(send));
    let detail = contract::compare(&read_all(session.accept_uni().await?).await?)?;
    sent.await??;
    Ok(detail)
}

async fn send_all(mut send: SendStream) -> Result<(), Error> {
    send.write_all(&contract::pattern()).await?;
    send.finish().await?;
    Ok(())
}

async fn read_all(mut recv: RecvStream) -> Result<Vec<u8>, Error> {
    let mut data = Vec::new();
    let mut chunk = vec![0; contract::CHUNK];
    while let Some(len) = recv.read(&mut chunk).await? {
        data.extend_from_slice(&chunk[..len]);
    }
    Ok(data)
}

async fn datagrams(client: &Client) -> Result<String, Error> {
    let session = client.session("/echo").await?;
    let mut datagrams = Datagrams::default();
    loop {
        while let Some(datagram) = datagrams.next_to_send() {
            session.send_datagram(datagram)?;
        }
        datagrams.came_back(&session.receive_datagram().await?)?;
        if let Some(detail) = datagrams.all_back() {
            return Ok(detail);
        }
    }
}

async fn server_closes(client: &Client) -> Result<String, Error> {
    let session = client.session("/close").await?;
    // `closed` tells of the QUIC connection alone; the capsule is told by what waits for a stream.
    let Err(error) = session.accept_bi().await else {
        return Err("a stream came instead of a close".into());
    };
    let closed = match &error {
        ConnectionError::ApplicationClosed(close) => {
            let reason = std::str::from_utf8(close.reason())?;
            Some((close.code().into_inner(), reason))
        }
        _ => None,
    };
    contract::server_closed(closed, &error.to_string())
}
