"""Clusters: processes on one port, and what happens when they die."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import CERTIFICATE, idle

import towline
from towline import _native
from towline.cluster import Cluster, ClusterError, WorkerInfo, WorkerState
from towline.cluster._worker import load
from towline.monitor import cluster_values

# `linux/udp.h`.
UDP_SEGMENT = 103


def cluster_of(target: Any = "clusterapp:app", workers: int = 2, **options: Any) -> Cluster:
    options.setdefault("grace", 2.0)
    return Cluster(target, "127.0.0.1", certificate=CERTIFICATE, workers=workers, **options)


class Client:
    """A session, and a stream that asks which process it is with."""

    def __init__(self, cluster: Cluster) -> None:
        self.connecting = towline.connect(cluster.url + "/", pins=[CERTIFICATE])
        self.pid = 0

    async def __aenter__(self) -> Client:
        self.session = await self.connecting.__aenter__()
        self.stream = await self.session.create_bidirectional_stream()
        self.pid = await self.ask()
        return self

    async def __aexit__(self, *error: Any) -> None:
        await self.connecting.__aexit__(None, None, None)

    async def ask(self) -> int:
        await self.stream.write(b"who\n")
        async with asyncio.timeout(20):
            pid, _, rest = (await self.stream.readuntil()).partition(b" ")
        assert rest == b"who\n"
        return int(pid)


async def one_for_each(cluster: Cluster) -> dict[int, Client]:
    """A client for each worker, by their processes."""
    clients: dict[int, Client] = {}
    wanted = {worker.pid for worker in cluster.workers}
    while clients.keys() != wanted:
        client = await Client(cluster).__aenter__()
        if client.pid in clients:
            await client.__aexit__()
        else:
            clients[client.pid] = client
    return clients


async def until(cluster: Cluster, condition: Callable[[tuple[WorkerInfo, ...]], bool]) -> None:
    async with asyncio.timeout(25):
        while not condition(cluster.workers):
            await asyncio.sleep(0.02)


def test_connections_live_on_while_another_worker_is_killed(run: Callable[..., Any]) -> None:
    async def main() -> None:
        async with cluster_of() as cluster:
            assert [worker.state for worker in cluster.workers] == [WorkerState.RUNNING] * 2
            clients = await one_for_each(cluster)
            victim, other = clients
            killed, alive = clients[victim], clients[other]
            os.kill(victim, signal.SIGKILL)
            for _ in range(20):
                assert await alive.ask() == other
                await asyncio.sleep(0.01)
            await until(
                cluster,
                lambda workers: (
                    all(worker.state is WorkerState.RUNNING for worker in workers)
                    and victim not in {worker.pid for worker in workers}
                ),
            )
            assert await alive.ask() == other
            # The new process knows nothing of the connection, and says so.
            with pytest.raises(towline.SessionClosed) as lost:
                while True:
                    await killed.ask()
            assert isinstance(lost.value, towline.ConnectionLost)
            assert not isinstance(lost.value, towline.IdleTimeout)
            again = await one_for_each(cluster)
            assert other in again and victim not in again
            by_pid = {worker.pid: worker for worker in cluster.workers}
            [new] = set(again) - {other}
            assert (by_pid[new].restarts, by_pid[new].last_exit) == (1, -signal.SIGKILL)
            assert by_pid[other].restarts == 0
            await until(cluster, lambda workers: sum(w.sessions or 0 for w in workers) == 3)
            for client in (alive, killed, *again.values()):
                await client.__aexit__()
        assert [worker.state for worker in cluster.workers] == [WorkerState.STOPPED] * 2
        assert [worker.pid for worker in cluster.workers] == [None, None]

    run(main())


def test_what_is_another_workers_is_dropped_and_counted() -> None:
    size = 40
    # Two datagrams as one, as a network card merges them: the first one's place has both.
    datagrams = b"".join(b"\x40" + bytes([place]) + bytes(size - 2) for place in (0, 1))

    async def main() -> None:
        async with cluster_of() as cluster:
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
                sender.setsockopt(socket.IPPROTO_UDP, UDP_SEGMENT, size)
                sender.sendto(datagrams, ("127.0.0.1", cluster.port))
                await until(cluster, lambda workers: workers[0].misdirected == 1)
                await until(cluster, lambda workers: workers[1].misdirected == 0)
            values = cluster_values(cluster)
            assert values['towline_workers{state="running"}'] == 2
            assert values['towline_worker_misdirected_datagrams_total{worker="0"}'] == 1
            assert values['towline_worker_restarts_total{worker="1"}'] == 0

    asyncio.run(main())


def test_a_worker_that_dies_again_and_again_waits_longer() -> None:
    async def main() -> None:
        async with cluster_of(workers=1, backoff=0.2) as cluster:
            for deaths in range(1, 3):
                client = await Client(cluster).__aenter__()
                began = asyncio.get_running_loop().time()
                await client.stream.write(b"die\n")
                await until(cluster, lambda workers: workers[0].restarts == deaths)
                took = asyncio.get_running_loop().time() - began
                assert took >= (0, 0, 0.2)[deaths]
                await until(cluster, lambda workers: workers[0].state is WorkerState.RUNNING)
                assert cluster.workers[0].last_exit == 9
                client.session.close()

    asyncio.run(main())


def test_handlers_that_are_functions_are_served() -> None:
    from clusterapp import who

    async def main() -> None:
        async with cluster_of(who, workers=1, loop="uvloop:new_event_loop") as cluster:
            async with Client(cluster) as client:
                assert client.pid == cluster.workers[0].pid

    asyncio.run(main())


def test_a_restart_drains_and_goes_on() -> None:
    async def main() -> None:
        async with cluster_of(workers=1, grace=0.2) as cluster:
            before = {worker.pid for worker in cluster.workers}
            client = await Client(cluster).__aenter__()
            await cluster.restart()
            end = await client.session.closed
            assert (end.code, end.by_peer) == (0, True)
            await until(cluster, lambda workers: all(w.pid is not None for w in workers))
            assert not before & {worker.pid for worker in cluster.workers}
            async with Client(cluster):
                pass

    asyncio.run(main())


def test_a_start_and_a_restart_can_be_given_up() -> None:
    async def main() -> None:
        cluster = cluster_of(workers=2)
        starting = asyncio.create_task(cluster.__aenter__())
        while not any(worker.pid for worker in cluster.workers):
            await asyncio.sleep(0.01)
        starting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await starting
        assert {worker.state for worker in cluster.workers} == {WorkerState.STOPPED}
        assert cluster._groups == []
        async with cluster_of(workers=1) as other:
            restarting = asyncio.create_task(other.restart())
            await asyncio.sleep(0)
        await restarting
        with pytest.raises(RuntimeError, match="started before"):
            await other.__aenter__()

    asyncio.run(main())


def test_processes_that_cannot_be_started_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/nowhere/python")

    async def main() -> None:
        with pytest.raises(ClusterError, match="no process could be started"):
            async with cluster_of(workers=1):
                pass

    asyncio.run(main())


def test_sigterm_drains_the_workers() -> None:
    async def main() -> None:
        async with cluster_of(workers=1, grace=1.0) as cluster:
            async with Client(cluster) as client:
                asyncio.get_running_loop().call_later(0.05, os.kill, os.getpid(), signal.SIGTERM)
                serving = asyncio.create_task(cluster.serve_forever())
                await client.session.draining
                assert await client.ask() == client.pid, "it may go on for the grace"
                client.session.close()
                await serving
            assert cluster.workers[0].last_exit == 0

    asyncio.run(main())


def test_a_worker_that_does_not_end_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(towline.cluster, "_KILL_AFTER", 0.3)

    async def main() -> None:
        async with cluster_of("clusterapp:stubborn", workers=1, grace=0.1) as cluster:
            connecting = towline.connect(cluster.url, pins=[CERTIFICATE])
            session = await connecting.__aenter__()
            await asyncio.sleep(0.1)
        assert cluster.workers[0].last_exit == -signal.SIGKILL
        session.close()

    asyncio.run(main())


def test_a_worker_that_forked_is_replaced_when_it_dies() -> None:
    async def main() -> None:
        async with cluster_of(workers=1, backoff=0.1) as cluster:
            client = await Client(cluster).__aenter__()
            await client.stream.write(b"fork\n")
            await client.stream.readuntil(b"\n")
            await client.stream.write(b"die\n")
            await until(cluster, lambda workers: workers[0].restarts == 1)
            await until(cluster, lambda workers: workers[0].state is WorkerState.RUNNING)
            client.session.close()

    asyncio.run(main())


def test_a_restart_kills_what_does_not_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(towline.cluster, "_KILL_AFTER", 0.3)

    async def main() -> None:
        async with cluster_of("clusterapp:stubborn", workers=1, grace=0.1) as cluster:
            connecting = towline.connect(cluster.url, pins=[CERTIFICATE])
            session = await connecting.__aenter__()
            before = cluster.workers[0].pid
            await cluster.restart()
            assert cluster.workers[0].pid != before
            session.close()

    asyncio.run(main())


@pytest.mark.parametrize(
    ("target", "words"),
    [
        ("nowhere_at_all:app", "'nowhere_at_all' cannot be imported"),
        ("clusterapp:nothing", "'clusterapp' has no 'nothing'"),
        ("clusterapp:not_served", "neither a ServerApp nor a handler"),
        ("/nowhere.py:app", "there is no file"),
    ],
)
def test_a_target_that_cannot_be_served_is_told(target: str, words: str) -> None:
    async def main() -> None:
        cluster = cluster_of(target, workers=1)
        with pytest.raises(ClusterError, match=words):
            async with cluster:
                pass
        assert cluster._groups == []

    asyncio.run(main())


def test_a_parent_that_vanishes_ends_its_workers(tmp_path: Path) -> None:
    certificate = tmp_path / "certificate.pem"
    key = tmp_path / "key.pem"
    certificate.write_text(CERTIFICATE.certificate_pem)
    key.write_text(CERTIFICATE.private_key_pem)
    program = f"""
import asyncio, sys, towline
from towline.cluster import Cluster
sys.path.insert(0, {str(Path(__file__).parent)!r})
certificate = towline.Certificate.load({str(certificate)!r}, {str(key)!r})

async def main():
    cluster = Cluster("clusterapp:app", "127.0.0.1", certificate=certificate, workers=1, grace=0.1)
    async with cluster:
        print(cluster.workers[0].pid, flush=True)
        await cluster.serve_forever()

asyncio.run(main())
"""

    async def main() -> None:
        parent = await asyncio.create_subprocess_exec(
            sys.executable, "-c", program, stdout=asyncio.subprocess.PIPE
        )
        assert parent.stdout is not None
        worker = int(await parent.stdout.readline())
        parent.kill()
        await parent.communicate()
        async with asyncio.timeout(20):
            while Path(f"/proc/{worker}").exists():
                if "State:\tZ" in Path(f"/proc/{worker}/status").read_text():
                    break
                await asyncio.sleep(0.02)

    asyncio.run(main())


def test_several_addresses_have_one_port() -> None:
    async def main() -> None:
        cluster = Cluster("clusterapp:app", None, certificate=CERTIFICATE, workers=1)
        async with cluster:
            assert cluster.url == f"https://localhost:{cluster.port}"
            for host in ("127.0.0.1", "localhost"):
                url = f"https://{host}:{cluster.port}/"
                async with towline.connect(url, pins=[CERTIFICATE]):
                    pass

    asyncio.run(main())


def test_a_port_that_is_taken_is_told() -> None:
    async def main() -> None:
        async with towline.serve(idle, "127.0.0.1", certificate=CERTIFICATE) as server:
            with pytest.raises(OSError, match="in use"):
                async with Cluster(
                    "clusterapp:app", "127.0.0.1", server.port, certificate=CERTIFICATE, workers=2
                ):
                    pass

    asyncio.run(main())


def test_descriptors_that_are_no_sockets_are_refused() -> None:
    certificate = CERTIFICATE._native
    with open("/dev/null") as file, pytest.raises(OSError):
        _native.Driver.adopt(file.fileno(), certificate, 0, 1, bytes(32))
    with pytest.raises(OSError):
        _native.Driver.adopt(-1, certificate, 0, 1, bytes(32))
    fds, port = _native.bind_group("127.0.0.1", 0, 2)
    assert len(fds) == 2 and port
    try:
        with pytest.raises(OSError, match="shard 2 of 2"):
            _native.Driver.adopt(fds[0], certificate, 2, 2, bytes(32))
        with pytest.raises(ValueError):
            _native.Driver.adopt(fds[0], certificate, 0, 2, bytes(31))
    finally:
        for fd in fds:
            os.close(fd)
    with pytest.raises(OSError, match="1 to 64 shards"):
        _native.bind_group("127.0.0.1", 0, 65)


def test_wrong_arguments_are_named() -> None:
    with pytest.raises(TypeError, match="'certificate'"):
        Cluster("a:b", certificate="x")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="'workers'"):
        cluster_of(workers=65)
    with pytest.raises(ValueError, match="'target'"):
        cluster_of("app")
    with pytest.raises(TypeError, match="'target'"):
        cluster_of(lambda session: None)
    with pytest.raises(TypeError, match="'target'"):
        cluster_of(3)
    with pytest.raises(TypeError, match="'protocols'"):
        cluster_of(protocols="abc")
    with pytest.raises(ValueError, match="none of the form"):
        load("a")
