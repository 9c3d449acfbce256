#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Alerts of a real falaj arrive where people look: a Prometheus that scrapes it, an Alertmanager, a mail server.

    tests/clients/run_alerting.py [--binary build/release/bin/falaj]

The Alertmanager is away when an alert fires and falaj is killed before it comes back; mail goes out over STARTTLS with a
password, and not at all to a server whose certificate nobody vouches for. Ends with one line: N passed, M failed. Needs
Debian's prometheus, prometheus-alertmanager and python3-aiosmtpd; exits 77 when they are not there."""

import argparse
import email
import email.policy
import json
import pathlib
import shutil
import ssl
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.parse
import urllib.request

sys.dont_write_bytecode = True
import servers  # noqa: E402

SKIPPED, SECONDS_MAX = 77, 90
PROJECT = ("-t", "default", "-p", "default")
try:
    from aiosmtpd.controller import Controller
    from aiosmtpd.smtp import AuthResult
except ImportError:
    Controller = None

RULE = """\
apiVersion: falaj/v1
kind: Channel
metadata: {{name: manager, tenant: default, project: default}}
spec: {{type: alertmanager, url: "http://127.0.0.1:{manager}"}}
---
apiVersion: falaj/v1
kind: Channel
metadata: {{name: mail, tenant: default, project: default}}
spec: {{type: email, server: "localhost:{mail}", from: falaj@example.org, to: [ops@example.org], user: falaj, secret: mail}}
---
apiVersion: falaj/v1
kind: Channel
metadata: {{name: stranger, tenant: default, project: default}}
spec: {{type: email, server: "localhost:{stranger}", from: falaj@example.org, to: [ops@example.org]}}
---
apiVersion: falaj/v1
kind: AlertRule
metadata: {{name: waits, tenant: default, project: default}}
spec: {{on: queueWait, threshold: 0, severity: critical, labels: {{team: ops}}, notify: [manager, mail]}}
"""
PROMETHEUS = """\
global: {{scrape_interval: 1s, evaluation_interval: 1s}}
rule_files: [{rules}]
alerting: {{alertmanagers: [{{static_configs: [{{targets: ["127.0.0.1:{manager}"]}}]}}]}}
scrape_configs:
  - job_name: falaj
    authorization: {{credentials_file: {token}}}
    static_configs: [{{targets: ["127.0.0.1:{falaj}"]}}]
"""


def ask(url):
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            return json.load(answer)
    except (urllib.error.URLError, OSError, json.JSONDecodeError):
        return None


def until(what, read):
    """The first answer that is neither None nor empty."""
    deadline = time.monotonic() + SECONDS_MAX
    while time.monotonic() < deadline:
        if found := read():
            return found
        time.sleep(0.05)
    raise AssertionError(f"not within {SECONDS_MAX} s: {what}")


class Manager(servers.Server):
    def __init__(self, directory):
        super().__init__(directory)
        self.port = servers.free_port()
        self.url = f"http://127.0.0.1:{self.port}"

    def start(self):
        config = servers.ROOT / "deploy/alertmanager/alertmanager.yml"
        argv = ["prometheus-alertmanager", f"--config.file={config}", f"--storage.path={self.directory}"]
        argv += [f"--web.listen-address=127.0.0.1:{self.port}", "--cluster.listen-address="]
        self.spawn(argv, servers.clean_environment(), None)
        until("Alertmanager", lambda: ask(self.url + "/api/v2/status"))

    def alerts(self, name, state="active"):
        query = urllib.parse.urlencode({"filter": f'alertname="{name}"', "active": "true"})
        return [a for a in ask(f"{self.url}/api/v2/alerts?{query}") or [] if a["status"]["state"] == state]


class Prometheus(servers.Server):
    def __init__(self, directory, falaj, manager):
        super().__init__(directory)
        self.port = servers.free_port()
        token = self.directory / "token"
        token.write_text(falaj.token)
        config = self.directory / "prometheus.yml"
        rules = servers.ROOT / "deploy/prometheus/falaj.rules.yml"
        config.write_text(PROMETHEUS.format(rules=rules, manager=manager.port, token=token, falaj=falaj.port))
        argv = ["prometheus", f"--config.file={config}", f"--storage.tsdb.path={self.directory}/tsdb"]
        argv += [f"--web.listen-address=127.0.0.1:{self.port}", "--rules.alert.resend-delay=1s"]
        self.spawn(argv, servers.clean_environment(), None)

    def value(self, expression):
        query = urllib.parse.urlencode({"query": expression})
        answer = ask(f"http://127.0.0.1:{self.port}/api/v1/query?{query}")
        return [float(r["value"][1]) for r in answer["data"]["result"]] if answer else []


class Letters:
    def __init__(self):
        self.got = []

    async def handle_DATA(self, server, session, envelope):  # noqa: N802
        message = email.message_from_bytes(envelope.content, policy=email.policy.default)
        self.got.append((session.ssl is not None, session.authenticated, envelope.rcpt_tos, message))
        return "250 taken"


def certificate(directory, name, trusted_by=None):
    """A key and certificate of `localhost`, signed by itself."""
    key, cert = directory / f"{name}.key", directory / f"{name}.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ed25519", "-nodes", "-days", "2", "-subj", "/CN=localhost"]
        + ["-addext", "subjectAltName=DNS:localhost", "-keyout", key, "-out", cert],
        check=True,
        capture_output=True,
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert, key)
    return cert, context


def mail_server(letters, context, password):
    def check(server, session, envelope, mechanism, data):
        return AuthResult(success=data.login == b"falaj" and data.password == password.encode())

    auth = {"authenticator": check, "auth_required": True} if password else {}
    controller = Controller(
        letters, hostname="127.0.0.1", port=servers.free_port(), tls_context=context, require_starttls=True, **auth
    )
    controller.start()
    return controller


class Checks:
    def __init__(self):
        self.passed = self.failed = 0

    def check(self, what, holds):
        print(f"{'ok  ' if holds else 'FAIL'} {what}", flush=True)
        self.passed += bool(holds)
        self.failed += not holds


def alerting(falaj, manager, work, letters, checks):
    falaj.must("submit", *PROJECT, "--name", "huge", "--cpus", "5000", "--", "true")
    rows = lambda *more: json.loads(falaj.must("alerts", *more, *PROJECT, "-o", "json"))  # noqa: E731
    until("the alert fires", lambda: [a for a in rows() if a["state"] == "firing"])
    secure, authenticated, to, message = until("a letter", lambda: letters.got)[0]
    checks.check("mail arrives over STARTTLS, after a login", secure and authenticated)
    checks.check("to whom it should", to == ["ops@example.org"])
    checks.check("and says what fires", message["Subject"] == "[FIRING] critical: waits on queue/default")
    checks.check("in words", "falaj alerts show" in message.get_content() and "team=ops" in message.get_content())

    waiting = lambda: [d for d in rows("deliveries", "--state", "waiting") if d["tries"] > 0]  # noqa: E731
    delivery = until("a try to reach the Alertmanager", waiting)[0]
    falaj.kill()
    manager.start()
    falaj.start()
    # It is tried again by itself within seconds; that it waited longer is the back-off.
    alert = until("the alert in the Alertmanager", lambda: manager.alerts("waits"))[0]
    checks.check("an Alertmanager that was away gets it after a kill of falaj", alert["labels"]["severity"] == "critical")
    checks.check("with the labels of the rule", alert["labels"]["team"] == "ops" and alert["labels"]["project"] == "default")
    done = until("its delivery", lambda: [d for d in rows("deliveries", "--state", "done") if d["id"] == delivery["id"]])
    checks.check("it is the delivery that had been tried", done[0]["tries"] > delivery["tries"])
    checks.check("it fired once", [e["what"] for e in rows("history")] == ["fired"])

    prometheus = Prometheus(work / "prometheus", falaj, manager)
    try:
        scraped = until("a scrape", lambda: prometheus.value('falaj_alerts_firing{severity="critical"}'))
        checks.check("Prometheus scrapes the number of alerts", scraped == [1])

        stranger = json.loads(falaj.command("alerts", "test-channel", "stranger", *PROJECT, "-o", "json").stdout)
        checks.check("a mail server that nobody vouches for gets nothing", not stranger["success"] and len(letters.got) == 1)
        falaj.must("api", "get", "/v1/version")

        jobs = json.loads(falaj.must("job", "ls", *PROJECT, "-o", "json"))
        falaj.must("job", "cancel", *PROJECT, jobs[0]["id"])
        until("the alert ends", lambda: not manager.alerts("waits"))
        checks.check("the Alertmanager hears that it is over", True)
        message = until("a second letter", lambda: letters.got[1:])[0][3]
        checks.check("and so does who reads mail", message["Subject"] == "[RESOLVED] critical: waits on queue/default")
        checks.check("in two letters", len({m[3]["Message-ID"] for m in letters.got}) == len(letters.got) == 2)

        falaj.kill()
        until("Prometheus notices", lambda: prometheus.value('ALERTS{alertname="FalajDown"}'))
        checks.check("the rules under deploy/ notice that falaj is gone", True)
    finally:
        prometheus.stop()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", default=servers.ROOT / "build/release/bin/falaj")
    args = parser.parse_args()
    missing = [p for p in ("prometheus", "prometheus-alertmanager", "openssl") if not shutil.which(p)]
    if missing or Controller is None:
        print(f"SKIPPED alerting: not installed: {' '.join(missing) or 'python3-aiosmtpd'}; run ./setup", file=sys.stderr)
        return SKIPPED
    checks, letters = Checks(), Letters()
    with tempfile.TemporaryDirectory() as temporary:
        work = pathlib.Path(temporary)
        trusted, context = certificate(work, "trusted")
        _, unknown = certificate(work, "unknown")
        mail, stranger = mail_server(letters, context, "pass word"), mail_server(letters, unknown, None)
        manager = Manager(work / "manager")
        settings = ['webhooks.hosts=["127.0.0.1","localhost"]', "webhooks.plain_http=true", "alerts.every=200ms"]
        settings += ["webhooks.local_addresses=true", f"webhooks.ca_file={trusted}"]
        falaj = servers.Falaj(work / "falaj", args.binary, settings)
        try:
            falaj.must("secret", "set", "mail", *PROJECT, text="pass word")
            (work / "rule.yaml").write_text(RULE.format(manager=manager.port, mail=mail.port, stranger=stranger.port))
            falaj.must("apply", "-f", str(work / "rule.yaml"))
            alerting(falaj, manager, work, letters, checks)
        except AssertionError as problem:
            checks.check(str(problem), False)
            print(falaj.log_tail(), file=sys.stderr)
        finally:
            for server in (falaj, manager):
                server.kill()
            for controller in (mail, stranger):
                controller.stop()
    print(f"{checks.passed} passed, {checks.failed} failed")
    return 1 if checks.failed else 0


if __name__ == "__main__":
    sys.exit(main())
