# SPDX-License-Identifier: Apache-2.0
"""Files of runs: written, listed, read back, with every kind of name."""

import hashlib
import json
import os
import random

import mlflow

from checks import case, equal, refused, true

# A percent sign before two hexadecimal digits is missing: the client does not escape it, so the server cannot know.
NAMES = [
    "plain.txt",
    "two words.txt",
    "100% sure.txt",
    "per%zz.txt",
    "plus+sign.txt",
    "ünïcødé-ключ-值.txt",
    "semi;colon&amp=1.txt",
    'quote\'d "x".txt',
    "~tilde,comma=equals@at!.txt",
    ".hidden",
    "no_extension",
    "brackets[1](2){3}.txt",
    "UPPER.TXT",
    "a" * 180 + ".bin",
]


def tree(stage, run, path=None):
    found = {}
    for entry in stage.client.list_artifacts(run, path):
        found[entry.path] = None if entry.is_dir else entry.file_size or 0  # the client has None for 0
        if entry.is_dir:
            found.update(tree(stage, run, entry.path))
    return found


@case
def file_and_directory(stage):
    run = stage.run()
    stage.file("tree/a.txt", "aaa")
    stage.file("tree/sub/b.bin", bytes(range(256)))
    stage.file("tree/sub/deeper/still/c.json", "{}")
    stage.client.log_artifact(run, str(stage.directory / "tree/a.txt"))
    stage.client.log_artifact(run, str(stage.directory / "tree/a.txt"), "copy/of")
    stage.client.log_artifacts(run, str(stage.directory / "tree"), "all")
    equal(
        tree(stage, run),
        {
            "a.txt": 3,
            "copy": None,
            "copy/of": None,
            "copy/of/a.txt": 3,
            "all": None,
            "all/a.txt": 3,
            "all/sub": None,
            "all/sub/b.bin": 256,
            "all/sub/deeper": None,
            "all/sub/deeper/still": None,
            "all/sub/deeper/still/c.json": 2,
        },
    )
    got = stage.client.download_artifacts(run, "all", str(stage.directory))
    equal((stage.directory / "all/sub/b.bin").read_bytes(), bytes(range(256)))
    true(os.path.isdir(got), got)


@case
def names_of_every_kind(stage):
    run = stage.run()
    for name in NAMES:
        stage.client.log_artifact(run, str(stage.file("names/" + name, name)), "dir with space/ünï+%")
    equal(tree(stage, run, "dir with space/ünï+%"), {"dir with space/ünï+%/" + n: len(n.encode()) for n in NAMES})
    for name in NAMES:
        place = stage.directory / "back"
        place.mkdir(exist_ok=True)
        got = stage.client.download_artifacts(run, "dir with space/ünï+%/" + name, str(place))
        equal(open(got, encoding="utf-8").read(), name)


@case
def empty_file(stage):
    run = stage.run()
    stage.client.log_artifact(run, str(stage.file("empty", b"")))
    equal(tree(stage, run), {"empty": 0})
    equal(open(stage.client.download_artifacts(run, "empty"), "rb").read(), b"")


@case
def large_file_is_the_same(stage):
    content = random.Random(7).randbytes(24 << 20)
    run = stage.run()
    stage.client.log_artifact(run, str(stage.file("large.bin", content)))
    equal(tree(stage, run), {"large.bin": len(content)})
    got = open(stage.client.download_artifacts(run, "large.bin"), "rb").read()
    equal(hashlib.sha256(got).hexdigest(), hashlib.sha256(content).hexdigest())


@case
def overwritten(stage):
    run = stage.run()
    for content in ("one", "twotwo", "3"):
        stage.client.log_text(run, content, "same.txt")
        equal(mlflow.artifacts.load_text(stage.client.get_run(run).info.artifact_uri + "/same.txt"), content)
    equal(tree(stage, run), {"same.txt": 1})


@case
def text_dict_figure_image_table(stage):
    import matplotlib.pyplot as plot
    import numpy
    import pandas

    mlflow.set_experiment(stage.name("kinds"))
    with mlflow.start_run() as run:
        mlflow.log_text("ünï\ntext", "notes/a.txt")
        mlflow.log_dict({"k": [1, 2.5, "ü"]}, "d.json")
        mlflow.log_dict({"k": [1, 2]}, "d.yml")
        figure, axes = plot.subplots()
        axes.plot([1, 2])
        mlflow.log_figure(figure, "plots/f.png")
        mlflow.log_image(numpy.zeros((4, 4, 3), dtype=numpy.uint8), "i.png")
        mlflow.log_image(numpy.zeros((4, 4, 3), dtype=numpy.uint8), key="seen", step=3)
        mlflow.log_table({"q": ["a", "b"], "n": [1, 2]}, "t.json")
        mlflow.log_table(pandas.DataFrame({"q": ["c"], "n": [3]}), "t.json")
        mlflow.flush_artifact_async_logging()  # images with a key are sent behind our back
    root = f"runs:/{run.info.run_id}"
    equal(mlflow.artifacts.load_text(root + "/notes/a.txt"), "ünï\ntext")
    equal(mlflow.artifacts.load_dict(root + "/d.json"), {"k": [1, 2.5, "ü"]})
    equal(mlflow.artifacts.load_image(root + "/i.png").size, (4, 4))
    table = mlflow.load_table("t.json", run_ids=[run.info.run_id])
    equal((list(table["q"]), list(table["n"])), (["a", "b", "c"], [1, 2, 3]))
    # Version 2 names such an image with percent signs before digits, and escapes them: a server that decodes twice loses it.
    images = [f.path for f in stage.client.list_artifacts(run.info.run_id, "images")]
    true(any(p.endswith(".png") and "step" in p for p in images), f"images with a key: {images}")
    equal(
        json.loads(mlflow.get_run(run.info.run_id).data.tags["mlflow.loggedArtifacts"]),
        [{"path": "t.json", "type": "table"}],
    )
    found = tree(stage, run.info.run_id)
    true({"notes", "plots", "images", "plots/f.png", "i.png", "d.yml"} <= set(found), sorted(found))


@case
def missing_is_said(stage):
    run = stage.run()
    stage.client.log_text(run, "x", "there.txt")
    equal(stage.client.list_artifacts(run, "nowhere"), [])
    equal(stage.client.list_artifacts(run, "there.txt"), [])
    equal(stage.client.list_artifacts(stage.run()), [])
    try:
        stage.client.download_artifacts(run, "nowhere.txt")
    except Exception:  # MlflowException or requests' HTTPError, as the client's release has it
        return
    raise AssertionError("a file that is not there was downloaded")


@case
def proxy_answers_without_the_client(stage):
    run = stage.client.get_run(stage.run())
    true(
        run.info.artifact_uri.startswith("mlflow-artifacts:/"),
        f"artifact_uri {run.info.artifact_uri}: clients would go around the server",
    )
    place = "/api/2.0/mlflow-artifacts/artifacts/" + run.info.artifact_uri.split(":/", 1)[1].lstrip("/")
    equal(
        stage.raw("PUT", place + "/x/raw.bin", b"12345", headers={"Content-Type": "application/octet-stream"}),
        (200, {}),
    )
    equal(stage.raw("GET", place + "/x/raw.bin")[0], 200)
    listing = "/api/2.0/mlflow-artifacts/artifacts?path=" + place.split("/artifacts/", 1)[1] + "/x"
    equal(stage.raw("GET", listing), (200, {"files": [{"path": "raw.bin", "is_dir": False, "file_size": 5}]}))
    for bad in ("/../../escape", "/a/%2e%2e/%2e%2e/%2e%2e/%2e%2e/escape", "/%252e%252e/%252e%252e/x"):
        status, _ = stage.raw("PUT", place + bad, b"x", headers={"Content-Type": "application/octet-stream"})
        true(400 <= status < 500, f"{bad} was answered {status}")
    equal(stage.raw("DELETE", place + "/x")[0], 200)
    equal(stage.client.list_artifacts(run.info.run_id), [])


@case
def run_of_its_own_listing(stage):
    run = stage.run()
    stage.client.log_text(run, "hello", "a/b.txt")
    status, answer = stage.get("artifacts/list", run_id=run, path="a")
    equal((status, answer["files"]), (200, [{"path": "a/b.txt", "is_dir": False, "file_size": 5}]))
    equal(answer["root_uri"], stage.client.get_run(run).info.artifact_uri)
    refused("RESOURCE_DOES_NOT_EXIST", stage.client.list_artifacts, "f" * 32)
    equal(stage.get("artifacts/list", run_id=run, path="../..")[0], 400)
