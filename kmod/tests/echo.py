"""Framed echo with Python's own modules: echo.py sockets|asyncio server|client PORT PROTOCOL [COUNT]

A frame is a 4-byte big-endian length and so many bytes. PROTOCOL is the third argument of
socket(), and the only thing that changes for secure TCP.
"""

import asyncio
import os
import socket
import struct
import sys

HOST = os.environ.get("ECHO_HOST", "127.0.0.1")
BODY = b"PLAINTEXT-MARKER-0123456789." * 10
FRAME = struct.pack(">I", len(BODY)) + BODY


def make(protocol):
    s = socket.socket(socket.AF_INET, socket.SOCK_STREAM, protocol)
    s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    return s


def exactly(s, length):
    data = b""
    while len(data) < length:
        part = s.recv(length - len(data))
        if not part:
            return None
        data += part
    return data


def socket_server(port, protocol):
    with make(protocol) as l:
        l.bind((HOST, port))
        l.listen()
        print("ready", flush=True)
        s, _ = l.accept()
        with s:
            while head := exactly(s, 4):
                body = exactly(s, struct.unpack(">I", head)[0])
                s.sendall(head + body)


def socket_client(port, protocol, count):
    with make(protocol) as s:
        s.connect((HOST, port))
        for _ in range(count):
            s.sendall(FRAME)
            assert exactly(s, 4) + exactly(s, len(BODY)) == FRAME
        s.shutdown(socket.SHUT_WR)
        assert s.recv(1) == b""


async def asyncio_server(port, protocol):
    finished = asyncio.Event()

    async def serve(reader, writer):
        try:
            while True:
                head = await reader.readexactly(4)
                writer.write(head + await reader.readexactly(struct.unpack(">I", head)[0]))
                await writer.drain()
        except asyncio.IncompleteReadError as error:
            assert not error.partial
        writer.close()
        await writer.wait_closed()
        finished.set()

    l = make(protocol)
    l.bind((HOST, port))
    async with await asyncio.start_server(serve, sock=l):
        print("ready", flush=True)
        await finished.wait()


async def asyncio_client(port, protocol, count):
    # What Python remembers of the protocol goes to getaddrinfo(), which knows no number but TCP's;
    # the socket itself says TCP.
    s = socket.socket(fileno=make(protocol).detach())
    s.setblocking(False)
    await asyncio.get_running_loop().sock_connect(s, (HOST, port))
    reader, writer = await asyncio.open_connection(sock=s)
    for _ in range(count):
        writer.write(FRAME)
        await writer.drain()
        assert await reader.readexactly(len(FRAME)) == FRAME
    writer.write_eof()
    assert await reader.read() == b""
    writer.close()
    await writer.wait_closed()


kind, role, port, protocol = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
count = int(sys.argv[5]) if len(sys.argv) > 5 else 50
if kind == "sockets" and role == "server":
    socket_server(port, protocol)
elif kind == "sockets":
    socket_client(port, protocol, count)
elif role == "server":
    asyncio.run(asyncio_server(port, protocol))
else:
    asyncio.run(asyncio_client(port, protocol, count))
