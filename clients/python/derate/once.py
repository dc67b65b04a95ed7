"""What is told once a process, on standard error, whatever has become of that."""
import sys

_told = set()


def tell(kind, text):
    """The first text of a kind. It never raises, also where warnings are errors."""
    if kind in _told:
        return
    _told.add(kind)
    try:
        print(f"derate: {text}", file=sys.stderr)
    except Exception:
        pass
