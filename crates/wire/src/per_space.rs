//! One value for each packet number space, of which most connections soon need only the last.

use crate::PacketNumberSpace;

/// One `T` for each packet number space. Those of Initial and Handshake lie apart and are dropped
/// when the handshake is over: a connection then lives on without them (RFC 9001 §4.9).
#[derive(Clone, Debug)]
pub struct PerSpace<T> {
    handshake: Option<Box<[T; 2]>>,
    application: T,
}

impl<T> PerSpace<T> {
    /// All three.
    pub fn new(initial: T, handshake: T, application: T) -> Self {
        Self {
            handshake: Some(Box::new([initial, handshake])),
            application,
        }
    }

    /// Bytes on the heap while the handshake lasts.
    pub const HANDSHAKE_BYTES: usize = size_of::<[T; 2]>();

    /// Bytes on the heap now, without what the values hold there.
    pub fn held(&self) -> usize {
        self.handshake.as_ref().map_or(0, |_| Self::HANDSHAKE_BYTES)
    }

    /// Drops what Initial and Handshake had.
    pub fn end_handshake(&mut self) {
        self.handshake = None;
    }

    /// `None` for a space that ended with the handshake.
    #[inline]
    pub fn get(&self, space: PacketNumberSpace) -> Option<&T> {
        match space {
            PacketNumberSpace::Application => Some(&self.application),
            early => self.handshake.as_ref()?.get(early.index()),
        }
    }

    /// `None` for a space that ended with the handshake.
    #[inline]
    pub fn get_mut(&mut self, space: PacketNumberSpace) -> Option<&mut T> {
        match space {
            PacketNumberSpace::Application => Some(&mut self.application),
            early => self.handshake.as_mut()?.get_mut(early.index()),
        }
    }

    /// That of 0-RTT and 1-RTT packets, which is always there.
    #[inline]
    pub fn application(&self) -> &T {
        &self.application
    }

    /// That of 0-RTT and 1-RTT packets, which is always there.
    #[inline]
    pub fn application_mut(&mut self) -> &mut T {
        &mut self.application
    }

    /// What is there, in the order of the handshake.
    #[inline]
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        let early: &[T] = self.handshake.as_deref().map_or(&[], |both| both);
        early.iter().chain([&self.application])
    }

    /// What is there, in the order of the handshake.
    #[inline]
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        let early: &mut [T] = self.handshake.as_deref_mut().map_or(&mut [], |both| both);
        early.iter_mut().chain([&mut self.application])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_space_has_its_own_until_the_handshake_ends() {
        let mut values = PerSpace::new('i', 'h', 'a');
        let all = |values: &PerSpace<char>| PacketNumberSpace::ALL.map(|s| values.get(s).copied());
        assert_eq!(all(&values), [Some('i'), Some('h'), Some('a')]);
        for (space, value) in PacketNumberSpace::ALL.into_iter().zip(['I', 'H', 'A']) {
            *values.get_mut(space).expect("all are there") = value;
        }
        assert_eq!(values.iter().collect::<String>(), "IHA");

        assert_eq!(values.held(), 2 * size_of::<char>());
        values.end_handshake();
        assert_eq!(values.held(), 0);
        assert_eq!(all(&values), [None, None, Some('A')]);
        assert!(values.get_mut(PacketNumberSpace::Handshake).is_none());
        values.iter_mut().for_each(|value| *value = 'z');
        assert_eq!(values.application(), &'z');
    }
}
