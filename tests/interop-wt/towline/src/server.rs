//! The server: echoes streams and datagrams, and prints how sessions ended.

use std::net::Ipv4Addr;

use interop_wt_contract as contract;
use interop_wt_contract::Error;
use towline::config::{self, ClientAuth, Identity};
use towline::webtransport::{Config, Connection, Error as SessionError, Server, Session};
use towline::{Endpoint, RecvStream, SendStream};

pub(crate) async fn serve(identity: &Identity) -> Result<(), Error> {
    let config = config::server(identity, &ClientAuth::None, &crate::options())?;
    let endpoint = Endpoint::builder()
        .server(config)
        .webtransport(Config::default())
        .bind((Ipv4Addr::LOCALHOST, 0).into())?;
    let server = Server::new(&endpoint).ok_or("no door")?;
    println!("listening {}", endpoint.local_addr());
    contract::exit_with_input();
    while let Some(connection) = server.accept().await {
        tokio::spawn(serve_connection(connection));
    }
    Ok(())
}

async fn serve_connection(connection: Connection) {
    while let Some(request) = connection.accept().await {
        let closes = request.path() == "/close";
        match request.accept() {
            Ok(session) if closes => session.close(contract::SERVER_CODE, contract::SERVER_REASON),
            Ok(session) => drop(tokio::spawn(serve_session(session))),
            Err(error) => eprintln!("towline server: {error}"),
        }
    }
}

async fn serve_session(session: Session) {
    tokio::select! {
        _ = bidirectional(&session) => {}
        _ = unidirectional(&session) => {}
        _ = datagrams(&session) => {}
    }
    match session.closed().await {
        SessionError::Closed { code, reason, .. } => println!("closed {code} {reason}"),
        other => eprintln!("towline server: {other}"),
    }
}

async fn bidirectional(session: &Session) -> Result<(), SessionError> {
    loop {
        let (send, recv) = session.accept_bi().await?;
        tokio::spawn(async move {
            if let Err(error) = echo(send, recv).await {
                eprintln!("towline server: {error}");
            }
        });
    }
}

async fn unidirectional(session: &Session) -> Result<(), SessionError> {
    loop {
        let recv = session.accept_uni().await?;
        let send = session.open_uni().await?;
        tokio::spawn(async move {
            if let Err(error) = echo(send, recv).await {
                eprintln!("towline server: {error}");
            }
        });
    }
}

async fn echo(mut send: SendStream, mut recv: RecvStream) -> Result<(), Error> {
    while let Some(chunk) = recv.read_chunk(contract::CHUNK).await? {
        send.write_chunk(chunk).await?;
    }
    send.finish()?;
    Ok(())
}

async fn datagrams(session: &Session) -> Result<(), SessionError> {
    loop {
        let datagram = session.read_datagram().await?;
        if let Err(error) = session.send_datagram(datagram) {
            eprintln!("towline server: {error}");
        }
    }
}
