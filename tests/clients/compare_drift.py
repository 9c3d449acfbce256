#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Our monitors beside SciPy, River and Evidently, on the same data:   ./bench drift_peers

    tests/clients/compare_drift.py [--bench build/release/bench/drift_bench] [--trials 10] [--table FILE.md] [--plot FILE.svg]

Where the statistics are the same, they must be equal. Where the question is the same, whether one of 50 columns has changed, the
answers are compared: in streams in which nothing changes, and in streams with a change of a known size, the windows until it is
noticed. SciPy tests each column of each window, its level shared among columns (as drift libraries do) and, to be as quiet as we
are, among windows, too; Evidently judges each column by its default rules. Prints one JSON line a claim. Needs ./setup --servers.
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


def streams_of(directory, told, fault):
    """Trials x columns x (reference and windows, one after the other)."""
    import numpy

    rows = told["reference_rows"] + told["window_rows"] * told["windows"]
    return numpy.fromfile(pathlib.Path(directory) / fault["file"]).reshape(told["trials"], len(fault["columns"]), rows)


def window(told, column, number):
    start = told["reference_rows"] + number * told["window_rows"]
    return column[start : start + told["window_rows"]]


def by_scipy(told, fault, streams, looks):
    """Of each trial, the first window in which a column differs at the level over all columns and so many looks; 0 = none."""
    import numpy
    from scipy import stats

    level = told["level"] / told["columns"] / looks
    out = []
    for trial in streams:
        first = 0
        for number in range(told["windows"]):
            for place, column in zip(fault["columns"], trial):
                before, now = column[: told["reference_rows"]], window(told, column, number)
                if place in told["texts"]:
                    both = numpy.array([numpy.bincount(x.astype(int), minlength=10) for x in (before, now)])
                    p = stats.chi2_contingency(both[:, both.sum(0) > 0], correction=False).pvalue
                else:
                    p = stats.ks_2samp(before, now, method="asymp").pvalue
                if p < level:
                    first = number + 1
                    break
            if first:
                break
        out.append(first)
    return out


def by_evidently(told, fault, streams):
    """The same by its default rules; those of a column do not depend on others, so columns of all trials are asked about at once."""
    import pandas
    from evidently import DataDefinition, Dataset, Report
    from evidently.presets import DataDriftPreset

    names = {(i, place): f"t{i}c{place}" for i in range(len(streams)) for place in fault["columns"]}
    texts = [name for (i, place), name in names.items() if place in told["texts"]]
    numbers = [name for name in names.values() if name not in texts]
    definition = DataDefinition(numerical_columns=numbers, categorical_columns=texts)
    first = [0] * len(streams)

    def table(part):
        frame = pandas.DataFrame({names[i, place]: part(column) for i, trial in enumerate(streams)
                                  for place, column in zip(fault["columns"], trial)})
        for name in texts:
            frame[name] = "category " + frame[name].astype(int).astype(str)
        return Dataset.from_pandas(frame, data_definition=definition)

    before = table(lambda column: column[: told["reference_rows"]])
    for number in range(told["windows"]):
        now = table(lambda column: window(told, column, number))
        metrics = Report([DataDriftPreset()]).run(now, before).dict()["metrics"]
        for metric in metrics:
            config = metric.get("config", {})
            name = config.get("column")
            if not name or "drift" not in json.dumps(metric.get("metric_name", "")).lower():
                continue
            value, threshold = float(metric["value"]), float(config["threshold"])
            by_p = "p_value" in str(config.get("method", "")) or "p-value" in str(config.get("method", ""))
            if value < threshold if by_p else value >= threshold:
                i = next(i for (i, place), n in names.items() if n == name)
                first[i] = first[i] or number + 1
        if all(first):
            break
    return first


def compare(directory, told):
    """Of every fault, by whom it is noticed after how many windows; those not found count as all windows."""
    mean = lambda alarms: sum(at or told["windows"] for at in alarms) / len(alarms)  # noqa: E731
    found = lambda alarms: sum(at > 0 for at in alarms) / len(alarms)  # noqa: E731
    rows = []
    for fault in told["faults"]:
        streams = streams_of(directory, told, fault)
        answers = {
            "Falaj": fault["ours"],
            "SciPy, level over columns and windows": by_scipy(told, fault, streams, told["windows"]),
            "SciPy, level over columns": by_scipy(told, fault, streams, 1),
            "Evidently": by_evidently(told, fault, streams),
        }
        if fault["name"] == "quiet":
            for who in ("SciPy, level over columns", "Evidently"):
                ours, theirs = found(answers["Falaj"]), found(answers[who])
                tell("false alarms in streams that do not change", "of streams", ours, who, theirs, ours / theirs if theirs else float(ours > 0), 1, "lower")
        else:
            ours, theirs = mean(answers["Falaj"]), mean(answers["SciPy, level over columns and windows"])
            tell(f"windows until noticed, {fault['name']} {fault['size']:g}", "windows", ours, "SciPy, as few false alarms", theirs, ours / theirs, 1, "lower")
        rows.append((fault, {who: (mean(alarms), found(alarms)) for who, alarms in answers.items()}))
        print(f"{fault['name']} {fault['size']:g}: " + ", ".join(f"{who} {m:.1f} ({f:.0%})" for who, (m, f) in rows[-1][1].items()), file=sys.stderr)
    return rows


def write_table(path, rows):
    with open(path, "w") as out:
        whos = list(rows[0][1])
        out.write("| change | size | " + " | ".join(whos) + " |\n|---|---|" + "---|" * len(whos) + "\n")
        for fault, by in rows:
            if fault["name"] == "quiet":
                cells = (f"{f:.0%} false" for _, f in by.values())
            else:
                cells = (f"{m:.1f}" if f == 1 else f"{m:.1f} ({f:.0%})" if f else "never" for m, f in by.values())
            out.write(f"| {fault['name']} | {fault['size']:g} {fault['unit']} | " + " | ".join(cells) + " |\n")


def write_plot(bench, path, rows):
    charts = {}
    for fault, by in rows:
        if fault["name"] == "quiet":
            continue
        chart = charts.setdefault(fault["name"], {"unit": fault["unit"], "sizes": [], "lines": {who: [] for who in by}})
        chart["sizes"].append(fault["size"])
        for who, (m, _) in by.items():
            chart["lines"][who].append(m)
    with tempfile.NamedTemporaryFile("w", suffix=".json") as out:
        json.dump(charts, out)
        out.flush()
        subprocess.run([bench, "--draw", out.name, "--out", path], check=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bench", default="build/release/bench/drift_bench")
    parser.add_argument("--trials", default="10")
    parser.add_argument("--table")
    parser.add_argument("--plot")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        subprocess.run([options.bench, "--trials", options.trials, "--export", directory], check=True)
        told = json.loads((pathlib.Path(directory) / "drift.json").read_text())
        same_statistics(told["statistics"])
        rows = compare(directory, told)
    if options.table:
        write_table(options.table, rows)
    if options.plot:
        write_plot(options.bench, options.plot, rows)


if __name__ == "__main__":
    main()
