#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Falaj and the genuine MLflow server under the same load, turn by turn, on this machine:   ./bench mlflow

    tests/clients/compare.py [--quick] [--seconds N] [--only sql,file,falaj] [--binary build/release/bin/falaj]

Measures: metrics logged durably, runs made and finished, searches over many runs, the first page of a long history, files
up and down. Prints what it measured and one JSON line a claim; exits 1 when a goal was missed. Both servers run with their
defaults (MLflow: four workers; falaj: but for its limit of calls a second). MLflow's SQL store is SQLite, which syncs every commit (four times), as falaj does (once); its
file store syncs nothing and is shown, not judged.

MLflow's answers on a kept connection are late by 40 ms (see load.Connection.receive), which its own clients feel. The claims
leave that out, to MLflow's advantage; the line "as clients feel it" shows it for each server.
"""

import argparse
import hashlib
import json
import os
import pathlib
import random
import sqlite3
import statistics
import sys
import tempfile
import time
import urllib.parse

sys.dont_write_bytecode = True
import load  # noqa: E402
import servers  # noqa: E402

API = "/api/2.0/mlflow/"
STAMP = b"1700000000000"
PAGE = 1000
ROUNDS = 3
# All load here is of one principal, whom falaj would hold to 2000 calls a second. The only setting that is not a default.
UNLIMITED = ["rates.calls_per_second=1000000"]


class Sizes:
    def __init__(self, quick):
        self.seconds = 2 if quick else 8
        self.runs = 1000 if quick else 10_000
        self.points = 100_000 if quick else 1_000_000
        self.file_bytes = (64 << 20) if quick else (1 << 30)
        self.searches = 5 if quick else 20


class Subject:
    """A server and what was measured on it."""

    def __init__(self, name, server):
        self.name, self.server = name, server
        self.samples = {}
        self.failed = False

    def connection(self, **more):
        return load.Connection(self.server.tracking_uri, self.server.token, **more)

    def get(self, key):
        return statistics.median(self.samples[key]) if key in self.samples else None

    def note(self, key, value, text):
        self.samples.setdefault(key, []).append(value)
        print(f"{self.name}: {key}: {text}", flush=True)


def say_failed(subject, key, error):
    print(f"{subject.name}: {key}: FAILED {type(error).__name__}: {str(error)[:300]}", flush=True)


def new_experiment(connection, name):
    return connection.call("POST", API + "experiments/create", {"name": f"{name}-{time.time_ns()}"})["experiment_id"]


def new_run(connection, experiment, name="run"):
    body = {"experiment_id": experiment, "run_name": name, "start_time": 1_700_000_000_000}
    return connection.call("POST", API + "runs/create", body)["run"]["info"]["run_id"]


def batch_work(subject, experiment, metrics, client):
    """Calls that log `metrics` new points each: the bytes of all are alike but for their time stamp."""
    connection = subject.connection()
    run = new_run(connection, experiment, f"client {client}")
    # Each name's steps rise, and the time with every call: no point is one that is already there.
    points = [
        {"key": f"metric{i % 10}", "value": i * 0.001 + 0.5, "timestamp": int(STAMP), "step": i // 10}
        for i in range(metrics)
    ]
    template = connection.request(
        "POST", API + "runs/log-batch", json.dumps({"run_id": run, "metrics": points}).encode()
    )
    stamp = int(STAMP)

    def work():
        nonlocal stamp
        stamp += 1
        connection.exchange(template.replace(STAMP, str(stamp).encode()))

    return work


def measure_logging(subject, sizes, metrics, clients):
    experiment = new_experiment(subject.connection(), "logging")
    works = [batch_work(subject, experiment, metrics, c) for c in range(clients)]
    got = load.Measured(works, sizes.seconds / ROUNDS)
    subject.note(logging_key(metrics, clients), got.rate * metrics, f"{got.rate * metrics:.0f} metrics/s; calls {got}")
    if (metrics, clients) == (1, 1):  # nobody to share a commit with: the disk itself is the limit, so beside it
        half, _ = load.sync_ms(subject.server.directory)
        subject.note("sync", 1000 / half, f"{1000 / half:.0f} times a second by plain 4 KiB + fdatasync, the limit")


def logging_key(metrics, clients):
    return f"log_batch of {metrics}, {clients} clients"


def measure_felt(subject, sizes):
    """One point a call with ordinary acknowledgements, as requests (and so the MLflow client) has them."""
    connection = subject.connection(acknowledge_at_once=False)
    run, step = new_run(connection, new_experiment(connection, "felt")), iter(range(1, 1 << 30))

    def work():
        point = {"run_id": run, "key": "m", "value": 1, "timestamp": next(step)}
        connection.exchange(connection.request("POST", API + "runs/log-metric", json.dumps(point).encode()))

    got = load.Measured([work], sizes.seconds / ROUNDS)
    subject.note("log_metric as clients feel it, 1 client", got.rate, str(got))


def measure_runs(subject, sizes, clients):
    experiment = new_experiment(subject.connection(), "runs")

    def life():
        connection = subject.connection()
        head = connection.request(
            "POST", API + "runs/create", json.dumps({"experiment_id": experiment, "start_time": 1}).encode()
        )

        def work():
            answer = connection.exchange(head)
            at = answer.index(b'"run_id"')
            run = answer[answer.index(b'"', at + 8 + 1) + 1 :][:32].decode()
            body = b'{"run_id": "%s", "status": "FINISHED", "end_time": 2}' % run.encode()
            connection.exchange(connection.request("POST", API + "runs/update", body))

        return work

    got = load.Measured([life() for _ in range(clients)], sizes.seconds / ROUNDS)
    subject.note(f"runs made and finished, {clients} clients", got.rate, str(got))


def fill_by_calls(subject, experiment, count):
    """`count` runs with two metrics and two parameters each."""
    chance = random.Random(11)
    values = [(chance.random(), chance.random(), chance.randrange(10)) for _ in range(count)]
    clients = 16

    def filler(mine):
        connection = subject.connection()
        queue = list(mine)

        def work():
            accuracy, loss, depth = queue.pop()
            run = new_run(connection, experiment)
            connection.call("POST", API + "runs/log-batch", batch_of(run, accuracy, loss, depth))

        return work, len(queue)

    works = [filler(values[c::clients]) for c in range(clients)]
    load.Measured([w for w, _ in works], 3600, at_most=min(n for _, n in works))


def batch_of(run, accuracy, loss, depth):
    return {
        "run_id": run,
        "metrics": [
            {"key": "accuracy", "value": accuracy, "timestamp": 1},
            {"key": "loss", "value": loss, "timestamp": 1},
        ],
        "params": [{"key": "depth", "value": str(depth)}, {"key": "kind", "value": "tree" if depth % 2 else "net"}],
    }


class MlflowDatabase:
    """Copies rows of a genuine server's database in place: by its calls the same would take most of an hour."""

    def __init__(self, server):
        self.db = sqlite3.connect(server.directory / "mlflow.db", timeout=60)

    def rows(self, table, run):
        cursor = self.db.execute(f"SELECT * FROM {table} WHERE run_uuid = ?", (run,))
        names = [d[0] for d in cursor.description]
        return names, [dict(zip(names, row)) for row in cursor.fetchall()]

    def insert(self, table, names, rows):
        marks = ", ".join(":" + n for n in names)
        self.db.executemany(f"INSERT INTO {table} ({', '.join(names)}) VALUES ({marks})", rows)

    def copy_runs(self, run, count):
        tables = {t: self.rows(t, run) for t in ("runs", "metrics", "latest_metrics", "params", "tags")}
        chance = random.Random(11)
        values = [(chance.random(), chance.random(), chance.randrange(10)) for _ in range(count)]
        for table, (names, rows) in tables.items():
            made = []
            for i, (accuracy, loss, depth) in enumerate(values):
                new = {"accuracy": accuracy, "loss": loss, "depth": str(depth), "kind": "tree" if depth % 2 else "net"}
                for row in rows:
                    row = row | {"run_uuid": f"{i:032x}"}
                    if table in ("metrics", "latest_metrics", "params"):
                        row["value"] = new[row["key"]]
                    if table == "runs":
                        row["artifact_uri"] = row["artifact_uri"].replace(run, row["run_uuid"])
                    made.append(row)
            self.insert(table, names, made)
        self.db.commit()
        self.db.execute("ANALYZE")
        self.db.close()

    def copy_points(self, run, count):
        names, rows = self.rows("metrics", run)
        self.insert(
            "metrics",
            names,
            ({**rows[0], "step": i, "timestamp": int(STAMP) + i, "value": i * 0.5} for i in range(1, count)),
        )
        self.db.commit()
        self.db.close()


SEARCHES = {
    "filter by metric and parameter, order by metric": {
        "filter": "metrics.accuracy > 0.5 and params.depth = '3'",
        "order_by": ["metrics.loss ASC"],
    },
    "order by metric": {"order_by": ["metrics.accuracy DESC"]},
}


def measure_search(subject, sizes):
    connection = subject.connection()
    experiment = new_experiment(connection, "search")
    if subject.server.kind == "mlflow":
        run = new_run(connection, experiment)
        connection.call("POST", API + "runs/log-batch", batch_of(run, 0.0, 0.0, 0))
        MlflowDatabase(subject.server).copy_runs(run, sizes.runs)
        connection.close()
    else:
        fill_by_calls(subject, experiment, sizes.runs)
    for name, wanted in SEARCHES.items():
        body = {"experiment_ids": [experiment], "max_results": 100, **wanted}
        found = connection.call("POST", API + "runs/search", body)["runs"]
        if len(found) < min(100, sizes.runs // 25):  # about a twentieth of the runs match the narrower filter
            raise AssertionError(f"only {len(found)} runs found")
        request = connection.request("POST", API + "runs/search", json.dumps(body).encode())
        seconds = load.median_seconds(lambda: connection.exchange(request), sizes.searches)
        subject.note(f"search, {name}", 1 / seconds, f"{1000 * seconds:.2f} ms over {sizes.runs} runs")


def measure_history(subject, sizes):
    connection = subject.connection()
    run = new_run(connection, new_experiment(connection, "history"))

    def log(start, count):
        points = [
            {"key": "loss", "value": i * 0.5, "timestamp": int(STAMP) + i, "step": i}
            for i in range(start, start + count)
        ]
        connection.call("POST", API + "runs/log-batch", {"run_id": run, "metrics": points})

    if subject.server.kind == "mlflow":
        log(0, 1)
        MlflowDatabase(subject.server).copy_points(run, sizes.points)
        connection.close()  # the server closes what is idle for five seconds
    else:
        for start in range(0, sizes.points, 1000):
            log(start, 1000)
    query = urllib.parse.urlencode({"run_id": run, "metric_key": "loss", "max_results": PAGE})
    request = connection.request("GET", f"{API}metrics/get-history?{query}")
    first = json.loads(connection.exchange(request))
    if [m["step"] for m in first["metrics"]] != list(range(PAGE)) or not first.get("next_page_token"):
        raise AssertionError("not the first page")
    seconds = load.median_seconds(lambda: connection.exchange(request), sizes.searches)
    subject.note("first page of a history", 1 / seconds, f"{1000 * seconds:.2f} ms, {PAGE} of {sizes.points} points")


def measure_files(subject, sizes, source):
    size = sizes.file_bytes
    connection = subject.connection()
    run = connection.call(
        "POST", API + "runs/create", {"experiment_id": new_experiment(connection, "files"), "start_time": 1}
    )["run"]["info"]
    place = run["artifact_uri"].split(":/", 1)[1].strip("/")
    path = f"/api/2.0/mlflow-artifacts/artifacts/{place}/large.bin"
    before = time.perf_counter()
    with open(source, "rb") as file:
        connection.exchange(
            connection.request("PUT", path, kind="application/octet-stream", length=size), body_file=file
        )
    taken = time.perf_counter() - before
    subject.note("file up", size / taken / 1e6, f"{size / taken / 1e6:.0f} MB/s, {size >> 20} MiB")
    request = connection.request("GET", path)
    before = time.perf_counter()
    got = connection.exchange(request, into=lambda piece: None)
    taken = time.perf_counter() - before
    digest = hashlib.sha256()
    again = connection.exchange(request, into=digest.update)
    with open(source, "rb") as file:
        expected = hashlib.file_digest(file, "sha256").hexdigest()
    if not isinstance(got, int) or got != size or again != size or digest.hexdigest() != expected:
        raise AssertionError(f"{got} and {again} of {size} bytes came back, or others")
    subject.note("file down", size / taken / 1e6, f"{size / taken / 1e6:.0f} MB/s, {size >> 20} MiB")
    # Beside what it is compared with, for disks are as busy as their neighbours are.
    copy = source.with_name("copy.bin")
    seconds = load.median_seconds(lambda: load.copy_and_hash(source, copy), 3)
    os.remove(copy)
    subject.note(
        "copy", size / seconds / 1e6, f"{size / seconds / 1e6:.0f} MB/s by plain copy + sha256 + fsync, the limit"
    )


def surroundings(directory):
    """Neighbours change what a machine and its disk can do from one moment to the next: shown, so that it can be judged."""
    half, tenth = load.sync_ms(directory)
    print(f"machine: load {os.getloadavg()[0]:.1f}, fdatasync p50 {half:.2f} ms, p90 {tenth:.2f} ms", flush=True)


def measure(subjects, sizes, source):
    """The servers take turns, load by load and round by round, for the same reason."""
    loads = [("felt", measure_felt, ())]
    loads += [("logging", measure_logging, (metrics, clients)) for metrics in (1000, 1) for clients in (1, 8, 16)]
    loads += [("runs", measure_runs, (clients,)) for clients in (1, 8)]
    turns = [(name, step, more) for name, step, more in loads for _ in range(ROUNDS)]
    turns += [("files", measure_files, (source,)), ("search", measure_search, ()), ("history", measure_history, ())]
    for at, (name, step, more) in enumerate(turns):
        if at % ROUNDS == 0:
            surroundings(source.parent)
        for subject in subjects:
            # The file store reads every file of every run for a search: minutes for one.
            if name in ("search", "history") and subject.name == "MLflow file store":
                continue
            try:
                step(subject, sizes, *more)
            except Exception as e:  # one measure that fails must not hide the others
                say_failed(subject, name, e)
                subject.failed = True


def claim(text, unit, ours, against, theirs, goal):
    if ours is None or theirs is None:
        print(
            json.dumps(
                {
                    "claim": text,
                    "ours": ours or 0,
                    "unit": unit,
                    "against": against,
                    "limit": theirs or 0,
                    "ratio": 0,
                    "goal": goal,
                    "better": "higher",
                }
            )
        )
        return False
    ratio = ours / theirs
    print(
        json.dumps(
            {
                "claim": text,
                "ours": round(ours, 3),
                "unit": unit,
                "against": against,
                "limit": round(theirs, 3),
                "ratio": round(ratio, 3),
                "goal": goal,
                "better": "higher",
            }
        ),
        flush=True,
    )
    return ratio >= goal


def claims(falaj, sql):
    """Every claim is judged against MLflow's SQL store, the only one of its stores that keeps what it has acknowledged."""
    against, met = "MLflow on SQLite", []
    for metrics in (1000, 1):
        for clients in (1, 8, 16):
            key = logging_key(metrics, clients)
            met.append(
                claim(f"mlflow: metrics logged durably, {key}", "metric/s", falaj.get(key), against, sql.get(key), 30)
            )
    key = logging_key(1, 1)
    met.append(
        claim(
            f"mlflow: durable calls, {key}", "call/s", falaj.get(key), "4 KiB + fdatasync", falaj.get("sync"), 0.5
        )
    )
    for clients in (1, 8):
        key = f"runs made and finished, {clients} clients"
        met.append(claim(f"mlflow: {key}", "run/s", falaj.get(key), against, sql.get(key), 10))
    for name in SEARCHES:
        met.append(
            claim(
                f"mlflow: search, {name}",
                "search/s",
                falaj.get(f"search, {name}"),
                against,
                sql.get(f"search, {name}"),
                20,
            )
        )
    key = "first page of a history"
    met.append(claim(f"mlflow: {key}", "page/s", falaj.get(key), against, sql.get(key), 20))
    for key in ("file up", "file down"):
        met.append(
            claim(f"mlflow: {key}", "MB/s", falaj.get(key), "copy + sha256 of the same bytes", falaj.get("copy"), 0.5)
        )
        met.append(claim(f"mlflow: {key}, against MLflow", "MB/s", falaj.get(key), against, sql.get(key), 1))
    return all(met)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="small sizes, to try it out")
    parser.add_argument("--only", default="sql,file,falaj", help="which of them, such as sql,falaj")
    parser.add_argument("--seconds", type=float, help="how long each load lasts")
    parser.add_argument("--binary", default=str(servers.ROOT / "build/release/bin/falaj"))
    arguments = parser.parse_args()
    if not servers.is_installed(3):
        print("SKIPPED mlflow: the genuine server is not there; run ./setup --clients", file=sys.stderr)
        return 2
    sizes = Sizes(arguments.quick)
    sizes.seconds = arguments.seconds or sizes.seconds
    subjects = {
        "sql": ("MLflow SQL store", lambda d: servers.Mlflow(d, 3, "sql")),
        "file": ("MLflow file store", lambda d: servers.Mlflow(d, 3, "file")),
        "falaj": ("falaj", lambda d: servers.Falaj(d, arguments.binary, UNLIMITED)),
    }
    with tempfile.TemporaryDirectory(prefix="compare-") as directory:
        source = pathlib.Path(directory) / "source.bin"
        chance = random.Random(5)
        with open(source, "wb") as file:
            for _ in range(sizes.file_bytes >> 20):
                file.write(chance.randbytes(1 << 20))
        chosen = {}
        try:
            for key in arguments.only.split(","):
                name, start = subjects[key]
                chosen[key] = Subject(name, start(pathlib.Path(directory) / key))
            measure(list(chosen.values()), sizes, source)
        finally:
            for subject in chosen.values():
                subject.server.stop()
    if not {"falaj", "sql"} <= set(chosen):
        return 0
    return 0 if claims(chosen["falaj"], chosen["sql"]) and not chosen["falaj"].failed else 1


if __name__ == "__main__":
    sys.exit(main())
