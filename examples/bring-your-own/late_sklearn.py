# SPDX-License-Identifier: Apache-2.0
"""Learns a table's yes or no with scikit-learn, as anybody's own script does. What makes it a good job:

- its rows come from $FALAJ_INPUTS, and what it leaves in $FALAJ_OUTPUTS/model becomes a version of the model;
- MLflow's client needs no settings: the job has its address, a token and the run it belongs to;
- on SIGTERM it saves what it has learned and ends with 75: the next attempt goes on from there.

It runs anywhere else, too: rows in ./inputs/rows, everything it leaves in ./outputs.
"""

import os
import pathlib
import pickle
import signal
import sys

import mlflow
import pandas
from sklearn.linear_model import SGDClassifier
from sklearn.metrics import roc_auc_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

LABEL = os.environ.get("LABEL", "late")
EPOCHS = int(os.environ.get("EPOCHS", "20"))
inputs = pathlib.Path(os.environ.get("FALAJ_INPUTS", "inputs"))
outputs = pathlib.Path(os.environ.get("FALAJ_OUTPUTS", "outputs"))
saved = pathlib.Path(os.environ.get("FALAJ_CHECKPOINT_DIR", "checkpoints")) / "state.pickle"

stopping = False


def stop(*_):
    global stopping
    stopping = True


def save(state):
    """Wholly or not at all: a kill in the middle leaves the one before."""
    saved.parent.mkdir(parents=True, exist_ok=True)
    fresh = saved.with_suffix(".new")
    with open(fresh, "wb") as file:
        pickle.dump(state, file)
        file.flush()
        os.fsync(file.fileno())
    fresh.replace(saved)


def main():
    signal.signal(signal.SIGTERM, stop)
    rows = pandas.concat(pandas.read_parquet(file) for file in sorted((inputs / "rows").glob("*.parquet")))
    numbers = rows.drop(columns=[LABEL]).select_dtypes("number").fillna(0)
    label = rows[LABEL].astype(int)
    held_out = rows.index % 5 == 0
    train, test = numbers[~held_out], numbers[held_out]

    if saved.exists():
        state = pickle.loads(saved.read_bytes())
        print(f"going on after epoch {state['epoch']}", flush=True)
    else:
        state = {"epoch": 0, "scaler": StandardScaler().fit(train), "model": SGDClassifier(loss="log_loss", random_state=7)}

    with mlflow.start_run():  # the job's own run
        mlflow.log_params({"library": "scikit-learn", "epochs": EPOCHS, "columns": ",".join(numbers.columns)})
        while state["epoch"] < EPOCHS and not stopping:
            state["model"].partial_fit(state["scaler"].transform(train), label[~held_out], classes=[0, 1])
            state["epoch"] += 1
            auc = roc_auc_score(label[held_out], state["model"].decision_function(state["scaler"].transform(test)))
            mlflow.log_metric("test_auc", auc, step=state["epoch"])
            save(state)
        if state["epoch"] == EPOCHS:
            whole = make_pipeline(state["scaler"], state["model"])
            mlflow.sklearn.save_model(
                whole, str(outputs / "model"), input_example=test.head(3), pip_requirements=["scikit-learn"]
            )
    if state["epoch"] < EPOCHS:
        print(f"stopped after epoch {state['epoch']}; what was learned is saved", flush=True)
        sys.exit(75)
    print("done", flush=True)


if __name__ == "__main__":
    main()
