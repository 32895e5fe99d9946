"""Threads that fuse, unfuse, script and run models which share classes, be it nn.Linear alone. What goes wrong ends the process or hangs: so
each is a process of its own."""
import io
import pathlib
import subprocess
import sys
import textwrap
import unittest

import torch

from checks import all_calls, load, main

load()


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.gemm, self.bn, self.scale = torch.nn.Linear(8, 12), torch.nn.BatchNorm1d(12), torch.nn.Parameter(torch.randn(12))

    def forward(self, x):
        return self.bn(self.gemm(x) * self.scale)


class Parent(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.net = Net()

    def forward(self, x):
        return torch.relu(self.net(x))


COMMON = """
import json, sys, threading, torch
from checks import load
from scripted import net_of
sys.setswitchinterval(1e-4)
tailor = load()
tailor.auto(False)
def scripted(body, number, more=""):
    source = f'''import torch
from threads_test import Net as Child
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.child = Child()
{more}
    def forward(self, x):
        return {body}
'''
    return torch.jit.script(net_of(source, f"net{number}.py").eval())
x = torch.randn(4, 8)
stop, wrong = threading.Event(), []
def thread(work):
    def guarded():
        try:
            work()
        except Exception as error:
            wrong.append(repr(error)[:400])
            stop.set()
    return threading.Thread(target=guarded)
def together(*works):
    threads = [thread(work) for work in works]
    [t.start() for t in threads]
    [t.join() for t in threads]
    sys.exit("; ".join(wrong)) if wrong else print("ended")
def fused(report):
    sites = json.loads(report)["sites"]
    assert len(sites) == 1 and sites[0]["fused"], sites
"""


def plans_of(module):
    return len(module.get_debug_state().execution_plans)


class PlansTest(unittest.TestCase):
    """Which of the plans that torch has made of functions are forgotten."""

    def setUp(self):
        self.before = torch.ops.tailor.auto(False)
        self.addCleanup(torch.ops.tailor.auto, self.before)

    def test_what_is_left_as_it_is_keeps_its_plan(self):
        linear, net = torch.jit.script(torch.nn.Linear(8, 12)), torch.jit.script(Net())
        for _ in range(3):
            linear(torch.randn(4, 8))
        plans = plans_of(linear)
        torch.ops.tailor.fuse_(net)
        torch.ops.tailor.unfuse_(net)
        self.assertEqual(plans_of(linear), plans)
        self.assertGreater(plans, 0)

    def test_what_the_executor_fused_runs_unfused(self):
        file = io.BytesIO()
        torch.jit.save(torch.jit.script(Net().eval()), file)
        file.seek(0)
        net = torch.jit.load(file)
        torch.ops.tailor.auto(True)
        calls = [self.calls_of(net) for _ in range(2)]
        self.assertEqual(calls[-1], 1, "the executor's door")
        torch.ops.tailor.auto(False)
        torch.ops.tailor.unfuse_(net)
        self.assertEqual([self.calls_of(net) for _ in range(2)], [0, 0])

    def test_a_parent_that_ran_before_its_child_was_fused(self):
        """Its own graph is as before: what it calls is not."""
        parent = torch.jit.script(Parent().eval())
        for _ in range(3):
            self.assertEqual(self.calls_of(parent), 0)
        torch.ops.tailor.fuse_(parent.net)
        torch.ops.tailor.fuse_(parent)
        self.assertEqual([self.calls_of(parent) for _ in range(2)], [1, 1])
        torch.ops.tailor.unfuse_(parent.net)
        torch.ops.tailor.unfuse_(parent)
        self.assertEqual([self.calls_of(parent) for _ in range(2)], [0, 0])

    def calls_of(self, net):
        before = sum(all_calls().values())
        with torch.no_grad():
            net(torch.randn(4, 8))
        return sum(all_calls().values()) - before


class ThreadsTest(unittest.TestCase):
    def ends(self, body):
        done = subprocess.run([sys.executable, "-W", "ignore", "-c", COMMON + textwrap.dedent(body)], capture_output=True, text=True, timeout=120,
                              cwd=pathlib.Path(__file__).parent)
        self.assertEqual((done.returncode, done.stdout), (0, "ended\n"), done.stderr[-1500:])

    def test_two_that_fuse(self):
        self.ends("""
            def work(model):
                for _ in range(40):
                    fused(tailor.fuse_(model))
                    tailor.unfuse_(model)
            nets = [scripted("self.child(x) + 1", 0), scripted("self.child(x) * 2", 1)]
            together(*[lambda net=net: work(net) for net in nets])
        """)

    def test_one_that_runs_what_is_left_as_it_is(self):
        self.ends("""
            net, linear = scripted("self.child(x) + 1", 0), torch.jit.script(torch.nn.Linear(8, 12))
            wanted = torch.nn.functional.linear(x, linear.weight, linear.bias)
            def fuses():
                for _ in range(60):
                    fused(tailor.fuse_(net))
                    tailor.unfuse_(net)
                stop.set()
            def runs():
                while not stop.is_set():
                    assert torch.allclose(linear(x), wanted)
            together(fuses, runs)
        """)

    def test_one_that_runs_what_is_fused(self):
        self.ends("""
            net = scripted("self.child(x) + 1", 0)
            wanted = net(x).detach()
            def fuses():
                for _ in range(60):
                    tailor.fuse_(net)
                    tailor.unfuse_(net)
                stop.set()
            def runs():
                with torch.no_grad():
                    while not stop.is_set():
                        assert torch.allclose(net(x), wanted, atol=1e-5)
            together(fuses, runs)
        """)

    def test_first_calls(self):
        self.ends("""
            net, others = scripted("self.child(x) + 1", 0), [scripted(f"torch.nn.functional.silu(self.child(x)) * {k}", k) for k in range(1, 40)]
            def fuses():
                while not stop.is_set():
                    tailor.fuse_(net)
                    tailor.unfuse_(net)
            def runs():
                for other in others:
                    other(x)
                stop.set()
            together(fuses, runs)
        """)

    def test_one_that_scripts(self):
        """It has Python's lock when its hook is called, and whoever prints an op of Python's meanwhile wants that."""
        self.ends("""
            asks = ["@torch.jit.ignore", "def asks(self, x: torch.Tensor) -> torch.Tensor:", "    return x"]
            net = scripted("self.child(self.asks(x))", 0, more="\\n".join("    " + line for line in asks))
            tailor.auto(True)
            def fuses():
                while not stop.is_set():
                    tailor.inspect(net)
                    tailor.fuse_(net)
                    net.graph.__str__()
            def scripts():
                for k in range(1, 40):
                    scripted(f"self.child(x) * {k}", k)
                stop.set()
            together(fuses, scripts)
        """)

    def test_those_that_save(self):
        """torch reads graphs there without a lock, and takes no part in them."""
        self.ends("""
            import io
            net = scripted("self.child(x) + 1", 0)
            wanted = net(x).detach()
            def fuses():
                while not stop.is_set():
                    tailor.fuse_(net)
                    tailor.unfuse_(net)
            def saves():
                for k in range(3000):
                    torch.jit.save(net, file := io.BytesIO())
                    if k % 300 == 0:
                        file.seek(0)
                        assert torch.allclose(torch.jit.load(file)(x), wanted, atol=1e-5)
                stop.set()
            together(fuses, saves, saves)
        """)

    def test_children_of_one_that_looks(self):
        """Forked while another thread looks at graphs: what that one holds, nobody in the child gives back."""
        self.ends("""
            import os, signal, time
            net = scripted("torch.cat([" + ", ".join(["self.child(x)"] * 200) + "])", 0)
            tailor.auto(True)
            def looks():
                while not stop.is_set():
                    tailor.inspect(net)
            def forks():
                for k in range(1, 11):
                    time.sleep(0.01)
                    child = os.fork()
                    if child == 0:
                        signal.alarm(20)
                        scripted("self.child(x) + 1", k)(x)
                        os._exit(0)
                    status = os.waitpid(child, 0)[1]
                    assert status == 0, f"child {k}: {status}"
                stop.set()
            together(looks, forks)
        """)

    def test_who_waits_lets_the_others_go_on(self):
        """One looks at a graph for seconds, and one that has Python's lock waits for him: a third sees that it is let go."""
        self.ends("""
            import time
            net, began, gaps = scripted("torch.cat([" + ", ".join(["self.child(x)"] * 1600) + "])", 0), threading.Event(), [0.0]
            tailor.auto(True)
            def looks():
                began.set()
                start = time.monotonic()
                tailor.inspect(net)
                gaps.append(time.monotonic() - start)
                stop.set()
            def scripts():
                began.wait()
                scripted("self.child(x) + 1", 1)
            def counts():
                last = time.monotonic()
                while not stop.is_set():
                    time.sleep(1e-3)
                    now = time.monotonic()
                    gaps[0], last = max(gaps[0], now - last), now
            together(looks, scripts, counts)
            assert gaps[0] < gaps[1] / 2, gaps
        """)


if __name__ == "__main__":
    main()
