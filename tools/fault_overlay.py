"""Several faults at a time: each is planted by a child of its own, which sees the workshop through overlays of its own, at
the workshop's place. What it writes, nobody else sees, and it is gone with the child: nothing need be taken back."""
import ctypes
import multiprocessing
import os
import pathlib
import shutil
import subprocess
import tempfile

NEW_NAMESPACE, NEW_USER = 0x00020000, 0x10000000  # CLONE_NEWNS, CLONE_NEWUSER


class Unmountable(Exception):
    def __str__(self):
        return f"no overlay can be mounted here, leave out --at-once and --build: {self.args[0]}"


def mount(*words):
    done = subprocess.run(["mount", *map(str, words)], capture_output=True, text=True, check=False)
    if done.returncode:
        raise Unmountable(done.stderr.strip() or done.stdout.strip())


def enter_overlays(places, changes):
    """From here on this process sees what it writes to these folders, and others do not."""
    user, group = os.getuid(), os.getgid()
    if ctypes.CDLL(None, use_errno=True).unshare(NEW_NAMESPACE | (NEW_USER if user else 0)):
        raise Unmountable(f"unshare: {os.strerror(ctypes.get_errno())}")
    if user:
        for name, text in (("setgroups", "deny"), ("uid_map", f"0 {user} 1"), ("gid_map", f"0 {group} 1")):
            pathlib.Path("/proc/self", name).write_text(text)
    mount("--make-rprivate", "/")
    for number, place in enumerate(places):
        upper, work = (changes / f"{name}{number}" for name in ("upper", "work"))
        upper.mkdir()
        work.mkdir()
        mount("-t", "overlay", "overlay", "-o", f"lowerdir={place},upperdir={upper},workdir={work}", place)
    os.chdir(places[0])


def make_one(task):
    """In a child that does nothing else."""
    index, changes = task
    call, faults, places = inherited
    enter_overlays(places, changes)
    return index, call(faults[index])


def each_apart(call, faults, places, at_once):
    """Pairs of a fault and what `call` made of it, as they come."""
    global inherited  # by the children, which are forked
    inherited = call, faults, places
    with tempfile.TemporaryDirectory() as changes:
        tasks = [(index, pathlib.Path(changes, str(index))) for index in range(len(faults))]
        for _, place in tasks:
            place.mkdir()
        with multiprocessing.get_context("fork").Pool(at_once, maxtasksperchild=1) as pool:
            for index, result in pool.imap_unordered(make_one, tasks, chunksize=1):
                shutil.rmtree(tasks[index][1], ignore_errors=True)
                yield faults[index], result


def why_not(place):
    """Nothing, where overlays of this folder can be mounted."""
    try:
        list(each_apart(lambda fault: None, [None], [place], 1))
    except Unmountable as unmountable:
        return str(unmountable)
    return ""
