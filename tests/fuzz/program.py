"""What the programs here that are written in Python have in common: arguments, the line of progress, failures, and the
record that they leave as JSON. program.h is the same for those in C++.

  --count N    how much to do              --seed S       what is drawn
  --seconds T  no longer than this         --json FILE    where to put the record

A limit of 0 is none. The record has what was asked for beside what was done, where time ended the run before.
The exit status is 0 where nothing failed, 1 where something did."""
import argparse
import json
import mmap
import os
import pathlib
import pickle
import signal
import struct
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tools"))

from arguments import at_least
from output_files import refusal

SEEDS = 10_000_000  # cases that one --seed can have
STUCK = 300  # seconds after which a case counts as hung


class Program:
    def __init__(self, title, what, more=(), count=10_000):
        parser = argparse.ArgumentParser(description=what)
        for name, default in {"--count": count, "--seed": 1, "--seconds": 0, "--json": "", **dict(more)}.items():
            parser.add_argument(name, default=default, type=at_least(0) if isinstance(default, int) else type(default), metavar=name[2:].upper())
        self.options = parser.parse_args()
        if (path := self.options.json) and (reason := refusal(path)):  # better now than after hours
            parser.error(f"'{path}' cannot be written: {reason}")
        self.title, self.what, self.failures = title, what, 0
        self.start = time.monotonic()
        words = sys.argv[1:]
        if "--json" in words:  # where the record goes does not belong in it
            place = words.index("--json")
            del words[place:place + 2]
        self.command = " ".join([os.path.basename(sys.argv[0]), *words])

    def seconds(self):
        return time.monotonic() - self.start

    def has_time(self):
        return not self.options.seconds or self.seconds() < self.options.seconds

    def fail(self, text=""):
        self.failures += 1
        if text:
            print(f"\n{self.title}: {text}", file=sys.stderr, flush=True)

    def show(self, done):
        if sys.stderr.isatty():
            count = self.options.count
            left = f" of {count}, {self.seconds() / max(1, done) * (count - done):.0f} s left" if count else ""
            print(f"\r\033[K{self.title}: {done}{left}, {self.failures} failed", end="", file=sys.stderr, flush=True)

    def finish(self, results):
        if sys.stderr.isatty():
            print("\r\033[K", end="", file=sys.stderr)
        record = {"title": self.title, "what": self.what, "command": self.command, "seconds": round(self.seconds(), 1),
                  **results, "failures": self.failures}
        print(json.dumps(record, indent=1), flush=True)
        for name, asked in record.get("asked", {}).items():
            if record["counts"][name] < asked:
                print(f"stopped short: {record['counts'][name]} of {asked} {name}", flush=True)
        if self.options.json:
            with open(self.options.json, "w") as file:
                file.write(json.dumps(record, indent=1) + "\n")
        return 1 if self.failures else 0

    def run_in_children(self, jobs, work):
        """Shares the cases among so many child processes. If one crashes or hangs, says in which case.

        `work` has one(number), which does a case; describe(number), which says what it is; state(), what a child has found
        out, and merge(state), both for pickle; and results(done), what is to be in the record."""
        children = [Child(self, work, job, jobs) for job in range(jobs)]
        while any(child.is_at_work() for child in children):
            self.show(sum(child.done() for child in children))
            time.sleep(0.1)
        for child in children:
            if child.died:
                self.fail(f"case {child.number()} {child.died}:\n  {work.describe(child.number())}")
            else:
                failures, state = child.result()
                self.failures += failures
                work.merge(state)
        return self.finish(work.results(sum(child.done() for child in children)))


class Child:
    """A process that does every `jobs`-th case."""

    def __init__(self, program, work, job, jobs):
        self.place = mmap.mmap(-1, 16)  # the case that it is at, how many are done
        self.file, self.died = tempfile.TemporaryFile(), None
        self.seen, self.since = None, time.monotonic()
        self.process = os.fork()
        if self.process == 0:
            status = 3
            try:
                self.work(program, work, job, jobs)
                status = 0
            finally:
                sys.stdout.flush()
                os._exit(status)

    def work(self, program, work, job, jobs):
        done = 0
        for case in range(job, program.options.count or SEEDS, jobs):
            if not program.has_time():
                break
            number = program.options.seed * SEEDS + case
            self.place[:] = struct.pack("qq", number, done)
            work.one(number)
            done += 1
        self.place[:] = struct.pack("qq", 0, done)
        pickle.dump((program.failures, work.state()), self.file)
        self.file.flush()

    def number(self):
        return struct.unpack("qq", self.place[:])[0]

    def done(self):
        return struct.unpack("qq", self.place[:])[1]

    def result(self):
        self.file.seek(0)
        return pickle.load(self.file)

    def is_at_work(self):
        if self.process is None:
            return False
        ended, status = os.waitpid(self.process, os.WNOHANG)
        if ended:
            self.process = None
            if os.WIFSIGNALED(status):
                self.died = f"ended the process by {signal.Signals(os.WTERMSIG(status)).name}, or took {STUCK} seconds"
            elif os.WEXITSTATUS(status):
                self.died = "ended the process"
            return False
        if self.number() != self.seen:
            self.seen, self.since = self.number(), time.monotonic()
        elif time.monotonic() - self.since > STUCK:
            os.kill(self.process, signal.SIGKILL)
        return True
