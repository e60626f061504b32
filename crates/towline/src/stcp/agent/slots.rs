//! How many handshakes may be under way: for one more than the most, the oldest has to go, so that
//! silent peers cannot keep good ones out.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

/// Cap: handshakes under way, each side.
const MAX_HANDSHAKES: usize = 1024;

/// With few descriptors, strangers' handshakes may have one of so many.
const DESCRIPTORS_EACH: usize = 8;

#[derive(Clone, Debug)]
pub(super) struct Slots {
    most: usize,
    pending: Arc<Mutex<Pending>>,
}

impl Default for Slots {
    fn default() -> Self {
        Self {
            most: MAX_HANDSHAKES,
            pending: Arc::default(),
        }
    }
}

#[derive(Debug, Default)]
struct Pending {
    next: u64,
    /// The oldest first. Dropping the sender evicts.
    by_age: BTreeMap<u64, oneshot::Sender<()>>,
}

/// A place among the handshakes under way; left when dropped.
#[derive(Debug)]
pub(super) struct Slot {
    slots: Slots,
    number: u64,
}

impl Slots {
    /// For whoever comes, in a process that may have so many descriptors.
    pub(super) fn for_strangers(descriptors: usize) -> Self {
        Self {
            most: (descriptors / DESCRIPTORS_EACH).clamp(1, MAX_HANDSHAKES),
            ..Self::default()
        }
    }

    /// As many places, for something else.
    pub(super) fn like(&self) -> Self {
        Self {
            most: self.most,
            ..Self::default()
        }
    }

    /// Takes a place; the future ends when it is needed for another.
    pub(super) fn enter(&self) -> (Slot, impl Future<Output = ()> + Send + use<>) {
        let (sender, receiver) = oneshot::channel();
        let mut pending = self.lock();
        if pending.by_age.len() >= self.most {
            pending.by_age.pop_first();
        }
        let number = pending.next;
        pending.next += 1;
        pending.by_age.insert(number, sender);
        let slot = Slot {
            slots: self.clone(),
            number,
        };
        (slot, async {
            let _ = receiver.await;
        })
    }

    pub(super) fn most(&self) -> usize {
        self.most
    }

    pub(super) fn len(&self) -> usize {
        self.lock().by_age.len()
    }

    fn lock(&self) -> MutexGuard<'_, Pending> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.slots.lock().by_age.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::{MAX_HANDSHAKES, Slots};

    #[tokio::test]
    async fn the_oldest_handshake_makes_room_for_one_too_many() {
        let slots = Slots::default();
        let mut places: Vec<_> = (0..MAX_HANDSHAKES).map(|_| slots.enter()).collect();
        let _one_more = slots.enter();
        assert_eq!(slots.len(), MAX_HANDSHAKES);
        let (oldest, evicted) = places.remove(0);
        evicted.await;
        drop(oldest);
        let (_second, evicted) = places.remove(0);
        tokio::select! {
            biased;
            () = evicted => panic!("the second oldest had to go as well"),
            () = std::future::ready(()) => {}
        }
        places.clear();
        // The second, and the one too many.
        assert_eq!(slots.len(), 2);
    }

    #[test]
    fn strangers_have_an_eighth_of_few_descriptors() {
        for (descriptors, most) in [(80, 10), (3, 1), (1 << 20, MAX_HANDSHAKES)] {
            let slots = Slots::for_strangers(descriptors);
            let _places: Vec<_> = (0..2 * MAX_HANDSHAKES).map(|_| slots.enter()).collect();
            assert_eq!(slots.len(), most, "of {descriptors}");
        }
    }
}
