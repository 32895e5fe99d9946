"""Scripts of tools/ as modules, which by their names they are not."""
import importlib.machinery
import importlib.util
import pathlib
import sys


def load_tool(name):
    tools = pathlib.Path(__file__).resolve().parents[2] / "tools"
    loader = importlib.machinery.SourceFileLoader(f"{name}_tool", str(tools / name))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(loader.name, loader))
    sys.modules[loader.name] = module
    loader.exec_module(module)
    return module
