# SPDX-License-Identifier: Apache-2.0
"""HTTP load that costs its own process little: requests are bytes made before, connections are kept, answers are only
counted. What is measured is then the server."""

import hashlib
import json
import os
import socket
import statistics
import tempfile
import threading
import time
import urllib.parse


class Refused(Exception):
    pass


class Connection:
    def __init__(self, url, token=None, acknowledge_at_once=True):
        self.acknowledge_at_once = acknowledge_at_once
        parts = urllib.parse.urlsplit(url)
        self.address, self.prefix = (parts.hostname, parts.port), parts.path
        self.head = f"Host: {parts.netloc}\r\n" + (f"Authorization: Bearer {token}\r\n" if token else "")
        self.socket = None

    def connect(self):
        self.socket = socket.create_connection(self.address, timeout=300)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def receive(self, size):
        """A server that sends an answer in two pieces without TCP_NODELAY waits 40 ms for our acknowledgement of the first.
        That is a setting of its socket and not what its store can do, so we acknowledge at once, whoever the server is.
        The kernel forgets the option: it is set again for every piece."""
        more = self.socket.recv(size)
        if self.acknowledge_at_once:
            self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)
        if not more:
            raise ConnectionError("closed by the server")
        return more

    def close(self):
        if self.socket:
            self.socket.close()
            self.socket = None

    def request(self, method, path, body=b"", kind="application/json", length=None):
        """The bytes of a request. With `length`, the body is sent by the caller."""
        size = len(body) if length is None else length
        about = f"Content-Type: {kind}\r\nContent-Length: {size}\r\n" if body or length else ""
        return f"{method} {self.prefix}{path} HTTP/1.1\r\n{self.head}{about}\r\n".encode() + body

    def exchange(self, request, body_file=None, into=None):
        """Sends the request (and a file after it) and reads the answer, whose body it returns; with `into`, bytes go there
        and their count is returned. Throws Refused when the status is not 200."""
        if self.socket is None:
            self.connect()
        self.socket.sendall(request)
        if body_file is not None:
            self.socket.sendfile(body_file)
        data = b""
        while (end := data.find(b"\r\n\r\n")) < 0:
            data += self.receive(1 << 16)
        head, rest = data[:end].lower(), data[end + 4 :]
        if b"\ntransfer-encoding: chunked" in head:
            body = self.chunks(rest)
        else:
            at = head.find(b"\ncontent-length:")
            length = int(head[at + 16 : head.find(b"\r", at + 1) if head.find(b"\r", at + 1) > 0 else None])
            body = self.plain(rest, length, into if head[9:12] == b"200" else None)
        if b"\nconnection: close" in head:
            self.close()
        if head[9:12] != b"200":
            raise Refused(f"{head[9:12].decode()} {body[:300]!r}")
        return body

    def plain(self, rest, length, into):
        if into is not None:
            buffer = memoryview(bytearray(1 << 20))
            into(rest)
            got = len(rest)
            while got < length:
                count = self.socket.recv_into(buffer)
                if not count:
                    raise ConnectionError("cut by the server")
                into(buffer[:count])
                got += count
            return got
        pieces, got = [rest], len(rest)
        while got < length:
            pieces.append(self.receive(1 << 18))
            got += len(pieces[-1])
        return b"".join(pieces)

    def chunks(self, data):
        body = b""
        while True:
            while (line := data.find(b"\r\n")) < 0:
                data += self.receive(1 << 18)
            size = int(data[:line].split(b";")[0], 16)
            while len(data) < line + 2 + size + 2:
                data += self.receive(1 << 18)
            body += data[line + 2 : line + 2 + size]
            data = data[line + 2 + size + 2 :]
            if size == 0:
                return body

    def call(self, method, path, body=None):
        answer = self.exchange(self.request(method, path, json.dumps(body).encode() if body is not None else b""))
        return json.loads(answer or b"{}")


class Measured:
    """What `clients` threads, each calling its own function over and over, reached together."""

    def __init__(self, works, seconds, at_most=None):
        self.latencies = []
        self.errors = []
        begin = threading.Barrier(len(works) + 1)
        lock = threading.Lock()

        def loop(work):
            mine, count = [], 0
            begin.wait()
            try:
                while time.perf_counter() < self.until and (at_most is None or count < at_most):
                    before = time.perf_counter()
                    work()
                    mine.append(time.perf_counter() - before)
                    count += 1
            except Exception as e:
                with lock:
                    self.errors.append(e)
            with lock:
                self.latencies += mine

        threads = [threading.Thread(target=loop, args=(w,)) for w in works]
        for t in threads:
            t.start()
        started = time.perf_counter()
        self.until = started + seconds
        begin.wait()
        for t in threads:
            t.join()
        self.seconds = time.perf_counter() - started
        if self.errors:
            raise self.errors[0]
        self.rate = len(self.latencies) / self.seconds

    def percentile_ms(self, p):
        ordered = sorted(self.latencies)
        return 1000 * ordered[min(len(ordered) - 1, int(len(ordered) * p / 100))]

    def __str__(self):
        return f"{self.rate:.1f}/s, p50 {self.percentile_ms(50):.2f} ms, p99 {self.percentile_ms(99):.2f} ms, n {len(self.latencies)}"


def sync_ms(directory):
    """What having 4 KiB on disk costs at this moment: half of it, and the slowest tenth."""
    taken = []
    with tempfile.TemporaryFile(dir=directory, buffering=0) as file:
        for _ in range(50):
            file.write(b"x" * 4096)
            before = time.perf_counter()
            os.fdatasync(file.fileno())
            taken.append(1000 * (time.perf_counter() - before))
    taken.sort()
    return taken[25], taken[45]


def median_seconds(work, times):
    taken = []
    for _ in range(times):
        before = time.perf_counter()
        work()
        taken.append(time.perf_counter() - before)
    return statistics.median(taken)


def copy_and_hash(source, target):
    """The limit of storing bytes under their digest: read them, hash them, write them, have them on disk."""
    digest = hashlib.sha256()
    buffer = bytearray(1 << 20)
    with open(source, "rb", buffering=0) as a, open(target, "wb", buffering=0) as b:
        while count := a.readinto(buffer):
            piece = memoryview(buffer)[:count]
            digest.update(piece)
            b.write(piece)
        os.fsync(b.fileno())
