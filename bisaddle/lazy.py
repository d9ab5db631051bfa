"""Names of a package that load their module on first use, so that `bisaddle --help` does not wait for JAX."""

import sys
from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from typing import Any


def lazy(
    package: str, names: Mapping[str, Iterable[str]], modules: Iterable[str] = ()
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """(__getattr__, __dir__) of a package. names: by the module that defines them; modules: reached as they are."""
    home = {name: module for module, listed in names.items() for name in listed}
    known = vars(sys.modules[package])

    def load(name: str) -> Any:
        if name in modules:
            return import_module(f"{package}.{name}")
        if name not in home:
            module = sys.modules[package]  # from which Python tells a name that is near
            raise AttributeError(f"module {package!r} has no attribute {name!r}", name=name, obj=module)
        known[name] = getattr(import_module(f"{package}.{home[name]}"), name)
        return known[name]

    return load, lambda: sorted({*known, *modules, *home})
