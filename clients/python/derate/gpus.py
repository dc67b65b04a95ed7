"""Which GPUs are this program's own, by its environment and its own driver, as UUIDs.

The rules are those of `derate run` (docs/run.md of Derate).
"""
import os
import re

import derate_client


class Unknown(Exception):
    """It is not known which GPUs are meant, or there is none; in words."""


def _bus_key(gpu):
    bus = gpu["pci"].lower()
    return bus if bus.find(":") != 4 else "0000" + bus


def _numbers(value, order, seen):
    gpus = sorted(seen, key=_bus_key) if all(gpu["pci"] for gpu in seen) else seen
    out = []
    for item in value.split(","):
        number = re.match(r"\s*([+-]?)([0-9]+)", item)
        if not number or number[1] == "-" and int(number[2]) or int(number[2]) >= len(gpus):
            break
        if int(number[2]) in out:
            return []
        out.append(int(number[2]))
    mixed = len({gpu["name"] for gpu in gpus}) > 1
    if out and len(gpus) > 1 and any(gpu["mig"] for gpu in gpus):
        raise Unknown(f"CUDA_VISIBLE_DEVICES={value!r}: a GPU is in MIG mode; name GPUs by UUID")
    if out and mixed and order != "PCI_BUS_ID" and len(out) != len(gpus):
        raise Unknown(f"CUDA_VISIBLE_DEVICES={value!r}: the GPUs are of different kinds; set "
                      "CUDA_DEVICE_ORDER=PCI_BUS_ID, or name GPUs by UUID")
    return [gpus[number]["uuid"] for number in out]


def _names(value, prefix, names):
    """names: (name of a device, UUID of its GPU)."""
    found = []
    for item in value.split(","):
        matches = [each for each in names if item.startswith(prefix) and each[0].startswith(item)]
        if len(matches) != 1:
            break
        if matches[0] in found:
            return []
        found += matches
    return list(dict.fromkeys(gpu for _, gpu in found))


def visible_to_cuda(value, order, seen):
    """The UUIDs that CUDA_VISIBLE_DEVICES=value shows, as the driver reads it. seen: as
    derate_client.seen_gpus() gives it."""
    if value.startswith("GPU-"):
        return _names(value, "GPU-", [(gpu["uuid"], gpu["uuid"]) for gpu in seen])
    if value.startswith("MIG-"):
        return _names(value, "MIG-", [(each, gpu["uuid"]) for gpu in seen for each in gpu["mig"]])
    return _numbers(value, order, seen)


def _slurm(name, value, seen):
    wanted = set()
    for item in filter(None, map(str.strip, value.split(","))):
        ends = re.fullmatch(r"(\d{1,4})(?:-(\d{1,4}))?", item)
        if ends is None:
            raise Unknown(f"{name}={value!r}: allowed are numbers and ranges")
        wanted.update(range(int(ends[1]), int(ends[2] or ends[1]) + 1))
    if len(seen) <= len(wanted):
        return [gpu["uuid"] for gpu in seen]
    out = [gpu["uuid"] for gpu in seen if gpu["minor"] in wanted]
    if len(out) != len(wanted):
        raise Unknown(f"{name}={value!r}: not all of these GPUs of the node are here")
    return out


def own_gpus(environment=os.environ, see=None):
    """The GPUs that this program may use, as "GPU-...,GPU-...", by CUDA_VISIBLE_DEVICES, else
    SLURM_STEP_GPUS, else SLURM_JOB_GPUS; None where none of them says which. Raises Unknown where
    there is none, or it is not known which."""
    name, value = "CUDA_VISIBLE_DEVICES", environment.get("CUDA_VISIBLE_DEVICES")
    for other in ("SLURM_STEP_GPUS", "SLURM_JOB_GPUS"):
        if value is None and environment.get(other, "").strip():
            name, value = other, environment[other]
    if value is None:
        return None
    seen = (see or derate_client.seen_gpus)()
    if seen is None:
        if name == "CUDA_VISIBLE_DEVICES" and value.startswith("GPU-"):
            return ",".join(re.match(r"(?:GPU-[^,]*,?)+", value)[0].rstrip(",").split(","))
        raise Unknown(f"{name}={value!r}: which GPUs these are is not known without a driver")
    if name == "CUDA_VISIBLE_DEVICES":
        out = visible_to_cuda(value, environment.get("CUDA_DEVICE_ORDER"), seen)
    else:
        out = _slurm(name, value, seen)
    if not out:
        raise Unknown(f"{name}={value!r} hides every GPU from this program")
    return ",".join(out)
