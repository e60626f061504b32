//! A request and its answer over secure TCP allocate nothing, once the buffers are there. Alone in
//! its process: it counts every allocation.

#[path = "../../cli/src/framed_echo/frames.rs"]
#[allow(dead_code, unreachable_pub, reason = "the same file is the command's")]
mod echo;
#[path = "stcp/peers.rs"]
#[allow(dead_code, reason = "each test program uses a part of this module")]
mod peers;

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use peers::{Sides, within};
use towline::config::Cipher;

struct Counting;

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

// SAFETY: every call goes to the system's allocator as it came.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Relaxed);
        // SAFETY: the caller's promise is the system allocator's condition.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[tokio::test]
async fn a_request_allocates_nothing() {
    for size in [256, 4096, 16_384, 65_536] {
        let (near, far) = Sides::with_cipher(Cipher::Aes128Gcm).streams().await;
        let server = tokio::spawn(echo::serve(far));
        let mut client = echo::Client::new(near, size);
        for _ in 0..200 {
            within(client.exchange()).await.unwrap();
        }
        let before = ALLOCATIONS.load(Relaxed);
        const REQUESTS: u64 = 1000;
        for _ in 0..REQUESTS {
            client.exchange().await.unwrap();
        }
        let allocations = ALLOCATIONS.load(Relaxed) - before;
        // A large frame may come in pieces, of which the rest waits in room of its own.
        let most = if size < 65_536 { 0 } else { REQUESTS / 2 };
        assert!(
            allocations <= most,
            "{allocations} for {REQUESTS} requests of {size} bytes"
        );
        client.finish().await.unwrap();
        server.await.unwrap().unwrap();
    }
}
