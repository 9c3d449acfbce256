#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Triton's genuine client against the servers of the inference protocol:

    tests/clients/run_triton.py                        before models whose answers are known (build/release/tools/fake_inference),
                                                       then before falaj-serve with a model that falaj trained and deployed
    tests/clients/run_triton.py --update-docs          writes what it found into docs/guide/inference-protocol.md
    tests/clients/run_triton.py --http HOST:PORT --grpc HOST:PORT --model NAME [--token TOKEN]
                                                       any server and model: inputs are made from the model's metadata

Every call that the client has, over HTTP and over gRPC. Says ok or FAIL for each; the table in the guide must be what was
found. Ends with one line: N passed, M failed. Needs ./setup --clients; exits 77 when that has not been run."""

import argparse
import asyncio
import importlib.metadata
import json
import os
import pathlib
import queue
import re
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True
import servers  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[2]
SKIPPED = 77
PYTHON = ROOT / "third_party/clients/triton/bin/python"
GUIDE = ROOT / "docs/guide/inference-protocol.md"
MARKS = ("<!-- begin: tests/clients/run_triton.py -->", "<!-- end -->")

try:
    import numpy as np
    import tritonclient.grpc as grpc_client
    import tritonclient.grpc.aio as grpc_aio
    import tritonclient.http as http_client
    import tritonclient.http.aio as http_aio
    from tritonclient.utils import InferenceServerException, np_to_triton_dtype
except ImportError:
    if not PYTHON.exists() or pathlib.Path(sys.prefix) == PYTHON.parents[1]:
        print("SKIPPED triton: its client is not there; run ./setup --clients", file=sys.stderr)
        sys.exit(SKIPPED)
    os.execv(PYTHON, [str(PYTHON), *sys.argv])

NUMBERS = {"FP32": np.float32, "FP64": np.float64, "BOOL": np.bool_}
for bits in (8, 16, 32, 64):
    NUMBERS |= {f"INT{bits}": getattr(np, f"int{bits}"), f"UINT{bits}": getattr(np, f"uint{bits}")}
ROWS = []  # (what it says in the table, transports, function)


def row(name, *transports):
    def register(function):
        ROWS.append((name, transports or ("HTTP", "gRPC"), function))
        return function

    return register


class Stage:
    """One transport: the module of the client, a connected client of it, and whether it is HTTP."""

    def __init__(self, transport, addresses):
        self.is_http = transport == "HTTP"
        self.module = http_client if self.is_http else grpc_client
        self.aio = http_aio if self.is_http else grpc_aio
        self.address = addresses[transport]
        self.client = self.module.InferenceServerClient(self.address)

    def input(self, name, values, type=None, binary=True):
        given = self.module.InferInput(name, values.shape, type or np_to_triton_dtype(values.dtype))
        given.set_data_from_numpy(values, binary_data=binary) if self.is_http else given.set_data_from_numpy(values)
        return given

    def output(self, name, **more):
        return self.module.InferRequestedOutput(name, **more)

    def field(self, message, name):
        return message[name] if self.is_http else getattr(message, name)


def equal(found, expected):
    if isinstance(expected, np.ndarray):
        assert found is not None and found.dtype == expected.dtype, (found, expected)
        assert np.array_equal(found, expected), (found, expected)
    else:
        assert found == expected, (found, expected)


def refused(call, *statuses):
    try:
        found = call()
    except InferenceServerException as e:
        assert any(s in str(e.status()) for s in statuses), (e.status(), str(e))
        assert e.message(), "a refusal without a word"
        return e
    raise AssertionError(f"expected a refusal, got {found}")


X = np.arange(8, dtype=np.float32).reshape(2, 4)


@row("is_server_live, is_server_ready, is_model_ready")
def check_health(s):
    assert s.client.is_server_live() and s.client.is_server_ready()
    assert s.client.is_model_ready("add_one") and s.client.is_model_ready("add_one", "1")
    assert not s.client.is_model_ready("gone")


@row("get_server_metadata")
def check_server_metadata(s):
    about = s.client.get_server_metadata()
    equal(s.field(about, "name"), "falaj-serve")
    extensions = list(s.field(about, "extensions"))
    for wanted in ("classification", "binary_tensor_data", "statistics", "model_repository", "model_configuration"):
        assert wanted in extensions, extensions
    for absent in ("system_shared_memory", "cuda_shared_memory", "trace", "logging", "sequence"):
        assert absent not in extensions, extensions


@row("get_model_metadata")
def check_model_metadata(s):
    about = s.client.get_model_metadata("add_one")
    equal(s.field(about, "name"), "add_one")
    equal(list(s.field(about, "versions")), ["1", "2"])
    first = s.field(about, "inputs")[0]
    equal((s.field(first, "name"), s.field(first, "datatype")), ("x", "FP32"))
    equal([int(size) for size in s.field(first, "shape")], [-1, 4])
    equal(list(s.field(s.client.get_model_metadata("add_one", "1"), "versions")), ["1"])
    refused(lambda: s.client.get_model_metadata("none"), "404", "NOT_FOUND")


@row("get_model_config")
def check_model_config(s):
    config = s.client.get_model_config("add_one")
    config = config if s.is_http else config.config
    equal(s.field(config, "max_batch_size"), 32)
    first = s.field(config, "input")[0]
    equal([int(size) for size in s.field(first, "dims")], [4])
    equal(s.field(first, "data_type"), "TYPE_FP32" if s.is_http else 11)
    if not s.is_http:  # the message as others read it
        config = s.client.get_model_config("add_one", as_json=True)["config"]
        equal(config["dynamic_batching"]["max_queue_delay_microseconds"], "200")


@row("get_inference_statistics")
def check_statistics(s):
    stats = s.field(s.client.get_inference_statistics("add_one"), "model_stats")
    equal(len(stats), 1)
    before = int(s.field(stats[0], "inference_count"))
    s.client.infer("add_one", [s.input("x", X)])
    after = s.field(s.client.get_inference_statistics("add_one"), "model_stats")[0]
    assert int(s.field(after, "inference_count")) > before
    batch = s.field(after, "batch_stats")[0]
    equal(int(s.field(batch, "batch_size")), 32)
    assert len(s.field(s.client.get_inference_statistics(), "model_stats")) > 5


@row("get_model_repository_index, load_model, unload_model")
def check_repository(s):
    def states():
        index = s.client.get_model_repository_index()
        return {s.field(m, "name"): s.field(m, "state") for m in (index if s.is_http else index.models)}

    equal(states()["scores"], "READY")
    s.client.unload_model("scores")
    equal(states()["scores"], "UNAVAILABLE")
    s.client.load_model("scores")
    equal(states()["scores"], "READY")
    refused(lambda: s.client.load_model("none"), "404", "NOT_FOUND")
    refused(lambda: s.client.load_model("scores", config="{}"), "400", "INVALID")


@row("infer, tensors as binary data")
def check_infer(s):
    answer = s.client.infer("add_one", [s.input("x", X)], request_id="7")
    equal(answer.as_numpy("y"), X + 1)
    about = answer.get_response()
    equal(s.field(about, "id"), "7")
    equal(s.field(about, "model_version"), "2")
    equal(answer.as_numpy("none"), None)
    answer = s.client.infer("add_one", [s.input("x", X)], model_version="1", outputs=[s.output("y")])
    equal(answer.as_numpy("y"), X + 1)
    equal(s.field(answer.get_response(), "model_version"), "1")


@row("infer, tensors as JSON", "HTTP")
def check_infer_json(s):
    answer = s.client.infer(
        "add_one", [s.input("x", X, binary=False)], outputs=[s.output("y", binary_data=False)]
    )
    equal(answer.as_numpy("y"), X + 1)
    assert "data" in answer.get_output("y")


@row("infer, every datatype")
def check_types(s):
    for name, type in {"FP16": np.float16, **NUMBERS}.items():
        values = np.array([0, 1, 1], dtype=type)
        if np.issubdtype(type, np.integer):
            values = np.array([np.iinfo(type).min, 7, np.iinfo(type).max], dtype=type)
        elif np.issubdtype(type, np.floating):
            values = np.array([-1.5, 0.1, np.finfo(type).max], dtype=type)
        ways = [{}] if not s.is_http or name == "FP16" else [{}, {"binary": False}]
        for way in ways:
            outputs = [s.output("out_" + name, binary_data=False)] if way else None
            answer = s.client.infer("echo", [s.input(name, values, **way)], outputs=outputs)
            equal(answer.as_numpy("out_" + name), values)
    texts = np.array(["a", "é", "", "x" * 1000], dtype=object)
    encoded = np.array([t.encode() for t in texts], dtype=object)
    equal(s.client.infer("echo", [s.input("BYTES", texts)]).as_numpy("out_BYTES"), encoded)
    import ml_dtypes

    halves = np.array([1.5, -2, 0.25], dtype=ml_dtypes.bfloat16)
    try:
        sent = s.input("BF16", halves)
    except Exception:  # a client that takes float32 for it
        sent = s.input("BF16", halves.astype(np.float32), type="BF16")
    found = s.client.infer("echo", [sent]).as_numpy("out_BF16")
    assert np.array_equal(found.astype(np.float32), halves.astype(np.float32)), found


@row("infer, NaN and infinities")
def check_not_finite(s):
    values = np.array([np.nan, np.inf, -np.inf, -0.0], dtype=np.float32)
    found = s.client.infer("echo", [s.input("FP32", values)]).as_numpy("out_FP32")
    equal(found.view(np.uint32), values.view(np.uint32))


@row("infer, several inputs and chosen outputs")
def check_several(s):
    a, b = np.array([1.0], dtype=np.float32), np.array([2], dtype=np.int64)
    answer = s.client.infer("echo", [s.input("FP32", a), s.input("INT64", b)], outputs=[s.output("out_INT64")])
    equal(answer.as_numpy("out_INT64"), b)
    equal(answer.as_numpy("out_FP32"), None)


@row("infer, classification (class_count)")
def check_classification(s):
    scores = np.array([[0.1, 0.7, 0.2], [3, 1, 2]], dtype=np.float32)
    answer = s.client.infer("scores", [s.input("x", scores)], outputs=[s.output("scores", class_count=2)])
    found = [[t.decode() for t in r] for r in answer.as_numpy("scores")]
    equal(found, [["0.700000:1", "0.200000:2"], ["3.000000:0", "2.000000:2"]])


@row("infer, parameters, priority, timeout")
def check_parameters(s):
    answer = s.client.infer(
        "add_one", [s.input("x", X)], priority=1, timeout=1_000_000, parameters={"who": "me", "count": 3, "yes": True}
    )
    found = s.field(answer.get_response(), "parameters")
    if s.is_http:
        equal(found, {"who": "me", "count": 3, "yes": True})
    else:
        equal((found["who"].string_param, found["count"].int64_param, found["yes"].bool_param), ("me", 3, True))


@row("infer, headers with a token; refusals")
def check_refusals(s):
    def wrong():
        return s.client.infer("add_one", [s.input("x", X)], headers={"authorization": "Bearer wrong"})

    refused(wrong, "401", "UNAUTHENTICATED")
    for model, status in {"busy": ("429", "EXHAUSTED"), "slow": ("504", "DEADLINE"), "gone": ("503", "UNAVAILABLE"),
                          "secret": ("403", "PERMISSION"), "none": ("404", "NOT_FOUND")}.items():  # fmt: skip
        refused(lambda: s.client.infer(model, [s.input("x", X)]), *status)
    refused(lambda: s.client.infer("add_one", [s.input("y", X)]), "400", "INVALID")
    refused(lambda: s.client.infer("add_one", [s.input("x", X)], sequence_id=5), "400", "INVALID")
    lying = s.input("x", X)
    lying.set_shape([3, 4])
    refused(lambda: s.client.infer("add_one", [lying]), "400", "INVALID")


@row("infer, compressed request and answer")
def check_compression(s):
    many = np.zeros((500, 4), dtype=np.float32)
    for algorithm in ("gzip", "deflate"):
        if s.is_http:
            more = {"request_compression_algorithm": algorithm, "response_compression_algorithm": algorithm}
        else:
            more = {"compression_algorithm": algorithm}
        answer = s.client.infer("add_one", [s.input("x", many)], **more)
        equal(answer.as_numpy("y"), many + 1)


@row("infer, client_timeout", "gRPC")
def check_client_timeout(s):
    equal(s.client.infer("add_one", [s.input("x", X)], client_timeout=10).as_numpy("y"), X + 1)


@row("infer, a batch of 64 MB less a little")
def check_large(s):
    many = np.ones((4_000_000, 4), dtype=np.float32)
    equal(s.client.infer("add_one", [s.input("x", many)]).as_numpy("y"), many + 1)


@row("async_infer")
def check_async_infer(s):
    if s.is_http:
        client = http_client.InferenceServerClient(s.address, concurrency=8)
        asked = [client.async_infer("add_one", [s.input("x", X + i)]) for i in range(32)]
        for i, answer in enumerate(asked):
            equal(answer.get_result().as_numpy("y"), X + i + 1)
        client.close()
        return
    answers = queue.Queue()
    for i in range(32):
        s.client.async_infer(
            "add_one",
            [s.input("x", X + i)],
            callback=lambda result, error: answers.put((result, error)),
            request_id=str(i),
        )
    for _ in range(32):
        result, error = answers.get(timeout=20)
        assert error is None, error
        equal(result.as_numpy("y"), X + int(result.get_response().id) + 1)


@row("the asyncio clients")
def check_asyncio(s):
    async def run():
        client = s.aio.InferenceServerClient(s.address)
        try:
            assert await client.is_server_live() and await client.is_model_ready("add_one")
            equal(s.field(await client.get_server_metadata(), "name"), "falaj-serve")
            answers = await asyncio.gather(*(client.infer("add_one", [s.input("x", X + i)]) for i in range(16)))
            for i, answer in enumerate(answers):
                equal(answer.as_numpy("y"), X + i + 1)
        finally:
            await client.close()

    asyncio.run(run())


@row("start_stream, async_stream_infer, stop_stream", "gRPC")
def check_stream(s):
    answers = queue.Queue()
    s.client.start_stream(callback=lambda result, error: answers.put((result, error)))
    for i in range(64):
        s.client.async_stream_infer(
            "add_one", [s.input("x", X + i)], request_id=str(i), enable_empty_final_response=True
        )
    for _ in range(64):
        result, error = answers.get(timeout=20)
        assert error is None, error
        response = result.get_response()
        assert response.parameters["triton_final_response"].bool_param
        equal(result.as_numpy("y"), X + int(response.id) + 1)
    s.client.async_stream_infer("busy", [s.input("x", X)])
    result, error = answers.get(timeout=20)
    assert result is None and "full" in str(error), (result, error)
    s.client.async_stream_infer("add_one", [s.input("x", X)])  # the stream is still there
    equal(answers.get(timeout=20)[0].as_numpy("y"), X + 1)
    s.client.stop_stream()


@row("generate_request_body, parse_response_body, by any HTTP client", "HTTP")
def check_bodies(s):
    import urllib.request

    body, size = http_client.InferenceServerClient.generate_request_body([s.input("x", X)])
    request = urllib.request.Request(
        f"http://{s.address}/v2/models/add_one/infer", data=body, headers={"Inference-Header-Content-Length": str(size)}
    )
    with urllib.request.urlopen(request, timeout=20) as answer:
        header = int(answer.headers["Inference-Header-Content-Length"])
        parsed = http_client.InferenceServerClient.parse_response_body(answer.read(), header_length=header)
    equal(parsed.as_numpy("y"), X + 1)


@row("keepalive, basic authentication plugin")
def check_options(s):
    from tritonclient.grpc.auth import BasicAuth as GrpcBasicAuth
    from tritonclient.http.auth import BasicAuth as HttpBasicAuth

    more = {} if s.is_http else {"keepalive_options": grpc_client.KeepAliveOptions(keepalive_time_ms=10_000)}
    client = s.module.InferenceServerClient(s.address, **more)
    client.register_plugin((HttpBasicAuth if s.is_http else GrpcBasicAuth)("user", "password"))
    equal(client.infer("add_one", [s.input("x", X)]).as_numpy("y"), X + 1)
    client.close()


def offers_nothing(name, call):
    """A row of something that is not offered, which must be said at once and plainly."""

    def check(s):
        refused(lambda: call(s), "404", "UNIMPLEMENTED")

    check.absent = True
    ROWS.append((name, ("HTTP", "gRPC"), check))


offers_nothing("get_trace_settings, update_trace_settings", lambda s: s.client.get_trace_settings())
offers_nothing("get_log_settings, update_log_settings", lambda s: s.client.get_log_settings())
offers_nothing("system shared memory", lambda s: s.client.get_system_shared_memory_status())
offers_nothing("CUDA shared memory", lambda s: s.client.get_cuda_shared_memory_status())


def run_rows(addresses):
    """Returns ({name: {transport: word}}, failures, number of checks)."""
    found, failures, count = {}, 0, 0
    stages = {t: Stage(t, addresses) for t in ("HTTP", "gRPC")}
    for name, transports, check in ROWS:
        found[name] = {}
        for transport in ("HTTP", "gRPC"):
            if transport not in transports:
                found[name][transport] = "-"
                continue
            count += 1
            try:
                check(stages[transport])
                found[name][transport] = "not offered" if getattr(check, "absent", False) else "yes"
                print(f"ok   triton {transport}: {name}", flush=True)
            except Exception as e:  # a check may fail in any way; the others still run
                failures += 1
                found[name][transport] = "FAILS"
                print(f"FAIL triton {transport}: {name}: {type(e).__name__}: {str(e)[:600]}", flush=True)
    for stage in stages.values():
        stage.client.close()
    return found, failures, count


def table_of(found):
    version = importlib.metadata.version("tritonclient")
    lines = [f"| Call of Triton's Python client {version} | HTTP | gRPC |", "|---|---|---|"]
    lines += [f"| {name} | {by['HTTP']} | {by['gRPC']} |" for name, by in found.items()]
    return "\n".join(lines)


def check_docs(found, update):
    text = GUIDE.read_text()
    pattern = re.compile(re.escape(MARKS[0]) + r"\n.*?" + re.escape(MARKS[1]), re.S)
    wanted = f"{MARKS[0]}\n{table_of(found)}\n{MARKS[1]}"
    if update:
        GUIDE.write_text(pattern.sub(lambda _: wanted, text))
        return True
    return wanted in text


def same_answers(addresses, model, token):
    """A model of which only the metadata is known: the same rows through JSON, binary data, gRPC and a stream, the same
    answers."""

    def headers():  # each call its own: the client leaves a header in what it is given
        return {"authorization": f"Bearer {token}"} if token else None

    h, g = Stage("HTTP", addresses), Stage("gRPC", addresses)
    about = h.client.get_model_metadata(model, headers=headers())
    names = [o["name"] for o in about["outputs"]]
    random = np.random.default_rng(7)

    def values_of(port, rows):
        shape = [rows if size == -1 else size for size in map(int, port["shape"])]
        if port["datatype"] == "BYTES":
            return np.array(["a"] * int(np.prod(shape)), dtype=object).reshape(shape)
        return random.uniform(0, 2, shape).astype(NUMBERS[port["datatype"]])

    def plain(answer):
        out = {}
        for name in names:
            found = answer.as_numpy(name)
            if found.dtype.kind in "OSU":  # texts come as bytes or as texts
                found = np.array([t.decode() if isinstance(t, bytes) else str(t) for t in found.flatten()])
            out[name] = found
        return out

    streamed = queue.Queue()
    g.client.start_stream(callback=lambda result, error: streamed.put((result, error)), headers=headers())
    for rows in (1, 3, 32):
        values = {port["name"]: values_of(port, rows) for port in about["inputs"]}
        binary = h.client.infer(model, [h.input(n, v) for n, v in values.items()], headers=headers())
        as_json = h.client.infer(
            model,
            [h.input(n, v, binary=False) for n, v in values.items()],
            outputs=[h.output(n, binary_data=False) for n in names],
            headers=headers(),
        )
        given = [g.input(n, v) for n, v in values.items()]
        g.client.async_stream_infer(model, given)
        result, error = streamed.get(timeout=20)
        assert error is None, error
        first, *others = (plain(a) for a in (binary, as_json, g.client.infer(model, given, headers=headers()), result))
        for name in names:
            equal(len(first[name]), rows)
            for other in others:
                same = np.array_equal(first[name], other[name], equal_nan=other[name].dtype.kind == "f")
                assert same, (name, first, other)
    g.client.stop_stream()
    return h, g


FRUIT = """apiVersion: falaj/v1
kind: Training
metadata: {name: ripe, tenant: default, project: default}
spec:
  data: {dataset: fruit}
  label: ripe
  model: xgboost
  trees: {rounds: 10, depth: 3}
  register: {alias: champion}
  resources: {cpus: 1, memory: 1GiB}
"""


def check_deployed(binary, directory):
    """falaj trains a model and deploys it; the client asks falaj-serve with the token of a caller, then without."""
    settings = ["serving.listen=127.0.0.1:0", "serving.grpc=127.0.0.1:0", "log_level=error"]
    falaj = servers.Falaj(directory, binary, settings)

    def run(*argv, **more):
        return falaj.must(*argv, "--tenant", "default", "--project", "default", **more)

    try:
        random = np.random.default_rng(7)
        lines = ["x,colour,ripe"]
        for x, noise in random.normal(size=(2000, 2)):
            lines.append(f"{x:.4f},{'red' if x > 0 else 'green'},{'true' if x + noise > 0 else 'false'}")
        (directory / "fruit.csv").write_text("\n".join(lines) + "\n")
        (directory / "ripe.yaml").write_text(FRUIT)
        run("dataset", "create", "fruit", "--from", str(directory / "fruit.csv"), "-q")
        run("train", "-f", str(directory / "ripe.yaml"), "-w")
        run("deploy", "ripe@champion")
        about = json.loads(run("endpoint", "show", "ripe", "-o", "json"))
        addresses = {"HTTP": about["urls"][0].removeprefix("http://"), "gRPC": about["grpc"][0]}
        for stage in same_answers(addresses, "ripe", falaj.token):
            given = [stage.input("x", np.array([[1.0]])), stage.input("colour", np.array([["red"]], dtype=object))]
            mine = {"authorization": f"Bearer {falaj.token}"}
            assert stage.client.is_server_ready() and stage.client.is_model_ready("ripe", headers=dict(mine))
            stats = stage.field(stage.client.get_inference_statistics("ripe", headers=dict(mine)), "model_stats")[0]
            assert int(stage.field(stats, "inference_count")) >= 36, stats
            assert stage.client.get_model_config("ripe", headers=dict(mine))
            for wrong in (None, {"authorization": "Bearer falaj_no_such"}):
                refused(lambda: stage.client.infer("ripe", given, headers=wrong), "401", "UNAUTHENTICATED")
    finally:
        falaj.stop()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--server", default=str(ROOT / "build/release/tools/fake_inference"))
    parser.add_argument("--binary", default=str(ROOT / "build/release/bin/falaj"))
    parser.add_argument("--update-docs", action="store_true")
    for option in ("--http", "--grpc", "--model", "--token"):
        parser.add_argument(option)
    arguments = parser.parse_args()
    if arguments.http:
        same_answers({"HTTP": arguments.http, "gRPC": arguments.grpc}, arguments.model, arguments.token)
        print("ok   triton: JSON, binary data, gRPC and a stream answer the same")
        return 0
    with subprocess.Popen([arguments.server], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        ports = server.stdout.readline().split()
        found, failures, count = run_rows({"HTTP": f"127.0.0.1:{ports[0]}", "gRPC": f"127.0.0.1:{ports[1]}"})
        server.stdin.close()
    if server.returncode != 0:
        print(f"FAIL triton: the server ended with {server.returncode}")
        failures, count = failures + 1, count + 1
    count += 2
    try:
        with tempfile.TemporaryDirectory(prefix="triton-") as directory:
            check_deployed(arguments.binary, pathlib.Path(directory))
        print("ok   triton: a model that falaj trained, behind falaj-serve", flush=True)
    except Exception as e:
        failures += 1
        print(f"FAIL triton: a model that falaj trained, behind falaj-serve: {type(e).__name__}: {str(e)[:600]}")
    if check_docs(found, arguments.update_docs):
        print("ok   triton: the table in the guide says what was found")
    else:
        print("FAIL triton: the table in the guide says something else; renew it with --update-docs")
        failures += 1
    print(f"{count - failures} passed, {failures} failed")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
