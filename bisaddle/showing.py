"""How objects show themselves: short reprs with numbers, and small HTML cards for notebooks."""

import dataclasses
import functools
import html
from collections.abc import Iterable
from enum import Enum
from typing import Any, TypeVar

import equinox as eqx
import jax
import numpy as np
from jax.core import Tracer

WIDTH = 100  # of a line; a longer repr has a line for each field
ENTRIES = 6  # of an array that is printed in full
TABLE = "border-collapse:collapse;font-size:13px;line-height:1.5"
CELL = "text-align:left;padding:1px 12px 1px 0;border:0;background:none;vertical-align:top"


M = TypeVar("M", bound="Shown")


class Shown(eqx.Module):
    """A module whose repr is the call that makes it, without what has its default, and with numbers for arrays."""

    def __repr__(self) -> str:
        return call(type(self).__name__, self.shown_fields())

    def shown_fields(self) -> dict[str, Any]:
        """The fields to show, by name: those without a default, and those that differ from it."""
        fields = [field for field in dataclasses.fields(self) if field.repr]
        return {field.name: getattr(self, field.name) for field in fields if not _is_default(self, field)}

    @classmethod
    def made(cls: type[M], **fields: Any) -> M:
        """One of these fields, all of them, converted and checked already: as jax.tree.unflatten makes one.

        Equinox takes longer over each field of what a run makes than most of them take to compute.
        """
        names = cls.__dataclass_fields__
        assert fields.keys() == names.keys()
        module = object.__new__(cls)
        for name in names:
            object.__setattr__(module, name, fields[name])
        return module


def changed(module: M, **fields: Any) -> M:
    """dataclasses.replace for fields that are converted and checked already."""
    return module.made(**(vars(module) | fields))


def given_out(tree: Any) -> Any:
    """A tree as users are to see it: its NumPy arrays as JAX arrays; numbers stay what they are."""
    return jax.tree.map(lambda leaf: jax.device_put(leaf) if isinstance(leaf, np.ndarray) else leaf, tree)


def described(value: Any) -> str:
    """What was given, in a message."""
    if isinstance(value, type):
        return f"the class {value.__name__}, not an instance: write {value.__name__}(...)"
    return type(value).__name__


def call(name: str, fields: dict[str, Any]) -> str:
    """name(field=value, ...), on one line if it fits."""
    parts = [f"{field}={shown(value)}" for field, value in fields.items()]
    line = f"{name}({', '.join(parts)})"
    if len(line) <= WIDTH and "\n" not in line:
        return line
    return f"{name}(\n" + "".join("  " + part.replace("\n", "\n  ") + ",\n" for part in parts) + ")"


def shown(value: Any) -> str:
    """A value in a repr: numbers and small arrays as they are, large ones by dtype and shape, functions by name."""
    if isinstance(value, Tracer):
        return f"traced {value.dtype}[{','.join(map(str, value.shape))}]"
    if isinstance(value, jax.Array | np.ndarray | np.generic):
        return _array(value)
    if isinstance(value, Enum):
        return value.name
    if isinstance(value, float):
        return f"{value:.6g}" if value % 1 or abs(value) >= 1e16 else repr(value)
    if isinstance(value, functools.partial):  # JAX's Partial is one
        return shown(value.func)
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key!r}: {shown(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list) or type(value) is tuple:
        items = ", ".join(map(shown, value))
        return f"[{items}]" if isinstance(value, list) else f"({items}{',' * (len(value) == 1)})"
    names = getattr(value, "_fields", None) if isinstance(value, tuple) else None
    if names is not None:
        return call(type(value).__name__, {name: getattr(value, name) for name in names})
    if callable(value) and hasattr(value, "__name__"):
        return value.__name__
    return repr(value)


def _array(value: Any) -> str:
    if value.size > ENTRIES or not np.issubdtype(np.dtype(value.dtype), np.number):
        return f"{value.dtype}[{','.join(map(str, value.shape))}]"
    return shown(np.asarray(value).tolist())


def _is_default(module: eqx.Module, field: dataclasses.Field) -> bool:
    """Whether a field says nothing: None, or as it is by default; an array, such as a size, always says something."""
    value = getattr(module, field.name)
    if value is None or isinstance(value, jax.Array | np.ndarray | Tracer):
        return value is None
    if isinstance(value, Shown) and (field.default is None or field.default_factory is not dataclasses.MISSING):
        return not value.shown_fields()  # what a converter has made of None, or the default as it is
    return field.default is not dataclasses.MISSING and value == field.default


# --- cards for notebooks ----------------------------------------------------------------------------------------------


def card(title: str, rows: Iterable[tuple[str, str]], picture: str = "") -> str:
    """A title, a table of names and values, and a picture beside it, as HTML that works on light and dark pages."""
    lines = "".join(
        f'<tr><th scope="row" style="{CELL};font-weight:normal;opacity:.7">{html.escape(name)}</th>'
        f'<td style="{CELL}"><code style="background:none;white-space:pre-wrap">{html.escape(value)}</code></td></tr>'
        for name, value in rows
    )
    return (
        f'<div style="display:flex;gap:24px;align-items:center;flex-wrap:wrap"><div><b>{html.escape(title)}</b>'
        f'<table style="{TABLE}">{lines}</table></div>{picture}</div>'
    )


def sparkline(values: Any, width: int = 180, height: int = 44) -> str:
    """A line of positive values on a logarithmic scale, as an SVG picture; nothing for fewer than two."""
    values = np.asarray(values, float)
    heights = np.log10(values[np.isfinite(values) & (values > 0)])
    if len(heights) < 2:
        return ""
    down = 2 + (height - 4) * (heights.max() - heights) / max(np.ptp(heights), 1e-9)
    across = np.linspace(2, width - 2, len(heights))
    points = " ".join(f"{x:.1f},{y:.1f}" for x, y in zip(across, down, strict=True))
    return (
        f'<svg width="{width}" height="{height}" role="img" aria-label="gap by step, logarithmic">'
        f'<polyline points="{points}" fill="none" stroke="#0072B2" stroke-width="1.5"/></svg>'
    )
