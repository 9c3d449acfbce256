#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How good the models are that the examples learn, through the programs that users have:   ./bench quality

    tests/clients/quality.py [--falaj build/release/bin/falaj] [flights] [fashion]

flights: examples/flights/all-rows, learned from every departure of January to March and judged on every one of April: what the
clock and the distance alone tell, and trees and the network with all features beside it on the same rows. fashion:
examples/fashion/cnn.yaml, judged on the pictures for testing; Debian's dataset-fashion-mnist has them. Prints one JSON
line a claim, and what each training took. Takes about a quarter of an hour on two processors, and 6 GiB of memory.
"""

import argparse
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time

sys.dont_write_bytecode = True
import servers  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[2]
PICTURES = pathlib.Path("/usr/share/datasets/fashion-mnist")
FLIGHTS = ROOT / "third_party/vega-datasets/flights-3m.parquet"
GOING = ("pending", "admitted", "starting", "running", "checkpointing", "finishing")


class Platform:
    def __init__(self, directory, falaj):
        self.server = servers.Falaj(directory, falaj)
        self.binary = pathlib.Path(falaj).resolve()
        self.project = ("default", "default")

    def run(self, *argv):
        """What a command says, as somebody who works in the project has it."""
        tenant, project = self.project
        environment = {
            "PATH": f"{self.binary.parent}:{os.environ['PATH']}",
            "HOME": str(self.server.directory),
            "FALAJ_URL": self.server.url,
            "FALAJ_TOKEN": self.server.token,
            "FALAJ_TENANT": tenant,
            "FALAJ_PROJECT": project,
        }
        argv = [str(word) for word in argv]
        done = subprocess.run(argv, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT)
        if done.returncode != 0:
            raise RuntimeError(f"{' '.join(argv)}: {(done.stderr or done.stdout).strip()[-2000:]}")
        return done.stdout

    def close(self):
        """A job outlives the server that started it: one that is still there is cancelled first."""
        try:
            while going := [j["id"] for j in json.loads(self.run("falaj", "job", "ls", "-o", "json")) if j["phase"] in GOING]:
                self.run("falaj", "job", "cancel", *going)
                time.sleep(0.5)
        finally:
            self.server.stop()

    def metrics(self, name):
        """Of the newest run of a training."""
        run = json.loads(self.run("falaj", "job", "ls", "--name", name, "-o", "json"))[0]["run_id"]
        told = json.loads(self.run("falaj", "run", "show", run, "-o", "json"))["metrics"]
        out = {key: one["value"] for key, one in told.items()}
        print(f"{name}: learned, judged and exported in {out['seconds']:.0f} s", flush=True)
        return out


def claim(text, unit, ours, limit):
    line = dict(claim=text, ours=ours, unit=unit, against="goal", limit=limit, ratio=ours / limit)
    print(json.dumps(line | dict(goal=1, better="higher")), flush=True)
    return ours >= limit


def flights(platform):
    platform.run("falaj", "apply", "-f", "examples/flights")
    platform.project = ("acme", "flights")
    platform.run("falaj", "apply", "-f", "examples/flights/data")
    platform.run("falaj", "dataset", "ingest", "flights", FLIGHTS, "--mode", "overwrite")
    platform.run("falaj", "apply", "-f", "examples/flights/features")
    print(platform.run("examples/flights/all-rows"), flush=True)
    baseline, trees, network = (platform.metrics(name) for name in ("late-baseline", "late", "late-network"))
    print(f"flights: AUC on April {baseline['test_auc']:.4f} by the clock and the distance alone")
    met = []
    for name, one in (("trees", trees), ("network", network)):
        gain = [one[f"test_gain_auc{end}"] for end in ("", "_low", "_high")]
        print(f"flights: {name} with all features are better by {gain[0]:.4f} ({gain[1]:.4f} to {gain[2]:.4f})")
        met.append(claim(f"flights: AUC on April, {name}", "AUC", one["test_auc"], 0.77))
        met.append(claim(f"flights: gain of {name} over clock and distance, low end of 95 %", "AUC", gain[1], 0.1))
    return met


def fashion(platform):
    if not PICTURES.is_dir():
        print("SKIPPED fashion: apt install dataset-fashion-mnist", file=sys.stderr)
        return []
    platform.project = ("default", "default")
    platform.run("falaj", "dataset", "create", "fashion", "--from", PICTURES)
    platform.run("falaj", "train", "-q", "-w", "-f", "examples/fashion/cnn.yaml")
    metrics = platform.metrics("fashion")
    return [claim("fashion: accuracy of the convolutional network", "share", metrics["test_accuracy"], 0.92)]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--falaj", default=ROOT / "build/release/bin/falaj")
    parser.add_argument("parts", nargs="*", default=["flights", "fashion"], choices=["flights", "fashion"])
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # its server goes with it
    with tempfile.TemporaryDirectory() as directory:
        platform = Platform(pathlib.Path(directory) / "falaj", arguments.falaj)
        try:
            met = []
            for part in arguments.parts:
                met += {"flights": flights, "fashion": fashion}[part](platform)
        finally:
            platform.close()
    return 0 if all(met) else 1


if __name__ == "__main__":
    sys.exit(main())
