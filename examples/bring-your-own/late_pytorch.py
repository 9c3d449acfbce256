# SPDX-License-Identifier: Apache-2.0
"""The same with PyTorch: see late_sklearn.py for what makes it a good job.

Chance depends on the seed and the epoch alone, so a run that was stopped and went on learns what one that was not does.
"""

import os
import pathlib
import signal
import sys

import mlflow
import pandas
import torch

LABEL = os.environ.get("LABEL", "late")
EPOCHS = int(os.environ.get("EPOCHS", "20"))
BATCH = 256
inputs = pathlib.Path(os.environ.get("FALAJ_INPUTS", "inputs"))
outputs = pathlib.Path(os.environ.get("FALAJ_OUTPUTS", "outputs"))
saved = pathlib.Path(os.environ.get("FALAJ_CHECKPOINT_DIR", "checkpoints")) / "state.pt"

stopping = False


def stop(*_):
    global stopping
    stopping = True


def save(state):
    """Wholly or not at all: a kill in the middle leaves the one before."""
    saved.parent.mkdir(parents=True, exist_ok=True)
    fresh = saved.with_suffix(".new")
    with open(fresh, "wb") as file:
        torch.save(state, file)
        file.flush()
        os.fsync(file.fileno())
    fresh.replace(saved)


def auc(scores, labels):
    """The chance that a positive is ranked above a negative."""
    ranks = scores.argsort().argsort().double() + 1
    positives = labels.sum().double()
    return float((ranks[labels == 1].sum() - positives * (positives + 1) / 2) / (positives * (len(labels) - positives)))


def main():
    signal.signal(signal.SIGTERM, stop)
    torch.set_num_threads(max(1, int(float(os.environ.get("FALAJ_CPUS", "1")))))
    rows = pandas.concat(pandas.read_parquet(file) for file in sorted((inputs / "rows").glob("*.parquet")))
    columns = rows.drop(columns=[LABEL]).select_dtypes("number").fillna(0)
    x = torch.tensor(columns.values.tolist(), dtype=torch.float32)
    y = torch.tensor(rows[LABEL].astype(int).tolist(), dtype=torch.float32)
    held_out = torch.arange(len(x)) % 5 == 0
    mean, deviation = x[~held_out].mean(0), x[~held_out].std(0).clamp(min=1e-6)
    x = (x - mean) / deviation

    torch.manual_seed(7)
    net = torch.nn.Sequential(torch.nn.Linear(x.shape[1], 64), torch.nn.ReLU(), torch.nn.Linear(64, 1))
    optimiser = torch.optim.AdamW(net.parameters(), lr=0.01)
    epoch = 0
    if saved.exists():
        state = torch.load(saved)
        net.load_state_dict(state["net"])
        optimiser.load_state_dict(state["optimiser"])
        epoch = state["epoch"]
        print(f"going on after epoch {epoch}", flush=True)

    with mlflow.start_run():  # the job's own run
        mlflow.log_params({"library": f"torch {torch.__version__}", "epochs": EPOCHS, "columns": ",".join(columns)})
        while epoch < EPOCHS and not stopping:
            torch.manual_seed(7_000 + epoch)
            train_x, train_y = x[~held_out], y[~held_out]
            for at in torch.randperm(len(train_x)).split(BATCH):
                optimiser.zero_grad()
                loss = torch.nn.functional.binary_cross_entropy_with_logits(net(train_x[at]).squeeze(1), train_y[at])
                loss.backward()
                optimiser.step()
            epoch += 1
            with torch.no_grad():
                score = auc(net(x[held_out]).squeeze(1), y[held_out])
            mlflow.log_metrics({"train_loss": loss.item(), "test_auc": score}, step=epoch)
            save({"net": net.state_dict(), "optimiser": optimiser.state_dict(), "epoch": epoch})
        if epoch == EPOCHS:
            model = outputs / "model"
            model.mkdir(parents=True, exist_ok=True)
            torch.jit.script(net).save(str(model / "model.pt"))
            (model / "columns.txt").write_text("\n".join(columns) + "\n")
    if epoch < EPOCHS:
        print(f"stopped after epoch {epoch}; what was learned is saved", flush=True)
        sys.exit(75)
    print("done", flush=True)


if __name__ == "__main__":
    main()
