"""Runs random rounds, several at a time, each in a process of its own, and prints tables of their
results."""

import multiprocessing
import multiprocessing.connection
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

from house import Failure, now

ROUND_TIME = 180  # after this time, in seconds, a round has failed
REPO = Path(__file__).resolve().parent.parent.parent


@dataclass
class Result:
    """The result of a round."""
    scenario: str
    blow: str = ""
    wrong: str = ""        # the failure; empty: none
    by: str = ""           # the process that restored
    ms: float = None       # how long that took; None: there was nothing to restore
    locks: int = 0         # lock files that another user could open
    said: str = ""         # the programs' output


def perform(result, play, house):
    """Plays a round to its end, and always closes `house`."""
    try:
        play()
    except (Failure, OSError, subprocess.SubprocessError) as error:
        result.wrong = str(error) or repr(error)
        result.said += "".join(f"\n  {program.name}: {line}" for program in house.programs
                               if program is not house.server
                               for line in program.text().splitlines()[-8:])
    return result


def interrupted(*_):
    raise SystemExit(1)


def perform_in_process(play, options, number, pipe):
    signal.signal(signal.SIGTERM, interrupted)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if not options.verbose:
        sys.stderr = open(os.devnull, "w")
    pipe.send(play(options, number))


@dataclass
class Rounds:
    """The rounds, running and done. play(options, number) returns a round's Result,
    scenario(number) the name of its scenario."""
    options: object  # jobs, verbose
    play: object
    scenario: object
    waiting: list
    running: dict = field(default_factory=dict)
    done: dict = field(default_factory=dict)
    began: float = field(default_factory=now)
    told: float = field(default_factory=now)

    def run(self):
        """Runs all rounds. Returns exit code 130 if interrupted, 1 if a round failed, else 0."""
        stopped = False
        try:
            while self.waiting or self.running:
                self.start_some()
                self.collect()
        except KeyboardInterrupt:
            stopped = True
            print("interrupted", file=sys.stderr)
        finally:
            self.end()
        return 130 if stopped else int(self.wrong() > 0)

    def start_some(self):
        while self.waiting and len(self.running) < self.options.jobs:
            number = self.waiting.pop(0)
            receiver, sender = multiprocessing.Pipe(duplex=False)
            process = multiprocessing.Process(target=perform_in_process,
                                              args=(self.play, self.options, number, sender))
            process.start()
            sender.close()
            self.running[number] = (process, receiver, now())

    def collect(self):
        ready = multiprocessing.connection.wait([r for _, r, _ in self.running.values()], 0.2)
        for number, (process, receiver, began) in list(self.running.items()):
            if receiver in ready:
                try:
                    result = receiver.recv()
                except EOFError:
                    result = Result(self.scenario(number), wrong="the round's own process died")
            elif now() - began > ROUND_TIME:
                process.terminate()
                result = Result(self.scenario(number), wrong=f"still at it after {ROUND_TIME} s")
            else:
                continue
            process.join(30)
            del self.running[number]
            self.done[number] = result
            self.tell(number, result)

    def tell(self, number, result):
        if result.wrong or self.options.verbose:
            said = result.said if self.options.verbose else ""
            print(f"round {number}: {result.scenario}, {result.blow}, by {result.by or 'nobody'}: "
                  f"{'LEFT WRONG: ' + result.wrong if result.wrong else 'well'}{said}", flush=True)
        total = len(self.done) + len(self.running) + len(self.waiting)
        if now() - self.told >= 5 and self.waiting:
            self.told = now()
            left = (now() - self.began) / len(self.done) * (total - len(self.done))
            print(f"{len(self.done)} of {total} rounds, {self.wrong()} left wrong, some "
                  f"{int(left / 60)} min {int(left % 60):02} s to go", flush=True)

    def wrong(self):
        return sum(bool(result.wrong) for result in self.done.values())

    def end(self):
        for process, _, _ in self.running.values():
            process.terminate()
        for process, _, _ in self.running.values():
            process.join(30)


# --- tables ---------------------------------------------------------------------------------------

def quantile(values, share):
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


def print_table(title, results, keys):
    """Prints a line for each name that keys(result) returns, with the times of restoring."""
    groups = sorted({name for result in results for name in keys(result)})
    width = max(len(title), *(len(name) for name in groups), len("all"))
    print(f"\n{title:{width}}  rounds  left wrong  restored   median      p95      max  [ms]")
    for name in [*groups, "all"] if len(groups) > 1 else groups:
        some = [result for result in results if name == "all" or name in keys(result)]
        times = [result.ms for result in some if result.ms is not None and not result.wrong]
        figures = "        -" * 3 if not times else "".join(
            f"{quantile(times, share):9.0f}" for share in (0.5, 0.95, 1))
        print(f"{name:{width}}  {len(some):6}  {sum(bool(r.wrong) for r in some):10}  "
              f"{len(times):8}{figures}")


# --- options --------------------------------------------------------------------------------------

def add_options(parser, rounds):
    """Adds the options that all scripts of rounds have."""
    parser.add_argument("--build", type=Path, default=REPO / "build" / "dev", metavar="DIR",
                        help="where derate and derated are (default build/dev)")
    parser.add_argument("--rounds", type=int, default=rounds, help=f"how many (default {rounds})")
    parser.add_argument("--seed", type=int, help="of all that is drawn (default: by the time)")
    parser.add_argument("--jobs", type=int, default=2 * (os.cpu_count() or 1),
                        help="rounds at a time (default two a core: most of a round is waiting)")
    parser.add_argument("--round", type=int, metavar="N", help="only round N of the seed")
    parser.add_argument("--verbose", action="store_true", help="every round, and what was said")


def parse_options(parser):
    options = parser.parse_args()
    if options.rounds < 1 or options.jobs < 1:
        parser.error("--rounds and --jobs: allowed is 1 or more")
    if not os.access(options.build / "derated", os.X_OK):
        parser.error(f"no derated in '{options.build}': name the build with --build")
    if options.seed is None:
        options.seed = int(time.time()) % 100_000
    if options.round is not None:
        options.verbose = True
    options.build = options.build.resolve()
    return options


def numbers_of(options):
    numbers = list(range(options.rounds)) if options.round is None else [options.round]
    print(f"{len(numbers)} rounds, {options.jobs} at a time, seed {options.seed}", flush=True)
    return numbers
