use std::net::SocketAddr;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use towline_stcp::Authentication;
use towline_wire::{AgentRequest, Carrier, Operation, Side};

use super::preload::MAX_PRELOAD_CLIENTS;
use super::{Agent, Asker, Failure, MAX_JUDGING, PreloadListener};
use crate::stcp::policy::tests::Folder;
use crate::stcp::policy::{Admitted, Policy, Refusal};

pub(super) fn agent(folder: &Folder, name: &str) -> Arc<Agent> {
    let policy = Policy::first_use(&folder.0.join(name)).unwrap();
    Agent::with_timeout(policy, Duration::from_secs(5))
}

fn asker(side: Side, peer: SocketAddr) -> Asker {
    Asker {
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
    let (near, far) = connected().await;
    // A name that stays the same from one connection to the next.
    let name = SocketAddr::from(([127, 0, 0, 1], 6379));
    let (near, far) = tokio::join!(
        async { client.establish(&near, &asker(Side::Client, name)).await },
        async { server.establish(&far, &asker(Side::Server, name)).await },
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

#[tokio::test]
async fn few_peers_are_looked_up_at_once_and_the_others_wait() {
    let folder = Folder::new();
    let (client, server) = (agent(&folder, "client"), agent(&folder, "server"));
    // New peers have to wait for whoever writes.
    let lock = std::fs::File::create(folder.0.join("client/known-peers.lock")).unwrap();
    lock.lock().unwrap();
    let many: Vec<_> = (0..2 * MAX_JUDGING)
        .map(|_| {
            let (client, server) = (Arc::clone(&client), Arc::clone(&server));
            tokio::spawn(async move { meet(&client, &server).await })
        })
        .collect();
    while client.judging.available_permits() > 0 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    lock.unlock().unwrap();
    for meeting in many {
        let [near, far] = meeting.await.unwrap();
        assert!(near.is_ok() && far.is_ok());
    }
    assert_eq!(client.judging.available_permits(), MAX_JUDGING);
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
    let ended = server.establish(&far, &asker(Side::Server, name)).await;
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
    let ended = server.establish(&far, &asker(Side::Server, name)).await;
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

/// A program's side of the preload carrier.
fn hand_over(path: &std::path::Path, stream: &std::net::TcpStream, side: Side) -> i32 {
    let socket = socket2::Socket::new(socket2::Domain::UNIX, socket2::Type::SEQPACKET, None);
    let socket = socket.unwrap();
    socket
        .connect(&socket2::SockAddr::unix(path).unwrap())
        .unwrap();
    let request = AgentRequest {
        id: 1,
        fd: -1,
        side,
        carrier: Carrier::Preload,
        operation: Operation::Handshake,
        uid: 0,
        pid: std::process::id(),
        netns: 0,
        local: stream.local_addr().unwrap(),
        peer: stream.peer_addr().unwrap(),
        token: 0,
    };
    send_with_descriptor(&socket, &request.emit(), stream.as_raw_fd());
    let mut status = [0; 4];
    std::io::Read::read_exact(&mut &socket, &mut status).unwrap();
    i32::from_ne_bytes(status)
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

#[tokio::test(flavor = "multi_thread")]
async fn a_socket_handed_over_is_keyed_or_shut_down() {
    let folder = Folder::new();
    let (client, server) = (agent(&folder, "client"), agent(&folder, "server"));
    let paths = ["client.sock", "server.sock"].map(|name| folder.0.join(name));
    for (agent, path) in [(&client, &paths[0]), (&server, &paths[1])] {
        let listener = PreloadListener::bind(path).unwrap();
        assert!(PreloadListener::bind(path).is_err(), "an agent is there");
        let agent = Arc::clone(agent);
        tokio::spawn(async move { agent.serve_preload(&listener).await });
    }
    let (near, far) = connected().await;
    let (near, far) = (near.into_std().unwrap(), far.into_std().unwrap());
    let statuses = tokio::task::spawn_blocking(move || {
        let statuses = std::thread::scope(|scope| {
            let far = scope.spawn(|| hand_over(&paths[1], &far, Side::Server));
            [
                hand_over(&paths[0], &near, Side::Client),
                far.join().unwrap(),
            ]
        });
        let written = std::io::Write::write(&mut &near, b"a word").map_err(|error| error.kind());
        drop(near);
        far.set_nonblocking(false).unwrap();
        far.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        let mut heard = [0; 100];
        let heard = std::io::Read::read(&mut &far, &mut heard).map(|len| heard[..len].to_vec());
        (statuses, written, heard)
    });
    let (statuses, written, heard) = statuses.await.unwrap();
    let [client_did, server_did] = [&client, &server].map(|agent| {
        let did = agent.stats();
        (did.established, did.refused)
    });
    match crate::stcp::ktls::is_available() {
        Ok(()) => {
            assert_eq!(statuses, [0, 0]);
            assert_eq!((client_did, server_did), ((1, 0), (1, 0)));
            assert_eq!((written, heard.unwrap()), (Ok(6), b"a word".to_vec()));
        }
        // In clear nothing gets through, even if the program goes on.
        Err(_) => {
            assert!(statuses.iter().all(|status| *status < 0), "{statuses:?}");
            assert_eq!((client_did, server_did), ((0, 1), (0, 1)));
            assert_eq!(written, Err(std::io::ErrorKind::BrokenPipe));
            assert!(heard.as_ref().is_ok_and(Vec::is_empty), "{heard:?}");
        }
    }
    assert_eq!(client.stats().pending + server.stats().pending, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_too_many_waits_until_another_has_gone() {
    let folder = Folder::new();
    let agent = agent(&folder, "agent");
    let path = folder.0.join("agent.sock");
    let listener = PreloadListener::bind(&path).unwrap();
    tokio::spawn(async move { agent.serve_preload(&listener).await });
    let work = move || {
        let connect = |_| {
            let kind = socket2::Type::SEQPACKET;
            let socket = socket2::Socket::new(socket2::Domain::UNIX, kind, None).unwrap();
            socket
                .connect(&socket2::SockAddr::unix(&path).unwrap())
                .unwrap();
            socket
        };
        let mut programs: Vec<_> = (0..MAX_PRELOAD_CLIENTS).map(connect).collect();
        let mut last = connect(0);
        // What is no request is answered with the end.
        last.send(b"?").unwrap();
        last.set_read_timeout(Some(Duration::from_millis(200)))
            .unwrap();
        let early = std::io::Read::read(&mut last, &mut [0]);
        assert!(early.is_err(), "{early:?}");
        programs.pop();
        last.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        assert_eq!(std::io::Read::read(&mut last, &mut [0]).unwrap(), 0);
    };
    tokio::task::spawn_blocking(work).await.unwrap();
}
