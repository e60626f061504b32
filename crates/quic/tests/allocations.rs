//! What the engine asks of the allocator for a message of a connection that speaks now and then.
//! Alone in its process: it counts calls.

mod common;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use common::{CLIENT, Options, Pair, SERVER, ms, secs};
use towline_quic::{DatagramMeta, Direction, ReadError, StreamId, TrainBuf};

thread_local! {
    static COUNTING: Cell<bool> = const { Cell::new(false) };
    static CALLS: Cell<u64> = const { Cell::new(0) };
}

fn note() {
    let _ = COUNTING.try_with(|counting| {
        if counting.get() {
            CALLS.with(|calls| calls.set(calls.get() + 1));
        }
    });
}

struct Counting;

// SAFETY: every call goes to the system's allocator as it came.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        note();
        // SAFETY: the caller's promise is the system allocator's condition.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        note();
        // SAFETY: as above.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        note();
        // SAFETY: as above.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Counts what `f` asks for.
fn counted<R>(f: impl FnOnce() -> R) -> R {
    COUNTING.set(true);
    let result = f();
    COUNTING.set(false);
    result
}

/// Two ends joined by a function call. Only calls into the engine count.
struct Wire {
    pair: Pair,
    train: TrainBuf,
    bytes: Vec<u8>,
}

impl Wire {
    /// Carries all there is, both ways.
    fn pump(&mut self) {
        let mut quiet = 0;
        let mut from = CLIENT;
        while quiet < 2 {
            let Self { pair, train, bytes } = self;
            let now = pair.now;
            let sent = counted(|| pair.hosts[from].endpoint.poll_transmit(now, train));
            let Some(transmit) = sent else {
                quiet += 1;
                from = 1 - from;
                continue;
            };
            quiet = 0;
            bytes.clear();
            bytes.extend_from_slice(train.filled());
            let meta = DatagramMeta {
                remote: pair.hosts[from].address,
                local_ip: None,
                ecn: transmit.ecn,
                stride: transmit.segment_size,
            };
            let to = &mut pair.hosts[1 - from].endpoint;
            counted(|| to.handle_datagrams(now, meta, bytes));
        }
        for host in &mut self.pair.hosts {
            counted(|| while host.endpoint.poll_event().is_some() {});
        }
    }

    /// Lets `time` pass, timers and all.
    fn run_for(&mut self, time: std::time::Duration) {
        let end = self.pair.now + time;
        self.pump();
        loop {
            let next = self
                .pair
                .hosts
                .iter()
                .filter_map(|h| h.endpoint.next_timeout());
            let Some(at) = next.min().filter(|&at| at <= end) else {
                break;
            };
            let now = self.pair.now.max(at);
            self.pair.now = now;
            for host in &mut self.pair.hosts {
                counted(|| host.endpoint.handle_timeout(now));
            }
            self.pump();
        }
        self.pair.now = end;
    }

    fn message(&mut self, id: StreamId) {
        let now = self.pair.now;
        counted(|| self.pair.client().write_slice(id, &[7; 200])).unwrap();
        self.pump();
        self.pair.now = now + ms(1);
        let mut buffer = [0; 500];
        let read = counted(|| self.pair.server().read_slice(id, &mut buffer));
        assert_eq!(read, Ok(Some(200)));
        let empty = counted(|| self.pair.server().read_slice(id, &mut buffer));
        assert_eq!(empty, Err(ReadError::Blocked));
    }
}

#[test]
fn a_message_every_100_ms_allocates_next_to_nothing() {
    let mut wire = Wire {
        pair: Pair::connected(Options::default()),
        train: TrainBuf::new(),
        bytes: Vec::with_capacity(1 << 16),
    };
    let id = wire.pair.client().open(Direction::Bidirectional).unwrap();
    for _ in 0..20 {
        wire.message(id);
        wire.run_for(ms(99));
    }
    assert_eq!(
        wire.pair.server().accept(Direction::Bidirectional),
        Some(id)
    );
    CALLS.set(0);
    const MESSAGES: u64 = 200;
    for _ in 0..MESSAGES {
        wire.message(id);
        wire.run_for(ms(99));
    }
    let calls = CALLS.get();
    assert!(
        calls <= MESSAGES / 4,
        "{calls} calls for {MESSAGES} messages"
    );
    // What was kept for the next message goes once none comes.
    CALLS.set(0);
    wire.run_for(secs(5));
    assert!(CALLS.get() > 0, "a quiet connection gives nothing back");
    assert_eq!(wire.pair.conn(SERVER).stats().packets_lost, 0);
}
