"""Small programs, compiled when first called: once for each structure and shapes, and lightly where they are light."""

import gc
import sys
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache, partial
from itertools import islice
from pathlib import Path
from threading import Lock
from types import CellType, CodeType, FunctionType, MethodType, ModuleType, SimpleNamespace
from typing import Any
from zlib import crc32

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jax.sharding import SingleDeviceSharding
from jaxtyping import PyTree
from threadpoolctl import ThreadpoolController

from bisaddle.devices import mesh_of, placed, put, replicated

# What XLA does not do for a program this light: it compiles in a third to a tenth of the time. The options help in this
# combination only, and at level 1 the program runs as fast as with all of them.
LIGHT = {
    "xla_backend_optimization_level": 0,
    "xla_llvm_disable_expensive_passes": True,
    "xla_cpu_use_fusion_emitters": False,
    "xla_cpu_parallel_codegen_split_count": 1,
}
MEDIUM = {**LIGHT, "xla_backend_optimization_level": 1}
# bytes of arguments up to which a program is light, or medium; beyond, it gets everything
LIGHT_BYTES = 2**19
# of data up to which a program runs in the thread that calls it; beyond, it takes longer than another one to wake up
NEAR_BYTES = 2**22
MEDIUM_BYTES = 2**24
LARGE_BYTES = 2**20  # of an argument beyond which it must not stay longer than it is needed
PAUSES = (0.0, 1e-4, 1e-3, 1e-2)  # seconds to wait for that, time after time
MOST_PROGRAMS = 512  # compiled, that are kept

# functions inside functions, and entries inside containers, that are followed
DEEPEST = 8
# and how many numbers and arrays, before the rest is taken to stay
MOST_TAKEN = 10_000
# bytes of a JAX array, which nobody can change in place, that are looked at; beyond, it is known by where it lies
MOST_BYTES = 2**26
# folders of what stays as it is
INSTALLED = {"site-packages", "dist-packages", f"python{sys.version_info.major}.{sys.version_info.minor}"}
OURS = str(Path(__file__).parent)

_PROGRAMS: OrderedDict[tuple, Any] = OrderedDict()
_UNKNOWN_OPTIONS: set[str] = set()  # backends whose compiler does not know the options


class OutOfTime(Exception):
    """The deadline of a run has passed before a program that is still to be compiled or called."""


class Watch:
    """What was compiled while it was on: how long it took, how many programs; deadline: None, or when to stop."""

    def __init__(self, say: Callable[[str | None], Any] = lambda what: None, deadline: float | None = None):
        self.say, self.deadline = say, deadline
        self.seconds, self.programs = 0.0, 0

    def check(self, what: str) -> None:
        """Raise OutOfTime if it is too late for this."""
        if self.deadline is not None and time.perf_counter() >= self.deadline:
            raise OutOfTime(what)

    @contextmanager
    def compiling(self, what: str) -> Iterator[None]:
        self.check(what)
        self.say(what)
        clock = time.perf_counter()
        try:
            yield
        finally:
            self.seconds += time.perf_counter() - clock
            self.programs += 1
            self.say(None)


_WATCH: ContextVar[Watch] = ContextVar("_WATCH")
_NOBODY = Watch()


@contextmanager
def watched(watch: Watch) -> Iterator[Watch]:
    """with watched(Watch(say, deadline)): every program compiled inside reports to it."""
    token = _WATCH.set(watch)
    try:
        yield watch
    finally:
        _WATCH.reset(token)


def watch() -> Watch:
    """The one that is on."""
    return _WATCH.get(_NOBODY)


def compiling(what: str):
    """with compiling("the steps"): the time inside counts as compilation."""
    return watch().compiling(what)


class Program:
    """function(fixed, *arrays), compiled at the first call with arrays of given shapes.

    fixed: a pytree of functions, data and set sizes that stays the same from call to call; its arrays are arguments of
    the program, so that another tree of the same structure and shapes finds it compiled. arrays: NumPy or JAX arrays.
    The answer is NumPy's. outermost: it is not for use inside jit. taken: a number for what functions in `fixed` take
    from elsewhere (`outside`), with which it is compiled anew. stays: the answer is JAX's, and stays where it is.
    """

    def __init__(self, function: Callable, name: str, fixed: PyTree, taken: int = 0, stays: bool = False):
        self.function, self.name, self.taken, self.stays = function, name, taken, stays
        leaves, self.form = jax.tree.flatten(fixed)
        self.mesh = mesh_of(leaves)
        self.leaves = placed(near(leaves), self.mesh)
        # the one that the leaves are on; None is JAX's choice
        device = caller_device()
        self.device = None if any(leaf.devices() != {device} for leaf in self.leaves) else device
        self.kinds = tuple(_kind(leaf) for leaf in self.leaves)
        self.compiled: dict[tuple, Any] = {}

    def beside(self, function: Callable, name: str) -> "Program":
        """Another function of the same `fixed`, which is not looked at again."""
        other = object.__new__(Program)
        vars(other).update(vars(self), function=function, name=name, compiled={})
        return other

    def __call__(self, *arrays: Any) -> Any:
        watch().check(self.name)
        shapes = tuple((array.shape, array.dtype) for array in arrays)
        program = self.compiled.get(shapes)
        if program is None:
            program = self.compiled[shapes] = self._program(arrays, shapes)
        large = [array for array in arrays if array.nbytes > LARGE_BYTES]
        held = [sys.getrefcount(array) for array in large]
        found = program(self.leaves, *arrays)
        if large:
            jax.block_until_ready(found)
            _let_go(large, held)
        if self.stays:
            return found
        return np.asarray(found) if isinstance(found, jax.Array) else jax.tree.map(np.asarray, found)

    def _program(self, arrays: tuple, shapes: tuple) -> Any:
        def build() -> Any:
            function, form = self.function, self.form
            flat = lambda leaves, *arrays: function(jax.tree.unflatten(form, leaves), *arrays)
            pinned: dict[str, Any] = {}
            if self.mesh is not None:
                pinned["out_shardings"] = replicated(self.mesh)  # every process needs all of the answer
            elif self.device is not None:
                # jax.default_device would have the user's functions traced anew
                pinned["in_shardings"] = SingleDeviceSharding(self.device)
            lowered = jax.jit(flat, **pinned).lower(self.leaves, *placed(arrays, self.mesh))
            return _compiled(lowered, [*self.leaves, *arrays])

        return _kept((self.function, self.form, self.kinds, shapes, self.device, self.taken), self.name, build)

    def put(self, array: np.ndarray) -> jax.Array:
        """An array for later calls, where the program runs."""
        return jax.device_put(array, self.device) if self.mesh is None else put(array, replicated(self.mesh))


def _let_go(arrays: list, held: list[int]) -> None:
    """Wait until a program that has ended has given back its arguments, so often held before, and its work space.

    Another thread does that, a moment after the answer is there; and JAX lets go of NumPy's arrays only when it is next
    called, or asked to by the garbage collector.
    """
    for pause in PAUSES:
        time.sleep(pause)
        gc.collect(0)
        if all(sys.getrefcount(array) <= count for array, count in zip(arrays, held, strict=True)):
            return


def cached(
    function: Callable, name: str, *arguments: PyTree, effort: int | None = None, places: Any = None, **static: Any
) -> Any:
    """The function compiled for arguments of these structures and shapes; it takes and gives JAX arrays.

    effort: of the compiler, 0, 1 or 2; None goes by the size of the arguments. places: the shardings of what it gives;
    None leaves them to the compiler. static: keywords that are compiled in.
    """
    leaves, form = jax.tree.flatten(arguments)
    key = (function, form, tuple(_kind(leaf) for leaf in leaves), tuple(static.items()), effort)
    pinned: dict[str, Any] = {} if places is None else {"out_shardings": places}
    jitted = jax.jit(function, static_argnames=tuple(static), **pinned)
    return _kept(key, name, lambda: _compiled(jitted.lower(*arguments, **static), leaves, effort))


def _kept(key: tuple, name: str, build: Callable[[], Any]) -> Any:
    program = _PROGRAMS.get(key)
    if program is None:
        with compiling(name):
            program = build()
        if len(_PROGRAMS) >= MOST_PROGRAMS:
            _PROGRAMS.popitem(last=False)
        _PROGRAMS[key] = program
    _PROGRAMS.move_to_end(key)
    return program


def _compiled(lowered: Any, leaves: list, effort: int | None = None) -> Any:
    """A lowered program, compiled with the effort given, or that suits arguments of this size."""
    size = sum(leaf.nbytes for leaf in leaves)
    if effort is None:
        effort = 0 if size <= LIGHT_BYTES else 1 if size <= MEDIUM_BYTES else 2
    backend = jax.default_backend()
    if effort < 2 and backend == "cpu" and backend not in _UNKNOWN_OPTIONS:
        try:
            return lowered.compile(compiler_options=(LIGHT, MEDIUM)[effort])
        except Exception as error:  # another jaxlib may not know them; what else is wrong shows below
            if not _refuses_options(error):
                raise
            _UNKNOWN_OPTIONS.add(backend)
    return lowered.compile()


def _refuses_options(error: Exception) -> bool:
    return "option" in str(error).lower()


def clear() -> None:
    """Drop every compiled program."""
    _PROGRAMS.clear()


def on_device(tree: PyTree) -> PyTree:
    """NumPy arrays and numbers as JAX arrays; nothing is compiled for it."""
    return jax.tree.map(lambda leaf: leaf if isinstance(leaf, jax.Array) else jax.device_put(np.asarray(leaf)), tree)


@cache
def caller_device() -> Any:
    """A CPU whose programs run in the thread that calls them; None on other backends, and with several processes.

    JAX's own CPU hands every program to another thread, which takes as long as a small one runs. It can be told not to,
    but only for the whole process, which is the user's to choose; a client of its own changes nothing for others.
    """
    if jax.default_backend() != "cpu" or jax.process_count() > 1:
        return None
    try:
        from jaxlib import xla_client

        return xla_client.make_cpu_client(asynchronous=False, num_devices=1).local_devices()[0]
    except Exception:  # another jaxlib may make them otherwise, and JAX's own CPU does as well
        return None


def near(tree: PyTree) -> PyTree:
    """on_device, but data of up to 4 MB on the device of the caller's thread, unless they were put elsewhere."""
    canonical = lambda leaf: np.asarray(leaf, jax.dtypes.canonicalize_dtype(np.result_type(leaf)))
    tree = jax.tree.map(lambda leaf: leaf if isinstance(leaf, jax.Array) else canonical(leaf), tree)
    leaves, device = jax.tree.leaves(tree), caller_device()
    places = lambda leaf: leaf.devices() if isinstance(leaf, jax.Array) else set()
    few = device is not None and sum(leaf.nbytes for leaf in leaves) <= NEAR_BYTES
    if few and all(places(leaf) <= {device, jax.devices()[0]} for leaf in leaves):
        return jax.tree.map(lambda leaf: leaf if places(leaf) == {device} else jax.device_put(leaf, device), tree)
    return on_device(tree)


def _kind(leaf: Any) -> tuple:
    return leaf.shape, leaf.dtype, getattr(leaf, "weak_type", False), getattr(leaf, "sharding", None)


@cache
def _controller() -> ThreadpoolController:
    """Of the BLAS that NumPy brings, or of every one where it uses the system's. XLA's decompositions keep theirs."""
    every = ThreadpoolController().select(user_api="blas")
    own = [library["filepath"] for library in every.info() if "numpy" in library["filepath"]]
    return every.select(filepath=own) if own else every


class _BlasUsers:
    """Who wants one thread at the moment: their number is one for the whole process, whoever leaves first."""

    def __init__(self):
        self.lock, self.count, self.limiter = Lock(), 0, None

    def enter(self) -> None:
        with self.lock:
            if self.count == 0:
                self.limiter = _controller().limit(limits=1)
            self.count += 1

    def leave(self) -> None:
        with self.lock:
            self.count -= 1
            if self.count == 0 and self.limiter is not None:
                self.limiter.restore_original_limits()


_BLAS_USERS = _BlasUsers()


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """with one_blas_thread(): NumPy's BLAS takes one thread; after the last one, in any thread, as many as before.

    On the small vectors between two programs its threads wait for each other longer than they work.
    """
    _BLAS_USERS.enter()
    try:
        yield
    finally:
        _BLAS_USERS.leave()


# --- what functions take from outside their arguments, which a program holds as it was --------------------------------


def outside(*functions: Any) -> int:
    """A number that changes if an array, a number or a text in their closures, defaults or globals is another one.

    Followed are the user's own functions, bound methods, tuples, lists, dicts and plain objects; what belongs to an
    installed package is taken to stay. Programs are compiled once for each such number.
    """
    seen: set[int] = set()
    found = (item for function in functions for item in _taken(function, seen, 0))
    return hash(tuple(islice(found, MOST_TAKEN)))


def _taken(value: Any, seen: set[int], depth: int) -> Iterator[Any]:
    if value is None or isinstance(value, bool | int | float | complex | str | bytes | CodeType):
        yield value if value == value else "NaN"
        return
    if isinstance(value, np.ndarray | np.generic | jax.Array):
        yield _array(value)
        return
    if id(value) in seen or depth > DEEPEST or isinstance(value, ModuleType | type):
        return
    seen.add(id(value))
    for inner in _held(value):
        yield from _taken(inner, seen, depth + 1)


def _held(value: Any) -> Any:
    """What a function, a method, a container or an object refers to."""
    if isinstance(value, FunctionType):
        return () if _installed(value.__code__.co_filename) else _of_function(value)
    if isinstance(value, MethodType):
        return value.__func__, value.__self__
    if isinstance(value, partial):  # and jax.tree_util.Partial, whose arguments are traced
        return value.func, *(() if isinstance(value, jax.tree_util.Partial) else (value.args, value.keywords))
    if isinstance(value, dict):
        return *value.keys(), *value.values()
    if isinstance(value, tuple | list | set | frozenset):
        return value
    if isinstance(value, eqx.Module):  # its arrays are arguments of a program, and its other fields a part of its kind
        return (getattr(value, "function", None),)
    module = sys.modules.get(type(value).__module__)
    own = module is not None and not _installed(getattr(module, "__file__", None) or "")
    own = own or isinstance(value, SimpleNamespace)
    return vars(value).values() if own and hasattr(value, "__dict__") else ()


def _of_function(function: FunctionType) -> Iterator[Any]:
    yield function.__code__  # a helper may be defined anew
    yield from (cell.cell_contents for cell in function.__closure__ or () if cell != CellType())
    yield function.__defaults__
    yield function.__kwdefaults__
    known = function.__globals__
    yield from (known[name] for name in dict.fromkeys(_names(function.__code__)) if name in known)


def _names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield from _names(inner)


@cache
def _installed(file: str) -> bool:
    """Whether it is of Python itself, of a package, or ours."""
    return bool(INSTALLED & {*Path(file).parts}) or file.startswith(OURS)


def _array(array: Any) -> Any:
    if isinstance(array, jax.Array):
        if isinstance(array, Tracer) or array.nbytes > MOST_BYTES or not array.is_fully_addressable:
            return id(array)
        if jnp.issubdtype(array.dtype, jax.dtypes.extended):  # keys of jax.random
            return id(array)
    array = np.asarray(array)
    return array.shape, str(array.dtype), id(array) if array.dtype.hasobject else crc32(array.tobytes())
