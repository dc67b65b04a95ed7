"""What a training loop tells: a window for all of it and one an epoch, and a beat each step."""
import sys

from derate.progress import beat
from derate.windows import window


class Watch:
    """The core of the callbacks. epochs: the windows of the epochs; whole: that of the training.

    trial: a Trial that has begun; metric: the name of its metric in what the framework validates.
    """

    def __init__(self, gpus=None, sync=None, trial=None, metric=None, summary=True):
        self._how = {"gpus": gpus, "sync": sync}
        self.trial, self.metric, self._summary = trial, metric, summary
        self.epochs, self.whole, self._steps = [], None, 0
        self._epoch = None

    def begin(self):
        self.whole = window("training", **self._how).__enter__()

    def begin_epoch(self):
        self.end_epoch()
        self._epoch = window(f"epoch {len(self.epochs)}", **self._how).__enter__()

    def step(self, done=None):
        self._steps = self._steps + 1 if done is None else done
        beat(self._steps)
        return self.trial is not None and self.trial.step()

    def end_epoch(self):
        if self._epoch is not None:
            self._epoch.__exit__(None, None, None)
            self.epochs.append(self._epoch)
            self._epoch = None

    def validated(self, metrics):
        """True when the trial is to end."""
        if self.trial is None or self.metric not in (metrics or {}):
            return False
        return self.trial.epoch(float(metrics[self.metric]))

    def end(self):
        self.end_epoch()
        whole = self.whole
        if whole is None:
            return
        whole.__exit__(None, None, None)
        if self._summary and whole.joules is not None:
            print(f"derate: training took {whole.time:.1f} s and {whole.joules:.0f} J",
                  file=sys.stderr)


class Loop:
    """for epoch in derate.Loop(range(10)): train(). A window and a beat an item.

    windows: those of the items. Others as of window().
    """

    def __init__(self, items, name="epoch", gpus=None, sync=None):
        self._items, self._name, self._how = items, name, {"gpus": gpus, "sync": sync}
        self.windows = []

    def __len__(self):
        return len(self._items)

    def __iter__(self):
        for number, item in enumerate(self._items):
            with window(f"{self._name} {number}", **self._how) as one:
                self.windows.append(one)
                yield item
            beat(number + 1)
