#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""falaj-serve and MLServer with the same model under the same load, turn by turn, on this machine:   ./bench serving

    tests/clients/compare_serving.py [--seconds N] [--binary build/release/bin/falaj]

The model is a network 64-256-256-10 in one ONNX file; both run it by ONNX Runtime on one thread. Each server has one
processor, the client another: requests of the Open Inference Protocol, inputs in turn, connections kept. From one connection
to 64, each server's answers per second and p99 are measured; MLServer with and without its adaptive batching. Compared is
what MLServer answers when it is full, at the shortest p99 at which it is, with the most that falaj-serve answers at a p99
that is not longer: that wants a machine with nothing else to do. And what each answers for a second that its processes
worked, which other programs hardly change. MLServer takes no binary tensors over HTTP; 32 rows are asked of falaj-serve in
both forms. Prints one JSON line a claim. Needs ./setup --servers.
"""

import argparse
import json
import os
import pathlib
import random
import statistics
import struct
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

sys.dont_write_bytecode = True
import load  # noqa: E402
import servers  # noqa: E402
from compare import claim  # noqa: E402

MLSERVER = servers.CLIENTS / "mlserver"
WIDTH, REQUESTS = 64, 32
CONNECTIONS = (1, 2, 4, 8, 16, 32, 64)
ROUNDS = 3
WORKED_MIN = 0.05  # seconds in a round: the kernel counts hundredths
NEAR = 0.9  # of its most: a server that is full answers as many with more connections, only later


def is_installed():
    return (MLSERVER / ".obtained").exists()


def processors():
    """One for the server, one for the client; the same when there is only one."""
    mine = sorted(os.sched_getaffinity(0))
    return mine[0], mine[-1]


def on(processor, argv):
    return ["taskset", "-c", str(processor), *map(str, argv)]


class MlServer(servers.Server):
    token = None

    def __init__(self, directory, model, processor, batching):
        super().__init__(directory)
        self.port = servers.free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        settings = {
            "debug": False,
            "host": "127.0.0.1",
            "http_port": self.port,
            "grpc_port": servers.free_port(),
            "metrics_port": servers.free_port(),
            "metrics_endpoint": None,
            "parallel_workers": 0,  # with one processor, a second process only costs
            "extensions": [],
        }
        own = {"name": "net", "implementation": "mlserver_onnx.Onnx", "parameters": {"uri": str(model)}}
        if batching:
            own |= {"max_batch_size": 32, "max_batch_time": 0.001}
        (self.directory / "settings.json").write_text(json.dumps(settings))
        (self.directory / "model-settings.json").write_text(json.dumps(own))
        environment = servers.clean_environment(PYTHONPATH=str(pathlib.Path(__file__).parent), OMP_NUM_THREADS="1")
        self.spawn(on(processor, [MLSERVER / "bin/mlserver", "start", self.directory]), environment, None)
        self.await_model()

    def await_model(self):
        deadline = time.monotonic() + servers.START_SECONDS
        while time.monotonic() < deadline and self.child.poll() is None:
            try:
                with urllib.request.urlopen(self.url + "/v2/models/net/ready", timeout=5):
                    return
            except (urllib.error.URLError, OSError):
                time.sleep(0.1)
        log = self.log_tail()
        self.kill()
        raise RuntimeError(f"MLServer did not become ready: {log}")


class Falaj(servers.Falaj):
    def __init__(self, directory, binary, model, processor):
        self.processor = processor
        super().__init__(
            directory, binary, ["serving.listen=127.0.0.1:0", "serving.grpc=127.0.0.1:0", "log_level=error"]
        )
        self.register(model)
        self.must("deploy", "net/1", "--tenant", "default", "--project", "default")
        about = json.loads(
            self.must("endpoint", "show", "net", "-o", "json", "--tenant", "default", "--project", "default")
        )
        self.url = about["urls"][0]
        self.port = int(self.url.rsplit(":", 1)[1])

    def spawn(self, argv, environment, stdout):
        super().spawn(on(self.processor, argv), environment, stdout)

    def call(self, method, path, body, kind="application/json"):
        request = urllib.request.Request(
            f"{self.url}/mlflow/default/default/api/2.0/{path}",
            body,
            {"Authorization": f"Bearer {self.token}", "Content-Type": kind},
            method=method,
        )
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.loads(answer.read() or b"{}")

    def register(self, model):
        def post(path, **fields):
            return self.call("POST", path, json.dumps(fields).encode())

        run = post("mlflow/runs/create", experiment_id="0")["run"]["info"]["run_id"]
        place = f"mlflow-artifacts/artifacts/0/{run}/artifacts/model/model.onnx"
        self.call("PUT", place, model.read_bytes(), "application/octet-stream")
        post("mlflow/registered-models/create", name="net")
        post("mlflow/model-versions/create", name="net", source=f"runs:/{run}/model", run_id=run)


def worked_seconds(server):
    """Of a server's processes, so far."""
    total, family = 0.0, [server.child.pid]
    while family:
        pid = family.pop()
        try:
            fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
            # Any of its threads may have started a child.
            for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
                family += [int(p) for p in (task / "children").read_text().split()]
        except OSError:
            continue
        total += (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return total


def body_of(data, rows, binary):
    about = {"name": "x", "shape": [rows, WIDTH], "datatype": "FP32"}
    if not binary:
        return json.dumps({"inputs": [about | {"data": data}]}).encode(), ""
    packed = struct.pack(f"<{len(data)}f", *data)
    about["parameters"] = {"binary_data_size": len(packed)}
    head = json.dumps({"inputs": [about], "parameters": {"binary_data_output": True}}).encode()
    return head + packed, f"Inference-Header-Content-Length: {len(head)}\r\n"


def requests_of(server, rows, directory, binary):
    """Files that hold a request each; what one of them is answered is given too."""
    chance = random.Random(7)
    connection = load.Connection(server.url, server.token)
    files, answer = [], None
    for i in range(REQUESTS):
        data = [round(chance.gauss(0, 1), 6) for _ in range(rows * WIDTH)]
        body, more = body_of(data, rows, binary)
        request = connection.request("POST", "/v2/models/net/infer", body)
        request = request.replace(b"\r\n", b"\r\n" + more.encode(), 1)
        files.append(directory / f"request-{i}")
        files[-1].write_bytes(request)
        if answer is None:
            answer = connection.exchange(request)
            answer = list(struct.unpack(f"<{rows * 10}f", answer[-rows * 40 :])) if binary else numbers_of(answer)
    connection.close()
    return files, answer


def numbers_of(answer):
    return json.loads(answer)["outputs"][0]["data"]


def round_of(name, server, files, processor, tool, seconds, connections):
    """Answers per second, p99 in milliseconds, answers per second of its processes."""
    before = worked_seconds(server)
    done = subprocess.run(
        on(processor, [tool, server.port, seconds, connections, *files]), capture_output=True, text=True
    )
    got = json.loads(done.stdout) if done.returncode == 0 else {"trouble": done.stderr}
    if got["trouble"]:
        raise RuntimeError(f"{name}: {got['trouble']}")
    worked = worked_seconds(server) - before
    if worked < WORKED_MIN:
        raise RuntimeError(f"{name}: its processes worked {worked:.2f} s for {got['answers']} answers: which are they?")
    return got["rate"], got["p99_ms"], got["answers"] / worked


def measure(subjects, files, form, load_of):
    """For each server a point for each number of connections: the middle of rounds in which they take turns."""
    points = {name: [] for name in subjects}
    for connections in CONNECTIONS:
        rounds = {name: [] for name in subjects}
        for _ in range(ROUNDS):
            for name, server in subjects.items():
                rounds[name].append(round_of(name, server, files[name], *load_of, connections))
        for name, got in rounds.items():
            rate, tail, work = (statistics.median(values) for values in zip(*got))
            points[name].append((rate, tail, work))
            told = f"{rate:.0f}/s, p99 {tail:.2f} ms, {work:.0f}/cpu s"
            print(f"{name}, {form}: {connections} connections: {told}", flush=True)
    return points


def judge(text, own, others, against_form):
    most = max(rate for points in others.values() for rate, _, _ in points)
    full = [(tail, rate, name) for name, points in others.items() for rate, tail, _ in points if rate >= NEAR * most]
    tail, rate, which = min(full)
    equal = max((ours for ours, p99, _ in own if p99 <= tail), default=None)
    met = claim(f"{text}, at a p99 of at most {tail:.1f} ms", "requests/s", equal, which + against_form, rate, 15)
    work, which = max((work, name) for name, points in others.items() for _, _, work in points)
    ours, text = max(work for _, _, work in own), f"{text}, for each second of a processor"
    return claim(text, "requests/cpu s", ours, which + against_form, work, 15) and met


def compare(subjects, rows, directory, load_of):
    """All of them with JSON; falaj-serve with 32 rows as bytes too."""
    files, answers = {}, {}
    for name, server in subjects.items():
        place = directory / f"{name}-{rows}".replace(" ", "-")
        place.mkdir()
        files[name], answers[name] = requests_of(server, rows, place, False)
    for name, theirs in answers.items():
        if len(theirs) != rows * 10 or max(abs(a - b) for a, b in zip(answers["falaj-serve"], theirs)) > 1e-4:
            raise RuntimeError(f"{name} and falaj-serve answer differently")
    points = measure(subjects, files, f"{rows} rows, JSON", load_of)
    own = points.pop("falaj-serve")
    text = f"serving: requests of {rows} row{'s' if rows > 1 else ''}"
    met = [judge(f"{text}, JSON", own, points, "")]
    if rows > 1:
        place = directory / f"binary-{rows}"
        place.mkdir()
        ours = {"falaj-serve": subjects["falaj-serve"]}
        packed, answer = requests_of(ours["falaj-serve"], rows, place, True)
        if max(abs(a - b) for a, b in zip(answer, answers["falaj-serve"])) > 1e-4:
            raise RuntimeError("falaj-serve answers bytes and JSON differently")
        own = measure(ours, {"falaj-serve": packed}, f"{rows} rows, binary", load_of)["falaj-serve"]
        met.append(judge(f"{text}, binary", own, points, ", JSON"))
    return all(met)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=int, default=2, help="how long each load lasts")
    parser.add_argument("--binary", default=str(servers.ROOT / "build/release/bin/falaj"))
    arguments = parser.parse_args()
    if not is_installed():
        print("SKIPPED serving: MLServer is not there; run ./setup --servers", file=sys.stderr)
        return 2
    tools = pathlib.Path(arguments.binary).resolve().parents[1] / "tools"
    serving, driving = processors()
    with tempfile.TemporaryDirectory(prefix="compare-serving-") as directory:
        directory = pathlib.Path(directory)
        model, subjects, met = directory / "network.onnx", {}, []
        subprocess.run([tools / "write_network", model], check=True)
        try:
            subjects["MLServer"] = MlServer(directory / "plain", model, serving, False)
            subjects["MLServer with adaptive batching"] = MlServer(directory / "batching", model, serving, True)
            subjects["falaj-serve"] = Falaj(directory / "falaj", arguments.binary, model, serving)
            for rows in (1, 32):
                met.append(compare(subjects, rows, directory, (driving, tools / "http_load", arguments.seconds)))
        finally:
            for server in subjects.values():
                server.stop()
    return 0 if all(met) else 1


if __name__ == "__main__":
    sys.exit(main())
