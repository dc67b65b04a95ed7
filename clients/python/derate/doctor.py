"""What `python -m derate doctor` prints: versions, programs, sockets, GPUs, and whether a window
would be measured. It connects to Unix sockets only, and changes nothing."""
import os
import platform
import shutil
import socket
import struct
import subprocess
from pathlib import Path

import derate
import derate_client
from derate import gpus as own

_SBIN = "/usr/sbin:/usr/local/sbin:/sbin"  # where derated is, and a user's PATH is not


def _program(name):
    path = shutil.which(name) or shutil.which(name, path=_SBIN)
    if path is None:
        return "not in PATH"
    try:
        done = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=5)
        said = done.stdout.strip() or f"no version (exit code {done.returncode})"
    except (OSError, subprocess.TimeoutExpired) as error:
        said = f"does not start: {error}"
    return f"{path}: {said}"


def _socket(path):
    """Whether a process listens there that this package would connect to, and which it is."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as line:
        line.settimeout(1)
        try:
            line.connect(path)
        except OSError as error:
            return False, f"{path}: {error.strerror or error}"
        stranger = derate_client._stranger(line)
        if stranger is not None:
            return False, f"{path}: {stranger}"
        size = struct.calcsize("3i")
        process, user, _ = struct.unpack("3i", line.getsockopt(
            socket.SOL_SOCKET, socket.SO_PEERCRED, size))
    # A process of another PID namespace has no number here.
    by = f"process {process} of user {user}" if process else f"a process of user {user}"
    return True, f"{path}: {by} listens"


def _name(gpu):
    return f"{gpu.get('name', 'GPU')} {gpu['uuid']}"


def _driver():
    try:
        seen = derate_client.seen_gpus()
    except derate_client.Error as error:
        return [str(error)]
    if seen is None:
        return ["no NVML driver library"]
    silent = [f"{len(seen.silent)} more do not answer"] if seen.silent else []
    return [f"{gpu['index']}: {_name(gpu)}" for gpu in seen] + silent or ["the driver lists no GPU"]


def _measured():
    """The measured GPUs, or None and why there are none."""
    line = derate_client.Connection(patience_s=2)
    try:
        return line.ask("gpus")["gpus"], ""
    except derate_client.Error as error:
        return None, str(error)
    finally:
        line.close()


def _choice():
    try:
        chosen = own.own_gpus()
    except (own.Unknown, derate_client.Error) as error:
        return f"none: {error}"
    if chosen is None:
        return "no variable names GPUs: all that are measured and that the driver shows"
    return chosen


def _line(title, texts):
    for number, text in enumerate(texts):
        print(f"{title if number == 0 else '':12}{text}")


def doctor():
    """The exit code: 0 if a window would be measured, else 1."""
    _line("package", [f"derate {derate.__version__} in {Path(derate.__file__).parent}, "
                      f"Python {platform.python_version()}"])
    _line("programs", [f"{name}  {_program(name)}" for name in ("derate", "derated")])
    found = [_socket(path) for path in derate_client._paths()]
    _line("sockets", [text for _, text in found])
    _line("driver", _driver())
    _line("own GPUs", [_choice()])
    measured, why = _measured()
    if measured:
        by = "the program that started this one" if os.environ.get("DERATE_CLIENT_SOCKET") \
            and found[0][0] else "derated"
        _line("measured", [f"{gpu['index']}: {_name(gpu)}" for gpu in measured])
        print(f"\nWindows are measured, by {by}.")
        return 0
    _line("measured", [why or "no GPU"])
    print("\nWindows are not measured: a program goes on, and its joules are None. Three ways on:\n"
          "    derate energy -- COMMAND      # as any user; also on simulated GPUs: --sim H200\n"
          "    derate run --dry-run -- COMMAND\n"
          "    sudo systemctl start derated")
    return 1
