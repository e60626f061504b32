use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsRawFd, OwnedFd};
use std::process::{Child, Command};
use std::sync::Arc;
use std::time::Duration;

use socket2::{Domain, SockAddr, Socket, Type};
use tokio::sync::Semaphore;
use tokio::time::Instant;
use towline_wire::{AgentAnswer, AgentRequest, AgentStatus, Carrier, Operation, Side};

use super::super::tests::{agent, send_with_descriptor};
use super::finish::MAX_TELLERS;
use super::held::{Held, Way};
use super::listen::MAX_UNTAKEN;
use super::open::{inode, open_sockets};
use super::{NONE, Programs, REQUEST_TIMEOUT};
use crate::stcp::policy::tests::Folder;

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
    let programs = Arc::new(Programs::open(agent(folder, "agent"), NONE, None).unwrap());
    tokio::spawn(Arc::clone(&programs).serve());
    programs
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stranger_without_the_token_gets_nothing() {
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
        for operation in [
            Operation::Connect,
            Operation::Listen,
            Operation::Names,
            Operation::Shutdown,
        ] {
            let refused = ask(&programs, token, operation, Some(&datagrams));
            assert_eq!(refused.1, Some(AgentStatus::Failed(libc::EINVAL)));
        }
        // An alert would be two clear bytes.
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let clear = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let refused = ask(&programs, token, Operation::Shutdown, Some(&clear.into()));
        assert_eq!(refused.1, Some(AgentStatus::Failed(libc::EINVAL)));
        let refused = ask(&programs, token, Operation::Handshake, None);
        assert_eq!(refused.1, Some(AgentStatus::Failed(libc::EINVAL)));
    };
    tokio::task::spawn_blocking(work).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn strangers_who_ask_nothing_leave_room_for_the_programs() {
    let folder = Folder::new();
    let programs = programs(&folder);
    let work = move || {
        let most = programs.strangers.most_silent();
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
        assert!(programs.strangers.silent() <= most);
    };
    tokio::task::spawn_blocking(work).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn what_a_stranger_sends_along_is_closed_without_the_programs() {
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
            let _stranger = put(&programs, token, Operation::Connect, Some(&slow));
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
        assert_eq!(taken, clients.len() - gone);
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

/// A process that has this and does nothing with it.
fn holder(descriptor: impl Into<OwnedFd>) -> Child {
    let descriptor: OwnedFd = descriptor.into();
    let mut sleep = Command::new("sleep");
    sleep.arg("60").stdin(descriptor).spawn().unwrap()
}

fn look(held: &Held) -> (usize, bool) {
    let (gone, again) = held.look();
    (gone.len(), again)
}

fn end(mut child: Child) {
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn a_socket_is_gone_when_no_process_of_the_run_has_it_twice_in_a_row() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let connect = || {
        let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let number = inode(&stream).unwrap();
        (stream, number)
    };
    let (stream, number) = connect();
    let copy = stream.try_clone().unwrap();
    let program = holder(stream);
    let pid = program.id() as i32;
    let held = Held::new(Box::new(move || Ok(vec![pid])));
    held.keep(copy.into(), number, Way::Past, None);
    assert_eq!([look(&held), look(&held)], [(0, false); 2], "it has it");
    end(program);
    let looks = [look(&held), look(&held), look(&held)];
    assert_eq!(looks, [(0, true), (1, false), (0, false)]);

    let (stream, number) = connect();
    held.keep(stream.into(), number, Way::Answer, None);
    assert_eq!([look(&held), look(&held)], [(0, false); 2], "on its way");
    held.on_arrived(number);
    assert_eq!([look(&held), look(&held)], [(0, true), (1, false)]);
}

#[test]
fn a_socket_on_its_way_from_one_process_to_another_is_not_gone() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (from, to) = Socket::pair(Domain::UNIX, Type::STREAM, None).unwrap();
    send_with_descriptor(&from, b"x", stream.as_raw_fd());
    let program = holder(to);
    let pid = program.id() as i32;
    let held = Held::new(Box::new(move || Ok(vec![pid])));
    held.keep(
        stream.try_clone().unwrap().into(),
        inode(&stream).unwrap(),
        Way::Past,
        None,
    );
    assert_eq!([look(&held), look(&held)], [(0, false); 2]);
    end(program);
    assert_eq!([look(&held), look(&held)], [(0, true), (1, false)]);
}

#[test]
fn without_a_way_to_look_nothing_is_ended() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let number = inode(&stream).unwrap();
    let held = Held::new(Box::new(|| Err(ErrorKind::Other.into())));
    held.keep(stream.into(), number, Way::Past, None);
    assert_eq!([look(&held), look(&held)], [(0, false); 2]);
}

#[test]
fn a_process_that_lets_nobody_look_is_named() {
    // Root may look everywhere.
    if std::fs::read_dir("/proc/1/fd").is_ok() {
        return;
    }
    let members = || Ok(vec![std::process::id() as i32, 1]);
    let (process, error) = open_sockets(&members().unwrap(), |_| false).unwrap_err();
    assert_eq!(process, 1);
    assert_eq!(error.kind(), ErrorKind::PermissionDenied);
    // It may have any socket, but what was reset is given up.
    let held = Held::new(Box::new(members));
    let places = Arc::new(Semaphore::new(2));
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut peers = Vec::new();
    for _ in 0..2 {
        let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        peers.push(Socket::from(listener.accept().unwrap().0));
        let number = inode(&stream).unwrap();
        let place = Arc::clone(&places).try_acquire_owned().unwrap();
        held.keep(stream.into(), number, Way::Past, Some(place));
    }
    let reset = peers.pop().unwrap();
    reset.set_linger(Some(Duration::ZERO)).unwrap();
    drop(reset);
    assert_eq!([look(&held), look(&held)], [(0, false); 2]);
    assert_eq!(places.available_permits(), 1);
}

/// A program's socket whose peer has taken nothing of what was written, the peer's, and how much.
fn full(programs: &Programs) -> (Socket, TcpStream, usize) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (peer, _) = listener.accept().unwrap();
    // The end of a stream needs some room, and would be given more.
    Socket::from(stream.try_clone().unwrap())
        .set_send_buffer_size(200_000)
        .unwrap();
    stream.set_nonblocking(true).unwrap();
    let mut written = 0;
    while let Ok(len) = stream.write(&[7; 65536]) {
        written += len;
    }
    let held = programs.held.as_ref().unwrap();
    let copy = stream.try_clone().unwrap();
    let number = inode(&stream).unwrap();
    held.keep(copy.into(), number, Way::Past, None);
    (stream.into(), peer, written)
}

/// Whose peers may take nothing for this long, once a program is gone.
fn programs_with_keys(folder: &Folder, stalled: Duration) -> Programs {
    let own = std::process::id() as i32;
    let members: super::Members = Box::new(move || Ok(vec![own]));
    let mut programs = Programs::open(agent(folder, "agent"), NONE, Some(members)).unwrap();
    let held = programs.held.as_mut().unwrap();
    Arc::get_mut(held).unwrap().tellers.stalled = stalled;
    programs
}

/// Everything that comes, in time.
fn read_all(mut peer: TcpStream) -> Vec<u8> {
    let mut data = Vec::new();
    peer.set_read_timeout(Some(Duration::from_secs(20)))
        .unwrap();
    peer.read_to_end(&mut data).unwrap();
    data
}

#[tokio::test(flavor = "multi_thread")]
async fn the_end_of_a_programs_stream_waits_as_long_as_its_peer_takes_nothing() {
    const STALLED: Duration = Duration::from_millis(20);
    let folder = Folder::new();
    let programs = Arc::new(programs_with_keys(&folder, STALLED));
    let (socket, peer, written) = full(&programs);
    // However often the program says so, one task is enough.
    let asks = (0..50).map(|_| {
        let (programs, socket) = (Arc::clone(&programs), socket.try_clone().unwrap());
        tokio::spawn(async move {
            let held = programs.held.as_ref().unwrap();
            programs.shut_down(held, socket).await.unwrap();
        })
    });
    for asked in asks.collect::<Vec<_>>() {
        asked.await.unwrap();
    }
    assert_eq!(*programs.agent.relayed.borrow(), 1);
    tokio::time::sleep(STALLED * 80).await;
    assert_eq!(*programs.agent.relayed.borrow(), 1);
    // Without kTLS the alert is as it is.
    let data = tokio::task::spawn_blocking(|| read_all(peer))
        .await
        .unwrap();
    assert_eq!(data.len(), written + 2);
    assert_eq!(data[written..], towline_stcp::CLOSE_NOTIFY);
    programs.agent.drain().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_peer_that_takes_nothing_does_not_hold_up_the_end_of_what_nobody_has() {
    let folder = Folder::new();
    let programs = programs_with_keys(&folder, Duration::from_millis(20));
    let (socket, peer, written) = full(&programs);
    let held = programs.held.as_ref().unwrap();
    // The program said so before, and is gone.
    programs.shut_down(held, socket).await.unwrap();
    programs.end_all_held();
    let drained = programs.agent.drain();
    tokio::time::timeout(Duration::from_secs(20), drained)
        .await
        .unwrap();
    let data = tokio::task::spawn_blocking(|| read_all(peer))
        .await
        .unwrap();
    assert_eq!(data.len(), written, "the kernel sends what it has");
}

#[tokio::test(flavor = "multi_thread")]
async fn no_more_than_64_threads_tell_the_ends_of_streams() {
    let folder = Folder::new();
    let programs = programs_with_keys(&folder, Duration::from_secs(20));
    let held = programs.held.as_ref().unwrap();
    let turns = Arc::clone(&held.tellers.turns);
    let busy = turns.try_acquire_many(MAX_TELLERS as u32).unwrap();
    assert!(turns.try_acquire().is_err());
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (mut peer, _) = listener.accept().unwrap();
    programs.shut_down(held, stream.into()).await.unwrap();
    peer.set_nonblocking(true).unwrap();
    let nothing = peer.read(&mut [0]).unwrap_err();
    assert_eq!(nothing.kind(), ErrorKind::WouldBlock);
    peer.set_nonblocking(false).unwrap();
    drop(busy);
    let data = tokio::task::spawn_blocking(|| read_all(peer))
        .await
        .unwrap();
    assert_eq!(data, towline_stcp::CLOSE_NOTIFY);
}
