#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs the scripts of examples/bring-your-own as jobs, once as they are and once stopped in the middle.

    tests/clients/own_scripts.py [--binary build/release/bin/falaj] [--slurm]

With --slurm they run on a throw-away Slurm cluster instead of this machine. Both times the same must be learned, each
epoch be logged once, and a version of the model be there. Needs ./setup --clients; a script whose library is not there is
skipped, and that is said. Ends with one line: N passed, M failed.
"""

import argparse
import json
import os
import pathlib
import random
import subprocess
import sys
import tempfile
import time
import urllib.request

sys.dont_write_bytecode = True
import servers  # noqa: E402

EXAMPLES = servers.ROOT / "examples" / "bring-your-own"
DEBIAN = pathlib.Path("/usr/lib/python3/dist-packages")
EPOCHS, SECONDS_MAX = 60, 240
PROJECT = ("-t", "default", "-p", "default")
SHOWN = pathlib.Path("/opt/own-scripts")


def rows(count=3000):
    chance = random.Random(7)
    lines = ["x,y,late"]
    for _ in range(count):
        x, y = chance.uniform(-2, 2), chance.uniform(-2, 2)
        lines.append(f"{x},{y},{'true' if x + y * y + chance.gauss(0, 0.5) > 1 else 'false'}")
    return "\n".join(lines) + "\n"


def library_path(python, module, extra):
    """What PYTHONPATH makes `module` importable by `python`; None when nothing does. Debian's packages are for Debian's
    python, which is the same one; of them only this module is taken."""
    for path in ("", extra):
        if path:
            path.mkdir(exist_ok=True)
            for name in (module, f"{module}gen"):
                if (DEBIAN / name).exists() and not (path / name).exists():
                    (path / name).symlink_to(DEBIAN / name)
        found = subprocess.run(
            [str(python), "-c", f"import {module}"], env=servers.clean_environment(PYTHONPATH=str(path)), capture_output=True
        )
        if found.returncode == 0:
            return str(path)
    return None


class OwnScript:
    def __init__(self, server, name, python, path, executor):
        self.server, self.name, self.python, self.path, self.executor = server, name, python, path, executor
        self.must("blob", "put", str(EXAMPLES / f"late_{name}.py"), "--name", f"own/late_{name}.py")

    def must(self, *argv, **kwargs):
        return self.server.must(*argv, *PROJECT, **kwargs)

    def submit(self):
        text = (EXAMPLES / f"{self.name}.yaml").read_text()
        text = text.replace("PYTHON: python3", f"PYTHON: {self.python}, PYTHONPATH: '{self.path}'")
        text = text.replace('EPOCHS: "20"', f'EPOCHS: "{EPOCHS}"')
        text = text.replace("spec:\n", f"spec:\n  executor: {self.executor}\n")
        return self.must("submit", "-f", "-", text=text).split()[0]

    def stop(self):
        """In the middle, once; says whether that is done. One that was quicker than we are is started again."""
        if not self.is_stopped and self.job(self.stopped)["phase"] == "succeeded":
            self.stopped = self.submit()
            self.jobs += 1
        if not self.is_stopped and self.epochs(self.stopped) >= 3:
            self.is_stopped = self.server.command("job", "requeue", self.stopped, *PROJECT).returncode == 0
        return self.is_stopped

    def finish(self, job):
        self.until(lambda: self.job(job)["phase"] in ("succeeded", "failed", "cancelled"), job)
        assert self.job(job)["phase"] == "succeeded", self.said(job)

    def job(self, job):
        return json.loads(self.must("job", "show", job, "-o", "json"))

    def said(self, job):
        return f"{self.job(job).get('why')}: {self.server.command('job', 'logs', job, *PROJECT).stdout[-3000:]}"

    def history(self, job):
        run = self.job(job).get("run_id")
        if not run:
            return []
        call = urllib.request.Request(
            f"{self.server.tracking_uri}/api/2.0/mlflow/metrics/get-history?run_id={run}&metric_key=test_auc",
            headers={"Authorization": f"Bearer {self.server.token}"},
        )
        with urllib.request.urlopen(call, timeout=60) as answer:
            return json.load(answer).get("metrics", [])

    def epochs(self, job):
        return len(self.history(job))

    def until(self, true, job):
        deadline = time.monotonic() + SECONDS_MAX
        while not true():
            assert time.monotonic() < deadline, f"nothing came of it: {self.said(job)}"
            assert self.job(job)["phase"] != "failed", self.said(job)
            time.sleep(0.05)

    def start(self):
        self.whole, self.stopped = self.submit(), self.submit()
        self.jobs, self.is_stopped = 2, False

    def check(self):
        whole, stopped = self.whole, self.stopped
        for job in (whole, stopped):
            self.finish(job)
        curves = [sorted((point["step"], point["value"]) for point in self.history(job)) for job in (whole, stopped)]
        assert [step for step, _ in curves[0]] == list(range(1, EPOCHS + 1)), curves[0]
        assert curves[0][-1][1] > 0.75, curves[0][-1]
        assert self.job(stopped)["attempts"] == 2, self.job(stopped)
        assert "going on after epoch" in self.must("job", "logs", stopped), self.said(stopped)
        assert curves[1] == curves[0], "stopped and gone on, something else was learned"
        versions = json.loads(self.must("model", "show", f"own-{self.name}", "-o", "json"))["versions"]
        assert len(versions) == self.jobs, versions


def with_python_shown(arguments):
    """This script again, where the python that has MLflow is below /opt, which jobs see; nobody else sees that."""
    own = [] if os.geteuid() == 0 else ["--map-root-user"]
    script = f"""mount -t tmpfs none /opt && mkdir {SHOWN} {SHOWN}/mlflow &&
        mount --bind "$0" {SHOWN}/mlflow || exit 77; exec "$@" """
    inside = [sys.executable, __file__, "--binary", arguments.binary, "--shown"]
    return subprocess.run(
        ["unshare", "--mount", *own, "sh", "-c", script, servers.python_of(3).parents[1], *inside]
    ).returncode


def on_a_cluster(binary):
    """This script again, inside the namespaces of a cluster."""
    control = servers.ROOT / "tests/servers/slurm/run"
    with tempfile.TemporaryDirectory(prefix="own-slurm-") as directory:
        with subprocess.Popen([control, "cluster", directory, "4"], stdout=subprocess.DEVNULL) as cluster:
            try:
                deadline = time.monotonic() + servers.START_SECONDS
                while not (pathlib.Path(directory) / "ready").exists():
                    if cluster.poll() is not None or time.monotonic() > deadline:
                        raise RuntimeError("the cluster did not come up")
                    time.sleep(0.1)
                inside = [control, "in", directory, sys.executable, __file__, "--binary", binary, "--cluster", directory]
                return subprocess.run(inside).returncode
            finally:
                cluster.kill()


def server_with(cluster, place, binary):
    """A Falaj; with a cluster's directory, one that hands jobs to it."""
    if not cluster:
        return servers.Falaj(place, binary, ["jobs.isolation_min=contained"])  # as far as `network: host` allows
    port = servers.free_port()
    wrapped = pathlib.Path(cluster) / "falaj"  # Slurm's commands find their cluster by a variable
    wrapped.write_text(f'#!/bin/sh\nSLURM_CONF={cluster}/slurm.conf exec {pathlib.Path(binary).resolve()} "$@"\n')
    wrapped.chmod(0o755)
    settings = [
        f"slurm.directory={cluster}/attempts",
        "slurm.submit=sbatch",
        f"slurm.server_url=http://127.0.0.1:{port}",
    ]
    return servers.Falaj(place, wrapped, settings, port)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", default=str(servers.ROOT / "build/release/bin/falaj"))
    parser.add_argument("--slurm", action="store_true")
    parser.add_argument("--cluster", default="", help=argparse.SUPPRESS)
    parser.add_argument("--shown", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if not servers.is_installed(3):
        print("SKIPPED own scripts: MLflow 3 is not installed; run ./setup --clients")
        return 77
    if arguments.slurm:
        return on_a_cluster(arguments.binary)
    if not arguments.shown and not arguments.cluster:  # Slurm hides nothing
        status = with_python_shown(arguments)
        if status == 77:
            print("SKIPPED own scripts: nothing may be mounted here, and jobs do not see this directory")
        return status
    passed = failed = 0
    with tempfile.TemporaryDirectory(prefix="own-") as directory:
        place = pathlib.Path(directory)
        server = server_with(arguments.cluster, place / "server", arguments.binary)
        executor = "slurm" if arguments.cluster else "local"
        try:
            (place / "rows.csv").write_text(rows())
            server.must("dataset", "create", "late-train", "--from", str(place / "rows.csv"), *PROJECT)
            scripts = []  # all at once: they mostly wait
            for name, module in (("sklearn", "sklearn"), ("pytorch", "torch")):
                shown = pathlib.Path(arguments.cluster) if arguments.cluster else SHOWN
                python = servers.python_of(3) if arguments.cluster else SHOWN / "mlflow/bin/python"
                path = library_path(python, module, shown / "debian")
                if path is None:
                    print(f"result SKIPPED own script {name}: no {module} that {python} can import", flush=True)
                    continue
                scripts.append(OwnScript(server, name, python, path, executor))
                scripts[-1].start()
            waiting = time.monotonic() + SECONDS_MAX
            while not all([script.stop() for script in scripts]) and time.monotonic() < waiting:
                time.sleep(0.05)
            for script in scripts:
                what = f"own script {script.name} on {executor}"
                try:
                    script.check()
                    print(f"result {what}: stopped and gone on, the same was learned", flush=True)
                    passed += 1
                except AssertionError as wrong:
                    print(f"FAIL {what}: {wrong}", flush=True)
                    failed += 1
        finally:
            server.stop()
    print(f"{passed} passed, {failed} failed")
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
