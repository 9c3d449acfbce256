# SPDX-License-Identifier: Apache-2.0
"""What other clients put on the wire and this one does not: numbers as text, unknown fields, the browser's prefix."""

import json

import mlflow
from checks import case, equal, true


@case
def health_and_version(stage):
    equal(stage.raw("GET", "/health"), (200, "OK"))
    status, version = stage.raw("GET", "/version")
    equal(status, 200)
    true(str(version).split(".")[0].isdigit(), f"version {version!r}")


@case
def numbers_may_be_text(stage):
    made = stage.experiment()
    status, answer = stage.post(
        "runs/create", {"experiment_id": made, "start_time": "1700000000000", "unknown": {"x": 1}}
    )
    equal(status, 200)
    run = answer["run"]["info"]["run_id"]
    equal(answer["run"]["info"]["start_time"], 1700000000000)
    equal(answer["run"]["info"]["run_uuid"], run)
    equal(
        stage.post(
            "runs/log-metric", {"run_id": run, "key": "m", "value": "NaN", "timestamp": "1700000000001", "step": "7"}
        )[0],
        200,
    )
    equal(stage.post("runs/log-metric", {"run_uuid": run, "key": "n", "value": 5, "timestamp": 1700000000001})[0], 200)
    status, answer = stage.get("runs/get", run_id=run)
    metrics = {m["key"]: m for m in answer["run"]["data"]["metrics"]}
    equal(
        (metrics["m"]["value"], metrics["m"]["step"], metrics["m"]["timestamp"], metrics["n"]["value"]),
        ("NaN", 7, 1700000000001, 5),
    )


@case
def enums_may_be_numbers(stage):
    run = stage.run()
    equal(stage.post("runs/update", {"run_id": run, "status": 4, "end_time": 1700000000000})[0], 200)
    status, answer = stage.get("runs/get", run_uuid=run)
    equal((status, answer["run"]["info"]["status"]), (200, "FAILED"))


@case
def browser_prefix(stage):
    status, answer = stage.raw("GET", "/ajax-api/2.0/mlflow/experiments/get?experiment_id=0")
    equal((status, answer["experiment"]["name"]), (200, "Default"))


@case
def unknown_route_is_no_endpoint(stage):
    status, answer = stage.raw("GET", "/api/2.0/mlflow/no/such/thing?expected-404")
    equal(status, 404)
    true(not isinstance(answer, dict) or answer.get("error_code") == "ENDPOINT_NOT_FOUND", f"answer {answer}")


@case
def bad_bodies(stage):
    run = stage.run()
    for body in (
        b"{",
        b"[]",
        b"nonsense",
        b'{"run_id": 5}',
        json.dumps({"run_id": run, "metrics": [{"key": "a"}]}).encode(),
        json.dumps({"run_id": run, "metrics": "no list"}).encode(),
    ):
        status, answer = stage.raw(
            "POST", "/api/2.0/mlflow/runs/log-batch", body, headers={"Content-Type": "application/json"}
        )
        if status == 500 and stage.server == "mlflow":
            continue
        true(
            status in (400, 404)
            and answer.get("error_code") in ("INVALID_PARAMETER_VALUE", "BAD_REQUEST", "RESOURCE_DOES_NOT_EXIST"),
            f"{body!r} was answered {status} {str(answer)[:150]}",
        )
    for path, body in (
        ("runs/log-metric", {"run_id": run, "key": "a", "value": 1}),
        ("runs/log-metric", {"run_id": run, "value": 1, "timestamp": 1}),
        ("runs/log-metric", {"run_id": run, "key": "a", "value": "x", "timestamp": 1}),
        ("runs/log-parameter", {"run_id": run, "value": "1"}),
        ("experiments/create", {}),
        ("runs/delete", {}),
        ("registered-models/create", {}),
    ):
        status, answer = stage.post(path, body)
        equal((status, answer.get("error_code")), (400, "INVALID_PARAMETER_VALUE"), f"{path} {body}")


@case
def unset_fields_are_left_out(stage):
    status, answer = stage.get("runs/get", run_id=stage.run(start_time=5))
    info = answer["run"]["info"]
    true("end_time" not in info or info["end_time"] == 0, f"end_time {info.get('end_time')!r}")
    true(None not in info.values(), f"null in {info}")


@case
def user_and_source_are_kept(stage):
    mlflow.set_experiment(stage.name("user"))
    with mlflow.start_run() as run:
        pass
    tags = mlflow.get_run(run.info.run_id).data.tags
    true(tags["mlflow.user"] and tags["mlflow.source.name"] and tags["mlflow.source.type"], f"tags {tags}")
