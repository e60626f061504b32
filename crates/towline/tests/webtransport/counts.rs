//! What endpoints count of HTTP/3 and of sessions.

use std::time::Duration;

use bytes::Bytes;
use http::StatusCode;
use http_body_util::Empty;
use towline::http3;
use towline::webtransport::{Connection, Stats};

use crate::world::{World, request};

fn stats(world: &World) -> [Stats; 2] {
    [&world.client, &world.server].map(|endpoint| endpoint.webtransport_stats().unwrap())
}

#[test]
fn sessions_streams_and_refusals_are_counted_at_both_ends() {
    let mut world = World::new();
    let (near, far, connection) = world.session();
    let http = http3::Connection::new(near.transport().clone()).unwrap();
    let client = Connection::new(http.clone());
    let tasks = world.world.tasks();
    let (ours, theirs) = (near.clone(), far.clone());
    world.run(async move {
        for _ in 0..3 {
            let mut send = ours.open_uni().await.unwrap();
            send.finish().unwrap();
            theirs.accept_uni().await.unwrap();
        }
        let refused = async {
            let request = connection.accept().await.unwrap();
            request.reject(StatusCode::FORBIDDEN);
        };
        let (asked, ()) = tokio::join!(client.open(request("/no"), &[]), refused);
        asked.unwrap_err();
        // Nobody takes requests here.
        let ask = request("/file").map(|()| Empty::<Bytes>::new());
        let answer = http.request(ask).await.unwrap();
        assert_eq!(answer.status(), StatusCode::NOT_FOUND);
        tasks.sleep(Duration::from_secs(1)).await;
    });
    let [ours, theirs] = stats(&world);
    for stats in [ours, theirs] {
        let sessions = (
            stats.sessions_requested,
            stats.sessions_accepted,
            stats.sessions_open,
        );
        assert_eq!(sessions, (2, 1, 1));
        assert_eq!((stats.sessions_ended, stats.sessions_failed), (0, 0));
    }
    assert_eq!((ours.streams_opened, theirs.streams_received), (3, 3));
    assert_eq!(
        (ours.sessions_refused_by_peer, theirs.sessions_refused),
        (1, 1)
    );
    let ours = world.client.http3_stats().unwrap();
    let theirs = world.server.http3_stats().unwrap();
    assert_eq!((ours.requests_sent, theirs.requests_received), (1, 1));
    assert_eq!(theirs.requests_unwanted, 1);

    // Each end counts the end once, and nothing is counted twice when all of it is gone.
    world.run(async move {
        near.close(0, "");
        far.closed().await;
        far.transport().close(0, b"");
        near.transport().closed().await;
        drop((near, far));
    });
    world.world.run_for(Duration::from_secs(5));
    for stats in stats(&world) {
        assert_eq!((stats.sessions_ended, stats.sessions_open), (1, 0));
    }
}

#[test]
fn sessions_of_a_lost_connection_are_over_when_their_handles_are_gone() {
    let mut world = World::new();
    let (near, far, connection) = world.session();
    near.transport().close(9, b"lost");
    world.world.run_for(Duration::from_secs(5));
    drop((near, far, connection));
    world.world.run_for(Duration::from_secs(1));
    for stats in stats(&world) {
        assert_eq!((stats.sessions_accepted, stats.sessions_open), (1, 0));
    }
}
