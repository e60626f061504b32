//! How many handshakes may be under way: for one more than the most, one has to go of those who have
//! the most, so that neither silent peers nor floods can keep good ones out.

use std::future::Future;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;
use towline_identity::{ADDRESS_LEVELS, Crowd, Goes, address_groups};

/// Where the numbers begin that users get besides their own, for user namespaces, and how many one
/// has of them (`SUB_UID_MIN` and `SUB_UID_COUNT` of login.defs).
const SUBORDINATE: u32 = 100_000;
const RANGE: u32 = 65_536;

/// Who wants a place: a user of this machine, and where the peer is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Party([u128; 2 + ADDRESS_LEVELS]);

impl Party {
    /// A handshake for a program of the user `uid` with a peer at `ip`.
    pub fn new(uid: u32, ip: IpAddr) -> Self {
        let [wide, prefix, address] = address_groups(ip);
        Self([owner(uid).into(), uid.into(), wide, prefix, address])
    }

    /// The user alone.
    pub fn user(uid: u32) -> Self {
        Self([owner(uid).into(), uid.into(), 0, 0, 0])
    }
}

/// The first of the numbers that somebody has who has this one: he can take a new one each time.
fn owner(uid: u32) -> u32 {
    match uid.checked_sub(SUBORDINATE) {
        None => uid,
        Some(above) => uid - above % RANGE,
    }
}

/// Places for handshakes under way.
#[derive(Clone, Debug)]
pub struct Slots {
    most: usize,
    pending: Arc<Mutex<Pending>>,
}

#[derive(Debug)]
struct Pending {
    next: u64,
    /// Dropping the sender evicts.
    parties: Crowd<oneshot::Sender<()>>,
}

/// A place among the handshakes under way; left when dropped.
#[derive(Debug)]
pub struct Slot {
    slots: Slots,
    party: Party,
    number: u64,
}

impl Slots {
    /// So many places; one at least.
    pub fn new(most: usize) -> Self {
        let pending = Pending {
            next: 0,
            parties: Crowd::new(Goes::Oldest),
        };
        Self {
            most: most.max(1),
            pending: Arc::new(Mutex::new(pending)),
        }
    }

    /// Takes a place; the future ends when it is needed for another.
    pub fn enter(&self, party: Party) -> (Slot, impl Future<Output = ()> + Send + use<>) {
        let (sender, receiver) = oneshot::channel();
        let mut pending = self.lock();
        let number = pending.next;
        pending.next += 1;
        pending.parties.insert(&party.0, number, sender);
        if pending.parties.len() > self.most {
            pending.parties.displace();
        }
        let slot = Slot {
            slots: self.clone(),
            party,
            number,
        };
        (slot, async {
            let _ = receiver.await;
        })
    }

    /// How many places there are.
    pub fn most(&self) -> usize {
        self.most
    }

    /// How many are taken.
    pub fn len(&self) -> usize {
        self.lock().parties.len()
    }

    /// Whether none is.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn lock(&self) -> MutexGuard<'_, Pending> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let mut pending = self.slots.lock();
        pending.parties.remove(&self.party.0, self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::{Party, Slots};

    const MOST: usize = 1024;

    fn at(uid: u32, address: &str) -> Party {
        Party::new(uid, address.parse().unwrap())
    }

    #[tokio::test]
    async fn the_oldest_handshake_makes_room_for_one_too_many() {
        let slots = Slots::new(MOST);
        let party = at(0, "192.0.2.1");
        let mut places: Vec<_> = (0..MOST).map(|_| slots.enter(party)).collect();
        let _one_more = slots.enter(party);
        assert_eq!(slots.len(), MOST);
        let (oldest, evicted) = places.remove(0);
        evicted.await;
        drop(oldest);
        let (_second, evicted) = places.remove(0);
        assert!(
            !is_over(evicted).await,
            "the second oldest had to go as well"
        );
        places.clear();
        // The second, and the one too many.
        assert_eq!(slots.len(), 2);
    }

    async fn is_over(evicted: impl Future<Output = ()>) -> bool {
        tokio::select! {
            biased;
            () = evicted => true,
            () = std::future::ready(()) => false,
        }
    }

    #[tokio::test]
    async fn who_floods_under_many_numbers_takes_the_places_of_his_own() {
        let loopback = "127.0.0.1";
        // A user of this machine, one of a directory, and one of a range of somebody else.
        for good in [1001, 99_999, 165_536] {
            for party in [Party::user(good), at(good, loopback)] {
                let slots = Slots::new(MOST);
                let (_slot, evicted) = slots.enter(party);
                // His own number, and as many more as he was given.
                let numbers = [1000].into_iter().chain(100_000..165_536);
                let flood: Vec<_> = numbers
                    .take(5 * MOST)
                    .map(|uid| match party == Party::user(good) {
                        true => slots.enter(Party::user(uid)),
                        false => slots.enter(at(uid, loopback)),
                    })
                    .collect();
                assert!(!is_over(evicted).await, "{good}");
                assert_eq!(slots.len(), MOST);
                drop(flood);
                assert_eq!(slots.len(), 1);
            }
        }
        // In one range each number has its share still.
        let slots = Slots::new(MOST);
        let (_slot, evicted) = slots.enter(Party::user(200_001));
        let _flood: Vec<_> = (0..5 * MOST)
            .map(|_| slots.enter(Party::user(200_002)))
            .collect();
        assert!(!is_over(evicted).await);
    }

    #[tokio::test]
    async fn who_floods_takes_the_places_of_his_own() {
        // Another user on loopback; another network, another host of it, another user's listener.
        for (good, flood) in [
            (at(1001, "127.0.0.1"), at(1000, "127.0.0.1")),
            (at(0, "198.51.100.9"), at(0, "192.0.2.1")),
            (at(0, "192.0.2.9"), at(0, "192.0.2.1")),
            (at(1001, "192.0.2.1"), at(1000, "192.0.2.1")),
        ] {
            let slots = Slots::new(MOST);
            let (_slot, evicted) = slots.enter(good);
            let flood: Vec<_> = (0..5 * MOST).map(|_| slots.enter(flood)).collect();
            assert!(!is_over(evicted).await, "{good:?}");
            assert_eq!(slots.len(), MOST);
            drop(flood);
            assert_eq!(slots.len(), 1);
        }
    }
}
