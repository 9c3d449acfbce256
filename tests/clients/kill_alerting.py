#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Alerts under kill -9: none is lost, and what comes twice comes under one name.

    tests/clients/kill_alerting.py [--binary build/release/bin/falaj] [--kills 20]

Jobs that fit nowhere come and go, so an alert fires and ends; the receiver refuses every fifth delivery; falaj is killed at
moments of chance. At the end every event that is to be told has one delivery, each arrived, nothing else did, and alerts fired and
ended in turn. Ends with one line that begins with "result"."""

import argparse
import collections
import http.server
import json
import pathlib
import random
import sys
import tempfile
import threading
import time

sys.dont_write_bytecode = True
import servers  # noqa: E402

PROJECT = ("-t", "default", "-p", "default")
SETTLE_SECONDS = 180
RULE = """\
apiVersion: falaj/v1
kind: Channel
metadata: {{name: ops, tenant: default, project: default}}
spec: {{type: webhook, url: "http://127.0.0.1:{port}/hook"}}
---
apiVersion: falaj/v1
kind: AlertRule
metadata: {{name: waits, tenant: default, project: default}}
spec: {{on: queueWait, threshold: 0, notify: [ops]}}
"""


class Receiver:
    def __init__(self, chance):
        self.taken = collections.Counter()  # by delivery
        self.events = {}
        self.refused = 0
        receiver = self

        class Hook(http.server.BaseHTTPRequestHandler):
            def do_POST(self):  # noqa: N802
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                if chance.random() < 0.2:
                    receiver.refused += 1
                    self.send_response(503)
                else:
                    delivery = self.headers["X-Falaj-Delivery-Id"]
                    receiver.taken[delivery] += 1
                    receiver.events[delivery] = body["event"]
                    self.send_response(200)
                self.end_headers()

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Hook)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()


def rows(falaj, *command):
    return json.loads(falaj.must("alerts", *command, *PROJECT, "--limit", "1000", "-o", "json"))


def settle(falaj):
    """Until nothing waits to be sent."""
    deadline = time.monotonic() + SETTLE_SECONDS
    while rows(falaj, "deliveries", "--state", "waiting"):
        assert time.monotonic() < deadline, "deliveries wait for too long"
        time.sleep(0.2)


def drill(falaj, kills, chance):
    job = None
    for _ in range(kills):
        for _ in range(chance.randint(1, 3)):
            if job is None:
                job = falaj.must("submit", *PROJECT, "--name", "huge", "--cpus", "5000", "--", "true").split()[0]
            else:
                falaj.must("job", "cancel", *PROJECT, job)
                job = None
            time.sleep(chance.uniform(0, 0.4))
        falaj.kill()
        falaj.start()
    if job is not None:
        falaj.must("job", "cancel", *PROJECT, job)
    deadline = time.monotonic() + SETTLE_SECONDS
    while json.loads(falaj.must("alerts", *PROJECT, "-o", "json")):
        assert time.monotonic() < deadline, "the alert does not end"
        time.sleep(0.1)
    settle(falaj)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", default=servers.ROOT / "build/release/bin/falaj")
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    chance = random.Random(args.seed)
    receiver = Receiver(random.Random(args.seed + 1))
    with tempfile.TemporaryDirectory() as temporary:
        work = pathlib.Path(temporary)
        settings = ['webhooks.hosts=["127.0.0.1"]', "webhooks.plain_http=true", "webhooks.local_addresses=true"]
        falaj = servers.Falaj(work / "falaj", args.binary, [*settings, "alerts.every=100ms"])
        try:
            (work / "rule.yaml").write_text(RULE.format(port=receiver.server.server_port))
            falaj.must("apply", "-f", str(work / "rule.yaml"))
            drill(falaj, args.kills, chance)
            events = [e for e in reversed(rows(falaj, "history")) if e["what"] != "repeated"]
            deliveries = rows(falaj, "deliveries")
            verified = falaj.must("audit", "verify")
        finally:
            falaj.kill()
    told = {e["id"] for e in events if e["told"]}
    assert events, "nothing ever fired"
    assert [e["what"] for e in events] == ["fired", "resolved"] * (len(events) // 2), events
    assert sorted(d["event"] for d in deliveries) == sorted(told), "one delivery for each event"
    assert all(d["state"] == "done" for d in deliveries), deliveries
    assert set(receiver.taken) == {d["id"] for d in deliveries}, "what was sent arrived, and nothing else"
    assert {receiver.events[d["id"]] for d in deliveries} == told
    assert "intact                true" in verified, verified
    twice = sum(n - 1 for n in receiver.taken.values())
    print(
        f"result {args.kills} kills: {len(told)} events told, {len(receiver.taken)} deliveries arrived, {twice} of them again, "
        f"{receiver.refused} refusals"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
