# SPDX-License-Identifier: Apache-2.0
"""Feast and falaj with the same 50 features of the same entities."""

import json
import pathlib
import re
import subprocess

import servers

FEAST = servers.CLIENTS / "feast"
FEATURES = [f"f{j}" for j in range(50)]


def is_installed():
    return (FEAST / ".obtained").exists()


def side(*words, timeout=3600):
    """Runs feast_side.py in Feast's environment; gives what it printed last."""
    done = subprocess.run(
        [str(FEAST / "bin/python"), str(pathlib.Path(__file__).parent / "feast_side.py"), *map(str, words)],
        env=servers.clean_environment(FEAST_USAGE="False"),
        capture_output=True,
        text=True,
        timeout=timeout,
    )
    if done.returncode != 0:
        raise RuntimeError(f"feast_side.py {' '.join(map(str, words))}: {done.stderr[-3000:]}")
    return json.loads(done.stdout.strip().splitlines()[-1])


def declared():
    columns = ", ".join(f"{{name: {f}, type: float64}}" for f in FEATURES)
    features = ", ".join(f"{{name: {f}}}" for f in FEATURES)
    kinds = [
        ("Dataset", "rows", "{columns: [{name: customer, type: text}, {name: event_timestamp, type: timestamp}, "
         + columns + "], time: event_timestamp}"),
        ("Dataset", "spine", "{columns: [{name: customer, type: text}, {name: event_timestamp, type: timestamp}], "
         "time: event_timestamp}"),
        ("Entity", "customer", "{key: [{name: customer, type: text}]}"),
        ("FeatureView", "row", f"{{entity: customer, dataset: rows, time: event_timestamp, features: [{features}]}}"),
        ("FeatureService", "fifty", "{features: ['row:*']}"),
        ("PushSource", "landed", "{dataset: rows}"),
    ]
    return "".join(
        f"---\napiVersion: falaj/v1\nkind: {kind}\n"
        f"metadata: {{tenant: default, project: default, name: {name}}}\nspec: {spec}\n"
        for kind, name, spec in kinds
    )


class Falaj(servers.Falaj):
    """With the rows that `feast_side.py prepare` left in `data`, online."""

    def __init__(self, directory, binary, data):
        super().__init__(directory, binary, ["rates.calls_per_second=1000000", "log_level=error"])
        self.must("apply", "-f", "-", text=declared())
        self.in_project("dataset", "ingest", "rows", str(data / "plain.parquet"), "-q")
        self.in_project("dataset", "ingest", "spine", str(data / "spine.parquet"), "-q")
        self.in_project("features", "materialize", "row", "-q")
        self.feast_url = self.url + "/feast/default/default"

    def in_project(self, *argv):
        return self.must(*argv, "--tenant", "default", "--project", "default")


class Feast(servers.Server):
    """Its own HTTP server over its SQLite store."""

    token = None

    def __init__(self, directory, data, workers):
        super().__init__(directory)
        self.port = servers.free_port()
        self.url = self.feast_url = f"http://127.0.0.1:{self.port}"
        argv = [FEAST / "bin/feast", "-c", data, "serve", "-h", "127.0.0.1", "-p", self.port, "--no-access-log"]
        # By default its workers end after a thousand requests, and with them their connections: to its advantage, not here.
        argv += ["-w", workers, "--max-requests", 0, "--max-requests-jitter", 0]
        self.spawn(argv, servers.clean_environment(FEAST_USAGE="False"), None)
        self.await_health("feast serve")


def peak_mb(server):
    """Most memory that a server and its children had, added up."""
    total, family = 0.0, [server.child.pid]
    while family:
        pid = family.pop()
        try:
            status = pathlib.Path(f"/proc/{pid}/status").read_text()
            family += [int(p) for p in pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
        except OSError:
            continue
        total += int(re.search(r"VmHWM:\s+(\d+)", status).group(1)) / 1024
    return total
