#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Falaj and the genuine Feast under the same load, turn by turn, on this machine:   ./bench feast

    tests/clients/compare_feast.py [--quick] [--seconds N] [--binary build/release/bin/falaj]

Online: Feast's own HTTP server (one worker a processor) over its SQLite store, and falaj, answer the same request of
Feast's protocol, get-online-features of 50 features for 1 and for 100 entities; the same client on kept connections.
Offline: Feast's get_historical_features over a Parquet file, into a Parquet file, and `falaj features train-set` of the
same join, from the command to its end; both must make the same rows. Prints one JSON line a claim.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

sys.dont_write_bytecode = True
import feast_servers  # noqa: E402
import load  # noqa: E402
import servers  # noqa: E402
from compare import claim  # noqa: E402

ROUNDS = 3
CLIENTS = 8


def request_of(server, entities, per_call):
    """The bytes of a request; its answer is looked at once."""
    connection = load.Connection(server.feast_url, server.token)
    names = [f"customer-{10_000_000 + i * 17 % entities}" for i in range(per_call)]
    body = {"features": [f"row:{f}" for f in feast_servers.FEATURES], "entities": {"customer": names}}
    request = connection.request("POST", "/get-online-features", json.dumps(body).encode())
    answer = json.loads(connection.exchange(request))
    connection.close()
    results = dict(zip(answer["metadata"]["feature_names"], answer["results"]))
    assert len(results) == 51 and results["f49"]["statuses"] == ["PRESENT"] * per_call, answer
    apart = [b - a for a, b in zip(results["f0"]["values"], results["f49"]["values"])]
    assert apart == [49 / 64] * per_call, f"{server.feast_url}: other values than were written"
    return request


def measure_online(subjects, entities, per_call, seconds, tool):
    rates = {name: [] for name in subjects}
    for _ in range(ROUNDS):
        for name, server in subjects.items():
            with tempfile.NamedTemporaryFile() as file:
                file.write(request_of(server, entities, per_call))
                file.flush()
                done = subprocess.run(
                    [tool, str(server.port), str(seconds), str(CLIENTS), file.name], capture_output=True, text=True
                )
            got = json.loads(done.stdout) if done.returncode == 0 else {"trouble": done.stderr}
            if got["trouble"]:
                raise RuntimeError(f"{name}: {got['trouble']}")
            rates[name].append(got["rate"])
            print(
                f"{name}: {per_call} entities a call, {CLIENTS} connections: {got['rate']:.0f} calls/s, "
                f"p50 {got['p50_ms']:.2f} ms, p99 {got['p99_ms']:.2f} ms",
                flush=True,
            )
    return {name: statistics.median(values) for name, values in rates.items()}


def measure_offline(falaj, data):
    theirs = feast_servers.side("historical", data)
    before = time.perf_counter()
    falaj.in_project("features", "train-set", "--service", "fifty", "--spine", "spine", "--into", "trained", "-q")
    ours = time.perf_counter() - before
    total = falaj.in_project("dataset", "sql", "SELECT count(*), sum(f0) + sum(f49) FROM trained", "-o", "json")
    rows, together = json.loads(total)["rows"][0]
    print(f"Feast: training set of {theirs['rows']} rows in {theirs['seconds']:.2f} s, {theirs['peak_mb']:.0f} MB")
    print(f"falaj: training set of {rows} rows in {ours:.2f} s", flush=True)
    if rows != theirs["rows"] or abs(together - theirs["sum"]) > 1e-6 * abs(theirs["sum"]):
        raise RuntimeError(f"they disagree: {rows} rows of {together}, Feast {theirs}")
    return rows / ours, rows / theirs["seconds"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="small sizes, to try it out")
    parser.add_argument("--seconds", type=int, default=4, help="how long each load lasts")
    parser.add_argument("--binary", default=str(servers.ROOT / "build/release/bin/falaj"))
    arguments = parser.parse_args()
    if not feast_servers.is_installed():
        print("SKIPPED feast: it is not there; run ./setup --clients", file=sys.stderr)
        return 2
    tool = pathlib.Path(arguments.binary).resolve().parents[1] / "tools/http_load"
    entities, events, spine = (200, 20, 2000) if arguments.quick else (1000, 200, 20_000)
    with tempfile.TemporaryDirectory(prefix="compare-feast-") as directory:
        directory = pathlib.Path(directory)
        data = directory / "data"
        print(feast_servers.side("prepare", data, entities, events, spine), flush=True)
        feast_servers.side("materialize", data)
        met, subjects = [], {}
        try:
            subjects["Feast"] = feast_servers.Feast(directory / "feast", data, os.cpu_count())
            subjects["falaj"] = feast_servers.Falaj(directory / "falaj", arguments.binary, data)
            against = "Feast's server on SQLite"
            for per_call in (1, 100):
                rate = measure_online(subjects, entities, per_call, arguments.seconds, tool)
                text = f"feast: get-online-features, 50 features, {per_call} entities a call"
                met.append(claim(text, "call/s", rate["falaj"], against, rate["Feast"], 30))
            for name, server in subjects.items():
                print(f"{name}: peak memory {feast_servers.peak_mb(server):.0f} MB", flush=True)
            subjects.pop("Feast").stop()  # the training sets have the machine to themselves
            ours, theirs = measure_offline(subjects["falaj"], data)
            met.append(claim("feast: training set of 50 features", "row/s", ours, "get_historical_features", theirs, 20))
        finally:
            for server in subjects.values():
                server.stop()
    return 0 if all(met) else 1


if __name__ == "__main__":
    sys.exit(main())
