//! The client: the cases, each on a connection of its own.

use std::path::Path;

use interop_wt_contract as contract;
use interop_wt_contract::{Datagrams, Error};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use url::Url;
use web_transport_quinn::{
    ClientBuilder, RecvStream, SendStream, Session, SessionError, WebTransportError,
};

struct Client {
    connector: web_transport_quinn::Client,
    port: u16,
}

pub(crate) async fn run(folder: &Path, port: u16) -> Result<(), Error> {
    let certificate = CertificateDer::from_pem_file(contract::certificate(folder))?;
    let client = Client {
        connector: ClientBuilder::new().with_server_certificates(vec![certificate])?,
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
        let url = Url::parse(&format!("https://127.0.0.1:{}{path}", self.port))?;
        Ok(self.connector.connect(url).await?)
    }
}

async fn handshake(client: &Client) -> Result<String, Error> {
    client.session("/echo").await?;
    Ok(String::new())
}

async fn bidirectional(client: &Client) -> Result<String, Error> {
    let session = client.session("/echo").await?;
    let (send, mut recv) = session.open_bi().await?;
    let sent = tokio::spawn(send_all(send));
    let detail = compare(&mut recv).await?;
    sent.await??;
    Ok(detail)
}

async fn unidirectional(client: &Client) -> Result<String, Error> {
    let session = client.session("/echo").await?;
    let send = session.open_uni().await?;
    let sent = tokio::spawn(send_all(send));
    let detail = compare(&mut session.accept_uni().await?).await?;
    sent.await??;
    Ok(detail)
}

async fn send_all(mut send: SendStream) -> Result<(), Error> {
    send.write_all(&contract::pattern()).await?;
    send.finish()?;
    Ok(())
}

async fn compare(recv: &mut RecvStream) -> Result<String, Error> {
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
        SessionError::WebTransportError(WebTransportError::Closed(code, reason)) => {
            Some((u64::from(*code), reason.as_str()))
        }
        _ => None,
    };
    contract::server_closed(closed, &error.to_string())
}

/// The runner looks at what the server says of it.
async fn client_closes(client: &Client) -> Result<String, Error> {
    let session = client.session("/echo").await?;
    session.close(contract::CLIENT_CODE, contract::CLIENT_REASON.as_bytes());
    session.closed().await;
    tokio::time::sleep(contract::PARTING).await;
    Ok(String::new())
}
