"""The GPUs that a command can reach, and those that docs/run.md promises for it: an oracle that
shares no code with the programs. It knows the whole machine, where they see a view."""

import itertools
import re
from dataclasses import dataclass, field

ORDERS = ("PCI_BUS_ID", "FASTEST_FIRST")
DIGITS = 32  # of a UUID


@dataclass(frozen=True)
class Gpu:
    number: int    # of its device file, /dev/nvidiaN
    uuid: str
    pci: str
    kind: str      # its product
    instances: tuple = None  # UUIDs of MIG instances; None: not in MIG mode


@dataclass
class Answer:
    """What a program may do: any of these sets of UUIDs, or refuse."""
    sets: list = field(default_factory=list)
    refuses: str = "never"  # "may", "must"

    def allows(self, found):
        """`found`: UUIDs; None: the program refused."""
        return self.refuses != "never" if found is None else found in self.sets

    def never(self):
        """Whether no GPU is in any set."""
        return not any(self.sets)

    def reached(self):
        """The GPUs that are in every set."""
        return set.intersection(*self.sets) if self.sets else set()


def exactly(uuids):
    return Answer([set(uuids)])


REFUSED = Answer([], "must")


# --- CUDA_VISIBLE_DEVICES ------------------------------------------------------------------------

def number_of(item):
    """strtoul(3), of which the driver keeps 32 bits; None: no digits."""
    found = re.match(r"[ \t\n\v\f\r]*([+-]?)([0-9]+)", item)
    if not found:
        return None
    number = int(found[2])
    if number >= 1 << 64:
        number = (1 << 64) - 1
    elif found[1] == "-":
        number = -number
    number &= (1 << 32) - 1
    return number - (1 << 32) if number >= 1 << 31 else number


def digits_of(name, prefix):
    """Of a UUID, without dashes; empty: another character is among them."""
    if not name.startswith(prefix):
        return ""
    digits = name[len(prefix):].replace("-", "").lower()[:DIGITS]
    return digits if re.fullmatch(r"[0-9a-f]+", digits) else ""


def named(item, view):
    """(GPU, MIG instance or "") of a name; None: it names no device, or several."""
    names = [(digits_of(gpu.uuid, "GPU-"), (gpu, "")) for gpu in view
             if item.startswith("GPU-") or gpu.instances is None]
    prefix = item[:4]
    if prefix == "MIG-":
        names += [(digits_of(one, "MIG-"), (gpu, one)) for gpu in view
                  for one in gpu.instances or ()]
    wanted = digits_of(item, prefix) if prefix in ("GPU-", "MIG-") else ""
    fits = [device for digits, device in names if wanted and digits.startswith(wanted)]
    return fits[0] if len(fits) == 1 else None


def read(value, find):
    """The devices up to the first item that is none; [] if one comes twice before that."""
    out = []
    for item in value.split(","):
        device = find(item)
        if device is None:
            return out
        if device in out:
            return []
        out.append(device)
    return out


def by_names(value, view):
    devices = read(value, lambda item: named(item, view))
    at = next((at for at, (_, instance) in enumerate(devices) if instance), None)
    if at is None:
        return exactly(gpu.uuid for gpu, _ in devices)
    # "A list of GPUs with a MIG instance after them is refused." Of several only the first is seen.
    return REFUSED if at > 0 else exactly([devices[0][0].uuid])


def enumerated(view, order):
    """Each order in which CUDA can number the GPUs: which kind is the fastest is not published."""
    if order == "PCI_BUS_ID":
        return [sorted(view, key=lambda gpu: gpu.pci)]
    return [sorted(view, key=lambda gpu: (kinds.index(gpu.kind), gpu.pci))
            for kinds in itertools.permutations(sorted({gpu.kind for gpu in view}))]


def by_numbers(value, order, view):
    def find(devices, item):
        number = number_of(item)
        return devices[number] if number is not None and 0 <= number < len(devices) else None
    sets = []
    for devices in enumerated(view, order):
        shown = {gpu.uuid for gpu in read(value, lambda item: find(devices, item))}
        sets += [shown] if shown not in sets else []
    if sets == [set()]:
        return exactly([])
    if len(view) > 1 and any(gpu.instances is not None for gpu in view):
        return REFUSED
    if len(sets) > 1:
        return REFUSED
    # "A list that has all GPUs needs no order."
    certain = len(enumerated(view, order)) == 1 or len(sets[0]) == len(view)
    return Answer(sets, "never" if certain else "may")


def cuda(value, order, view):
    """What the list shows; of a value that is not set, all."""
    if order is not None and order not in ORDERS:
        return exactly([])
    if value is None:
        return exactly(gpu.uuid for gpu in view)
    if value.startswith(("GPU-", "MIG-")):
        return by_names(value, view)
    return by_numbers(value, order, view)


# --- -i, and Slurm's variables -------------------------------------------------------------------

def meant_by(item, view):
    """GPUs of an item of `-i` (docs/config.md, "Names of GPUs"); None: refused."""
    if re.fullmatch(r"[0-9]+", item):
        return [view[int(item)]] if int(item) < len(view) else None
    if bounds := re.fullmatch(r"([0-9]+) *- *([0-9]+)", item):
        first, last = map(int, bounds.groups())
        return view[first:last + 1] if first <= last < len(view) else None
    if re.fullmatch(r"(([0-9a-fA-F]{4}){1,2}:)?[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-9a-fA-F]", item):
        domain, rest = item[:-8], item[-7:]  # as in lspci, none is domain 0
        found = [gpu for gpu in view if gpu.pci == f"{domain:0>8}:{rest}".upper()]
    elif re.match("mig-", item, re.IGNORECASE):
        found = [gpu for gpu in view if item in (gpu.instances or ())]
    elif re.match("gpu-[0-9a-zA-Z-]", item, re.IGNORECASE):
        found = [gpu for gpu in view if gpu.uuid.lower().startswith(item.lower())]
    else:
        return None
    return found if len(found) == 1 else None


def chosen(text, view):
    """The GPUs of `-i`. Whether a MIG instance may be named there is not documented."""
    items = [item.strip() for item in text.split(",") if item.strip()]
    meant = [view if item.lower() == "all" else meant_by(item, view) for item in items]
    syntax = [found is not None or re.match("[0-9gGmM]", item) for item, found in zip(items, meant)]
    if any(item.lower() == "all" for item in items) and all(syntax):
        return Answer([{gpu.uuid for gpu in view}], "may" if None in meant else "never")
    if None in meant:
        return REFUSED
    uuids = {gpu.uuid for found in meant for gpu in found}
    mig = any(re.match("mig-", item, re.IGNORECASE) for item in items)
    return Answer([uuids], "may" if mig else "never")


def of_slurm(text, view):
    """Numbers are places in slurmd's list. Where the process sees no more GPUs than the variable
    has, these are the job's."""
    numbers = set()
    for part in text.split(","):
        first, _, last = part.partition("-")
        numbers |= set(range(int(first), int(last or first) + 1))
    return exactly(gpu.uuid for gpu in view) if len(view) <= len(numbers) else REFUSED


def of_environment(variables, view):
    """What the environment names; None: nothing."""
    if "CUDA_VISIBLE_DEVICES" in variables:
        return cuda(variables["CUDA_VISIBLE_DEVICES"], variables.get("CUDA_DEVICE_ORDER"), view)
    order = variables.get("CUDA_DEVICE_ORDER")
    for name in ("SLURM_STEP_GPUS", "SLURM_JOB_GPUS"):
        if variables.get(name, "").strip():
            return of_slurm(variables[name], view) if cuda(None, order, view).reached() else \
                exactly([])
    return None
