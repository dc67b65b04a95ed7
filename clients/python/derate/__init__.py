"""Derate for Python programs: measure energy, say progress, take the batch size that costs least.

    import derate
    with derate.window("epoch") as w:
        train()
    print(w.joules)            # None where nobody measures

Nothing here raises because of Derate or waits for it for long: where derated is missing or hangs,
that is told once on standard error and the program goes on. derate_client and derate_beat are the
strict interfaces below. The standard library only; modules are loaded when first used.
"""
import importlib

__version__ = "0.2.0"
__all__ = ["window", "Trial", "beat", "Loop"]

_PLACES = {"window": "derate.windows", "Trial": "derate.trials", "beat": "derate.progress",
           "Loop": "derate.loops"}


def __getattr__(name):
    if name not in _PLACES:
        raise AttributeError(f"module 'derate' has no attribute {name!r}")
    value = globals()[name] = getattr(importlib.import_module(_PLACES[name]), name)
    return value


def __dir__():
    return sorted({*globals(), *__all__})


def load_ipython_extension(shell):
    """%load_ext derate: then %%derate measures a cell."""
    from derate.magic import load
    load(shell)
