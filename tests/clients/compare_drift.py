#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Our drift statistics beside SciPy's, River's and Evidently's, on the same data:   ./bench drift_peers

    tests/clients/compare_drift.py [--bench build/release/bench/drift_bench]

Where the statistics are the same, they must be equal. Where the question is the same, whether a stream of 50 columns has
changed, the answers are compared: streams in which nothing changes, and streams in which one column moves. Evidently judges each
window by its default rules for columns; an alarm is any column that it calls drifted. Prints one JSON line a claim. Needs
./setup --servers.
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True
import servers  # noqa: E402

PEERS = servers.CLIENTS / "drift"
if __name__ == "__main__" and not pathlib.Path(sys.prefix).samefile(PEERS):
    if not (PEERS / ".obtained").exists():
        sys.exit("compare_drift: run ./setup --servers first")
    os.execv(PEERS / "bin/python", [str(PEERS / "bin/python"), *sys.argv])


def tell(claim, unit, ours, against, theirs, ratio, goal, better):
    line = dict(claim=claim, ours=ours, unit=unit, against=against, limit=theirs, ratio=ratio, goal=goal, better=better)
    print(json.dumps(line), flush=True)


def equal(claim, ours, against, theirs):
    """The ratio is how far apart they are, in parts of theirs."""
    apart = abs(ours - theirs) / max(abs(theirs), 1e-300)
    tell(f"{claim}: apart", "as ours", ours, against, theirs, apart, 0.02, "lower")


def same_statistics(told):
    import numpy
    from river import drift
    from scipy import stats
    from scipy.spatial.distance import jensenshannon

    a, b, x, y = (numpy.array(told[name]) for name in "abxy")
    theirs = stats.ks_2samp(a, b, method="asymp")
    equal("KS statistic", told["ks"], "SciPy", float(theirs.statistic))
    equal("KS p-value, asymptotic", told["ks_p"], "SciPy, exact", float(stats.ks_2samp(a, b, method="exact").pvalue))
    equal("Wasserstein", told["wasserstein"], "SciPy", float(stats.wasserstein_distance(a, b)))
    equal("chi-square p-value", told["chi_square_p"], "SciPy", float(stats.chi2_contingency([x, y], correction=False).pvalue))
    equal("Jensen-Shannon", told["jensen_shannon"], "SciPy", float(jensenshannon(x + 0.5, y + 0.5, base=2) ** 2))
    detector, cuts = drift.ADWIN(delta=0.002), []
    for i, error in enumerate(told["errors"]):
        detector.update(error)
        if detector.drift_detected:
            cuts.append(i)
    after = lambda found: next((i - 2000 for i in found if i >= 2000), 2000)  # noqa: E731
    tell("ADWIN, rows until an error rate of 0.2 that became 0.35 is noticed", "rows", after(told["adwin"]), "River",
         after(cuts), after(told["adwin"]) / max(1, after(cuts)), 1.1, "lower")


def judged(path, told):
    """Of each stream, the first window in which Evidently calls a column drifted; 0 = none."""
    import numpy
    import pandas
    from evidently import Report
    from evidently.presets import DataDriftPreset

    columns, reference, rows, windows = (told[k] for k in ("columns", "reference_rows", "window_rows", "windows"))
    per_column = reference + rows * windows
    names = [f"c{i}" for i in range(columns)]
    out = []
    for stream in numpy.fromfile(path).reshape(-1, columns, per_column):
        before = pandas.DataFrame(dict(zip(names, stream[:, :reference])))
        first = 0
        for window in range(windows):
            start = reference + window * rows
            now = pandas.DataFrame(dict(zip(names, stream[:, start : start + rows])))
            metrics = Report([DataDriftPreset()]).run(now, before).dict()["metrics"]
            count = next(m["value"] for m in metrics if "DriftedColumnsCount" in json.dumps(m.get("metric_name", m)))
            if count["count"] > 0:
                first = window + 1
                break
        out.append(first)
    return out


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bench", default="build/release/bench/drift_bench")
    parser.add_argument("--streams", default="10")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        subprocess.run([options.bench, "--streams", options.streams, "--export", directory], check=True)
        told = json.loads((pathlib.Path(directory) / "drift.json").read_text())
        same_statistics(told["statistics"])
        share = lambda alarms: sum(at > 0 for at in alarms) / len(alarms)  # noqa: E731
        for name, claim in (("quiet", "false alarms in streams that do not change"), ("small", "0.15 deviations in one of 50 columns: missed"),
                            ("large", "0.5 deviations in one of 50 columns: missed")):
            ours, theirs = share(told[name]), share(judged(f"{directory}/{name}.f64", told))
            if name != "quiet":
                ours, theirs = 1 - ours, 1 - theirs
            tell(claim, "of streams", ours, "Evidently", theirs, ours / theirs if theirs else float(ours > 0), 1, "lower")


if __name__ == "__main__":
    main()
