# SPDX-License-Identifier: Apache-2.0
"""The model registry: models, versions, aliases, stages, tags, searches. The versions here point at plain files."""

import mlflow

from checks import answered, case, equal, refused, true


def version_of(stage, name, run=None, **kwargs):
    run = run or stage.run()
    source = stage.client.get_run(run).info.artifact_uri + "/model"
    return stage.client.create_model_version(name, source, run, **kwargs)


@case
def model_life(stage):
    name = stage.name("model with space")
    made = stage.client.create_registered_model(name, tags={"a": "1"}, description="first")
    equal((made.name, made.tags, made.description), (name, {"a": "1"}, "first"))
    true(made.creation_timestamp > 0 and made.last_updated_timestamp >= made.creation_timestamp, "times")
    stage.client.set_registered_model_tag(name, "b", "2")
    stage.client.set_registered_model_tag(name, "a", "3")
    stage.client.update_registered_model(name, "second")
    found = stage.client.get_registered_model(name)
    equal((found.tags, found.description), ({"a": "3", "b": "2"}, "second"))
    stage.client.delete_registered_model_tag(name, "a")
    equal(stage.client.get_registered_model(name).tags, {"b": "2"})
    version_of(stage, name)
    stage.client.set_registered_model_alias(name, "best", "1")
    stage.client.rename_registered_model(name, name + "+new")
    refused("RESOURCE_DOES_NOT_EXIST", stage.client.get_registered_model, name)
    equal(str(stage.client.get_model_version_by_alias(name + "+new", "best").version), "1")
    stage.client.delete_registered_model(name + "+new")
    refused("RESOURCE_DOES_NOT_EXIST", stage.client.get_registered_model, name + "+new")


@case
def model_refusals(stage):
    name = stage.name("model")
    stage.client.create_registered_model(name)
    refused("RESOURCE_ALREADY_EXISTS", stage.client.create_registered_model, name)
    for bad in ("", "a/b", "a:b"):
        refused("INVALID_PARAMETER_VALUE", stage.client.create_registered_model, bad)
    other = stage.name("other")
    stage.client.create_registered_model(other)
    refused("RESOURCE_ALREADY_EXISTS", stage.client.rename_registered_model, other, name)
    refused("RESOURCE_DOES_NOT_EXIST", stage.client.delete_registered_model, "none of that name")
    refused("RESOURCE_DOES_NOT_EXIST", version_of, stage, "none of that name")


@case
def version_life(stage):
    name, run = stage.name("model"), stage.run()
    stage.client.log_text(run, "1 2 3", "model/weights.txt")
    stage.client.create_registered_model(name)
    first = version_of(stage, name, run, tags={"t": "1"}, description="one")
    equal(
        (str(first.version), first.status, first.run_id, first.current_stage, first.description, first.tags),
        ("1", "READY", run, "None", "one", {"t": "1"}),
    )
    equal(first.source, stage.client.get_run(run).info.artifact_uri + "/model")
    equal(str(version_of(stage, name).version), "2")
    stage.client.update_model_version(name, "1", "changed")
    stage.client.set_model_version_tag(name, "1", "u", "2")
    stage.client.delete_model_version_tag(name, "1", "t")
    found = stage.client.get_model_version(name, "1")
    equal((found.description, found.tags), ("changed", {"u": "2"}))
    # Where a version's files are read is the server's affair: the source itself, or a copy that cannot change.
    got = mlflow.artifacts.load_text(stage.client.get_model_version_download_uri(name, "1") + "/weights.txt")
    equal(got, "1 2 3")
    stage.client.delete_model_version(name, "2")
    refused("RESOURCE_DOES_NOT_EXIST", stage.client.get_model_version, name, "2")
    refused(("RESOURCE_DOES_NOT_EXIST", "INVALID_PARAMETER_VALUE"), stage.client.get_model_version, name, "77")


@case
def version_number_follows_the_highest(stage):
    name = stage.name("model")
    stage.client.create_registered_model(name)
    for _ in range(3):
        version_of(stage, name)
    stage.client.delete_model_version(name, "2")
    equal(str(version_of(stage, name).version), "4")
    stage.client.delete_model_version(name, "4")
    equal(str(version_of(stage, name).version), "5", "a version's number is never given again")


@case
def aliases(stage):
    name = stage.name("model")
    stage.client.create_registered_model(name)
    for _ in range(3):
        version_of(stage, name)
    stage.client.set_registered_model_alias(name, "champion", "1")
    stage.client.set_registered_model_alias(name, "challenger", "2")
    stage.client.set_registered_model_alias(name, "champion", "3")
    equal(str(stage.client.get_model_version_by_alias(name, "champion").version), "3")
    equal(
        {a: str(v) for a, v in stage.client.get_registered_model(name).aliases.items()},
        {"champion": "3", "challenger": "2"},
    )
    equal(list(stage.client.get_model_version(name, "3").aliases), ["champion"])
    equal(list(stage.client.get_model_version(name, "1").aliases), [])
    stage.client.delete_registered_model_alias(name, "challenger")
    refused("INVALID_PARAMETER_VALUE", stage.client.get_model_version_by_alias, name, "challenger")
    stage.client.delete_model_version(name, "3")
    equal(stage.client.get_registered_model(name).aliases, {}, "the aliases of a deleted version")
    for bad in ("latest", "v1", "a b", "a/b", ""):
        refused("INVALID_PARAMETER_VALUE", stage.client.set_registered_model_alias, name, bad, "1")
    refused("RESOURCE_DOES_NOT_EXIST", stage.client.set_registered_model_alias, name, "x", "99")


@case
def stages(stage):
    name = stage.name("model")
    stage.client.create_registered_model(name)
    for _ in range(3):
        version_of(stage, name)
    equal(stage.client.transition_model_version_stage(name, "1", "production").current_stage, "Production")
    stage.client.transition_model_version_stage(name, "2", "Staging")
    stage.client.transition_model_version_stage(name, "3", "Production", archive_existing_versions=True)
    equal(
        [stage.client.get_model_version(name, str(v)).current_stage for v in (1, 2, 3)],
        ["Archived", "Staging", "Production"],
    )
    latest = {v.current_stage: str(v.version) for v in stage.client.get_latest_versions(name)}
    equal(latest, {"Archived": "1", "Staging": "2", "Production": "3"})
    equal([str(v.version) for v in stage.client.get_latest_versions(name, ["Staging"])], ["2"])
    for bad in ({"stage": "Somewhere"}, {"stage": "Archived", "archive_existing_versions": True}):
        status, answer = stage.post("model-versions/transition-stage", {"name": name, "version": "1", **bad})
        answered(stage, status, answer, (400, "INVALID_PARAMETER_VALUE"), str(bad))


@case
def search_models(stage):
    mark = stage.name("s")
    for name, tags in (
        ("alpha", {"team": "red"}),
        ("Beta", {"team": "blue"}),
        ("gamma", {}),
        ("delta", {"team": "Red x"}),
    ):
        stage.client.create_registered_model(f"{mark}-{name}", tags=tags)
    version_of(stage, f"{mark}-gamma")

    def find(text="", **more):
        full = f"name LIKE '{mark}-%'" + (f" AND {text}" if text else "")
        return [m.name.removeprefix(mark + "-") for m in stage.client.search_registered_models(full, **more)]

    equal(find(), ["Beta", "alpha", "delta", "gamma"])
    equal(find(order_by=["name DESC"]), ["gamma", "delta", "alpha", "Beta"])
    equal(find(order_by=["last_updated_timestamp DESC"])[0], "gamma")
    equal(find("tags.team = 'red'"), ["alpha"])
    equal(find("tags.team ILIKE 'red%'"), ["alpha", "delta"])
    equal(find("tags.team != 'red'"), ["Beta", "delta"])
    equal(find("name ILIKE '%BETA'"), ["Beta"])
    equal(find(f"name = '{mark}-gamma'"), ["gamma"])
    found = stage.client.search_registered_models(f"name = '{mark}-gamma'")[0]
    equal([str(v.version) for v in found.latest_versions], ["1"])
    pages, token = [], None
    while True:
        page = stage.client.search_registered_models(f"name LIKE '{mark}-%'", max_results=3, page_token=token)
        pages, token = pages + [len(page)], page.token
        if not token:
            break
    equal(pages, [3, 1])
    for bad in ("name > 'x'", "nothing = 'x'", "name = 'a' OR name = 'b'"):
        refused("INVALID_PARAMETER_VALUE", find, bad)
    refused("INVALID_PARAMETER_VALUE", find, order_by=["nothing"])


@case
def search_versions(stage):
    mark = stage.name("v")
    one, two = f"{mark}-one", f"{mark}-two"
    runs = [stage.run() for _ in range(3)]
    for name in (one, two):
        stage.client.create_registered_model(name)
    version_of(stage, one, runs[0], tags={"k": "a"})
    version_of(stage, one, runs[1], tags={"k": "b"})
    version_of(stage, two, runs[2], tags={"k": "a"})

    def find(text, **more):
        return [f"{v.name[len(mark) + 1:]}{v.version}" for v in stage.client.search_model_versions(text, **more)]

    equal(sorted(find(f"name = '{one}'")), ["one1", "one2"])
    equal(find(f"name = '{one}'", order_by=["version_number ASC"]), ["one1", "one2"])
    equal(find(f"name LIKE '{mark}%'", order_by=["name DESC", "version_number ASC"]), ["two1", "one1", "one2"])
    equal(find(f"run_id = '{runs[1]}'"), ["one2"])
    equal(sorted(find(f"run_id IN ('{runs[0]}', '{runs[2]}')")), ["one1", "two1"])
    equal(sorted(find(f"name LIKE '{mark}%' AND tags.k = 'a'")), ["one1", "two1"])
    equal(find(f"name = '{one}' AND version_number > 1"), ["one2"])
    equal(find(f"source_path = '{stage.client.get_run(runs[2]).info.artifact_uri}/model'"), ["two1"])
    equal(find("name = 'none of that name'"), [])
    page = stage.client.search_model_versions(f"name LIKE '{mark}%'", max_results=2)
    rest = stage.client.search_model_versions(f"name LIKE '{mark}%'", max_results=2, page_token=page.token)
    equal((len(page), len(rest), rest.token or None), (2, 1, None))
    refused("INVALID_PARAMETER_VALUE", find, "nothing = 'x'")
    refused("INVALID_PARAMETER_VALUE", find, f"name = '{one}'", order_by=["nothing"])
    stage.client.delete_model_version(one, "1")
    equal(find(f"name = '{one}'"), ["one2"])


@case
def fluent_searches(stage):
    name = stage.name("fluent")
    stage.client.create_registered_model(name)
    version_of(stage, name)
    equal([m.name for m in mlflow.search_registered_models(filter_string=f"name = '{name}'")], [name])
    equal([str(v.version) for v in mlflow.search_model_versions(filter_string=f"name = '{name}'")], ["1"])
