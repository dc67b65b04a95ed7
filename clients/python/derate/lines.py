"""Lines to who measures, on which nothing waits: a request is sent, its answer is read when asked
for. A line that answers nothing for PATIENCE_S is given up, and nobody is asked for REST_S."""
import collections
import json
import os
import select
import socket
import threading
import time

import derate_client
from derate.once import tell

PATIENCE_S = 1.0
REST_S = 30.0
_MOST_OWED = 256  # answers that one line may owe


class Reply:
    """An answer that may still come. text: its JSON, which is parsed when it is asked for; None
    while none has come, or none will."""
    __slots__ = ("line", "text", "waits")

    def __init__(self, line, waits):
        self.line, self.text, self.waits = line, None, waits

    def fields(self):
        """None where the request was refused, too."""
        answer = json.loads(self.text) if self.text is not None else {}
        return answer if answer.get("ok") is True else None


class Line:
    def __init__(self, sock):
        self.sock = sock
        self.owed = collections.deque()
        self.open = 0        # windows
        self.rest = b""

    def send(self, request, waits=False):
        """Raises OSError where the line is broken or takes no more."""
        text = json.dumps(request).encode() + b"\n"
        if self.sock.send(text, socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL) != len(text):
            raise BlockingIOError("it takes no more requests")
        reply = Reply(self, waits)
        self.owed.append(reply)
        return reply

    def take(self):
        """What has been answered."""
        while True:
            try:
                part = self.sock.recv(1 << 16, socket.MSG_DONTWAIT)
            except BlockingIOError:
                return
            if not part:
                raise ConnectionError("the line was closed")
            *lines, self.rest = (self.rest + part).split(b"\n")
            for line in lines:
                reply = self.owed.popleft()
                reply.line, reply.text = None, line
                if b'"error"' in line:
                    tell("refused", json.loads(line).get("error"))

    def busy(self):
        """Its next request would be heard only when the end of a window has settled."""
        return any(reply.waits for reply in self.owed)

    def wait(self, until):
        left = until - time.monotonic()
        if left <= 0 or not select.select([self.sock], [], [], left)[0]:
            raise TimeoutError(f"no answer for {PATIENCE_S:g} s")
        self.take()

    def close(self):
        for reply in self.owed:
            reply.line = None
        self.owed.clear()
        self.sock.close()


class Lines:
    """Those of a process. The end of a window may be answered only after the next reading, and no
    other request of its line is heard before: so a line has one window at a time, and the last of
    them has all others, whose ends do not wait."""
    MOST = 4

    def __init__(self):
        self._forget()
        os.register_at_fork(after_in_child=self._forget)

    def _forget(self):
        self.lock = threading.RLock()
        self.lines = []
        self.rests_until = 0.0

    def begin(self, request):
        """The line that took it, or None."""
        with self.lock:
            line = self._free()
            if line is None or self._send(line, request) is None:
                return None
            line.open += 1
            return line

    def end(self, line, request, wait):
        with self.lock:
            line.open -= 1
            if line not in self.lines:
                return None
            wait = wait and line.open == 0 and line is not self._shared()
            return self._send(line, request | ({} if wait else {"wait": False}), wait)

    def read(self, reply):
        """Its fields; None where the line is lost or silent."""
        until = time.monotonic() + PATIENCE_S
        while reply.line is not None:
            with self.lock:
                line = reply.line
                if line is None:
                    break
                try:
                    line.wait(until)
                except (OSError, ValueError) as error:
                    self._drop(line, error)
        return reply.fields()

    def poll(self, reply):
        """Takes what has come, and waits for nothing."""
        with self.lock:
            if reply.line is not None:
                try:
                    reply.line.take()
                except (OSError, ValueError) as error:
                    self._drop(reply.line, error)

    def _shared(self):
        return self.lines[self.MOST - 1] if len(self.lines) == self.MOST else None

    def _free(self):
        for line in list(self.lines):
            try:
                line.take()
                if len(line.owed) > _MOST_OWED:
                    line.wait(time.monotonic() + PATIENCE_S)
            except (OSError, ValueError) as error:
                self._drop(line, error)
        for line in self.lines:
            if line.open == 0 and not line.busy():
                return line
        if len(self.lines) < self.MOST:
            return self._connect()
        return self._shared()

    def _send(self, line, request, waits=False):
        try:
            return line.send(request, waits)
        except OSError as error:
            self._drop(line, error)
            return None

    def _drop(self, line, error):
        if line in self.lines:
            self.lines.remove(line)
        line.close()
        if isinstance(error, (TimeoutError, BlockingIOError)):
            self.rests_until = time.monotonic() + REST_S
        tell("lost", f"windows are not measured for now: {error}")

    def _connect(self):
        if time.monotonic() < self.rests_until:
            return None
        tried = []
        for path in derate_client._paths():
            sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
            try:
                sock.connect(path)
                why = derate_client._stranger(sock)
            except OSError as error:
                why = error.strerror or str(error)
            if why is None:
                self.lines.append(Line(sock))
                return self.lines[-1]
            sock.close()
            tried.append(f"'{path}': {why}")
        self.rests_until = time.monotonic() + 1
        tell("nobody", "nobody measures here, the program goes on: " + "; ".join(tried))
        return None


lines = Lines()
