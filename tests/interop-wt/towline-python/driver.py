"""Interop driver for Towline's Python package, over its public API alone.

The contract is in ../README.md.
"""

import asyncio
import sys
from pathlib import Path

import towline

sys.path.insert(0, str(Path(__file__).parent.parent / "contract"))
import contract


async def serve(folder: Path) -> None:
    certificate = towline.Certificate.load(folder / "cert.pem", folder / "key.pem")
    async with towline.serve(handle, "127.0.0.1", certificate=certificate) as server:
        contract.listening(("127.0.0.1", server.port))
        contract.exit_with_input()
        await server.serve_forever()


async def handle(session: towline.Session) -> None:
    if session.path == "/close":
        session.close(*contract.SERVER_CLOSE)
        return
    echoes = [echo_bidirectional, echo_unidirectional, echo_datagrams]
    tasks = [asyncio.ensure_future(echo(session)) for echo in echoes]
    try:
        closed = await session.closed
        contract.session_closed(closed.code, closed.reason)
    except towline.ConnectionLost as error:
        print("server:", error, file=sys.stderr)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def echo_bidirectional(session: towline.Session) -> None:
    async with asyncio.TaskGroup() as tasks:
        async for stream in session.incoming_bidirectional_streams:
            tasks.create_task(echo(stream, stream))


async def echo_unidirectional(session: towline.Session) -> None:
    async with asyncio.TaskGroup() as tasks:
        async for incoming in session.incoming_unidirectional_streams:
            outgoing = await session.create_unidirectional_stream()
            tasks.create_task(echo(incoming, outgoing))


async def echo(
    incoming: towline.BidirectionalStream | towline.ReceiveStream,
    outgoing: towline.BidirectionalStream | towline.SendStream,
) -> None:
    try:
        async for chunk in incoming.chunks():
            await outgoing.write(chunk)
        outgoing.finish()
    except towline.TowlineError as error:
        print("server:", error, file=sys.stderr)


async def echo_datagrams(session: towline.Session) -> None:
    async for datagram in session.datagrams:
        session.datagrams.send(datagram)


async def run_client(folder: Path, host: str, port: int) -> None:
    certificate = towline.Certificate.load(folder / "cert.pem", folder / "key.pem")

    def connect(path: str) -> towline.Connecting:
        return towline.connect(f"https://{host}:{port}{path}", pins=[certificate])

    async def handshake() -> str:
        async with connect("/echo") as session:
            # As Towline's other driver says it.
            return session.dialect.replace("-", "").capitalize()

    async def bidirectional() -> str:
        async with connect("/echo") as session:
            stream = await session.create_bidirectional_stream()
            sending = asyncio.ensure_future(send(stream))
            detail = contract.compare(await stream.read())
            await sending
            return detail

    async def unidirectional() -> str:
        async with connect("/echo") as session:
            outgoing = await session.create_unidirectional_stream()
            sending = asyncio.ensure_future(send(outgoing))
            incoming = await anext(session.incoming_unidirectional_streams)
            detail = contract.compare(await incoming.read())
            await sending
            return detail

    async def datagrams() -> str:
        async with connect("/echo") as session:
            datagrams = contract.Datagrams()
            while (detail := datagrams.all_back()) is None:
                while (datagram := datagrams.next_to_send()) is not None:
                    session.datagrams.send(datagram)
                datagrams.came_back(await session.datagrams.receive())
            return detail

    async def server_closes() -> str:
        async with connect("/close") as session:
            closed = await session.closed
            how = (closed.code, closed.reason) if closed.by_peer else closed
            return contract.server_closed(how)

    async def client_closes() -> str:
        """The runner looks at what the server says of it."""
        async with connect("/echo") as session:
            await session.aclose(*contract.CLIENT_CLOSE)
            return ""

    await contract.run_cases(
        handshake, bidirectional, unidirectional, datagrams, server_closes, client_closes
    )


async def send(stream: towline.BidirectionalStream | towline.SendStream) -> None:
    await stream.write(contract.pattern())
    stream.finish()


if __name__ == "__main__":
    sys.exit(contract.main(serve, run_client))
