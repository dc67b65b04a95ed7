"""Windows whose begin and end are sent, and whose result is read when it is asked for."""
import functools

import derate_client
from derate.lines import lines
from derate.once import tell


class window:
    """with derate.window("epoch") as w: ...; then w.time (s), w.joules, w.gpus: None where nobody
    measures. The first look at them waits for the answer, 0.1 s as a rule and 1 s at most; done()
    does not wait. Also a decorator: @derate.window("validate").

    gpus, sync: as of derate_client.window(). wait=False: figures as they stand at the end, without
    the reading of the counter that makes them exact.
    """

    def __init__(self, name, gpus=None, wait=True, sync=None):
        self.name, self._gpus, self._wait, self._sync = str(name), gpus, wait, sync
        self._line = self._reply = self._result = None

    def __enter__(self):
        try:
            self._synchronise()
            self._result = self._reply = None
            request = {"command": "window-begin", "name": self.name, "restart": True}
            if self._gpus is not None:
                request["gpus"] = str(self._gpus)
            self._line = lines.begin(request)
        except Exception as error:
            tell("window", f"window {self.name!r} is not measured: {error}")
        return self

    def __exit__(self, kind, error, trace):
        line, self._line = self._line, None
        try:
            if kind is None:
                self._synchronise()
            if line is not None:
                request = {"command": "window-end", "name": self.name}
                self._reply = lines.end(line, request, self._wait)
        except Exception as wrong:
            tell("window", f"window {self.name!r} is not measured: {wrong}")
        return False

    def __call__(self, function):
        @functools.wraps(function)
        def measured(*arguments, **named):
            with window(self.name, self._gpus, self._wait, self._sync):
                return function(*arguments, **named)
        return measured

    def _synchronise(self):
        if self._sync is not None:
            self._sync()

    def done(self):
        """Whether the figures are there, or will never be."""
        if self._reply is not None:
            lines.poll(self._reply)
        return self._reply is None or self._reply.line is None

    def _read(self):
        if self._result is None and self._reply is not None:
            answer = lines.read(self._reply)
            if answer is not None:
                self._result = derate_client.Window(self.name)
                self._result._take(answer)
        return self._result

    def _figure(self, name):
        try:
            return getattr(self._read(), name, None)
        except Exception as error:
            tell("window", f"window {self.name!r} has no figures: {error}")
            return None

    time = property(lambda self: self._figure("time"), doc="Seconds.")
    joules = property(lambda self: self._figure("joules"), doc="Of all its GPUs.")
    gpus = property(lambda self: self._figure("gpus"), doc="A GpuEnergy each.")

    def __repr__(self):
        return f"window({self.name!r})"
