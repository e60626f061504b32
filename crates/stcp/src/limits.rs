//! How much one record may hold (RFC 8446 §5.1) and one key may protect (§5.5), counted in cipher
//! blocks, and how long a peer may send nothing but records without data.
//!
//! The RFC counts full-size records; small ones cost less, so blocks let a connection of small
//! messages live longer with the same safety. ChaCha20-Poly1305 has no limit worth counting: that
//! is why connections whose records nobody sees use it.

use rustls::AlertDescription;

use crate::error::SessionError;

/// Most plaintext in one record (RFC 8446 §5.1).
pub const MAX_PLAINTEXT: usize = 1 << 14;

/// Cap: records in a row that carry no data, before the peer is taken to play games.
pub(crate) const MAX_RECORDS_WITHOUT_DATA: u8 = 32;

/// 2^24.5 records of 2^14 bytes, in blocks of 16 bytes: 2^34.5.
const AES_GCM_BLOCKS: u64 = 24_296_004_000;

/// Where a new key is asked for: 2^34, long before the limit.
const AES_GCM_UPDATE_AT: u64 = 1 << 34;

/// What of a key's limit is used up.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BlockBudget {
    used: u64,
    update_at: u64,
    limit: u64,
}

/// What the budget says before a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Fine,
    /// A new key is due.
    Update,
    /// Nothing may be protected any more.
    Exhausted,
}

impl BlockBudget {
    /// Of a new AES-GCM key.
    pub(crate) const fn aes_gcm() -> Self {
        Self {
            used: 0,
            update_at: AES_GCM_UPDATE_AT,
            limit: AES_GCM_BLOCKS,
        }
    }

    /// Of a key without a limit worth counting.
    pub(crate) const fn unlimited() -> Self {
        Self {
            used: 0,
            update_at: u64::MAX,
            limit: u64::MAX,
        }
    }

    /// Charges one record of so many bytes of plaintext.
    pub(crate) fn charge(&mut self, plaintext: usize) {
        // One block more for the content type and the tag's mask.
        let blocks = (plaintext as u64).div_ceil(16) + 1;
        self.used = self.used.saturating_add(blocks);
    }

    /// Charges bytes that the kernel cuts into records: at most `MAX_PLAINTEXT` each, and one record a
    /// call at least.
    pub(crate) fn charge_stream(&mut self, bytes: u64) {
        let records = bytes.div_ceil(MAX_PLAINTEXT as u64).max(1);
        let blocks = bytes.div_ceil(16).saturating_add(2 * records);
        self.used = self.used.saturating_add(blocks);
    }

    /// Nothing more may be protected, however little was.
    pub(crate) fn exhaust(&mut self) {
        self.used = self.limit;
    }

    /// Whether a new key is due.
    pub(crate) fn is_update_due(&self) -> bool {
        self.used >= self.update_at
    }

    /// Whether nothing more may be protected with this key.
    pub(crate) fn is_exhausted(&self) -> bool {
        self.used >= self.limit
    }

    pub(crate) fn verdict(&self) -> Verdict {
        match () {
            () if self.is_exhausted() => Verdict::Exhausted,
            () if self.is_update_due() => Verdict::Update,
            () => Verdict::Fine,
        }
    }

    #[cfg(test)]
    pub(crate) fn spend(&mut self, blocks: u64) {
        self.used = self.used.saturating_add(blocks);
    }
}

/// Counts records in a row that carry no data: empty ones, alerts, handshake messages.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RecordsWithoutData(u8);

impl RecordsWithoutData {
    /// Data came.
    pub(crate) fn on_data(&mut self) {
        self.0 = 0;
    }

    /// A whole record came that has none.
    pub(crate) fn on_record(&mut self) -> Result<(), SessionError> {
        if self.0 == MAX_RECORDS_WITHOUT_DATA {
            return Err(SessionError::peer(
                "too many records without data in a row",
                AlertDescription::UnexpectedMessage,
            ));
        }
        self.0 += 1;
        Ok(())
    }
}

/// Limits that a test can reach.
#[cfg(test)]
pub(crate) mod tiny {
    use std::cell::Cell;

    use super::BlockBudget;

    thread_local! {
        static TINY: Cell<Option<BlockBudget>> = const { Cell::new(None) };
    }

    /// What every key made by this thread may protect while `body` runs: so many blocks before a new
    /// one is due, and so many at most.
    pub(crate) fn with<T>(update_at: u64, limit: u64, body: impl FnOnce() -> T) -> T {
        TINY.set(Some(BlockBudget {
            used: 0,
            update_at,
            limit,
        }));
        let _reset = Reset;
        body()
    }

    /// At the end of the body, however that comes.
    struct Reset;

    impl Drop for Reset {
        fn drop(&mut self) {
            TINY.set(None);
        }
    }

    pub(crate) fn get() -> Option<BlockBudget> {
        TINY.get()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn full_size_records_reach_the_limit_of_the_rfc() {
        let mut budget = BlockBudget::aes_gcm();
        budget.charge(MAX_PLAINTEXT);
        let records = AES_GCM_BLOCKS / budget.used;
        // 2^24.5 is 23,726,566; ours are counted a block larger.
        assert!((23_690_000..=23_726_566).contains(&records), "{records}");
    }

    #[test]
    fn small_records_live_longer() {
        let mut budget = BlockBudget::aes_gcm();
        budget.charge(64);
        assert_eq!(budget.used, 5);
    }

    #[test]
    fn an_update_is_due_before_the_end() {
        let mut budget = BlockBudget::aes_gcm();
        budget.spend(AES_GCM_UPDATE_AT);
        assert_eq!(budget.verdict(), Verdict::Update);
        budget.spend(AES_GCM_BLOCKS);
        assert_eq!(budget.verdict(), Verdict::Exhausted);
    }
}
