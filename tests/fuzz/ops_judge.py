"""Whether an op gives for a case what its chain gives in eager.

Where the reference ran, the op has made the same calls as eager with swish written as silu (the README's second number):
every bit must be eager's, of results, gradients and statistics. Where a kernel ran, float64 is the referee."""
import contextlib
import dataclasses
import math
import types

import torch
import torch.nn.functional as F

import cases
from checks import TOLERANCE, Checks, Outcome, all_calls, describe
from ops_cases import BY_NAME, laid_out

torch_swish = cases.swish


def silu_swish(v):
    return F.silu(v) if v.is_floating_point() else torch_swish(v)


@contextlib.contextmanager
def chains_with(swish=torch_swish, linear=F.linear):
    """The chains of cases.py with another swish, or another linear."""
    cases.swish, cases.F = swish, types.SimpleNamespace(linear=linear)
    try:
        yield
    finally:
        cases.swish, cases.F = torch_swish, F


def linear_in(dtype, then=torch.float64, shake=0, by=None, spilled=False, cut_off=False):
    """The linear as a model of this dtype has it, for what goes on in `then`; shaken, about one rounding of `by` away; spilled, no number
    where its parts come near the largest one of the dtype; cut off, as tensor cores do where they add up."""
    def linear(*arguments):
        y = F.linear(*(a if a is None else a.to(dtype) for a in arguments)).double()
        if shake:
            signs = torch.randint(-1, 2, y.shape, generator=torch.Generator().manual_seed(shake))
            y = y * (1 + signs.to(y) * torch.finfo(by).eps)
        x, w = (a.detach().double() for a in arguments[:2]) if spilled or cut_off else (None, None)
        if spilled:
            y = torch.where(F.linear(x.abs(), w.abs()) > torch.finfo(dtype).max / 4, torch.nan, y)
        if cut_off:  # a bit of what there is so far, for each eight products
            y = y + F.linear(x.square(), w.square()).sqrt() * math.ceil(w.shape[1] / 8) * torch.finfo(dtype).eps
        return y.to(then)
    return linear


@contextlib.contextmanager
def tensor_float32(allowed):
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = before or allowed
    try:
        yield
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before


def mode_of(case):
    if case.mode == "autocast":
        stack = contextlib.ExitStack()
        stack.enter_context(torch.no_grad())
        stack.enter_context(torch.autocast(case.device, case.autocast_dtype()))
        return stack
    return {"no_grad": torch.no_grad, "inference_mode": torch.inference_mode}.get(case.mode, torch.enable_grad)()


@dataclasses.dataclass
class Run:
    """One side of a comparison."""
    arguments: dict
    outcome: Outcome
    gradients: Outcome = None


def carry_out(case, call, wide=None):
    """`wide`: the dtype of everything that is a floating number, for a referee."""
    # In inference mode the arguments are inference tensors or ordinary ones.
    with torch.inference_mode(case.mode == "inference_mode" and case.seed % 2 == 1):
        arguments = case.build()
    if wide:
        twins = {id(v): v.detach().to(wide, copy=True).requires_grad_(v.requires_grad) for v in arguments.values()
                 if isinstance(v, torch.Tensor) and v.is_floating_point()}
        arguments = {n: twins.get(id(v), v) for n, v in arguments.items()}  # one tensor as two arguments is one here too
    with mode_of(case), tensor_float32(case.tf32):
        run = Run(arguments, Outcome(lambda: call(arguments)))
        out = run.outcome.value
        if run.outcome.error is None and out.requires_grad:
            run.gradients = Outcome(lambda: gradients_of(case, arguments, out))
    return run


def gradients_of(case, arguments, out):
    leaves = [arguments[n] for n in case.leaves if arguments[n].requires_grad]
    generator = torch.Generator("cpu").manual_seed(case.seed)
    cotangent = torch.randn(out.shape, generator=generator, dtype=torch.float64)
    dtype = case.tensors["input"].dtype
    if dtype.is_floating_point:
        cotangent = cotangent.to(dtype)  # for a referee too: its rounding is nobody's error
    cotangent = laid_out(cotangent.to(out.device, out.dtype), case.cotangent)
    if case.written:
        with torch.no_grad():
            arguments[case.written].add_(1)
    if case.by_backward:
        out.backward(cotangent)
        return [leaf.grad for leaf in leaves]
    found = list(torch.autograd.grad(out, leaves, cotangent, allow_unused=True, create_graph=case.twice))
    if case.twice:
        again = [(g * g.conj()).real.sum() if g.is_complex() else (g * g).sum() for g in found if g is not None and g.requires_grad]
        if again:
            found += torch.autograd.grad(sum(again), leaves, allow_unused=True)
    return [None if g is None else g.detach() for g in found]


def facts(value):
    return (describe(value), value.requires_grad, value._is_view(), value.is_inference() or value._version)


def same_bits(mine, theirs):
    if mine.dtype != theirs.dtype or mine.shape != theirs.shape:
        return False
    if mine.is_complex():
        mine, theirs = torch.view_as_real(mine.resolve_conj()), torch.view_as_real(theirs.resolve_conj())
    if not mine.is_floating_point():
        return torch.equal(mine, theirs)
    equal = (mine == theirs) & ((mine != 0) | (mine.signbit() == theirs.signbit()))
    return bool((equal | (mine.isnan() & theirs.isnan())).all())


def kinds(value):
    """Which elements are NaN, which infinite and of what sign."""
    return torch.where(value.isnan(), 2.0, torch.where(value.isinf(), value.sign(), 0.0).double())


def torch_loses_gradients(case):
    """torch 2.11 on CUDA has no right gradient for a batch norm's bias without a weight: it raises, or gives 0."""
    return case.device == "cuda" and "batch_norm" in case.op and case.tensors["norm_weight"] is None and "norm_bias" in case.leaves


def has_infinite_norm(case, arguments):
    """A norm's gradient is a sum of parts. Of an infinite weight of a group norm all are infinite, and how they are put together decides
    whether that is NaN: eager has one answer where swish is sigmoid and mul, and another where it is silu. So it is of an
    infinite running mean, the distances from which a GPU adds up."""
    name = "norm_weight" if "num_groups" in case.others else "running_mean"
    value = arguments.get(name)
    return value is not None and not value.is_meta and bool(value.isinf().any())


class Judge(Checks):
    def judge(self, case):
        """(the path, None or what is wrong, the ratio of the rms errors or None)"""
        op = BY_NAME[case.op]
        before = all_calls()
        mine = carry_out(case, op)
        path = "+".join(sorted(key.split("/")[1] for key, count in all_calls().items() if count != before.get(key, 0)))
        theirs = carry_out(case, op.eager)
        try:
            ratio = self.compare(op, case, path, mine, theirs)
        except AssertionError as error:
            return path, str(error), None
        return (path if mine.outcome.error is None else "refused, as by eager"), None, ratio

    def compare(self, op, case, path, mine, theirs):
        self.assertTrue(path, "the op counted no call")
        self.same_outcome(mine.outcome, theirs.outcome, "result")
        self.assertEqual(mine.gradients is None, theirs.gradients is None, "whether there are gradients")
        if mine.outcome.error is None:
            self.assertEqual(facts(mine.outcome.value), facts(theirs.outcome.value), "result")
        if mine.gradients:
            if path != "reference" and case.written and "modified by an inplace operation" in (mine.gradients.exception or ""):
                return None  # a kernel's backward may keep what eager's does not
            if torch_loses_gradients(case):
                return None
            self.same_outcome(mine.gradients, theirs.gradients, "gradients")
        if path == "reference":
            if "swish" in op.stem:
                with chains_with(swish=silu_swish):
                    theirs = carry_out(case, op.eager)
            self.same_numbers(case, mine, theirs, None)
            return None
        if mine.outcome.error is not None:
            self.same_numbers(case, mine, theirs, None)
            return None
        referee = carry_out(case, op.eager, torch.float64)
        self.assertIsNone(referee.outcome.error, f"the referee: {referee.outcome}")
        try:
            self.same_numbers(case, mine, theirs, referee)
        except AssertionError:
            # Where next to nothing but roundings is left, the linear's own result has to be the measure, and what they come to.
            dtype = mine.arguments["input"].dtype
            with chains_with(linear=linear_in(dtype)):
                nearer = carry_out(case, op.eager, torch.float64)
            chances = self.chances(op, case, dtype, nearer)
            try:
                self.same_numbers(case, mine, theirs, referee, chances)
            except AssertionError:
                self.same_numbers(case, mine, theirs, nearer, chances)
        return self.ratio(case, mine, theirs, referee)

    def chances(self, op, case, dtype, nearer):
        """Pairs of runs that differ by no more than roundings, and by how many times that the op may differ from its referee."""
        def run(**options):
            with chains_with(linear=linear_in(dtype, **options)):
                return carry_out(case, op.eager, options.get("then", torch.float64))

        pairs = [(4, nearer, run(shake=1, by=dtype))]  # what one rounding more of the linear would have done
        if dtype == torch.float64:
            return pairs + [(4, nearer, run(shake=shake, by=dtype)) for shake in range(2, 6)]
        # How far eager's own float32, in which the kernels compute, is from float64, with this linear's numbers and some nearby:
        # where a sum cancels, eager may by luck have lost nothing in this very case, and its 16 bits may have lost all.
        nearby = [{"shake": shake, "by": torch.bfloat16} for shake in range(5)]
        if case.device == "cuda":  # the parts of a product are added up in some order, and may overflow where their sum does not
            pairs.append((0, nearer, run(spilled=True)))
        if case.tf32:
            pairs.append((1, nearer, run(cut_off=True)))
        times = 3 if any(t and t.content == "far" for t in case.tensors.values()) else 1.5  # of a few roundings of what is left
        return pairs + [(times, run(**shaken), run(then=torch.float32, **shaken)) for shaken in nearby]

    def same_numbers(self, case, mine, theirs, referee, chances=()):
        """The result, what was written to, and the gradients; where there is no referee bit for bit, or nearly on a GPU."""
        if mine.outcome.error is None:
            self.same_values(mine.outcome.value, theirs.outcome.value, referee and referee.outcome.value, "result",
                             chances=[(times, a.outcome.value, b.outcome.value) for times, a, b in chances])
        for name, value in theirs.arguments.items():
            if isinstance(value, torch.Tensor):
                self.assertEqual(facts(mine.arguments[name]), facts(value), f"{name} afterwards")
                if value.is_cuda and name.startswith("running") and self.is_left_to_chance(theirs.arguments, value):
                    continue
                self.same_values(mine.arguments[name].detach(), value.detach(), referee and referee.arguments[name].detach(),
                                 f"{name} afterwards", chances=[(times, a.arguments[name], b.arguments[name]) for times, a, b in chances])
        if mine.gradients and mine.gradients.error is None:
            chances = [(times, a.gradients.value, b.gradients.value) for times, a, b in chances
                       if a.gradients.error is None and b.gradients.error is None]
            self.same_gradients(case, mine.gradients.value, theirs.gradients.value, referee and referee.gradients, chances,
                                has_infinite_norm(case, theirs.arguments))

    def is_left_to_chance(self, arguments, value):
        """What torch 2.11 writes there on CUDA is another thing at each run, or, of infinite numbers, how its threads share the rows."""
        dtype = arguments["input"].dtype
        mixed = any(arguments[name] is not None and arguments[name].dtype != dtype for name in ("running_mean", "running_var"))
        return mixed or 0 in value.stride() or not value.isfinite().all()

    def same_outcome(self, mine, theirs, what):
        if theirs.error is None and mine.error is None:
            return
        if theirs.error is None:
            self.fail(f"{what}: raised {mine} where eager gives {theirs}")
        if mine.error is None:
            self.fail(f"{what}: gives {mine} where eager raises {theirs}")
        stale = "modified by an inplace operation"
        if not (stale in theirs.text and stale in mine.text):  # it goes on to name a node of the graph, which is not eager's
            self.assertEqual((mine.error.__name__, mine.text), (theirs.error.__name__, theirs.text), f"{what}: exception")

    def same_gradients(self, case, mine, theirs, referee, chances, any_kind):
        exact = referee.value if referee and referee.error is None else [None] * len(mine)
        self.assertEqual(len(mine), len(theirs), "number of gradients")
        names = list(case.leaves) * 2
        for i, (name, a, b, c) in enumerate(zip(names, mine, theirs, exact)):
            self.assertEqual(a is None, b is None, f"gradient of {name}: whether there is one")
            if a is not None:
                self.assertEqual(describe(a), describe(b), f"gradient of {name}")
                self.same_values(a, b, c, f"gradient of {name}", 8, [(times, x[i], y[i]) for times, x, y in chances], any_kind)

    def same_values(self, mine, theirs, exact, what, loose=1, chances=(), any_kind=False):
        """`any_kind`: what is NaN may be infinite as well, and the reverse."""
        if mine.is_meta or same_bits(mine, theirs):
            return
        if exact is None or not mine.is_floating_point():
            (self.assert_same if mine.is_cuda else self.assert_bitwise)(mine.reshape(-1), theirs.reshape(-1), what)
            return
        absolute, relative = (loose * t for t in TOLERANCE[mine.dtype])
        if torch.allclose(mine, theirs, rtol=relative, atol=absolute, equal_nan=True):
            return
        # A rounding more or less decides of the largest numbers of a dtype whether they are infinite.
        most = torch.finfo(mine.dtype).max
        edge = (exact.abs() / most - 1).abs() <= relative
        mine, theirs = (torch.where(edge, v.clamp(-most, most), v) for v in (mine, theirs))
        # Where eager's dtype overflows on the way and float64 does not, chance decides what becomes of it.
        wild = theirs.isfinite() & ((theirs.double() - exact).abs() > 0.05 + 0.5 * exact.abs())
        kind = torch.isfinite if any_kind else kinds
        found, eagers, right = map(kind, (mine, theirs, exact))
        sure = (eagers == right) & ~wild
        if mine.is_cuda and (mine.dtype.itemsize < 8 or what.startswith("gradient")):
            # The parts of a matrix product are added up in an order, and in 16 bits also in a dtype, that are cuBLAS's choice.
            doubtful = (exact.abs() > most / 4) & (exact.abs() < most * 4) & ~mine.isnan() & ~theirs.isnan()
            sure &= ~(doubtful & (mine.isinf() | theirs.isinf()))
            if what.startswith("gradient"):  # parts of both signs that are larger than their sum, and what overflows first may be either
                sure &= ~((exact.abs() > most / 64) & exact.isfinite() & ~(mine.isfinite() & theirs.isfinite()))
        for _, one, other in chances:  # of what is divided by zero a rounding decides whether it is infinite, and of which sign
            sure &= (kind(one) == right) & (kind(other) == right)
        if not torch.equal(found[sure], eagers[sure]):
            self.fail(f"{what}: NaN or infinite where eager is not, or the reverse: {mine[sure]} and {theirs[sure]}"[:400])
        finite = sure & theirs.isfinite()
        off, eagers = ((v.double() - exact)[finite].abs() for v in (mine, theirs))
        near = torch.isclose(mine[finite], theirs[finite], relative, absolute) | (off <= absolute + relative * exact[finite].abs())
        if near.all():
            return
        allowed = 1.5 * loose * eagers.max()
        for times, one, other in chances:
            allowed = max(allowed, times * loose * (one.double() - other.double())[finite].abs().nan_to_num(0, 0, 0).max())
        if off.max() > allowed:
            place = int(off.argmax())
            self.fail(f"{what}: {mine[finite][place].item()} where float64 has {exact[finite][place].item()}; error {off.max():g}, eager's is {eagers.max():g}")

    def ratio(self, case, mine, theirs, referee):
        """Of the rms errors, where a kernel ran on ordinary numbers. Whether eager rounds to TF32 is cuBLAS's choice."""
        if not referee or case.tf32 or any(t and (t.content != "normal" or t.dtype == torch.float64) for t in case.tensors.values()):
            return None  # float64 has no referee but itself
        fused, eager, exact = (run.outcome.value for run in (mine, theirs, referee))
        off, eagers = ((v.double() - exact).square().mean().sqrt().item() for v in (fused, eager))
        return off / eagers if eagers > 0 and math.isfinite(off / eagers) else None
