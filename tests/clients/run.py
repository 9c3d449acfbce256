#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs the genuine MLflow clients against a server and says which of their calls it did not know.

    tests/clients/run.py                      both clients against build/release/bin/falaj
    tests/clients/run.py --server mlflow      against the genuine server: are the cases right?
    tests/clients/run.py --clients 3 --only search --calls

Ends with one line: N passed, M failed. Needs ./setup --clients; exits 77 when that has not been run.
"""

import argparse
import http.server
import json
import pathlib
import subprocess
import sys
import tempfile
import threading

sys.dont_write_bytecode = True
import recorder  # noqa: E402
import servers  # noqa: E402

SKIPPED = 77
NEWEST = 3  # the genuine server of this generation is the reference for the clients of both


def control_server(server):
    """Lets a case ask for a token, a project or the server's death. Returns the HTTP server; its thread ends with shutdown."""

    class Control(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            order = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            if "token" in order:
                answer = {"token": server.token_of(order["token"])}
            elif "project" in order:
                server.make_project(order["project"])
                answer = {}
            else:
                server.kill()
                server.start()
                answer = {"url": server.url}
            body = json.dumps(answer).encode()
            self.send_response_only(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    control = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Control)
    threading.Thread(target=control.serve_forever, args=(0.05,)).start()
    return control


def run_client(generation, server, directory, only):
    """Returns (passed, failed, recorder)."""
    proxy, control = recorder.Recorder(server.url), control_server(server)
    try:
        environment = servers.clean_environment(
            MLFLOW_TRACKING_URI=server.tracking_uri.replace(server.url, proxy.url),
            DIRECT_URI=server.tracking_uri,
            SERVER_KIND=server.kind,
            RECORDER_URI=proxy.url + "/.recorder",
            CONTROL_URI=f"http://127.0.0.1:{control.server_address[1]}/",
            HOME=str(directory),
            MLFLOW_TRACKING_TOKEN=server.token or "none",
            MPLCONFIGDIR=str(directory),
        )
        script = pathlib.Path(__file__).with_name("mlflow_script.py")
        with subprocess.Popen(
            [str(servers.python_of(generation)), str(script), "--only", only],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=open(pathlib.Path(directory) / "client.log", "ab"),
            text=True,
            cwd=directory,
        ) as client:
            passed = failed = 0
            for line in client.stdout:
                print(line, end="", flush=True)
                passed += line.startswith("ok ")
                failed += line.startswith("FAIL ")
        if client.returncode != 0 and failed == 0:
            print(
                f"FAIL the client ended with {client.returncode}: {(pathlib.Path(directory) / 'client.log').read_text()[-2000:]}"
            )
            failed = 1
        return passed, failed, proxy
    finally:
        control.shutdown()
        control.server_close()
        proxy.stop()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--server", choices=["falaj", "mlflow"], default="falaj")
    parser.add_argument("--binary", default=str(servers.ROOT / "build/release/bin/falaj"))
    parser.add_argument("--clients", default="2,3", help="generations of the client, such as 3 or 2,3")
    parser.add_argument("--only", default="", help="a regular expression over the cases' names")
    parser.add_argument("--calls", action="store_true", help="show every route the clients used, and its answers")
    arguments = parser.parse_args()
    generations = [int(g) for g in arguments.clients.split(",")]
    for generation in generations:
        if not servers.is_installed(generation):
            print(f"SKIPPED clients: MLflow {generation} is not installed; run ./setup --clients")
            return SKIPPED
    passed = failed = 0
    with tempfile.TemporaryDirectory(prefix="clients-") as directory:
        server = None
        try:
            place = pathlib.Path(directory) / "server"
            server = (
                servers.Falaj(place, arguments.binary) if arguments.server == "falaj" else servers.Mlflow(place, NEWEST)
            )
            for generation in generations:  # on one server: what one client wrote, the next one meets
                good, bad, proxy = run_client(generation, server, directory, arguments.only)
                passed, failed = passed + good, failed + bad
                if arguments.calls:
                    for (method, route, status), count in sorted(proxy.calls.items(), key=lambda c: c[0][1]):
                        print(f"call {method} {route} {status} x{count}")
                for (method, path), (count, status) in sorted(proxy.unhandled.items()):
                    print(
                        f"FAIL a call of client {generation} was not handled: {method} {path}: {status}, {count} times"
                    )
                    failed += 1
        finally:
            if server:
                server.stop()
    print(f"{passed} passed, {failed} failed")
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
