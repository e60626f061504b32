//! [`Account`]: bytes that are kept of what a peer sent, by whoever keeps them.
//!
//! A [`Charge`] lies beside what it stands for and is dropped with it, whatever drops it. The sum is an
//! estimate: allocators and maps do not say what they take.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use http::HeaderMap;

/// Bytes of an entry in a map of fields, with what its two texts cost to allocate.
const FIELD: usize = 160;

/// What is kept of one connection's peer.
#[derive(Clone, Default, Debug)]
pub struct Account(Arc<AtomicUsize>);

impl Account {
    /// Takes `bytes` in; they count until the charge is dropped.
    pub fn charge(&self, bytes: usize) -> Charge {
        let mut charge = Charge {
            account: self.clone(),
            bytes: 0,
        };
        charge.set(bytes);
        charge
    }

    /// The same for a section of fields.
    pub fn charge_fields(&self, fields: &HeaderMap) -> Charge {
        let texts = fields.iter().map(|(n, v)| n.as_str().len() + v.len());
        self.charge(fields.capacity() * FIELD + texts.sum::<usize>())
    }

    /// What all charges come to.
    pub fn bytes(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

/// Bytes in an account, until it is dropped.
#[derive(Debug)]
pub struct Charge {
    account: Account,
    bytes: usize,
}

impl Charge {
    /// It stands for as many bytes now.
    pub fn set(&mut self, bytes: usize) {
        if bytes != self.bytes {
            self.account.0.fetch_add(bytes, Ordering::Relaxed);
            self.account.0.fetch_sub(self.bytes, Ordering::Relaxed);
            self.bytes = bytes;
        }
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.set(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_count_as_long_as_their_charge_is_there() {
        let account = Account::default();
        let mut first = account.charge(1000);
        let second = account.clone().charge(24);
        assert_eq!(account.bytes(), 1024);
        first.set(1);
        assert_eq!(account.bytes(), 25);
        drop((first, second));
        assert_eq!(account.bytes(), 0);
    }

    #[test]
    fn many_small_fields_cost_more_than_their_texts() {
        let account = Account::default();
        let mut fields = HeaderMap::new();
        for i in 0..1000u32 {
            let name = http::HeaderName::try_from(format!("x{i}")).unwrap();
            fields.insert(name, http::HeaderValue::from_static(""));
        }
        let _charge = account.charge_fields(&fields);
        assert!(account.bytes() > 1000 * FIELD);
    }
}
