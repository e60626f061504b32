//! The server: echoes streams and datagrams, and prints how sessions ended.

use std::net::Ipv4Addr;
use std::path::Path;

use interop_wt_contract as contract;
use interop_wt_contract::Error;
use wtransport::endpoint::IncomingSession;
use wtransport::error::ConnectionError;
use wtransport::{Connection, Endpoint, Identity, RecvStream, SendStream, ServerConfig, VarInt};

pub(crate) async fn serve(folder: &Path) -> Result<(), Error> {
    let identity =
        Identity::load_pemfiles(contract::certificate(folder), contract::private_key(folder))
            .await?;
    let config = ServerConfig::builder()
        .with_bind_address((Ipv4Addr::LOCALHOST, 0).into())
        .with_identity(identity)
        .build();
    let endpoint = Endpoint::server(config)?;
    contract::skip("server-closes", crate::NO_CLOSE);
    println!("listening {}", endpoint.local_addr()?);
    contract::exit_with_input();
    loop {
        let incoming = endpoint.accept().await;
        tokio::spawn(async move {
            if let Err(error) = serve_session(incoming).await {
                eprintln!("wtransport server: {error}");
            }
        });
    }
}

async fn serve_session(incoming: IncomingSession) -> Result<(), Error> {
    let request = incoming.await?;
    let closes = request.path() == "/close";
    let session = request.accept().await?;
    if closes {
        let code = VarInt::from_u32(contract::SERVER_CODE);
        session.close(code, contract::SERVER_REASON.as_bytes());
        return Ok(());
    }
    // All three end with the session, and with the same error.
    let error = tokio::select! {
        error = bidirectional(&session) => error,
        error = unidirectional(&session) => error,
        error = datagrams(&session) => error,
    };
    match error {
        ConnectionError::ApplicationClosed(close) => {
            let reason = String::from_utf8_lossy(close.reason());
            println!("closed {} {reason}", close.code());
            Ok(())
        }
        error => Err(error.into()),
    }
}

async fn bidirectional(session: &Connection) -> ConnectionError {
    loop {
        match session.accept_bi().await {
            Ok((send, recv)) => drop(tokio::spawn(report(echo(send, recv)))),
            Err(error) => return error,
        }
    }
}

async fn unidirectional(session: &Connection) -> ConnectionError {
    loop {
        let recv = match session.accept_uni().await {
            Ok(recv) => recv,
            Err(error) => return error,
        };
        let opening = match session.open_uni().await {
            Ok(opening) => opening,
            Err(error) => return error,
        };
        tokio::spawn(report(async move { echo(opening.await?, recv).await }));
    }
}

async fn echo(mut send: SendStream, mut recv: RecvStream) -> Result<(), Error> {
    let mut chunk = vec![0; contract::CHUNK];
    while let Some(len) = recv.read(&mut chunk).await? {
        send.write_all(&chunk[..len]).await?;
    }
    send.finish().await?;
    Ok(())
}

async fn report(outcome: impl Future<Output = Result<(), Error>>) {
    if let Err(error) = outcome.await {
        eprintln!("wtransport server: {error}");
    }
}

async fn datagrams(session: &Connection) -> ConnectionError {
    loop {
        let datagram = match session.receive_datagram().await {
            Ok(datagram) => datagram,
            Err(error) => return error,
        };
        if let Err(error) = session.send_datagram(&datagram[..]) {
            eprintln!("wtransport server: {error}");
        }
    }
}
