"""Tells Derate how far this program's work is, so that it need not guess from the GPU's counters.

    import derate_beat
    for step in range(1, steps + 1):
        train(step)
        derate_beat.beat(step)

The standard library only, Linux. A call takes some microseconds, keeps nothing open, never waits
and never raises: where nobody listens nothing happens. docs/heartbeats.md of Derate has the message
and who is believed.
"""
import errno
import os
import socket

__all__ = ["beat"]


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
    yield (os.environ.get("DERATE_RUN_DIR") or "/run/derate") + "/beat.sock"


def beat(done=None, phase=None, max_loss=None, gpu=None):
    """So much of the work is done, in whatever unit; it only grows.

    phase: what the work is doing, in one word. max_loss: the performance that it may lose, 0 to
    0.5. Both hold until others are said. gpu: index, UUID or PCI bus id; default: where this
    process works. True when somebody listens, who may still not believe it.
    """
    try:
        text = _text(done, phase, max_loss, gpu)
        for path in _paths():
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as out:
                try:
                    out.sendto(text, path)
                    return True
                except OSError as error:
                    if error.errno not in (errno.ENOENT, errno.ECONNREFUSED):
                        return error.errno == errno.EAGAIN
    except Exception:  # no beat is worth the work that it is about
        pass
    return False
