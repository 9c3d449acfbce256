# SPDX-License-Identifier: Apache-2.0
"""Searching: tables of filters and orders with what they must find, by the digits of the runs' names."""

import math

from mlflow.entities import Dataset, DatasetInput, InputTag, Metric, Param, ViewType

from checks import answered, case, equal, refused, true

START = 1_700_000_000_000

# Of run 0, 1, ... 9:
MODELS = "linear forest Forest svm linear linear forest Forest svm linear".split()
TEAMS = ["red", "Red Team", None, "red", "Red Team", None, "red", "Red Team", None, "red"]
STATUSES = "FINISHED FAILED KILLED RUNNING FINISHED FAILED KILLED RUNNING FINISHED FAILED".split()
ACCURACY = [0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, None, None, 0.9]
SCORE = [3.0, math.nan, None, 1.0, 2.0, None, None, None, None, None]
DATASETS = [
    ("sales", "d0", "train"),
    ("sales", "d1", "train"),
    ("sales", "d2", "eval"),
    ("Sales", "d3", "train"),
    ("weather", "d4", "eval"),
]

FILTERS = [
    ("", "9876543210"),
    ("metrics.acc > 0.4", "965"),
    ("metrics.acc >= 0.4", "9654"),
    ("metrics.acc < 0.2", "10"),
    ("metrics.acc <= 0.2", "210"),
    ("metrics.acc = 0.3", "3"),
    ("metrics.acc != 0.3", "9654210"),
    ("metric.acc > 0.55", "96"),
    ("metrics.`acc` > .55", "96"),
    ('metrics."acc" > 5e-1', "96"),
    ("metrics.acc > -1", "96543210"),
    ("metrics.acc>0.1 and metrics.acc<0.4", "32"),
    ("metrics.`val loss/a` = 4", "4"),
    ("metrics.nothing > 0", ""),
    ("params.model = 'linear'", "9540"),
    ('params.model = "linear"', "9540"),
    ("params.model != 'linear'", "876321"),
    ("params.model = 'forest'", "61"),
    ("params.model LIKE 'forest'", "61"),
    ("params.model ILIKE 'forest'", "7621"),
    ("params.model LIKE '%or%'", "7621"),
    ("params.model LIKE 'F%'", "72"),
    ("params.model ILIKE 'f%'", "7621"),
    ("params.model LIKE 's_m'", "83"),
    ("param.model = 'svm'", "83"),
    ("parameters.model = 'svm'", "83"),
    ("params.`learning rate` = '0.3'", "3"),
    ("params.\"learning rate\" = '0.3'", "3"),
    ("params.deep.er.key = 'x'", "2"),
    ("params.even = 'yes'", "86420"),
    ("params.even != 'yes'", ""),
    ("params.odd = '50%'", "97531"),
    ("params.odd LIKE '50%'", "97531"),
    ('params.quoted = "it\'s"', "1"),
    ("tags.stage = 'dev'", "43210"),
    ("tags.stage != 'dev'", "98765"),
    ("tag.stage = 'prod'", "98765"),
    ("tags.team = 'red'", "9630"),
    ("tags.team != 'red'", "741"),
    ("tags.team LIKE 'Red%'", "741"),
    ("tags.team ILIKE 'red%'", "9764310"),
    ("tags.`mlflow.runName` = 'r3'", "3"),
    ("tags.mlflow.runName = 'r3'", "3"),
    ("tags.team = 'red' AND tags.stage = 'dev'", "30"),
    ("params.model = 'linear' and metrics.acc >= 0.4 and tags.stage = 'prod'", "95"),
    ("params.model = 'linear' AND params.even = 'yes'", "40"),
    ("status = 'RUNNING'", "73"),
    ("attributes.status = 'FINISHED'", "840"),
    ("attribute.status != 'RUNNING'", "98654210"),
    ("attr.status = 'FAILED'", "951"),
    ("run.status = 'KILLED'", "62"),
    ("status ILIKE 'f%'", "985410"),
    ("run_name = 'r5'", "5"),
    ("attributes.run_name LIKE 'r%'", "9876543210"),
    ("`run name` = 'r5'", "5"),
    ("run_name ILIKE 'R5'", "5"),
    ("run_name != 'r5'", "987643210"),
    ("start_time > %d" % (START + 7000), "98"),
    ("start_time >= %d" % (START + 7000), "987"),
    ("attributes.start_time <= %d" % START, "0"),
    ("end_time < %d" % (START + 3000), "210"),
    ("end_time = %d" % (START + 4500), "4"),
    ("run_id = '{0}'", "0"),
    ("run_id != '{0}'", "987654321"),
    ("run_id IN ('{0}', '{3}')", "30"),
    ("attributes.run_id NOT IN ('{0}','{3}')", "98765421"),
    ("user_id = 'nobody-of-that-name'", ""),
    ("artifact_uri LIKE '%{4}%'", "4"),
    ("dataset.name = 'sales'", "210"),
    ("datasets.name != 'sales'", "43"),
    ("dataset.name LIKE 's%'", "210"),
    ("dataset.name ILIKE 's%'", "3210"),
    ("dataset.digest = 'd3'", "3"),
    ("dataset.digest IN ('d1', 'd4')", "41"),
    ("dataset.context = 'train'", "310"),
    ("dataset.name = 'sales' AND dataset.context = 'eval'", "2"),
    ("dataset.name = 'sales' and metrics.acc > 0.05", "21"),
]
ORDERS = [
    ("", ["start_time"], "0123456789"),
    ("", ["start_time ASC"], "0123456789"),
    ("", ["attributes.start_time DESC"], "9876543210"),
    ("", ["metrics.acc DESC"], "9654321087"),
    ("", ["metrics.acc"], "0123456987"),
    ("", ["metrics.acc asc"], "0123456987"),
    ("", ["metrics.score ASC"], "3401987652"),
    ("", ["metrics.score DESC"], "0431987652"),
    ("", ["params.model ASC", "start_time ASC"], "2716045938"),
    ("", ["params.model DESC", "start_time DESC"], "8395406172"),
    ("", ["params.`learning rate` DESC"], "9876543210"),
    ("", ["tags.team", "start_time"], "1470369258"),
    ("", ["run_name DESC"], "9876543210"),
    ("", ["attributes.run_name ASC"], "0123456789"),
    ("", ["status", "start_time"], "1590482637"),
    ("", ["end_time DESC"], "9865421073"),
    ("", ["metrics.nothing"], "9876543210"),
    ("tags.stage = 'dev'", ["metrics.acc DESC"], "43210"),
    ("params.model = 'linear'", ["tags.stage", "metrics.acc"], "0459"),
    ("", ["metrics.`val loss/a` DESC"], "4987653210"),
    ("", ["tags.stage ASC", "params.model ASC", "metrics.acc DESC"], "2140376958"),
]
NULL_FILTERS = [
    ("tags.team IS NULL", "852"),
    ("tags.team IS NOT NULL", "9764310"),
    ("params.even IS NULL", "97531"),
    ("params.even is not null AND tags.team is null", "82"),
]
BAD_FILTERS = [
    "metrics.acc >",
    "metrics.acc LIKE 'x'",
    "acc > 0.1",
    "metrics.acc > 'x'",
    "params.model > 'x'",
    "params.model = linear",
    "nothing.x = '1'",
    "metrics.acc > 0.1 OR metrics.acc < 0",
    "status > 'RUNNING'",
    "start_time = 'yesterday'",
    "params.model = 'unended",
    "run_id LIKE",
    "tags.stage = 5",
    "params.model IN ('a')",
    "dataset.nothing = 'x'",
    "metrics.acc == == 1",
]
BAD_ORDERS = ["metrics.acc SIDEWAYS", "nothing", "metrics.acc DESC DESC", "nothing.x ASC", ""]


def ten_runs(stage):
    """The runs of the table above; made once, for no case changes them. Returns (experiment, ids)."""
    if hasattr(stage, "searched"):
        return stage.searched
    experiment, ids = stage.experiment("search"), []
    for i in range(10):
        run = stage.client.create_run(experiment, start_time=START + 1000 * i, run_name=f"r{i}").info.run_id
        ids.append(run)
        params = {
            "model": MODELS[i],
            "learning rate": str(i / 10),
            ("odd" if i % 2 else "even"): "50%" if i % 2 else "yes",
        }
        params |= {"deep.er.key": "x"} if i == 2 else {"quoted": "it's"} if i == 1 else {}
        metrics = {"acc": ACCURACY[i], "score": SCORE[i], "val loss/a": 4.0 if i == 4 else None}
        # An older, higher value: only the latest counts.
        points = [Metric(k, 99.0, 1, 0) for k in metrics if metrics[k] is not None] + [
            Metric(k, v, 2, 1) for k, v in metrics.items() if v is not None
        ]
        stage.client.log_batch(run, metrics=points, params=[Param(k, v) for k, v in params.items()])
        stage.client.set_tag(run, "stage", "dev" if i < 5 else "prod")
        if TEAMS[i]:
            stage.client.set_tag(run, "team", TEAMS[i])
        if i < len(DATASETS):
            name, digest, context = DATASETS[i]
            stage.client.log_inputs(
                run, [DatasetInput(Dataset(name, digest, "local", "{}"), [InputTag("mlflow.data.context", context)])]
            )
        if STATUSES[i] != "RUNNING":
            stage.client.set_terminated(run, STATUSES[i], end_time=START + 1000 * i + 500)
    stage.searched = experiment, ids
    return stage.searched


def digits(runs):
    return "".join(r.info.run_name[1:] for r in runs)


def check_table(stage, rows):
    experiment, ids = ten_runs(stage)
    wrong = []
    for text, order, expected in rows:
        try:
            found = digits(stage.client.search_runs([experiment], text.format(*ids), order_by=order))
        except Exception as e:
            found = f"{type(e).__name__}: {str(e)[:120]}"
        if found != expected:
            wrong.append(f"{text!r} order {order}: expected {expected!r}, found {found!r}")
    true(not wrong, f"{len(wrong)} of {len(rows)} rows: " + "; ".join(wrong))


@case
def runs_by_filter(stage):
    check_table(stage, [(text, [], expected) for text, expected in FILTERS])


@case
def runs_in_order(stage):
    check_table(stage, ORDERS)


@case(generations=(3,))
def runs_by_absence(stage):
    check_table(stage, [(text, [], expected) for text, expected in NULL_FILTERS])


@case
def runs_bad_filters(stage):
    experiment, _ = ten_runs(stage)
    for body in (
        [{"filter": f} for f in BAD_FILTERS]
        + [{"order_by": [o]} for o in BAD_ORDERS]
        + [{"order_by": ["metrics.acc", "metrics.acc DESC"]}, {"max_results": 50_001}, {"max_results": -1}]
    ):
        status, answer = stage.post("runs/search", {"experiment_ids": [experiment], **body})
        answered(stage, status, answer, (400, "INVALID_PARAMETER_VALUE"), str(body))


@case
def runs_in_pages(stage):
    experiment, _ = ten_runs(stage)
    found, sizes, token = "", [], None
    while True:
        page = stage.client.search_runs(
            [experiment], "metrics.acc >= 0", order_by=["metrics.acc DESC"], max_results=3, page_token=token
        )
        found, sizes, token = found + digits(page), sizes + [len(page)], page.token
        if not token:
            break
    equal((found, sizes), ("96543210", [3, 3, 2]))
    exact = stage.client.search_runs([experiment], max_results=10)
    equal((len(exact), exact.token), (10, None), "a last page that is full has no next")
    equal(stage.post("runs/search", {"experiment_ids": [experiment], "page_token": "no token"})[0], 400)


@case
def runs_of_several_experiments(stage):
    one, two = stage.experiment(), stage.experiment()
    for experiment, name in ((one, "r1"), (two, "r2"), (one, "r3")):
        stage.run(experiment, run_name=name, start_time=START + int(name[1:]))
    equal(digits(stage.client.search_runs([one, two])), "321")
    equal(digits(stage.client.search_runs([two])), "2")
    equal(len(stage.client.search_runs(["987654321"])), 0)


@case
def experiments(stage):
    mark = stage.name("exp")
    ids = {}
    for name, tags in (
        ("alpha", {"team": "red"}),
        ("Beta", {"team": "blue", "x y": "1"}),
        ("gamma", {}),
        ("delta", {"team": "Red"}),
    ):
        ids[name] = stage.client.create_experiment(f"{mark}-{name}", tags=tags)
    stage.client.delete_experiment(ids["delta"])
    stage.client.rename_experiment(ids["alpha"], f"{mark}-other")
    stage.client.rename_experiment(ids["alpha"], f"{mark}-alpha")

    def find(text, **more):
        full = f"name LIKE '{mark}-%'" + (f" AND {text}" if text else "")
        return [e.name.removeprefix(mark + "-") for e in stage.client.search_experiments(filter_string=full, **more)]

    equal(find("", order_by=["experiment_id ASC"]), ["alpha", "Beta", "gamma"])
    equal(find(""), ["gamma", "Beta", "alpha"], "newest first")
    equal(find("", order_by=["name ASC"]), ["Beta", "alpha", "gamma"])
    equal(find("", order_by=["name DESC"]), ["gamma", "alpha", "Beta"])
    equal(find("", order_by=["last_update_time DESC"])[0], "alpha")
    equal(find("tags.team = 'red'"), ["alpha"])
    equal(find("tags.team != 'red'"), ["Beta"])
    equal(find("tags.team ILIKE 'r%'", view_type=ViewType.ALL, order_by=["experiment_id"]), ["alpha", "delta"])
    equal(find("tags.`x y` = '1'"), ["Beta"])
    equal(find("name ILIKE '%BETA'"), ["Beta"])
    equal(find("name LIKE '%BETA'"), [])
    equal(find(f"name = '{mark}-gamma'"), ["gamma"])
    equal(find(f"name != '{mark}-gamma'"), ["Beta", "alpha"])
    equal(find("", view_type=ViewType.DELETED_ONLY), ["delta"])
    equal(sorted(find("", view_type=ViewType.ALL)), ["Beta", "alpha", "delta", "gamma"])
    equal(sorted(find("creation_time > 0 and last_update_time > 0")), ["Beta", "alpha", "gamma"])
    for bad in ("name = gamma", "nothing = 'x'", "name > 'x'", "creation_time LIKE 'x'", "name = 'a' OR name = 'b'"):
        refused("INVALID_PARAMETER_VALUE", find, bad)
    refused("INVALID_PARAMETER_VALUE", find, "", order_by=["nothing"])


@case
def experiments_in_pages(stage):
    mark = stage.name("page")
    for i in range(7):
        stage.client.create_experiment(f"{mark}-{i}")
    found, sizes, token = [], [], None
    while True:
        page = stage.client.search_experiments(
            filter_string=f"name LIKE '{mark}-%'", order_by=["name ASC"], max_results=3, page_token=token
        )
        found, sizes, token = found + [e.name[-1] for e in page], sizes + [len(page)], page.token
        if not token:
            break
    equal((found, sizes), (list("0123456"), [3, 3, 1]))
