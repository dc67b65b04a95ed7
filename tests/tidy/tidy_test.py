#!/usr/bin/env python3
"""Each rule of tidy.py finds what it is for, and leaves alone what it must."""

import sys
import tempfile
import unittest
from pathlib import Path

import file_index
import members
import tidy
import words

LAYERS = tidy.Layers((tidy.HERE / "layers.txt").read_text())
BANNED = tidy.read_banned((tidy.HERE / "banned.txt").read_text())


def lines(findings):
    return [(f.line, f.rule) for f in findings]


class Sizes(unittest.TestCase):
    def test_data_members_are_counted(self):
        code = tidy.blank_text("""
            namespace derate {
            struct Options { int a = 0, b = 1; std::map<int, std::string> c = {}; };
            class Worker : public Base {
             public:
              explicit Worker(Options options) : options_(options) { run(); }
              static constexpr int kMost = 3;
              using Json = int;
              enum class Stage { reference, look };
              void run() const;
              Worker& operator=(const Worker&) = delete;
             private:
              struct Row { Instant time{}; Joules energy{}; };
              std::function<void(int, int)> on_tick_ = [](int, int) {};  // a, b
              CommandRouter operators_{Role::admin}, clients_{Role::user};
              std::vector<std::pair<int, double>> rows_;
              struct Count { double time = 0; } first_, second_;
              Options options_;
            };
            }
        """)
        self.assertEqual(members.members(code), {"Options": 3, "Worker": 7, "Worker::Row": 2,
                                                 "Worker::Count": 1})

    def test_a_class_may_only_shrink(self):
        large = {"a.h::Wide": 40}
        self.assertEqual(list(members.check_members({"a.h::Wide": 40, "a.h::B": 30}, large)), [])
        for found in ({"a.h::Wide": 41}, {"a.h::Wide": 39}, {}, {"a.h::Wide": 40, "a.h::B": 31}):
            self.assertEqual(len(list(members.check_members(found, large))), 1, found)

    def test_a_folder_is_not_too_full(self):
        lines = "x\n" * 3000
        full = {"src/a/b.cc": lines, "src/a/c.h": lines}
        self.assertEqual([name for name, _ in members.check_folders(full)], ["src/a"])
        tests = {"src/a/b.cc": lines, "src/a/b_test.cc": lines, "src/a/test_b.h": lines}
        self.assertEqual(list(members.check_folders(tests)), [])


class Share(unittest.TestCase):
    def test_programs_keep_to_their_share(self):
        texts = {"src/a/b.cc": "\n" * 796, "apps/d/e.cc": "\n" * 204, "apps/d/e_test.cc": "\n" * 99}
        self.assertEqual(list(members.check_share(texts)), [])
        texts["apps/d/f.h"] = "\n" * 9
        self.assertEqual([folder for folder, _ in members.check_share(texts)], ["apps"])


class Index(unittest.TestCase):
    def test_first_sentences(self):
        for text, sentence in (
                ("// Counts, e.g. of GPUs. More.\n#pragma once\n", "Counts, e.g. of GPUs"),
                ("/* The page\n * of launches. It is shared. */\nint a;\n", "The page of launches"),
                ("// One\n// sentence\n\n// another\n", "One sentence"),
                ("#pragma once\n// late\n", "")):
            self.assertEqual(file_index.first_sentence(text), sentence)

    def test_riddles(self):
        for sentence in ("What is known of a chip", "Who may ask", "Clients, beside the loop",
                         "Prior watts, believed until the first reading",
                         "Whether a lock holds", "How late rounds begin"):
            self.assertTrue(file_index.is_riddle(sentence), sentence)
        for sentence in ("Rate limit of requests", "Onetime codes", "The prior of a chip's watts"):
            self.assertFalse(file_index.is_riddle(sentence), sentence)
        for text in ("// Requests. Whatever carries them, they are the same.\n#include <a>\n",
                     "/* Counts. A reader.\n *\n * Where there are none, none is told. */\n"):
            self.assertTrue(file_index.later_riddle(text), text)
        for text in ("// What it is.\n", "// Counts. They only grow.\n\n// What follows.\n", ""):
            self.assertEqual(file_index.later_riddle(text), "")

    def test_each_stem_once_and_no_tests(self):
        texts = {"src/a/b.h": "// B.\n", "src/a/b.cc": "", "src/a/c.cc": "// C.\n",
                 "src/a/b_test.cc": "// T.\n", "src/a/test_b.h": "// T.\n", "docs/d.h": "// D.\n"}
        made = file_index.index(texts)
        self.assertIn("**src/a**\n\n- `b`: B\n- `c`: C\n", made)
        self.assertNotIn("T", made.split("**src/a**")[1])

    def test_the_page_is_compared(self):
        texts = {"src/a/b.h": "// B.\n"}
        page = file_index.with_index("# Title\n", texts)
        self.assertEqual(file_index.with_index(page, texts), page)
        texts["ARCHITECTURE.md"] = page
        self.assertEqual(list(tidy.check_index(texts)), [])
        texts["src/a/b.h"] = "// Another.\n"
        self.assertEqual([found.path for found in tidy.check_index(texts)], ["ARCHITECTURE.md"])
        texts["src/a/d.h"] = "#pragma once\n"
        self.assertEqual(len(list(tidy.check_index(texts))), 2)
        texts["src/a/d.h"] = "// What is in it.\n"
        self.assertEqual(len(list(tidy.check_index(texts))), 2)
        texts["src/a/d.h"] = "// D. Who needs it says so.\n"
        self.assertEqual(len(list(tidy.check_index(texts))), 2)
        texts["ARCHITECTURE.md"] = "# Title\n"
        self.assertEqual(len(list(tidy.check_index(texts))), 2)


class Sentences(unittest.TestCase):
    def check(self, path, text):
        lines = text.splitlines()
        return [line for line, _ in words.check_words(
            path, text, {number: line for number, line in enumerate(lines, 1)})]

    def test_words_that_say_too_little(self):
        self.assertEqual(self.check("docs/a.md", "The guard is told.\nIt is logged.\n"), [1])
        self.assertEqual(self.check("src/a.cc", "int told = 1;  // as believed\n"), [1])
        for path, text in [("docs/a.md", "`told` and \"asked\"\n"), ("src/a.cc", "int told = 1;\n"),
                           ("docs/a.md", "```\nasked\n```\n"), ("a.txt", "told\n")]:
            self.assertEqual(self.check(path, text), [], text)

    def test_sentences_that_begin_with_a_bare_word(self):
        one = "What is read is kept. Others go.\n"
        self.assertEqual(self.check("docs/a.md", one), [])
        self.assertEqual(self.check("docs/a.md", one + "Who asks waits. One waits long.\n"), [1])
        self.assertEqual(self.check("docs/a.md", "What is it? Who asks? A user.\n"), [])
        self.assertEqual(self.check("docs/a.md", one + "\n" + one), [])

    def test_comments_that_begin_a_sentence_with_a_bare_word(self):
        def check(path, text, changed=(1, 2, 3, 4)):
            return [line for line, _ in words.check_comments(path, text, dict.fromkeys(changed))]

        for text in ("// What is read.\n", "int a;\n// A page. Where it ends,\n// none is.\n",
                     "# Reads. Who reads waits.\n",
                     "/*\n * It waits: whatever comes.\n * Who asks.\n"):
            self.assertEqual(len(check("src/a.py", text)), 1, text)
        for text in ("// The page that was read.\n", "// Who reads it?\n",
                     "int a;  // What it is.\n",
                     "// One page of two.\n", "// `What is read.`\n", "#include <a>\n"):
            self.assertEqual(check("src/a.cc", text), [], text)
        self.assertEqual(check("src/a.cc", "// What is read.\n", (7,)), [])
        self.assertEqual(check("docs/a.md", "# What is read.\n"), [])

    def test_lines_that_move_are_left_alone(self):
        diff = ("--- a/docs/a.md\n+++ b/docs/a.md\n@@ -1 +0,0 @@\n-It is told.\n"
                "--- a/docs/b.md\n+++ b/docs/b.md\n@@ -0,0 +5,2 @@\n+  It is told.\n+It is new.\n")
        self.assertEqual(words.added_lines(diff), {"docs/b.md": {6: "It is new."}})


class LayerRules(unittest.TestCase):
    def check(self, path, *included, files=()):
        text = "#pragma once\n" + "".join(f"#include {i}\n" for i in included)
        return [f.rule for f in LAYERS.check(path, text, files.__contains__)]

    def test_includes_point_down_only(self):
        for path, include in [
                ("src/base/a.h", '"core/sample.h"'),
                ("src/core/a.h", '"model/fold_line.h"'),
                ("src/model/a.cc", '"policy/policy.h"'),
                ("src/policy/a.cc", '"device/telemetry_source.h"'),
                ("src/tune/a.cc", '"device/telemetry_source.h"'),
                ("src/attrib/a.cc", '"store/history.h"'),
                ("src/device/nvml/a.cc", '"device/sim/sim_gpu.h"'),
                ("src/device/a.h", '"device/sim/sim_gpu.h"'),
                ("src/telemetry/a.cc", '"tune/bandit.h"'),
                ("src/tune/a.cc", '"govern/governor.h"'),
                ("src/govern/a.cc", '"device/nvml/nvml_device.h"'),
                ("src/govern/a.cc", '"lab/runner.h"'),
                ("src/lab/a.cc", '"service/http/http_server.h"'),
                ("src/service/answers/a.cc", '"apps/derate/main.h"'),
                ("apps/derate/a.cc", '"apps/derated/worker.h"'),
                ("apps/derated/a.cc", '"lab/runner.h"'),
                ("fakenvml/a.cc", '"govern/governor.h"'),
                ("fakenvml/a.cc", '"device/nvml/nvml_library.h"')]:
            self.assertEqual(self.check(path, include), ["layers"], (path, include))

    def test_what_is_below_may_be_included(self):
        for path, include in [
                ("src/base/a.cc", '"base/units.h"'),
                ("src/policy/assure/a.cc", '"model/fold_line.h"'),
                ("src/device/sim/a.h", '"device/telemetry_source.h"'),
                ("src/device/contract_test.cc", '"device/sim/sim_gpu.h"'),
                ("src/govern/a.cc", '"telemetry/sampler.h"'),
                ("src/govern/a_test.cc", '"device/sim/sim_gpu.h"'),
                ("src/lab/a.cc", '"device/sim/sim_gpu.h"'),
                ("apps/common/a.cc", '"device/nvml/nvml_device.h"'),
                ("fakenvml/a.cc", '"device/nvml/nvml_abi.h"'),
                ("tests/fuzz/a.cc", '"govern/governor.h"')]:
            self.assertEqual(self.check(path, include), [], (path, include))

    def test_paths_start_at_src(self):
        self.assertEqual(self.check("src/core/a.cc", '"sample.h"', files={"src/core/sample.h"}),
                         ["layers"])
        self.assertEqual(self.check("src/core/a.cc", '"fmt/format.h"'), ["layers"])
        self.assertEqual(self.check("src/core/a.cc", "<base/units.h>", files={"src/base/units.h"}),
                         ["layers"])
        self.assertEqual(self.check("apps/derate/a.cc", '"command_options.h"',
                                    files={"apps/derate/command_options.h"}), [])

    def test_a_folder_without_a_line_is_found(self):
        self.assertEqual(self.check("src/helpers/a.h", "<vector>"), ["layers"])

    def test_third_party_headers_are_fenced(self):
        for header, inside, outside in [
                ("<boost/beast/http.hpp>", "src/service/http/a.cc", "src/service/answers/a.cc"),
                ("<SQLiteCpp/SQLiteCpp.h>", "src/store/database.cc", "src/govern/a.cc"),
                ("<Eigen/Dense>", "src/model/fit.cc", "src/model/fit.h"),
                ("<Eigen/Core>", "src/attrib/split.cc", "src/policy/a.cc"),
                ("<toml++/toml.h>", "src/config/config.cc", "src/config/config.h"),
                ("<CLI/CLI.hpp>", "apps/derate/main.cc", "src/config/a.cc"),
                ("<nlohmann/json.hpp>", "src/base/json.h", "src/core/record.cc"),
                ("<gtest/gtest.h>", "src/core/a_test.cc", "src/core/a.cc")]:
            self.assertEqual(self.check(inside, header), [], (inside, header))
            self.assertEqual(self.check(outside, header), ["fence"], (outside, header))

    def test_nvml_and_the_knobs_are_fenced(self):
        knob = '"device/clock_control.h"'
        for path in ("src/govern/actuator.cc", "src/govern/actuator.h", "src/device/sim/a.h",
                     "src/lab/a.cc", "src/govern/a_test.cc", "apps/derate/a.cc",
                     "tests/fault/a.cc"):
            self.assertEqual(self.check(path, knob), [], path)
        self.assertEqual(self.check("src/govern/governor.cc", knob), ["fence"])
        self.assertEqual(self.check("src/device/other.h", knob), ["fence"])
        self.assertIn("fence", self.check("src/lab/a.cc", '"device/nvml/nvml_abi.h"'))

    def test_never_means_not_even_by_way_of_others(self):
        files = {"src/tune/arms.cc": '#include "telemetry/sampler.h"\n',
                 "src/telemetry/sampler.h": '#include "telemetry/source.h"\n',
                 "src/telemetry/source.h": '#include "device/telemetry_source.h"\n',
                 "src/telemetry/window.h": '#include "core/sample.h"\n',
                 "src/govern/governor.cc": '#include "telemetry/sampler.h"\n'}
        found = list(LAYERS.check_never(files))
        self.assertEqual([(f.path, f.line) for f in found], [("src/tune/arms.cc", 1)])
        files["src/tune/arms.cc"] = '#include "telemetry/window.h"\n'
        self.assertEqual(list(LAYERS.check_never(files)), [])


class CodeRules(unittest.TestCase):
    def test_pragma_once(self):
        check = tidy.check_pragma_once
        self.assertEqual(len(list(check("src/a.h", "#include <vector>\n#pragma once\n"))), 1)
        self.assertEqual(len(list(check("src/a.h", "// #pragma once\n"))), 1)
        self.assertEqual(list(check("src/a.h", "// What it is.\n#pragma once\n")), [])
        self.assertEqual(list(check("src/a.cc", "#include <vector>\n")), [])

    def test_own_header_first(self):
        def check(text):
            return list(tidy.check_own_header_first("src/b/a.cc", text, {"src/b/a.h"}.__contains__))
        self.assertEqual(lines(check('#include <vector>\n#include "b/a.h"\n')), [(1, "own-header")])
        self.assertEqual(lines(check("int a;\n")), [(1, "own-header")])
        self.assertEqual(check('// Why.\n#include "b/a.h"\n#include <vector>\n'), [])

    def function(self, head, body_lines):
        return head + " {\n" + "  f();\n" * body_lines + "}\n"

    def test_long_functions_are_found(self):
        for head in ("void f()", "std::string T::f(int a,\n     int b) const noexcept", "TEST()",
                     "T::T() : a_{1}, b_(2)", "template <class F>\nauto f(F g) -> int",
                     "bool operator()(int a) const", 'extern "C" int f()', "int f(int a = {})"):
            most = tidy.MAX_FUNCTION_LINES - 2 - head.count("\n")
            for wrap in ("{}", "namespace n {{\n{}}}\n", "class C {{\n public:\n{}}};\n",
                         "struct S final : B<int> {{\n{}}};\n", 'extern "C" {{\n{}}}\n',
                         "int k[] = {{1, 2}};\n#define M(a) \\\n  {{ a\n{}"):
                fits = wrap.format(self.function(head, most))
                self.assertEqual(list(tidy.check_function_length("a.cc", fits)), [], fits[:80])
                long = wrap.format(self.function(head, most + 1))
                self.assertEqual([f.rule for f in tidy.check_function_length("a.cc", long)],
                                 ["function-length"], long[:80])

    def test_tables_and_classes_may_be_long(self):
        table = "constexpr Row kTable[] = {\n" + '  {1, f(2), "){"},\n' * 200 + "};\n"
        calls = "const auto k = make({\n" + "  {1, 2},\n" * 200 + "});\n"
        members = "class C {\n" + "  int f() const { return 1; }\n" * 200 + "};\n"
        for text in (table, calls, members, table + members + "enum class E { a, b };\n"):
            self.assertEqual(list(tidy.check_function_length("a.cc", text)), [], text[:60])

    def test_the_line_is_that_of_the_function(self):
        text = "// { ( \n\nint a = 1'000;\n" + self.function("void f()", 90)
        found = tidy.check_function_length("a.cc", text)
        self.assertEqual(lines(found), [(4, "function-length")])

    def test_try_in_braces(self):
        for bad in ("Run run{.name = f(), .wanted = TRY(g())};", "return {a, TRY(b)};",
                    "f({a,\n   h(1, TRY(b))});", "void f() { g(); T t{a, {b}, T{TRY(c)}}; }"):
            found = list(tidy.check_try_in_braces("a.cc", bad))
            self.assertEqual([f.rule for f in found], ["try-in-braces"], bad)
        for good in ("void f() { const int a = TRY(b); g(a, TRY(c)); }", "return {TRY(a), b};",
                     "void f() { int a = 1, b = 2; TRY(g()); }", "for (T a : {1, 2}) TRY(f(a));",
                     "f([a, b] { g(a, b); return TRY(c); });", "// {a, TRY(b)}",
                     "class T : A, B { map<a, b> f() { g(); } T h() { return TRY(c); } };",
                     "T t{a, RETRY(b)};"):
            self.assertEqual(list(tidy.check_try_in_braces("a.cc", good)), [], good)

    def test_banned_calls(self):
        bad = {
            "clock": ["auto t = std::chrono::steady_clock::time_point();",
                      "std::chrono::system_clock c;", "auto t = Foo::now();", "time(NULL);",
                      "gettimeofday(&t, 0);", "clock_gettime(0, &t);", "std::time(nullptr);"],
            "sleep": ["usleep(1);", "sleep(1);", "::sleep(1);", "nanosleep(&t, nullptr);",
                      "std::this_thread::sleep_for(1s);"],
            "random": ["rand();", "std::rand();", "srand(1);", "std::random_device d;"],
            "numbers": ["atoi(s);", "std::atof(s);", "strtod(s, &e);", "std::stoi(s);",
                        "std::stod(s);", "strtoul(s, &e, 10);"],
            "sprintf": ["sprintf(b, s);", "std::vsprintf(b, s, v);"],
            "strcpy": ["strcpy(a, b);", "std::strcat(a, b);", "strtok(a, b);"],
            "regex": ["std::regex r;", "std::regex_match(a, b);"],
            "using-std": ["using namespace std;"],
            "assert": ["assert(a);", "#include <cassert>"],
            "exit": ["exit(1);", "std::exit(1);", "::_exit(1);", "std::quick_exit(1);"]}
        self.assertEqual(set(bad), {rule for rule, _, _ in BANNED}, "a rule has no bad snippet")
        for rule, snippets in bad.items():
            for snippet in snippets:
                found = {f.rule for f in tidy.check_banned("a.cc", "\n" + snippet, BANNED)}
                self.assertEqual(found, {rule}, snippet)

    def test_what_only_looks_banned(self):
        for good in ("clock.now();", "clock_->sleep_until(t);", "static_assert(a);",
                     "using namespace std::chrono_literals;", "snprintf(b, n, s);", "// rand()",
                     'say("exit(1)");', 'R"x(assert(a) ")x";', "operand(1);", "next_exit(1);",
                     "exit_code_of(e);", "Instant time{};", "/* sleep(1);\n sleep(2); */",
                     "char c = '\"'; // sleep(1)", "int k = 1'000'000; f('a');"):
            self.assertEqual(list(tidy.check_banned("a.cc", good, BANNED)), [], good)


class TextRules(unittest.TestCase):
    def test_columns(self):
        self.assertEqual(lines(tidy.check_columns("a.cc", "a\n" + "b" * 101)), [(2, "columns")])
        self.assertEqual(list(tidy.check_columns("a.cc", "°" * 100)), [])

    def test_weight(self):
        self.assertEqual(lines(tidy.check_weight("a.lab", 2_500_000)), [(1, "weight")])
        self.assertEqual(list(tidy.check_weight("a.html", 280_164)), [])

    def test_markers(self):
        for word in ("TODO", "FIXME", "XXX", "HACK"):
            self.assertEqual(lines(tidy.check_words("a.md", f"\n// {word}: x")), [(2, "markers")])
        self.assertEqual(list(tidy.check_words("a.sh", "mktemp /tmp/a.XXXXXX; HACKER")), [])

    def test_paths_of_a_machine(self):
        for path in ("/home/me/x", "see /root/x", '"/' 'work/x"', "=/Users/me/"):
            self.assertEqual(lines(tidy.check_words("a.md", path)), [(1, "paths")], path)
        for path in ("src/home/x", "~/home/x", "$HOME/home/", "https://a.b/root/x", "/run/derate/"):
            self.assertEqual(list(tidy.check_words("a.md", path)), [], path)

    def test_commit_titles(self):
        for bad in ("Add a thing", "core: add a thing.", "core:add", "core: added a thing",
                    "core: adding a thing", "core: fixes a thing", "core: add " + "x" * 63, "wip"):
            self.assertTrue(list(tidy.check_title("abc1234", bad)), bad)
        for good in ("core: add a thing", "base, core: lay the house's foundation",
                     "tests/cli: feed the runner", "README: name both commands",
                     "core: add " + "x" * 62):
            self.assertEqual(list(tidy.check_title("abc1234", good)), [], good)


class Repository(unittest.TestCase):
    def test_a_tree_without_git_is_checked_and_exceptions_hold(self):
        with tempfile.TemporaryDirectory() as folder:
            root = Path(folder)
            for path, text in {"src/base/clock.cc": "// Time.\nclock_gettime(a, b);\n",
                               "src/base/other.cc": "// Else.\nclock_gettime(a, b);\n",
                               "docs/a.md": "see /home/me/x\n",
                               "scripts/run": "#!/bin/sh\n",
                               "build/src/base/x.cc": "sleep(1);\n"}.items():
                (root / path).parent.mkdir(parents=True, exist_ok=True)
                (root / path).write_text(text)
            found = {(f.path, f.rule) for f in tidy.check_repository(root)}
        self.assertEqual(found, {("src/base/other.cc", "clock"), ("docs/a.md", "paths"),
                                 ("scripts/run", "executable")})

    def test_a_header_of_ours_hides_in_no_angle_brackets(self):
        files = ("src/wire/derate_beat.h",)
        for path, rules in [("src/base/a.cc", ["layers"]), ("progress/a.c", [])]:
            found = LAYERS.check(path, "#include <derate_beat.h>\n", files.__contains__)
            self.assertEqual([f.rule for f in found], rules, path)

    def test_commits_of_a_repository_are_read(self):
        with tempfile.TemporaryDirectory() as folder:
            run = ("-c", "user.name=a", "-c", "user.email=a@b", "commit", "--allow-empty", "-qm")
            if tidy.git(folder, "init", "-q") is None:
                self.skipTest("no git")
            for title in ("core: add a thing", "Made changes"):
                self.assertIsNotNone(tidy.git(folder, *run, title))
            found = [f.todo for f in tidy.check_repository(Path(folder))]
        self.assertEqual(len(found), 1)
        self.assertIn("Made changes", found[0])

    def test_data_files_are_whole(self):
        rules = {rule for rule, _, _ in BANNED} | {"layers", "fence", "pragma-once", "own-header",
                                                   "function-length", "try-in-braces", "columns",
                                                   "markers", "paths", "executable"}
        for line in tidy.data_lines((tidy.HERE / "allow.txt").read_text()):
            rule, _, reason = line.split(None, 2)
            self.assertIn(rule, rules)
            self.assertGreater(len(reason), 10, f"{line}: give the reason")
        for folder, allowed in LAYERS.may.items():
            for name in allowed:
                self.assertTrue(name == "*" or LAYERS.folder_of(name + "/x.h") == name
                                or name.endswith(".h"), f"{folder}: {name} has no line of its own")


if __name__ == "__main__":
    sys.dont_write_bytecode = True
    unittest.main()
