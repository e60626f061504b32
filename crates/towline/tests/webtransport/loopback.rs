//! Sessions over sockets: the way that the documentation shows.

use std::net::SocketAddr;

use towline::config::{self, ClientAuth, Identity, Trust};
use towline::webtransport::{
    Config, ConnectError, Error, Server, Session, connect, generate_certificate,
};
use towline::{Endpoint, http3};

use crate::common::{loopback, options, within};

/// A server that echoes bidirectional streams at `/echo`, at this address.
fn echo(identity: &Identity) -> SocketAddr {
    let options = options().alpn(vec![http3::ALPN.into()]);
    let config = config::server(identity, &ClientAuth::None, &options).unwrap();
    let endpoint = Endpoint::builder()
        .server(config)
        .webtransport(Config::default());
    let endpoint = endpoint.bind(loopback()).unwrap();
    let (address, server) = (endpoint.local_addr(), Server::new(&endpoint).unwrap());
    tokio::spawn(async move {
        while let Some(connection) = server.accept().await {
            tokio::spawn(async move {
                while let Some(request) = connection.accept().await {
                    match request.path() {
                        "/echo" => drop(tokio::spawn(serve(request.accept().unwrap()))),
                        _ => request.reject(http::StatusCode::NOT_FOUND),
                    }
                }
            });
        }
    });
    address
}

async fn serve(session: Session) {
    while let Ok((mut send, mut recv)) = session.accept_bi().await {
        tokio::spawn(async move {
            while let Ok(Some(chunk)) = recv.read_chunk(1 << 16).await {
                send.write_chunk(chunk).await.unwrap();
            }
            let _ = send.finish();
        });
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_url_leads_to_a_session_with_a_server_that_is_known_by_its_hash() {
    let identity = generate_certificate(&["localhost"], config::unix_now()).unwrap();
    let address = echo(&identity);
    let options = options().alpn(vec![http3::ALPN.into()]);
    let pin = identity.certificate_pin().unwrap();
    let trust = Trust::Pinned(vec![pin.into()]);
    let config = config::client(&trust, None, &options).unwrap();
    let client = Endpoint::builder().webtransport(Config::default());
    let client = client.bind(loopback()).unwrap();
    let url = |path: &str| format!("https://{address}{path}");
    let session = within(connect(&client, &url("/echo"), &config))
        .await
        .unwrap();
    let mut tasks = Vec::new();
    for _ in 0..100 {
        let (mut send, mut recv) = within(session.open_bi()).await.unwrap();
        tasks.push(tokio::spawn(async move {
            let bytes = vec![3; 64 * 1024];
            let sent = async {
                send.write_all(&bytes).await.unwrap();
                send.finish().unwrap();
            };
            let ((), back) = tokio::join!(sent, recv.read_to_end(bytes.len()));
            assert_eq!(back.unwrap(), bytes);
        }));
    }
    for task in tasks {
        within(task).await.unwrap();
    }
    session.close(3, "done");

    let refused = within(connect(&client, &url("/other"), &config)).await;
    let wanted = Error::Refused(http::StatusCode::NOT_FOUND);
    assert_eq!(refused.unwrap_err(), ConnectError::Session(wanted));
    for url in ["http://localhost/", "no url", "https:///"] {
        let refused = within(connect(&client, url, &config)).await.unwrap_err();
        assert_eq!(refused, ConnectError::Url(url.to_owned()));
    }
    // Another certificate than the one that is known.
    let other = generate_certificate(&["localhost"], config::unix_now()).unwrap();
    let trust = Trust::Pinned(vec![other.certificate_pin().unwrap().into()]);
    let config = config::client(&trust, None, &options).unwrap();
    let refused = within(connect(&client, &url("/echo"), &config))
        .await
        .unwrap_err();
    assert!(!matches!(refused, ConnectError::Session(_)), "{refused}");
}
