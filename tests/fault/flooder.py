"""A user without rights who does to the client socket whatever a user may.

    flooder.py SOCKET WHAT CONNECTIONS

Goes on until it is killed. WHAT: `wide` objects of 8000 keys, `deep` lists, `lists` of all jobs,
`places` that are held and say nothing.
"""
import itertools
import json
import select
import socket
import string
import sys


def wide(keys):
    words = itertools.product(string.ascii_letters + string.digits, repeat=3)
    names = ["".join(word) for word in itertools.islice(words, keys)]
    request = {"command": "gpus"} | dict.fromkeys(names, 1)
    return json.dumps(request, separators=(",", ":")).encode() + b"\n"


REQUESTS = {"wide": wide(8000), "deep": b"[" * 65000 + b"\n",
            "lists": b'{"command":"tune-job-list"}\n', "places": b""}


def connected(path):
    line = socket.socket(socket.AF_UNIX)
    line.settimeout(1)
    try:
        line.connect(path)
    except OSError:
        pass
    line.setblocking(False)
    return line


def main(path, what, count):
    request = REQUESTS[what]
    left = {connected(path): request for _ in range(int(count))}
    print("ready", flush=True)
    while True:
        heard, said, _ = select.select(left, left if request else [], [], 1)
        for line in {*heard, *said}:
            try:
                if line in heard and not line.recv(1 << 16):
                    raise ConnectionError
                if line in said:
                    left[line] = left[line][line.send(left[line]):] or request
            except BlockingIOError:
                continue
            except OSError:  # sent away: comes again
                del left[line]
                line.close()
                left[connected(path)] = request


if __name__ == "__main__":
    main(*sys.argv[1:])
