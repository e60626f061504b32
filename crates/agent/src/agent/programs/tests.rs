use std::io::{ErrorKind, Read};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::time::Duration;

use socket2::{Domain, SockAddr, Socket, Type};
use tokio::time::Instant;
use towline_wire::{AgentAnswer, AgentRequest, AgentStatus, Carrier, Operation, Side};

use super::super::tests::{agent, send_with_descriptor};
use super::Programs;
use super::listen::MAX_UNTAKEN;
use super::serve::NONE;
use super::unproven::REQUEST_TIMEOUT;
use crate::policy::tests::Folder;

/// The question of the shim.
fn put(programs: &Programs, token: u64, operation: Operation, socket: Option<&Socket>) -> Socket {
    let client = Socket::new(Domain::UNIX, Type::SEQPACKET, None).unwrap();
    let name = format!("\0{}", programs.name);
    client.connect(&SockAddr::unix(name).unwrap()).unwrap();
    let request = AgentRequest {
        id: 0,
        fd: -1,
        side: Side::Server,
        carrier: Carrier::Preload,
        operation,
        uid: 0,
        pid: 0,
        netns: 0,
        local: NONE,
        peer: NONE,
        token,
    };
    match socket {
        Some(socket) => send_with_descriptor(&client, &request.emit(), socket.as_raw_fd()),
        None => drop(client.send(&request.emit()).unwrap()),
    }
    client
}

/// The shim's part. A descriptor that comes along is closed.
fn ask(
    programs: &Programs,
    token: u64,
    operation: Operation,
    socket: Option<&Socket>,
) -> (Socket, Option<AgentStatus>) {
    let client = put(programs, token, operation, socket);
    let mut bytes = [0; 200];
    // Reset, if it was not even read.
    let len = Read::read(&mut &client, &mut bytes).unwrap_or_default();
    let answer = AgentAnswer::parse(&bytes[..len]).ok();
    (client, answer.map(|answer| answer.status))
}

fn programs(folder: &Folder) -> Arc<Programs> {
    let programs = Arc::new(Programs::open(agent(folder, "agent"), NONE).unwrap());
    tokio::spawn(Arc::clone(&programs).serve());
    programs
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_without_the_token_gets_nothing() {
    let folder = Folder::new();
    let programs = programs(&folder);
    let work = move || {
        let token = programs.token;
        let refused = ask(&programs, token ^ 1, Operation::Socket, None);
        assert_eq!(refused.1, None);
        let served = ask(&programs, token, Operation::Socket, None);
        assert_eq!(served.1, Some(AgentStatus::Done));
        // What is none of its sockets is refused.
        let datagrams = Socket::new(Domain::IPV4, Type::DGRAM, None).unwrap();
        for operation in [Operation::Connect, Operation::Listen, Operation::Names] {
            let refused = ask(&programs, token, operation, Some(&datagrams));
            assert_eq!(refused.1, Some(AgentStatus::Failed(libc::EINVAL)));
        }
        let refused = ask(&programs, token, Operation::Handshake, None);
        assert_eq!(refused.1, Some(AgentStatus::Failed(libc::EINVAL)));
    };
    tokio::task::spawn_blocking(work).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn silent_clients_leave_room_for_the_programs() {
    let folder = Folder::new();
    let programs = programs(&folder);
    let work = move || {
        let most = programs.unproven.most_silent();
        let silent = || {
            let silent = Socket::new(Domain::UNIX, Type::SEQPACKET, None).unwrap();
            let name = format!("\0{}", programs.name);
            silent.connect(&SockAddr::unix(name).unwrap()).unwrap();
            silent
        };
        let began = Instant::now();
        let all: Vec<_> = (0..=most).map(|_| silent()).collect();
        let is_gone = |mut silent: &Socket| {
            silent.set_nonblocking(true).unwrap();
            silent.read(&mut [0]).is_ok()
        };
        while !all.iter().any(is_gone) {
            std::thread::yield_now();
        }
        // Sooner than for want of a request.
        assert!(began.elapsed() < REQUEST_TIMEOUT);
        let served = ask(&programs, programs.token, Operation::Socket, None);
        assert_eq!(served.1, Some(AgentStatus::Done));
        assert!(programs.unproven.silent() <= most);
    };
    tokio::task::spawn_blocking(work).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn what_an_unproven_client_sends_along_is_closed_without_the_programs() {
    const LINGER: Duration = Duration::from_secs(30);
    let folder = Folder::new();
    let programs = programs(&folder);
    let runtime = tokio::runtime::Handle::current();
    let work = move || {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        for token in [programs.token ^ 1, 0] {
            // To close it takes long: nobody takes what was written.
            let slow = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            slow.set_nonblocking(true).unwrap();
            while std::io::Write::write(&mut &slow, &[0; 65536]).is_ok() {}
            slow.set_nonblocking(false).unwrap();
            let slow = Socket::from(slow);
            slow.set_linger(Some(LINGER)).unwrap();
            // The agent's becomes the last, for it has not yet looked.
            let (go, wait) = std::sync::mpsc::channel::<()>();
            runtime.spawn(async move { wait.recv() });
            let _unproven = put(&programs, token, Operation::Connect, Some(&slow));
            drop(slow);
            go.send(()).unwrap();
            let began = Instant::now();
            let served = ask(&programs, programs.token, Operation::Socket, None);
            assert_eq!(served.1, Some(AgentStatus::Done));
            assert!(began.elapsed() < LINGER / 2);
        }
    };
    tokio::task::spawn_blocking(work).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_that_a_program_does_not_accept_are_bounded() {
    const MORE: usize = 60;
    let folder = Folder::new();
    let programs = programs(&folder);
    // They come from this machine, so that they need no handshakes.
    let bound = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    bound
        .bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into())
        .unwrap();
    let request = AgentRequest {
        id: 0,
        fd: -1,
        side: Side::Server,
        carrier: Carrier::Preload,
        operation: Operation::Listen,
        uid: 0,
        pid: 0,
        netns: 0,
        local: NONE,
        peer: NONE,
        token: 0,
    };
    let channel = programs.listen(&request, &bound).unwrap();
    let address = bound.local_addr().unwrap().as_socket().unwrap();
    let work = move || {
        let connect = |_| TcpStream::connect(address).unwrap();
        let clients: Vec<_> = (0..MAX_UNTAKEN + MORE).map(connect).collect();
        let is_gone = |mut client: &TcpStream| {
            client
                .set_read_timeout(Some(Duration::from_millis(1)))
                .unwrap();
            !matches!(client.read(&mut [0]), Err(error) if error.kind() == ErrorKind::WouldBlock)
        };
        let mut gone = 0;
        for _ in 0..200 {
            gone = clients.iter().filter(|client| is_gone(client)).count();
            // A few are in the channel.
            if gone > MORE - 20 {
                break;
            }
        }
        assert!((MORE - 20..=MORE).contains(&gone), "{gone}");
        // The others are all there to be accepted.
        let channel = Socket::from(channel);
        channel
            .set_read_timeout(Some(Duration::from_secs(1)))
            .unwrap();
        let mut taken = 0;
        while let Ok(1..) = Read::read(&mut &channel, &mut [0; 200]) {
            taken += 1;
        }
        // A few more may have gone since they were counted, until the channel was read.
        let gone_at_last = clients.len() - taken;
        assert!(
            (gone..=MORE).contains(&gone_at_last),
            "{gone}, {gone_at_last}"
        );
        // Closed, and nobody listens any more.
        drop(channel);
        for _ in 0..1000 {
            if TcpStream::connect(address).is_err() {
                return;
            }
            std::thread::yield_now();
        }
        panic!("it listens still");
    };
    tokio::task::spawn_blocking(work).await.unwrap();
}
