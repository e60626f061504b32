//! The server: echoes streams and datagrams, and prints how sessions ended.

use std::net::Ipv4Addr;
use std::path::Path;

use interop_wt_contract as contract;
use interop_wt_contract::Error;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use web_transport_quinn::{
    RecvStream, Request, SendStream, ServerBuilder, Session, SessionError, WebTransportError,
};

pub(crate) async fn serve(folder: &Path) -> Result<(), Error> {
    let certificate = CertificateDer::from_pem_file(contract::certificate(folder))?;
    let key = PrivateKeyDer::from_pem_file(contract::private_key(folder))?;
    let mut server = ServerBuilder::new()
        .with_addr((Ipv4Addr::LOCALHOST, 0).into())
        .with_certificate(vec![certificate], key)?;
    println!("listening {}", server.local_addr()?);
    contract::exit_with_input();
    while let Some(request) = server.accept().await {
        tokio::spawn(async move {
            if let Err(error) = serve_session(request).await {
                eprintln!("web-transport-quinn server: {error}");
            }
        });
    }
    Ok(())
}

async fn serve_session(request: Request) -> Result<(), Error> {
    let closes = request.url.path() == "/close";
    let session = request.ok().await?;
    if closes {
        session.close(contract::SERVER_CODE, contract::SERVER_REASON.as_bytes());
        session.closed().await;
        return Ok(());
    }
    // All three end with the session, and with the same error.
    let ended = tokio::select! {
        ended = bidirectional(&session) => ended,
        ended = unidirectional(&session) => ended,
        ended = datagrams(&session) => ended,
    };
    match ended {
        Err(SessionError::WebTransportError(WebTransportError::Closed(code, reason))) => {
            println!("closed {code} {reason}");
            Ok(())
        }
        ended => Ok(ended?),
    }
}

async fn bidirectional(session: &Session) -> Result<(), SessionError> {
    loop {
        let (send, recv) = session.accept_bi().await?;
        tokio::spawn(report(echo(send, recv)));
    }
}

async fn unidirectional(session: &Session) -> Result<(), SessionError> {
    loop {
        let recv = session.accept_uni().await?;
        let send = session.open_uni().await?;
        tokio::spawn(report(echo(send, recv)));
    }
}

async fn echo(mut send: SendStream, mut recv: RecvStream) -> Result<(), Error> {
    let mut chunk = vec![0; contract::CHUNK];
    while let Some(len) = recv.read(&mut chunk).await? {
        send.write_all(&chunk[..len]).await?;
    }
    send.finish()?;
    Ok(())
}

async fn report(outcome: impl Future<Output = Result<(), Error>>) {
    if let Err(error) = outcome.await {
        eprintln!("web-transport-quinn server: {error}");
    }
}

async fn datagrams(session: &Session) -> Result<(), SessionError> {
    loop {
        let datagram = session.read_datagram().await?;
        if let Err(error) = session.send_datagram(datagram) {
            eprintln!("web-transport-quinn server: {error}");
        }
    }
}
