# SPDX-License-Identifier: Apache-2.0
"""The servers under test: started on a port of the kernel's choice with a data directory of their own."""

import os
import pathlib
import selectors
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[2]
CLIENTS = ROOT / "third_party" / "clients"
START_SECONDS = 120

VIEWER = """\
apiVersion: falaj/v1
kind: ServiceAccount
metadata: {tenant: default, name: viewer}
spec: {}
---
apiVersion: falaj/v1
kind: RoleBinding
metadata: {tenant: default, name: viewers}
spec: {role: viewer, subjects: [service/default/viewer]}
"""


def python_of(generation):
    return CLIENTS / f"mlflow{generation}" / "bin" / "python"


def is_installed(generation):
    """Wholly: ./setup leaves its mark last, and a half-made environment has a python too."""
    return (CLIENTS / f"mlflow{generation}" / ".obtained").exists()


def clean_environment(**more):
    keep = {k: os.environ[k] for k in ("PATH", "HOME", "LANG", "TMPDIR") if k in os.environ}
    return {
        **keep,
        "LC_ALL": "C.UTF-8",
        "PYTHONDONTWRITEBYTECODE": "1",
        "MLFLOW_DISABLE_TELEMETRY": "true",
        "DO_NOT_TRACK": "1",
        **more,
    }


def free_port():
    """For servers that cannot be given port 0."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Server:
    """A child process and the group it leads."""

    def __init__(self, directory):
        self.directory = pathlib.Path(directory)
        self.directory.mkdir(parents=True, exist_ok=True)
        self.child = None

    def spawn(self, argv, environment, stdout):
        with open(self.directory / "log", "ab") as log:
            self.child = subprocess.Popen(
                [str(a) for a in argv],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=stdout or log,
                stderr=log,
                start_new_session=True,
                cwd=self.directory,
            )

    def await_health(self, name):
        """Until it answers: it says nowhere that it is ready."""
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline and self.child.poll() is None:
            try:
                with urllib.request.urlopen(self.url + "/health", timeout=5):
                    return
            except (urllib.error.URLError, OSError):
                time.sleep(0.1)
        log = self.log_tail()
        self.kill()
        raise RuntimeError(f"{name} did not become ready: {log}")

    def log_tail(self):
        return (self.directory / "log").read_text(errors="replace")[-3000:]

    def end(self, how):
        if self.child is None:
            return
        try:
            os.killpg(self.child.pid, how)
        except ProcessLookupError:
            pass
        try:
            self.child.wait(20)
        except subprocess.TimeoutExpired:
            os.killpg(self.child.pid, signal.SIGKILL)
            self.child.wait()
        self.child = None

    def kill(self):
        self.end(signal.SIGKILL)

    def stop(self):
        self.end(signal.SIGTERM)


class Mlflow(Server):
    """The genuine server of one generation, with its SQL store in SQLite or its store of plain files."""

    kind = "mlflow"
    token = None

    def __init__(self, directory, generation, store="sql", workers=None):
        super().__init__(directory)
        self.generation, self.store, self.workers = generation, store, workers
        self.port = free_port()
        self.url = self.tracking_uri = f"http://127.0.0.1:{self.port}"
        self.start()

    def start(self):
        backend = f"sqlite:///{self.directory}/mlflow.db" if self.store == "sql" else str(self.directory / "store")
        argv = [
            python_of(self.generation),
            "-m",
            "mlflow",
            "server",
            "--backend-store-uri",
            backend,
            "--serve-artifacts",
            "--artifacts-destination",
            self.directory / "artifacts",
            "--host",
            "127.0.0.1",
            "--port",
            self.port,
        ]
        self.spawn(
            argv + (["--workers", self.workers] if self.workers else []),
            clean_environment(
                MLFLOW_DISABLE_TELEMETRY="true",
                MLFLOW_ALLOW_FILE_STORE="true",
                MLFLOW_SERVER_ENABLE_JOB_EXECUTION="false",
            ),
            None,
        )
        self.await_health("mlflow server")


class Falaj(Server):
    kind = "falaj"

    def __init__(self, directory, binary, settings=(), port=0):
        super().__init__(directory)
        self.binary, self.settings = pathlib.Path(binary).resolve(), settings
        self.port = port
        self.start()
        self.short = self.must(
            "token", "create", "short", "--ttl", "60s"
        )  # the shortest there is; a case uses it later

    def start(self):
        argv = [self.binary, "up", "--data", self.directory / "data", "--listen", f"127.0.0.1:{self.port}"]
        for setting in self.settings:
            argv += ["--set", setting]
        self.spawn(argv, clean_environment(), subprocess.PIPE)
        with selectors.DefaultSelector() as ready:
            ready.register(self.child.stdout, selectors.EVENT_READ)
            line = self.child.stdout.readline().decode() if ready.select(START_SECONDS) else ""
        if "http" not in line:
            log = self.log_tail()
            self.kill()
            raise RuntimeError(f"falaj up did not become ready: {line}{log}")
        self.url = line[line.index("http") :].split()[0].rstrip("/")
        self.port = int(self.url.rsplit(":", 1)[1])
        self.token = (self.directory / "data" / "admin.token").read_text().strip()
        self.tracking_uri = self.url + "/mlflow/default/default"

    def end(self, how):
        if self.child is not None and self.child.stdout:
            self.child.stdout.close()
        super().end(how)

    def command(self, *argv, token=None, text=None):
        environment = clean_environment(FALAJ_URL=self.url, FALAJ_TOKEN=token or self.token, HOME=str(self.directory))
        return subprocess.run(
            [str(self.binary), *argv], env=environment, input=text, capture_output=True, text=True, timeout=60
        )

    def must(self, *argv, **kwargs):
        done = self.command(*argv, **kwargs)
        if done.returncode != 0:
            raise RuntimeError(f"falaj {' '.join(argv)}: {done.stderr.strip()}")
        return done.stdout.strip()

    def make_project(self, name):
        self.must(
            "apply",
            "-f",
            "-",
            text=f"apiVersion: falaj/v1\nkind: Project\nmetadata: {{tenant: default, name: {name}}}\nspec: {{zone: local}}\n",
        )

    def token_of(self, kind):
        """A viewer's token, or one that was valid and is no longer."""
        if kind == "viewer":
            self.must("apply", "-f", "-", text=VIEWER)
            return self.must("token", "create", "viewer", "--for", "service/default/viewer", "--ttl", "1h")
        deadline = time.monotonic() + 90
        while self.command("whoami", token=self.short).returncode == 0:
            if time.monotonic() > deadline:
                raise RuntimeError("a token of one minute still holds after ninety seconds")
            time.sleep(0.2)  # nothing tells when a token has expired
        return self.short
