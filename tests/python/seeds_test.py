"""The six seed models with their published classes, default initialisation and torch.rand inputs, through doors 1 and 2."""
import os
import unittest

import torch

from checks import auto, calls_of, main
from scripted import Following, is_fused

import seed_models  # tools/, put on the path by checks


def fresh(case, **options):
    """The model with its parameters from the seed, in a class of its own, so that TorchScript compiles it anew."""
    model = seed_models.build(case, **options)
    model.__class__ = type(case.model.__name__, (case.model,), {"__module__": __name__})
    return model


class SeedTest(Following):
    table, device = seed_models.REDUCED, "cpu"

    def compare(self, name, case, fuse):
        what, steps = f"{name} {case.sizes()}", 3
        eager = seed_models.build(case).to(self.device)
        model = fuse(fresh(case).to(self.device))
        self.assertTrue(is_fused(model, case.rule), f"{what}: not fused: {torch.ops.tailor.inspect(model)}")
        self.assertEqual(list(model.state_dict()), list(eager.state_dict()), what)
        before = calls_of(case.rule)
        for training in (True, False):
            model.train(training)
            eager.train(training)
            for seed in range(steps):
                x = seed_models.example(case, seed).to(self.device)
                mine, theirs = x.clone().requires_grad_(), x.clone().requires_grad_()
                for m in (model, eager):
                    m.zero_grad()
                expected, actual = eager(theirs), model(mine)
                weight = torch.rand_like(expected)
                (expected * weight).sum().backward()
                (actual * weight).sum().backward()
                label = f"{what}, training {training}, call {seed}"
                self.assert_same(actual, expected, label, (1e-4, 1e-4))
                self.assert_state_close(model, eager, label)
                parameters = dict(model.named_parameters())
                for key, parameter in eager.named_parameters():
                    self.assertIsNotNone(parameters[key].grad, f"{label}: no gradient for {key}")
                    self.assert_gradient(parameters[key].grad, parameter.grad, f"{label}: gradient of {key}")
                self.assert_gradient(mine.grad, theirs.grad, f"{label}: gradient of x")
                with torch.no_grad():
                    self.assert_same(model(x), eager(x), f"{label}, no_grad", (1e-4, 1e-4))
                self.assert_state_close(model, eager, f"{label}, no_grad")
        self.assertGreaterEqual(calls_of(case.rule), before + 4 * steps, f"{what}: the op ran too seldom")

    def assert_state_close(self, model, eager, what):
        for key, value in eager.state_dict().items():
            self.assert_same(model.state_dict()[key], value, f"{what}: {key}", (1e-4, 1e-4) if value.is_floating_point() else None)

    def assert_gradient(self, mine, theirs, what):
        """To 1e-3 of the largest entry. Sums over a batch that cancel, as a bias before a batch norm's, are noise: eager's is up to 5e-3."""
        self.assert_same(mine, theirs, what, (1e-3 * theirs.abs().max().item() + 1e-2, 1e-3), strides=False)

    def test_door_1(self):
        for name, case in self.table.items():
            self.compare(name, case, torch.jit.script)

    def test_door_2(self):
        def fuse(model):
            with auto(False):
                scripted = torch.jit.script(model)
            torch.ops.tailor.fuse_(scripted)
            return scripted
        for name, case in self.table.items():
            self.compare(name, case, fuse)

    def test_door_1_with_traces(self):
        for name, case in self.table.items():
            model, eager = fresh(case, randomise=True).to(self.device).eval(), seed_models.build(case, randomise=True).to(self.device).eval()
            x = seed_models.example(case).to(self.device)
            traced = torch.jit.trace(model, x)
            self.assertTrue(is_fused(traced, case.rule), f"{name}: traced, not fused")
            self.assert_same(traced(x), eager(x), f"{name} traced", (1e-4, 1e-4))


@unittest.skipUnless(torch.cuda.is_available(), "the published sizes need a GPU, and there is none")
class PublishedSeedTest(SeedTest):
    table, device = seed_models.PUBLISHED, "cuda"

    def setUp(self):
        torch.cuda.empty_cache()
        self.assertFalse(torch.backends.cuda.matmul.allow_tf32, "float32 means float32")


if __name__ == "__main__":
    if not torch.cuda.is_available():
        print("seeds_test: no GPU here, the published sizes are skipped", flush=True)
    os.environ.setdefault("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True")
    main()
