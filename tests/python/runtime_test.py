"""Door 3: modules that came in unfused are fused by the executor, if their first calls run under no_grad."""
import io
import os
import re
import subprocess
import sys

import torch

import models
from checks import auto, calls_of, library, main, python
from models import BN, SIX, build
from scripted import Following, is_fused, random_inputs, scripted


def from_file(body, **options):
    """An unfused module as torch.jit.load gives it."""
    file = io.BytesIO()
    with auto(False):
        torch.jit.save(torch.jit.script(build(body, **options)), file)
        file.seek(0)
        loaded = torch.jit.load(file)
    return loaded


class DoorThreeTest(Following):
    def test_loaded_modules_are_fused_once_the_executor_optimises(self):
        for row in SIX:
            for training in (False, True):
                model, eager = from_file(row.body).train(training), build(row.body).train(training)
                self.assertFalse(is_fused(model), "an unfused file loads unfused")
                before = calls_of(row.rule)
                with torch.no_grad():
                    for turn in range(6):
                        x = random_inputs(turn)
                        self.assert_near([model(x)], [eager(x)], f"{row.body} training {training}, call {turn}")
                        self.assert_state(model, eager, row.body)
                self.assertGreater(calls_of(row.rule), before, f"{row.body}: training {training}: not fused at run time")

    def test_what_fits_no_file_is_fused_too(self):
        """Nobody makes one of the executor's graph, in which an argument would hide a word of the file's."""
        model = from_file("def forward(self, x, range: int = 2):\n    return self.bn(self.gemm(x) * self.scale) * range").eval()
        before = calls_of("linear_mul_batch_norm")
        with torch.no_grad():
            for turn in range(4):
                model(random_inputs(turn))
        self.assertGreater(calls_of("linear_mul_batch_norm"), before)

    def test_new_shapes_and_dtypes_after_it_has_fused(self):
        for row in SIX:
            model, eager = from_file(row.body).eval(), build(row.body).eval()
            with torch.no_grad():
                for turn in range(5):
                    model(random_inputs(turn))
                for x in (random_inputs(1, 9), random_inputs(1, 1), random_inputs(1, 0), torch.randn(4, 12, 5)):
                    for _ in range(3):
                        self.assert_near([model(x)], [eager(x)], f"{row.body} on {tuple(x.shape)}")
                for dtype in (torch.float64, torch.bfloat16):
                    model.to(dtype), eager.to(dtype)
                    for turn in range(3):
                        x = random_inputs(turn, dtype=dtype)
                        self.assert_near([model(x)], [eager(x)], f"{row.body} as {dtype}", 5)

    def test_gradients_leave_the_graph_alone(self):
        for row in SIX:
            model, eager = from_file(row.body), build(row.body)
            self.assert_no_calls(lambda: self.follow(model, eager, f"loaded {row.body}", gradients=(True,)), row.body)

    def test_gradients_after_no_grad_and_back(self):
        for row in SIX:
            model, eager = from_file(row.body), build(row.body)
            self.follow(model, eager, f"loaded {row.body}", gradients=(False, True, False, True))
            before = calls_of(row.rule, "cpu_backward")
            self.follow(model, eager, f"loaded {row.body}, once more", gradients=(True,))
            self.assertEqual(calls_of(row.rule, "cpu_backward"), before + 9, f"{row.body}: the plan of the first calls serves those with gradients")

    def test_auto_off(self):
        for row in SIX:
            model = from_file(row.body).eval()
            with auto(False), torch.no_grad():
                self.assert_no_calls(lambda: [model(random_inputs(t)) for t in range(6)], row.body)

    def test_without_an_optimising_executor(self):
        for row in SIX:
            model, eager = from_file(row.body).eval(), build(row.body).eval()
            with torch.jit.optimized_execution(False), torch.no_grad():
                for turn in range(6):
                    x = random_inputs(turn)
                    got = self.assert_no_calls(lambda: model(x), row.body)  # no executor, no door
                    self.assert_near([got], [eager(x)], row.body)

    def test_errors_and_state_at_run_time(self):
        wrong = {"too wide": random_inputs(1, columns=6), "1-D": torch.randn(5), "3-D": torch.randn(4, 3, 5), "4-D": torch.randn(2, 12, 3, 5),
                 "batch 1": random_inputs(1, 1), "batch 0": random_inputs(1, 0), "integers": torch.ones(7, 5, dtype=torch.int64)}
        for row in models.SPELLINGS:
            if row.sites > 1 or "Optional" in row.body:
                continue
            for training in (True, False):
                model, plain = from_file(row.body).train(training), scripted(row.body, on=False).train(training)
                with torch.no_grad():
                    for turn in range(4):
                        model(random_inputs(turn))
                    for name, x in wrong.items():
                        plain.load_state_dict(model.state_dict())
                        with self.subTest(row.body, x=name, training=training):
                            # torch's executor makes mm and add of an addmm, and theirs is the message then.
                            self.same_refusal(model, plain, x, f"{row.body}, x {name}, training {training}", any_text="addmm" in row.body)

    def test_near_misses_and_writes(self):
        for row in [*models.NEAR_MISSES, *models.EITHER]:
            model, eager = from_file(row.body), build(row.body)
            run = lambda: self.follow(model, eager, f"loaded {row.body}", gradients=(False,), calls=4)
            never = row.rule is None and not re.search(r"_\(|num_batches", row.body)  # the executor removes some writes before the door sees them
            self.assert_no_calls(run, row.body) if never else run()

    def test_two_modules_at_once(self):
        row = SIX[0]
        first, second = from_file(row.body).eval(), from_file(row.body, seed=4).eval()
        eager = [build(row.body).eval(), build(row.body, seed=4).eval()]
        with torch.no_grad():
            for turn in range(6):
                for model, twin in zip((first, second), eager):
                    self.assert_near([model(random_inputs(turn))], [twin(random_inputs(turn))], row.body)

    def test_inference_mode_and_autocast(self):
        for row in SIX:
            model, eager, plain = from_file(row.body).eval(), build(row.body).eval(), scripted(row.body, on=False).eval()
            for turn in range(5):
                with torch.inference_mode():
                    self.assert_near([model(random_inputs(turn))], [eager(random_inputs(turn))], f"{row.body} in inference mode")
                with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
                    actual = model(random_inputs(turn))
                    with auto(False):
                        expected = plain(random_inputs(turn))
                # TorchScript's own autocast leaves a linear on the CPU in float32 where eager makes it bfloat16
                self.assertEqual(actual.dtype, expected.dtype, f"{row.body} under autocast")
                self.assert_same(actual.float(), expected.float(), f"{row.body} under autocast", (0.15, 0.08))

    def test_switched_off_from_outside(self):
        code = """
import os, sys, io, torch
sys.path.insert(0, sys.argv[1])
torch.ops.load_library(os.environ['TAILOR_LIBRARY'])
import models
f = io.BytesIO(); torch.jit.save(torch.jit.script(models.build(models.SPELLINGS[0].body)), f); f.seek(0)
m = torch.jit.load(f).eval()
with torch.no_grad():
    for _ in range(5): m(torch.randn(7, 5))
print(sum(torch.ops.tailor.calls().values()))
"""
        here = os.path.dirname(os.path.abspath(__file__))
        self.assertEqual(python(code, here, TAILOR_AUTO="0").strip(), "0")
        self.assertNotEqual(python(code, here).strip(), "0")

    def test_words_of_a_switch(self):
        code = "import os, torch; torch.ops.load_library(os.environ['TAILOR_LIBRARY']); print(torch.ops.tailor.auto(False))"
        for value, on, mentioned in (("off", False, 0), ("False", False, 0), ("NO", False, 0), ("yes", True, 0), ("", True, 0), ("disabled", True, 1)):
            done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120,
                                  env={**os.environ, "TAILOR_LIBRARY": library(), "TAILOR_AUTO": value})
            self.assertEqual(done.stderr.count(f"TAILOR_AUTO={value}"), mentioned, done.stderr)
            self.assertEqual(done.stdout.strip(), str(on), value)

    def test_the_log_says_what_was_fused(self):
        code = """
import os, sys, torch
sys.path.insert(0, sys.argv[1])
torch.ops.load_library(os.environ['TAILOR_LIBRARY'])
import models
torch.jit.script(models.build(models.SPELLINGS[0].body))
torch.jit.script(models.build(models.NEAR_MISSES[0].body))
"""
        here = os.path.dirname(os.path.abspath(__file__))
        said = ("import subprocess, sys; r = subprocess.run([sys.executable, '-W', 'ignore', '-c', sys.argv[1], sys.argv[2]], "
                "capture_output=True, text=True); print(r.stdout + r.stderr)")
        self.assertEqual(python(said, code, here).strip(), "", "nothing is printed without being asked for")
        both = python(said, code, here, TAILOR_LOG="1")
        self.assertIn(BN, both)
        self.assertRegex(both, r"net\d+\.py")
        self.assertNotIn("linear.py", both, "a linear of torch.nn is a site of whoever calls it")


if __name__ == "__main__":
    main()
