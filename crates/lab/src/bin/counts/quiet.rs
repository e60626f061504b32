//! Many connections with nothing to say but a keep-alive: what deadlines cost.

use std::time::Duration;

use towline_lab::Host;
use towline_quic::{ConnectionHandle, TransportConfig};

use crate::marker::measured_workload;
use crate::world::{CLIENT, SERVER, World};

/// Connections of the client.
const CONNECTIONS: usize = 32;

/// Turns of each connection that are counted.
const TURNS: u64 = 100;

/// Keep-alives of each connection that are counted.
const INTERVALS: u64 = 16;

const KEEP_ALIVE: Duration = Duration::from_secs(10);

/// An idle turn of a connection: it is touched, `poll_transmit` finds nothing to send, and its
/// deadline is filed again. Returns the turns.
pub(crate) fn deadline() -> u64 {
    let (mut world, handles) = connections();
    let now = world.now;
    let Host {
        endpoint, train, ..
    } = &mut world.hosts[CLIENT];
    let mut turn = || {
        for handle in &handles {
            assert!(endpoint.connection_mut(*handle).is_some());
        }
        assert!(endpoint.poll_transmit(now, train).is_none());
    };
    turn();
    measured_workload(|| {
        for _ in 0..TURNS {
            turn();
        }
    });
    TURNS * CONNECTIONS as u64
}

/// `handle_timeout` of a keep-alive: taken from the wheel, handled, filed anew. What has to be
/// looked at in vain counts as well. Returns the keep-alives.
pub(crate) fn timer() -> u64 {
    let (mut world, handles) = connections();
    let before = sent(&mut world, &handles);
    let wanted = INTERVALS * CONNECTIONS as u64;
    while sent(&mut world, &handles) - before < wanted {
        let at = world.next_timeout().expect("keep-alives are set");
        world.now = world.now.max(at);
        let now = world.now;
        // By hand: one side's timers are what is measured.
        world.hosts[SERVER].endpoint.handle_timeout(now);
        let client = &mut world.hosts[CLIENT].endpoint;
        measured_workload(|| client.handle_timeout(now));
        world.pump();
    }
    sent(&mut world, &handles) - before
}

/// Connections that have been quiet for a while.
fn connections() -> (World, Vec<ConnectionHandle>) {
    let transport = TransportConfig::default().keep_alive_interval(Some(KEEP_ALIVE));
    let mut world = World::new(crate::world::Aead::Null, transport);
    let handles = (0..CONNECTIONS).map(|_| world.connect()[CLIENT]).collect();
    world.run_for(KEEP_ALIVE * 3);
    world.pump();
    (world, handles)
}

fn sent(world: &mut World, handles: &[ConnectionHandle]) -> u64 {
    let endpoint = &world.hosts[CLIENT].endpoint;
    let connections = handles.iter().filter_map(|h| endpoint.connection(*h));
    connections.map(|c| c.stats().packets_sent).sum()
}
