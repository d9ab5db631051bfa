"""Names of a package that load their module on first use, so that `bisaddle --help` does not wait for JAX."""

import ast
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any


def declared(package: str) -> dict[str, str]:
    """name: the module that defines it, as the imports of the package's __init__.pyi say; of a module, itself.

    Type checkers and editors read the same file, so that a name is listed once.
    """
    stub = Path(sys.modules[package].__path__[0], "__init__.pyi")
    imports = [node for node in ast.parse(stub.read_text(encoding="utf-8")).body if isinstance(node, ast.ImportFrom)]
    return {
        alias.name: f"{package}.{alias.name}" if node.module == package else str(node.module)
        for node in imports
        for alias in node.names
    }


def lazy(package: str) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """(__getattr__, __dir__, __all__) of a package."""
    home, known = declared(package), vars(sys.modules[package])

    def load(name: str) -> Any:
        if name not in home:
            module = sys.modules[package]  # from which Python tells a name that is near
            raise AttributeError(f"module {package!r} has no attribute {name!r}", name=name, obj=module)
        module = import_module(home[name])
        known[name] = module if home[name] == f"{package}.{name}" else getattr(module, name)
        return known[name]

    return load, lambda: sorted({*known, *home}), [*home]
