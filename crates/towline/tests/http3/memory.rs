//! What HTTP/3 keeps of its peers counts against the endpoint's limit.

use std::time::Duration;

use http::{HeaderValue, Request};
use towline::ConnectionError;
use towline::http3::{Connection, Error};

use crate::world::World;

/// Bytes of the field that makes a request large.
const FIELD: usize = 40_000;

/// Requests of one connection: fewer than it may have open.
const REQUESTS: usize = 60;

/// Requests whose heads are large and whose bodies never end.
async fn ask(near: &Connection) -> Result<(), Error> {
    let mut asked = Vec::new();
    for _ in 0..REQUESTS {
        let mut request = Request::post("https://boat.example/").body(()).unwrap();
        let value = HeaderValue::from_bytes(&[b'~'; FIELD]).unwrap();
        request.headers_mut().insert("cookie", value);
        asked.push(near.start(request).await?);
    }
    // Nobody accepts them: the end is the connection's.
    let (_send, response) = asked.first_mut().expect("there are some");
    response.head().await.map(drop)
}

fn held(world: &World) -> (u64, u64) {
    let stats = world.server.shard_stats();
    (stats[0].engine.memory, stats[0].engine.memory_most)
}

#[test]
fn requests_that_wait_count_until_they_are_accepted() {
    let mut world = World::new();
    let (near, far) = world.connected();
    let tasks = world.world.tasks();
    tasks.spawn(async move { drop(ask(&near).await) });
    world.world.run_for(Duration::from_secs(2));
    let waiting = held(&world).0;
    let heads = (FIELD * REQUESTS) as u64;
    assert!((heads..heads * 3 / 2).contains(&waiting), "{waiting}");
    let accepted = world.run(async move {
        let mut accepted = Vec::new();
        while accepted.len() < REQUESTS {
            accepted.push(far.accept().await.unwrap());
        }
        (far, accepted)
    });
    let left = held(&world).0;
    assert!(left < heads / 6, "{left}");
    drop(accepted);
}

#[test]
fn a_crowd_whose_requests_nobody_takes_goes() {
    let limit = 4 << 20;
    let mut world = World::with_memory(limit);
    let tasks = world.world.tasks();
    let crowd: Vec<_> = (0..8).map(|_| world.near()).collect();
    let ends = std::rc::Rc::new(std::cell::RefCell::new(Vec::new()));
    for near in crowd {
        let ends = ends.clone();
        tasks.spawn(async move {
            let end = ask(&near).await;
            ends.borrow_mut().push(end.unwrap_err());
        });
    }
    world.world.run_for(Duration::from_secs(10));
    let (_, most) = held(&world);
    assert!(most < limit + (1 << 20), "{most} bytes were held");
    assert!(most > limit / 2, "{most} bytes were held: hardly any");
    let ends = ends.borrow();
    assert!((6..8).contains(&ends.len()), "{} went", ends.len());
    for end in ends.iter() {
        let lost = matches!(end, Error::ConnectionLost(ConnectionError::ClosedByPeer(_)));
        assert!(lost, "{end:?}");
    }
}
