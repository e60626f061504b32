use std::net::SocketAddr;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt as _;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::AsyncReadExt as _;
use tokio::net::{TcpListener, TcpStream};
use towline::stcp::Stream;
use towline::stcp::slots::{Party, Slots};
use towline_stcp::{Authentication, Records};
use towline_wire::{Carrier, Side};

use super::{
    Agent, Failure, MAX_HANDSHAKES, MAX_INTRODUCING, MAX_JUDGING, Requester, most_handshakes,
};
use crate::policy::tests::Folder;
use crate::policy::{Admitted, Policy, Refusal};

pub(super) fn agent(folder: &Folder, name: &str) -> Arc<Agent> {
    let policy = Policy::first_use(&folder.0.join(name)).unwrap();
    Agent::with_timeout(policy, Duration::from_secs(5))
}

fn requester(side: Side, peer: SocketAddr) -> Requester {
    Requester {
        side,
        carrier: Carrier::Relay,
        peer,
        pid: 0,
        uid: 0,
    }
}

async fn connected() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let client = TcpStream::connect(listener.local_addr().unwrap());
    let (client, accepted) = tokio::join!(client, listener.accept());
    (client.unwrap(), accepted.unwrap().0)
}

/// Both ends of one connection.
async fn meet(client: &Agent, server: &Agent) -> [Result<Admitted, Failure>; 2] {
    // A name that stays the same from one connection to the next.
    meet_at(6379, client, server).await
}

/// Both ends of one connection to a server at this port.
async fn meet_at(port: u16, client: &Agent, server: &Agent) -> [Result<Admitted, Failure>; 2] {
    let (near, far) = connected().await;
    let name = SocketAddr::from(([127, 0, 0, 1], port));
    let (near, far) = tokio::join!(
        async {
            client
                .establish(&near, &requester(Side::Client, name))
                .await
        },
        async { server.establish(&far, &requester(Side::Server, name)).await },
    );
    [near, far].map(|end| end.map(|(_, admitted)| admitted))
}

#[tokio::test]
async fn agents_know_each_other_from_the_second_time_on() {
    let folder = Folder::new();
    let (client, server) = (agent(&folder, "client"), agent(&folder, "server"));
    for expected in [Authentication::KeyShown, Authentication::Pinned] {
        for (end, other) in meet(&client, &server)
            .await
            .into_iter()
            .zip([&server, &client])
        {
            let admitted = end.unwrap();
            assert_eq!(admitted.authentication, expected);
            assert_eq!(admitted.key, Some(other.policy().own_keys()[0].1));
        }
    }
}

/// Meetings of both, at as many ports.
fn many_meetings(
    many: usize,
    client: &Arc<Agent>,
    server: &Arc<Agent>,
) -> Vec<tokio::task::JoinHandle<[Result<Admitted, Failure>; 2]>> {
    let meetings = (0..many).map(|number| {
        let (client, server) = (Arc::clone(client), Arc::clone(server));
        tokio::spawn(async move { meet_at(1 + number as u16, &client, &server).await })
    });
    meetings.collect()
}

async fn until(is_so: impl Fn() -> bool) {
    while !is_so() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

#[tokio::test]
async fn few_peers_are_looked_up_at_once_and_the_others_wait() {
    let folder = Folder::new();
    let (client, server) = (agent(&folder, "client"), agent(&folder, "server"));
    // A list that is as slow as can be.
    let (list, away) = (folder.0.join("client/known-peers"), folder.0.join("away"));
    let path = std::ffi::CString::new(list.as_os_str().as_encoded_bytes()).unwrap();
    // SAFETY: the path is a string that ends with zero.
    assert_eq!(unsafe { libc::mkfifo(path.as_ptr(), 0o600) }, 0);
    let many = many_meetings(2 * MAX_JUDGING, &client, &server);
    until(|| client.judging.available_permits() == 0).await;
    std::fs::rename(&list, &away).unwrap();
    // Who opens the pipe waits for a writer, and may come to it at any time.
    let writer = tokio::spawn(async move {
        loop {
            let mut options = std::fs::File::options();
            drop(
                options
                    .write(true)
                    .custom_flags(libc::O_NONBLOCK)
                    .open(&away),
            );
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    });
    for meeting in many {
        let [near, far] = meeting.await.unwrap();
        assert!(near.is_ok() && far.is_ok());
    }
    writer.abort();
    assert_eq!(client.judging.available_permits(), MAX_JUDGING);
}

#[tokio::test]
async fn a_known_peer_does_not_wait_for_new_ones() {
    let folder = Folder::new();
    let (client, server) = (agent(&folder, "client"), agent(&folder, "server"));
    let [near, far] = meet(&client, &server).await;
    assert!(near.is_ok() && far.is_ok());
    // New peers have to wait for whoever writes.
    let lock = std::fs::File::create(folder.0.join("client/known-peers.lock")).unwrap();
    lock.lock().unwrap();
    let new_peers = many_meetings(MAX_INTRODUCING + MAX_JUDGING, &client, &server);
    until(|| client.introducing.available_permits() == 0).await;
    let [near, _] = meet(&client, &server).await;
    assert_eq!(near.unwrap().authentication, Authentication::Pinned);
    lock.unlock().unwrap();
    for meeting in new_peers {
        let [near, far] = meeting.await.unwrap();
        assert!(near.is_ok() && far.is_ok());
    }
    assert_eq!(client.introducing.available_permits(), MAX_INTRODUCING);
}

#[tokio::test]
async fn a_client_too_many_at_one_address_is_told_why() {
    let folder = Folder::new();
    let (client, server) = (agent(&folder, "client"), agent(&folder, "server"));
    let key = |number: u8| towline_identity::KeyPin::from_bytes([number; 32]);
    let full: String = (0..16)
        .map(|number| format!("127.0.0.1 {} 2026-01-02\n", key(number)))
        .collect();
    let list = folder.0.join("server/known-clients");
    std::fs::write(&list, &full).unwrap();
    let (near, far) = connected().await;
    // As every carrier has it: what waits for company is lost with a reset.
    far.set_nodelay(true).unwrap();
    let name = SocketAddr::from(([127, 0, 0, 1], 6379));
    let (accepted, refused) = tokio::join!(
        async {
            client
                .establish(&near, &requester(Side::Client, name))
                .await
        },
        async { server.establish(&far, &requester(Side::Server, name)).await },
    );
    // Ours, for the server's log.
    let why = refused.err().unwrap().to_string();
    assert!(why.contains("127.0.0.1 shows a key that is new"), "{why}");
    assert!(why.contains("16 keys of clients at 127.0.0.1"), "{why}");
    assert!(why.contains("server/known-clients"), "{why}");
    // The client's: it was done before the server had judged it.
    super::relay::reset(&far);
    drop(far);
    let mut stream = Stream::new(near, accepted.unwrap().0, Records::UserSpace).unwrap();
    let told = stream.read(&mut [0; 10]).await.unwrap_err().to_string();
    assert!(
        told.contains("AccessDenied (49): it does not believe who we are"),
        "{told}"
    );
    assert_eq!(std::fs::read_to_string(&list).unwrap(), full);
}

#[tokio::test]
async fn two_users_of_one_host_and_two_hosts_behind_one_address_are_let_in() {
    let folder = Folder::new();
    let server = agent(&folder, "server");
    let clients = ["first", "second", "third"].map(|name| agent(&folder, name));
    for expected in [Authentication::KeyShown, Authentication::Pinned] {
        for client in &clients {
            let [near, far] = meet(client, &server).await;
            assert!(near.is_ok());
            assert_eq!(far.unwrap().authentication, expected);
        }
    }
}

#[test]
fn handshakes_from_outside_have_an_eighth_of_few_descriptors() {
    for (descriptors, most) in [(80, 10), (3, 1), (1 << 20, MAX_HANDSHAKES)] {
        let slots = Slots::new(most_handshakes(descriptors));
        let party = Party::user(0);
        let _places: Vec<_> = (0..2 * MAX_HANDSHAKES)
            .map(|_| slots.enter(party))
            .collect();
        assert_eq!(slots.len(), most, "of {descriptors}");
    }
}

#[tokio::test]
async fn a_server_with_another_key_is_refused_with_what_to_do() {
    let folder = Folder::new();
    let (client, server) = (agent(&folder, "client"), agent(&folder, "server"));
    let impostor = agent(&folder, "impostor");
    let [near, far] = meet(&client, &server).await;
    assert!(near.is_ok() && far.is_ok());
    let [refused, _] = meet(&client, &impostor).await;
    let error = refused.unwrap_err();
    assert!(matches!(
        error,
        Failure::Refused(Refusal::KeyChanged { .. })
    ));
    assert!(
        error
            .to_string()
            .contains("remove the line of 127.0.0.1:6379")
    );
    assert_eq!(error.errno(), libc::EPROTO);
}

#[tokio::test(start_paused = true)]
async fn a_silent_peer_is_given_up() {
    let folder = Folder::new();
    let server = agent(&folder, "server");
    let (_silent, far) = connected().await;
    let name = SocketAddr::from(([127, 0, 0, 1], 1));
    let ended = server.establish(&far, &requester(Side::Server, name)).await;
    assert_eq!(ended.err().map(|why| why.errno()), Some(libc::ETIMEDOUT));
    assert_eq!(server.stats().pending, 0);
}

#[tokio::test]
async fn a_peer_in_clear_is_told_apart_at_its_first_bytes() {
    let folder = Folder::new();
    let server = agent(&folder, "server");
    let (clear, far) = connected().await;
    clear.try_write(b"GET / HTTP/1.0\r\n\r\n").unwrap();
    let name = SocketAddr::from(([127, 0, 0, 1], 1));
    let ended = server.establish(&far, &requester(Side::Server, name)).await;
    let error = ended.err().map(|why| why.to_string()).unwrap_or_default();
    assert!(
        error.contains("does not speak TLS (it began with \"GET / HTTP"),
        "{error}"
    );
}

#[test]
fn programs_are_told_of_tcps_errors_and_not_of_the_agents_own() {
    let told = |number| Failure::from(std::io::Error::from_raw_os_error(number)).errno();
    for number in [libc::ECONNREFUSED, libc::EHOSTUNREACH, libc::ETIMEDOUT] {
        assert_eq!(told(number), number);
    }
    for number in [libc::ENOENT, libc::EMFILE, libc::ENOSPC, libc::EAGAIN] {
        assert_eq!(told(number), libc::EPROTO);
    }
    let other = std::io::Error::other("the judge is gone");
    assert_eq!(Failure::from(other).errno(), libc::EPROTO);
}

#[tokio::test(start_paused = true)]
async fn what_goes_on_is_complained_of_once_a_second() {
    let mut complaint = super::Complaint::default();
    let mut due = 0;
    for _ in 0..100 {
        due += u32::from(complaint.is_due());
        tokio::time::advance(Duration::from_millis(50)).await;
    }
    assert_eq!(due, 5);
}

pub(super) fn send_with_descriptor(socket: &socket2::Socket, bytes: &[u8], descriptor: i32) {
    let mut slice = std::io::IoSlice::new(bytes);
    let mut control = [0_u64; 8];
    // SAFETY: a zeroed msghdr is valid; its pointers outlive the call, and the control buffer has
    // room for one header with one descriptor.
    let sent = unsafe {
        let mut message: libc::msghdr = std::mem::zeroed();
        message.msg_iov = (&raw mut slice).cast();
        message.msg_iovlen = 1;
        message.msg_control = control.as_mut_ptr().cast();
        message.msg_controllen = libc::CMSG_SPACE(4) as _;
        let header = libc::CMSG_FIRSTHDR(&raw const message);
        (*header).cmsg_level = libc::SOL_SOCKET;
        (*header).cmsg_type = libc::SCM_RIGHTS;
        (*header).cmsg_len = libc::CMSG_LEN(4) as _;
        libc::CMSG_DATA(header)
            .cast::<i32>()
            .write_unaligned(descriptor);
        libc::sendmsg(socket.as_raw_fd(), &raw const message, 0)
    };
    assert_eq!(sent, bytes.len() as isize);
}
