//! The device is a channel here: its messages are the module's requests, and a connection's
//! descriptor is one end of a socket pair. Keys cannot be given to it; lists are written before that.

use std::io::Write as _;
use std::net::SocketAddr;
use std::os::fd::IntoRawFd as _;

use socket2::{Domain, Socket, Type};
use tokio::net::UnixStream;
use towline_wire::{Operation, Side};

use super::super::handshake::shake_hands;
use super::super::tests::agent;
use super::*;
use crate::policy::tests::Folder;

/// The other end of a connection's descriptor.
struct Theirs(UnixStream);

impl Wire for Theirs {
    async fn receive(&self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0
            .async_io(Interest::READABLE, || self.0.try_read(buffer))
            .await
    }

    async fn send(&self, bytes: &[u8]) -> io::Result<usize> {
        self.0
            .async_io(Interest::WRITABLE, || self.0.try_write(bytes))
            .await
    }
}

/// An agent that is asked for a handshake with `peer` by a program in the network namespace `netns`.
/// Whether it wrote the peer down.
async fn is_met(side: Side, peer: &str, netns: u64) -> bool {
    let folder = Folder::new();
    let (near, far) = (agent(&folder, "near"), agent(&folder, "far"));
    let (device, requests) = Socket::pair(Domain::UNIX, Type::SEQPACKET, None).unwrap();
    device.set_nonblocking(true).unwrap();
    let device = ModuleDevice(registered(File::from(OwnedFd::from(device))).unwrap());
    let serving = Arc::clone(&near);
    let serving = tokio::spawn(async move { serving.serve_module(&device).await });

    let (ours, theirs) = std::os::unix::net::UnixStream::pair().unwrap();
    let request = AgentRequest {
        id: 1,
        fd: ours.into_raw_fd(),
        side,
        carrier: Carrier::Module,
        operation: Operation::Handshake,
        uid: 1000,
        pid: 1,
        netns,
        local: SocketAddr::from(([10, 0, 0, 1], 1)),
        peer: peer.parse().unwrap(),
        token: 0,
    };
    (&requests).write_all(&request.emit()).unwrap();
    theirs.set_nonblocking(true).unwrap();
    let theirs = Theirs(UnixStream::from_std(theirs).unwrap());
    let other = match side {
        Side::Client => Side::Server,
        Side::Server => Side::Client,
    };
    let any = SocketAddr::from(([127, 0, 0, 1], 1));
    let (handshake, _) = far.policy().handshake(other, Carrier::Relay, any).unwrap();
    let _ = shake_hands(&theirs, handshake, false).await;
    // Over when the agent lets go of the descriptor.
    while !matches!(theirs.receive(&mut [0; 1024]).await, Ok(0) | Err(_)) {}
    serving.abort();
    let list = match side {
        Side::Client => "near/known-peers",
        Side::Server => "near/known-clients",
    };
    std::fs::read_to_string(folder.0.join(list)).is_ok_and(|text| text.contains("10.9.8.7"))
}

#[tokio::test]
async fn nobody_is_met_first_in_another_network_namespace() {
    let own = std::fs::metadata("/proc/self/ns/net").unwrap().ino();
    for side in [Side::Client, Side::Server] {
        assert!(is_met(side, "10.9.8.7:5432", own).await, "{side:?}");
        for other in [own + 1, 0] {
            assert!(!is_met(side, "10.9.8.7:5432", other).await, "{side:?}");
        }
    }
}

#[tokio::test]
async fn pins_hold_in_every_network_namespace_and_first_use_says_what_to_do() {
    let folder = Folder::new();
    let pin = agent(&folder, "other").policy().own_keys()[0].1;
    let file = folder.0.join("stcp.toml");
    std::fs::write(&file, format!("[client]\npins = [\"{pin}\"]\n")).unwrap();
    let peer = SocketAddr::from(([10, 9, 8, 7], 5432));
    let judge = |policy: &crate::policy::Policy| {
        let (_, judge) = policy
            .handshake(Side::Client, Carrier::Module, peer)
            .unwrap();
        judge
            .reaches_other_networks()
            .map_err(|why| why.to_string())
    };
    let pinned = crate::policy::Policy::load(&file).unwrap();
    assert_eq!(judge(&pinned), Ok(()));
    let refused = judge(&agent(&folder, "first").policy()).unwrap_err();
    assert!(
        refused.contains("10.9.8.7:5432 is in another network"),
        "{refused}"
    );
    assert!(
        refused.contains("Give `pins` or `roots` in a policy"),
        "{refused}"
    );
}
