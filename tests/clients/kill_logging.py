#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Sixteen loggers, a server that is killed with -9 again and again, and at the end everything acknowledged is there once.

    tests/clients/kill_logging.py [--kills 20] [--loggers 16] [--seed N] [--server falaj|mlflow] [--binary build/release/bin/falaj]

A logger repeats a call that got no answer, or a busy one, until it is acknowledged, as the MLflow client does. The moments of
the kills are counted in acknowledged calls, drawn from the seed, which is printed.
"""

import argparse
import hashlib
import http.client
import json
import pathlib
import random
import sys
import tempfile
import threading
import time
import urllib.parse

sys.dont_write_bytecode = True
import servers  # noqa: E402

API = "/api/2.0/mlflow/"
RETRIED = {408, 429, 500, 502, 503, 504}  # what the client repeats
PATIENCE_SECONDS = 120
POINTS = 20  # metrics in one batch


class Tally:
    """Counts acknowledged calls and wakes who waits for a number of them."""

    def __init__(self):
        self.changed = threading.Condition()
        self.acknowledged = 0
        self.repeated = 0
        self.failed = None

    def acknowledge(self):
        with self.changed:
            self.acknowledged += 1
            self.changed.notify_all()

    def fail(self, error):
        with self.changed:
            self.failed = self.failed or error
            self.changed.notify_all()

    def wait_for(self, count):
        with self.changed:
            if not self.changed.wait_for(lambda: self.acknowledged >= count or self.failed, PATIENCE_SECONDS):
                raise RuntimeError(
                    f"only {self.acknowledged} calls acknowledged, {count} awaited for {PATIENCE_SECONDS} s"
                )
            if self.failed:
                raise self.failed


class Caller:
    def __init__(self, server, tally):
        self.tally, self.token = tally, server.token
        parts = urllib.parse.urlsplit(server.tracking_uri)
        self.prefix = parts.path
        self.connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=60)

    def once(self, method, path, body, kind):
        headers = {"Content-Type": kind} | ({"Authorization": f"Bearer {self.token}"} if self.token else {})
        self.connection.request(method, self.prefix + path, body=body, headers=headers)
        answer = self.connection.getresponse()
        return answer.status, answer.read()

    def call(self, method, path, body=None, kind="application/json"):
        """Until it is acknowledged. A refusal is an error: nothing here should be refused."""
        data = body if isinstance(body, (bytes, type(None))) else json.dumps(body).encode()
        deadline = time.monotonic() + PATIENCE_SECONDS
        pause = threading.Event()
        for attempt in range(1_000_000):
            try:
                status, text = self.once(method, path, data, kind)
            except (OSError, http.client.HTTPException):
                self.connection.close()
                status, text = 0, b""
            if status == 200:
                self.tally.acknowledge()
                return text
            if status not in RETRIED and status != 0:
                raise RuntimeError(f"{method} {path} was answered {status}: {text[:300]!r}")
            if time.monotonic() > deadline:
                raise RuntimeError(
                    f"{method} {path} was not acknowledged in {PATIENCE_SECONDS} s, last status {status}: {text[:300]!r}"
                )
            self.tally.repeated += 1
            pause.wait(min(0.005 * 2 ** min(attempt, 6), 0.25))  # back off while the server is down, as the client does


def content_of(number, step):
    return hashlib.sha256(f"{number} {step}".encode()).digest() * (1 + (number * 31 + step * 7) % 4000)


class Logger(threading.Thread):
    def __init__(self, number, server, tally, experiment, stop):
        super().__init__(name=f"logger {number}")
        self.number, self.server, self.tally, self.experiment, self.stopping = number, server, tally, experiment, stop
        self.steps, self.files = 0, []

    def run(self):
        try:
            self.log()
        except Exception as e:
            self.tally.fail(e)

    def log(self):
        caller = Caller(self.server, self.tally)
        made = json.loads(caller.call("POST", API + "runs/create", {"experiment_id": self.experiment, "start_time": 1}))
        self.id, uri = made["run"]["info"]["run_id"], made["run"]["info"]["artifact_uri"]
        self.place = "/api/2.0/mlflow-artifacts/artifacts/" + uri.split(":/", 1)[1].strip("/")
        while not self.stopping.is_set():
            step = self.steps
            points = [
                {
                    "key": f"m{i % 2}",
                    "value": step + i / 64,
                    "timestamp": 1000 + step * POINTS + i,
                    "step": step * POINTS + i,
                }
                for i in range(POINTS)
            ]
            caller.call(
                "POST",
                API + "runs/log-batch",
                {"run_id": self.id, "metrics": points, "params": [{"key": f"p{step}", "value": str(step)}]},
            )
            caller.call(
                "POST",
                API + "runs/log-metric",
                {"run_id": self.id, "key": "single", "value": step, "timestamp": step + 1, "step": step},
            )
            if step % 4 == 0:
                name = f"d{step % 3}/f{step}.bin"
                caller.call("PUT", f"{self.place}/{name}", content_of(self.number, step), "application/octet-stream")
                self.files.append((name, step))
            self.steps += 1
        caller.call("POST", API + "runs/update", {"run_id": self.id, "status": "FINISHED", "end_time": 2})

    def check(self, caller):
        """Throws unless exactly what was acknowledged is there; a logger repeats until it is, so that is all it sent."""
        run = json.loads(caller.call("GET", f"{API}runs/get?run_id={self.id}"))["run"]
        params = {p["key"]: p["value"] for p in run["data"]["params"]}
        self.expect("parameters", sorted(params.items()), sorted((f"p{s}", str(s)) for s in range(self.steps)))
        self.expect("number of parameters", len(run["data"]["params"]), self.steps)
        self.expect("status", run["info"]["status"], "FINISHED")
        for key in ("m0", "m1", "single"):
            history = json.loads(caller.call("GET", f"{API}metrics/get-history?run_id={self.id}&metric_key={key}"))[
                "metrics"
            ]
            found = [(m.get("step", 0), m["value"], m["timestamp"]) for m in history]
            if key == "single":
                expected = [(s, float(s), s + 1) for s in range(self.steps)]
            else:
                expected = [
                    (s * POINTS + i, s + i / 64, 1000 + s * POINTS + i)
                    for s in range(self.steps)
                    for i in range(POINTS)
                    if f"m{i % 2}" == key
                ]
            self.expect(f"points of {key}", found, expected)
        for name, step in self.files:
            got = caller.call("GET", f"{self.place}/{name}")
            self.expect(
                name, hashlib.sha256(got).hexdigest(), hashlib.sha256(content_of(self.number, step)).hexdigest()
            )
        listed = set()
        for directory in {name.split("/")[0] for name, _ in self.files}:
            found = json.loads(caller.call("GET", f"{API}artifacts/list?run_id={self.id}&path={directory}"))["files"]
            self.expect(f"files in {directory} named twice", len(found), len({f["path"] for f in found}))
            listed |= {f["path"] for f in found}
        self.expect("files", sorted(listed), sorted(name for name, _ in self.files))

    def expect(self, about, found, expected):
        if found != expected:
            lost = [e for e in expected if e not in found][:5] if isinstance(expected, list) else expected
            more = [f for f in found if f not in expected][:5] if isinstance(expected, list) else found
            raise AssertionError(
                f"{self.name}, run {self.id}: {about}: missing {lost}, not expected {more}"
                + (f", {len(found)} of {len(expected)}" if isinstance(expected, list) else "")
            )


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--loggers", type=int, default=16)
    parser.add_argument("--seed", type=int, default=20)
    parser.add_argument("--server", choices=["falaj", "mlflow"], default="falaj")
    parser.add_argument("--binary", default=str(servers.ROOT / "build/release/bin/falaj"))
    arguments = parser.parse_args()
    print(f"seed {arguments.seed}", flush=True)
    chance, tally, stop = random.Random(arguments.seed), Tally(), threading.Event()
    with tempfile.TemporaryDirectory(prefix="kill-logging-") as directory:
        place = pathlib.Path(directory) / "server"
        server = servers.Falaj(place, arguments.binary) if arguments.server == "falaj" else servers.Mlflow(place, 3)
        loggers = []
        try:
            made = Caller(server, tally).call("POST", API + "experiments/create", {"name": "killed"})
            loggers = [
                Logger(n, server, tally, json.loads(made)["experiment_id"], stop) for n in range(arguments.loggers)
            ]
            for logger in loggers:
                logger.start()
            for _ in range(arguments.kills):
                tally.wait_for(tally.acknowledged + chance.randrange(20, 400))
                server.kill()
                server.start()
            tally.wait_for(tally.acknowledged + 100)
            stop.set()
            for logger in loggers:
                logger.join()
            if tally.failed:
                raise tally.failed
            acknowledged = tally.acknowledged
            server.kill()  # what is checked is what is on disk
            server.start()
            for logger in loggers:
                logger.check(Caller(server, tally))
        finally:
            stop.set()
            if server.child is None:
                server.start()  # loggers end only when they are answered
            for logger in loggers:
                logger.join()
            server.stop()
    points = sum(logger.steps * (POINTS + 1) for logger in loggers)
    print(
        f"result {arguments.kills} kills, {acknowledged} calls acknowledged ({tally.repeated} repeated): {points} metrics, "
        f"{sum(logger.steps for logger in loggers)} parameters, {sum(len(logger.files) for logger in loggers)} files, each there once"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
