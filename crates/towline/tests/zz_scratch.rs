use std::net::SocketAddr;
use std::time::{Duration, Instant};
use towline::config::{self, ClientAuth, Identity, Options, Trust};
use towline::identity::Pin;
use towline::Endpoint;
use bytes::Bytes;
fn cpu() -> f64 { let s = std::fs::read_to_string("/proc/self/stat").unwrap(); let f: Vec<&str> = s.rsplit(')').next().unwrap().split_whitespace().collect(); (f[11].parse::<f64>().unwrap()+f[12].parse::<f64>().unwrap())/100.0 }
async fn run(bytes: usize) {
    let identity = Identity::generate_dev(&["localhost"], config::unix_now()).unwrap();
    let trust = Trust::Pinned(vec![Pin::Key(identity.key_pin())]);
    let mut o = Options::new("t"); o.transport.mtu = std::env::var("MTU").map_or(1452, |m| m.parse().unwrap());
    let c = config::client(&trust, None, &o).unwrap(); let s = config::server(&identity, &ClientAuth::None, &o).unwrap();
    let lo = SocketAddr::from(([127,0,0,1],0));
    let server = Endpoint::server(lo, s).unwrap(); let client = Endpoint::client(lo).unwrap();
    let (a, b) = tokio::join!(client.connect(server.local_addr(), "localhost", &c), server.accept());
    let (a, b) = (a.unwrap(), b.unwrap());
    let c0 = cpu(); tokio::time::sleep(Duration::from_secs(2)).await; println!("idle cpu {:.3} s in 2 s", cpu()-c0);
    let t = Instant::now(); let c0 = cpu();
    let w = tokio::spawn({ let a = a.clone(); async move { let mut s = a.open_uni().await.unwrap(); let block = Bytes::from(vec![7u8; 256*1024]); let mut left = bytes; while left > 0 { let n = left.min(block.len()); s.write_chunk(block.slice(..n)).await.unwrap(); left -= n; } s.finished().await.unwrap(); }});
    let r = tokio::spawn(async move { let mut r = b.accept_uni().await.unwrap(); let mut n = 0; let mut chunks = 0u64; while let Some(c) = r.read_chunk(1<<20).await.unwrap() { n += c.len(); chunks += 1; } println!("chunks {chunks} avg {}", n as u64/chunks); n });
    w.await.unwrap(); assert_eq!(r.await.unwrap(), bytes);
    let e = t.elapsed().as_secs_f64(); println!("{:.2} Gbit/s, cpu {:.2} s/GB, {:?}\nclient {:?}\nserver {:?}\n{:?}", bytes as f64*8.0/e/1e9, (cpu()-c0)/(bytes as f64/1e9), t.elapsed(), client.socket_stats(), server.socket_stats(), a.stats());
}
#[tokio::test(flavor = "current_thread")] async fn one() { run(300_000_000).await }
#[tokio::test(flavor = "multi_thread", worker_threads = 2)] async fn two() { run(300_000_000).await }
