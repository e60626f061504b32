//! PostgreSQL: a cluster of the test's own, killed while records are written.
#![cfg(feature = "postgres")]

mod common;

use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use common::{PATIENCE, Random, Scratch, entries, free_port, record, skip, stream};
use tokio::time::{Instant, sleep};
use tokio_postgres::{Client, NoTls};
use towline_gateway::{Entry, PostgresOptions, Ranges, Sink, SinkError, Status};

/// A server in a directory that goes with it.
struct Cluster {
    bin: PathBuf,
    scratch: Scratch,
    port: u16,
    server: Option<Child>,
}

/// Nobody may run it as root.
fn is_root() -> bool {
    std::fs::metadata("/proc/self")
        .is_ok_and(|meta| std::os::unix::fs::MetadataExt::uid(&meta) == 0)
}

const NOBODY: u32 = 65_534;

impl Cluster {
    /// `None`, after saying so, where there is no PostgreSQL.
    fn new(test: &str) -> Option<Self> {
        let installed = std::fs::read_dir("/usr/lib/postgresql").ok();
        let folders = installed.into_iter().flatten().flatten();
        let bin = folders
            .map(|entry| entry.path().join("bin"))
            .filter(|bin| bin.join("initdb").exists())
            .max();
        let Some(bin) = bin else {
            skip(
                &format!("PostgreSQL, {test}"),
                "postgresql is not installed (make setup-system)",
            );
            return None;
        };
        let mut cluster = Self {
            bin,
            scratch: Scratch::new(),
            port: free_port(),
            server: None,
        };
        if is_root() {
            std::os::unix::fs::chown(cluster.scratch.path(), Some(NOBODY), Some(NOBODY)).unwrap();
        }
        let made = cluster
            .program("initdb")
            .args([
                "-U",
                "towline",
                "-A",
                "trust",
                "--no-locale",
                "-E",
                "UTF8",
                "-D",
            ])
            .arg(cluster.scratch.path().join("data"))
            .stdout(Stdio::null())
            .status();
        assert!(made.unwrap().success(), "initdb");
        cluster.start();
        Some(cluster)
    }

    fn program(&self, name: &str) -> Command {
        let mut command = Command::new(self.bin.join(name));
        if is_root() {
            command.uid(NOBODY).gid(NOBODY);
        }
        command.current_dir(self.scratch.path());
        command
    }

    fn start(&mut self) {
        let log = std::fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(self.scratch.path().join("log"))
            .unwrap();
        let mut command = self.program("postgres");
        command
            .arg("-D")
            .arg(self.scratch.path().join("data"))
            .args([
                "-p",
                &self.port.to_string(),
                "-c",
                "listen_addresses=127.0.0.1",
            ])
            .args([
                "-c",
                "unix_socket_directories=",
                "-c",
                "synchronous_commit=off",
            ])
            .stdout(Stdio::null())
            .stderr(log);
        self.server = Some(command.spawn().unwrap());
    }

    fn kill(&mut self) {
        if let Some(mut server) = self.server.take() {
            server.kill().unwrap();
            server.wait().unwrap();
        }
    }

    /// Starts it again. The backends of the one killed may be there for a moment, and it then ends at once.
    async fn revive(&mut self) {
        let start = Instant::now();
        self.start();
        while self.client().await.is_none() {
            assert!(start.elapsed() < PATIENCE, "it does not start again");
            let server = self.server.as_mut().unwrap();
            if server.try_wait().unwrap().is_some() {
                self.start();
            }
            sleep(Duration::from_millis(50)).await;
        }
    }

    fn url(&self) -> String {
        let port = self.port;
        format!("postgresql://towline@127.0.0.1:{port}/postgres?sslmode=disable")
    }

    fn sink(&self) -> Sink {
        sink(&self.url())
    }

    async fn client(&self) -> Option<Client> {
        let (client, connection) = tokio_postgres::connect(&self.url(), NoTls).await.ok()?;
        tokio::spawn(connection);
        Some(client)
    }

    async fn up(&self) -> Client {
        let start = Instant::now();
        loop {
            if let Some(client) = self.client().await {
                return client;
            }
            assert!(start.elapsed() < PATIENCE, "it does not start");
            sleep(Duration::from_millis(50)).await;
        }
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        // Its backends go with it, which they would not at once if it were killed.
        let mut stop = self.program("pg_ctl");
        stop.args(["stop", "-s", "-W", "-m", "fast", "-D"])
            .arg(self.scratch.path().join("data"))
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let told = stop.status().is_ok_and(|status| status.success());
        match &mut self.server {
            Some(server) if told => drop(server.wait()),
            _ => self.kill(),
        }
    }
}

fn sink(url: &str) -> Sink {
    let url = url.to_owned();
    Sink::postgres(PostgresOptions { url, tls: None }).unwrap()
}

/// Writes until it worked; says how often it did not.
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

#[tokio::test]
async fn records_and_the_cursor_are_there_and_a_repetition_changes_nothing() {
    let Some(cluster) = Cluster::new("records") else {
        return;
    };
    let client = cluster.up().await;
    let mut sink = cluster.sink();
    let (boat, other) = (stream("Ä 'boat'", u64::MAX), stream("Ä 'boat'", 1));
    assert_eq!(sink.open(&boat).await.unwrap(), Ranges::default());
    assert_eq!(sink.status(), Status::Up);
    sink.write(&boat, &[]).await.unwrap();
    sink.write(&boat, &entries(0..10)).await.unwrap();
    sink.write(&boat, &entries(5..20)).await.unwrap();
    sink.write(&boat, &entries(30..40)).await.unwrap();
    // One entry twice in one batch, too.
    sink.write(&other, &[entries(3..4), entries(3..4)].concat())
        .await
        .unwrap();
    let expected = (0..20).chain(30..40).collect::<Ranges>();
    assert_eq!(sink.open(&boat).await.unwrap(), expected);
    assert_eq!(cluster.sink().open(&boat).await.unwrap(), expected);
    assert_eq!(sink.open(&other).await.unwrap(), (3..4).collect::<Ranges>());
    let rows = client
        .query(
            "SELECT seq, record::text FROM towline_records WHERE stream_id = -1 ORDER BY seq",
            &[],
        )
        .await
        .unwrap();
    let found: Vec<Entry> = rows
        .iter()
        .map(|row| Entry {
            seq: row.get::<_, i64>(0).cast_unsigned(),
            record: record(row.get(1)),
        })
        .collect();
    assert_eq!(found, [entries(0..20), entries(30..40)].concat());
}

#[tokio::test]
async fn texts_numbers_and_the_order_of_keys_are_kept_exactly() {
    let Some(cluster) = Cluster::new("texts") else {
        return;
    };
    let client = cluster.up().await;
    let mut sink = cluster.sink();
    let boat = stream("a", 1);
    let texts = [
        r#"{"b":"\u0000","a":"\"\\ö😀","":[1.5e-300,-0.0,123456789012345678901234567890]}"#
            .to_owned(),
        format!(
            "{}1{}",
            "{\"a\":[".to_owned() + &"[".repeat(60),
            "]".repeat(61) + "}"
        ),
        format!(r#"{{"long":"{}"}}"#, "x".repeat(1_000_000)),
    ];
    let all: Vec<Entry> = (0..)
        .zip(&texts)
        .map(|(seq, text)| Entry {
            seq,
            record: record(text),
        })
        .collect();
    sink.write(&boat, &all).await.unwrap();
    let rows = client
        .query("SELECT record::text FROM towline_records ORDER BY seq", &[])
        .await
        .unwrap();
    for (row, entry) in rows.iter().zip(&all) {
        let text: String = row.get(0);
        assert_eq!(text, entry.record.to_json());
        assert_eq!(record(&text), entry.record);
    }
    assert_eq!(rows.len(), all.len());
}

#[tokio::test]
async fn what_no_repetition_mends_is_permanent_and_says_so() {
    let Some(cluster) = Cluster::new("errors") else {
        return;
    };
    let client = cluster.up().await;
    let boat = stream("a", 1);
    let error =
        async |mut sink: Sink| -> SinkError { sink.open(&boat).await.map(drop).unwrap_err() };
    let port = cluster.port;
    let at = |rest: &str| sink(&format!("postgresql://{rest}?sslmode=disable"));
    let found = error(at(&format!("towline@127.0.0.1:{port}/nowhere"))).await;
    assert!(
        found.is_permanent() && found.to_string().contains("nowhere"),
        "{found}"
    );
    let found = error(at(&format!("stranger@127.0.0.1:{port}/postgres"))).await;
    assert!(
        found.is_permanent() && found.to_string().contains("stranger"),
        "{found}"
    );
    let nobody = free_port();
    let found = error(at(&format!("towline@127.0.0.1:{nobody}/postgres"))).await;
    assert!(!found.is_permanent(), "{found}");

    let sql =
        "CREATE DATABASE latin ENCODING 'LATIN1' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0";
    client.batch_execute(sql).await.unwrap();
    let found = error(at(&format!("towline@127.0.0.1:{port}/latin"))).await;
    assert!(
        found.is_permanent() && found.to_string().contains("UTF8"),
        "{found}"
    );

    // Who may not make tables can still write where they are.
    cluster.sink().open(&boat).await.unwrap();
    let sql = "CREATE ROLE writer LOGIN; GRANT SELECT, INSERT ON towline_records TO writer";
    client.batch_execute(sql).await.unwrap();
    let url = format!("writer@127.0.0.1:{port}/postgres");
    let found = error(at(&url)).await;
    assert!(
        found.is_permanent() && found.to_string().contains("permission"),
        "{found}"
    );
    let sql = "GRANT SELECT, INSERT, UPDATE ON towline_cursors TO writer";
    client.batch_execute(sql).await.unwrap();
    at(&url).write(&boat, &entries(0..1)).await.unwrap();

    let mut sink = cluster.sink();
    let zero = stream("a\0", 1);
    assert!(
        sink.write(&zero, &entries(0..1))
            .await
            .unwrap_err()
            .is_permanent()
    );
    let mut huge = entries(0..1);
    huge[0].seq = i64::MAX as u64;
    assert!(sink.write(&boat, &huge).await.unwrap_err().is_permanent());
    let bad = PostgresOptions {
        url: "postgresql://me:secret@host:x/".to_owned(),
        tls: None,
    };
    let found = Sink::postgres(bad).unwrap_err().to_string();
    assert!(!found.contains("secret"), "{found}");
}

#[tokio::test]
async fn a_write_that_is_dropped_half_way_is_written_once_after_all() {
    let Some(cluster) = Cluster::new("dropped futures") else {
        return;
    };
    let client = cluster.up().await;
    let mut sink = cluster.sink();
    let boat = stream("a", 1);
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    for batch in 0..40 {
        let some = entries(batch * 25..(batch + 1) * 25);
        let patience = Duration::from_micros(random.below(3000));
        let _ = tokio::time::timeout(patience, sink.write(&boat, &some)).await;
        write(&mut sink, &boat, &some).await;
    }
    each_once(&client, 1000).await;
    assert_eq!(
        sink.open(&boat).await.unwrap(),
        (0..1000).collect::<Ranges>()
    );
}

async fn each_once(client: &Client, count: i64) {
    let sql = "SELECT count(*), count(DISTINCT seq), min(seq), max(seq) FROM towline_records";
    let row = client.query_one(sql, &[]).await.unwrap();
    let found: [i64; 4] = std::array::from_fn(|at| row.get(at));
    assert_eq!(found, [count, count, 0, count - 1]);
}

#[tokio::test]
async fn each_record_is_there_once_whenever_the_server_is_killed() {
    let Some(mut cluster) = Cluster::new("kill -9") else {
        return;
    };
    cluster.up().await;
    let mut sink = cluster.sink();
    let boat = stream("a", 1);
    const BATCH: u64 = 20;
    const BATCHES: u64 = 300;
    let (done, mut kills) = tokio::sync::watch::channel(0);
    let writing = tokio::spawn(async move {
        let mut failures = 0;
        for batch in 0..BATCHES {
            // Batches overlap, as those do that are sent again.
            let from = (batch * BATCH).saturating_sub(BATCH / 2);
            failures += write(&mut sink, &boat, &entries(from..(batch + 1) * BATCH)).await;
            done.send_replace(batch + 1);
        }
        (sink, boat, failures)
    });
    let mut random = Random(0x2545_f491_4f6c_dd1d);
    for kill in 1..=6 {
        // Well under way, and then at any moment.
        kills.wait_for(|&done| done >= kill * 40).await.unwrap();
        sleep(Duration::from_micros(random.below(20_000))).await;
        cluster.kill();
        cluster.revive().await;
    }
    let (mut sink, boat, failures) = writing.await.unwrap();
    assert!(failures > 0, "no kill was noticed");
    let client = cluster.up().await;
    let count = BATCHES * BATCH;
    each_once(&client, count.cast_signed()).await;
    assert_eq!(
        sink.open(&boat).await.unwrap(),
        (0..count).collect::<Ranges>()
    );
}
