"""Attacks of scripts/attacks over HTTP: derated's api.sock, derate-agent's port and the port of
`derate ui`. The same misuse is tried at each of the three. Misuse of only one of them comes last.
"""

import contextlib
import itertools
import os
import random
import socket
import struct
import time
from pathlib import Path

import attacker
from attacker import LIBC, http_get
from doors import GAINED, attack, child, no_zombies

DOORS = ("api", "agent", "ui")


def post(path, body, *fields):
    head = "".join(field + "\r\n" for field in fields)
    return (f"POST {path} HTTP/1.1\r\nHost: localhost\r\n{head}"
            f"Content-Length: {len(body)}\r\n\r\n{body}").encode()


SET = '{"policy":"max-freq"}'  # the answer to it is never 200 for an attacker
FORBIDDEN = post("/v1/policy-set", SET, "Content-Type: application/json")


# --- many connections -----------------------------------------------------------------------------

class Crowd:
    """Connections, each opened again when it is lost. `piece`: bytes of the text to send at a time
    (0: all); `sip`: bytes to read at a time (0: none, -1: all)."""

    def __init__(self, tally, place, door, count, text, piece=0, sip=-1, buffer=None):
        self.tally, self.place, self.door = tally, place, door
        self.text, self.piece, self.sip, self.buffer = text, piece, sip, buffer
        self.left = {}
        self.count = count

    def open(self):
        try:
            one = self.place.dial(self.door, 1, self.buffer)
        except OSError:
            self.tally[3] += 1
            return False
        one.setblocking(False)
        self.left[one] = self.text
        self.tally[0] += 1
        return True

    def turn(self, one):
        if self.sip:
            with contextlib.suppress(BlockingIOError):
                answer = one.recv(self.sip if self.sip > 0 else 1 << 18)
                if not answer:
                    raise ConnectionResetError
                self.tally[4] += answer.count(b"HTTP/1.1 ")
        with contextlib.suppress(BlockingIOError):
            left = self.left[one] or self.text
            sent = one.send(left[:self.piece] if self.piece else left)
            self.left[one] = left[sent:]

    def go(self, pause=0.0):
        while True:
            while len(self.left) < self.count and self.open():
                pass
            for one in list(self.left):
                try:
                    self.turn(one)
                except OSError:
                    del self.left[one]
                    one.close()
            self.place.rest(pause)


def crowds():
    pipeline = http_get("/metrics") * 20
    chunks = (b"POST /v1/policy-set HTTP/1.1\r\nHost: localhost\r\n"
              b"Transfer-Encoding: chunked\r\n\r\n" + (b"1;" + b"x" * 1000 + b"\r\n{\r\n") * 60)
    slow = b"GET /v1/gpus HTTP/1.1\r\nHost: localhost\r\nX-A: " + b"y" * 4000
    expect = (b"POST /v1/policy-set HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\n"
              b"Content-Length: 65536\r\n\r\n")
    body = post("/v1/policy-set", '{"a":' * 8000 + "1" + "}" * 8000)
    ranges = http_get("/metrics", Range="bytes=" + ",".join(f"{at}-{at}" for at in range(900)))
    upgrade = http_get("/v1/events", Connection="Upgrade", Upgrade="websocket",
                       Sec_WebSocket_Key="x" * 24) + bytes(200)
    stream = http_get("/v1/events", Accept="text/event-stream", Last_Event_ID="0")
    for door in DOORS:
        for name, what, text, count, rest in (
                ("flood", "reads as fast as they go", http_get("/metrics"), 64, {}),
                ("sips", "pipelined reads whose answers are read by single bytes", pipeline, 128,
                 {"sip": 1, "buffer": 2048}),
                ("deaf", "pipelined reads whose answers are never read", pipeline, 128, {"sip": 0}),
                ("drips", "heads that come a byte at a time", slow, 600, {"piece": 1}),
                ("chunks", "chunks of a byte with extensions of a kilobyte", chunks, 64, {}),
                ("expect", "bodies that are announced and never come", expect, 300, {"piece": 40}),
                ("bodies", "bodies of 64 kB, 8000 levels deep", body, 32, {}),
                ("ranges", "a thousand ranges of one answer", ranges, 64, {}),
                ("upgrade", "upgrades to websockets, with frames behind", upgrade, 64, {}),
                ("streams", "streams of events that nobody reads", stream, 128, {"sip": 0})):
            known = {"flood": "http", "deaf": "http", "drips": "12", "chunks": "http",
                     "bodies": "http", "streams": "http"}.get(name, "")

            @attack(door, name, what, known=known)
            def _(tally, place, door=door, text=text, count=count, rest=rest, name=name):
                crowd = Crowd(tally, place, door, place.share(count), text, **rest)
                crowd.go(0.05 if name in ("drips", "expect", "sips") else 0.0)


crowds()


# --- requests that are not what they look like ----------------------------------------------------

def smuggled():
    """Requests with a FORBIDDEN part, which must not be carried out."""
    to, host = "POST /v1/policy-set HTTP/1.1\r\n", "Host: localhost\r\n"
    inner = FORBIDDEN.decode()
    chunk = f"{len(SET):x}\r\n{SET}\r\n0\r\n\r\n"
    heads = [
        f"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n{chunk}{inner}",
        f"Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n{chunk}{inner}",
        f"Transfer-Encoding: \x0bchunked\r\n\r\n{chunk}",
        f"Transfer-Encoding : chunked\r\n\r\n{chunk}",
        f"Content-Length: +{len(SET)}\r\n\r\n{SET}", f"Content-Length: 0\r\n\r\n{inner}",
        f"Content-Length: {len(SET)}, {len(SET)}\r\n\r\n{SET}",
        f"Content-Length: 18446744073709551637\r\n\r\n{SET}", f"Content-Length: -1\r\n\r\n{inner}",
        f"Transfer-Encoding: chunked\r\n\r\nffffffffffffffff1\r\n{inner}",
        "Transfer-Encoding: chunked\r\n\r\n0\r\nAuthorization: Bearer x\r\n\r\n" + inner,
        f"Connection: Content-Length\r\nContent-Length: {len(SET)}\r\n\r\n{SET}",
        f"X: a\r\n Host: b\r\nContent-Length: {len(SET)}\r\n\r\n{SET}",
        f"Authorization: Bearer a\r\nAuthorization: Bearer b\r\n\r\n{inner}",
        f"X-Remote-User: root\r\nX-Forwarded-User: root\r\nForwarded: for=_root\r\n"
        f"Content-Length: {len(SET)}\r\n\r\n{SET}",
        f"Upgrade: h2c\r\nConnection: Upgrade, HTTP2-Settings\r\nHTTP2-Settings: AAMAAABk\r\n\r\n"
        f"{inner}",
    ]
    out = [(to + host + head).encode("latin-1") for head in heads]
    for target in ("//v1/policy-set", "/v1%2fpolicy-set", "/metrics/../v1/policy-set",
                   "/v1/policy-set;a=/metrics", "http://localhost/v1/policy-set", "/V1/POLICY-SET",
                   "/metrics?x=%0d%0aX:1", "/metrics%00/v1/policy-set", "*"):
        out.append(FORBIDDEN.replace(b"/v1/policy-set", target.encode(), 1))
    for name in ("[::ffff:127.0.0.1]", "127.1", "2130706433", "localhost.", "[::1%25lo]",
                 "a@localhost", "localhost:0x50", "evil.example", "", "localhost\x0bevil",
                 "xn--localhost-"):
        out.append(FORBIDDEN.replace(b"localhost", name.encode(), 1))
    out += [b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(100),
            b"\x16\x03\x01\x02\x00\x01" + bytes(200),
            b"GET /v1/gpus HTTP/9.9\r\n\r\n" + FORBIDDEN, b"CONNECT localhost:22 HTTP/1.1\r\n\r\n",
            FORBIDDEN.replace(b"\r\n", b"\n"), b"HEAD /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n"
            + FORBIDDEN]
    return out


def done_for(answer):
    """Whether the forbidden part was carried out: only then the answer contains this text."""
    return b"governed by" in answer


def at_each():
    for door in DOORS:
        @attack(door, "smuggled", "requests with two ends, two hosts, two tokens or two paths",
                known="smug")
        def _(tally, place, door=door):
            texts = smuggled()
            for at in itertools.count():
                with contextlib.suppress(OSError), place.dial(door, 0.3) as one:
                    one.sendall(texts[at % len(texts)])
                    answer = b""
                    with contextlib.suppress(OSError):
                        while piece := one.recv(65536):
                            answer += piece
                    tally[0] += 1
                    tally[GAINED] += done_for(answer)
                place.rest()

        @attack(door, "resets", "connections that are reset or hung up on as soon as they stand")
        def _(tally, place, door=door):
            for at in itertools.count():
                with contextlib.suppress(OSError), place.dial(door, 1) as one:
                    if at % 2 and one.family == socket.AF_INET:
                        one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER,
                                       struct.pack("ii", 1, 0))
                    if at % 3 == 0:
                        one.send(http_get("/metrics") * 5)
                    tally[0] += 1
                place.rest()

        @attack(door, "halves", "requests whose sender has ended, its connections kept by children")
        def _(tally, place, door=door):
            no_zombies()

            def begin():
                some = []
                for _ in range(place.share(40)):
                    with contextlib.suppress(OSError):
                        some.append(place.dial(door, 1))
                        some[-1].send(http_get("/metrics") + b"GET /v1/gp")
                        some[-1].shutdown(socket.SHUT_WR)
                        tally[0] += 1
                if os.fork() == 0:
                    time.sleep(2)
            while True:
                child(begin)
                time.sleep(0.1)


at_each()


# --- api.sock -------------------------------------------------------------------------------------

@attack("api", "history", "reads of all that there is, by absurd times", known="http")
def _(tally, place):
    paths = ("/v1/history?from=2000-01-01&to=2100-01-01&points=10000&kind=all",
             "/v1/savings?from=1970-01-01&to=now&by=job", "/v1/why?changes=1000",
             "/v1/events?from=1970-01-01&most=10000", "/v1/attribution", "/v1/forecast?gpu=0",
             "/v1/advice?gpu=0", "/v1/tune-job-list", "/v1/config-show", "/v1/openapi.json")
    text = b"".join(http_get(path) for path in paths)
    Crowd(tally, place, "api", place.share(64), text).go()


@attack("api", "places", "as many connections as a user gets, held and taken again", known="5")
def _(tally, place):
    Crowd(tally, place, "api", place.share(160), b"G", sip=1).go(0.05)


@attack("api", "namespaces", "from user namespaces, as their root")
def _(tally, place):
    no_zombies()

    def inside():
        LIBC.unshare(0x10000000)
        with contextlib.suppress(OSError):
            Path("/proc/self/setgroups").write_text("deny")
            Path("/proc/self/uid_map").write_text(f"0 {place.uid} 1")
        with contextlib.suppress(OSError), place.dial("api", 1) as one:
            one.sendall(FORBIDDEN)
            tally[0] += 1
            tally[GAINED] += done_for(one.recv(65536))
    while True:
        child(inside)
        place.rest(0.01)


@attack("api", "tokens", "wrong tokens, empty ones, ones of a megabyte")
def _(tally, place):
    fields = ("Bearer x", "Bearer ", "bearer\t" + "a" * 500, "Basic cm9vdDo=",
              "Bearer " + "a" * 7000)
    for at in itertools.count():
        with contextlib.suppress(OSError), place.dial("api", 1) as one:
            one.sendall(FORBIDDEN.replace(b"Content-Type", b"Authorization: "
                                          + fields[at % 5].encode() + b"\r\nContent-Type", 1))
            tally[0] += 1
            tally[GAINED] += done_for(one.recv(65536))
        place.rest()


# --- derate-agent ---------------------------------------------------------------------------------

@attack("agent", "gate", "wrong tokens in heads that fit the agent and not derated", known="4")
def _(tally, place):
    if place.many:
        time.sleep(place.number / 50)
    attacker.poison_gate(tally, place.ports["agent"])


@attack("agent", "guesses", "wrong tokens as fast as they go", known="4")
def _(tally, place):
    for number in itertools.count():
        with contextlib.suppress(OSError), place.dial("agent", 2) as one:
            one.sendall(attacker.get("/v1/gpus", f"wrong{place.uid}{number}"))
            tally[0] += 1
            tally[GAINED] += b"HTTP/1.1 200" in one.recv(4096)
        place.rest()


@attack("agent", "large-guesses", "wrong tokens with bodies of 64 kB, on operations")
def _(tally, place):
    body = SET + " " * (65_000 - len(SET))
    for number in itertools.count():
        with contextlib.suppress(OSError), place.dial("agent", 2) as one:
            one.sendall(post("/v1/policy-set", body, f"Authorization: Bearer w{place.uid}{number}",
                             "Content-Type: application/json"))
            tally[0] += 1
            tally[GAINED] += b"HTTP/1.1 200" in one.recv(4096)
        place.rest()


@attack("agent", "stream-guesses", "streams with wrong tokens: streams have sixteen places")
def _(tally, place):
    for number in itertools.count():
        with contextlib.suppress(OSError), place.dial("agent", 2) as one:
            one.sendall(attacker.get("/v1/events", f"wrong{place.uid}{number}").replace(
                b"Host:", b"Accept: text/event-stream\r\nHost:", 1))
            tally[0] += 1
            tally[GAINED] += b"HTTP/1.1 200" in one.recv(4096)
        place.rest()


@attack("agent", "places", "every place held by connections that have said half a word", known="12")
def _(tally, place):
    Crowd(tally, place, "agent", place.share(600), b"G", sip=1).go(0.05)


@attack("agent", "keeps", "every place held by connections between two whole requests")
def _(tally, place):
    Crowd(tally, place, "agent", place.share(600), http_get("/livez"), piece=400).go(0.5)


@attack("agent", "time-wait", "ten thousand connections that wait for their end in the kernel")
def _(tally, place):
    while True:
        for _ in range(200):
            with contextlib.suppress(OSError), place.dial("agent", 1) as one:
                one.shutdown(socket.SHUT_WR)
                tally[0] += 1
        place.rest(0.01)


# --- derate ui ------------------------------------------------------------------------------------

@attack("ui", "code", "the code of another user's page, by whatever way it became known", known="1")
def _(tally, place):
    port = place.ports["ui"]
    while True:
        tally[GAINED] += attacker.http(port, attacker.exchange(port, place.code)) == 200
        tally[GAINED] += attacker.http(port, attacker.get("/metrics")) == 200
        tally[0] += 1
        place.rest()


@attack("ui", "hosts", "the page's code and paths by other names of this machine")
def _(tally, place):
    port = place.ports["ui"]
    for at in itertools.count():
        host = ("localhost", f"[::1]:{port}", "127.0.0.1.nip.io", f"127.0.0.1:{port}",
                "0.0.0.0")[at % 5]
        text = attacker.exchange(port, place.code if at % 2 else "x" * 43).replace(
            f"Host: 127.0.0.1:{port}".encode(), f"Host: {host}".encode())
        with contextlib.suppress(OSError):
            address = (f"127.0.0.{1 + at % 3}", port)
            with socket.create_connection(address, timeout=0.5) as one:
                one.sendall(text)
                tally[0] += 1
                tally[GAINED] += b"HTTP/1.1 200" in one.recv(4096)
        place.rest()


@attack("ui", "orphans", "connections whose process ends as soon as it has asked")
def _(tally, place):
    no_zombies()

    def ask_and_end():
        with contextlib.suppress(OSError):
            one = place.dial("ui", 1)
            one.send(attacker.exchange(place.ports["ui"], place.code))
            os._exit(0)
    while True:
        child(ask_and_end)
        tally[0] += 1
        place.rest(0.002)


@attack("ui", "port", "the page's port bound again by another user, at all addresses")
def _(tally, place):
    port = place.ports["ui"]
    while True:
        for family, address in ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET, "0.0.0.0"),
                                (socket.AF_INET, "127.0.0.2"), (socket.AF_INET6, "::")):
            with contextlib.suppress(OSError), socket.socket(family) as one:
                for option in (socket.SO_REUSEADDR, socket.SO_REUSEPORT):
                    with contextlib.suppress(OSError):
                        one.setsockopt(socket.SOL_SOCKET, option, 1)
                one.bind((address, port))
                one.listen(8)
                one.settimeout(0.05)
                caller, _ = one.accept()
                caller.settimeout(0.2)
                tally[GAINED] += b"Bearer" in caller.recv(4096)
        tally[0] += 1
        place.rest(0.01)


@attack("ui", "files", "the folder and the file that lead a browser to the page")
def _(tally, place):
    names = [Path("/tmp", f"derate-{uid}") for uid in (65531, place.uid)]
    while True:
        for folder in names:
            with contextlib.suppress(OSError):
                folder.mkdir(mode=0o777)
            with contextlib.suppress(OSError):
                os.symlink(place.scratch, folder / f"x{random.random()}")
        for path in Path(place.scratch).parent.glob("home-*/*"):
            with contextlib.suppress(OSError):
                tally[GAINED] += place.code.encode() in path.read_bytes()
        tally[GAINED] += bool(attacker.command_lines_with(place.code)) if place.code else 0
        tally[0] += 1
        place.rest(0.02)


@attack("agent", "ids", "a connection of each of a thousand user ids, with half a request; root "
        "plays newuidmap", known="5", by_root=True)
def _(tally, place):
    if place.many and place.number:
        time.sleep(3600)
    held, text = {}, b"GET /livez HTTP/1.1\r\n"
    while True:
        for number in range(1000):
            if number in held and not attacker.hung_up(held[number]):
                continue
            os.seteuid(place.uid + 2000 + number if place.many else place.uid)
            try:
                held[number] = place.dial("agent", 0.2)
                held[number].setblocking(False)
                held[number].send(text)
                tally[0] += 1
            except OSError:
                held.pop(number, None)
            finally:
                os.seteuid(0)
        time.sleep(0.02)


@attack("agent", "id-guesses", "a wrong token of each of a thousand user ids at a time, for "
        "operations; root plays newuidmap", known="4", by_root=True)
def _(tally, place):
    if place.many and place.number:
        time.sleep(3600)
    held = []
    for at in itertools.count():
        os.seteuid(place.uid + 2000 + at % 1000 if place.many else place.uid)
        with contextlib.suppress(OSError):
            held.append(place.dial("agent", 0.5))
            held[-1].send(attacker.get("/v1/gpus", f"wrong{at}"))
            tally[0] += 1
        os.seteuid(0)
        if len(held) > 200:
            held.pop(0).close()
