//! Programs in virtual time: endpoints on a simulated network, and an executor for their tasks.
//!
//! A [`Simulation`] has one clock, one network of `towline-sim`'s links and the tasks that are spawned on
//! it. Time moves only when nobody has anything to do, straight to the next moment at which something
//! happens; an hour passes in a moment. What runs on it is a program as any other: the same
//! [`Endpoint`], [`Connection`](crate::Connection) and streams. One thread, one order: the same seed and
//! the same program give the same datagrams at the same times, as far as the program's own choices
//! do. (TLS draws its keys from the system. Sizes on the wire do not depend on them where
//! signatures have one length, as those of Ed25519 have.)
//!
//! ```
//! use std::time::Duration;
//!
//! use towline::Endpoint;
//! use towline::config::{self, ClientAuth, Identity, Options, Trust};
//! use towline::testing::{LinkConfig, Simulation};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let identity = Identity::generate_raw_key()?;
//! let trust = Trust::RawKeys(vec![identity.key_pin()]);
//! let (here, there) = ("192.0.2.1:1000".parse()?, "192.0.2.2:443".parse()?);
//!
//! let mut world = Simulation::new(7);
//! let satellite = LinkConfig {
//!     delay: Duration::from_millis(300),
//!     rate: Some(1_000_000),
//!     ..LinkConfig::default()
//! };
//! world.join(here, there, satellite.clone(), satellite)?;
//! let config = config::server(&identity, &ClientAuth::None, &Options::new("greeting"))?;
//! let server = world.endpoint(Endpoint::builder().server(config), there)?;
//! let client = world.endpoint(Endpoint::builder(), here)?;
//! let config = config::client(&trust, None, &Options::new("greeting"))?;
//!
//! world.tasks().spawn(async move {
//!     while let Some(connection) = server.accept().await {
//!         let mut stream = connection.accept_uni().await.unwrap();
//!         assert_eq!(stream.read_to_end(100).await.unwrap(), b"ahoy");
//!         connection.close(0, b"heard");
//!     }
//! });
//! world.block_on(async move {
//!     let connection = client.connect(there, "localhost", &config).await.unwrap();
//!     let mut stream = connection.open_uni().await.unwrap();
//!     stream.write_all(b"ahoy").await.unwrap();
//!     stream.finish().unwrap();
//!     connection.closed().await;
//! });
//! # Ok(()) }
//! ```

mod network;
mod socket;
mod tasks;

use std::cell::RefCell;
use std::fmt;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Wake, Waker};
use std::time::Duration;

pub use towline_sim::{
    DropStats, LinkConfig, LinkConfigError, LinkId, LinkStats, LossModel, NatConfig, Network,
    NetworkStats,
};
use towline_wire::Time;

use crate::handles::{Endpoint, EndpointBuilder, Sessions};
use crate::io::Shard;
pub use network::VirtualNetwork;
pub use socket::{Sent, SimulatedSocket};
use tasks::Timers;
pub use tasks::{Sleep, Tasks};

/// A world in virtual time.
pub struct Simulation {
    network: VirtualNetwork,
    hosts: Vec<Host>,
    tasks: Tasks,
}

/// A shard, and whether it asked to be driven.
struct Host {
    shard: Shard<SimulatedSocket, Sessions>,
    called: Arc<Called>,
}

/// A waker that is looked at.
#[derive(Default)]
struct Called(AtomicBool);

impl Wake for Called {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Release);
    }
}

impl Simulation {
    /// An empty world. `seed` decides what its links do and what its endpoints choose.
    pub fn new(seed: u64) -> Self {
        let network = VirtualNetwork::new(seed);
        network.trace_datagrams(true);
        Self {
            hosts: Vec::new(),
            tasks: Tasks::new(Timers::new(network.clock().clone())),
            network,
        }
    }

    /// Joins two addresses by a link each way, `a` to `b` first. What has no link goes nowhere.
    ///
    /// # Errors
    /// One of the configurations is impossible; nothing was joined.
    pub fn join(
        &mut self,
        a: SocketAddr,
        b: SocketAddr,
        a_to_b: LinkConfig,
        b_to_a: LinkConfig,
    ) -> Result<(LinkId, LinkId), LinkConfigError> {
        self.network(|network| network.join(a, b, a_to_b, b_to_a))
    }

    /// The network, to change links, look at their counters, or rebind addresses as a NAT does.
    pub fn network<R>(&self, f: impl FnOnce(&mut Network) -> R) -> R {
        self.network.with(f)
    }

    /// An endpoint at `address`, of one shard. Secrets that the builder was not given come from the seed.
    ///
    /// # Errors
    /// The transport settings make no sense.
    pub fn endpoint(
        &mut self,
        builder: EndpointBuilder,
        address: SocketAddr,
    ) -> io::Result<Endpoint> {
        let socket = self.network.socket(address);
        let builder = self.network.prepare(builder);
        let (endpoint, shards) = builder.on_sockets(vec![socket])?;
        for mut shard in shards {
            let called = Arc::new(Called::default());
            shard.set_waker(&Waker::from(Arc::clone(&called)));
            self.hosts.push(Host { shard, called });
        }
        Ok(endpoint)
    }

    /// The time of this world, from an arbitrary origin.
    pub fn now(&self) -> Time {
        self.network.now()
    }

    /// Spawns tasks and makes timers, from inside of tasks too.
    pub fn tasks(&self) -> Tasks {
        self.tasks.clone()
    }

    /// All that was sent, in order.
    pub fn trace(&self) -> Vec<Sent> {
        self.network.trace()
    }

    /// Runs the world until `future` is ready.
    ///
    /// # Panics
    /// When it is not, and nothing can happen any more: the program waits for itself.
    pub fn block_on<F>(&mut self, future: F) -> F::Output
    where
        F: Future + 'static,
        F::Output: 'static,
    {
        let result = Rc::new(RefCell::new(None));
        let place = Rc::clone(&result);
        self.tasks.spawn(async move {
            let output = future.await;
            *place.borrow_mut() = Some(output);
        });
        loop {
            if let Some(output) = result.borrow_mut().take() {
                return output;
            }
            if !self.step() {
                panic!(
                    "at {:?}: nothing can happen any more, and the future is not ready",
                    self.now()
                );
            }
        }
    }

    /// Runs the world for so long.
    pub fn run_for(&mut self, duration: Duration) {
        let end = self.now() + duration;
        while self.work()
            || self
                .next_time()
                .is_some_and(|next| next <= end && self.go_to(next))
        {}
        self.go_to(end);
    }

    /// What is to do now, or else the next moment; false if there is neither.
    fn step(&mut self) -> bool {
        self.work() || self.next_time().is_some_and(|next| self.go_to(next))
    }

    /// Always true.
    fn go_to(&self, time: Time) -> bool {
        self.network.advance_to(time);
        true
    }

    /// Whether there was something to do now.
    fn work(&mut self) -> bool {
        let now = self.now();
        let mut busy = self.tasks.run(now);
        self.network.deliver();
        for host in &mut self.hosts {
            let shard = &mut host.shard;
            let called = host.called.0.swap(false, Ordering::AcqRel);
            let is_due = shard.next_timeout().is_some_and(|at| at <= now);
            if called || is_due || shard.socket().is_readable() {
                let turn = shard.drive(now).expect("a simulated socket never fails");
                if turn.again {
                    host.called.0.store(true, Ordering::Release);
                }
                busy = true;
            }
        }
        self.hosts.retain(|host| !host.shard.is_over());
        busy
    }

    fn next_time(&self) -> Option<Time> {
        let shards = self
            .hosts
            .iter()
            .filter_map(|host| host.shard.next_timeout());
        let network = self.network.next_timeout();
        shards.chain(network).chain(self.tasks.next_timeout()).min()
    }
}

impl fmt::Debug for Simulation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Simulation")
            .field("network", &self.network)
            .finish_non_exhaustive()
    }
}
