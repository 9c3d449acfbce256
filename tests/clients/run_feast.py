#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Feast's genuine client against falaj, and the bodies that its users send by hand:

    tests/clients/run_feast.py [--binary build/release/bin/falaj]

The client is that of its remote online store (online_store: {type: remote}), with a Falaj token as its credential: reads
by feature, by service and with full names, and writes. Then push, materialize, materialize-incremental and health as
scripts call them. Says ok or FAIL for each; exits 1 when one failed, 2 when Feast is not installed."""

import argparse
import json
import pathlib
import sys
import tempfile
import urllib.error
import urllib.request

sys.dont_write_bytecode = True
import feast_servers  # noqa: E402
import servers  # noqa: E402

ENTITIES, EVENTS = 10, 5


def last(entity, feature):
    return entity * EVENTS + EVENTS - 1 + feature / 64


class Calls:
    """As with requests.post(url, data=json.dumps(body)): without a content type."""

    def __init__(self, falaj):
        self.falaj = falaj

    def post(self, path, body, token=None):
        request = urllib.request.Request(
            self.falaj.feast_url + path,
            data=json.dumps(body).encode() if body is not None else None,
            headers={"Authorization": f"Bearer {token or self.falaj.token}", "Content-Type": ""},
        )
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return answer.status, answer.read()
        except urllib.error.HTTPError as e:
            return e.code, e.read()

    def read(self, entity, feature="row:f0"):
        status, body = self.post("/get-online-features", {"features": [feature], "entities": {"customer": [entity]}})
        assert status == 200, (status, body)
        return json.loads(body)["results"][1]


def row(entity, base, at):
    columns = {"customer": [entity], "event_timestamp": [at]}
    return {**columns, **{f: [base + j] for j, f in enumerate(feast_servers.FEATURES)}}


def check_genuine_client(falaj, data, calls):
    said = feast_servers.side("remote", data, falaj.feast_url, falaj.token)
    names = [f"customer-{10_000_000 + e}" for e in (0, 3)]
    expected = {
        "customer": [*names, "nobody"],
        "f0": [last(0, 0), last(3, 0), None],
        "f49": [last(0, 49), last(3, 49), None],
    }
    assert said["read"] == expected, said["read"]
    assert said["full_names"] == ["customer", "row__f0", "row__f49"], said["full_names"]
    assert said["service"] == 51, said["service"]
    assert said["written"] == {"customer": [names[1]], "f0": [1000.0], "f49": [1049.0]}, said["written"]


def check_push(falaj, data, calls):
    body = {"push_source_name": "landed", "df": row("customer-new", 7.0, "2025-01-01 10:00:00"), "to": "online"}
    status, answer = calls.post("/push", body)
    assert status == 200, (status, answer)
    assert calls.read("customer-new")["values"] == [7.0]
    assert calls.read("customer-new")["statuses"] == ["PRESENT"]


def check_an_older_row_does_not_replace(falaj, data, calls):
    body = {"push_source_name": "landed", "df": row("customer-new", 3.0, "2024-12-01 10:00:00")}
    assert calls.post("/push", body)[0] == 200
    assert calls.read("customer-new")["values"] == [7.0]


def check_materialize(falaj, data, calls):
    falaj.in_project("features", "flush", "rows")
    body = {"start_ts": "2023-01-01T00:00:00", "end_ts": "2030-01-01T00:00:00", "feature_views": ["row"]}
    for path in ("/materialize", "/materialize-incremental"):
        status, answer = calls.post(path, body)
        assert (status, answer) == (200, b"null"), (path, status, answer)
    assert calls.read("customer-new")["values"] == [7.0]


def check_refusals(falaj, data, calls):
    status, body = calls.post("/get-online-features", {"features": ["none:x"], "entities": {"customer": ["a"]}})
    about = json.loads(json.loads(body))  # JSON in a JSON text, as Feast's own server says it
    assert status == 404 and about["class"] == "FeatureViewNotFoundException", (status, body)
    assert calls.post("/push", {"push_source_name": "landed", "df": {"customer": ["a"], "zzz": [1]}})[0] == 422
    body = {"features": ["row:f0"], "entities": {"customer": ["a"]}}
    assert calls.post("/get-online-features", body, token="falaj_no_such")[0] == 401


def check_health(falaj, data, calls):
    request = urllib.request.Request(falaj.feast_url + "/health", headers={"Authorization": f"Bearer {falaj.token}"})
    with urllib.request.urlopen(request, timeout=10) as answer:
        assert answer.status == 200


CHECKS = [
    check_genuine_client,
    check_push,
    check_an_older_row_does_not_replace,
    check_materialize,
    check_refusals,
    check_health,
]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", default=str(servers.ROOT / "build/release/bin/falaj"))
    arguments = parser.parse_args()
    if not feast_servers.is_installed():
        print("SKIPPED feast: it is not there; run ./setup --clients", file=sys.stderr)
        return 2
    failed = 0
    with tempfile.TemporaryDirectory(prefix="feast-") as directory:
        directory = pathlib.Path(directory)
        feast_servers.side("prepare", directory / "data", ENTITIES, EVENTS, 10)
        falaj = feast_servers.Falaj(directory / "falaj", arguments.binary, directory / "data")
        try:
            for check in CHECKS:
                name = check.__name__.removeprefix("check_").replace("_", " ")
                try:
                    check(falaj, directory / "data", Calls(falaj))
                    print(f"ok   feast: {name}", flush=True)
                except Exception as e:
                    failed += 1
                    print(f"FAIL feast: {name}: {type(e).__name__}: {str(e)[-600:]}", flush=True)
        finally:
            falaj.stop()
    print(f"{len(CHECKS) - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
