# SPDX-License-Identifier: Apache-2.0
"""Named cases and what they run on: one MLflow client, one server, one temporary directory."""

import contextlib
import json
import os
import pathlib
import re
import sys
import time
import traceback
import urllib.error
import urllib.parse
import urllib.request

import mlflow
from mlflow.exceptions import MlflowException
from mlflow.tracking import MlflowClient

CASES = []


def case(function=None, *, generations=(2, 3), servers=("mlflow", "falaj"), alone=False):
    """Registers a case. `generations` and `servers` say where it holds; `alone`: it disturbs the server and runs last."""

    def register(f):
        CASES.append(
            {
                "name": f.__module__.removeprefix("cases_") + "." + f.__name__,
                "run": f,
                "generations": generations,
                "servers": servers,
                "alone": alone,
            }
        )
        return f

    return register(function) if function else register


class Failed(AssertionError):
    pass


def equal(found, expected, about=""):
    if found == expected:
        return
    if isinstance(found, dict) and isinstance(expected, dict):  # only where they differ
        expected, found = (
            {k: v for k, v in a.items() if k not in b or b[k] != v} for a, b in ((expected, found), (found, expected))
        )
    if found != expected:
        raise Failed(f"{about + ': ' if about else ''}expected {expected!r}, found {found!r}")


def true(condition, about):
    if not condition:
        raise Failed(about)


def refused(code, call, *args, **kwargs):
    """`call` must end in an MlflowException of that error code (or one of them). Returns its message."""
    codes = (code,) if isinstance(code, str) else code
    try:
        found = call(*args, **kwargs)
    except MlflowException as e:
        if e.error_code not in codes:
            raise Failed(f"expected {'/'.join(codes)}, refused with {e.error_code}: {str(e)[:200]}") from e
        return str(e)
    raise Failed(f"expected {'/'.join(codes)}, but it returned {str(found)[:200]}")


def answered(stage, status, answer, expected, about):
    """The call was answered with that (status, error_code). The reference itself breaks, with 500, on some of what no
    client should send; that is not asked of others: its clients would repeat such a call for minutes."""
    if stage.server == "mlflow" and status == 500:
        return
    equal((status, answer.get("error_code") if isinstance(answer, dict) else answer), expected, about)


class Stage:
    """What a case works with. Names made by `name` are of this process alone, so that a server may be used again."""

    def __init__(self, directory):
        self.uri = os.environ["MLFLOW_TRACKING_URI"].rstrip("/")
        self.direct_uri = os.environ.get("DIRECT_URI", self.uri)  # without the recorder between
        self.recorder_uri = os.environ.get("RECORDER_URI")
        self.control_uri = os.environ.get("CONTROL_URI")  # of run.py: kills and restarts the server
        self.server = os.environ.get("SERVER_KIND", "mlflow")
        self.generation = int(mlflow.__version__.split(".")[0])
        self.directory = pathlib.Path(directory)
        self.prefix = f"c{os.getpid()}-{time.time_ns() % 10**9}"
        self.made = 0
        self.client = MlflowClient()

    def name(self, what):
        self.made += 1
        return f"{self.prefix}-{what}-{self.made}"

    def experiment(self, what="experiment"):
        return self.client.create_experiment(self.name(what))

    def run(self, experiment=None, **kwargs):
        return self.client.create_run(experiment or self.experiment(), **kwargs).info.run_id

    def file(self, name, content):
        path = self.directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    def raw(self, method, path, body=None, token=None, headers=None, uri=None):
        """One call without the client: what it would never send. Returns (status, answer as JSON or text)."""
        headers = dict(headers or {})
        token = os.environ.get("MLFLOW_TRACKING_TOKEN") if token is None else token
        if token:
            headers["Authorization"] = f"Bearer {token}"
        if body is not None and not isinstance(body, bytes):
            body = json.dumps(body).encode()
            headers.setdefault("Content-Type", "application/json")
        request = urllib.request.Request((uri or self.uri) + path, data=body, method=method, headers=headers)
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                status, text = answer.status, answer.read()
        except urllib.error.HTTPError as e:
            status, text = e.code, e.read()
        try:
            return status, json.loads(text or b"{}")
        except ValueError:
            return status, text.decode(errors="replace")

    def post(self, path, body):
        return self.raw("POST", "/api/2.0/mlflow/" + path, body)

    def get(self, route, /, **query):
        return self.raw("GET", f"/api/2.0/mlflow/{route}?" + urllib.parse.urlencode(query, doseq=True))

    def recorder(self, order):
        with urllib.request.urlopen(
            urllib.request.Request(self.recorder_uri, data=json.dumps(order).encode())
        ) as answer:
            return json.loads(answer.read())

    def control(self, order):
        with urllib.request.urlopen(
            urllib.request.Request(self.control_uri, data=json.dumps(order).encode())
        ) as answer:
            return json.loads(answer.read())


@contextlib.contextmanager
def environment(**changes):
    """The process's environment with `changes` (None removes)."""
    before = {k: os.environ.get(k) for k in changes}

    def put(values):
        for k, v in values.items():
            os.environ.pop(k, None) if v is None else os.environ.__setitem__(k, v)

    put(changes)
    try:
        yield
    finally:
        put(before)


def run_cases(stage, pattern):
    chosen = [
        c
        for c in CASES
        if stage.generation in c["generations"]
        and stage.server in c["servers"]
        and (not c["alone"] or stage.control_uri)
        and re.search(pattern, c["name"])
    ]
    failed = []
    for c in sorted(chosen, key=lambda c: c["alone"]):
        started = time.monotonic()
        try:
            with contextlib.redirect_stdout(sys.stderr):  # the client prints addresses of runs
                c["run"](stage)
            outcome, why = "ok  ", ""
        except Exception as e:  # a case may fail in any way; the others still run
            failed.append(c["name"])
            at = next(
                (
                    f"{os.path.basename(f.filename)}:{f.lineno}"
                    for f in reversed(traceback.extract_tb(e.__traceback__))
                    if os.path.basename(f.filename).startswith("cases_")
                ),
                "?",
            )
            outcome, why = "FAIL", f"  {at}: {type(e).__name__}: {' '.join(str(e).split())[:600]}"
            if os.environ.get("TRACE"):
                traceback.print_exc()
        finally:
            while mlflow.active_run():
                mlflow.end_run()
        print(f"{outcome} {c['name']} ({time.monotonic() - started:.1f} s){why}", flush=True)
    print(
        f"MLflow {mlflow.__version__} client, {stage.server} server: {len(chosen) - len(failed)} passed, {len(failed)} failed"
        + (": " + " ".join(failed) if failed else ""),
        flush=True,
    )
    return 1 if failed or not chosen else 0
