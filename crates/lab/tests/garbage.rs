//! What an Initial that is not authentic costs a server, in bytes of heap asked for: two single calls
//! into engines, made by hand.
#![expect(clippy::print_stdout, reason = "figures for whoever reads the log")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::Arc;

use towline_quic::{
    ClientConfig, DatagramMeta, Endpoint, EndpointConfig, ServerConfig, Time, TrainBuf,
};
use towline_testkit::{SERVER_NAME, TlsOptions, tls_pair};

thread_local! {
    static ASKED: Cell<usize> = const { Cell::new(0) };
}

struct Counting;

// SAFETY: every call goes to `System` unchanged; counting neither allocates nor unwinds.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // A thread that is ending has no counter any more.
        let _ = ASKED.try_with(|asked| asked.set(asked.get() + layout.size()));
        // SAFETY: the caller's promise about `layout` is passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise about `pointer` and `layout` is passed on.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[test]
fn a_garbage_initial_is_recognised_before_a_tls_session_is_made_for_it() {
    let tls = tls_pair(1, &TlsOptions::default());
    let now = Time::from_nanos(1_000_000_000);
    let server = ([10, 0, 0, 2], 443).into();
    let mut client = Endpoint::new(EndpointConfig::from_seed([1; 32]), None);
    let config = ClientConfig::new(tls.client);
    let connected = client.connect(now, &config, server, SERVER_NAME);
    assert!(connected.is_ok());
    let mut buf = TrainBuf::new();
    assert!(client.poll_transmit(now, &mut buf).is_some());
    let hello = buf.filled().to_vec();

    let config = Arc::new(ServerConfig::new(tls.server));
    let mut server = Endpoint::new(EndpointConfig::from_seed([2; 32]), Some(config));
    let cost = |server: &mut Endpoint, datagram: &[u8]| {
        let mut bytes = datagram.to_vec();
        let meta = DatagramMeta {
            remote: ([10, 0, 0, 1], 1000).into(),
            local_ip: None,
            ecn: None,
            stride: bytes.len(),
        };
        let before = ASKED.get();
        server.handle_datagrams(now, meta, &mut bytes);
        ASKED.get() - before
    };
    let mut garbage = hello.clone();
    garbage[1100] ^= 1;
    // The first makes the tables.
    cost(&mut server, &garbage);
    let costs: Vec<_> = (0..100).map(|_| cost(&mut server, &garbage)).collect();
    let garbage = *costs.iter().max().unwrap_or(&0);
    let genuine = cost(&mut server, &hello);
    println!("garbage: {garbage} bytes, a genuine hello: {genuine} bytes");
    assert_eq!(server.stats().admitted, 1);
    assert!(garbage < 4096, "{garbage} bytes for garbage");
    assert!(genuine > 10_000, "{genuine} bytes for a genuine hello");
}
