#!/usr/bin/env python3
"""scripts/check_kube_proto finds what differs, in definitions made here.

    check_kube_proto_test.py
"""
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "scripts/check_kube_proto"
API = """
syntax = "proto3";
package v9;
/* a service */
service Pods {
  rpc List(ListRequest) returns (ListResponse) {}
  rpc Watch(ListRequest) returns (stream Event);
}
message ListRequest { reserved 2, 4 to 6; }
message ListResponse { repeated bytes pods = 1; repeated int64 cpus = 2; Topology where = 3; }
enum Kind { NONE = 0; ADDED = 1; }
message Event { Kind kind = 1; oneof what { bytes pod = 2; string name = 3; } }
message Topology { repeated NumaNode nodes = 1 [(some.option) = "x;}"]; }
message NumaNode { int64 ID = 1; }
"""
CORE = """
syntax = "proto2";
package k8s.core;
import "meta.proto";
message Pod { optional .k8s.meta.ObjectMeta metadata = 1; optional string phase = 4; }
"""
META = """
syntax = "proto2";
package k8s.meta;
// "quoted {" and more
message ObjectMeta { optional string name = 1; map<string, string> annotations = 12; }
"""
OURS = """
syntax = "proto3";
package v9;
service Pods {
  rpc List(ListRequest) returns (ListResponse);
  rpc Watch(ListRequest) returns (stream Event);
}
message ListRequest {}
message ListResponse { repeated bytes pods = 1; repeated int64 cpus = 2; Topology where = 3; }
enum Kind { NONE = 0; ADDED = 1; }
message Event { Kind kind = 1; bytes pod = 2; }
message Topology { message Node { int64 ID = 1; } repeated Node nodes = 1; }
message ObjectMeta { string name = 1; map<string, string> annotations = 12; }
message Pod { ObjectMeta metadata = 1; }
"""


class Check(unittest.TestCase):
    def run_it(self, ours, api=API, core=CORE, meta=META):
        with tempfile.TemporaryDirectory() as folder:
            paths = []
            for name, text in (("ours", ours), ("api", api), ("core", core), ("meta", meta)):
                if text:
                    paths.append(Path(folder) / f"{name}.proto")
                    paths[-1].write_text(text)
            done = subprocess.run([SCRIPT, "--ours", *paths], capture_output=True, text=True,
                                  timeout=60, check=False)
            return done.returncode, done.stdout + done.stderr

    def test_equal(self):
        code, said = self.run_it(OURS)
        self.assertEqual(code, 0, said)
        self.assertIn("equal are 10 fields, 2 values of enums, 2 methods; 0 differences", said)

    def test_each_difference(self):
        for old, new, word in (
                ("cpus = 2", "cpus = 5", "cpus = 5: v9.ListResponse has cpus = 2"),
                ("cpus = 2", "cores = 2", "cores = 2: v9.ListResponse has cpus = 2"),
                ("repeated int64 cpus", "repeated int32 cpus", "repeated int64 packed"),
                ("repeated int64 cpus", "int64 cpus", "cpus = 2: int64;"),
                ("cpus = 2;", "cpus = 2 [packed = false];", "repeated int64;"),
                ("repeated bytes pods", "repeated string pods", "pods = 1: repeated string"),
                ("cpus = 2;", "cpus = 2; bool more = 9;", "more = 9: v9.ListResponse has no such"),
                ("int64 ID", "int64 id", "v9.Topology.Node.id = 1: v9.NumaNode has ID = 1"),
                ("NONE = 0; ADDED = 1", "ADDED = 0", "ADDED = 0"),
                ("map<string, string> annotations", "map<string, bytes> annotations", "map<string"),
                ("map<string, string> annotations", "repeated string annotations", "map<string"),
                ("package v9", "package v8", "service v8.Pods: in none"),
                ("returns (ListResponse)", "returns (stream ListResponse)", "Pods/List"),
                ("rpc List(", "rpc ListPods(", "Pods/ListPods: in none"),
                ("message Pod {", "message Bod {", "v9.Bod: in none"),
                ("ObjectMeta metadata", "Topology metadata", "v9.Topology;")):
            with self.subTest(f"{old} -> {new}"):
                self.assertIn(old, OURS)
                code, said = self.run_it(OURS.replace(old, new))
                self.assertEqual(code, 1, said)
                self.assertIn(word, said)

    def test_a_definition_that_is_not_given(self):
        code, said = self.run_it(OURS, meta="")
        self.assertEqual(code, 1, said)
        self.assertIn("none of the files given has it", said)
        self.assertEqual(self.run_it('syntax = "proto3"; package v9; message Pod {}')[0], 1)

    def test_what_is_no_definition(self):
        for text in ("message {", "message A { string a = x; }", "message A { string a = 1",
                     "\x00", "message A { string a 1; }"):
            code, said = self.run_it(text)
            self.assertEqual(code, 2, (text, said))
            self.assertIn("ours.proto", said)
            self.assertNotIn("Traceback", said)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], "-v", *sys.argv[1:]])
