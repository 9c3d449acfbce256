# SPDX-License-Identifier: Apache-2.0
"""An HTTP proxy that remembers what it forwarded and what came back, and that loses answers when told to.

Orders arrive as POST /.recorder (JSON):
  {"fault": 503 | 429 | 502 | "cut before" | "cut after", "times": n, "path": text}   for the next n calls whose path has it
  {"faults": true}                                                              -> {"left": faults not yet used}
"cut before": the server never sees the call. "cut after": it does, and its answer is lost.
"""

import http.client
import http.server
import json
import re
import socket
import threading
import urllib.parse

CHUNK = 1 << 18
# Headers that speak of one connection, not of the message.
HOP = {"connection", "keep-alive", "proxy-connection", "te", "trailer", "transfer-encoding", "upgrade"}


class Recorder:
    def __init__(self, upstream):
        parts = urllib.parse.urlsplit(upstream)
        self.upstream = parts.hostname, parts.port
        self.lock = threading.Lock()
        self.calls = {}  # (method, route, status) -> count
        self.unhandled = {}  # (method, path) -> (count, status)
        self.faults = []  # [fault, times left, path]
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), type("Forward", (Forward,), {"recorder": self}))
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.05,))
        self.thread.start()

    def stop(self):
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()

    def order(self, order):
        with self.lock:
            if "fault" in order:
                self.faults.append([order["fault"], order["times"], order["path"]])
            return {"left": sum(f[1] for f in self.faults)}

    def fault_of(self, path):
        with self.lock:
            for fault in self.faults:
                if fault[1] > 0 and fault[2] in path:
                    fault[1] -= 1
                    return fault[0]
        return None

    def note(self, method, path, status, body):
        route = re.sub(r"m-[0-9a-f]{32}", "{model}", urllib.parse.urlsplit(path).path)
        route = re.sub(r"(mlflow-artifacts/(artifacts|presigned|mpu/\w+))/.*", r"\1/{path}", route)
        missing = status in (404, 405, 501) and "expected-404" not in path
        if status == 404 and missing:
            try:
                missing = json.loads(body).get("error_code", "ENDPOINT_NOT_FOUND") == "ENDPOINT_NOT_FOUND"
            except ValueError:
                missing = True  # the client takes a 404 that is no JSON for an unknown endpoint too
        with self.lock:
            self.calls[method, route, status] = self.calls.get((method, route, status), 0) + 1
            if missing:
                count, _ = self.unhandled.get((method, route), (0, 0))
                self.unhandled[method, route] = count + 1, status


class Forward(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    recorder = None

    def setup(self):
        super().setup()
        self.connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.up = None

    def finish(self):
        super().finish()
        if self.up:
            self.up.close()

    def log_message(self, *_):
        pass

    def pieces(self):
        """The request's body, as it arrives."""
        if "chunked" in self.headers.get("Transfer-Encoding", ""):
            while size := int(self.rfile.readline().split(b";")[0], 16):
                yield self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
            return
        left = int(self.headers.get("Content-Length", 0))
        while left:
            piece = self.rfile.read(min(left, CHUNK))
            if not piece:
                raise ConnectionError("request cut")
            left -= len(piece)
            yield piece

    def cut(self):
        self.close_connection = True
        self.connection.shutdown(socket.SHUT_RDWR)

    def answer(self, status, body, kind="application/json"):
        self.send_response_only(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def forward(self):
        recorder = self.recorder
        if self.path == "/.recorder":
            return self.answer(200, json.dumps(recorder.order(json.loads(b"".join(self.pieces())))).encode())
        fault = recorder.fault_of(self.path)
        if fault == "cut before":
            return self.cut()
        if isinstance(fault, int):
            for _ in self.pieces():
                pass
            return self.answer(fault, b'{"error_code": "TEMPORARILY_UNAVAILABLE", "message": "on purpose"}')
        try:
            self.exchange(fault == "cut after")
        except (OSError, http.client.HTTPException):
            if self.up:
                self.up.close()
            self.up = None
            self.cut_quietly()

    def cut_quietly(self):
        try:
            self.cut()
        except OSError:
            self.close_connection = True

    def exchange(self, lose_answer):
        # A connection for each call: one kept open may be closed by the server just as we use it.
        self.up = http.client.HTTPConnection(*self.recorder.upstream, timeout=300)
        self.up.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
        for name, value in self.headers.items():
            if name.lower() not in HOP:
                self.up.putheader(name, value)
        chunked = "chunked" in self.headers.get("Transfer-Encoding", "")
        if chunked:
            self.up.putheader("Transfer-Encoding", "chunked")
        self.up.putheader("Connection", "close")
        self.up.endheaders()
        for piece in self.pieces():
            self.up.send(b"%x\r\n%s\r\n" % (len(piece), piece) if chunked else piece)
        if chunked:
            self.up.send(b"0\r\n\r\n")
        got = self.up.getresponse()
        kept = got.read() if got.status >= 400 or lose_answer else b""
        self.recorder.note(self.command, self.path, got.status, kept)
        if lose_answer:
            return self.cut()
        self.send_response_only(got.status, got.reason)
        for name, value in got.getheaders():
            if name.lower() not in HOP and name.lower() != "content-length":
                self.send_header(name, value)
        length = str(len(kept)) if kept else got.getheader("Content-Length")
        if length is None:
            self.send_header("Transfer-Encoding", "chunked")
        else:
            self.send_header("Content-Length", length)
        self.end_headers()
        self.wfile.write(kept)
        while piece := got.read(CHUNK):
            self.wfile.write(piece if length is not None else b"%x\r\n%s\r\n" % (len(piece), piece))
        if length is None:
            self.wfile.write(b"0\r\n\r\n")
        self.up.close()
        self.up = None

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = do_HEAD = forward
