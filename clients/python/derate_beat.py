"""Tells Derate how far this program's work is, so that it need not guess from the GPU's counters.

    import derate_beat
    for step in range(1, steps + 1):
        train(step)
        derate_beat.beat(step)

The standard library only, Linux. A call takes some microseconds, keeps nothing open, never waits
and never raises: where nobody listens nothing happens. A socket that another user than root has put
there gets nothing, which is told once on standard error. With the beats goes, at the first and each
minute, what the environment promises (DERATE_DELTA) and its batch job. docs/heartbeats.md of Derate
has the message and who is believed.
"""
import errno
import os
import socket
import stat
import sys
import time

__all__ = ["beat"]

_told = False


def _text(done, phase, max_loss, gpu):
    fields = []
    if done is not None:
        fields.append(f"done={float(done)!r}")
    if phase:
        fields.append(f"phase={phase}")
    if max_loss is not None:
        fields.append(f"max_loss={float(max_loss)!r}")
    if gpu is not None:
        fields.append(f"gpu={gpu}")
    return " ".join(fields).encode()


def _paths():
    own = os.environ.get("DERATE_BEAT_SOCKET")
    if own:
        yield own
    run = os.environ.get("DERATE_RUN_DIR") or "/run/derate"
    # The daemon's socket for this user alone, whose queue no other user can fill.
    yield f"{run}/beats/{os.geteuid()}.sock"
    yield run + "/beat.sock"


def _doubt(path):
    """Why a beat to this path might reach somebody else, or None: the socket and its folder are to
    be root's or our own, and nobody else may be able to exchange anything on the way to it. The
    kernel does not tell who reads a datagram socket."""
    ours = (0, os.geteuid())
    found = os.lstat(path)
    if stat.S_ISLNK(found.st_mode):
        return "it is a link"
    if found.st_uid not in ours:
        return "it belongs to another user"
    part = os.path.abspath(path)
    if os.stat(os.path.dirname(part)).st_uid not in ours:
        return "a folder on the way belongs to another user"
    while part != "/":
        folder = os.path.dirname(part)
        mode = os.stat(folder).st_mode
        if mode & stat.S_IWOTH:
            if not mode & stat.S_ISVTX:
                return "everybody may exchange what lies there"
            if os.lstat(part).st_uid not in ours:
                return "a folder on the way belongs to another user"
        part = folder
    return None


def _believed(path):
    global _told
    try:
        doubt = _doubt(path)
    except OSError:  # nothing is there, or nothing that we may look at
        return False
    if doubt and not _told:
        _told = True
        print(f"derate: no beat is sent to {path!r}: {doubt}", file=sys.stderr)
    return not doubt


_SAY_AGAIN_S = 60
_said = (0, 0.0)  # by which process, when


def _environment():
    """What this environment says of its work, which the daemon may not be able to read."""
    fields = []
    for key, variable, first, last in (("delta", "DERATE_DELTA", "!", "~"),
                                       ("job", "SLURM_JOB_ID", "0", "9")):
        value = os.environ.get(variable, "")
        if 0 < len(value) <= 32 and all(first <= c <= last for c in value):
            fields.append(f"{key}={value}")
    return " ".join(fields).encode()


def _announce():
    """At the first beat, each minute, since a daemon may have been started anew, and in a child."""
    global _said
    by, at = _said
    now = time.monotonic()
    if by == os.getpid() and now - at < _SAY_AGAIN_S:
        return
    _said = (os.getpid(), now)
    text = _environment()
    if text:
        _send(text)


def _send(text):
    for path in filter(_believed, _paths()):
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as out:
            try:
                out.sendto(text, path)
                return True
            except OSError as error:
                if error.errno not in (errno.ENOENT, errno.ECONNREFUSED, errno.EACCES):
                    return error.errno == errno.EAGAIN
    return False


def beat(done=None, phase=None, max_loss=None, gpu=None):
    """So much of the work is done, in whatever unit; it only grows.

    phase: what the work is doing, in one word. max_loss: the performance that it may lose, 0 to
    0.5. Both hold until others are said. gpu: index, UUID or PCI bus id; default: where this
    process works. True when somebody listens, who may still not believe it.
    """
    try:
        _announce()
        return _send(_text(done, phase, max_loss, gpu))
    except Exception:  # no beat is worth the work that it is about
        return False
