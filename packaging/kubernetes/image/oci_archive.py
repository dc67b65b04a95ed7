#!/usr/bin/env python3
"""Makes an image for containers (OCI image format 1.1) of folders, without a container tool.

    oci_archive.py layer ROOT LAYER.tar.gz [--since STATE] [--state STATE]
    oci_archive.py archive IMAGE.tar --layer TITLE=LAYER.tar.gz ... --config FILE [--name NAME]

layer    the files of ROOT; with --since only those that are new or changed since that state, and
         marks for those that have gone; --state writes the state of ROOT for the next layer
archive  the layers in this order and the configuration, as a tar for `skopeo copy oci-archive:...`,
         `podman load` and `ctr images import`; prints the size of each part

The same files give the same bytes: names are sorted, owners are numbers, no time is later than
SOURCE_DATE_EPOCH (default 0), and nothing in /dev, /proc, /run, /sys and /tmp is taken.
"""
import argparse
import gzip
import hashlib
import io
import json
import os
import stat
import sys
import tarfile
from datetime import datetime, timezone
from pathlib import Path

# Mounted by the runtime; folders stay, empty.
EMPTY = ("dev", "proc", "run", "sys", "tmp")
CAPABILITY = "security.capability"
MACHINES = {"x86_64": "amd64", "aarch64": "arm64"}


def epoch():
    return int(os.environ.get("SOURCE_DATE_EPOCH", "0"))


def sha256(path):
    total = hashlib.sha256()
    with open(path, "rb") as file:
        while piece := file.read(1 << 20):
            total.update(piece)
    return total.hexdigest()


def paths_of(root):
    """Relative paths of all that is below `root`, folders before what lies in them."""
    out = []
    for folder, folders, files in os.walk(root):
        relative = os.path.relpath(folder, root)
        prefix = "" if relative == "." else relative + "/"
        out += [prefix + name for name in folders + files]
        if prefix == "":
            folders[:] = [name for name in folders if name not in EMPTY]
    return sorted(out, key=lambda path: path.split("/"))


def state_of(root, path):
    """All that a layer keeps of a file, as text: of a folder no time."""
    full = os.path.join(root, path)
    info = os.lstat(full)
    what = ""
    if stat.S_ISREG(info.st_mode):
        what = f"{min(int(info.st_mtime), epoch())} {sha256(full)} {capability(full).hex()}"
    elif stat.S_ISLNK(info.st_mode):
        what = os.readlink(full)
    return f"{info.st_mode:o} {info.st_uid} {info.st_gid} {what}"


def capability(full):
    try:
        return os.getxattr(full, CAPABILITY, follow_symlinks=False)
    except OSError:
        return b""


def gone(before, now):
    """Marks for what has gone; one for a folder, none for what lay in it."""
    out = []
    for path in sorted(before.keys() - now.keys(), key=lambda path: path.split("/")):
        parent = os.path.dirname(path)
        if parent in before and parent not in now:
            continue
        out.append(os.path.join(parent, ".wh." + os.path.basename(path)))
    return out


def member(root, path, links):
    """The tar's member of a file; links: {inode: the path that was taken}."""
    full = os.path.join(root, path)
    info = os.lstat(full)
    out = tarfile.TarInfo(path)
    out.mode = stat.S_IMODE(info.st_mode)
    out.uid, out.gid, out.uname, out.gname = info.st_uid, info.st_gid, "", ""
    out.mtime = min(int(info.st_mtime), epoch())
    if stat.S_ISDIR(info.st_mode):
        out.type, out.mtime = tarfile.DIRTYPE, epoch()
    elif stat.S_ISLNK(info.st_mode):
        out.type, out.linkname = tarfile.SYMTYPE, os.readlink(full)
    elif not stat.S_ISREG(info.st_mode):
        raise SystemExit(f"oci_archive: {path}: neither file, folder nor link")
    elif info.st_nlink > 1 and info.st_ino in links:
        out.type, out.linkname = tarfile.LNKTYPE, links[info.st_ino]
    else:
        out.size = info.st_size
        links[info.st_ino] = path
        if has := capability(full):
            out.pax_headers["SCHILY.xattr." + CAPABILITY] = has.decode("utf-8", "surrogateescape")
    return out


def write_tar(file, entries):
    """entries: (member, path of its content or bytes or None)."""
    with tarfile.open(fileobj=file, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for each, content in entries:
            if isinstance(content, bytes):
                tar.addfile(each, io.BytesIO(content))
            elif content is not None and each.isreg():
                with open(content, "rb") as data:
                    tar.addfile(each, data)
            else:
                tar.addfile(each)


def mark(path):
    out = tarfile.TarInfo(path)
    out.mtime, out.mode = epoch(), 0o644
    return out


def make_layer(root, to, since, state):
    before = json.loads(Path(since).read_text(encoding="utf-8")) if since else {}
    now = {path: state_of(root, path) for path in paths_of(root)}
    if state:
        Path(state).write_text(json.dumps(now), encoding="utf-8")
    # A parent's owner and mode come from the layer in which it was made or changed last.
    taken = [path for path in now if before.get(path) != now[path]]
    links = {}
    entries = [(member(root, path, links), os.path.join(root, path)) for path in taken]
    entries += [(mark(path), b"") for path in gone(before, now)]
    with open(to, "wb") as raw, gzip.GzipFile("", "wb", 9, raw, mtime=0) as packed:
        write_tar(packed, sorted(entries, key=lambda entry: entry[0].name.split("/")))


def unpacked_digest(layer):
    total = hashlib.sha256()
    with gzip.open(layer) as file:
        while piece := file.read(1 << 20):
            total.update(piece)
    return "sha256:" + total.hexdigest()


def time_text():
    return datetime.fromtimestamp(epoch(), timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def json_bytes(value):
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()


class Archive:
    def __init__(self):
        self.blobs = {}  # digest: bytes, or the file that has them

    def add(self, kind, content, **more):
        """The descriptor of a blob."""
        if isinstance(content, bytes):
            digest, size = hashlib.sha256(content).hexdigest(), len(content)
        else:
            digest, size = sha256(content), os.path.getsize(content)
        self.blobs[digest] = content
        return {"mediaType": f"application/vnd.oci.image.{kind}", "digest": "sha256:" + digest,
                "size": size, **more}

    def write(self, to, index):
        files = {"index.json": index, "oci-layout": json_bytes({"imageLayoutVersion": "1.0.0"})}
        files |= {f"blobs/sha256/{digest}": content for digest, content in self.blobs.items()}
        entries = []
        for folder in ("blobs", "blobs/sha256"):
            each = tarfile.TarInfo(folder)
            each.type, each.mode, each.mtime = tarfile.DIRTYPE, 0o755, epoch()
            entries.append((each, None))
        for name, content in sorted(files.items()):
            each = mark(name)
            each.size = len(content) if isinstance(content, bytes) else os.path.getsize(content)
            entries.append((each, content))
        with open(to, "wb") as file:
            write_tar(file, entries)


def make_archive(to, layers, config, name):
    archive = Archive()
    titled = [each.split("=", 1) for each in layers]
    described = [archive.add("layer.v1.tar+gzip", file) for _, file in titled]
    settings = json.loads(Path(config).read_text(encoding="utf-8"))
    image = {"created": time_text(), "architecture": MACHINES[os.uname().machine], "os": "linux",
             "config": settings,
             "rootfs": {"type": "layers", "diff_ids": [unpacked_digest(file)
                                                       for _, file in titled]},
             "history": [{"created": time_text(), "created_by": title} for title, _ in titled]}
    manifest = {"schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json",
                "config": archive.add("config.v1+json", json_bytes(image)), "layers": described}
    names = {"org.opencontainers.image.ref.name": name.rpartition(":")[2],
             "io.containerd.image.name": name} if name else {}
    entry = archive.add("manifest.v1+json", json_bytes(manifest), annotations=names)
    archive.write(to, json_bytes({"schemaVersion": 2, "manifests": [entry], "mediaType":
                                  "application/vnd.oci.image.index.v1+json"}))
    for (title, _), each in zip(titled, described):
        print(f"{each['size'] / 1e6:8.1f} MB  {title}")
    print(f"{os.path.getsize(to) / 1e6:8.1f} MB  in all")
    print(f"{entry['digest']}  {to}")


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(dest="verb", required=True)
    layer = verbs.add_parser("layer")
    layer.add_argument("root")
    layer.add_argument("to")
    layer.add_argument("--since")
    layer.add_argument("--state")
    archive = verbs.add_parser("archive")
    archive.add_argument("to")
    archive.add_argument("--layer", action="append", required=True, dest="layers")
    archive.add_argument("--config", required=True)
    archive.add_argument("--name")
    line = parser.parse_args()
    if line.verb == "layer":
        make_layer(line.root, line.to, line.since, line.state)
    else:
        make_archive(line.to, line.layers, line.config, line.name)
    return 0


if __name__ == "__main__":
    sys.exit(main())
