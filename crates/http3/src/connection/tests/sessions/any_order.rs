//! Two ends that do what they like within the rules, in any order, with little credit: nobody breaks a
//! limit, and everything that was written arrives. And a peer of any bytes, at which nothing panics.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::connection::tests::peer::{Bare, frame_bytes};
use crate::transport::ReadError;

/// What an end does next; the numbers choose among what there is.
#[derive(Clone, Copy, Debug)]
enum Act {
    Open(Direction),
    Write(usize, usize),
    Finish(usize),
    Reset(usize, u32),
    Read(usize, usize),
    Drop(usize),
    Pump,
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        Just(Act::Open(BIDI)),
        Just(Act::Open(UNI)),
        (any::<usize>(), 1..200_usize).prop_map(|(at, len)| Act::Write(at, len)),
        any::<usize>().prop_map(Act::Finish),
        (any::<usize>(), any::<u32>()).prop_map(|(at, code)| Act::Reset(at, code)),
        (any::<usize>(), 1..200_usize).prop_map(|(at, len)| Act::Read(at, len)),
        (any::<usize>(), 1..200_usize).prop_map(|(at, len)| Act::Read(at, len)),
        any::<usize>().prop_map(Act::Drop),
        Just(Act::Pump),
        Just(Act::Pump),
    ]
}

/// One end's halves of a stream.
#[derive(Clone, Copy, Default)]
struct Halves {
    /// Neither finished nor reset, if there is one.
    sends: bool,
    /// Its end was not seen, if there is one.
    receives: bool,
}

struct Player {
    host: Host,
    streams: BTreeMap<StreamId, Halves>,
}

impl Player {
    fn pick(&self, at: usize, wanted: impl Fn(&Halves) -> bool) -> Option<StreamId> {
        let of: Vec<StreamId> = self
            .streams
            .iter()
            .filter(|(_, halves)| wanted(halves))
            .map(|(id, _)| *id)
            .collect();
        of.get(at.checked_rem(of.len())?).copied()
    }

    fn act(&mut self, session: SessionId, act: Act) {
        match act {
            Act::Open(direction) => {
                if let Ok(id) = self.host.open(session, direction) {
                    let halves = Halves {
                        sends: true,
                        receives: direction == BIDI,
                    };
                    self.streams.insert(id, halves);
                }
            }
            Act::Write(at, len) => self.write(session, at, len),
            Act::Finish(at) => {
                if let Some(id) = self.pick(at, |halves| halves.sends) {
                    self.host.end.finish(id);
                    self.ended(id, true);
                }
            }
            Act::Reset(at, code) => {
                if let Some(id) = self.pick(at, |halves| halves.sends) {
                    let Host {
                        connection, end, ..
                    } = &mut self.host;
                    connection.reset_session_stream(end, id, code);
                    self.ended(id, true);
                }
            }
            Act::Read(at, len) => self.read(at, len),
            Act::Drop(at) => {
                if let Some(id) = self.pick(at, |halves| halves.receives) {
                    let Host {
                        connection, end, ..
                    } = &mut self.host;
                    connection.stop_session_stream(end, id, 0);
                    self.ended(id, false);
                }
            }
            Act::Pump => {}
        }
    }

    fn write(&mut self, session: SessionId, at: usize, len: usize) {
        let Some(id) = self.pick(at, |halves| halves.sends) else {
            return;
        };
        let credit = self.host.connection.session_send_credit(session);
        let len = credit.map_or(len, |credit| len.min(credit as usize));
        if len == 0 {
            let Host {
                connection, end, ..
            } = &mut self.host;
            return connection.on_session_blocked(end, session);
        }
        let mut bytes = Bytes::from(vec![7; len]);
        if let Ok(written) = self.host.end.write(id, &mut bytes) {
            self.host.connection.on_session_written(id, written as u64);
        }
    }

    fn read(&mut self, at: usize, len: usize) {
        let Some(id) = self.pick(at, |halves| halves.receives) else {
            return;
        };
        match self.host.end.read(id, len) {
            Ok(Some(bytes)) => {
                assert!(bytes.iter().all(|byte| *byte == 7));
                let Host {
                    connection, end, ..
                } = &mut self.host;
                connection.on_session_read(end, id, bytes.len() as u64);
            }
            Err(ReadError::Blocked) => {}
            Ok(None) | Err(_) => self.ended(id, false),
        }
    }

    /// A half ended; the stream is over with both.
    fn ended(&mut self, id: StreamId, sending: bool) {
        let Some(halves) = self.streams.get_mut(&id) else {
            return;
        };
        match sending {
            true => halves.sends = false,
            false => halves.receives = false,
        }
        if !halves.sends && !halves.receives {
            self.streams.remove(&id);
            self.host.over(id);
        }
    }

    fn take_events(&mut self) {
        while let Some(event) = self.host.events.pop_front() {
            match event {
                Event::Session(SessionEvent::StreamOpened { id, direction, .. }) => {
                    let halves = Halves {
                        sends: direction == BIDI,
                        receives: true,
                    };
                    self.streams.insert(id, halves);
                }
                Event::Session(SessionEvent::Credit(_) | SessionEvent::MayOpen { .. }) => {}
                other => panic!("{other:?}"),
            }
        }
    }
}

fn config_of_little(dialects: &[Dialect], data: u64, streams: u64) -> Config {
    Config {
        webtransport: Some(webtransport::Config {
            dialects: Dialects::of(dialects),
            initial_max_data: data,
            initial_max_streams_bidi: streams,
            initial_max_streams_uni: streams,
            ..webtransport::Config::default()
        }),
        ..Config::default()
    }
}

proptest! {
    #[test]
    fn two_ends_that_keep_to_the_limits_never_break_them(
        acts in proptest::collection::vec((any::<bool>(), act()), 0..400),
        (data, streams, window) in (1..300_u64, 1..5_u64, 100..400_usize),
    ) {
        let limits = Limits { streams: [100, 100], window, ..Limits::default() };
        let (client, server) = pair(limits);
        let mut client = Host::new(client, config_of_little(&[Dialect::Draft16], data, streams));
        let mut server = Host::new(server, config_of_little(&Dialect::ALL, data, streams));
        pump(&mut client, &mut server);
        let session = established(&mut client, &mut server);
        let player = |host| Player { host, streams: BTreeMap::new() };
        let mut players = [player(client), player(server)];
        for (by_client, act) in acts {
            players[usize::from(!by_client)].act(session, act);
            if matches!(act, Act::Pump) {
                let [one, two] = &mut players;
                pump(&mut one.host, &mut two.host);
                one.take_events();
                two.take_events();
            }
        }
        let [one, two] = &mut players;
        pump(&mut one.host, &mut two.host);
        // Everything that is left is read: the whole windows are there again.
        for _ in 0..10 {
            for player in [&mut *one, &mut *two] {
                player.take_events();
                for id in player.streams.keys().copied().collect::<Vec<_>>() {
                    if player.streams.get(&id).is_some_and(|halves| halves.sends) {
                        player.host.end.finish(id);
                        player.ended(id, true);
                    }
                    if player.streams.get(&id).is_some_and(|halves| halves.receives) {
                        while let Ok(Some(bytes)) = player.host.end.read(id, 1000) {
                            let Host { connection, end, .. } = &mut player.host;
                            connection.on_session_read(end, id, bytes.len() as u64);
                        }
                        player.ended(id, false);
                    }
                }
            }
            pump(&mut one.host, &mut two.host);
        }
        for player in [&*one, &*two] {
            prop_assert_eq!(player.host.end.closed(), None);
            prop_assert!(player.streams.is_empty());
            let sessions = player.host.connection.sessions.as_ref();
            prop_assert!(sessions.is_some_and(|sessions| sessions.streams.is_empty()));
            // Half a window at most is not given back yet.
            let credit = player.host.connection.session_send_credit(session);
            prop_assert!(credit.is_some_and(|credit| credit <= data && credit >= data.div_ceil(2)));
            prop_assert!(player.host.connection.may_open(session, BIDI));
            prop_assert!(player.host.connection.may_open(session, UNI));
        }
    }

    #[test]
    fn a_peer_of_any_bytes_ends_in_an_error_at_most(
        by_client in any::<bool>(),
        writes in proptest::collection::vec(
            (0..8_usize, 0..4_u8, proptest::collection::vec(any::<u8>(), 0..40)),
            0..40,
        ),
    ) {
        let (client, server) = pair(Limits::default());
        let mut bare = match by_client {
            true => Bare::new(client, Host::new(server, config())),
            false => Bare::new(server, Host::new(client, config())),
        };
        rules::settle_all(&mut bare);
        if !by_client {
            bare.host.connect(&["a"]).unwrap();
            bare.end.accept(BIDI);
        }
        let mut streams: Vec<StreamId> = [BIDI, BIDI, BIDI, UNI, UNI, UNI]
            .into_iter()
            .filter_map(|direction| bare.end.open(direction))
            .collect();
        streams.push(StreamId::from_u64(0));
        streams.push(bare.control);
        for (at, kind, bytes) in writes {
            let id = streams[at % streams.len()];
            match kind {
                0 => bare.bytes(id, &bytes),
                1 => bare.bytes(id, &frame_bytes(0, &bytes)),
                2 => bare.bytes(id, &[&[0x40, 0x41 + 0x13 * u8::from(id.direction() == UNI), 0][..], &bytes].concat()),
                _ => {
                    bare.end.send_datagram(Bytes::from(bytes));
                    while bare.host.turn() {}
                }
            }
            while let Some(event) = bare.host.events.pop_front() {
                if let Event::Session(SessionEvent::Requested { session, .. }) = event {
                    bare.host.accept(session, None);
                }
            }
            bare.host.connection.check();
        }
    }
}
