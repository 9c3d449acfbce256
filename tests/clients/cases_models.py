# SPDX-License-Identifier: Apache-2.0
"""Models that are trained, logged, registered, loaded and asked again: the answers must be the same."""

import json

import mlflow
import mlflow.sklearn
import numpy
from sklearn.datasets import load_iris
from sklearn.linear_model import LogisticRegression

from checks import case, equal, refused, true

X, Y = load_iris(return_X_y=True)


def trained():
    return LogisticRegression(max_iter=500, random_state=3).fit(X, Y)


def log_model(stage, model, name="model", **kwargs):
    # Both given, because finding them out imports the model in another process, which takes long and needs no server.
    kwargs = {"pip_requirements": ["scikit-learn"], **kwargs}
    if stage.generation == 2:
        return mlflow.sklearn.log_model(model, name, **kwargs)
    return mlflow.sklearn.log_model(model, name=name, serialization_format="cloudpickle", **kwargs)


def same_answers(model, uri):
    loaded = mlflow.sklearn.load_model(uri)
    true(numpy.array_equal(model.predict_proba(X), loaded.predict_proba(X)), f"{uri} answers otherwise")


@case
def logged_and_loaded(stage):
    model = trained()
    mlflow.set_experiment(stage.name("models"))
    with mlflow.start_run() as run:
        mlflow.log_param("C", model.C)
        info = log_model(
            stage, model, signature=mlflow.models.infer_signature(X, model.predict(X)), input_example=X[:2]
        )
    same_answers(model, info.model_uri)
    same_answers(model, f"runs:/{run.info.run_id}/model")
    generic = mlflow.pyfunc.load_model(info.model_uri)
    true(numpy.array_equal(generic.predict(X), model.predict(X)), "the generic flavour answers otherwise")
    equal(generic.metadata.signature.inputs.input_types()[0].name, "float64")
    equal(mlflow.models.get_model_info(info.model_uri).run_id, run.info.run_id)


@case
def registered_and_loaded(stage):
    name, model = stage.name("iris"), trained()
    mlflow.set_experiment(stage.name("models"))
    with mlflow.start_run():
        info = log_model(stage, model, registered_model_name=name)
        again = mlflow.register_model(info.model_uri, name, tags={"by": "hand"})
    equal(str(again.version), "2")
    equal(stage.client.get_model_version(name, "2").tags["by"], "hand")
    stage.client.set_registered_model_alias(name, "champion", "2")
    stage.client.transition_model_version_stage(name, "1", "Production")
    for uri in (
        f"models:/{name}/1",
        f"models:/{name}/2",
        f"models:/{name}@champion",
        f"models:/{name}/Production",
        f"models:/{name}/latest",
    ):
        same_answers(model, uri)
    copied = stage.client.copy_model_version(f"models:/{name}/1", stage.name("copy"))
    same_answers(model, f"models:/{copied.name}/{copied.version}")
    refused(("RESOURCE_DOES_NOT_EXIST", "INVALID_PARAMETER_VALUE"), mlflow.sklearn.load_model, f"models:/{name}@nobody")


@case
def registered_from_a_run(stage):
    name, model = stage.name("from run"), trained()
    mlflow.set_experiment(stage.name("models"))
    with mlflow.start_run() as run:
        log_model(stage, model)
    version = mlflow.register_model(f"runs:/{run.info.run_id}/model", name)
    equal((str(version.version), version.run_id), ("1", run.info.run_id))
    same_answers(model, f"models:/{name}/1")


@case(generations=(2,))
def history_of_a_run_names_its_models(stage):
    mlflow.set_experiment(stage.name("models"))
    with mlflow.start_run() as run:
        for name in ("one", "two"):
            log_model(stage, trained(), name)
    history = json.loads(mlflow.get_run(run.info.run_id).data.tags["mlflow.log-model.history"])
    equal([h["artifact_path"] for h in history], ["one", "two"])


@case(generations=(3,))
def logged_model_life(stage):
    experiment = stage.experiment("logged")
    run = stage.run(experiment)
    made = stage.client.create_logged_model(
        experiment,
        name="net",
        source_run_id=run,
        tags={"a": "1"},
        params={f"p{i}": str(i) for i in range(150)},
        model_type="agent",
    )
    true(made.model_id.startswith("m-"), made.model_id)
    equal(
        (made.name, str(made.status), made.source_run_id, made.model_type, made.experiment_id),
        ("net", "PENDING", run, "agent", experiment),
    )
    stage.client.log_metric(run, "acc", 0.75, step=2, model_id=made.model_id, dataset_name="d", dataset_digest="x")
    stage.client.set_logged_model_tags(made.model_id, {"b": "2", "c": "3"})
    stage.client.delete_logged_model_tag(made.model_id, "c")
    (
        stage.client.log_model_artifact(made.model_id, str(stage.file("weights.bin", b"abc")))
        if hasattr(stage.client, "log_model_artifact")
        else None
    )
    stage.client.finalize_logged_model(made.model_id, "READY")
    found = stage.client.get_logged_model(made.model_id)
    equal(
        (str(found.status), found.tags, len(found.params), found.params["p149"]),
        ("READY", {"a": "1", "b": "2"}, 150, "149"),
    )
    equal(
        [(m.key, m.value, m.step, m.dataset_name, m.dataset_digest, m.run_id) for m in found.metrics],
        [("acc", 0.75, 2, "d", "x", run)],
    )
    stage.client.delete_logged_model(made.model_id)
    refused("RESOURCE_DOES_NOT_EXIST", stage.client.get_logged_model, made.model_id)
    refused("INVALID_PARAMETER_VALUE", stage.client.create_logged_model, experiment, name="a/b")


@case(generations=(3,))
def logged_model_of_a_run(stage):
    mlflow.set_experiment(stage.name("logged"))
    with mlflow.start_run() as run:
        mlflow.log_metric("before", 1.0)
        info = log_model(stage, trained(), "net", params={"k": "v"}, tags={"t": "1"})
        mlflow.log_metric("after", 2.0, model_id=info.model_id)
    found = mlflow.get_run(run.info.run_id)
    equal([o.model_id for o in found.outputs.model_outputs], [info.model_id])
    model = mlflow.get_logged_model(info.model_id)
    equal((model.source_run_id, model.params["k"], model.tags["t"]), (run.info.run_id, "v", "1"))
    true("after" in {m.key for m in model.metrics}, f"metrics of the model: {model.metrics}")
    same = mlflow.sklearn.load_model(f"models:/{info.model_id}")
    true(numpy.array_equal(same.predict(X), trained().predict(X)), "it answers otherwise")
    name = stage.name("registered")
    mlflow.register_model(info.model_uri, name)
    # The reference's SQL store forgets which logged model a version was made from.
    true(stage.client.get_model_version(name, "1").model_id in (None, info.model_id), "another model's version")
    true(
        name in mlflow.get_logged_model(info.model_id).tags.get("mlflow.modelVersions", ""),
        "the model does not name its version",
    )


@case(generations=(3,))
def search_logged_models(stage):
    experiment = stage.experiment("logged")
    run = stage.run(experiment)
    ids = {}
    for i, name in enumerate(("alpha", "beta", "gamma", "Delta")):
        made = stage.client.create_logged_model(
            experiment,
            name=name,
            source_run_id=run,
            tags={"team": "red" if i % 2 else "blue"},
            params={"depth": str(i)},
            model_type="tree" if i < 2 else "net",
        )
        ids[name] = made.model_id
        stage.client.log_metric(run, "acc", i / 10, model_id=made.model_id, dataset_name="test", dataset_digest="d1")
        if name != "gamma":
            stage.client.finalize_logged_model(made.model_id, "READY")

    def find(text=None, **more):
        return [m.name for m in stage.client.search_logged_models([experiment], filter_string=text, **more)]

    by_name = [{"field_name": "name", "ascending": True}]
    equal(find(), ["Delta", "gamma", "beta", "alpha"], "newest first")
    equal(find(order_by=by_name), ["Delta", "alpha", "beta", "gamma"])
    equal(find("name = 'beta'"), ["beta"])
    equal(find("name LIKE '%a'", order_by=by_name), ["Delta", "alpha", "beta", "gamma"])
    equal(find("tags.team = 'red'", order_by=by_name), ["Delta", "beta"])
    equal(find("params.depth = '2'"), ["gamma"])
    equal(find("model_type = 'tree'", order_by=by_name), ["alpha", "beta"])
    equal(find(f"model_id = '{ids['alpha']}'"), ["alpha"])
    equal(find(f"source_run_id = '{run}' AND name != 'beta'", order_by=by_name), ["Delta", "alpha", "gamma"])
    equal(find("metrics.acc > 0.15", order_by=by_name), ["Delta", "gamma"])
    equal(
        find("metrics.acc >= 0.1", datasets=[{"dataset_name": "test", "dataset_digest": "d1"}], order_by=by_name),
        ["Delta", "beta", "gamma"],
    )
    equal(find("metrics.acc >= 0.1", datasets=[{"dataset_name": "other"}]), [])
    equal(find(order_by=[{"field_name": "metrics.acc", "ascending": False}]), ["Delta", "gamma", "beta", "alpha"])
    equal(
        find(
            order_by=[{"field_name": "metrics.acc", "ascending": True, "dataset_name": "test", "dataset_digest": "d1"}]
        ),
        ["alpha", "beta", "gamma", "Delta"],
    )
    page = stage.client.search_logged_models([experiment], max_results=3)
    rest = stage.client.search_logged_models([experiment], max_results=3, page_token=page.token)
    equal((len(page), len(rest), rest.token or None), (3, 1, None))
    refused("INVALID_PARAMETER_VALUE", find, "nothing.x = '1'")
    mlflow.set_experiment(experiment_id=experiment)
    equal(
        sorted(m.name for m in mlflow.search_logged_models(output_format="list")), ["Delta", "alpha", "beta", "gamma"]
    )


@case
def autolog_of_scikit_learn(stage):
    mlflow.set_experiment(stage.name("autolog"))
    mlflow.sklearn.autolog(silent=True, log_input_examples=False, log_model_signatures=True, max_tuning_runs=2)
    try:
        with mlflow.start_run() as run:
            model = trained()
            model.score(X, Y)
    finally:
        mlflow.sklearn.autolog(disable=True, silent=True)
    found = mlflow.get_run(run.info.run_id)
    equal(
        (found.data.params["max_iter"], found.data.params["random_state"], found.data.tags["estimator_name"]),
        ("500", "3", "LogisticRegression"),
    )
    for key in ("training_accuracy_score", "training_f1_score", "training_log_loss"):
        true(key in found.data.metrics, f"no {key} in {sorted(found.data.metrics)}")
    equal(len(found.inputs.dataset_inputs), 1)
    files = [f.path for f in stage.client.list_artifacts(run.info.run_id)]
    true("training_confusion_matrix.png" in files and "estimator.html" in files, files)
    same_answers(model, f"runs:/{run.info.run_id}/model")
