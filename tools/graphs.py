"""Writes docs/graphs.md: what each chain's graph is before Tailor and after it.

    python tools/graphs.py LIBRARY [FILE]

FILE is replaced: docs/graphs.md of this checkout, if nothing is said. The models are those of tools/seed_models.py. The graphs
are TorchScript's own, printed so that a person can read them; docs/graphs.md says what that leaves out.
"""
import inspect
import pathlib
import textwrap

import torch

from arguments import Parser, output_file
from output_files import write
from seed_models import REDUCED, SIX, build

PLACE = pathlib.Path(__file__).resolve().parents[1] / "docs" / "graphs.md"

HEAD = """# Before and after

What the pass makes of the six chains, each in one of the models of `tools/seed_models.py`. This page is made by
`tools/graphs.py`; do not edit it by hand.

The graphs are TorchScript's, with every call inlined, and trimmed so that the chain can be seen: constants, lists
and the module's attributes are written where they are used (`self.gemm.weight` instead of a chain of `prim::GetAttr`),
types and source comments are left out, and values without a name of their own are numbered anew. Nothing else is left out, and no
node is moved. `print(model.inlined_graph)` shows a graph in full.

Each chain is there twice. *Scripted* is what `torch.jit.script` gives: one graph for training and for inference, with
the checks of the norm's own module in it. *Frozen* is the same model after `torch.jit.freeze` in eval mode; 'after' means
fused, frozen by torch, and fused once more, which is the order that [the README](../README.md#limits) recommends.

In the frozen graph of `linear_batch_norm_add_div_swish`, *before*, torch has folded the batch norm into the linear, and the
chain is gone: one more reason to fuse before freezing.

Six ops of Tailor's may stand beside the chains. `tailor::check` stands where a part of the chain stood: it raises what
that part would raise, and its second result has the shape of that part's result, for those who read no more than that.
`tailor::unwritten` hands a tensor on as it is before others are written to, and copies it only where they turn out to
share memory. `tailor::fence` does nothing: torch takes it for an effect,
and moves nothing past it. `tailor::ahead` does nothing: torch's interpreter runs a loop that makes what it reads before it, not among the
arguments. These six need no more. `tailor::uniform` asks whether a spelling that promotes or broadcasts in another way than
the formula, or has its operands in the other order, comes to the same here, and `tailor::as_silu` refuses what `silu` alone
refuses. [pass.md](pass.md) says why each is needed.
"""

PAGE = """## {0}

```python
{1}
```

### Scripted, before

```
{2}
```

### Scripted, after

```
{4}
```

<details><summary>Frozen, before and after</summary>

```
{3}
```

```
{5}
```

</details>
"""


class Printer:
    """One graph as text."""

    def __init__(self, graph):
        self.names = {}
        self.tensors = {}  # the names of constant tensors, by where they lie
        for node in graph.findAllNodes("prim::Constant"):
            if isinstance(tensor := node.output().toIValue(), torch.Tensor):
                self.tensors[tensor.data_ptr()] = node.output().debugName()
        self.lines = []
        arguments = [self.name(value) for value in graph.inputs()]
        self.lines.append(f"graph({', '.join(arguments)}):")
        self.block(graph, 1)
        self.lines.append(f"  return {', '.join(self.read(value) for value in graph.outputs())}")

    def name(self, value):
        name = value.debugName()
        if name.isdigit():
            return self.names.setdefault(name, f"%{len(self.names)}")
        return "self" if name == "self" else "%" + name

    def read(self, value):
        """What stands for a value where it is used."""
        node = value.node()
        if node.kind() == "prim::Constant":
            return self.constant(value.toIValue())
        if node.kind() == "prim::GetAttr":
            return f"{self.read(node.inputsAt(0))}.{node.s('name')}"
        if node.kind() == "prim::ListConstruct":
            return f"[{', '.join(self.read(item) for item in node.inputs())}]"
        return self.name(value)

    def constant(self, constant):
        if isinstance(constant, torch.Tensor):
            return self.tensors[constant.data_ptr()]  # torch's freezing calls it what the attribute was called
        if isinstance(constant, list):
            return f"[{', '.join(self.constant(item) for item in constant)}]"
        return f'"{constant}"' if isinstance(constant, str) else repr(constant)

    def block(self, block, depth):
        for node in block.nodes():
            if node.kind() in ("prim::Constant", "prim::GetAttr", "prim::ListConstruct"):
                continue
            results = ", ".join(self.name(value) for value in node.outputs())
            arguments = [self.read(value) for value in node.inputs()]
            while node.kind() in ("tailor::check", "tailor::uniform") and arguments[-1] == "None":
                arguments.pop()  # operands that the chain does not have
            arguments = ", ".join(arguments)
            self.lines.append(f"{'  ' * depth}{results + ' = ' if results else ''}{node.kind()}({arguments})")
            for number, inner in enumerate(node.blocks()):
                self.inner(node.kind(), number, inner, depth + 1)

    def inner(self, kind, number, block, depth):
        arguments = ", ".join(self.name(value) for value in block.inputs())
        results = ", ".join(self.read(value) for value in block.outputs())
        if kind == "prim::If" and number == 1 and not list(block.nodes()) and not results:
            return  # an `if` without an `else`
        heads = ("then", "else") if kind == "prim::If" else (f"body({arguments})",)
        self.lines.append(f"{'  ' * depth}{heads[number]}:")
        self.block(block, depth + 1)
        if results:
            self.lines.append(f"{'  ' * (depth + 1)}-> {results}")


def section(name):
    case = REDUCED[name]
    trainable = torch.jit.script(build(case, randomise=True))
    graphs = [trainable.inlined_graph, torch.jit.freeze(torch.jit.script(build(case, randomise=True).eval())).graph]
    torch.ops.tailor.fuse_(trainable)  # and with it every other module of the class
    frozen = torch.jit.freeze(torch.jit.script(build(case, randomise=True).eval()))
    torch.ops.tailor.fuse_(frozen)
    graphs += [trainable.inlined_graph, frozen.graph]
    forward = textwrap.dedent(inspect.getsource(case.model.forward)).rstrip()
    return PAGE.format(case.rule, forward, *("\n".join(Printer(graph).lines) for graph in graphs))


def main():
    parser = Parser(description=__doc__, prog="tools/graphs.py")
    parser.add_argument("library", metavar="LIBRARY", help="libtailor.so")
    parser.add_argument("file", nargs="?", type=output_file, metavar="FILE", default=str(PLACE), help="is replaced; docs/graphs.md")
    chosen = parser.parse_args()
    try:
        torch.ops.load_library(chosen.library)
        torch.ops.tailor.auto(False)  # 'before' is to stay as it is
    except (OSError, AttributeError):
        parser.error(f"{chosen.library} is no library of Tailor's that loads here")
    write(chosen.file, "\n".join([HEAD, *(section(name) for name in SIX)]))


if __name__ == "__main__":
    main()
