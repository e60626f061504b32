"""Interop driver for pywebtransport 0.9.0, over its public API alone; the contract is in ../../README.md."""

import asyncio
import ssl
import sys
from pathlib import Path

from pywebtransport import ClientConfig, ServerApp, ServerConfig, WebTransportClient
from pywebtransport.types import EventType

sys.path.insert(0, str(Path(__file__).parents[2] / "contract"))
import contract

# Its default of 0 would leave sessions without credit where the peer asks for limits.
LIMITS = {
    "initial_max_data": 16 << 20,
    "initial_max_streams_bidi": 100,
    "initial_max_streams_uni": 100,
}


async def closed(session) -> tuple[int, str]:
    """How the peer closed the session.

    The session drops its listeners before the event reaches them; its history keeps it.
    """
    while not (events := session.events.get_event_history(event_type=EventType.SESSION_CLOSED)):
        await asyncio.sleep(0.05)
    return events[0].data["code"], events[0].data["reason"]


async def serve(folder: Path) -> None:
    config = ServerConfig(
        bind_host="127.0.0.1",
        bind_port=contract.free_port(),
        certfile=str(folder / "cert.pem"),
        keyfile=str(folder / "key.pem"),
        verify_mode=ssl.CERT_NONE,
        **LIMITS,
    )
    app = ServerApp(config=config)
    app.route(path="/echo")(echo_session)
    app.route(path="/close")(close_session)
    async with app:
        await app.server.listen()
        contract.listening(app.server.local_address)
        contract.exit_with_input()
        await app.server.serve_forever()


async def close_session(session) -> None:
    code, reason = contract.SERVER_CLOSE
    await session.close(error_code=code, reason=reason)


async def echo_session(session) -> None:
    tasks = set()

    def start(coroutine) -> None:
        task = asyncio.ensure_future(coroutine)
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    def on_stream(event) -> None:
        start(echo(session, event.data["stream"]))

    def on_datagram(event) -> None:
        start(session.send_datagram(data=event.data["data"]))

    session.events.on(event_type=EventType.STREAM_OPENED, handler=on_stream)
    session.events.on(event_type=EventType.DATAGRAM_RECEIVED, handler=on_datagram)
    contract.session_closed(*await closed(session))


async def echo(session, incoming) -> None:
    is_bidirectional = hasattr(incoming, "write")
    outgoing = incoming if is_bidirectional else await session.create_unidirectional_stream()
    async for chunk in incoming:
        await outgoing.write(data=chunk)
    await outgoing.write(data=b"", end_stream=True)


async def run_client(folder: Path, host: str, port: int) -> None:
    config = ClientConfig(ca_certs=str(folder / "cert.pem"), **LIMITS)
    async with WebTransportClient(config=config) as client:

        def connect(path: str):
            return client.connect(url=f"https://{host}:{port}{path}")

        async def handshake() -> str:
            async with await connect("/echo"):
                return ""

        async def bidirectional() -> str:
            async with await connect("/echo") as session:
                stream = await session.create_bidirectional_stream()
                sending = asyncio.ensure_future(stream.write_all(data=contract.pattern()))
                detail = contract.compare(await stream.read_all())
                await sending
                return detail

        async def unidirectional() -> str:
            async with await connect("/echo") as session:
                event = asyncio.ensure_future(
                    session.events.wait_for(event_type=EventType.STREAM_OPENED, condition=is_theirs)
                )
                outgoing = await session.create_unidirectional_stream()
                sending = asyncio.ensure_future(outgoing.write_all(data=contract.pattern()))
                incoming = (await event).data["stream"]
                detail = contract.compare(await incoming.read_all())
                await sending
                return detail

        async def datagrams() -> str:
            async with await connect("/echo") as session:
                received: asyncio.Queue[bytes] = asyncio.Queue()
                session.events.on(
                    event_type=EventType.DATAGRAM_RECEIVED,
                    handler=lambda event: received.put_nowait(event.data["data"]),
                )
                datagrams = contract.Datagrams()
                while (detail := datagrams.all_back()) is None:
                    while (datagram := datagrams.next_to_send()) is not None:
                        await session.send_datagram(data=datagram)
                    datagrams.came_back(await received.get())
                return detail

        async def server_closes() -> str:
            return contract.server_closed(await closed(await connect("/close")))

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


def is_theirs(event) -> bool:
    return not hasattr(event.data["stream"], "write")


if __name__ == "__main__":
    sys.exit(contract.main(serve, run_client))
