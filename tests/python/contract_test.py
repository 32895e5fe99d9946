"""The contract of the ops' numbers, which float64 referees."""
import statistics

import torch

import cases
from cases import OPS, draw
from checks import Checks, copied, main


class ContractTest(Checks):
    """The fused error against float64 is not larger than eager's, over many seeds, with random statistics and affine parameters."""

    seeds, batch, width, features, groups, device, path = 24, 257, 256, 384, 12, "cpu", "cpu"
    dtypes, training = (torch.float32, torch.bfloat16, torch.float16), (True, False)

    def sample(self, op, seed, dtype, training):
        return draw(op, seed, dtype, self.device, x=(self.batch, self.width), w=(self.features, self.width), b=(self.features,),
                    vector=None if op.stem.endswith("div_swish") else (self.features,), norm=(self.features,),
                    stats=(self.features,), groups=self.groups, training=training)

    def contract(self, op, dtype, training):
        root_mean_squares, maxima, what = [], [], f"{op} {dtype} training {training}"
        for seed in range(self.seeds):
            arguments = self.sample(op, seed, dtype, training)
            if op.scalar and isinstance(arguments[op.scalar], torch.Tensor):
                arguments[op.scalar] = arguments[op.scalar].cpu()  # where traces hold numbers; elsewhere the reference runs
            referee = op.eager(cases.in_double(copied(arguments)))
            fused = self.assert_calls(op.stem, lambda: op(copied(arguments)), what, path=self.path)
            eager = op.eager(copied(arguments))
            mine, theirs = (fused.double() - referee).abs(), (eager.double() - referee).abs()
            out = fused.abs().max()  # both maxima are the tensor's, and so is the unit in the last place
            unit = float(torch.nextafter(out, torch.full_like(out, torch.inf)).double() - out.double())
            self.assertLessEqual(mine.max().item(), max(1.5 * theirs.max().item(), unit), f"{what}: seed {seed}")
            root_mean_squares.append(ratio(mine.square().mean().sqrt(), theirs.square().mean().sqrt()))
            maxima.append(ratio(mine.max(), theirs.max()))
        self.assertLessEqual(statistics.median(root_mean_squares), 1.00 + 1e-9, f"{what}: median ratio of rms errors")
        self.assertLessEqual(statistics.median(maxima), 1.05, f"{what}: median ratio of largest errors")

    def test_contract(self):
        for op in OPS:
            for dtype in self.dtypes:
                for training in [False] if op.inference or not op.batch_norm else self.training:
                    with torch.no_grad(), self.subTest(op=op.name, dtype=dtype, training=training):
                        self.contract(op, dtype, training)


def ratio(mine, theirs):
    return 1.0 if mine == theirs else float(mine / theirs)


if __name__ == "__main__":
    main()
