# SPDX-License-Identifier: Apache-2.0
"""Answers that get lost, servers that die, tokens that do not hold. The recorder of run.py loses what it is told to."""

import concurrent.futures
import os
import threading

import mlflow
from mlflow.entities import Metric, Param
from mlflow.tracking import MlflowClient

from checks import case, environment, equal, refused, true

LOGGERS = 8
STEPS = 60


@case
def retried_when_the_server_is_busy(stage):
    run = stage.run()
    for answer in (503, 429, 502, "cut before"):
        stage.recorder({"fault": answer, "times": 1, "path": "runs/log-metric"})
        stage.client.log_metric(run, "m", 1.0, timestamp=1, step=1)
    equal(stage.recorder({"faults": True})["left"], 0)
    equal(len(stage.client.get_metric_history(run, "m")), 1)


@case
def lost_answers_double_nothing(stage):
    run = stage.run()

    def lose(path):
        stage.recorder({"fault": "cut after", "times": 1, "path": path})

    lose("runs/log-metric")
    stage.client.log_metric(run, "m", 1.0, timestamp=1, step=1)
    lose("runs/log-batch")
    stage.client.log_batch(run, metrics=[Metric("m", 2.0, 2, 2), Metric("n", 3.0, 3, 3)], params=[Param("p", "1")])
    lose("runs/log-parameter")
    stage.client.log_param(run, "q", "2")
    lose("mlflow-artifacts")
    stage.client.log_text(run, "hello", "a.txt")
    lose("runs/update")
    stage.client.set_terminated(run)
    equal(stage.recorder({"faults": True})["left"], 0)
    found = stage.client.get_run(run)
    equal(
        (found.data.params, found.data.metrics, found.info.status),
        ({"p": "1", "q": "2"}, {"m": 2.0, "n": 3.0}, "FINISHED"),
    )
    equal([len(stage.client.get_metric_history(run, k)) for k in "mn"], [2, 1])
    equal([(f.path, f.file_size) for f in stage.client.list_artifacts(run)], [("a.txt", 5)])


@case
def logged_by_many_at_once(stage):
    run = stage.run()

    def log(worker):
        for step in range(25):
            stage.client.log_metric(run, f"m{worker}", step, step=step)
            stage.client.log_metric(run, "shared", worker * 100 + step, timestamp=1, step=step)
        stage.client.log_param(run, f"p{worker}", worker)
        stage.client.set_tag(run, "last", worker)

    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        list(pool.map(log, range(4)))
    data = stage.client.get_run(run).data
    equal((data.params, [data.metrics[f"m{w}"] for w in range(4)]), ({f"p{w}": str(w) for w in range(4)}, [24.0] * 4))
    equal(len(stage.client.get_metric_history(run, "shared")), 100)


@case(servers=("falaj",))
def no_token_and_wrong_token(stage):
    experiment = stage.experiment()
    for token in ("", "falaj_" + "a" * 26 + "_" + "b" * 43, "nonsense"):
        status, answer = stage.raw("GET", "/api/2.0/mlflow/experiments/get?experiment_id=0", token=token)
        equal((status, answer.get("error_code")), (401, "UNAUTHENTICATED"), token[:12])
    with environment(MLFLOW_TRACKING_TOKEN="nonsense"):
        refused("UNAUTHENTICATED", MlflowClient().create_run, experiment)
        refused("UNAUTHENTICATED", mlflow.search_experiments)


@case(servers=("falaj",), alone=True)  # last, when its minute is nearly over
def expired_token(stage):
    token = stage.control({"token": "expired"})["token"]
    with environment(MLFLOW_TRACKING_TOKEN=token):
        refused("UNAUTHENTICATED", MlflowClient().get_experiment, "0")


@case(servers=("falaj",))
def viewer_reads_and_does_not_write(stage):
    experiment = stage.experiment()
    run = stage.run(experiment)
    stage.client.log_text(run, "hello", "a.txt")
    name = stage.name("seen")
    stage.client.create_registered_model(name)
    token = stage.control({"token": "viewer"})["token"]
    with environment(MLFLOW_TRACKING_TOKEN=token):
        viewer = MlflowClient()
        equal(viewer.get_run(run).info.run_id, run)
        equal([r.info.run_id for r in viewer.search_runs([experiment])], [run])
        equal([f.path for f in viewer.list_artifacts(run)], ["a.txt"])
        equal(open(viewer.download_artifacts(run, "a.txt"), encoding="utf-8").read(), "hello")
        for write in (
            lambda: viewer.create_run(experiment),
            lambda: viewer.log_metric(run, "m", 1),
            lambda: viewer.log_param(run, "p", 1),
            lambda: viewer.set_tag(run, "t", 1),
            lambda: viewer.delete_run(run),
            lambda: viewer.create_experiment(stage.name("x")),
            lambda: viewer.create_registered_model(stage.name("x")),
            lambda: viewer.delete_registered_model(name),
            lambda: viewer.set_terminated(run),
        ):
            refused("PERMISSION_DENIED", write)
        artifact = stage.client.get_run(run).info.artifact_uri.split(":/", 1)[1].lstrip("/")
        equal(stage.raw("PUT", f"/api/2.0/mlflow-artifacts/artifacts/{artifact}/b.txt", b"x", token=token)[0], 403)
    equal((stage.client.get_run(run).data.metrics, stage.client.get_run(run).info.lifecycle_stage), ({}, "active"))


@case(servers=("falaj",))
def projects_do_not_see_each_other(stage):
    run = stage.run()
    stage.client.log_text(run, "secret", "a.txt")
    name = stage.name("mine")
    stage.client.create_registered_model(name)
    stage.control({"project": "other"})
    uri = stage.uri.removesuffix("/default") + "/other"
    other = MlflowClient(uri, uri)
    equal(other.get_experiment("0").name, "Default")
    for look in (
        lambda: other.get_run(run),
        lambda: other.get_registered_model(name),
        lambda: other.log_metric(run, "m", 1),
    ):
        refused("RESOURCE_DOES_NOT_EXIST", look)
    mine = stage.client.get_run(run).info
    true(
        stage.client.get_experiment(mine.experiment_id).name not in {e.name for e in other.search_experiments()},
        "an experiment is seen",
    )
    equal([r.info.run_id for r in other.search_runs([mine.experiment_id])], [])
    # Files without the client, which remembers where a run's are and would ask the project it first saw it in.
    place = mine.artifact_uri.split(":/", 1)[1].lstrip("/")
    for path in (
        f"/api/2.0/mlflow-artifacts/artifacts/{place}/a.txt",
        f"/api/2.0/mlflow-artifacts/artifacts?path={place}",
        f"/api/2.0/mlflow/artifacts/list?run_id={run}",
    ):
        equal((stage.raw("GET", path)[0], stage.raw("GET", path, uri=uri)[0]), (200, 404), path)
    equal(stage.client.get_run(run).data.metrics, {})


@case(servers=("falaj",))
def address_without_a_project_is_the_default_one(stage):
    run = stage.run()
    host = stage.uri.split("/mlflow/")[0]
    equal(MlflowClient(host, host).get_run(run).info.run_id, run)
    status, answer = stage.raw(
        "GET", "/api/2.0/mlflow/experiments/get?experiment_id=0", uri=host + "/mlflow/default/none"
    )
    equal((status, answer["error_code"]), (404, "RESOURCE_DOES_NOT_EXIST"))


@case(servers=("falaj",), alone=True)
def killed_in_mid_run(stage):
    """Every logger's calls go through one kill -9 and a restart at the same port, without the recorder between."""
    halfway = threading.Barrier(LOGGERS + 1)
    with environment(MLFLOW_TRACKING_URI=stage.direct_uri, MLFLOW_HTTP_REQUEST_MAX_RETRIES="7"):
        mlflow.set_tracking_uri(stage.direct_uri)
        client = MlflowClient(stage.direct_uri)
        run = client.create_run(stage.experiment()).info.run_id

        def log(worker):
            for step in range(STEPS):
                if step == STEPS // 3:
                    halfway.wait()
                client.log_metric(run, f"m{worker}", step / 8, timestamp=1000 + step, step=step)
                client.log_param(run, f"p{worker}-{step}", step)
                if step % 20 == 0:
                    client.log_text(run, f"{worker} {step}", f"w{worker}/{step}.txt")

        with concurrent.futures.ThreadPoolExecutor(LOGGERS) as pool:
            done = [pool.submit(log, w) for w in range(LOGGERS)]
            halfway.wait()
            stage.control({"kill": True})
            for d in done:
                d.result()
        client.set_terminated(run)
        found = client.get_run(run)
        equal((found.info.status, len(found.data.params)), ("FINISHED", LOGGERS * STEPS))
        for worker in range(LOGGERS):
            history = client.get_metric_history(run, f"m{worker}")
            equal(
                [(m.step, m.value) for m in history], [(s, s / 8) for s in range(STEPS)], f"history of logger {worker}"
            )
            for step in range(0, STEPS, 20):
                equal(mlflow.artifacts.load_text(f"{found.info.artifact_uri}/w{worker}/{step}.txt"), f"{worker} {step}")
    mlflow.set_tracking_uri(os.environ["MLFLOW_TRACKING_URI"])
