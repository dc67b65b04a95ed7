#!/usr/bin/env python3
"""Makes the wheel of clients/python: pure Python, without dependencies. It needs Python 3.11 and
nothing else, no pip and no network, since a wheel of that kind is the sources and three files of
text in a zip (packaging.python.org, "Binary distribution format").

    make_wheel.py FOLDER      prints the wheel's path
"""
import base64
import hashlib
import re
import sys
import tomllib
import zipfile
from pathlib import Path

SOURCES = Path(__file__).resolve().parents[1] / "clients/python"
TAG = "py3-none-any"


def _files(project):
    """The wheel's modules, by their path in it."""
    tool = project["tool"]["setuptools"]
    out = {f"{name}.py": SOURCES / f"{name}.py" for name in tool["py-modules"]}
    for package in tool["packages"]:
        out |= {f"{package}/{path.name}": path for path in (SOURCES / package).glob("*.py")}
    return {name: path.read_bytes() for name, path in sorted(out.items())}


def _metadata(about, version):
    if about["dependencies"]:
        raise SystemExit("make_wheel: dependencies are not written: the package has none")
    return (f"Metadata-Version: 2.1\nName: {about['name']}\nVersion: {version}\n"
            f"Summary: {about['description']}\nRequires-Python: {about['requires-python']}\n")


def _record(files, own):
    lines = []
    for name, text in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(text).digest()).rstrip(b"=").decode()
        lines.append(f"{name},sha256={digest},{len(text)}\n")
    return "".join(lines) + f"{own},,\n"


def make_wheel(folder):
    project = tomllib.loads((SOURCES / "pyproject.toml").read_text())
    about = project["project"]
    code = (SOURCES / about["name"] / "__init__.py").read_text()
    version = re.search(r'^__version__ = "([^"]+)"$', code, re.M)[1]
    info = f"{about['name']}-{version}.dist-info"
    files = _files(project)
    files[f"{info}/METADATA"] = _metadata(about, version).encode()
    files[f"{info}/WHEEL"] = (f"Wheel-Version: 1.0\nGenerator: make_wheel\n"
                              f"Root-Is-Purelib: true\nTag: {TAG}\n").encode()
    files[f"{info}/RECORD"] = _record(files, f"{info}/RECORD").encode()
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{about['name']}-{version}-{TAG}.whl"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as out:
        for name, text in files.items():
            # The first day that a zip can have: the same sources give the same file.
            entry = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = 0o644 << 16
            out.writestr(entry, text)
    return path


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    print(make_wheel(sys.argv[1]))
