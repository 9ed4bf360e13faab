"""Descriptions of settings, functions and objects: equal in every process, different where anything that counts is."""

from __future__ import annotations

import dis
import hashlib
from collections.abc import Iterable, Iterator
from types import BuiltinFunctionType, CellType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

_PLAIN = (bool, int, float, complex, str, bytes, type(None), type(Ellipsis))


def describe(part: Any, *, weights: bool = True) -> str:
    """Describe anything by what it holds: functions by their code and all that it uses, objects by class and state.

    Nothing depends on where things lie in memory, so that a description made after a restart is the same. Functions
    of other modules, classes and modules are described by their names. Without ``weights``, tensors and arrays are
    described by type and shape.

    >>> from gpsuq.engine.fingerprint import describe
    >>> def times(factor):
    ...     return lambda x: factor * x
    >>> describe(times(2)) == describe(times(2)), describe(times(2)) == describe(times(3))
    (True, False)
    """
    return _Describer(weights)(part)


def fingerprint(parts: Any, *, layers: Any = None) -> str:
    """Return a digest of anything by :func:`describe`; of ``layers`` types and shapes count, not numbers."""
    text = f"{describe(parts)} {describe(layers, weights=False)}"
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


class _Describer:
    """One description: things that were met before are named by their number, so that circles end."""

    def __init__(self, weights: bool) -> None:
        self.weights = weights
        self.met: dict[int, tuple[int, Any]] = {}  # by id, which stays theirs as long as they are held here

    def __call__(self, part: Any) -> str:
        if type(part) in _PLAIN or isinstance(part, np.generic):
            return repr(part)
        if isinstance(part, Tensor | np.ndarray):
            return self._array(part)
        if isinstance(part, type | ModuleType):
            return _name(part)
        # Python may or may not keep equal constants once, so they have no numbers.
        if isinstance(part, tuple | frozenset):
            return self._collection(part)
        if isinstance(part, CodeType):
            return self._code(part)
        if id(part) in self.met:
            return f"<{self.met[id(part)][0]}>"
        self.met[id(part)] = (len(self.met), part)
        if isinstance(part, FunctionType):
            return self._function(part)
        if isinstance(part, MethodType | BuiltinFunctionType):
            return f"{_name(part)} {self(getattr(part, '__func__', None))} of {self(part.__self__)}"
        if type(part) in (list, set):
            return self._collection(part)
        if type(part) is dict:
            return f"dict {self._collection(tuple(part.items()))}"
        return self._object(part)

    def _collection(self, part: Any) -> str:
        items = [self(item) for item in part]
        # The order of a set is another one in every process.
        return f"{_name(type(part))} {_listed(sorted(items) if isinstance(part, set | frozenset) else items)}"

    def _array(self, part: Any) -> str:
        head = f"{_name(type(part))} {part.dtype} {tuple(part.shape)}"
        if not self.weights:
            return head
        if isinstance(part, np.ndarray) and part.dtype.hasobject:
            return f"{head} {self(part.tolist())}"
        if isinstance(part, Tensor):
            dense = part.detach().cpu().to_dense().resolve_conj().resolve_neg()
            flat = dense.contiguous().flatten()
            part = flat.as_strided(flat.shape, (1,)).view(torch.uint8).numpy()  # a single number may have any stride
        content = np.ascontiguousarray(part).reshape(-1).view(np.uint8).data
        return f"{head} {hashlib.blake2b(content, digest_size=16).hexdigest()}"

    def _code(self, code: CodeType) -> str:
        """Describe what is done, not where it is written: constants hold the code of functions inside."""
        return f"{code.co_code.hex()} {self(code.co_consts)} {code.co_names} {code.co_varnames}"

    def _function(self, function: FunctionType) -> str:
        known, names = function.__globals__, _global_names(function.__code__)
        used = [f"{name}: {self._used(known[name], known)}" for name in names if name in known]
        cells = [self._cell(cell) for cell in function.__closure__ or ()]
        defaults = [self(function.__defaults__), self(function.__kwdefaults__)]
        return f"{function.__qualname__} {self(function.__code__)} {_listed([*cells, *defaults, *used])}"

    def _methods(self, owner: type, called: Iterable[str]) -> str:
        """Describe methods of a class, and those of its methods that they name."""
        waiting, found = list(called), dict[str, FunctionType]()
        while waiting:
            name = waiting.pop()
            method = getattr(owner, name, None)
            if name not in found and isinstance(method, FunctionType):
                found[name] = method
                waiting += _names(method.__code__)
        return _listed(f"{name}: {self(found[name])}" for name in sorted(found))

    def _used(self, value: Any, known: dict[str, Any]) -> str:
        """Describe a global; a function of another module by its name, or all of torch would have to be read."""
        foreign = isinstance(value, FunctionType) and value.__globals__ is not known
        return _name(value) if foreign else self(value)

    def _cell(self, cell: CellType) -> str:
        try:
            return self(cell.cell_contents)
        except ValueError:  # not filled yet
            return "empty"

    def _object(self, part: Any) -> str:
        """Describe an object by its class, what it does when called, and what pickle would keep of it."""
        # What an augmentation does may differ by epoch.
        called = ("forward",) if isinstance(part, nn.Module) else ("__call__", "for_epoch")
        head = f"{_name(type(part))} {self._methods(type(part), called)}"
        try:
            kept = part.__reduce_ex__(4)
        except Exception:  # an open file, a lock: nothing that decides where training ends
            return head
        if isinstance(kept, str):
            return f"{head} {kept}"
        return f"{head} {_listed(self(list(item) if isinstance(item, Iterator) else item) for item in kept)}"


def _listed(items: Iterable[str]) -> str:
    """Put descriptions side by side; the repr of a list would double their backslashes at every level."""
    return f"[{', '.join(items)}]"


def _name(part: Any) -> str:
    name = getattr(part, "__qualname__", None) or getattr(part, "__name__", None)
    return f"{getattr(part, '__module__', None)}.{name}"


def _names(code: CodeType) -> set[str]:
    """Return all names that code uses, attributes and those of functions inside it included."""
    inside = [_names(constant) for constant in code.co_consts if isinstance(constant, CodeType)]
    return set(code.co_names).union(*inside)


def _global_names(code: CodeType) -> list[str]:
    """Return the names of globals that code loads, functions inside it included."""
    names = {item.argval for item in dis.get_instructions(code) if item.opname in ("LOAD_GLOBAL", "LOAD_NAME")}
    inside = [_global_names(constant) for constant in code.co_consts if isinstance(constant, CodeType)]
    return sorted(names.union(*inside))
