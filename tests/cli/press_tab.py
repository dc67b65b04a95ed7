#!/usr/bin/env python3
"""Completes a command line in an interactive bash, as somebody does who presses Tab.

usage: press_tab.py SCRIPT LINE...     the completion script, and lines to complete
Prints each line as it stands after one Tab, or the choices where a second Tab lists some.
"""

import os
import pty
import re
import select
import sys
import time

PROMPT = b"ready> "


def read_until(terminal, wanted, seconds=10.0):
    """What the terminal shows until `wanted` or, without it, until it is quiet."""
    seen = b""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        quiet = 0.7 if wanted is None else 0.1
        if select.select([terminal], [], [], quiet)[0]:
            seen += os.read(terminal, 65536)
        elif wanted is None:
            return seen
        if wanted is not None and wanted in seen:
            return seen
    return seen


def plain(text):
    text = re.sub(rb"\x1b\[[0-9;?]*[A-Za-z]", b"", text)
    return text.replace(b"\x07", b"").decode().replace("\r", "")


def main():
    script, lines = sys.argv[1], sys.argv[2:]
    child, terminal = pty.fork()
    if child == 0:
        os.environ.update(PS1=PROMPT.decode(), TERM="dumb", COLUMNS="300", INPUTRC="/dev/null")
        os.execvp("bash", ["bash", "--noprofile", "--norc", "-i"])
    read_until(terminal, PROMPT)
    os.write(terminal, f"stty cols 300; source {script}; PS1='go> '\n".encode())
    read_until(terminal, b"\ngo> ")
    for line in lines:
        os.write(terminal, line.encode() + b"\t")
        shown = plain(read_until(terminal, None))
        if shown.rstrip() == line.rstrip():
            os.write(terminal, b"\t")
            shown = " ".join(plain(read_until(terminal, None)).split("go> ")[0].split())
        print(f"{line} => {shown}")
        os.write(terminal, b"\x15\x0b")
        read_until(terminal, None)
    os.write(terminal, b"exit\n")


if __name__ == "__main__":
    main()
