"""A trial of a job that recurs which no trouble with Derate ends."""
import derate_client
from derate.once import tell


class _Patient(derate_client.Connection):
    """Who hung once is asked again after a while only: it costs a training a second or two."""
    _REST_S = 30

    def __init__(self):
        super().__init__(nobody="derated is not running", patience_s=2)
        self._rests_until = 0.0

    def ask(self, command, on_line=None, **fields):
        now = derate_client.time.monotonic()
        if now < self._rests_until:
            raise derate_client.Lost("derated gave no answer")
        try:
            return super().ask(command, on_line, **fields)
        except derate_client.Lost as error:
            self._rests_until = now + self._REST_S
            tell("trial", f"the training goes on: {error}")
            raise


class Trial(derate_client.Trial):
    """As derate_client.Trial, but for trouble with Derate, which is told once: then the batch size
    is `without`, nothing is tuned, and nothing stops the training."""

    _line = None  # one of its own, made when first asked for

    def __init__(self, job=None, without=None, **how):
        if without is None:
            raise TypeError("Trial: without=N is needed, the batch size where nobody tunes")
        super().__init__(job, without=without, **how)
        if Trial._line is None:
            Trial._line = _Patient()

    def __enter__(self):
        try:
            return super().__enter__()
        except derate_client.Error as error:
            tell("trial", f"nothing is tuned, batch size {self._without}: {error}")
            self._token = None
            self.batch_size = self._without
            return self

    def _begin(self):
        try:
            super()._begin()
        except derate_client.NobodyListens as error:
            tell("trial", f"nothing is tuned, batch size {self._without}: {error}")
            raise

    def _ask(self, verb, **fields):
        try:
            return super()._ask(verb, **fields)
        except Exception as error:
            tell("trial", f"the trial is not told: {error}")
            return False
