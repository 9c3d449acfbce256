# SPDX-License-Identifier: Apache-2.0
"""Large files in parts, both ways, as the clients do it by themselves past half a gigabyte; here past a few kilobytes."""

import os
import random

import mlflow

from checks import case, environment, equal, true
from cases_artifacts import tree

KIB = 1 << 10


def small_parts(**more):
    return environment(
        MLFLOW_MULTIPART_UPLOAD_MINIMUM_FILE_SIZE=str(100 * KIB),
        MLFLOW_MULTIPART_UPLOAD_CHUNK_SIZE=str(64 * KIB),
        MLFLOW_MULTIPART_DOWNLOAD_CHUNK_SIZE=str(48 * KIB),
        **more,
    )


def content(seed, size):
    return random.Random(seed).randbytes(size)


@case(servers=("falaj",))
def upload_in_parts(stage):
    run = stage.run()
    with small_parts(MLFLOW_ENABLE_PROXY_MULTIPART_UPLOAD="true"):
        for name, size, where in [
            ("odd.bin", 1000 * KIB + 17, None),
            ("even.bin", 640 * KIB, "deep/er"),
            ("one part.bin", 100 * KIB, "ünï+%/dir"),
            ("small.bin", 99 * KIB, None),
        ]:
            stage.client.log_artifact(run, str(stage.file(name, content(size, size))), where)
            path = f"{where}/{name}" if where else name
            equal(tree(stage, run)[path], size)
            got = stage.client.download_artifacts(run, path)
            true(open(got, "rb").read() == content(size, size), f"{path} came back changed")
        # Written again: the newer one counts.
        stage.client.log_artifact(run, str(stage.file("odd.bin", content(1, 300 * KIB))))
        equal(tree(stage, run)["odd.bin"], 300 * KIB)


@case(generations=(3,), servers=("falaj",))
def chosen_by_itself(stage):
    """The newest client asks the server what it can do."""
    run = stage.run()
    data = content(5, 777 * KIB + 3)
    with small_parts():
        # What is lost on the way is asked for again; that it could be lost shows that these calls were made.
        stage.recorder({"fault": "cut after", "times": 1, "path": "/mpu/complete/"})
        stage.recorder({"fault": 503, "times": 1, "path": "/mlflow-artifacts/linked/"})
        stage.client.log_artifact(run, str(stage.file("auto.bin", data)))
        uri = stage.client.get_run(run).info.artifact_uri
        got = mlflow.artifacts.download_artifacts(uri + "/auto.bin")
        true(open(got, "rb").read() == data, "the file came back changed")
        equal(stage.recorder({"faults": True})["left"], 0)
        stage.client.log_artifact(run, str(stage.file("nothing.bin", b"")))
        equal(open(stage.client.download_artifacts(run, "nothing.bin"), "rb").read(), b"")


@case(servers=("falaj",))
def a_lost_part_fails_cleanly_and_again_works(stage):
    run = stage.run()
    data = content(6, 400 * KIB)
    path = str(stage.file("again.bin", data))
    with small_parts(MLFLOW_ENABLE_PROXY_MULTIPART_UPLOAD="true"):
        stage.recorder({"fault": 503, "times": 1, "path": "/mpu/part/"})
        try:
            stage.client.log_artifact(run, path)
        except Exception:  # the client does not repeat a part
            equal(tree(stage, run), {})
        equal(stage.recorder({"faults": True})["left"], 0)
        stage.client.log_artifact(run, path)
        equal(open(stage.client.download_artifacts(run, "again.bin"), "rb").read() == data, True)


@case(servers=("falaj",))
def a_lost_answer_to_complete_is_no_second_file(stage):
    run = stage.run()
    data = content(7, 400 * KIB)
    with small_parts(MLFLOW_ENABLE_PROXY_MULTIPART_UPLOAD="true"):
        stage.recorder({"fault": "cut after", "times": 1, "path": "/mpu/complete/"})
        stage.client.log_artifact(run, str(stage.file("once.bin", data)))
        equal(tree(stage, run), {"once.bin": len(data)})
        equal(stage.recorder({"faults": True})["left"], 0)


@case(servers=("falaj",))
def model_in_parts(stage):
    """A model as a directory with one large file, registered and loaded back from the version."""
    run = stage.run()
    weights = content(8, 500 * KIB)
    with small_parts(MLFLOW_ENABLE_PROXY_MULTIPART_UPLOAD="true"):
        stage.file("m/MLmodel", "flavors: {}\n")
        stage.file("m/data/weights.bin", weights)
        stage.client.log_artifacts(run, str(stage.directory / "m"), "model")
        name = stage.name("model")
        stage.client.create_registered_model(name)
        version = stage.client.create_model_version(name, f"runs:/{run}/model", run)
        got = mlflow.artifacts.download_artifacts(f"models:/{name}/{version.version}")
        true(open(os.path.join(got, "data/weights.bin"), "rb").read() == weights, "the weights came back changed")
