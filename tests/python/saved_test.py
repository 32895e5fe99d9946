"""What becomes of a fused method's graph outside of Tailor: in a file, in torch's tracer, after many turns."""
import io

import torch

from checks import Checks, main

WORDS = ["range", "bool", "annotate", "float", "int", "len", "torch", "ops", "list", "print"]
PLACES = {
    "argument": ("scale", "{word}: float = 2.0", "self.scale * {word}"),
    "attribute": ("{word}", "other: float = 2.0", "self.{word} * other"),
    "variable": ("scale", "other: float = 2.0", "{word}"),
}


def model_with(word, place):
    """Of source that is made here: TorchScript reads a class's source from its file."""
    attribute, argument, factor = (text.format(word=word) for text in PLACES[place])
    body = f"        {word} = self.scale * other\n" if place == "variable" else ""
    source = f"""import torch
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.gemm, self.bn = torch.nn.Linear(6, 8), torch.nn.BatchNorm1d(8, momentum=None)
        self.{attribute} = torch.nn.Parameter(torch.randn(8))
    def forward(self, x, {argument}):
{body}        return self.bn(self.gemm(x) * ({factor}))
"""
    import linecache
    name = f"<{place} {word}>"
    linecache.cache[name] = (len(source), None, source.splitlines(True), name)
    made = {"__name__": "__main__"}
    exec(compile(source, name, "exec"), made)  # pylint: disable=exec-used
    return made["Net"]()


class FileTest(Checks):
    def loaded(self, model):
        file = io.BytesIO()
        torch.jit.save(model, file)
        file.seek(0)
        return torch.jit.load(file)

    def test_names_that_are_words_of_torchscript(self):
        """Also those that only torch.nn's code says, which is part of a fused method."""
        fused = 0
        for place in PLACES:
            for word in WORDS:
                if place == "attribute" and hasattr(torch.nn.Module, word):
                    continue
                with self.subTest(word=word, place=place):
                    model, x = model_with(word, place), torch.randn(4, 6)
                    self.tailor.auto(False)
                    try:
                        plain = torch.jit.script(model)
                        try:
                            expected = self.loaded(plain).eval()(x)
                        except RuntimeError:
                            continue  # no word for a name in any case
                    finally:
                        self.tailor.auto(True)
                    self.tailor.fuse_(plain)
                    fused += "tailor::linear" in str(plain.inlined_graph)
                    self.assert_same(self.loaded(plain).eval()(x), expected, "fused", (1e-6, 1e-5))
                    self.tailor.unfuse_(plain)
                    self.assert_same(self.loaded(plain).eval()(x), expected, "unfused", (1e-6, 1e-5))
        self.assertGreater(fused, 20, "most of them are fused all the same")

    def test_an_argument_that_hides_a_word_is_a_reason(self):
        model = torch.jit.script(model_with("range", "argument"))
        self.assertIn("an argument is called `range`", self.tailor.inspect(model))


class Two(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.gemm, self.bn, self.scale = torch.nn.Linear(6, 8), torch.nn.BatchNorm1d(8), torch.nn.Parameter(torch.randn(8))

    def forward(self, x):
        return self.bn(self.gemm(x) * self.scale)

    def other(self, x):
        y = self.gemm(x)
        return torch.sigmoid(y) * 2.0 + y


class TraceTest(Checks):
    def test_several_methods_at_a_time(self):
        x = torch.randn(4, 6)
        for training in (False, True):
            for names in (("forward",), ("forward", "other"), ("other", "forward")):
                traced = torch.jit.trace_module(Two().train(training), {name: x for name in names})  # it checks its traces
                for name in names:
                    self.assertIn("tailor::linear", str(getattr(traced, name).inlined_graph), f"{names}, training {training}")

    def test_graphs_do_not_grow(self):
        model = torch.jit.script(Two().eval())
        sizes = []
        for _ in range(5):
            self.tailor.unfuse_(model)
            self.tailor.fuse_(model)
            sizes.append(str(model.graph).count("\n"))
        self.assertEqual(len(set(sizes)), 1, sizes)


if __name__ == "__main__":
    main()
