# SPDX-License-Identifier: Apache-2.0
"""Experiments, runs, parameters, metrics, tags, datasets: by MlflowClient and by the fluent interface."""

import math
import time

import mlflow
from mlflow.entities import Metric, Param, RunStatus, RunTag, ViewType

from checks import case, equal, refused, true

HISTORY_POINTS = 50_000


@case
def default_experiment_exists(stage):
    default = stage.client.get_experiment("0")
    equal((default.name, default.lifecycle_stage), ("Default", "active"))
    equal(stage.client.get_experiment_by_name("Default").experiment_id, "0")


@case
def experiment_life(stage):
    name = stage.name("life")
    before = int(time.time() * 1000)
    made = stage.client.create_experiment(name, tags={"team": "red", "empty": ""})
    found = stage.client.get_experiment(made)
    equal((found.name, found.lifecycle_stage, found.tags), (name, "active", {"team": "red", "empty": ""}))
    true(before - 1000 <= found.creation_time <= int(time.time() * 1000) + 1000, f"creation_time {found.creation_time}")
    stage.client.set_experiment_tag(made, "team", "blue")
    stage.client.set_experiment_tag(made, "note", "ünïcode ✓")
    stage.client.rename_experiment(made, name + "-renamed")
    found = stage.client.get_experiment_by_name(name + "-renamed")
    equal((found.experiment_id, found.tags), (made, {"team": "blue", "empty": "", "note": "ünïcode ✓"}))
    equal(stage.client.get_experiment_by_name(name), None)
    true(found.last_update_time >= found.creation_time, "last_update_time before creation_time")


@case
def experiment_refusals(stage):
    name = stage.name("taken")
    made = stage.client.create_experiment(name)
    refused("RESOURCE_ALREADY_EXISTS", stage.client.create_experiment, name)
    refused("RESOURCE_DOES_NOT_EXIST", stage.client.get_experiment, "999999999")
    refused("INVALID_PARAMETER_VALUE", stage.client.create_experiment, "")
    other = stage.client.create_experiment(stage.name("other"))
    refused(("RESOURCE_ALREADY_EXISTS", "BAD_REQUEST"), stage.client.rename_experiment, other, name)
    stage.client.delete_experiment(made)
    refused("RESOURCE_ALREADY_EXISTS", stage.client.create_experiment, name)
    refused("RESOURCE_DOES_NOT_EXIST", stage.client.delete_experiment, made)


@case
def experiment_delete_takes_its_runs_along(stage):
    made = stage.experiment()
    kept, gone = stage.run(made), stage.run(made)
    stage.client.delete_run(gone)
    stage.client.delete_experiment(made)
    equal(stage.client.get_experiment(made).lifecycle_stage, "deleted")
    equal(stage.client.get_run(kept).info.lifecycle_stage, "deleted")
    equal([r.info.run_id for r in stage.client.search_runs([made])], [])
    refused(("INVALID_PARAMETER_VALUE", "INVALID_STATE", "RESOURCE_DOES_NOT_EXIST"), stage.client.create_run, made)
    stage.client.restore_experiment(made)
    equal(stage.client.get_experiment(made).lifecycle_stage, "active")
    true(
        kept in [r.info.run_id for r in stage.client.search_runs([made])], "a run was not restored with its experiment"
    )


@case(generations=(3,))
def experiment_tag_deleted(stage):
    made = stage.client.create_experiment(stage.name("tags"), tags={"a": "1", "b": "2"})
    stage.client.delete_experiment_tag(made, "a")
    equal(stage.client.get_experiment(made).tags, {"b": "2"})


@case
def run_life(stage):
    made = stage.experiment()
    run = stage.client.create_run(made, start_time=1_700_000_000_123, tags={"k": "v"}, run_name="first")
    info = run.info
    equal(
        (info.experiment_id, info.status, info.start_time, info.end_time, info.lifecycle_stage, info.run_name),
        (made, "RUNNING", 1_700_000_000_123, None, "active", "first"),
    )
    true(len(info.run_id) == 32 and info.run_id == info.run_id.lower(), f"run id {info.run_id}")
    equal((run.data.tags["k"], run.data.tags["mlflow.runName"]), ("v", "first"))
    stage.client.update_run(info.run_id, status="SCHEDULED")
    equal(stage.client.get_run(info.run_id).info.status, "SCHEDULED")
    stage.client.set_terminated(info.run_id, "FAILED", end_time=1_700_000_001_456)
    found = stage.client.get_run(info.run_id).info
    equal((found.status, found.end_time), ("FAILED", 1_700_000_001_456))
    stage.client.set_terminated(info.run_id)
    equal(stage.client.get_run(info.run_id).info.status, "FINISHED")


@case
def run_is_named_when_no_name_is_given(stage):
    run = stage.client.create_run(stage.experiment())
    true(run.info.run_name, "no name was made")
    equal(run.data.tags["mlflow.runName"], run.info.run_name)


@case
def run_renamed_by_update_and_by_tag(stage):
    run = stage.run(run_name="one")
    stage.client.update_run(run, name="two")
    found = stage.client.get_run(run)
    equal((found.info.run_name, found.data.tags["mlflow.runName"], found.info.status), ("two", "two", "RUNNING"))
    stage.client.set_tag(run, "mlflow.runName", "three")
    found = stage.client.get_run(run)
    equal((found.info.run_name, found.data.tags["mlflow.runName"]), ("three", "three"))


@case
def run_deleted_and_restored(stage):
    made = stage.experiment()
    run = stage.run(made)
    stage.client.log_metric(run, "m", 1)
    stage.client.delete_run(run)
    equal(stage.client.get_run(run).info.lifecycle_stage, "deleted")
    equal(len(stage.client.search_runs([made])), 0)
    equal(len(stage.client.search_runs([made], run_view_type=ViewType.DELETED_ONLY)), 1)
    equal(len(stage.client.search_runs([made], run_view_type=ViewType.ALL)), 1)
    for write in (
        lambda: stage.client.log_metric(run, "m", 2),
        lambda: stage.client.log_param(run, "p", 2),
        lambda: stage.client.set_tag(run, "t", 2),
    ):
        refused(("INVALID_PARAMETER_VALUE", "INVALID_STATE"), write)
    stage.client.restore_run(run)
    found = stage.client.get_run(run)
    equal((found.info.lifecycle_stage, found.data.metrics), ("active", {"m": 1.0}))
    refused("RESOURCE_DOES_NOT_EXIST", stage.client.get_run, "0" * 32)


@case
def params_are_written_once(stage):
    run = stage.run()
    stage.client.log_param(run, "lr", 0.1)
    stage.client.log_param(run, "lr", "0.1")
    message = refused("INVALID_PARAMETER_VALUE", stage.client.log_param, run, "lr", 0.2)
    true("lr" in message, f"the message does not name the parameter: {message}")
    status, answer = stage.post("runs/log-batch", {"run_id": run, "params": [{"key": "lr", "value": "0.3"}]})
    equal((status, answer["error_code"]), (400, "INVALID_PARAMETER_VALUE"))
    equal(stage.client.get_run(run).data.params, {"lr": "0.1"})


@case
def params_of_every_kind_of_text(stage):
    run = stage.run()
    wanted = {
        "a/b.c-d e_f": "slash dot",
        "empty": "",
        "spaces": "  x  ",
        "unicode": "ключ=值 🎉",
        "quotes": "'\"`\\",
        "lines": "a\nb\tc",
        "long": "x" * 6000,
        "deep.a.b": "1",
    }
    for key, value in wanted.items():
        stage.client.log_param(run, key, value)
    equal(stage.client.get_run(run).data.params, wanted)


@case
def names_refused(stage):
    run = stage.run()
    for key in ("", "a//b", "../a", "/a", "a#b", "k" * 251):
        for path, body in (
            ("runs/log-metric", {"key": key, "value": 1, "timestamp": 1}),
            ("runs/log-parameter", {"key": key, "value": "1"}),
            ("runs/set-tag", {"key": key, "value": "1"}),
        ):
            status, answer = stage.post(path, {"run_id": run, **body})
            equal((status, answer.get("error_code")), (400, "INVALID_PARAMETER_VALUE"), f"{path} of {key[:20]!r}")


@case
def tags_set_changed_deleted(stage):
    run = stage.run(tags={"a": "1"})
    stage.client.set_tag(run, "a", "2")
    stage.client.set_tag(run, "long", "y" * 5000)
    stage.client.set_tag(run, "ünï", "✓")
    stage.client.set_tag(run, "b", True)
    tags = stage.client.get_run(run).data.tags
    equal((tags["a"], tags["long"], tags["ünï"], tags["b"]), ("2", "y" * 5000, "✓", "True"))
    stage.client.delete_tag(run, "a")
    true("a" not in stage.client.get_run(run).data.tags, "tag is still there")
    refused("RESOURCE_DOES_NOT_EXIST", stage.client.delete_tag, run, "a")


@case
def metrics_keep_their_history(stage):
    run = stage.run()
    for step, value in ((0, 1.5), (5, 0.25), (3, 9.0)):
        stage.client.log_metric(run, "loss", value, timestamp=1000 + step, step=step)
    equal(stage.client.get_run(run).data.metrics, {"loss": 0.25}, "the latest is that of the highest step")
    equal(
        [(m.step, m.timestamp, m.value) for m in stage.client.get_metric_history(run, "loss")],
        [(0, 1000, 1.5), (3, 1003, 9.0), (5, 1005, 0.25)],
    )
    equal(stage.client.get_metric_history(run, "no such"), [])


@case
def metric_latest_is_by_step_then_time_then_value(stage):
    run = stage.run()
    for key, points, latest in (
        ("step", ((2, 10, 1.0), (1, 99, 5.0)), 1.0),
        ("time", ((1, 20, 1.0), (1, 10, 5.0)), 1.0),
        ("value", ((1, 10, 1.0), (1, 10, 5.0), (1, 10, 2.0)), 5.0),
        ("negative", ((-5, 10, 1.0), (-7, 10, 2.0)), 1.0),
    ):
        for step, timestamp, value in points:
            stage.client.log_metric(run, key, value, timestamp=timestamp, step=step)
        equal(stage.client.get_run(run).data.metrics[key], latest, key)
        equal(len(stage.client.get_metric_history(run, key)), len(points), key)


@case
def metric_logged_twice_is_there_once(stage):
    run = stage.run()
    for _ in range(3):
        stage.client.log_metric(run, "m", 0.5, timestamp=7, step=1)
        stage.client.log_batch(run, metrics=[Metric("m", 0.5, 7, 1), Metric("n", 1.0, 7, 1), Metric("n", 1.0, 7, 1)])
    equal([len(stage.client.get_metric_history(run, k)) for k in "mn"], [1, 1])


@case
def metric_values_at_the_edges(stage):
    run = stage.run()
    wanted = {"zero": 0.0, "tiny": 5e-324, "huge": 1.7e308, "negative": -1.25, "third": 1 / 3, "whole": float(2**53)}
    for key, value in wanted.items():
        stage.client.log_metric(run, key, value)
    equal(stage.client.get_run(run).data.metrics, wanted)


@case
def metric_nan_and_infinity(stage):
    run = stage.run()
    stage.client.log_metric(run, "nan", math.nan, timestamp=1)
    stage.client.log_batch(run, metrics=[Metric("up", math.inf, 1, 0), Metric("down", -math.inf, 1, 0)])
    found = stage.client.get_run(run).data.metrics
    true(math.isnan(found["nan"]), f"NaN came back as {found['nan']}")
    # The reference's SQL store keeps the largest finite number instead of infinity.
    true(
        found["up"] >= 1.7976931348623157e308 and found["down"] <= -1.7976931348623157e308,
        f"infinities came back as {found}",
    )
    true(math.isnan(stage.client.get_metric_history(run, "nan")[0].value), "NaN in the history")


@case
def history_of_50k_points(stage):
    run = stage.run()
    for start in range(0, HISTORY_POINTS, 1000):
        stage.client.log_batch(
            run, metrics=[Metric("loss", 1.0 / (i + 1), 1_000_000 + i, i) for i in range(start, start + 1000)]
        )
    found = stage.client.get_metric_history(run, "loss")
    equal(len(found), HISTORY_POINTS)
    true(
        all(m.step == i and m.timestamp == 1_000_000 + i and m.value == 1.0 / (i + 1) for i, m in enumerate(found)),
        "points are not the ones logged, in order of time",
    )
    equal(stage.client.get_run(run).data.metrics, {"loss": 1.0 / HISTORY_POINTS})
    pages, token = [], None
    while True:
        query = {"run_id": run, "metric_key": "loss", "max_results": 20_000} | ({"page_token": token} if token else {})
        status, answer = stage.get("metrics/get-history", **query)
        equal(status, 200)
        pages.append(len(answer["metrics"]))
        token = answer.get("next_page_token")
        if not token:
            break
    equal(pages, [20_000, 20_000, 10_000])


@case
def batch_at_its_limits(stage):
    run = stage.run()
    stage.client.log_batch(run, metrics=[Metric(f"m{i}", i, 1, 0) for i in range(1000)])
    stage.client.log_batch(run, params=[Param(f"p{i}", str(i)) for i in range(100)])
    stage.client.log_batch(run, tags=[RunTag(f"t{i}", str(i)) for i in range(100)])
    data = stage.client.get_run(run).data
    equal((len(data.metrics), len(data.params)), (1000, 100))
    equal((data.metrics["m999"], data.params["p99"], data.tags["t99"]), (999.0, "99", "99"))
    mixed = {
        "run_id": stage.run(),
        "metrics": [{"key": f"m{i}", "value": i, "timestamp": 1} for i in range(800)],
        "params": [{"key": f"p{i}", "value": "v"} for i in range(100)],
        "tags": [{"key": f"t{i}", "value": "v"} for i in range(100)],
    }
    equal(stage.post("runs/log-batch", mixed)[0], 200)
    stage.client.log_batch(run)  # nothing at all is fine


@case
def batch_over_its_limits(stage):
    run = stage.run()
    metrics = [{"key": f"m{i}", "value": i, "timestamp": 1} for i in range(1001)]
    params = [{"key": f"p{i}", "value": "v"} for i in range(101)]
    for body in (
        {"metrics": metrics},
        {"params": params},
        {"tags": params},
        {"metrics": metrics[:901], "params": params[:100]},
        {"params": [{"key": "same", "value": "1"}, {"key": "same", "value": "2"}]},
    ):
        status, answer = stage.post("runs/log-batch", {"run_id": run, **body})
        equal(
            (status, answer.get("error_code")),
            (400, "INVALID_PARAMETER_VALUE"),
            str({k: len(v) for k, v in body.items()}),
        )
    data = stage.client.get_run(run).data
    equal((data.metrics, data.params), ({}, {}), "what was refused left something behind")


@case
def fluent_run(stage):
    mlflow.set_experiment(stage.name("fluent"))
    with mlflow.start_run(run_name="outer", tags={"kind": "test"}, description="what it is for") as outer:
        mlflow.log_param("depth", 3)
        mlflow.log_params({"lr": 0.1, "name": "x"})
        mlflow.log_metric("loss", 0.5, step=1)
        mlflow.log_metric("loss", 0.25, step=2)
        mlflow.log_metrics({"acc": 0.9, "f1": 0.8}, step=2)
        mlflow.set_tag("a", "b")
        mlflow.set_tags({"c": "d", "e": 1})
        with mlflow.start_run(nested=True, run_name="inner") as inner:
            mlflow.log_metric("loss", 1)
            with mlflow.start_run(nested=True) as innermost:
                pass
    found = mlflow.get_run(outer.info.run_id)
    equal(found.data.params, {"depth": "3", "lr": "0.1", "name": "x"})
    equal(found.data.metrics, {"loss": 0.25, "acc": 0.9, "f1": 0.8})
    equal(
        (found.info.status, found.data.tags["mlflow.note.content"], found.data.tags["e"]),
        ("FINISHED", "what it is for", "1"),
    )
    true(found.info.end_time >= found.info.start_time, "ended before it started")
    equal(mlflow.get_run(inner.info.run_id).data.tags["mlflow.parentRunId"], outer.info.run_id)
    equal(mlflow.get_run(innermost.info.run_id).data.tags["mlflow.parentRunId"], inner.info.run_id)
    equal(mlflow.get_parent_run(innermost.info.run_id).info.run_id, inner.info.run_id)
    children = mlflow.search_runs(
        filter_string=f"tags.mlflow.parentRunId = '{outer.info.run_id}'", output_format="list"
    )
    equal([r.info.run_id for r in children], [inner.info.run_id])


@case
def fluent_run_failed_and_resumed(stage):
    mlflow.set_experiment(stage.name("resumed"))
    try:
        with mlflow.start_run() as run:
            mlflow.log_metric("m", 1)
            raise KeyError("on purpose")
    except KeyError:
        pass
    equal(mlflow.get_run(run.info.run_id).info.status, RunStatus.to_string(RunStatus.FAILED))
    with mlflow.start_run(run_id=run.info.run_id):
        mlflow.log_metric("m", 2, step=1)
    found = mlflow.get_run(run.info.run_id)
    equal((found.info.status, found.data.metrics), ("FINISHED", {"m": 2.0}))


@case
def fluent_logging_in_the_background(stage):
    mlflow.set_experiment(stage.name("async"))
    with mlflow.start_run() as run:
        for step in range(200):
            mlflow.log_metric("m", step, step=step, synchronous=False)
        mlflow.log_params({f"p{i}": i for i in range(250)}, synchronous=False).wait()
        mlflow.set_tags({"a": "b"}, synchronous=False).wait()
        mlflow.flush_async_logging()
    found = mlflow.get_run(run.info.run_id)
    equal((len(found.data.params), found.data.metrics, found.data.tags["a"]), (250, {"m": 199.0}, "b"))
    equal(len(stage.client.get_metric_history(run.info.run_id, "m")), 200)


@case
def fluent_search_gives_a_table(stage):
    mlflow.set_experiment(stage.name("table"))
    for i in range(3):
        with mlflow.start_run(run_name=f"r{i}"):
            mlflow.log_metric("m", i)
            mlflow.log_param("p", i)
    table = mlflow.search_runs(order_by=["metrics.m DESC"])
    equal(list(table["metrics.m"]), [2.0, 1.0, 0.0])
    equal(list(table["params.p"]), ["2", "1", "0"])
    equal(mlflow.last_active_run().info.run_name, "r2")


@case
def datasets_are_logged_with_their_context(stage):
    import pandas

    data = mlflow.data.from_pandas(
        pandas.DataFrame({"x": [1, 2], "y": [0.5, 1.5]}),
        source="https://example.com/data.csv",
        name="sales",
        targets="y",
    )
    mlflow.set_experiment(stage.name("datasets"))
    with mlflow.start_run() as run:
        mlflow.log_input(data, context="training", tags={"split": "a"})
        mlflow.log_input(data, context="training")
        mlflow.log_input(mlflow.data.from_pandas(pandas.DataFrame({"x": [3]}), name="held out"), context="eval")
    inputs = mlflow.get_run(run.info.run_id).inputs.dataset_inputs
    found = {i.dataset.name: i for i in inputs}
    equal(sorted(found), ["held out", "sales"])
    sales = found["sales"]
    equal(
        (
            sales.dataset.digest,
            sales.dataset.source_type,
            "num_rows" in sales.dataset.profile,
            '"x"' in sales.dataset.schema,
        ),
        (data.digest, "http", True, True),
    )
    equal({t.key: t.value for t in sales.tags}["mlflow.data.context"], "training")
    equal(mlflow.data.get_source(sales).load.__name__, "load")


@case
def dashboards_sample_histories(stage):
    run = stage.run()
    stage.client.log_batch(run, metrics=[Metric("m", i, i, i) for i in range(1000)])
    status, answer = stage.get("metrics/get-history-bulk-interval", run_ids=[run], metric_key="m", max_results=100)
    equal(status, 200)
    steps = [m["step"] for m in answer["metrics"]]
    true(
        50 <= len(steps) <= 110 and steps[0] == 0 and steps[-1] == 999 and steps == sorted(steps),
        f"{len(steps)} of steps {steps[:3]}...{steps[-3:]}",
    )
    status, answer = stage.get(
        "metrics/get-history-bulk-interval", run_ids=[run], metric_key="m", start_step=10, end_step=19
    )
    equal([m["step"] for m in answer["metrics"]], list(range(10, 20)))
