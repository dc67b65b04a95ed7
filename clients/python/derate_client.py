"""Measures the energy of GPUs over named windows of a program; no root needed.

    import derate_client
    with derate_client.window("epoch") as w:
        train()
    print(w.time, w.joules, w.gpus)

And runs jobs that recur, with the batch size and the power limit that cost least:

    with derate_client.Trial("bert") as trial:
        while not trial.should_stop:
            train(trial.batch_size, on_step_end=trial.step)
            trial.epoch(validate())

derated answers; windows are also measured by `derate energy -- CMD` that started the program.
Whoever else listens than root or the program's own user is not asked. The standard library only,
Linux. A GPU works on while Python goes on: synchronise it at both ends of a window, or give its
function as `sync` (torch.cuda.synchronize). docs/energy.md of Derate says what the figures of
windows are, docs/tune-jobs.md those of trials.
"""
import collections
import ctypes
import json
import math
import os
import re
import socket
import struct
import sys
import threading
import time
import warnings
import weakref
from collections import namedtuple

__all__ = ["window", "begin_window", "end_window", "cancel_window", "open_windows", "gpus",
           "seen_gpus", "by_uuid",
           "Window", "GpuEnergy", "Connection", "connection", "create_job", "tries", "Trial",
           "Stop", "is_out_of_memory", "Error", "NobodyListens", "Lost", "Refused"]

_PATIENCE_S = 30
_NOT_FOUND, _GPU_STUCK = 6, 15  # exit codes of derate


class Error(Exception):
    """What went wrong, in words."""


class NobodyListens(Error):
    """Neither derated nor `derate energy` is there."""


class Lost(Error):
    """The connection ended, by a restart or a fork, and with it what was open on it."""


class Refused(Error):
    """The request made no sense to who answered; exit_code is as of `derate`, code its kind in a
    word ("busy", "not_found", ...; None: an older derated)."""

    def __init__(self, message, exit_code, code=None):
        super().__init__(message)
        self.exit_code = exit_code
        self.code = code


# None is not known, never 0. uncovered: seconds that joules are not of. agree: the power readings
# say the same within 10 %; None for less than 10 s.
GpuEnergy = namedtuple("GpuEnergy", "index uuid joules mean_watts source uncovered "
                                    "integrated_joules agree")


def _paths():
    own = os.environ.get("DERATE_CLIENT_SOCKET")
    if own:
        yield own
    yield (os.environ.get("DERATE_RUN_DIR") or "/run/derate") + "/client.sock"


def _stranger(line):
    """Who listens there, as the kernel tells; None for root and our own user, who are believed."""
    who = line.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    user = struct.unpack("3i", who)[1]
    if user in (0, os.geteuid()):
        return None
    return f"not asked: user {user} listens there, who is neither root nor user {os.geteuid()}"


_told = set()


def _tell_once(text):
    """On standard error, whatever has become of that."""
    if text in _told:
        return
    _told.add(text)
    try:
        print(f"derate: {text}", file=sys.stderr)
    except Exception:
        pass


class Connection:
    """A line to who answers: opened when first asked, anew after a fork and after it broke.

    One is enough for a process; threads take turns. What is opened on it is its own, so whoever
    opens something keeps `epoch` and gives it to ask() later.
    """

    def __init__(self, paths=_paths,
                 nobody="nobody measures here (derated, derate energy -- COMMAND, or derate run -- "
                        "COMMAND)",
                 patience_s=_PATIENCE_S):
        self._paths = paths
        self._patience_s = patience_s
        self._nobody = nobody
        self.epoch = 0  # which line this is; another one knows nothing of what was open
        self._line = None
        self._lock = threading.Lock()
        os.register_at_fork(after_in_child=self._forked)

    def _forked(self):
        self._lock = threading.Lock()  # its holder is not in this process
        self._drop()  # the line itself is the parent's, and stays open there

    def _drop(self):
        line, self._line = self._line, None
        if line is not None:
            line.close()

    def close(self):
        """Ends the line and what was opened on it."""
        with self._lock:
            self._drop()

    def _open(self):
        tried = []
        for path in self._paths():
            line = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            line.settimeout(self._patience_s)
            try:
                line.connect(path)
                stranger = _stranger(line)
                if stranger is None:
                    self._line = line
                    self.epoch += 1
                    return
                line.close()
                tried.append(f"'{path}': {stranger}")
                _tell_once(tried[-1])
            except OSError as error:
                line.close()
                tried.append(f"'{path}': {error.strerror or error}")
        raise NobodyListens(f"{self._nobody}: " + "; ".join(tried))

    def _exchange(self, text):
        self._line.sendall(text)
        answer = b""
        while not answer.endswith(b"\n"):
            part = self._line.recv(1 << 16)
            if not part:
                raise ConnectionError("the line was closed")
            answer += part
        return answer

    def ask(self, command, on_line=None, **fields):
        """The answer's fields. on_line: an `epoch`; on that line, or Lost.

        Fields that are None are left out.
        """
        request = {"command": command}
        request.update((key, value) for key, value in fields.items() if value is not None)
        text = json.dumps(request).encode() + b"\n"
        with self._lock:
            for last in (False, True):
                fresh = self._line is None
                if fresh and on_line is None:
                    self._open()
                if on_line is not None and (fresh or on_line != self.epoch):
                    raise Lost(f"{command}: the connection that this was opened on has ended "
                               "(a restart, or a fork of this process)")
                try:
                    answer = json.loads(self._exchange(text))
                    break
                except TimeoutError:
                    self._drop()
                    raise Lost(f"{command}: no answer for {self._patience_s} s") from None
                except (OSError, ValueError) as error:
                    self._drop()  # who restarted is asked once more, unless something was open
                    if on_line is not None or last or fresh:
                        raise Lost(f"{command}: {error}") from None
        if answer.pop("ok", False) is not True:
            raise Refused(answer.get("error", "no reason was given"), answer.get("exit_code"),
                          answer.get("code"))
        return answer


#: The one of this process.
connection = Connection()

_epochs = {}  # of the open windows, by name


class Window:
    """What a window came to; None where nothing is known."""

    def __init__(self, name):
        self.name = name
        self.time = None    # seconds
        self.joules = None  # of all its GPUs
        self.gpus = None    # a GpuEnergy each

    def _take(self, answer):
        self.time, self.joules = answer["time_seconds"], answer["energy_joules"]
        self.gpus = [GpuEnergy(g["index"], g["uuid"], g["energy_joules"], g["mean_power_watts"],
                               g["source"], g["uncovered_seconds"], g["integrated_joules"],
                               g["agree"]) for g in answer["gpus"]]

    def __repr__(self):
        return f"Window({self.name!r}, time={self.time}, joules={self.joules})"


# --- names of GPUs --------------------------------------------------------------------------------

_UUID_SIZE, _NAME_SIZE, _PCI_SIZE, _PCI_BUS = 96, 96, 68, 36
_DENIED = (4, 17)        # NVML's no permission; blocked by the system
_NOT_SUPPORTED = (3, 13)
_DRIVER_PATIENCE_S = 2


def _text(call, device, size):
    out = ctypes.create_string_buffer(size)
    return out.value.decode(errors="replace") if call(device, out, size) == 0 else ""


def _number(call, device):
    out = ctypes.c_uint()
    return out.value if call(device, ctypes.byref(out)) == 0 else None


def _mig(nvml, device):
    """Whether MIG mode is on, the instances (UUID, GPU instance, compute instance), and whether
    there can be instances that could not be read."""
    now, pending, out = ctypes.c_uint(), ctypes.c_uint(), []
    call = getattr(nvml, "nvmlDeviceGetMigMode", lambda *_: _NOT_SUPPORTED[0])
    code = call(device, ctypes.byref(now), ctypes.byref(pending))
    if code != 0:
        return False, out, code not in _NOT_SUPPORTED
    if not now.value:
        return False, out, False
    for at in range(_number(nvml.nvmlDeviceGetMaxMigDeviceCount, device) or 0):
        handle = ctypes.c_void_p()
        if nvml.nvmlDeviceGetMigDeviceHandleByIndex(device, at, ctypes.byref(handle)) == 0:
            out.append((_text(nvml.nvmlDeviceGetUUID, handle, _UUID_SIZE),
                        _number(nvml.nvmlDeviceGetGpuInstanceId, handle),
                        _number(nvml.nvmlDeviceGetComputeInstanceId, handle)))
    known = [each for each in out if each[0]]
    return True, known, len(known) != len(out)


def _see(nvml, index):
    """A GPU's names. None if access is denied: NVML may count GPUs that a device cgroup denies.
    Raises OSError if NVML gives no UUID."""
    device, uuid = ctypes.c_void_p(), ctypes.create_string_buffer(_UUID_SIZE)
    code = (nvml.nvmlDeviceGetHandleByIndex_v2(index, ctypes.byref(device))
            or nvml.nvmlDeviceGetUUID(device, uuid, _UUID_SIZE))
    if code in _DENIED:
        return None
    if code != 0:
        raise OSError(code, "NVML gives no UUID")
    pci, bus = ctypes.create_string_buffer(_PCI_SIZE), ""
    if nvml.nvmlDeviceGetPciInfo_v3(device, pci) == 0:
        bus = pci.raw[_PCI_BUS:].split(b"\0")[0].decode(errors="replace")
    mig, instances, unread = _mig(nvml, device)
    return {"index": index, "uuid": uuid.value.decode(errors="replace"),
            "name": _text(nvml.nvmlDeviceGetName, device, _NAME_SIZE), "pci": bus,
            "minor": _number(nvml.nvmlDeviceGetMinorNumber, device), "mig": mig,
            "instances": instances, "unread": unread}


class View(list):
    """The GPUs of seen_gpus(). silent: indices of the GPUs that gave no UUID."""
    silent = ()


class _Look:
    """Reads each GPU's names on a thread of its own, so that a GPU that hangs delays no other."""

    def __init__(self):
        self.until = time.monotonic() + _DRIVER_PATIENCE_S
        self.over = threading.Event()
        self.count, self.found = None, {}
        threading.Thread(target=self._all, name="derate gpus", daemon=True).start()

    def _all(self):
        try:
            nvml, count = _nvml(), ctypes.c_uint()
            if nvml is not None:
                if nvml.nvmlDeviceGetCount_v2(ctypes.byref(count)) == 0:
                    self._each(nvml, count.value)
                nvml.nvmlShutdown()
        except (OSError, AttributeError):
            pass
        self.over.set()

    def _each(self, nvml, count):
        threads = [threading.Thread(target=self._one, args=(nvml, index), name="derate gpu",
                                    daemon=True) for index in range(count)]
        self.count = count
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def _one(self, nvml, index):
        try:
            self.found[index] = _see(nvml, index)
        except (OSError, AttributeError):
            pass

    def view(self):
        self.over.wait(max(0, self.until - time.monotonic()))
        if self.count is None:
            if self.over.is_set():
                return None
            raise Refused(f"the driver has not answered for {_DRIVER_PATIENCE_S} s: which GPUs "
                          "this program sees is not known", _GPU_STUCK, "gpu_stuck")
        found = dict(self.found)
        seen = [found[index] for index in sorted(found) if found[index] is not None]
        times = collections.Counter(gpu["uuid"] for gpu in seen)
        out = View(gpu for gpu in seen if times[gpu["uuid"]] == 1)
        out.silent = [index for index in range(self.count)
                      if index not in found or (found[index] and times[found[index]["uuid"]] > 1)]
        return out


def _nvml():
    nvml = ctypes.CDLL(os.environ.get("DERATE_NVML_LIBRARY") or "libnvidia-ml.so.1")
    return nvml if nvml.nvmlInit_v2() == 0 else None


_looks = []  # at most one, as a program's view does not change


def seen_gpus():
    """The GPUs that this program sees by its own driver, which can have other indices than derated:
    a View of dicts with index, uuid, name, pci, minor, mig (MIG mode is on), instances (UUID, GPU
    instance, compute instance) and unread (there can be others). None without a driver. Waits 2 s
    at most; Refused if the driver has not answered by then."""
    if not _looks:
        _looks.append(_Look())
    return _looks[0].view()


def _of_number(item):
    ends = re.fullmatch(r"(\d{1,4})(?:\s*-\s*(\d{1,4}))?", item)
    return range(int(ends[1]), int(ends[2] or ends[1]) + 1) if ends else None


def by_uuid(gpus):
    """The list of GPUs ("0,1", a number, UUIDs) as UUIDs, since derated can have other indices than
    this program. Without a driver it is not changed, and derated takes indices as its own. None
    gives None."""
    if gpus is None:
        return None
    items = [item.strip() for item in str(gpus).split(",")]
    if not any(_of_number(item) for item in items):
        return str(gpus)
    seen = seen_gpus()
    if seen is None:
        return str(gpus)
    uuids = {gpu["index"]: gpu["uuid"] for gpu in seen}
    out = []
    for item in items:
        for number in _of_number(item) or [None]:
            if number in seen.silent:
                raise Refused(f"GPU {number} does not answer with a UUID of its own: name a "
                              "GPU by its whole UUID",
                              _GPU_STUCK, "gpu_stuck")
            if number is not None and number not in uuids:
                raise Refused(f"GPU '{number}' is not here: this program sees {len(seen)} GPUs",
                              _NOT_FOUND, "not_found")
            out.append(item if number is None else uuids[number])
    return ",".join(out)


def gpus_of_window(gpus):
    """by_uuid(gpus). `derate energy` has this program's view, so it gets the list unchanged."""
    if gpus is not None and os.environ.get("DERATE_CLIENT_SOCKET"):
        return str(gpus)
    return by_uuid(gpus)


# --- windows --------------------------------------------------------------------------------------

def begin_window(name, gpus=None, restart=False, silent=False):
    """Begins a window over GPUs ("0,1": indices as this program's own driver has them, UUIDs or PCI
    bus ids; default: all that are measured).

    A name that is open is refused, unless restart. silent: where nobody measures nothing happens,
    and the window's end has None.
    """
    try:
        connection.ask("window-begin", name=name, gpus=gpus_of_window(gpus),
                       restart=restart or None)
        _epochs[name] = connection.epoch
    except (NobodyListens, Lost):
        _epochs.pop(name, None)
        if not silent:
            raise


def end_window(name, wait=True, silent=False):
    """The Window. wait: up to a tick (0.1 s) for a reading of the counter that makes it exact."""
    out = Window(name)
    epoch = _epochs.pop(name, None)
    if epoch is None and silent:
        return out
    try:
        out._take(connection.ask("window-end", on_line=epoch, name=name,
                                 wait=None if wait else False))
    except (NobodyListens, Lost):
        if not silent:
            raise
    return out


def cancel_window(name):
    """As if it had never begun."""
    connection.ask("window-cancel", on_line=_epochs.pop(name, None), name=name)


def open_windows():
    """The open windows of this process as they stand, by name."""
    out = {}
    for answer in connection.ask("windows")["windows"]:
        out[answer["name"]] = Window(answer["name"])
        out[answer["name"]]._take(answer)
    return out


def gpus():
    """What can be measured: a list of dicts with index, uuid, name."""
    return connection.ask("gpus")["gpus"]


class window(Window):
    """with window("epoch") as w: ...; then w.time, w.joules, w.gpus."""

    def __init__(self, name, gpus=None, restart=False, wait=True, silent=False, sync=None):
        super().__init__(name)
        self._begin = {"gpus": gpus, "restart": restart, "silent": silent}
        self._end = {"wait": wait, "silent": silent}
        self._sync = sync or (lambda: None)

    def __enter__(self):
        self._sync()
        begin_window(self.name, **self._begin)
        return self

    def __exit__(self, kind, error, trace):
        try:
            if kind is None:
                self._sync()
            done = end_window(self.name, **self._end)
            self.time, self.joules, self.gpus = done.time, done.joules, done.gpus
        except Error:
            if kind is None:  # else the body's own error is the news
                raise
        return False


# --- jobs that recur ------------------------------------------------------------------------------

# A line of its own: the end of a window may wait for a reading.
_daemon = Connection(nobody="derated is not running")

_NO_PERMISSION = 4


def create_job(name, batch_sizes, default, target, max_epochs, replace=False, **more):
    """Declares a job; the same again changes nothing. more: lower_is_better, eta, beta, budget,
    policy, seed, knob, selector, model. What is kept, as a dict.

    Another job of that name is refused, unless replace, which forgets it with its history.
    """
    spec = {"name": name, "batch_sizes": list(batch_sizes), "default": default, "target": target,
            "max_epochs": max_epochs}
    spec.update((key, value) for key, value in more.items() if value is not None)
    return _daemon.ask("tune-job-create", spec=spec, replace=replace or None)["job"]


class Stop(Exception):
    """The trial is to end; its own block swallows this."""


_OUT_OF_MEMORY_TYPES = {"OutOfMemoryError", "ResourceExhaustedError"}
_OUT_OF_MEMORY_WORDS = ("CUDA out of memory", "OutOfMemoryError", "CUDNN_STATUS_ALLOC_FAILED")


def is_out_of_memory(error):
    """Whether a GPU's memory was too small, by the names and words of the exception and of those
    that it came from."""
    seen = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        if any(kind.__name__ in _OUT_OF_MEMORY_TYPES for kind in type(error).__mro__):
            return True
        if any(words in str(error) for words in _OUT_OF_MEMORY_WORDS):
            return True
        error = error.__cause__ or error.__context__
    return False


class Trial:
    """A run of a job, or a try of it: which batch size to take, and when to stop.

        with derate_client.Trial("bert") as trial:
            for epoch in range(100):
                for batch in batches(trial.batch_size):
                    train(batch)
                    trial.step()
                if trial.epoch(validate()):
                    break

    gpus: "0,1", as in begin_window(); may be left out on a machine with one. retry_of: a Trial of
    the same run that did not reach the target. without: the batch size where no derated listens;
    nothing is tuned and measured then, and nothing stops it. Default: that is an error. raises:
    epoch() raises Stop instead of returning True, which ends the block.

    A block that is left by an exception ends the trial as lost, which says nothing of its batch
    size, or as infeasible where a GPU's memory was too small. Under `derate tune run` it is the
    trial that this began. One thread trains; another tells derated now and then that we live.
    """

    _line = _daemon
    _STEPS_EVERY_S = 0.5  # reports of steps
    _RENEW_EVERY_S = 10

    def __init__(self, job=None, gpus=None, retry_of=None, without=None, raises=False):
        self.job = job
        self.batch_size = None   # in the block
        self.should_stop = False
        self.verdict = None      # as what it is to end: reached, missed or stopped
        self.why = None          # this batch size; then: this end
        self.state = None        # running, reached, missed, stopped, infeasible, lost; None: nobody
        self.id = None           # tells
        self.epochs = 0          # done
        self.steps = 0
        self.metric = None
        self.joules = None       # of its GPUs, when last told
        self.cost = None
        self.time = None         # seconds
        self.may_retry = False
        self._wanted = {"job": job, "gpus": gpus,
                        "retry_of": retry_of.id if isinstance(retry_of, Trial) else retry_of}
        self._without, self._raises = without, raises
        self._goes_on = False    # another try follows
        self._token = None
        self._by_lines = False   # a trial of `derate tune run` that is another user's: it reads
        self._unsent = {}
        self._sent_at = -math.inf
        self._lock = threading.RLock()
        self._over = threading.Event()
        self._owner = None

    # --- its begin and end

    def __enter__(self):
        if self._owner is not None:
            raise Error("this trial has begun before: a Trial is for one block")
        self._owner = os.getpid()
        try:
            self._adopt() or self._begin()
        except NobodyListens:
            if self._without is None:
                raise
            self.batch_size = self._without
        if self._token is not None:
            threading.Thread(target=_keep, args=(weakref.ref(self), self._over, self._pause()),
                             name="derate trial", daemon=True).start()
        return self

    def _begin(self):
        wanted = self._wanted | {"gpus": by_uuid(self._wanted["gpus"])}
        try:
            answer = self._line.ask("tune-trial-begin", **wanted)
        except Refused as error:
            # `derate energy` or `derate run` listens, which measure windows only.
            if not str(error).startswith("command 'tune-trial-begin': "):
                raise
            raise NobodyListens(f"derated is not running: {error}") from None
        self._token = answer["token"]
        self._take(answer)

    def _adopt(self):
        """That of `derate tune run`, if it started us."""
        number, token = os.environ.get("DERATE_TRIAL"), os.environ.get("DERATE_TRIAL_TOKEN")
        if not number or not token:
            return False
        self.id, self._token = int(number), token
        self.batch_size = int(os.environ.get("DERATE_BATCH_SIZE") or self._without or 0) or None
        try:
            answer = self._line.ask("tune-trial-renew", trial=self.id, token=token)
        except Refused as error:
            if error.exit_code != _NO_PERMISSION:  # it has ended: a later block of this program
                self.id = self._token = self.batch_size = None
                return False
            self._token, self._by_lines, self.state = None, True, "running"
            return True
        of = answer.get("job") or None
        if self.job is not None and self.job != of and (of or not self._without):
            self._token = None
            raise Error(f"derate tune run began a trial of {f'job {of!r}' if of else 'no job'}, "
                        f"and this one is of job {self.job!r}")
        self._take(answer)
        return True

    def __exit__(self, kind, error, trace):
        self._over.set()
        outcome = "missed"
        if kind is not None and not issubclass(kind, Stop):
            well = issubclass(kind, SystemExit) and error.code in (None, 0)
            outcome = "infeasible" if is_out_of_memory(error) else "missed" if well else "lost"
        self.end(outcome)
        return kind is not None and (issubclass(kind, Stop)
                                     or outcome == "infeasible" and self._another())

    def _another(self):
        return self._goes_on and self.may_retry and self.state in ("missed", "stopped",
                                                                   "infeasible")

    def end(self, outcome="missed"):
        """Ends it before the block does: as its verdict says, or else as missed (by itself, without
        the target), infeasible or lost."""
        if os.getpid() != self._owner:
            return
        self._over.set()
        with self._lock:
            if self._token is None or self.state != "running":
                return
            self._send()
            self._ask("tune-trial-end", outcome=outcome)
            self._token = None

    # --- what is told

    def step(self, n=1):
        """So many more steps are done, of whatever size: it tunes the limit by how fast they are.
        True when the trial is to end."""
        if os.getpid() != self._owner:
            return self.should_stop  # a child of ours, which trains nothing
        with self._lock:
            self.steps += n
            self._unsent["steps"] = self.steps
            if time.monotonic() - self._sent_at >= self._STEPS_EVERY_S:
                self._send()
        return self.should_stop

    def epoch(self, metric=None, n=1):
        """One more epoch is done, after which the metric was this. True, or Stop where `raises`,
        when the trial is to end."""
        if os.getpid() != self._owner:
            return self.should_stop
        with self._lock:
            self.epochs += n
            self._unsent["epoch"] = self.epochs
            if self.steps:
                self._unsent["steps"] = self.steps
            if metric is not None:
                self._unsent["metric"] = self.metric = float(metric)
            if not math.isfinite(self._unsent.get("metric", 0)):
                warnings.warn(f"metric {self.metric}: allowed is a finite number; it is not "
                              "counted", stacklevel=2)
                del self._unsent["metric"]
            self._send()
        if self.should_stop and self._raises:
            raise Stop(self.why)
        return self.should_stop

    def on_step_end(self, *_, **__):
        """step() as training frameworks call back."""
        return self.step()

    def on_epoch_end(self, metric=None, *_, **__):
        """epoch() as training frameworks call back."""
        return self.epoch(metric)

    # --- the line

    def _pause(self):
        return min(self._RENEW_EVERY_S, self._lease_s / 4)

    def _take(self, answer):
        self.id, self.state, self.why = answer["trial"], answer["state"], answer.get("why")
        self.job = answer.get("job") or self.job
        self.batch_size = answer.get("batch_size") or self.batch_size or self._without
        self.should_stop = self.should_stop or answer["stop"]
        self.verdict = answer.get("verdict") or self.verdict
        self.joules, self.cost = answer.get("energy_joules"), answer.get("cost_joules")
        self.time, self.may_retry = answer.get("time_seconds"), answer.get("may_retry", False)
        self._lease_s = answer.get("lease_seconds") or 60
        # Of a program that was started anew within its trial.
        self.epochs = max(self.epochs, answer.get("epochs", 0))

    def _send(self):
        """What was not told yet; what cannot be is told with the next."""
        self._sent_at = time.monotonic()
        if self._by_lines and self._unsent:
            print("derate: " + " ".join(f"{key}={value}" for key, value in self._unsent.items()),
                  flush=True)
            self._unsent = {}
        elif self._token is not None:
            verb = "tune-trial-report" if self._unsent else "tune-trial-renew"
            if self._ask(verb, **self._unsent):
                self._unsent = {}

    def _ask(self, verb, **fields):
        try:
            self._take(self._line.ask(verb, trial=self.id, token=self._token, **fields))
        except (NobodyListens, Lost):
            return False  # a daemon that is started again goes on with the trial
        except Refused as error:
            if verb == "tune-trial-report":  # it made no sense, or the trial is not ours any more
                self._ask("tune-trial-renew")
            if self._token is not None:
                counted = "; it is not counted" if verb == "tune-trial-report" else ""
                warnings.warn(f"derate: {error}{counted}", stacklevel=4)
            if verb == "tune-trial-renew":
                self._token, self.state = None, "lost"
        return True

    def _tick(self):
        with self._lock:
            if self._token is not None and not self._over.is_set():
                self._send()

    def __repr__(self):
        return (f"Trial({self.job!r}, id={self.id}, batch_size={self.batch_size}, "
                f"state={self.state!r}, epochs={self.epochs}, metric={self.metric})")


def tries(job, gpus=None, **how):
    """The tries of a run, as many as it takes to the target: for trial in tries("bert"): with
    trial: ...

    What does not fit into memory goes on with the next. Under `derate tune run` it is one: that
    starts the program again.
    """
    trial = None
    while trial is None or trial._another():
        trial = Trial(job, gpus, retry_of=trial, **how)
        trial._goes_on = not os.environ.get("DERATE_TRIAL")
        yield trial


def _keep(trial, over, pause_s):
    """Renews the lease of a trial that somebody still has."""
    while not over.wait(pause_s):
        alive = trial()
        if alive is None:
            return
        alive._tick()
        del alive
