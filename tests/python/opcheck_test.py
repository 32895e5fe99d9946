"""torch.library.opcheck of every overload, with each optional argument present and absent. None is skipped."""
import logging

import torch

import cases
from cases import OPS, draw
from checks import Checks, Outcome, main

logging.getLogger("torch._subclasses.fake_tensor").setLevel(logging.CRITICAL)


class OpcheckTest(Checks):
    device = "cpu"

    def check(self, op, arguments, what):
        overload = getattr(getattr(torch.ops.tailor, op.stem), op.overload)
        results = torch.library.opcheck(overload, tuple(arguments.values()), raise_exception=False)
        leaves = [name for name in op.tensors(arguments) if arguments[name].requires_grad]
        if says := cases.torch_fails(op, arguments, leaves):
            # It compares compiled gradients with eager's, of which there are none: neither the op nor the chain can pass.
            eager = Outcome(lambda: torch.autograd.grad(op.eager(arguments).sum(), [arguments[name] for name in leaves]))
            self.assertIn(says, eager.exception or "", f"{op} {what}: torch fails no longer")
            self.assertIn(says, str(results.pop("test_aot_dispatch_dynamic")), f"{op} {what}")
            results["test_aot_dispatch_dynamic"] = "SUCCESS"
        for utility, result in results.items():
            self.assertEqual(result, "SUCCESS", f"{utility} of {op} {what}: {result}")
        self.assertGreaterEqual(len(results), 4, f"{op}: opcheck left something out: {results}")

    def check_op(self, op):
        for parts in cases.optional_parts(op, norms="apart"):
            with self.subTest(op=op.name, parts=parts):
                self.check(op, draw(op, device=self.device, **parts), f"{parts}, no gradients")
                arguments = draw(op, device=self.device, **parts)
                for name in op.tensors(arguments):
                    arguments[name].requires_grad_()
                self.check(op, arguments, f"{parts}, gradients")

    def test_strange_shapes(self):
        for op in OPS:
            for name in ("3-D x", "batch 0", "vector (2, 6, 12)", "vector ()"):
                shape = cases.STRANGE[name]
                if name.startswith("vector (2") and op.batch_norm and op.vector == "scale":
                    shape = cases.STRANGE["raised rank, norms to match"]
                if "group" in op.stem and name.startswith("vector (2"):
                    shape = {**cases.STRANGE["raised rank, norms to match"], "groups": 3} if op.vector == "addend" else shape
                with self.subTest(op=op.name, shape=name):
                    training = {} if op.inference else {"training": name != "batch 0"}
                    self.check(op, draw(op, device=self.device, **{**training, **shape}), name)


def one(op):
    return lambda self: self.check_op(op)


for op in OPS:
    setattr(OpcheckTest, f"test_{op.name.replace('.', '_')}", one(op))


if __name__ == "__main__":
    main()
