"""Interop driver for pywebtransport 0.21.1, over its public API alone; the contract is in ../../README.md."""

import asyncio
import sys
from pathlib import Path

import pywebtransport
from pywebtransport import ClientConfig, ServerConfig, WebTransportClient, WebTransportServer
from pywebtransport.types import EventType

sys.path.insert(0, str(Path(__file__).parents[2] / "contract"))
import contract


async def serve(folder: Path) -> None:
    config = ServerConfig(
        bind_host="127.0.0.1",
        bind_port=contract.free_port(),
        certfile=str(folder / "cert.pem"),
        keyfile=str(folder / "key.pem"),
    )
    async with WebTransportServer(config=config) as server, asyncio.TaskGroup() as tasks:
        await server.listen()
        contract.listening(server.local_addresses[0])
        contract.exit_with_input()
        async for connection in server.incoming_connections():
            tasks.create_task(serve_connection(connection))


async def serve_connection(connection) -> None:
    async for session in connection.incoming_sessions():
        try:
            await serve_session(session)
        except pywebtransport.WebTransportError as error:
            print("server:", error, file=sys.stderr)


async def serve_session(session) -> None:
    closed = asyncio.ensure_future(session.events.wait_for(event_type=EventType.SESSION_CLOSED))
    await session.accept()
    if session.path == "/close":
        code, reason = contract.SERVER_CLOSE
        await session.close(error_code=code, reason=reason)
        return
    echoes = [echo_bidirectional(session), echo_unidirectional(session), echo_datagrams(session)]
    tasks = [asyncio.ensure_future(echo) for echo in echoes]
    contract.session_closed(*how(await closed))
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def how(closed) -> tuple[int, str]:
    return closed.data.get("error_code", 0), closed.data.get("reason", "")


async def echo_bidirectional(session) -> None:
    async with asyncio.TaskGroup() as tasks:
        async for stream in session.incoming_bidirectional_streams():
            tasks.create_task(echo(stream, stream))


async def echo_unidirectional(session) -> None:
    async with asyncio.TaskGroup() as tasks:
        async for incoming in session.incoming_unidirectional_streams():
            outgoing = await session.create_unidirectional_stream()
            tasks.create_task(echo(incoming, outgoing))


async def echo(incoming, outgoing) -> None:
    try:
        async for chunk in incoming:
            await outgoing.write(data=chunk)
        await outgoing.write(data=b"", end_stream=True)
    except pywebtransport.WebTransportError as error:
        print("server:", error, file=sys.stderr)


async def echo_datagrams(session) -> None:
    while True:
        await session.send_datagram(data=await session.read_datagram())


async def run_client(folder: Path, host: str, port: int) -> None:
    config = ClientConfig(ca_certs=str(folder / "cert.pem"))
    async with WebTransportClient(config=config) as client:

        def connect(path: str):
            return client.connect(url=f"https://{host}:{port}{path}")

        async def handshake() -> str:
            async with await connect("/echo"):
                return "Draft16"

        async def bidirectional() -> str:
            async with await connect("/echo") as session:
                stream = await session.create_bidirectional_stream()
                sending = asyncio.ensure_future(send(stream))
                detail = contract.compare(await stream.read_all())
                await sending
                return detail

        async def unidirectional() -> str:
            async with await connect("/echo") as session:
                outgoing = await session.create_unidirectional_stream()
                sending = asyncio.ensure_future(send(outgoing))
                incoming = await anext(session.incoming_unidirectional_streams())
                detail = contract.compare(await incoming.read_all())
                await sending
                return detail

        async def datagrams() -> str:
            async with await connect("/echo") as session:
                datagrams = contract.Datagrams()
                while (detail := datagrams.all_back()) is None:
                    while (datagram := datagrams.next_to_send()) is not None:
                        await session.send_datagram(data=datagram)
                    datagrams.came_back(await session.read_datagram())
                return detail

        async def server_closes() -> str:
            # The session is had before the server's answer, so that its end can't be missed.
            url = f"https://{host}:{port}/close"
            session = await client.connect_optimistic(url=url)
            event = await session.events.wait_for(event_type=EventType.SESSION_CLOSED)
            return contract.server_closed(how(event))

        async def client_closes() -> str:
            """The runner looks at what the server says of it."""
            session = await connect("/echo")
            code, reason = contract.CLIENT_CLOSE
            await session.close(error_code=code, reason=reason)
            await asyncio.sleep(contract.PARTING)
            return ""

        await contract.run_cases(
            handshake, bidirectional, unidirectional, datagrams, server_closes, client_closes
        )


async def send(stream) -> None:
    await stream.write_all(data=contract.pattern(), end_stream=True)


if __name__ == "__main__":
    sys.exit(contract.main(serve, run_client))
