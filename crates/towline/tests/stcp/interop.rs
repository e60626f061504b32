//! OpenSSL's own client and server, both ways.

use std::io::{ErrorKind, Write as _};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::atomic::{AtomicU32, Ordering};

use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, ChildStdin, Command};
use towline::config::{ClientAuth, Identity, Trust, unix_now};
use towline::stcp::{Authentication, Records, client_config, connect, listen, server_config};

use crate::peers::{NAME, loopback, options, within};

/// Whether there is an OpenSSL with TLS 1.3; says so past the test harness if not.
fn openssl() -> bool {
    let found = std::process::Command::new("openssl")
        .args(["s_client", "-help"])
        .output();
    let found = found.is_ok_and(|output| output.stderr.windows(7).any(|w| w == b"-tls1_3"));
    if !found {
        let _ = writeln!(
            std::io::stderr(),
            "SKIPPED secure TCP beside OpenSSL: no `openssl` with TLS 1.3 here"
        );
    }
    found
}

/// A certificate in files, removed with it.
struct Material {
    identity: Identity,
    certificate: PathBuf,
    key: PathBuf,
}

impl Material {
    fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let file = |what: &str| {
            let name = format!("towline-stcp-{}-{number}-{what}.pem", std::process::id());
            std::env::temp_dir().join(name)
        };
        let identity = Identity::generate_dev(&[NAME], unix_now()).unwrap();
        let (certificate, key) = (file("cert"), file("key"));
        std::fs::write(&certificate, identity.certificate_pem().unwrap()).unwrap();
        std::fs::write(&key, identity.private_key_pem()).unwrap();
        Self {
            identity,
            certificate,
            key,
        }
    }
}

impl Drop for Material {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.certificate);
        let _ = std::fs::remove_file(&self.key);
    }
}

fn start(command: &mut Command) -> Child {
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .unwrap()
}

#[tokio::test]
async fn s_client_talks_to_our_server_updates_keys_and_ends_in_order() {
    if openssl() {
        s_client(Records::UserSpace).await;
        s_client(Records::Counted).await;
        s_client(Records::Kernel).await;
    }
}

/// s_client's command for a KeyUpdate that asks for one.
async fn ask_for_a_key(input: &mut ChildStdin) {
    input.write_all(b"K\n").await.unwrap();
    // It looks for commands at the front of what it reads at once.
    tokio::time::sleep(std::time::Duration::from_millis(200)).await;
}

async fn s_client(records: Records) {
    let options = options().records(records);
    let material = Material::new();
    let config = server_config(&material.identity, &ClientAuth::None, &options).unwrap();
    let mut listener = listen(loopback(), config).await.unwrap();
    let address = listener.local_addr().unwrap();
    let mut client = start(
        Command::new("openssl")
            .args(["s_client", "-tls1_3", "-verify_return_error", "-brief"])
            .args(["-servername", NAME, "-verify_hostname", NAME])
            // As curl does; the server names none.
            .args(["-alpn", "h2,http/1.1"])
            .arg("-CAfile")
            .arg(&material.certificate)
            .arg("-connect")
            .arg(address.to_string()),
    );
    let (mut stream, _) = within(listener.accept()).await.unwrap();
    assert_eq!(stream.authentication(), Authentication::Anonymous);
    assert_eq!(stream.alpn(), None);
    let mut input = client.stdin.take().unwrap();
    let mut output = BufReader::new(client.stdout.take().unwrap());
    let mut line = [0; 6];
    for round in 0..3 {
        input.write_all(b"hello\n").await.unwrap();
        within(stream.read_exact(&mut line)).await.unwrap();
        assert_eq!(&line, b"hello\n");
        stream.write_all(b"world\n").await.unwrap();
        let mut said = String::new();
        within(output.read_line(&mut said)).await.unwrap();
        assert_eq!(said, "world\n", "round {round}");
        if stream.is_in_kernel() {
            continue;
        }
        ask_for_a_key(&mut input).await;
    }
    // Larger than a record, from us.
    let big = vec![b'x'; 100_000];
    stream.write_all(&big).await.unwrap();
    let mut got = vec![0; big.len()];
    within(output.read_exact(&mut got)).await.unwrap();
    assert!(got == big);
    if stream.is_in_kernel() {
        // It cannot send with another key.
        ask_for_a_key(&mut input).await;
        input.write_all(b"hello").await.unwrap();
        within(stream.read_exact(&mut line[..5])).await.unwrap();
        assert_eq!(&line[..5], b"hello");
        let error = within(stream.write(b"more")).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidData, "{error}");
        drop(stream);
        within(client.wait()).await.unwrap();
        return;
    }
    drop(input);
    assert_eq!(within(stream.read(&mut line)).await.unwrap(), 0);
    stream.shutdown().await.unwrap();
    assert!(within(client.wait()).await.unwrap().success());
}

#[tokio::test]
async fn our_client_talks_to_s_server_and_ends_in_order() {
    if !openssl() {
        return;
    }
    for suite in [
        "TLS_AES_128_GCM_SHA256",
        "TLS_AES_256_GCM_SHA384",
        "TLS_CHACHA20_POLY1305_SHA256",
    ] {
        let material = Material::new();
        // `-rev` sends every line back, reversed.
        let mut server = start(
            Command::new("openssl")
                .args(["s_server", "-tls1_3", "-rev", "-ciphersuites", suite])
                .args(["-accept", "127.0.0.1:0"])
                .arg("-cert")
                .arg(&material.certificate)
                .arg("-key")
                .arg(&material.key),
        );
        let mut output = BufReader::new(server.stdout.take().unwrap()).lines();
        let address: SocketAddr = loop {
            let line = within(output.next_line()).await.unwrap().unwrap();
            if let Some(address) = line.strip_prefix("ACCEPT ") {
                break address.parse().unwrap();
            }
        };
        let certificate = std::fs::read(&material.certificate).unwrap();
        let trust = Trust::roots_from_pem(&certificate).unwrap();
        let config = client_config(&trust, None, &options()).unwrap();
        let mut stream = within(connect(address, NAME, &config)).await.unwrap();
        assert_eq!(stream.authentication(), Authentication::Certificate);
        assert_eq!(stream.alpn(), None, "it names none");
        assert!(format!("{:?}", stream.cipher_suite()).ends_with(&suite[4..]));
        stream.write_all(b"drawkcab\n").await.unwrap();
        let mut answer = [0; 9];
        within(stream.read_exact(&mut answer)).await.unwrap();
        assert_eq!(&answer, b"backward\n");
        stream.shutdown().await.unwrap();
        assert_eq!(within(stream.read(&mut answer)).await.unwrap(), 0);
    }
}
