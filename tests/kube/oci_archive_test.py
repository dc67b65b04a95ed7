#!/usr/bin/env python3
"""The image's archive (packaging/kubernetes/image/oci_archive.py): the same files give the same
bytes, each digest is that of its blob, and the layers give the files back.

    oci_archive_test.py
"""
import gzip
import hashlib
import io
import json
import os
import subprocess
import sys
import tarfile
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "packaging/kubernetes/image/oci_archive.py"
CONFIG = ROOT / "packaging/kubernetes/image/config.json"


def run(*arguments):
    done = subprocess.run([sys.executable, "-B", SCRIPT, *arguments], capture_output=True,
                          text=True, timeout=60,
                          env={**os.environ, "SOURCE_DATE_EPOCH": "1700000000"})
    if done.returncode != 0:
        raise AssertionError(done.stdout + done.stderr)
    return done.stdout


def make_tree(root, first=""):
    """Files in an order that depends on `first`: what a folder lists first is chance."""
    names = ["etc/a", "etc/b", "etc/old/c", "etc/old/d", "usr/bin/x", "dev/null", "run/pid"]
    for name in sorted(names, reverse=first == "z"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(name)
    (root / "usr/bin/x").chmod(0o755)
    os.link(root / "usr/bin/x", root / "usr/bin/y")
    (root / "bin").symlink_to("usr/bin")


def names_in(layer):
    with gzip.open(layer) as file, tarfile.open(fileobj=io.BytesIO(file.read())) as tar:
        return {each.name: each for each in tar}


class OciArchive(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def layers(self, name):
        """(first, second) of a tree that is changed between them."""
        here = self.folder / name
        root = here / "root"
        root.mkdir(parents=True)
        make_tree(root, name)
        run("layer", root, here / "1", "--state", here / "state")
        (root / "etc/new").write_text("new")
        (root / "etc/a").chmod(0o600)
        (root / "etc/b").unlink()
        for old in ("c", "d"):
            (root / "etc/old" / old).unlink()
        (root / "etc/old").rmdir()
        run("layer", root, here / "2", "--since", here / "state")
        return here / "1", here / "2"

    def archive(self, name, layers):
        to = self.folder / f"{name}.tar"
        said = run("archive", to, "--layer", f"Debian={layers[0]}", "--layer",
                   f"Derate={layers[1]}", "--config", CONFIG, "--name", "derate:1")
        return to, said

    def test_the_first_layer_has_all_but_what_a_runtime_mounts(self):
        found = names_in(self.layers("a")[0])
        self.assertEqual(list(found), ["bin", "dev", "etc", "etc/a", "etc/b", "etc/old",
                                       "etc/old/c", "etc/old/d", "run", "usr", "usr/bin",
                                       "usr/bin/x", "usr/bin/y"])
        self.assertEqual(found["usr/bin/y"].linkname, "usr/bin/x")
        self.assertEqual(found["bin"].linkname, "usr/bin")
        self.assertEqual(found["usr/bin/x"].mode, 0o755)
        for each in found.values():
            self.assertLessEqual(each.mtime, 1700000000)
            self.assertEqual((each.uid, each.uname), (os.getuid(), ""))

    def test_the_second_has_what_changed(self):
        self.assertEqual(set(names_in(self.layers("a")[1])),
                         {"etc/a", "etc/new", "etc/.wh.b", "etc/.wh.old"})

    def test_the_same_files_give_the_same_bytes(self):
        a, said = self.archive("a", self.layers("a"))
        z, _ = self.archive("z", self.layers("z"))
        self.assertEqual(a.read_bytes(), z.read_bytes())
        self.assertRegex(said, r"(?m)^ +0\.0 MB  Debian\n +0\.0 MB  Derate\n +\d+\.\d MB  in all\n"
                               r"sha256:[0-9a-f]{64}  ")

    def test_digests_are_those_of_the_blobs(self):
        with tarfile.open(self.archive("a", self.layers("a"))[0]) as tar:
            files = {each.name: tar.extractfile(each).read() for each in tar if each.isreg()}
        self.assertEqual(json.loads(files["oci-layout"]), {"imageLayoutVersion": "1.0.0"})

        def blob(descriptor):
            data = files["blobs/" + descriptor["digest"].replace(":", "/")]
            self.assertEqual(len(data), descriptor["size"])
            self.assertEqual("sha256:" + hashlib.sha256(data).hexdigest(), descriptor["digest"])
            return data
        entry = json.loads(files["index.json"])["manifests"][0]
        manifest = json.loads(blob(entry))
        config = json.loads(blob(manifest["config"]))
        self.assertEqual([hashlib.sha256(gzip.decompress(blob(each))).hexdigest()
                          for each in manifest["layers"]],
                         [each.removeprefix("sha256:") for each in config["rootfs"]["diff_ids"]])
        self.assertEqual(config["config"], json.loads(CONFIG.read_text()))
        self.assertEqual(entry["annotations"]["org.opencontainers.image.ref.name"], "1")
        self.assertEqual(len(files), 2 + 2 + 2)

    def test_a_device_is_refused(self):
        root = self.folder / "root"
        root.mkdir()
        os.mkfifo(root / "pipe")
        with self.assertRaisesRegex(AssertionError, "pipe: neither file, folder nor link"):
            run("layer", root, self.folder / "1")


if __name__ == "__main__":
    unittest.main(verbosity=2)
