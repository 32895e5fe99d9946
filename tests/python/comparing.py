"""An op beside its chain: outcome, and what is left of every argument."""
import torch

import cases
from cases import OPS
from checks import TOLERANCE, Checks, Outcome, calls_of, copied, describe


class Comparing(Checks):
    """Base of the tests that run an op beside its chain."""

    def compare(self, op, arguments, what, tolerance=None, around=None):
        """Runs op and chain on copies and compares the outcome and every argument afterwards."""
        mine, theirs = copied(arguments), copied(arguments)
        what = f"{op} {what}"

        def run(call, values):
            if around is None:
                return Outcome(lambda: call(values))
            with around():
                return Outcome(lambda: call(values))

        expected, actual = run(op.eager, theirs), run(op, mine)
        try:
            self.assert_outcome(actual, expected, what, tolerance)
        except AssertionError:
            if not self.is_nearer(op, arguments, actual, expected):
                raise
        for name, value in theirs.items():
            if isinstance(value, torch.Tensor):
                self.assert_same(mine[name], value, f"{what}: {name} afterwards", tolerance)
                if not value.is_inference():
                    self.assertEqual(mine[name]._version, value._version, f"{what}: version of {name} afterwards")
        return expected

    def is_nearer(self, op, arguments, actual, expected):
        """Where a kernel and eager lie further apart than usual, float64 decides as in ContractTest. Eager may be far off:
        it multiplies the mean by the scale before it subtracts it, and rounds to 16 bits after every step."""
        mine, theirs = actual.value, expected.value
        if actual.error or expected.error or mine.dtype == torch.float64 or not mine.is_floating_point():
            return False
        if describe(mine) != describe(theirs):
            return False
        truth = op.eager(cases.in_double(copied(arguments)))
        judged = theirs.isfinite() | ~truth.isfinite()  # elsewhere eager has overflowed on its way
        mine, theirs, truth = mine[judged].double(), theirs[judged].double(), truth[judged]
        if not torch.equal(mine.isnan(), theirs.isnan()) or not torch.equal(mine.isinf(), theirs.isinf()):
            return False
        absolute, relative = TOLERANCE[actual.value.dtype]
        if torch.allclose(mine, theirs, rtol=relative, atol=absolute, equal_nan=True):
            return True
        mine, theirs = ((value - truth)[truth.isfinite()].abs().max() for value in (mine, theirs))
        return bool(mine <= 1.5 * theirs)

    def each(self, ops=OPS):
        for op in ops:
            for training in [False] if op.inference or not op.batch_norm else [True, False]:
                yield op, training


class Gradients(Checks):
    """Base of the tests that run the backward of a device's kernels; float64 is the referee, and eager's own error the measure."""

    device = "cpu"

    def gradients(self, call, op, arguments, cotangent=None, names=None, rounded_to=None):
        """By name, of all tensors or of those asked for."""
        names = names or op.tensors(arguments)
        leaves = [arguments[n].requires_grad_() for n in names]
        out = call(arguments)
        if cotangent is None:
            cotangent = torch.linspace(-1, 1, out.numel(), device=out.device).reshape(out.shape)
        return dict(zip(names, torch.autograd.grad(out, leaves, cotangent.to(rounded_to or out.dtype).to(out.dtype))))

    def on_the_kernel(self, op, arguments, what, cotangent=None, names=None):
        """The gradients, which the kernel must have made."""
        path = f"{self.device}_backward"
        before = calls_of(op.stem, path)
        found = self.gradients(op, op, copied(arguments), cotangent, names)
        self.assertEqual(calls_of(op.stem, path), before + 1, f"{op} {what}: the kernel did not run")
        return found

    def backward(self, op, arguments, what, cotangent=None, loose=2):
        self.assert_gradients(self.on_the_kernel(op, arguments, what, cotangent), op, arguments, what, cotangent, loose)

    def assert_gradients(self, mine, op, arguments, what, cotangent=None, loose=2):
        theirs = self.gradients(op.eager, op, copied(arguments), cotangent)
        exact = self.gradients(op.eager, op, cases.in_double(copied(arguments)), cotangent, rounded_to=arguments["input"].dtype)
        size = max(1.0, *(g.abs().max().item() for g in exact.values()))  # some cancel to zero
        for name, truth in exact.items():
            fused, eager, label = mine[name], theirs[name], f"{op} {what}: gradient of {name}"
            self.assertEqual((fused.dtype, fused.shape, fused.stride()), (eager.dtype, eager.shape, eager.stride()), label)
            off, eagers = ((g.double() - truth).abs().max().item() for g in (fused, eager))
            roundings = 1e4 if fused.dtype == torch.float64 else 16  # in float64 eager is the referee, and its error unknown
            limit = loose * eagers + roundings * torch.finfo(fused.dtype).eps * size
            self.assertLessEqual(off, limit, f"{label}, eager's error is {eagers:g}")
