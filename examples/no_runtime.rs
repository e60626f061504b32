//! An echo server and its client with no async runtime: two threads, two sockets, poll(2).
//!
//! Each thread has a shard and drives it: it polls its own future, gives the shard a turn, and then
//! waits until the socket has something or the shard's next timeout is due.
//!
//! `cargo run -p towline-examples --bin no_runtime`
#![allow(clippy::print_stdout, reason = "an example talks to its user")]

use std::error::Error;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use towline::config::{self, ClientAuth, Identity, Options, Trust};
use towline::handles::Sessions;
use towline::io::{Shard, UdpSocket};
use towline::{Connection, Endpoint, RecvStream, SendStream};

type Failure = Box<dyn Error + Send + Sync>;

fn main() -> Result<(), Failure> {
    let text = "hello from poll(2)";
    let answer = greet(text)?;
    println!("the server said: {answer}");
    assert_eq!(answer, text);
    Ok(())
}

/// Sends `text` to an echo server and returns what came back.
fn greet(text: &str) -> Result<String, Failure> {
    let identity = Identity::generate_raw_key()?;
    let options = Options::new("echo");
    let loopback = SocketAddr::from(([127, 0, 0, 1], 0));

    let server = config::server(&identity, &ClientAuth::None, &options)?;
    let (server, mut shards) = Endpoint::builder().server(server).bind_shards(loopback)?;
    let address = server.local_addr();
    let serving = thread::spawn(move || run(&mut shards[0], serve(server)));

    let trust = Trust::RawKeys(vec![identity.key_pin()]);
    let client = config::client(&trust, None, &options)?;
    let (endpoint, mut shards) = Endpoint::builder().bind_shards(loopback)?;
    let answer = run(&mut shards[0], async {
        let connection = endpoint.connect(address, "localhost", &client).await?;
        let (mut send, mut recv) = connection.open_bi().await?;
        send.write_all(text.as_bytes()).await?;
        send.finish()?;
        let answer = recv.read_to_end(1000).await?;
        connection.close(0, b"thanks");
        // The notice is sent by the driver, so that the server need not wait for a timeout.
        endpoint.wait_idle().await;
        Ok::<_, Failure>(String::from_utf8(answer)?)
    })??;
    serving
        .join()
        .map_err(|_| "the server's thread panicked")???;
    Ok(answer)
}

/// Answers one connection, and is done when that is over.
async fn serve(server: Endpoint) -> Result<(), Failure> {
    let connection: Connection = server.accept().await.ok_or("the endpoint is closed")?;
    while let Ok((send, recv)) = connection.accept_bi().await {
        echo(send, recv).await?;
    }
    server.wait_idle().await;
    Ok(())
}

async fn echo(mut send: SendStream, mut recv: RecvStream) -> Result<(), Failure> {
    while let Some(chunk) = recv.read_chunk(64 * 1024).await? {
        send.write_chunk(chunk).await?;
    }
    send.finish()?;
    Ok(())
}

/// Drives the shard until `future` is ready.
fn run<F: Future>(shard: &mut Shard<UdpSocket, Sessions>, future: F) -> io::Result<F::Output> {
    let woken = Arc::new(Woken(AtomicBool::new(true)));
    let waker = Waker::from(Arc::clone(&woken));
    // Handles of this thread tell so that they gave the shard something to do. Those of another
    // thread would need a waker that ends the poll, by an eventfd or a pipe.
    shard.set_waker(&waker);
    let mut future = pin!(future);
    loop {
        let mut wants = PollFlags::IN;
        while woken.0.swap(false, Ordering::Relaxed) {
            if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
                return Ok(output);
            }
            let turn = shard.drive(shard.clock().now())?;
            wants.set(PollFlags::OUT, turn.want_write);
            if turn.again {
                woken.0.store(true, Ordering::Relaxed);
            }
        }
        wait(shard, wants)?;
        woken.0.store(true, Ordering::Relaxed);
    }
}

/// Waits for a datagram, for room if that is wanted, or for the next timeout.
fn wait(shard: &Shard<UdpSocket, Sessions>, wants: PollFlags) -> io::Result<()> {
    let Some(socket) = shard.fd() else {
        return Ok(());
    };
    let timeout = shard.next_timeout().map(|at| {
        let left = at.saturating_duration_since(shard.clock().now());
        Timespec {
            tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: left.subsec_nanos().into(),
        }
    });
    let mut fds = [PollFd::new(&socket, wants)];
    match poll(&mut fds, timeout.as_ref()) {
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn what_is_sent_comes_back() {
        assert_eq!(super::greet("ahoy").unwrap(), "ahoy");
    }
}
