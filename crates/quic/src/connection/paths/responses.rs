//! PATH_RESPONSE frames owed to the peer (RFC 9000 §8.2.2).

use std::collections::VecDeque;

/// Cap: challenges waiting for an answer on a path; a flood keeps only the newest (CVE-2023-49295
/// class).
pub(crate) const MAX_PATH_RESPONSES: usize = 8;

#[derive(Debug, Default)]
pub(super) struct Responses {
    pending: VecDeque<[u8; 8]>,
}

impl Responses {
    pub(super) fn push(&mut self, data: [u8; 8]) {
        if self.pending.len() >= MAX_PATH_RESPONSES {
            self.pending.pop_front();
        }
        self.pending.push_back(data);
    }

    pub(super) fn pop(&mut self) -> Option<[u8; 8]> {
        self.pending.pop_front()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.pending.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_challenge_flood_keeps_the_newest_eight() {
        let mut r = Responses::default();
        for i in 0..100u8 {
            r.push([i; 8]);
        }
        assert_eq!(r.pending.len(), MAX_PATH_RESPONSES);
        assert_eq!(r.pop(), Some([92; 8]));
    }
}
