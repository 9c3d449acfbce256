#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Each rule of tools/check on a tree of a few lines: it finds what it must and nothing in a clean tree."""
import importlib.machinery
import importlib.util
import os
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
LOADER = importlib.machinery.SourceFileLoader("check", os.path.join(HERE, "check"))
check = importlib.util.module_from_spec(importlib.util.spec_from_loader("check", LOADER))
LOADER.exec_module(check)

SPDX = "// SPDX-License-Identifier: Apache-2.0\n"
LAYERS = "base:\nsys: base\nstorage/sql: sys\nlifecycle/jobs: storage/sql\n"


class CheckTest(unittest.TestCase):
    def faults(self, files, layers=LAYERS):
        with tempfile.TemporaryDirectory() as root:
            for path, text in {"src/layers.txt": layers, **files}.items():
                os.makedirs(os.path.dirname(os.path.join(root, path)), exist_ok=True)
                with open(os.path.join(root, path), "w", encoding="utf-8") as f:
                    f.write(text)
            return [f"{p}:{line}: {m}" for p, line, m in check.Check(root).run()]

    def source(self, body, path="src/storage/sql/a.cc"):
        return self.faults({path: SPDX + body})

    def assert_one(self, faults, beginning, part=""):
        self.assertEqual(len(faults), 1, faults)
        self.assertTrue(faults[0].startswith(beginning), faults)
        self.assertIn(part, faults[0])

    def test_a_clean_tree_has_no_fault(self):
        self.assertEqual(self.faults({
            "src/base/a.h": SPDX + "#pragma once\n",
            "src/storage/sql/a.cc": SPDX + '#include "base/a.h"\n#include "storage/sql/b.h"\n#include <vector>\n',
            "src/storage/sql/b.h": SPDX + "#pragma once\n",
        }), [])

    def test_layers(self):
        self.assert_one(self.source('#include "lifecycle/jobs/b.h"\n'), "src/storage/sql/a.cc:2: storage/sql may not use lifecycle/jobs")
        self.assertEqual(self.source('#include "storage/sql/b.h"\n', "src/lifecycle/jobs/deep/a.cc"), [])
        self.assertEqual(self.source('// #include "lifecycle/jobs/b.h"\n'), [])
        self.assert_one(self.source('#include "b.h"\n'), "src/storage/sql/a.cc:2:", "path from src/")
        self.assert_one(self.source("", "src/nowhere/a.cc"), "src/nowhere/a.cc:1:", "layers.txt")
        self.assert_one(self.faults({}, "a: b\nb:\n"), "src/layers.txt:1: b must stand above a")

    def test_test_support_is_for_tests(self):
        self.assert_one(self.source('#include "base/testing.h"\n'), "src/storage/sql/a.cc:2:", "tests only")
        self.assertEqual(self.source('#include "base/testing.h"\n', "src/storage/sql/a_test.cc"), [])

    def test_functions_that_only_conversions_tell_apart(self):
        def both(one, other, path="src/sys/b.cc"):
            space = SPDX + "#include <string>\nnamespace falaj {\nnamespace {\n\n%s\n\n}  // namespace\n}  // namespace falaj\n"
            return self.faults({"src/sys/a.cc": space % one, path: space % other})
        text, view = "void fail(const std::string& why) {}", "[[noreturn]] void fail(std::string_view what) {\n}"
        self.assert_one(both(text, view), "src/sys/b.cc:6: fail is in a.cc too")
        self.assert_one(both("int f(int a, T& t) {}", "int f(double b, const T& u) {}"), "src/sys/b.cc:6: f is")
        self.assertEqual(both(text, "void fail(std::string_view what, int more) {}"), [])
        self.assertEqual(both(text, "void fail(const Part& part) {}"), [])
        self.assertEqual(both(text, view, "src/base/b.cc"), [])
        self.assertEqual(both(text, view, "src/sys/b_test.cc"), [])
        self.assertEqual(both(text, view, "src/sys/b_fuzz.cc"), [])
        self.assertEqual(both(text, "}  // namespace\nvoid fail(std::string_view what) {}\nnamespace {"), [])

    def test_files_include_what_they_use(self):
        given = {"src/base/part.h": SPDX + "#pragma once\n#include <map>\nnamespace falaj {\nstruct Part {};\nconstexpr int kMost = 1;\n"
                                    "int first_of(const Part& part);\n}\n#define CUT(x) x\n",
                 "src/sys/parts.h": SPDX + '#pragma once\n#include "base/part.h"\n'}

        def using(body, path="src/sys/a.cc"):
            return self.faults({**given, path: SPDX + body})
        self.assert_one(using("int a = std::min(1, 2) + std::max(3, 4);\n"), "src/sys/a.cc:2: std::min: include <algorithm>")
        self.assert_one(using("std::map<int, int> m;\n"), "src/sys/a.cc:2:", "<map>")
        self.assertEqual(using('#include "sys/parts.h"\nstd::map<int, int> m;\n'), [])
        for body in ["base::Part p;", "int m = base::kMost;", "int f = base::first_of(x);"]:
            self.assert_one(using(body + "\n"), "src/sys/a.cc:2:", 'include "base/part.h"')
            self.assertEqual(using('#include "sys/parts.h"\n' + body + "\n"), [])
        for body in ["Part p;", "int m = kMost;", "int a = CUT(1);"]:
            self.assert_one(using(body + "\n", "src/base/a.cc"), "src/base/a.cc:2:", 'include "base/part.h"')
        for body in ["struct Part; Part* p;", "TEST(Part, Works);", "x.Part = 1;", "other::Part p;", "// base::Part", "int first_of(int);"]:
            with self.subTest(body):
                self.assertEqual(using(body + "\n", "src/base/a.cc"), [])

    def test_vendor_headers_stay_inside(self):
        tree = {"src/sys/vendor.h": SPDX + "#pragma once\n#include <openssl/ssl.h>\n",
                "src/sys/public.h": SPDX + '#pragma once\n#include "sys/vendor.h"\n',
                "src/sys/a.cc": SPDX + '#include "sys/vendor.h"\n'}
        self.assertEqual(self.faults(tree), [])
        self.assert_one(self.faults({**tree, "src/storage/sql/a.cc": SPDX + '#include "sys/public.h"\n'}),
                        "src/storage/sql/a.cc:1:", "vendor")

    def test_bans(self):
        for body in ["auto t = std::chrono::steady_clock::now();", "auto t = time(nullptr);", "auto t = ::time(0);", "std::random_device d;",
                     "int r = rand();", "std::mutex m;", "std::lock_guard l(m);", "thread.detach();", "std::regex r;",
                     "#include <regex>", 'system("ls");', 'std::system("ls");', 'auto* f = popen("ls", "r");',
                     "co_spawn(x, f(), asio::detached);", "auto f = [&, x](int a) -> asio::awaitable<void> { co_return; };"]:
            with self.subTest(body):
                faults = self.source(body + "\n")
                self.assertTrue(faults and all(f.startswith("src/storage/sql/a.cc:2: ") for f in faults), faults)

    def test_bans_leave_other_code_alone(self):
        for body in ["Micros time() const;", "x.time(0);", "set_time(0);", "int operand(int);", "file_system(x);", "ecosystem(1);",
                     'log("std::mutex, rand()");', "// std::mutex", "/* thread.detach(); */", "auto n = 1'000'000; auto c = 'a';",
                     'auto t = R"(std::regex)";', "using namespace std::literals;", "auto f = [](int a) -> asio::awaitable<void> { co_return; };",
                     "this_thread::sleep_for(x);"]:
            with self.subTest(body):
                self.assertEqual(self.source(body + "\n"), [])

    def test_bans_have_their_places(self):
        layers = "foundation/base:\nfoundation/sys: foundation/base\n"
        now = SPDX + "auto t = chrono::steady_clock::now();\n"
        self.assertEqual(self.faults({"src/foundation/sys/clock.cc": now, "src/foundation/base/x_bench.cc": now, "bench/a.cc": now}, layers), [])
        self.assertEqual(self.faults({"src/foundation/base/mutex.h": SPDX + "#pragma once\nstd::mutex m;\n"}, layers), [])
        self.assert_one(self.source("this_thread::sleep_for(x);\n", "src/storage/sql/a_test.cc"), "src/storage/sql/a_test.cc:2:")
        self.assert_one(self.source("#pragma once\nusing namespace std;\n", "src/storage/sql/a.h"), "src/storage/sql/a.h:3:")

    def test_unfinished_work_even_in_comments(self):
        self.assert_one(self.source("// TO" + "DO later\n"), "src/storage/sql/a.cc:2:")

    def test_names(self):
        for stem in ["utils", "string_util", "job_manager", "helpers"]:
            self.assert_one(self.source("", f"src/base/{stem}.cc"), f"src/base/{stem}.cc:1:", "name the concept")
        self.assertEqual(self.source("", "src/base/commons_act.cc"), [])

    def test_first_lines(self):
        self.assert_one(self.faults({"src/base/a.cc": "int x;\n"}), "src/base/a.cc:1:", "SPDX")
        self.assert_one(self.faults({"tools/run": "#!/bin/sh\necho\n"}), "tools/run:1:", "SPDX")
        self.assert_one(self.source("int x;\n", "src/base/a.h"), "src/base/a.h:1:", "#pragma once")

    def test_places_of_one_machine(self):
        for text in ["/ro" + "ot/x", "see /ho" + "me/me", "https:" + "//registry.npm" + "js.org/x"]:
            self.assert_one(self.faults({"docs/a.md": text + "\n"}), "docs/a.md:1:")
        self.assertEqual(self.faults({"docs/a.md": "a/wo" + "rk/b and net" + "work/x\n"}), [])

    def test_budgets_only_shrink(self):
        long = {"src/base/a.h": SPDX + "#pragma once\n" + "\n" * 400}
        self.assert_one(self.faults(long), "src/base/a.h:301:", "402 lines")
        self.assertEqual(self.faults({**long, "tools/over_budget.txt": "# why\nsrc/base/a.h 402\n"}), [])
        self.assert_one(self.faults({**long, "tools/over_budget.txt": "src/base/a.h 401\n"}), "src/base/a.h:402:", "only shrinks")
        self.assert_one(self.faults({**long, "tools/over_budget.txt": "src/base/a.h 500\n"}), "tools/over_budget.txt:1:", "lower the number")
        short = {"src/base/a.h": SPDX + "#pragma once\n", "tools/over_budget.txt": "src/base/a.h 402\nsrc/gone.h 500\n"}
        self.assertEqual(len(self.faults(short)), 2)


if __name__ == "__main__":
    unittest.main()
