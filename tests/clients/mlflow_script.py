#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Uses a tracking server as its users do, with the genuine MLflow client, and checks every answer.

    MLFLOW_TRACKING_URI=... [MLFLOW_TRACKING_TOKEN=...] mlflow_script.py [--only PATTERN] [--list]

One line a case, then a summary; exits 1 when a case failed. Runs on MLflow 2.22 and 3.x; a case says where it holds.
run.py starts servers and calls this with each client.
"""

import argparse
import logging
import os
import sys
import tempfile
import warnings

os.environ.setdefault("GIT_PYTHON_REFRESH", "quiet")
os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
os.environ.setdefault("MPLBACKEND", "agg")
os.environ.setdefault("MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT", "true")
# A wrong 5xx must fail in seconds: the client would otherwise repeat it for four minutes.
os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "3")
os.environ.setdefault("MLFLOW_HTTP_REQUEST_BACKOFF_FACTOR", "1")
os.environ.setdefault("MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR", "false")
sys.dont_write_bytecode = True
warnings.filterwarnings("ignore")

import checks  # noqa: E402
import cases_artifacts  # noqa: E402,F401
import cases_faults  # noqa: E402,F401
import cases_models  # noqa: E402,F401
import cases_multipart  # noqa: E402,F401
import cases_registry  # noqa: E402,F401
import cases_search  # noqa: E402,F401
import cases_tracking  # noqa: E402,F401
import cases_wire  # noqa: E402,F401


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="a regular expression: only the cases whose name it finds")
    parser.add_argument("--list", action="store_true", help="name the cases and stop")
    arguments = parser.parse_args()
    if arguments.list:
        print("\n".join(c["name"] for c in checks.CASES))
        return 0
    logging.getLogger("mlflow").setLevel(logging.ERROR)
    logging.getLogger("urllib3").setLevel(logging.ERROR)
    with tempfile.TemporaryDirectory() as directory:
        return checks.run_cases(checks.Stage(directory), arguments.only)


if __name__ == "__main__":
    sys.exit(main())
