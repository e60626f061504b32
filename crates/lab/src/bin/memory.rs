//! `memory`: what one idle connection costs, in bytes of heap, on each side.
//!
//! Two endpoints in one process, joined by a function call; virtual time, no sockets. Handshakes
//! complete, everything is acknowledged, the connections go idle; then the heap is counted: by the
//! allocator for Rust's part on each side, by the C library for the whole (AEAD keys live in C).
#![expect(clippy::print_stdout, reason = "a program: it talks to its user")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};
use std::time::Duration;

use towline_lab::Host;
use towline_quic::{
    ClientConfig, ConnectionHandle, Direction, Endpoint, EndpointConfig, Event, ReadError,
    RetryPolicy, ServerConfig, StreamId, Time, TransportConfig,
};
use towline_sim::{Direct, Watch, World};
use towline_testkit::{SERVER_NAME, TlsOptions, tls_pair};

const USAGE: &str = "memory [--connections N] [--streams S] [--bytes B] [--sizes]
  --connections N  how many (default 2000)
  --streams S      streams the peer may have open, in each direction (default 100)
  --bytes B        first send B bytes each way on a stream of each connection (default 0)
  --sizes          list the allocations one connection holds, by size";

/// Time an exchange takes from one side to the other.
const ONE_WAY: Duration = Duration::from_millis(1);

/// Silence before the heap is counted.
const IDLE: Duration = Duration::from_secs(20);

// ---- the counting allocator ----

/// Whose turn it is: index into the tables below.
static SIDE: AtomicUsize = AtomicUsize::new(OTHER);
const CLIENT: usize = 0;
const SERVER: usize = 1;
const OTHER: usize = 2;

/// Sizes above this share the last class.
const CLASSES: usize = 4096;

/// Live allocations of each size, in units of eight bytes, and live bytes.
static LIVE: [[AtomicI64; CLASSES]; 3] = [const { [const { AtomicI64::new(0) }; CLASSES] }; 3];
static BYTES: [AtomicI64; 3] = [const { AtomicI64::new(0) }; 3];

fn count(size: usize, sign: i64) {
    let side = SIDE.load(Ordering::Relaxed);
    let class = size.div_ceil(8).min(CLASSES - 1);
    LIVE[side][class].fetch_add(sign, Ordering::Relaxed);
    BYTES[side].fetch_add(sign * size as i64, Ordering::Relaxed);
}

struct Counting;

// SAFETY: every call goes to `System` unchanged; counting neither allocates nor unwinds.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size(), 1);
        // SAFETY: the caller's promise about `layout` is passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count(layout.size(), -1);
        // SAFETY: the caller's promise about `pointer` and `layout` is passed on.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count(layout.size(), -1);
        count(size, 1);
        // SAFETY: the caller's promise about `pointer`, `layout` and `size` is passed on.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn on_side<R>(side: usize, f: impl FnOnce() -> R) -> R {
    SIDE.store(side, Ordering::Relaxed);
    let result = f();
    SIDE.store(OTHER, Ordering::Relaxed);
    result
}

// ---- two endpoints ----

struct Pair {
    world: World<Host, Direct>,
    watch: Sides,
}

/// Says whose turn it is, and drops the events.
struct Sides {
    accepted: Vec<ConnectionHandle>,
}

impl Watch<Host, Direct> for Sides {
    fn enter(&mut self, at: usize) {
        SIDE.store(at, Ordering::Relaxed);
    }

    fn leave(&mut self) {
        SIDE.store(OTHER, Ordering::Relaxed);
    }

    fn on_event(
        &mut self,
        _: Time,
        _: &mut [Host],
        _: usize,
        (handle, event): (ConnectionHandle, Event),
    ) {
        match event {
            Event::Accepted => self.accepted.push(handle),
            Event::Closed(error) => panic!("a connection ended: {error}"),
            _ => {}
        }
    }
}

impl Pair {
    /// Lets `time` pass, timers and all.
    fn run_for(&mut self, time: Duration) {
        self.world.pump_for(time, ONE_WAY, &mut self.watch);
    }

    /// `bytes` bytes each way on one stream, read to the end at both.
    fn exchange(&mut self, client: ConnectionHandle, server: ConnectionHandle, bytes: usize) {
        let opened = on_side(CLIENT, || {
            let client = self.world.hosts[CLIENT].endpoint.connection_mut(client)?;
            client.open(Direction::Bidirectional)
        });
        let id = opened.expect("the first stream of its connection");
        let handles = [client, server];
        let mut left = [bytes, bytes];
        let mut ended = [false, false];
        while ended != [true, true] {
            for side in [CLIENT, SERVER] {
                on_side(side, || {
                    let endpoint = &mut self.world.hosts[side].endpoint;
                    let Some(connection) = endpoint.connection_mut(handles[side]) else {
                        return;
                    };
                    if side == SERVER {
                        let _ = connection.accept(Direction::Bidirectional);
                    }
                    write(connection, id, &mut left[side]);
                    ended[side] |= drain(connection, id);
                });
            }
            self.run_for(Duration::from_millis(30));
        }
    }
}

fn write(connection: &mut towline_quic::Connection, id: StreamId, left: &mut usize) {
    const CHUNK: [u8; 16_384] = [7; 16_384];
    while *left > 0 {
        match connection.write_slice(id, &CHUNK[..CHUNK.len().min(*left)]) {
            Ok(n) => *left -= n,
            Err(_) => return,
        }
    }
    let _ = connection.finish(id);
}

/// Reads what there is; `true` at the end of the stream.
fn drain(connection: &mut towline_quic::Connection, id: StreamId) -> bool {
    loop {
        match connection.read(id, usize::MAX) {
            Ok(Some(_)) => {}
            Ok(None) => return true,
            Err(ReadError::Blocked | ReadError::ClosedStream) => return false,
            Err(error) => panic!("{error}"),
        }
    }
}

// ---- the program ----

struct Options {
    connections: usize,
    streams: u64,
    bytes: usize,
    sizes: bool,
}

fn options(mut args: impl Iterator<Item = String>) -> Result<Options, String> {
    let mut options = Options {
        connections: 2000,
        streams: 100,
        bytes: 0,
        sizes: false,
    };
    while let Some(name) = args.next() {
        let mut number = || -> Result<usize, String> {
            let value = args.next().ok_or(format!("{name} needs a number"))?;
            value
                .parse()
                .map_err(|_| format!("{value} is not a number"))
        };
        match name.as_str() {
            "--connections" => options.connections = number()?.max(1),
            "--streams" => options.streams = number()? as u64,
            "--bytes" => options.bytes = number()?,
            "--sizes" => options.sizes = true,
            _ => return Err(format!("unknown argument {name}")),
        }
    }
    Ok(options)
}

fn pair(options: &Options) -> (Pair, ClientConfig) {
    let tls = tls_pair(1, &TlsOptions::default());
    let transport = Arc::new(
        TransportConfig::default()
            .max_idle_timeout(Duration::from_secs(100_000))
            .max_concurrent_bidi_streams(options.streams)
            .max_concurrent_uni_streams(options.streams),
    );
    let mut server = ServerConfig::new(tls.server);
    server.transport = Arc::clone(&transport);
    server.retry = RetryPolicy::Never;
    server.max_connections = options.connections + 1;
    let mut client = ClientConfig::new(tls.client);
    client.transport = transport;
    let endpoints = [
        Endpoint::new(EndpointConfig::from_seed([1; 32]), None),
        Endpoint::new(EndpointConfig::from_seed([2; 32]), Some(Arc::new(server))),
    ];
    let addresses = [1, 2].map(|n| SocketAddr::from(([10, 0, 0, n], 1000 * u16::from(n))));
    let hosts = endpoints.into_iter().zip(addresses);
    let hosts: Vec<Host> = hosts.map(|(e, a)| Host::new(e, a)).collect();
    let pair = Pair {
        world: World::new(hosts, Direct::trains().without_ecn()),
        watch: Sides {
            accepted: Vec::new(),
        },
    };
    (pair, client)
}

fn main() -> ExitCode {
    let options = match options(std::env::args().skip(1)) {
        Ok(options) => options,
        Err(message) => {
            eprintln!("{message}\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    let (mut pair, config) = pair(&options);
    // One connection before the count: caches and tables that all share are there then.
    connect(&mut pair, &config, options.bytes);
    pair.run_for(IDLE);
    let before = Snapshot::take();
    for _ in 0..options.connections {
        connect(&mut pair, &config, options.bytes);
    }
    pair.run_for(IDLE);
    let after = Snapshot::take();
    report(&options, &before, &after);
    // Still held: a heap profiler sees what there is.
    std::process::exit(0);
}

fn connect(pair: &mut Pair, config: &ClientConfig, bytes: usize) {
    let (now, remote) = (pair.world.now, pair.world.hosts[SERVER].address);
    let endpoint = &mut pair.world.hosts[CLIENT].endpoint;
    let client = on_side(CLIENT, || {
        endpoint.connect(now, config, remote, SERVER_NAME)
    })
    .expect("the configuration is usable");
    pair.world.pump(ONE_WAY, &mut pair.watch);
    let server = pair.watch.accepted.pop().expect("no packet was lost");
    if bytes > 0 {
        pair.exchange(client, server, bytes);
    }
}

struct Snapshot {
    live: Vec<[i64; 2]>,
    bytes: [i64; 2],
    heap: Option<i64>,
}

impl Snapshot {
    fn take() -> Self {
        let both = |class: usize| [CLIENT, SERVER].map(|s| LIVE[s][class].load(Ordering::Relaxed));
        Self {
            bytes: [CLIENT, SERVER].map(|s| BYTES[s].load(Ordering::Relaxed)),
            heap: c_library::heap(),
            live: (0..CLASSES).map(both).collect(),
        }
    }
}

fn report(options: &Options, before: &Snapshot, after: &Snapshot) {
    let n = options.connections as f64;
    let per = |a: i64, b: i64| (b - a) as f64 / n;
    println!(
        "{} idle connections, {} streams permitted, {} bytes each way before",
        options.connections, options.streams, options.bytes
    );
    println!(
        "struct Connection: {} bytes",
        size_of::<towline_quic::Connection>()
    );
    let client = per(before.bytes[CLIENT], after.bytes[CLIENT]);
    let server = per(before.bytes[SERVER], after.bytes[SERVER]);
    println!("heap per connection, Rust: client {client:.0}, server {server:.0} bytes");
    if let (Some(a), Some(b)) = (before.heap, after.heap) {
        let whole = per(a, b);
        println!(
            "heap per connection, whole: {whole:.0} bytes for both sides; keys in C and the \
             allocator's own: {:.0} a side",
            (whole - client - server) / 2.0
        );
    }
    if !options.sizes {
        return;
    }
    for (name, side) in [("client", CLIENT), ("server", SERVER)] {
        println!("{name}: size x number");
        let mut rows: Vec<(f64, usize)> = (0..CLASSES)
            .map(|class| {
                let each = per(before.live[class][side], after.live[class][side]);
                (each, class * 8)
            })
            .filter(|(each, _)| each.abs() >= 0.01)
            .collect();
        rows.sort_by(|a, b| (b.0 * b.1 as f64).total_cmp(&(a.0 * a.1 as f64)));
        for (each, size) in rows.iter().take(30) {
            println!("  {size:>6} x {each:>6.2} = {:>7.0}", each * *size as f64);
        }
    }
}

/// What the C library says about its heap.
mod c_library {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    pub(super) fn heap() -> Option<i64> {
        /// `struct mallinfo2` of glibc 2.33 and later.
        #[repr(C)]
        struct Mallinfo2 {
            arena: usize,
            free_chunks: usize,
            fast_chunks: usize,
            mapped_regions: usize,
            mapped_bytes: usize,
            most: usize,
            fast_bytes: usize,
            used_bytes: usize,
            free_bytes: usize,
            top_bytes: usize,
        }
        unsafe extern "C" {
            fn mallinfo2() -> Mallinfo2;
        }
        // SAFETY: takes nothing, returns a plain struct by value, and is safe on any thread.
        let info = unsafe { mallinfo2() };
        i64::try_from(info.used_bytes + info.mapped_bytes).ok()
    }

    #[cfg(not(all(target_os = "linux", target_env = "gnu")))]
    pub(super) fn heap() -> Option<i64> {
        None
    }
}
