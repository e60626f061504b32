//! What the engine asks of the allocator for a message of a connection that speaks now and then.
//! Alone in its process: it counts calls.

mod common;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::time::Duration;

use common::{CLIENT, Host, Options, Pair, SERVER, ms, secs};
use towline_quic::{Connection, Direction, ReadError, StreamId};
use towline_sim::{Direct, Watch, World};

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

/// Counts while the world is inside an engine. Nobody hears the events.
struct Counter;

impl Watch<Host, Direct> for Counter {
    fn enter(&mut self, _: usize) {
        COUNTING.set(true);
    }

    fn leave(&mut self) {
        COUNTING.set(false);
    }
}

/// Two ends joined by a function call. Only calls into the engine count.
struct Wire(World<Host, Direct>);

impl Wire {
    /// Lets `time` pass, timers and all.
    fn run_for(&mut self, time: Duration) {
        self.0.pump_for(time, Duration::ZERO, &mut Counter);
    }

    fn conn(&mut self, side: usize) -> &mut Connection {
        self.0.hosts[side].conn()
    }

    fn message(&mut self, id: StreamId) {
        counted(|| self.conn(CLIENT).write_slice(id, &[7; 200])).unwrap();
        self.0.pump(Duration::ZERO, &mut Counter);
        self.0.now += ms(1);
        let mut buffer = [0; 500];
        let read = counted(|| self.conn(SERVER).read_slice(id, &mut buffer));
        assert_eq!(read, Ok(Some(200)));
        let empty = counted(|| self.conn(SERVER).read_slice(id, &mut buffer));
        assert_eq!(empty, Err(ReadError::Blocked));
    }
}

#[test]
fn a_message_every_100_ms_allocates_next_to_nothing() {
    let mut wire = Wire(Pair::connected(Options::default()).on(Direct::trains()));
    let id = wire.conn(CLIENT).open(Direction::Bidirectional).unwrap();
    for _ in 0..20 {
        wire.message(id);
        wire.run_for(ms(99));
    }
    assert_eq!(wire.conn(SERVER).accept(Direction::Bidirectional), Some(id));
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
    assert_eq!(wire.conn(SERVER).stats().packets_lost, 0);
}
