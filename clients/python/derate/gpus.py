"""Which GPUs are this program's own, by its environment and its own driver, as UUIDs.

The rules are those of `derate run` (docs/run.md of Derate).
"""
import os
import re

import derate_client

_CUDA = "CUDA_VISIBLE_DEVICES"
_ORDER = "CUDA_DEVICE_ORDER"
_ORDERS = ("PCI_BUS_ID", "FASTEST_FIRST")
_WHOLE = r"GPU-[0-9A-Za-z-]{36}"


class Unknown(Exception):
    """Why it is not known which GPUs the program may use, or that it may use none."""


def _not_known(value, why):
    return Unknown(f"{_CUDA}={value!r}: {why}")


def _silence(seen):
    return f"{len(seen.silent)} of the machine's GPUs do not answer with UUIDs of their own"


def _read(value, find):
    """The devices of the list up to the first item that names none."""
    out = []
    for item in value.split(","):
        device = find(item)
        if device is None:
            break
        if device in out:
            return []
        out.append(device)
    return out


def _bus_key(gpu):
    bus = gpu["pci"].lower()
    return bus if bus.find(":") != 4 else "0000" + bus


def _check_order(value, order, seen, wanted):
    why = "cannot find out which number CUDA gives to which GPU: "
    by_uuid = "; name GPUs by UUID"
    if seen.silent:
        raise _not_known(value, why + _silence(seen) + by_uuid)
    if len(seen) < 2:
        return
    if any(gpu["mig"] or gpu["unread"] for gpu in seen):
        raise _not_known(value, why + "a GPU is in MIG mode" + by_uuid)
    if wanted == len(seen):
        return
    if not all(gpu["pci"] for gpu in seen):
        raise _not_known(value, why + "a GPU has no PCI bus id" + by_uuid)
    if len({gpu["name"] for gpu in seen}) > 1 and order != "PCI_BUS_ID":
        raise _not_known(value, why + "the GPUs are of different kinds; set "
                         "CUDA_DEVICE_ORDER=PCI_BUS_ID, or name GPUs by UUID")


def _number(item):
    """The item as strtoul(3) reads it in base 10; the driver keeps 32 bits as an int. None if it is
    no number."""
    found = re.match(r"[ \t\n\v\f\r]*([+-]?)([0-9]+)", item)
    if not found:
        return None
    number = int(found[2])
    if number >= 1 << 64:
        return -1
    number = (-number if found[1] == "-" else number) % (1 << 32)
    return number - (1 << 32) if number >= 1 << 31 else number


def _numbers(value, order, seen):
    gpus = sorted(seen, key=_bus_key) if all(gpu["pci"] for gpu in seen) else seen

    def find(item):
        number = _number(item)
        return number if number is not None and 0 <= number < len(gpus) else None

    out = _read(value, find)
    first = _number(value.split(",")[0])
    if out or seen.silent and first is not None and first >= 0:
        _check_order(value, order, seen, len(out))
    return [gpus[number]["uuid"] for number in out]


def _digits(uuid, prefix):
    """The first 32 hex digits of a UUID after its prefix, in lower case, without dashes; later
    characters do not count. Empty if there are none, or if another character is among them."""
    out = ""
    for char in uuid[len(prefix):] if uuid.startswith(prefix) else "":
        if len(out) == 32:
            break
        if char == "-":
            continue
        if char not in "0123456789abcdefABCDEF":
            return ""
        out += char.lower()
    return out


def _only_one(digits, devices):
    """The device of the only pair (digits, device) that begins with `digits`, and whether these are
    all of its digits; (None, False) if no pair or several begin so."""
    found = [(device, each == digits) for each, device in devices
             if digits and each.startswith(digits)]
    return found[0] if len(found) == 1 else (None, False)


def _gpus(seen):
    return [(_digits(gpu["uuid"], "GPU-"), (gpu["uuid"], None)) for gpu in seen]


def _instance(item, seen):
    """A MIG instance by path or by UUID. A GPU that is not in MIG mode has such a name, too."""
    if item.startswith("MIG-GPU-"):
        parts = item[len("MIG-"):].split("/")
        gpu, whole = _only_one(_digits(parts[0], "GPU-"), _gpus(seen))
        if len(parts) != 3 or gpu is None or not all(re.fullmatch("[0-9]{1,9}", each)
                                                     for each in parts[1:]):
            return None, False
        for one in seen:
            for uuid, *place in one["instances"]:
                if one["uuid"] == gpu[0] and place == [int(part) for part in parts[1:]]:
                    return (gpu[0], uuid), whole
        return None, False
    devices = _gpus([gpu for gpu in seen if not gpu["mig"]])
    devices += [(_digits(each[0], "MIG-"), (gpu["uuid"], each[0])) for gpu in seen
                for each in gpu["instances"]]
    return _only_one(_digits(item, "MIG-"), devices)


def _names(value, seen):
    unread = any(gpu["unread"] for gpu in seen)

    def find(item):
        mig = item.startswith("MIG-")
        if not mig and not item.startswith("GPU-"):
            return None
        device, whole = _instance(item, seen) if mig else _only_one(_digits(item, "GPU-"),
                                                                    _gpus(seen))
        if not whole and (mig and unread or seen.silent):
            why = _silence(seen) if seen.silent else "a GPU does not list its MIG instances"
            raise _not_known(value, f"cannot find out which GPU {item!r} means: {why}; name GPUs "
                             "by whole UUIDs")
        return device

    out = _read(value, find)
    instances = [at for at, (_, instance) in enumerate(out) if instance is not None]
    if instances and instances[0] > 0:
        raise _not_known(value, "a list with GPUs before a MIG instance is not supported; "
                         "name the instance, or the GPUs, alone")
    # A process sees only the first MIG instance.
    return [gpu for gpu, _ in out][:1 if instances else None]


def visible_to_cuda(value, order, seen):
    """The UUIDs that the driver shows for CUDA_VISIBLE_DEVICES=value. order: the value of
    CUDA_DEVICE_ORDER, None if it is not set. seen: the result of derate_client.seen_gpus(). Raises
    Unknown."""
    if order is not None and order not in _ORDERS:
        return []  # cuInit fails
    if value.startswith(("GPU-", "MIG-")):
        return _names(value, seen)
    return _numbers(value, order, seen)


def _slurm(name, value, seen):
    wanted = set()
    for item in filter(None, map(str.strip, value.split(","))):
        ends = re.fullmatch(r"(\d{1,4})(?:-(\d{1,4}))?", item)
        if ends is None:
            raise Unknown(f"{name}={value!r}: allowed are numbers and ranges")
        wanted.update(range(int(ends[1]), int(ends[2] or ends[1]) + 1))
    if seen.silent:
        raise Unknown(f"{name}={value!r}: " + _silence(seen))
    if len(seen) > len(wanted):
        raise Unknown(f"{name}={value!r}: these are places in slurmd's list of GPUs, and this "
                      f"process sees {len(seen)} GPUs: which of them the job has is not known")
    return [gpu["uuid"] for gpu in seen]


def _without_driver(name, value):
    items = value.split(",")
    if name != _CUDA or len(set(items)) != len(items) or not all(re.fullmatch(_WHOLE, each)
                                                                 for each in items):
        raise Unknown(f"{name}={value!r}: which GPUs these are is not known without a driver "
                      "(whole UUIDs need none)")
    return value


def own_gpus(environment=os.environ, see=None):
    """The GPUs that this program may use, as "GPU-...,GPU-...", by CUDA_VISIBLE_DEVICES, else
    SLURM_STEP_GPUS, else SLURM_JOB_GPUS. None if none of these is set. Raises Unknown if there is
    no such GPU, as with an invalid CUDA_DEVICE_ORDER, or if it is not known which they are."""
    order = environment.get(_ORDER)
    if order is not None and order not in _ORDERS:  # cuInit fails, whatever else is set
        raise Unknown(f"{_ORDER}={order!r} hides every GPU from this program")
    name, value = _CUDA, environment.get(_CUDA)
    for other in ("SLURM_STEP_GPUS", "SLURM_JOB_GPUS"):
        if value is None and environment.get(other, "").strip():
            name, value = other, environment[other]
    if value is None:
        return None
    seen = (see or derate_client.seen_gpus)()
    if seen is None and value:
        return _without_driver(name, value)
    if name == _CUDA:
        seen = seen if seen is not None else derate_client.View()
        out = visible_to_cuda(value, order, seen)
    else:
        out = _slurm(name, value, seen)
    if not out:
        raise Unknown(f"{name}={value!r} hides every GPU from this program")
    return ",".join(out)
