"""float32 on Hopper's tensor cores, as three products of fp16 halves: as near to float64 as docs/float32.md says, whatever the numbers
are. Each call must take the path `fp16x3`; where sums are exact, so must be the results. few_rows_test runs these for `bf16x6`."""
import itertools
import unittest

import torch
import torch.nn.functional as F

import cases
import contract_test
from cases import CHAINS
from checks import copied, main
from float32_cases import FEW_ROWS, HOPPER, LEAST, PATH, UNIT, Float32, all_in_doubt, fitting, integers, laid_out, sized

from float32_error.inputs import DISTRIBUTIONS, Draw
from float32_error.mixtures import Mixture
from float32_error.referee import FLOOR, Referee as Product, ratio

ROWS = [1, 2, 63, 64, 65, 127, 128, 129, 191, 255, 256, 257, 385, 511, 513]  # tiles have 128 rows, clusters two of them
COLUMNS = [16, 64, 128, 192, 240, 256, 272, 320, 512, 528, 832]  # tiles have 256
BY_FOURS = [4, 8, 12, 60, 68, 252, 260, 508, 516, 772]
ROUNDING = 2.0**-22 if FEW_ROWS else 2.0**-23  # of a single product: the tensor cores cut off
INNER = [LEAST + more for more in (0, 1, 2, 3, 4, 5, 7, 8, 15, 31, 32, 33, 63, 64, 65, 127, 128, 129)] + [1000, 1023, 2047, 2052]


@unittest.skipUnless(HOPPER, "this needs a GPU of compute capability 9.0")
class ValuesTest(Float32):
    def test_sizes(self):
        """Every number of rows, columns and inner columns, with some of the others."""
        for op in CHAINS:
            for i in range(3 * len(ROWS)):
                rows, columns, inner = ROWS[i % len(ROWS)], COLUMNS[(i * 5 + i // 8) % len(COLUMNS)], INNER[(i * 7) % len(INNER)]
                self.forward(op, sized(op, rows, columns, inner), f"{rows}×{inner}→{columns}")

    def test_columns_by_fours(self):
        for op in (op for op in CHAINS if not op.group_norm):
            for columns in BY_FOURS:
                self.forward(op, sized(op, 130, columns, LEAST + 1, 1), f"{columns} columns")

    def test_columns_not_by_fours(self):
        """Whichever way they go."""
        for op, columns in itertools.product([op for op in CHAINS if not op.group_norm], (1, 2, 3, 5, 250, 255, 257, 511, 514)):
            arguments = sized(op, 130, columns, LEAST + 1, 1)
            with torch.no_grad():
                out = self.assert_calls(op.stem, lambda: op(arguments), f"{op}")
            eager, exact = op.eager(copied(arguments)), op.eager(cases.in_double(copied(arguments)))
            self.close(out, eager, exact, f"{op} {columns} columns")

    def test_group_widths(self):
        for op, width in itertools.product([op for op in CHAINS if op.group_norm], (16, 32, 64)):
            for rows, columns, inner in ((1, 64, 300), (129, 320, 257), (300, 576, 1000)):
                self.forward(op, sized(op, rows, columns, inner, width), f"{rows}×{inner}→{columns}, groups of {width}")

    def test_optional_parts(self):
        for op in CHAINS:
            for missing in ({"b": None}, {"norm": None}, {"b": None, "norm": None}, {"vector": ()}, {"vector": (1,)}):
                self.forward(op, sized(op, 150, 320, LEAST, **missing), f"{missing}")

    def test_offsets_and_strides(self):
        """What the split reads begins anywhere, and its rows are as far apart as they like."""
        for op in CHAINS:
            for name, offset, more, inner in itertools.product(("input", "weight"), (0, 1, 2, 3, 5), (0, 1, 3, 17), (LEAST, LEAST + 3)):
                arguments = sized(op, 131, 320, inner)
                unit = UNIT if name == "weight" else 1
                arguments[name] = laid_out(arguments[name], offset * unit, fitting(inner) + more * unit)
                with torch.no_grad():
                    out = self.assert_calls(op.stem, lambda: op(arguments), f"{op} {name} {offset} {more} {inner}", PATH)
                    dense = self.assert_calls(op.stem, lambda: op({**arguments, name: arguments[name].contiguous()}), f"{op}", PATH)
                self.assert_bitwise(out, dense, f"{op} {name}, {offset} elements in, rows of {inner} in {inner + more}")

    def test_three_dimensions(self):
        for op in (op for op in CHAINS if not op.group_norm and not op.batch_norm):
            arguments = sized(op, 150, 320, LEAST)
            self.forward(op, {**arguments, "input": arguments["input"].view(3, 50, LEAST)}, "3-D")

    def test_equal_values_in_a_group(self):
        for op, width in itertools.product([op for op in CHAINS if op.group_norm], (16, 32, 64)):
            arguments = cases.constant_groups(op, 4, width, "cuda")
            arguments["input"], arguments["weight"] = (arguments[name].repeat(1, 60) for name in ("input", "weight"))
            exact = op.eager(cases.in_double(copied(arguments)))
            with torch.no_grad():
                out = self.assert_calls(op.stem, lambda: op(arguments), f"{op}", PATH)
            self.assertLess((out.double() - exact).abs().max().item(), 1e-5, f"{op}: groups of {width} equal values")


@unittest.skipUnless(HOPPER, "this needs a GPU of compute capability 9.0")
class ErrorTest(Float32):
    def test_every_distribution(self):
        """tools/float32-error has more lengths, tables and a search. docs/float32.md says where the promise ends."""
        worse = {"lognormal_6": 1.5, "wide": 1.5} if FEW_ROWS else {"cancelling": 5.0, "wide": 1.1}
        for name, inner in itertools.product(DISTRIBUTIONS, (LEAST, 1000, 8192)):
            times = {"sparse": 2.0, "few": 2.0, **worse}.get(name, 1.0)
            self.not_worse(*DISTRIBUTIONS[name].make(Draw("cuda", 1), 2048, 2048, inner), f"{name}, sums of {inner}", times)

    def test_mixtures(self):
        """A few of the search's. SGEMM may have luck: docs/float32.md has the bound."""
        for seed in range(200):
            mixture = Mixture(seed, "cuda", list(DISTRIBUTIONS))
            if mixture.k % UNIT != 0:
                continue
            self.not_worse(mixture.x, mixture.weight, f"--search 0 --seed {seed}: {mixture.words}", floor=2.0**-20 + mixture.k * 2.0**-30)

    def test_integers_bit_for_bit(self):
        """Small ones; 11 bits, which one half holds; 13, which take both."""
        for rows, columns, inner in ((1, 4, LEAST), (127, 252, fitting(511)), (128, 256, 512), (129, 260, fitting(513)), (300, 576, 4096)):
            what = f"{rows}×{inner}→{columns}"
            self.exact(integers(rows, inner, 8), integers(columns, inner, 8), f"{what}, up to 8")
            self.exact(integers(rows, inner, 2047), integers(columns, inner, 1), f"{what}, of 11 bits")
            self.exact(integers(rows, inner, 1), integers(columns, inner, 2047), f"{what}, a weight of 11 bits")
            few = torch.where(torch.rand(columns, inner, device="cuda") < 0.1, integers(columns, inner, 1), 0.0)
            self.exact(integers(rows, inner, 8191), few, f"{what}, of 13 bits")

    def test_integers_whose_higher_halves_are_more(self):
        """They come to 2^24 + 1, which float32 does not have, and the numbers themselves to less."""
        row = torch.zeros(192, device="cuda")
        row[:190], row[190], row[191] = 87360 - 31, 178816, 1  # a higher half has units of 64, or of 128
        weight = torch.stack([F.pad(row[torch.randperm(192, device="cuda")], (0, 64)) for _ in range(256)])  # all before the last step
        self.exact(torch.ones(130, 256, device="cuda"), weight, "in a tile")

    def test_one_product_above_all_others(self):
        """Beside it the tensor cores cut them off: as docs/float32.md promises, but for K hardly more."""
        for inner in (256, 1024):
            x = torch.full((130, inner), 5.65625, device="cuda")
            x[:, 0] = 2.0**14
            weight = x[:1].expand(272, inner).contiguous()
            exact = (x[0].double() ** 2).sum()
            off = ((self.product(x, weight, "one above all").double() - exact).abs().max() / exact).item()
            self.assertLess(off, 2.0**-19 + inner * 2.0**-29 if FEW_ROWS else 2.0**-18 + inner * 2.0**-30)

    def test_integers_of_24_bits(self):
        """Neighbours cancel, and sums are exact in float32, whose last digit two halves do not hold."""
        for seed in range(4):
            start = 2 * torch.randint(0, 1 << 20, (130, 1), device="cuda") + 2**23 + 1
            x = (start + 2 * (torch.arange(512, device="cuda") % 2)).float()
            weight = torch.ones(64, 512, device="cuda") * (1 - 2 * (torch.arange(512, device="cuda") % 2))
            self.exact(x, weight, f"of x, {seed}")
            self.exact(weight, x, f"of the weight, {seed}")

    def test_numbers_that_scales_make_zero(self):
        """Beside a large number that meets zeros, next to nothing is all there is."""
        for large, small in ((2.0**40, 2.0**-125), (2.0**45, 2.0**-120), (2.0**48, 2.0**-110), (2.0**30, 2.0**-90)):
            x, weight = torch.full((130, 512), small, device="cuda"), torch.ones(64, 512, device="cuda")
            x[:, 0], weight[:, 0] = large, 0.0
            self.exact(x, weight, f"{large:g} and {small:g}")
            self.exact(weight, x, f"{large:g} and {small:g} in the weight")

    def test_few_numbers_that_count(self):
        """Among many that are next to nothing: there one product's halves would be the error."""
        for strong, inner in itertools.product((1, 2, 4, 8), (LEAST, 1024, 4096)):
            x, weight = torch.randn(300, inner, device="cuda"), torch.randn(516, inner, device="cuda")
            x[:, strong:] *= 1e-7
            self.not_worse(x, weight, f"{strong} of x, sums of {inner}", floor=ROUNDING)
            weight[:, strong:] *= 1e-7
            self.not_worse(x, weight, f"{strong} of both, sums of {inner}", floor=ROUNDING)
        self.not_worse((30 * torch.randn(2048, 1024, device="cuda")).softmax(1), torch.randn(2048, 1024, device="cuda"), "a softmax",
                       floor=2.0**-20 if FEW_ROWS else ROUNDING)

    def test_many_small_numbers_beside_a_heavy_one(self):
        """Halves lose all of the small ones, and it adds up. SGEMM, which meets the others last, does not. What is known of the heavy
        number must not excuse it, nor what is known of a hundred others."""
        inner, rows = 4096, 130
        x = torch.full((rows, inner), 2.0**-25, device="cuda") * (0.9 + 0.09 * torch.rand(rows, inner, device="cuda"))
        weight = torch.full((rows, inner), 1.9 * 2.0**14, device="cuda")
        x[:, 0], weight[:, 0] = 2.0**14, 0
        x[:, -101:-1] = 4 * torch.randn(rows, 100, device="cuda").sign()
        x[:, -1], weight[:, -101:] = 128, 128
        self.not_worse(x, weight, "small numbers", floor=ROUNDING)
        self.not_worse(weight, x, "small numbers in the weight", floor=ROUNDING)

    def test_one_hot_and_identity_weights(self):
        """Results are elements of x, all 24 bits of them, from 1e-30 to 1e30."""
        for inner, columns in ((LEAST, LEAST), (300, 300), (512, 1024), (1000, 12)):
            x = torch.randn(130, inner, device="cuda") * Draw("cuda", 3).powers(130, 1, 100)
            places = torch.randint(0, inner, (columns, 1), device="cuda")
            one_hot = torch.zeros(columns, inner, device="cuda").scatter(1, places, 1.0)
            identity = torch.eye(columns, inner, device="cuda")
            for weight, what in ((one_hot, "one-hot"), (identity, "identity"), (-identity / 8, "a part of it")):
                self.exact(x, weight, f"{what}, {inner}→{columns}")
                self.exact(weight[: min(columns, 70)], torch.randn(256, inner, device="cuda"), f"{what} as x, {inner}")

    def test_zero_rows_and_columns(self):
        x, weight = torch.randn(130, 300, device="cuda"), torch.randn(260, 300, device="cuda")
        x[::3], weight[::5], x[:, ::7], weight[:, 1::7] = 0.0, -0.0, 0.0, 0.0
        out = self.not_worse(x, weight, "zero rows and columns")
        self.assertTrue(bool((out[::3] == 0).all()) and bool((out[:, ::5] == 0).all()))
        for left, right in ((torch.zeros_like(x), weight), (x, torch.zeros_like(weight)), (-torch.zeros_like(x), weight)):
            self.assertTrue(bool((self.product(left, right, "zeros") == 0).all()))
        bias = torch.randn(260, device="cuda")
        self.assertTrue(torch.equal(self.product(torch.zeros_like(x), weight, "a bias alone", bias), bias.expand(130, 260)))

    def test_everything_needs_repair(self):
        for op in CHAINS:
            for rows, columns, inner in ((1, 64, LEAST), (129, 320, 300), (300, 576, 1024)):
                self.forward(op, all_in_doubt(sized(op, rows, columns, inner)), f"{rows}×{inner}→{columns}, all in doubt")
        for powers in (5, 10, 15, 20, 30, 40, 60):  # from none to all
            values = {"input": torch.randn(300, 1000, device="cuda"), "weight": torch.randn(516, 1000, device="cuda")}
            values = all_in_doubt(values, powers)
            self.not_worse(values["input"], values["weight"], f"columns of 2^±{powers}")

    def test_some_rows_need_repair(self):
        """Results beside repaired ones are what they are without them."""
        x, weight = torch.randn(300, 512, device="cuda"), torch.randn(516, 512, device="cuda")
        before = self.product(x, weight, "none")
        for row, column in ((0, 0), (63, 100), (128, 255), (200, 256), (299, 515)):
            wide_x, wide_weight = x.clone(), weight.clone()
            wide_x[row, 3], wide_weight[column, 5] = torch.inf, torch.nan
            after = self.product(wide_x, wide_weight, "one row, one column")
            self.assertFalse(bool(after[row].isfinite().any()) or bool(after[:, column].isfinite().any()))
            same = torch.ones_like(before, dtype=torch.bool)
            same[row], same[:, column] = False, False
            self.assert_bitwise(after[same], before[same], f"beside row {row} and column {column}")


@unittest.skipUnless(HOPPER, "this needs a GPU of compute capability 9.0")
class SpecialValuesTest(Float32):
    def same_kinds(self, mine, eager, exact, what):
        """Where float64 is finite and eager is not, eager has overflowed on its way, in an order of its own."""
        judged = eager.isfinite() | ~exact.isfinite()
        self.assertGreater(judged.float().mean().item(), 0.5, what)
        for kind in (torch.isnan, torch.isposinf, torch.isneginf):
            self.assertTrue(torch.equal(kind(mine[judged]), kind(eager[judged])), f"{what}: {kind.__name__}")

    def specials(self):
        smallest = 2.0**-149
        return [*cases.LATTICE, smallest, -smallest, 1e-40, -1e-42, 1.1754944e-38, 1e-38, 3.4028235e38, -3.4028235e38, 65504.0,
                65520.0, 1e5]

    def test_a_row_of_each(self):
        """One special number in a row of zeros, and one among ordinary numbers; in x and in the weight."""
        specials = torch.tensor(self.specials(), device="cuda")
        columns = (len(specials) + 3) // 4 * 4
        for inner, around in itertools.product((LEAST, fitting(515)), (0.0, 1.0)):
            x = torch.randn(len(specials), inner, device="cuda") * around
            x[:, inner // 2] = specials
            weight = torch.randn(columns, inner, device="cuda").abs() + 0.1
            other = torch.randn(columns, inner, device="cuda") * around
            other[: len(specials), 7] = specials
            for what, left, right in (("x", x, weight), ("the weight", torch.randn_like(x), other), ("both", x, other)):
                what = f"{what}, K {inner}, among {around}"
                mine, eager = self.product(left, right, what), F.linear(left, right)
                exact = left.double() @ right.double().t()
                self.same_kinds(mine, eager, exact, what)
                finite = mine.isfinite() & eager.isfinite()
                referee = Product(left.nan_to_num(0, 0, 0), right.nan_to_num(0, 0, 0))
                mine, eager = (referee.errors(value)[finite].max().item() for value in (mine, eager))
                self.assertLessEqual(ratio(mine, eager, 2.0**-20), 1.0, what)  # the bound

    def test_in_every_chain(self):
        ordinary = torch.tensor([not abs(value) > 104 for value in cases.LATTICE], device="cuda")
        for op in CHAINS:
            arguments = sized(op, len(cases.LATTICE), 128, LEAST)
            arguments["input"] = torch.zeros_like(arguments["input"])
            arguments["input"][:, 0] = torch.tensor(cases.LATTICE, dtype=torch.float64).to("cuda", torch.float32)
            arguments["weight"] = torch.ones_like(arguments["weight"])
            with torch.no_grad():
                whole = self.assert_calls(op.stem, lambda: op(copied(arguments)), f"{op}", PATH)
                eager, exact = op.eager(copied(arguments)), op.eager(cases.in_double(copied(arguments)))
            self.same_kinds(whole, eager, exact, f"{op}")
            self.close(whole[ordinary][:-1], eager[ordinary][:-1], exact[ordinary][:-1], f"{op}")  # the last is NaN

    def test_huge_tiny_and_subnormal_rows(self):
        """Rows of every magnitude, ordinary ones beside them."""
        sizes = torch.tensor([1e37, 1e30, 1e10, 1.0, 1e-10, 1e-30, 1e-37, 1e-38, 1e-40, 1e-43], dtype=torch.float64, device="cuda")
        for inner, each in itertools.product((LEAST, fitting(1001)), (1, 13)):
            x = (torch.rand(10 * each, inner, device="cuda", dtype=torch.float64) * sizes.repeat(each)[:, None]).float()
            for scale in (1e-30, 1e-3, 0.5 / inner):
                weight = torch.randn(260, inner, device="cuda") * scale
                eager, what = F.linear(x, weight), f"{each} of each, weight {scale:g}, K {inner}"
                mine, referee = self.product(x, weight, what), Product(x, weight)
                self.same_kinds(mine, eager, referee.exact, what)
                finite = eager.isfinite()
                for row in range(10):  # each magnitude by itself, else the worst hides the others
                    which = finite[row::10]
                    errors = [referee.errors(value)[row::10][which].max().item() for value in (mine, eager)]
                    self.assertLessEqual(ratio(*errors, ROUNDING if FEW_ROWS else FLOOR), 1.0, f"{what}, rows of {sizes[row].item():g}")


@unittest.skipUnless(HOPPER, "this needs a GPU of compute capability 9.0")
class Float32ContractTest(contract_test.ContractTest):
    device, path, dtypes, training = "cuda", PATH, (torch.float32,), (False,)


@unittest.skipUnless(HOPPER, "this needs a GPU of compute capability 9.0")
class LongSumsContractTest(contract_test.ContractTest):
    """At lengths where the three products are far better than SGEMM, and across tiles."""
    device, path, dtypes, training = "cuda", PATH, (torch.float32,), (False,)
    seeds, batch, width, features, groups = 20, 300, 2048, 640, 20


if __name__ == "__main__":
    if not HOPPER:
        print("float32_test: no GPU of compute capability 9.0 here, all of it is skipped", flush=True)
    main()
