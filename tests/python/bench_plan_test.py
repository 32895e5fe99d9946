"""What tools/bench is going to measure, and its clock: no call is made and no time passes here."""
import collections
import types
import unittest

import torch

from checks import main

from benchmark import plan  # tools/, put on the path by checks
from benchmark.arms import Setup
from benchmark.clock import CpuTimer, figure, rounds_within, take_turns
from benchmark.numbers import NUMBERS, USUAL

RULE = "linear_mul_batch_norm"


class FakeClock:
    """Stands still but for the calls, each of which takes what its list says, in seconds."""

    def __init__(self):
        self.now, self.order = 0.0, []

    def arm(self, name, durations):
        left = iter(durations)

        def call():
            self.order.append(name)
            self.now += next(left)
        return types.SimpleNamespace(name=name, call=call, samples=[], paths=collections.Counter())


class ClockTest(unittest.TestCase):
    def test_medians_and_spread(self):
        clock = FakeClock()
        durations = [1e-6 * us for us in (5, 3, 11, 1, 9, 7, 2, 10, 4, 8, 6)]
        fast, slow = clock.arm("fast", durations), clock.arm("slow", [3 * d for d in durations])
        take_turns([fast, slow], 11, CpuTimer(now=lambda: clock.now))
        for arm, factor in ((fast, 1), (slow, 3)):
            for got, wanted in zip(figure(arm.samples), (6 * factor, 2 * factor, 10 * factor, 11)):
                self.assertAlmostEqual(got, wanted)
        self.assertEqual(figure([4.0]), (4.0, 4.0, 4.0, 1))

    def test_arms_take_turns_in_changing_order(self):
        clock = FakeClock()
        names = ["a", "b", "c"]
        take_turns([clock.arm(name, [1] * 20) for name in names], 20, CpuTimer(now=lambda: clock.now))
        rounds = [tuple(clock.order[i:i + 3]) for i in range(0, 60, 3)]
        self.assertEqual({tuple(sorted(turn)) for turn in rounds}, {("a", "b", "c")})
        self.assertGreater(len(set(rounds)), 3)

    def test_calls_are_counted_for_the_arm_that_made_them(self):
        clock, table = FakeClock(), collections.Counter()
        other, ours = clock.arm("eager", [1] * 4), clock.arm("tailor", [1] * 4)
        plain = ours.call
        ours.call = lambda: (plain(), table.update({f"{RULE}/cuda": 1}))
        take_turns([other, ours], 4, CpuTimer(now=lambda: clock.now), lambda: table)
        self.assertEqual((dict(other.paths), dict(ours.paths)), ({}, {f"{RULE}/cuda": 4}))

    def test_rounds(self):
        self.assertEqual([rounds_within(1, us) for us in (10, 20_000, 10**7)], [100, 50, 15])


class PlanTest(unittest.TestCase):
    def points(self, presets, chains=(), sizes=(), dtypes=(), modes=(), device="cuda"):
        return plan.points(presets, chains, sizes, dtypes, modes, device)

    def test_presets(self):
        published = self.points(["published"])
        self.assertEqual(len(published), 7 * 3 + 7 * 2 * 2)
        self.assertEqual(len(self.points(["published", "small"])), len(published) + 4)
        self.assertEqual(self.points(["quick", "quick"]), self.points(["quick"]))
        sweep = self.points(["sweep"])
        self.assertEqual((len(sweep), len({point.case for point in sweep})), (120, 30))
        self.assertEqual(collections.Counter(point.case.rule for point in sweep), dict.fromkeys(plan.MODELS, 20))
        for case in (point.case for point in sweep):
            self.assertTrue(256 <= case.batch <= 16384 and case.batch % 8 == 0, case)
            self.assertTrue(all(1024 <= size <= 8192 and size % 64 == 0 for size in (case.in_features, case.out_features)), case)
        self.assertNotIn("tf32", {point.dtype for point in self.points(["published"], device="cpu")})

    def test_what_is_said_stands_in_for_the_preset(self):
        points = self.points(["cpu"], [RULE], [(3, 4, 5, 0)], ["fp64"], ["train"])
        self.assertEqual([point.label() for point in points], ["mul_batch_norm 3x4x5 fp64 train"])

    def test_groups(self):
        for size, groups in (((8, 16, 4096), 64), ((8, 16, 96), 3), ((8, 16, 7), 1), ((8, 16, 128, 4), 4)):
            self.assertEqual(plan.sized("linear_add_swish_group_norm", *size).groups, groups, size)
        self.assertEqual(plan.sized(RULE, 8, 16, 128, 4).groups, 0)

    def test_numbers(self):
        points = self.points(["numbers"])
        self.assertEqual(collections.Counter(point.numbers for point in points), dict.fromkeys(NUMBERS, 4))
        self.assertEqual({point.numbers for point in self.points(["published"])}, {USUAL})
        few = plan.points(["quick"], [RULE], [(3, 4, 5, 0)], [], [], "cpu", ["sparse", USUAL])
        self.assertEqual([point.label() for point in few], ["mul_batch_norm 3x4x5 fp32 eval sparse", "mul_batch_norm 3x4x5 fp32 eval"])


class NumbersTest(unittest.TestCase):
    """They are what their words say."""

    def setUp(self):
        torch.manual_seed(0)

    def made(self, name, rows=600, columns=400):
        made = NUMBERS[name].make(rows, columns)
        self.assertEqual((made.shape, made.dtype), ((rows, columns), torch.float32))
        return made

    @staticmethod
    def spread(values):
        """Standard deviation of the logarithms."""
        return values.abs().log().std().item()

    def test_zeros(self):
        for name, share in ((USUAL, 1.0), ("relu", 0.5), ("sparse", 0.01)):
            self.assertAlmostEqual((self.made(name) != 0).float().mean().item(), share, delta=0.2 * share)

    def test_what_is_of_all_sizes(self):
        for name, rows, columns in ((USUAL, 0, 0), ("rows", 2, 0), ("columns", 0, 2), ("each", None, None)):
            made = self.made(name)
            if rows is None:  # of one normal number the logarithm has 1.1
                self.assertAlmostEqual(self.spread(made), (2**2 + 1.1**2) ** 0.5, delta=0.1)
                continue
            self.assertAlmostEqual(self.spread(made.norm(dim=1)), rows, delta=0.3)
            self.assertAlmostEqual(self.spread(made.norm(dim=0)), columns, delta=0.3)

    def test_cross_entropy(self):
        """What autograd gives for such logits and classes."""
        for name, sigma in (("entropy", 1), ("entropy_sure", 3)):
            torch.manual_seed(0)
            made = self.made(name)
            torch.manual_seed(0)
            logits, right = (sigma * torch.randn(600, 400)).requires_grad_(), torch.randint(400, (600,))
            torch.nn.functional.cross_entropy(logits, right).backward()
            torch.testing.assert_close(made, logits.grad)

    def test_where_they_are(self):
        """Forward in x, backward in the gradient that comes in."""
        case = plan.sized(RULE, 60, 80, 100)
        for mode, of_x, of_y in (("eval", 0.01, 1), ("train", 0.01, 1), ("backward", 1, 0.01)):
            setup = Setup(plan.Point(case, "fp32", mode, "sparse"), "cpu")
            for matrix, share in ((setup.x, of_x), (setup.y, of_y)):
                self.assertAlmostEqual((matrix != 0).float().mean().item(), share, delta=0.5 * share, msg=mode)


if __name__ == "__main__":
    main()
