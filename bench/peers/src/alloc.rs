//! An allocator that counts, and the window in which a bulk transfer is steady.
//!
//! `bench-peer-counting` installs [`Counting`]; in `bench-peer` nothing counts and
//! [`Steady::allocations`] is `None`.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

static COUNTS: AtomicBool = AtomicBool::new(false);
static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

/// The system's allocator with a count of calls that ask for memory.
pub struct Counting;

impl Counting {
    fn count() {
        COUNTS.store(true, Relaxed);
        ALLOCATIONS.fetch_add(1, Relaxed);
    }
}

// SAFETY: every call is handed to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        Self::count();
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        Self::count();
        // SAFETY: the caller keeps the contract of `alloc_zeroed`.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        Self::count();
        // SAFETY: the caller keeps the contract of `realloc`.
        unsafe { System.realloc(pointer, layout, size) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller keeps the contract of `dealloc`.
        unsafe { System.dealloc(pointer, layout) }
    }
}

/// Takes the count when a quarter and when three quarters of a transfer are done.
pub(crate) struct Steady {
    total: u64,
    done: AtomicU64,
    first: AtomicU64,
    last: AtomicU64,
}

impl Steady {
    pub(crate) fn new(total: u64) -> Self {
        Self {
            total,
            done: AtomicU64::new(0),
            first: AtomicU64::new(0),
            last: AtomicU64::new(0),
        }
    }

    /// `bytes` more are done.
    pub(crate) fn add(&self, bytes: u64) {
        let before = self.done.fetch_add(bytes, Relaxed);
        let passes = |mark: u64| before < mark && before + bytes >= mark;
        if passes(self.total / 4) {
            self.first.store(ALLOCATIONS.load(Relaxed), Relaxed);
        }
        if passes(self.total / 4 * 3) {
            self.last.store(ALLOCATIONS.load(Relaxed), Relaxed);
        }
    }

    pub(crate) fn done(&self) -> u64 {
        self.done.load(Relaxed)
    }

    /// Allocations in the middle half, if they were counted.
    pub(crate) fn allocations(&self) -> Option<u64> {
        let counted = self
            .last
            .load(Relaxed)
            .checked_sub(self.first.load(Relaxed));
        counted.filter(|_| COUNTS.load(Relaxed))
    }
}

#[cfg(test)]
mod tests;
