"""Marks on a candidate's text. They mark, they never decide alone: the judge's measurements do.

The rules are data (judge/hacks.toml): a mark, and what earns it. Names are read from the syntax tree, so comments and
docstrings do not count, and a name that an import changed counts as what it stands for. Two more marks look only at
what ModelNew reaches: its body and whatever of the module that names, directly or through others.

Only "no custom kernel" has a consequence (such a candidate cannot win), so it is generous: it must not accuse an
honest kernel that is built in an unusual way. Whoever wants to can hide from all of this.
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Callable, Iterable, Iterator, Sequence

from judge import hacks

NO_CUSTOM_KERNEL = "no custom kernel"
LIBRARY_CALL = "library call in forward"
UNREADABLE = "too long to be read"


BUILDERS = frozenset({
    "load_cpp", "load_cuda", "load_inline", "cpp_extension.load", "RawKernel", "RawModule", "ElementwiseKernel",
    "triton.jit", "numba.jit", "numba.njit", "cuda.jit", "cute.jit", "tilelang.jit",
})  # fmt: skip
"""The end of names of what makes a kernel; a last part that is a common word (json.load) comes with the one before."""

NO_WORK = frozenset({
    # memory
    "empty", "empty_like", "empty_strided", "zeros", "zeros_like", "ones", "ones_like", "full", "full_like", "tensor",
    "as_tensor", "from_numpy", "arange", "cat", "stack", "clone",
    # other names for it
    "reshape", "flatten", "squeeze", "unsqueeze", "transpose", "permute", "movedim", "swapaxes", "t", "narrow",
    "select", "chunk", "split", "unbind", "as_strided", "broadcast_to", "detach",
    # facts and modes
    "numel", "Size", "device", "finfo", "iinfo", "is_tensor", "is_floating_point", "result_type", "broadcast_shapes",
    "no_grad", "inference_mode", "enable_grad", "is_grad_enabled", "manual_seed", "get_num_threads", "set_num_threads",
    "is_available", "current_stream", "current_device", "get_device_properties", "get_device_capability", "Parameter",
})  # fmt: skip
"""Functions of torch that are not the work of a kernel."""

TENSOR_WORK = frozenset({
    "matmul", "mm", "bmm", "mv", "addmm", "baddbmm", "softmax", "log_softmax", "logsumexp", "relu", "relu_", "sigmoid",
    "tanh", "exp", "rsqrt", "sum", "mean", "var", "std", "norm", "amax", "amin", "argmax", "argmin", "cumsum",
    "cumprod", "topk", "add_", "mul", "mul_", "sub_", "div", "div_", "addcmul", "addcdiv", "clamp", "clamp_",
    "masked_fill", "masked_fill_", "index_select", "scatter_add",
})  # fmt: skip
"""Methods that are. Only names which other objects hardly have."""

_LIBRARIES = ("torch.", "numpy.", "scipy.", "cupy.", "jax.", "tensorflow.")
_LIBRARY_OPS = ("torch.ops.aten.", "torch.ops.prims.", "torch.ops.mkldnn.")
_NO_LAYERS = frozenset({"Parameter", "ParameterList", "ModuleList", "Identity", "Module", "Buffer"})
_NOT_OPS = ("torch.ops.", "torch.autograd.", "torch.nn.init.", "torch.utils.", "torch.library.")


MAX_CHARACTERS, MAX_NODES = 1 << 20, 50_000
"""A candidate beyond these is not read: this runs in the judge, on text that may be made to keep it busy."""
_MAX_PARTS = 8


def static_flags(code: str) -> tuple[str, ...]:
    """The marks of a candidate: those of what ModelNew reaches, then the rules in their order.

    Empty for text that is not Python. Text that is too long or too deep to be read shows no kernel either.
    """
    try:
        if len(code) > MAX_CHARACTERS:
            return NO_CUSTOM_KERNEL, UNREADABLE
        tree = ast.parse(code)
        if sum(1 for _ in ast.walk(tree)) > MAX_NODES:
            return NO_CUSTOM_KERNEL, UNREADABLE
        text = _Text(tree)
        seen = hacks.look_at(tree, frozenset(text.names_used()))
        return (
            *([] if text.calls_own_kernel() else [NO_CUSTOM_KERNEL]),
            *([LIBRARY_CALL] if text.calls_library() else []),
            *(rule.mark for rule in hacks.rules() if rule.marks(seen)),
        )
    except (SyntaxError, ValueError):
        return ()
    except (RecursionError, MemoryError):
        return NO_CUSTOM_KERNEL, UNREADABLE


class _Text:
    """A candidate's syntax tree with what its names stand for."""

    def __init__(self, tree: ast.Module) -> None:
        self.tree = tree
        self.imported = dict(_imports(tree))
        self.modules = {name.split(".")[0] for name in self.imported.values()}
        self.owners: dict[str, list[ast.stmt]] = {}
        for statement in _statements(tree.body):
            for name in _defined(statement):
                self.owners.setdefault(name, []).append(statement)
        gifts = [gift for node in ast.walk(tree) for gift in _gifts(node)]
        self.kernels = _carriers(gifts, self._is_builder)
        self.layers = _carriers(gifts, self._is_layer)

    def names_used(self) -> Iterator[str]:
        """Every dotted name in full, and the modules it lies in. Of plain names only builtins and imported ones."""
        for node in ast.walk(self.tree):
            known = isinstance(node, ast.Name) and (node.id in self.imported or hasattr(builtins, node.id))
            if known or isinstance(node, ast.Attribute):
                yield self._full(node)
            elif isinstance(node, ast.Import | ast.ImportFrom):
                within = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
                for alias in node.names:
                    parts = ".".join([*within, alias.name]).split(".")[:_MAX_PARTS]
                    yield from (".".join(parts[:length]) for length in range(1, len(parts) + 1))

    def calls_own_kernel(self) -> bool:
        """Whether ModelNew reaches a call in which a kernel's name occurs, be it called or handed on."""
        for node, in_call in self._reached(self._model()):
            if in_call and (_word(node) in self.kernels or self._is_builder(node)):
                return True
            if in_call and self._full(node).startswith("torch.ops.") and not self._full(node).startswith(_LIBRARY_OPS):
                return True
        return False

    def calls_library(self) -> bool:
        """Whether ModelNew's methods other than __init__ reach an operation of torch or its like."""
        methods = [
            part
            for statement in self._model()
            for part in (statement.body if isinstance(statement, ast.ClassDef) else [statement])
            if not (isinstance(part, ast.FunctionDef) and part.name == "__init__")
        ]
        return any(
            (isinstance(node, ast.Call) and self._is_library_call(node))
            or (isinstance(node, ast.BinOp) and isinstance(node.op, ast.MatMult))
            for node, _ in self._reached(methods)
        )

    def _is_library_call(self, call: ast.Call) -> bool:
        chain = _chain(call.func)
        if self.kernels.intersection(chain):
            return False
        full, last = self._full(call.func), chain[-1] if chain else ""
        if full.startswith(_LIBRARY_OPS):
            return True
        if full.startswith(_LIBRARIES):
            return last not in NO_WORK and not last[:1].isupper() and not full.startswith(_NOT_OPS)
        if last in self.layers:
            return True
        return isinstance(call.func, ast.Attribute) and last in TENSOR_WORK and full.split(".")[0] not in self.modules

    def _model(self) -> list[ast.stmt]:
        return self.owners.get("ModelNew") or self.tree.body

    def _reached(self, start: Iterable[ast.stmt]) -> Iterator[tuple[ast.AST, bool]]:
        """Every node of some statements and of the top-level definitions that they name, at any distance; and whether
        it lies in a call that does something else than building a kernel."""
        waiting, seen = list(start), set()
        while waiting:
            statement = waiting.pop()
            if id(statement) in seen:
                continue
            seen.add(id(statement))
            nodes: list[tuple[ast.AST, bool]] = [(statement, False)]
            while nodes:
                node, in_call = nodes.pop()
                yield node, in_call
                if (word := _word(node)) != "ModelNew":
                    waiting += self.owners.get(word, [])
                if isinstance(node, ast.Call) and not self._is_builder(node.func):
                    in_call = True
                nodes += [(child, in_call) for child in ast.iter_child_nodes(node)]

    def _is_builder(self, node: ast.AST) -> bool:
        parts = self._full(node).split(".")
        return parts[-1] in BUILDERS or ".".join(parts[-2:]) in BUILDERS

    def _is_layer(self, node: ast.AST) -> bool:
        full = self._full(node.func) if isinstance(node, ast.Call) else ""
        kind = full.removeprefix("torch.nn.")
        return full != kind and kind[:1].isupper() and kind not in _NO_LAYERS

    def _full(self, node: ast.AST) -> str:
        """The dotted name that an expression is, imports undone; "?" stands for what is none."""
        parts: list[str] = []
        while isinstance(node, ast.Attribute) and len(parts) < _MAX_PARTS:
            parts.append(node.attr)
            node = node.value
        parts.append(self.imported.get(node.id, node.id) if isinstance(node, ast.Name) else "?")
        return ".".join(reversed(parts))


def _carriers(gifts: Sequence[tuple[set[str], ast.AST]], is_source: Callable[[ast.AST], bool]) -> set[str]:
    """Names that were given a value with a source in it, or with such a name in it, at any distance."""
    givers: dict[str, list[set[str]]] = {}
    waiting: list[str] = []
    for names, value in gifts:
        for node in ast.walk(value):
            if is_source(node):
                waiting += names
            if word := _word(node):
                givers.setdefault(word, []).append(names)
    found: set[str] = set()
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            for names in givers.get(name, []):
                waiting += names
    return found


def _imports(tree: ast.AST) -> Iterator[tuple[str, str]]:
    """Name in this file, and what it stands for: ("F", "torch.nn.functional")."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield (alias.asname, alias.name) if alias.asname else (alias.name.split(".")[0],) * 2
        elif isinstance(node, ast.ImportFrom):
            yield from ((alias.asname or alias.name, f"{node.module}.{alias.name}") for alias in node.names)


def _statements(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Statements of the top level, those inside its if, try, with and loops included."""
    for statement in body:
        yield statement
        if not isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            for field in ("body", "orelse", "finalbody"):
                yield from _statements(getattr(statement, field, []))
            for handler in getattr(statement, "handlers", []):
                yield from _statements(handler.body)


def _defined(statement: ast.stmt) -> set[str]:
    if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return {statement.name}
    if isinstance(statement, ast.Assign):
        return set().union(*map(_words, statement.targets))
    return _words(statement.target) if isinstance(statement, ast.AnnAssign | ast.AugAssign) else set()


def _gifts(node: ast.AST) -> Iterator[tuple[set[str], ast.AST]]:
    """Names, and the value that they are given: by assignment, loop or with, as what a function returns or is decorated
    with."""
    if isinstance(node, ast.Assign):
        yield set().union(*map(_targets, node.targets)), node.value
    elif isinstance(node, ast.AnnAssign | ast.NamedExpr) and node.value is not None:
        yield _targets(node.target), node.value
    elif isinstance(node, ast.For | ast.AsyncFor | ast.comprehension):
        yield _targets(node.target), node.iter
    elif isinstance(node, ast.withitem) and node.optional_vars is not None:
        yield _targets(node.optional_vars), node.context_expr
    elif isinstance(node, ast.FunctionDef):
        returned = [inner.value for inner in ast.walk(node) if isinstance(inner, ast.Return) and inner.value]
        yield from (({node.name}, value) for value in [*returned, *node.decorator_list])


def _targets(node: ast.AST) -> set[str]:
    """What an assignment to this names: a, self.a, a[0] and both of (a, b)."""
    if isinstance(node, ast.Tuple | ast.List):
        return set().union(*map(_targets, node.elts))
    if isinstance(node, ast.Subscript | ast.Starred):
        return _targets(node.value)
    return {node.attr} if isinstance(node, ast.Attribute) else {node.id} if isinstance(node, ast.Name) else set()


def _words(node: ast.AST) -> set[str]:
    """Every name and attribute in an expression: self.kernel.scale(x) -> {self, kernel, scale, x}."""
    return {word for inner in ast.walk(node) if (word := _word(inner))}


def _word(node: ast.AST) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def _chain(node: ast.AST) -> list[str]:
    """The words of what is called, the nearest last: get(3).parts[0].scale -> [get, parts, scale]."""
    words: list[str] = []
    while isinstance(node, ast.Attribute | ast.Subscript | ast.Call) and len(words) < _MAX_PARTS:
        words += [node.attr] if isinstance(node, ast.Attribute) else []
        node = node.func if isinstance(node, ast.Call) else node.value
    return [*([node.id] if isinstance(node, ast.Name) else []), *reversed(words)]
