"""CUDA graphs that are replayed with new numbers in everything that they read, each replay judged; the files that use it say which
kernels are captured. Judging stays on the device, and is read once: a thousand replays would wait for it a thousand times."""
import contextlib
import itertools
import os

import torch

from cases import CHAINS, draw
from checks import TOLERANCE, Checks, all_calls, copied

GPU = torch.cuda.is_available()
HOPPER = GPU and torch.cuda.get_device_capability() == (9, 0)
ROWS, INNER, COLUMNS, WIDTH = 200, 72, 144, 16  # no tile divides the first three, the copy engine reads them
REPLAYS, DRAWN = 1000, 25
STATISTICS = ("running_mean", "running_var")
TF32 = "TF32"  # beside dtypes: float32 that may be rounded


def sized(op, seed, dtype, training, device="cuda"):
    column = (1,) if op.stem.endswith("div_swish") else (COLUMNS,)
    arguments = draw(op, seed, torch.float32 if dtype == TF32 else dtype, device, x=(ROWS, INNER), w=(COLUMNS, INNER), b=(COLUMNS,), vector=column,
                     norm=(COLUMNS,), stats=(COLUMNS,), groups=COLUMNS // WIDTH, training=training)
    return on_the_grid(arguments) if dtype == TF32 else arguments


def on_the_grid(arguments):
    """Matrices that TF32 holds as they are: whether cuBLAS rounds to it is its own choice."""
    matrices = {name: (arguments[name].view(torch.int32) & ~0x1FFF).view(torch.float32) for name in ("input", "weight")}
    return {**arguments, **matrices}


def paths_of(op, dtype, training, backward):
    """What a call of those sizes runs, all of it, where TAILOR_HOPPER leaves no choice."""
    wanted = os.environ["TAILOR_HOPPER"]
    batch = training and op.batch_norm
    keeps = wanted not in ("few_rows", "strips")  # the linear's result, for the backward
    apart = {f"{op.stem}/cuda", *([f"{op.stem}/cuda_backward"] if backward else [])}
    if wanted == "never" or dtype == torch.float64:
        return apart
    if dtype == torch.float32:
        path = "bf16x6" if wanted == "few_rows" else "fp16x3"
        shared = {"linear/fp16x3_shared"} if backward and keeps else set()  # by both products of the backward
        if batch or (backward and not keeps):
            return {*apart, f"linear/{path}", *shared}
        return {f"{op.stem}/{path}", *([f"{op.stem}/cuda_backward", f"linear/{path}"] if backward else []), *shared}
    if batch and (backward or dtype == TF32):
        return {*apart, f"{op.stem}/hopper_gather"}
    if backward and not keeps:
        return apart
    return {f"{op.stem}/hopper", *([f"{op.stem}/cuda_backward"] if backward else [])}


@contextlib.contextmanager
def allowed(tf32):
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = tf32
    try:
        yield
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before


class Replays(Checks):
    def each(self, batch_statistics=(True, False)):
        for op in CHAINS:
            for training in batch_statistics if op.batch_norm else (False,):
                yield op, training

    def captured(self, call, what, paths, stream=None):
        """A graph of the call, which must take these paths and no others, and what the call gives."""
        side = stream or torch.cuda.Stream()
        torch.cuda.synchronize(side.device)
        with torch.cuda.stream(side):
            for _ in range(3):
                call()
        torch.cuda.synchronize(side.device)
        graph, before = torch.cuda.CUDAGraph(), all_calls()
        with torch.cuda.graph(graph, stream=side):
            out = call()
        ran = {path for path, count in all_calls().items() if count != before.get(path, 0)}
        self.assertEqual(ran, paths, f"{what}: what was captured")
        torch.cuda.synchronize(side.device)
        return graph, out

    def replayed(self, op, dtype, training, backward, paths, make=sized):
        """Each replay against eager on the same numbers: the result, what was written to, and the gradients, as near to float64 as
        eager's in the worst of the replays, or a few roundings of their size."""
        what = f"{op} {dtype}, training {training}, gradients {backward}"
        drawn = [make(op, seed, dtype, training) for seed in range(DRAWN)]
        arguments, names = copied(drawn[0]), op.tensors(drawn[0])
        statistics = [n for n in STATISTICS if n in arguments]
        wide = torch.linspace(-1, 1, drawn[0]["input"].size(0) * drawn[0]["weight"].size(0), device="cuda")

        def run(call, values):
            if not backward:
                with torch.no_grad():
                    return [call(values)]
            leaves = [values[n] for n in names]
            out = call(values)
            cotangent = wide.to(drawn[0]["input"].dtype).to(out.dtype).view_as(out)
            return [out.detach(), *torch.autograd.grad(out, leaves, cotangent)]

        def fresh_of(turn):
            fresh = {n: v * (1 + 1e-3 * turn) if n in names else v.clone() if isinstance(v, torch.Tensor) else v
                     for n, v in drawn[turn % DRAWN].items()}
            return on_the_grid(fresh) if dtype == TF32 else fresh

        def ready(values):
            return {n: v.requires_grad_(backward) if n in names else v for n, v in values.items()}

        ready(arguments)
        tensors = [n for n, v in arguments.items() if isinstance(v, torch.Tensor)]
        graph, found = self.captured(lambda: run(op, arguments), what, paths)
        of_replays = []
        for turn in range(REPLAYS):
            fresh = fresh_of(turn)
            with torch.no_grad():
                torch._foreach_copy_([arguments[n] for n in tensors], [fresh[n] for n in tensors])
            graph.replay()
            exactly = ready({n: v.to(torch.float64, copy=True) if isinstance(v, torch.Tensor) else v for n, v in fresh.items()})
            exact, eager = run(op.eager, exactly), run(op.eager, ready(fresh))
            of_replays.append(torch.stack([
                *self.errors(found[:1], eager[:1], exact[:1], dtype), *self.errors(found[1:], eager[1:], exact[1:], dtype),
                *self.errors(*([values[n] for n in statistics] for values in (arguments, fresh, exactly)), dtype)]))
        self.judge(torch.stack(of_replays), ["the result", *(f"the gradient of {n}" for n in (names if backward else [])), *statistics], what)

    def errors(self, mine, theirs, exact, dtype):
        """How far off each is, beyond some roundings, and how far off eager's is. Some gradients cancel to nothing: the largest is the
        measure of all."""
        if not exact:
            return []
        size = torch.stack([t.detach().abs().max() for t in exact]).max().clamp(min=1)
        roundings = 256 if dtype == TF32 else 1e4 if dtype == torch.float64 else 16  # tensor cores cut off; float64 has no referee
        return [torch.stack([self.off(a, c) - roundings * torch.finfo(a.dtype).eps * size, self.off(b, c)])
                for a, b, c in zip(mine, theirs, exact)]

    @staticmethod
    def off(value, exact):
        return (value.detach().double() - exact.detach()).abs().max()

    def judge(self, errors, names, what):
        """`errors` has a row for each replay. By luck eager's error in one of them is 0 of what cancels to nothing: of all of them the
        largest is the bound. What is no number is above any bound."""
        self.assertEqual(errors.shape, (REPLAYS, len(names), 2), what)
        excesses = errors[:, :, 0] - 4 * errors[:, :, 1].max(0).values
        if not bool((excesses <= 0).all()):
            place = int(excesses.nan_to_num(nan=torch.inf).argmax())
            turn, which = divmod(place, len(names))
            self.fail(f"{what}: {names[which]} is too far off by {excesses[turn, which].item():g} in replay {turn}; "
                      f"{int((~(excesses <= 0)).any(1).sum())} of {REPLAYS} replays are wrong")

    def at_once(self, op, dtype, training, streams):
        """A graph on each stream, with numbers of its own, and all replayed while the others are: what the op gives alone, bit for bit
        where no part of it is cuBLAS's."""
        what, paths = f"{op} {dtype}, training {training}, on {len(streams)} streams", paths_of(op, dtype, training, False)
        whole = not any("cuda" in path for path in paths)
        sides = []
        for number, stream in enumerate(streams):
            drawn = [sized(op, 100 * number + seed, dtype, training, stream.device) for seed in range(DRAWN)]
            arguments = copied(drawn[0])
            with torch.no_grad(), torch.cuda.device(stream.device):
                results = [op(copied(values)) for values in drawn]
                graph, out = self.captured(lambda: op(arguments), what, paths, stream)
            sides.append((stream, drawn, arguments, results, graph, out, []))
        for stream in streams:
            torch.cuda.synchronize(stream.device)
        tensors = [n for n, v in sides[0][2].items() if isinstance(v, torch.Tensor)]
        for turn in range(REPLAYS // len(streams)):
            for stream, drawn, arguments, results, graph, out, found in sides:
                with torch.no_grad(), torch.cuda.device(stream.device), torch.cuda.stream(stream):
                    torch._foreach_copy_([arguments[n] for n in tensors], [drawn[turn % DRAWN][n] for n in tensors])
                    graph.replay()
                    wanted = results[turn % DRAWN]
                    off = (out.double() - wanted.double()).abs().max()
                    found.append(off if whole else off - TOLERANCE[out.dtype][0] * wanted.abs().max())
        for stream, *_, found in sides:
            torch.cuda.synchronize(stream.device)
            worst = torch.stack(found)
            self.assertEqual(worst.numel(), REPLAYS // len(streams), what)
            self.assertTrue(bool((worst <= 0).all()), f"{what}: replays on {stream} differ, by {worst.max().item():g} more than they may")


class ReplaysTest(Replays):
    """Of the kernels that TAILOR_HOPPER says; each file has dtypes and more of its own."""

    dtypes, gradients, batch_statistics = (), (False, True), (True, False)

    def kinds(self):
        return itertools.product(self.each(self.batch_statistics), self.dtypes)

    def test_a_thousand_replays(self):
        for ((op, training), dtype), backward in itertools.product(self.kinds(), self.gradients):
            with allowed(dtype == TF32):
                self.replayed(op, dtype, training, backward, paths_of(op, dtype, training, backward))

    def test_a_thousand_replays_on_streams_at_once(self):
        for (op, training), dtype in self.kinds():
            with allowed(dtype == TF32):
                self.at_once(op, dtype, training, [torch.cuda.Stream() for _ in range(4)])
