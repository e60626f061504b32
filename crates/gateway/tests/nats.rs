//! NATS JetStream: a server of the test's own, killed while records are published.
#![cfg(feature = "nats")]

mod common;

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use async_nats::jetstream;
use async_nats::jetstream::stream::Config;
use common::{PATIENCE, Random, Scratch, entries, free_port, record, skip, stream};
use data_encoding::BASE64URL_NOPAD;
use nkeys::KeyPair;
use tokio::time::{Instant, sleep};
use towline_gateway::{Entry, NatsOptions, Ranges, Sink, Status};

/// A server in a directory that goes with it.
struct Server {
    program: PathBuf,
    scratch: Scratch,
    port: u16,
    extra: Vec<String>,
    child: Option<Child>,
}

/// The program that `TOWLINE_NATS_SERVER` names, or the one that is installed.
fn program() -> Option<PathBuf> {
    let named = std::env::var_os("TOWLINE_NATS_SERVER").map(PathBuf::from);
    // Debian puts it where only root's PATH looks.
    let installed = ["nats-server", "/usr/sbin/nats-server"].map(PathBuf::from);
    let mut programs = named.into_iter().chain(installed);
    programs.find(|program| Command::new(program).arg("--version").output().is_ok())
}

impl Server {
    /// `None`, after saying so, where there is no NATS.
    fn new(test: &str, extra: &[&str]) -> Option<Self> {
        let Some(program) = program() else {
            let why = "no `nats-server` here and no TOWLINE_NATS_SERVER (make setup-system)";
            skip(&format!("NATS, {test}"), why);
            return None;
        };
        let mut server = Self {
            program,
            scratch: Scratch::new(),
            port: free_port(),
            extra: extra.iter().map(ToString::to_string).collect(),
            child: None,
        };
        server.start();
        Some(server)
    }

    fn start(&mut self) {
        let mut command = Command::new(&self.program);
        command
            .args([
                "-a",
                "127.0.0.1",
                "-p",
                &self.port.to_string(),
                "-js",
                "-sd",
            ])
            .arg(self.scratch.path().join("data"))
            .args(&self.extra)
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        self.child = Some(command.spawn().unwrap());
    }

    fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }

    fn url(&self) -> String {
        format!("nats://127.0.0.1:{}", self.port)
    }

    fn options(&self) -> NatsOptions {
        NatsOptions::new(self.url(), self.scratch.path().join("state"))
    }

    fn sink(&self) -> Sink {
        Sink::nats(self.options()).unwrap()
    }

    async fn up(&self) -> jetstream::Context {
        let start = Instant::now();
        loop {
            if let Ok(client) = async_nats::connect(self.url()).await {
                return jetstream::new(client);
            }
            assert!(start.elapsed() < PATIENCE, "it does not start");
            sleep(Duration::from_millis(50)).await;
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
    }
}

async fn write(sink: &mut Sink, boat: &towline_gateway::Stream, entries: &[Entry]) -> u32 {
    let start = Instant::now();
    let mut failures = 0;
    while let Err(error) = sink.write(boat, entries).await {
        assert!(!error.is_permanent(), "{error}");
        assert!(start.elapsed() < PATIENCE, "{error}");
        failures += 1;
        sleep(Duration::from_millis(20)).await;
    }
    failures
}

/// The messages of the stream: subject, id and text, in order.
async fn messages(context: &jetstream::Context) -> Vec<(String, String, String)> {
    let stream = context.get_stream("TOWLINE").await.unwrap();
    let last = stream.cached_info().state.last_sequence;
    let mut all = Vec::new();
    for seq in 1..=last {
        let message = stream.get_raw_message(seq).await.unwrap();
        let id = message.headers.get("Nats-Msg-Id").unwrap().to_string();
        let text = String::from_utf8(message.payload.to_vec()).unwrap();
        all.push((message.subject.to_string(), id, text));
    }
    all
}

#[tokio::test]
async fn records_are_filed_under_their_boat_and_a_repetition_changes_nothing() {
    let Some(server) = Server::new("records", &[]) else {
        return;
    };
    let context = server.up().await;
    let boat = stream("Ä.boat *", 255);
    let mut sink = server.sink();
    assert_eq!(sink.open(&boat).await.unwrap(), Ranges::default());
    assert_eq!(sink.status(), Status::Up);
    sink.write(&boat, &[]).await.unwrap();
    sink.write(&boat, &entries(0..300)).await.unwrap();
    sink.write(&boat, &entries(250..310)).await.unwrap();
    let expected = (0..310).collect::<Ranges>();
    assert_eq!(sink.open(&boat).await.unwrap(), expected);
    assert_eq!(server.sink().open(&boat).await.unwrap(), expected);
    // One that lost its state sends everything again, and the server knows it.
    let forgetful = NatsOptions {
        state: server.scratch.path().join("other"),
        ..server.options()
    };
    let mut forgetful = Sink::nats(forgetful).unwrap();
    assert_eq!(forgetful.open(&boat).await.unwrap(), Ranges::default());
    forgetful.write(&boat, &entries(0..310)).await.unwrap();
    let found = messages(&context).await;
    assert_eq!(found.len(), 310);
    for ((subject, id, text), entry) in found.iter().zip(entries(0..310)) {
        assert_eq!(subject, "towline.%C3%84%2Eboat%20%2A");
        let seq = entry.seq;
        assert_eq!(*id, format!("%C3%84%2Eboat%20%2A:00000000000000ff:{seq}"));
        assert_eq!(*text, entry.record.to_json());
    }
    let stream = context.get_stream("TOWLINE").await.unwrap();
    let config = &stream.cached_info().config;
    assert_eq!(config.duplicate_window, Duration::from_secs(48 * 3600));
    assert_eq!(config.storage, jetstream::stream::StorageType::File);
    assert_eq!(config.subjects, ["towline.*"]);
}

#[tokio::test]
async fn no_more_than_so_many_messages_are_under_way() {
    let Some(server) = Server::new("messages under way", &[]) else {
        return;
    };
    server.up().await;
    let boat = stream("a", 1);
    let mut sink = server.sink();
    // Several times the number, in one batch.
    sink.write(&boat, &entries(0..1500)).await.unwrap();
    assert_eq!(
        sink.open(&boat).await.unwrap(),
        (0..1500).collect::<Ranges>()
    );
}

#[tokio::test]
async fn what_no_repetition_mends_is_permanent_and_says_what_to_do() {
    let Some(server) = Server::new("errors", &["--user", "me", "--pass", "se@ret"]) else {
        return;
    };
    let boat = stream("a", 1);
    let with_user = server.url().replace("//", "//me:se%40ret@");
    let start = Instant::now();
    let context = loop {
        let options =
            async_nats::ConnectOptions::with_user_and_password("me".into(), "se@ret".into());
        if let Ok(client) = options.connect(server.url()).await {
            break jetstream::new(client);
        }
        assert!(start.elapsed() < PATIENCE, "it does not start");
        sleep(Duration::from_millis(50)).await;
    };
    let error = server.sink().open(&boat).await.unwrap_err();
    assert!(error.is_permanent(), "{error}");
    let options = NatsOptions {
        url: with_user,
        ..server.options()
    };
    assert!(!format!("{options:?}").contains("ret@"));
    let small = Config {
        name: "TOWLINE".to_owned(),
        subjects: vec!["towline.*".to_owned()],
        ..Config::default()
    };
    context.create_stream(small.clone()).await.unwrap();
    let mut sink = Sink::nats(options).unwrap();
    let error = sink.open(&boat).await.unwrap_err();
    assert!(error.is_permanent());
    assert!(error.to_string().contains("--dupe-window=48h"), "{error}");
    let wide = Config {
        duplicate_window: Duration::from_secs(48 * 3600),
        ..small
    };
    context.update_stream(wide).await.unwrap();
    sink.open(&boat).await.unwrap();
    // One record that the server never takes is named; the others go.
    let mut some = entries(0..3);
    let long = format!("{{\"a\":\"{}\"}}", "x".repeat(1_048_560));
    some[1].record = record(&long);
    let error = sink.write(&boat, &some).await.unwrap_err();
    assert!(error.is_permanent());
    assert_eq!(error.entry(), Some(1), "{error}");
    some.remove(1);
    sink.write(&boat, &some).await.unwrap();
    assert_eq!(
        sink.open(&boat).await.unwrap(),
        [0, 2].into_iter().collect()
    );

    let options = NatsOptions::new("nats://127.0.0.1", "/tmp");
    for subject in ["a", "a..{name}", "a.{name}.>", "a b.{name}", "a{name}"] {
        let subject = subject.to_owned();
        let options = NatsOptions {
            subject,
            ..options.clone()
        };
        Sink::nats(options).unwrap_err();
    }
    let nowhere = format!("nats://127.0.0.1:{}", free_port());
    let mut sink = Sink::nats(NatsOptions::new(nowhere, server.scratch.path())).unwrap();
    let error = sink.open(&boat).await.unwrap_err();
    assert!(!error.is_permanent(), "{error}");
}

#[tokio::test]
async fn what_was_not_written_down_is_not_taken_for_known() {
    let Some(server) = Server::new("a state that cannot be written", &[]) else {
        return;
    };
    let context = server.up().await;
    let boat = stream("boat", 1);
    let mut sink = server.sink();
    write(&mut sink, &boat, &entries(0..3)).await;
    let state = server.scratch.path().join("state");
    let aside = server.scratch.path().join("aside");
    std::fs::rename(&state, &aside).unwrap();
    std::fs::write(&state, b"no folder").unwrap();
    for _ in 0..2 {
        let error = sink.write(&boat, &entries(3..5)).await.unwrap_err();
        assert!(!error.is_permanent(), "{error}");
    }
    std::fs::remove_file(&state).unwrap();
    std::fs::rename(&aside, &state).unwrap();
    sink.write(&boat, &entries(3..5)).await.unwrap();
    let known = server.sink().open(&boat).await.unwrap();
    assert_eq!(known, (0..5).collect::<Ranges>());
    assert_eq!(messages(&context).await.len(), 5);
}

/// What a server knows users by: a claim that another key signed.
fn token(issuer: &KeyPair, subject: &KeyPair, nats: &serde_json::Value) -> String {
    let claims = serde_json::json!({
        "jti": subject.public_key(), "iat": 0, "iss": issuer.public_key(), "sub": subject.public_key(),
        "name": "towline", "nats": nats,
    });
    let header = BASE64URL_NOPAD.encode(br#"{"typ":"JWT","alg":"ed25519-nkey"}"#);
    let text = format!(
        "{header}.{}",
        BASE64URL_NOPAD.encode(claims.to_string().as_bytes())
    );
    let signature = issuer.sign(text.as_bytes()).unwrap();
    format!("{text}.{}", BASE64URL_NOPAD.encode(&signature))
}

#[tokio::test]
async fn a_user_s_credentials_open_a_server_of_an_operator() {
    let [operator, account, system, user, stranger] = [
        KeyPair::new_operator(),
        KeyPair::new_account(),
        KeyPair::new_account(),
        KeyPair::new_user(),
        KeyPair::new_user(),
    ];
    let all = serde_json::json!({
        "subs": -1, "data": -1, "payload": -1, "imports": -1, "exports": -1, "wildcards": true, "conn": -1,
        "leaf": -1, "mem_storage": -1, "disk_storage": -1, "streams": -1, "consumer": -1,
    });
    let stored = serde_json::json!({ "type": "account", "version": 2, "limits": all });
    let plain = serde_json::json!({ "type": "account", "version": 2 });
    let scratch = Scratch::new();
    let config = scratch.path().join("server.conf");
    let text = format!(
        "operator: {}\nsystem_account: {system}\nresolver: MEMORY\nresolver_preload: {{ {account}: {}, {system}: {} }}\n",
        token(
            &operator,
            &operator,
            &serde_json::json!({ "type": "operator", "version": 2 })
        ),
        token(&operator, &account, &stored),
        token(&operator, &system, &plain),
        account = account.public_key(),
        system = system.public_key(),
    );
    std::fs::write(&config, text).unwrap();
    let Some(server) = Server::new("credentials", &["-c", config.to_str().unwrap()]) else {
        return;
    };
    // The form that `nsc` writes.
    let claim = serde_json::json!({
        "type": "user", "version": 2, "subs": -1, "data": -1, "payload": -1,
    });
    let file = |signer: &KeyPair| {
        format!(
            "-----BEGIN NATS USER JWT-----\n{}\n------END NATS USER JWT------\n\n\
             -----BEGIN USER NKEY SEED-----\n{}\n------END USER NKEY SEED------\n",
            token(&account, &user, &claim),
            signer.seed().unwrap(),
        )
    };
    let with = |credentials| {
        let options = NatsOptions {
            credentials,
            ..server.options()
        };
        Sink::nats(options).unwrap()
    };
    let boat = stream("boat", 1);
    let mut sink = with(Some(file(&user)));
    write(&mut sink, &boat, &entries(0..3)).await;
    assert_eq!(sink.open(&boat).await.unwrap(), (0..3).collect::<Ranges>());
    for wrong in [None, Some(file(&stranger)), Some("no keys".to_owned())] {
        let error = with(wrong).write(&boat, &entries(3..4)).await.unwrap_err();
        assert!(error.is_permanent(), "{error}");
    }
}

#[tokio::test]
async fn a_write_that_is_dropped_half_way_is_there_once_after_all() {
    let Some(server) = Server::new("dropped futures", &[]) else {
        return;
    };
    let context = server.up().await;
    let mut sink = server.sink();
    let boat = stream("a", 1);
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    for batch in 0..20 {
        let some = entries(batch * 50..(batch + 1) * 50);
        let patience = Duration::from_micros(random.below(3000));
        let _ = tokio::time::timeout(patience, sink.write(&boat, &some)).await;
        write(&mut sink, &boat, &some).await;
    }
    each_once(&context, 1000).await;
}

async fn each_once(context: &jetstream::Context, count: u64) {
    let found = messages(context).await;
    let mut ids: Vec<&str> = found.iter().map(|(_, id, _)| id.as_str()).collect();
    ids.sort_unstable();
    let mut expected: Vec<String> = (0..count)
        .map(|seq| format!("a:0000000000000001:{seq}"))
        .collect();
    expected.sort_unstable();
    assert_eq!(ids, expected);
}

#[tokio::test]
async fn each_record_is_there_once_whenever_the_server_is_killed() {
    let Some(mut server) = Server::new("kill -9", &[]) else {
        return;
    };
    server.up().await;
    let mut sink = server.sink();
    let boat = stream("a", 1);
    const BATCH: u64 = 50;
    const BATCHES: u64 = 200;
    let (done, mut kills) = tokio::sync::watch::channel(0);
    let writing = tokio::spawn(async move {
        let mut failures = 0;
        for batch in 0..BATCHES {
            let from = (batch * BATCH).saturating_sub(BATCH / 2);
            failures += write(&mut sink, &boat, &entries(from..(batch + 1) * BATCH)).await;
            done.send_replace(batch + 1);
        }
        (sink, boat, failures)
    });
    let mut random = Random(0x2545_f491_4f6c_dd1d);
    for kill in 1..=6 {
        kills.wait_for(|&done| done >= kill * 30).await.unwrap();
        sleep(Duration::from_micros(random.below(20_000))).await;
        server.kill();
        server.start();
        server.up().await;
    }
    let (mut sink, boat, failures) = writing.await.unwrap();
    assert!(failures > 0, "no kill was noticed");
    let context = server.up().await;
    each_once(&context, BATCHES * BATCH).await;
    assert_eq!(
        sink.open(&boat).await.unwrap(),
        (0..BATCHES * BATCH).collect::<Ranges>()
    );
}
