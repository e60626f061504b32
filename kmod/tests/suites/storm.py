"""Every call at once, and records of every kind: at random, from a seed. They run `--seconds` long, and a
failure says the seed.
"""

import errno
import fcntl
import os
import random
import select
import signal
import socket
import struct
import subprocess
import time

import harness
from harness import *
from seal import Sealer


@test(agent=None)
def every_call_on_shared_descriptors_while_agents_come_and_go():
    print(f"  seed {harness.SEED}")
    dice = random.Random(harness.SEED)
    agent = Agent()
    try:
        with with_parameter("handshake_ms", 400), with_parameter("pending_max", 8):
            storm = subprocess.Popen(["/t/storm", str(PROTOCOL), str(harness.SEED), str(harness.SECONDS)],
                                     stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
            end = time.monotonic() + harness.SECONDS + 80 * SLOW
            while storm.poll() is None:
                assert time.monotonic() < end, "it hangs"
                SNIFFER.drain()
                what = dice.random()
                if what < 0.02:
                    agent.stop()
                    time.sleep(dice.random() * 0.3)
                    agent = Agent()
                elif what < 0.1:
                    agent.send(signal.SIGSTOP)
                    time.sleep(dice.random() * 0.6)
                    agent.send(signal.SIGCONT)
                time.sleep(0.02)
            with storm.stdout:
                said = storm.stdout.read().decode()
            print("  " + said.strip().replace("\n", "\n  "))
            assert storm.returncode == 0, said
            until("all handshakes ended", lambda: counter("pending") == 0, 15)
            until("all sockets are gone", lambda: counter("sockets") == 0, 15)
            print(f"  {counter('handshakes_ok')} handshakes, {SNIFFER.packets} packets")
        # With time for a handshake: in less the client may have its end of one that the server gives up.
        exchange(*pair())
    finally:
        agent.stop()


# Records.

class Stream:
    """What a peer sends, and what becomes of it: data, and how it ends."""

    IN_A_ROW = 32
    TICKET = bytes([4, 0, 1, 0]) + bytes(256)

    def __init__(self, dice):
        self.dice, self.sealer = dice, Sealer(1)
        self.bytes, self.data = bytearray(), bytearray()
        self.end = None         # 0, or an errno; None: it goes on
        self.without_data = 0
        self.marks = []         # before each record: bytes, data, end
        self.refused = set()    # where bytes begin whose first five are refused already

    def mark(self):
        self.marks.append((len(self.bytes), len(self.data), self.end))

    def finish(self, end):
        if self.end is None:
            self.end = end

    def cut(self, at):
        """Ends the bytes there; the errnos that may be said of it."""
        self.mark()
        begin, data, end = [mark for mark in self.marks if mark[0] <= at][-1]
        del self.bytes[at:], self.data[data:]
        self.end = errno.ECONNRESET if end is None else end
        is_refused = begin in self.refused and at > begin and end is None
        return (self.end, errno.EPROTO) if is_refused else (self.end,)

    def add(self, kind, content=b"", padding=0):
        self.mark()
        self.bytes += self.sealer.record(kind, content, padding)

    def idle(self):
        """A record without data; whether the stream goes on."""
        self.without_data += 1
        if self.without_data > self.IN_A_ROW:
            self.finish(errno.EPROTO)

    def step(self):
        dice = self.dice
        kind = dice.choices(
            ("data", "byte", "full", "empty", "padded", "ticket", "pieces", "cancel", "flood", "mixed",
             "close", "alert", "type", "nothing", "empty control", "update", "forged", "clear", "long", "inside"),
            (40, 20, 6, 12, 8, 8, 6, 8, 2, 3, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1))[0]
        if kind in ("data", "byte", "full", "padded"):
            length = 1 if kind == "byte" else 16384 if kind == "full" else dice.randrange(1, 3000)
            content = dice.randbytes(length)
            self.add(DATA, content, dice.randrange(200) if kind == "padded" else 0)
            self.without_data = 0
            if self.end is None:
                self.data += content
        elif kind == "empty":
            self.add(DATA, b"", dice.choice((0, 0, 1, 500)))
            self.idle()
        elif kind == "ticket":
            self.add(HANDSHAKE, self.TICKET * dice.randrange(1, 4))
            self.idle()
        elif kind == "pieces":
            at = dice.randrange(1, len(self.TICKET))
            for piece in (self.TICKET[:at], self.TICKET[at:]):
                self.add(HANDSHAKE, piece)
                self.idle()
        elif kind == "cancel":
            self.add(ALERT, bytes([1, 90]))
            self.idle()
        elif kind == "flood":
            for _ in range(dice.randrange(20, 60)):
                self.add(*dice.choice(((DATA, b""), (ALERT, bytes([1, 90])), (HANDSHAKE, self.TICKET))))
                self.idle()
        elif kind == "mixed":
            for _ in range(dice.randrange(200)):
                content = dice.randbytes(1)
                self.add(DATA, content)
                self.without_data = 0
                if self.end is None:
                    self.data += content
        elif kind == "close":
            self.add(ALERT, bytes([1, 0]))
            self.idle()
            self.finish(0)
        elif kind == "forged":
            forged = bytearray(self.sealer.record(DATA, b"forged"))
            forged[dice.randrange(5, len(forged))] ^= 1 << dice.randrange(8)
            self.mark()
            self.bytes += forged
            self.finish(errno.EPROTO)
        elif kind == "clear":
            self.mark()
            self.refused.add(len(self.bytes))
            self.bytes += dice.choice((b"GET / HTTP/1.0\r\n\r\n" * 2, b"\x17\x03\x03\xff\xff" + bytes(40),
                                       b"\x17\x03\x01\x00\x20" + bytes(40), b"\x17\x03\x03\x00\x03" + bytes(40)))
            self.finish(errno.EPROTO)
        else:
            {
                "alert": lambda: self.add(ALERT, bytes([2, dice.choice((20, 40, 80, 255))])),
                "type": lambda: self.add(dice.choice((1, 20, 24, 99, 255)), b"what"),
                "nothing": lambda: self.add(None, b"", dice.randrange(300)),
                "empty control": lambda: self.add(dice.choice((ALERT, HANDSHAKE))),
                "update": lambda: self.add(HANDSHAKE, bytes([24, 0, 0, 1, dice.randrange(2)])),
                "long": lambda: (self.refused.add(len(self.bytes)), self.add(DATA, bytes(16385))),
                "inside": lambda: (self.add(HANDSHAKE, self.TICKET[:50]), self.add(DATA, b"no")),
            }[kind]()
            self.finish(errno.EPROTO)


def read_as_it_comes(client, dice, epoll):
    """Everything that the stream has, by calls at random; (data, errno or 0)."""
    data = bytearray()
    while True:
        if dice.random() < 0.5:
            poller = select.poll()
            poller.register(client, select.POLLIN | select.POLLRDHUP)
            if dice.random() < 0.5:
                assert epoll.poll(10), "nothing comes"
            else:
                assert poller.poll(10000), "nothing comes"
        call = dice.randrange(6)
        length = dice.choice((1, 10, 300, 5000, 40000))
        try:
            if call == 0:
                part = client.recv(length, socket.MSG_DONTWAIT)
            elif call == 1:
                part = client.recv(length, socket.MSG_WAITALL)
            elif call == 2:
                seen = client.recv(length, socket.MSG_PEEK)
                part = client.recv(len(seen), socket.MSG_WAITALL) if seen else b""
                assert part == seen, "what was peeked at is not what is read"
            elif call == 3:
                count = struct.unpack("i", fcntl.ioctl(client, 0x541B, bytes(4)))[0]
                part = client.recv(count, socket.MSG_DONTWAIT) if count else client.recv(length)
                assert not count or len(part) == count, "FIONREAD told of more"
            elif call == 4:
                r, w = os.pipe()
                try:
                    moved = os.splice(client.fileno(), w, min(length, 5000))
                    part = os.read(r, moved) if moved else b""
                finally:
                    os.close(r)
                    os.close(w)
            else:
                part = client.recv(length)
        except BlockingIOError:
            continue
        except OSError as error:
            return bytes(data), error.errno
        if not part:
            return bytes(data), 0
        data += part


@test(agent=None)
def records_of_every_kind_do_what_the_model_says():
    end, seed = time.monotonic() + harness.SECONDS, harness.SEED
    cases = 0
    while time.monotonic() < end:
        SNIFFER.drain()
        dice = random.Random(seed)
        stream = Stream(dice)
        for _ in range(dice.randrange(1, 60)):
            stream.step()
        ending = dice.choice(("fin", "cut", "reset", "stay"))
        if ending == "cut":
            wanted = stream.cut(dice.randrange(len(stream.bytes) + 1))
        else:
            if ending == "stay":
                stream.add(ALERT, bytes([1, 0]))
                stream.idle()
            stream.finish(0 if ending == "stay" else errno.ECONNRESET)
            wanted = (stream.end,)
        client, peer = puppet_client(raw=True)
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("qq", 20, 0))
        epoll = select.epoll()
        epoll.register(client, select.EPOLLIN)

        def feed():
            at = 0
            try:
                while at < len(stream.bytes):
                    step = random.choice((7, 100, 3000, 100_000))
                    peer.sendall(stream.bytes[at:at + step])
                    at += step
                if ending == "reset":
                    peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                    peer.close()
                elif ending != "stay":
                    peer.shutdown(socket.SHUT_WR)
            except OSError:
                pass        # the client has ended it
        feeding = Background(feed)
        data, said = read_as_it_comes(client, dice, epoll)
        whole = bytes(stream.data)
        fine = data == whole and said in wanted
        if ending == "reset":       # it may overtake what nobody has read
            fine |= whole.startswith(data) and said == errno.ECONNRESET
        assert fine, (f"--seed={seed} ({ending}): {len(data)} of {len(whole)} bytes, "
                      f"{errno.errorcode.get(said, said)} instead of {[errno.errorcode.get(n, n) for n in wanted]}")
        epoll.close()
        client.close()
        peer.close()
        feeding.result()
        cases, seed = cases + 1, seed + 1
    print(f"  {cases} streams, seeds {harness.SEED} to {seed - 1}")
    until("all sockets are gone", lambda: counter("sockets") == 0, 15)


@test(agent=None)
def fin_and_rst_at_every_offset_are_what_the_records_before_say():
    def whole():
        stream = Stream(random.Random(0))
        for kind, content in ((DATA, MARK), (DATA, b""), (ALERT, bytes([1, 90])), (HANDSHAKE, bytes([4, 0, 0, 3, 1, 2, 3])),
                              (DATA, b"x"), (ALERT, bytes([1, 0]))):
            stream.add(kind, content)
            stream.data += content if kind == DATA else b""
        stream.finish(0)
        return stream
    length = len(whole().bytes)
    for is_reset in (False, True):
        for at in range(length + 1):
            stream = whole()
            wanted = stream.cut(at)
            client, peer = puppet_client(raw=True)
            peer.sendall(stream.bytes)
            if is_reset:
                peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                peer.close()
            else:
                peer.shutdown(socket.SHUT_WR)
            data, said = bytearray(), None
            while said is None:
                try:
                    part = client.recv(100)
                    data += part
                    said = None if part else 0
                except OSError as error:
                    said = error.errno
            told = f"{'RST' if is_reset else 'FIN'} after {at} of {length} bytes: {bytes(data)}, {errno.errorcode.get(said, said)}"
            if is_reset:
                assert stream.data.startswith(data) and said in (*wanted, errno.ECONNRESET), told
            else:
                assert data == stream.data and said in wanted, told
            client.close()
            peer.close()
    print(f"  {2 * length + 2} streams")
