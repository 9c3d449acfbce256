# SPDX-License-Identifier: Apache-2.0
"""What is done with Feast itself, in its own environment (third_party/clients/feast):

    feast_side.py prepare DIR ENTITIES EVENTS SPINE    a repository with 50 features, applied; the rows as Parquet
    feast_side.py materialize DIR                      into its online store
    feast_side.py historical DIR                       its training set; says how long it took
    feast_side.py remote DIR URL TOKEN                 its client of a remote online store, reading from and writing to URL

Prints one JSON object. Rows: of entity e the event number i has n = e * EVENTS + i, and feature fj is n + j / 64, so that
whoever reads can tell what was read."""

import datetime
import json
import pathlib
import resource
import sys
import time

import pandas
from feast import Entity, FeatureService, FeatureStore, FeatureView, Field, FileSource
from feast.types import Float64
from feast.value_type import ValueType

FEATURES = [f"f{j}" for j in range(50)]
BEGIN = datetime.datetime(2024, 1, 1)

CONFIG = """\
project: compare
provider: local
registry: {directory}/registry.db
offline_store: {{type: file}}
online_store: {online}
entity_key_serialization_version: 3
{more}"""


def configure(directory, online, more=""):
    (directory / "feature_store.yaml").write_text(CONFIG.format(directory=directory, online=online, more=more))
    return FeatureStore(repo_path=str(directory))


def name_of(entity):
    return f"customer-{10_000_000 + entity}"


def rows(entities, events):
    count = entities * events
    frame = {"customer": [name_of(n // events) for n in range(count)]}
    frame["event_timestamp"] = [BEGIN + datetime.timedelta(minutes=10 * (n % events)) for n in range(count)]
    for j, feature in enumerate(FEATURES):
        frame[feature] = [n + j / 64 for n in range(count)]
    return pandas.DataFrame(frame)


def prepare(directory, entities, events, spine):
    directory.mkdir(parents=True, exist_ok=True)
    made = rows(entities, events)
    made["event_timestamp"] = made["event_timestamp"].astype("datetime64[us]")
    made.to_parquet(directory / "plain.parquet", index=False)
    made["event_timestamp"] = made["event_timestamp"].dt.tz_localize("UTC")
    made.to_parquet(directory / "rows.parquet", index=False)
    minutes = 10 * events
    asked = pandas.DataFrame(
        {
            "customer": [name_of(i * 7919 % entities) for i in range(spine)],
            "event_timestamp": [
                # No entity twice at one time: Feast would leave one out.
                BEGIN + datetime.timedelta(minutes=(i * 104_729 + i // entities * 13) % minutes)
                for i in range(spine)
            ],
        }
    )
    asked["event_timestamp"] = asked["event_timestamp"].astype("datetime64[us]")
    asked.to_parquet(directory / "spine.parquet", index=False)
    store = configure(directory, f"{{type: sqlite, path: {directory}/online.db}}")
    customer = Entity(name="customer", join_keys=["customer"], value_type=ValueType.STRING)
    view = FeatureView(
        name="row",
        entities=[customer],
        ttl=datetime.timedelta(0),
        schema=[Field(name=f, dtype=Float64) for f in FEATURES],
        source=FileSource(path=str(directory / "rows.parquet"), timestamp_field="event_timestamp"),
        online=True,
    )
    store.apply([customer, view, FeatureService(name="fifty", features=[view])])
    return {"rows": len(made), "spine": len(asked)}


def materialize(directory):
    store = FeatureStore(repo_path=str(directory))
    before = time.perf_counter()
    store.materialize(BEGIN - datetime.timedelta(days=1), BEGIN + datetime.timedelta(days=400))
    return {"seconds": time.perf_counter() - before}


def historical(directory):
    store = FeatureStore(repo_path=str(directory))
    spine = pandas.read_parquet(directory / "spine.parquet")
    spine["event_timestamp"] = spine["event_timestamp"].dt.tz_localize("UTC")
    before = time.perf_counter()
    job = store.get_historical_features(entity_df=spine, features=[f"row:{f}" for f in FEATURES])
    made = job.to_df()
    made.to_parquet(directory / "trained.parquet", index=False)
    seconds = time.perf_counter() - before
    return {
        "seconds": seconds,
        "rows": len(made),
        "sum": float(made["f0"].sum() + made["f49"].sum()),
        "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }


def remote(directory, url, token):
    """The genuine client of a remote online store, against another server than Feast's."""
    store = configure(
        directory, f'{{type: remote, path: "{url}"}}', f"auth: {{type: oidc, token: {token}}}\n"
    )
    asked = [{"customer": name_of(0)}, {"customer": name_of(3)}, {"customer": "nobody"}]
    out = {}
    names = ["row:f0", "row:f49"]
    out["read"] = store.get_online_features(features=names, entity_rows=asked).to_dict()
    out["full_names"] = sorted(
        store.get_online_features(features=names, entity_rows=asked[:1], full_feature_names=True).to_dict()
    )
    service = store.get_feature_service("fifty")
    out["service"] = len(store.get_online_features(features=service, entity_rows=asked[:1]).to_dict())
    row = {"customer": [name_of(3)], "event_timestamp": [pandas.Timestamp("2025-06-01", tz="UTC")]}
    row.update({f: [1000.0 + j] for j, f in enumerate(FEATURES)})
    store.write_to_online_store("row", df=pandas.DataFrame(row))
    out["written"] = store.get_online_features(features=names, entity_rows=[asked[1]]).to_dict()
    return out


def main():
    command, directory, *more = sys.argv[1:]
    directory = pathlib.Path(directory)
    commands = {
        "prepare": lambda: prepare(directory, *map(int, more)),
        "materialize": lambda: materialize(directory),
        "historical": lambda: historical(directory),
        "remote": lambda: remote(directory, *more),
    }
    print(json.dumps(commands[command]()))


if __name__ == "__main__":
    main()
