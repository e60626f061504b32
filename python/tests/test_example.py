"""The example that the package is made to."""

from __future__ import annotations

import asyncio
import os
import signal

import towline
from conftest import CERTIFICATE


async def chat(session: towline.Session) -> None:
    async with asyncio.TaskGroup() as tasks:
        async for stream in session.incoming_bidirectional_streams:
            tasks.create_task(shout(stream))


async def shout(stream: towline.BidirectionalStream) -> None:
    async with stream:
        async for line in stream.lines(limit=65536):
            await stream.write(line.upper())


def test_the_example(run):
    async def main() -> None:
        async with towline.serve(
            chat,
            "localhost",
            0,
            certificate=CERTIFICATE,
            origins=["https://app.example"],
            protocols=["chat.v2", "chat.v1"],
        ) as running:
            serving = asyncio.create_task(running.serve_forever())
            url, pin = f"{running.url}/chat", CERTIFICATE.sha256
            async with towline.connect(url, pins=[pin], protocols=["chat.v2"]) as session:
                assert session.protocol == "chat.v2"
                assert session.dialect == "draft-16"
                async with await session.create_bidirectional_stream(send_order=5) as stream:
                    await stream.write(b"ahoy\n")
                    assert await stream.readuntil(b"\n") == b"AHOY\n"
                    stream.finish()
                    assert await stream.read() == b""
                assert session.datagrams.send(b"60.1,24.9", max_age=0.25)
                assert 0 < (await session.get_stats()).smoothed_rtt < 5
            os.kill(os.getpid(), signal.SIGTERM)
            await serving

    run(main())


def test_a_wrong_pin_is_refused_in_words(run):
    async def main() -> None:
        async with towline.serve(chat, "127.0.0.1", certificate=CERTIFICATE) as running:
            other = towline.generate_certificate("localhost")
            try:
                async with towline.connect(running.url, pins=[other]):
                    raise AssertionError("connected")
            except ConnectionRefusedError as error:
                assert isinstance(error, towline.HandshakeRefused)
                assert error.status is None
                assert CERTIFICATE.sha256 in str(error)
                assert other.sha256 in str(error)

    run(main())


def test_a_page_of_another_origin_is_refused(run):
    async def main() -> None:
        async with towline.serve(
            chat, "127.0.0.1", certificate=CERTIFICATE, origins=["https://app.example"]
        ) as running:
            good = {"origin": "https://app.example"}
            async with towline.connect(running.url, pins=[CERTIFICATE], headers=good):
                pass
            bad = {"origin": "https://other.example"}
            try:
                await towline.connect(running.url, pins=[CERTIFICATE], headers=bad)
                raise AssertionError("connected")
            except towline.HandshakeRefused as error:
                assert error.status == 403

    run(main())
