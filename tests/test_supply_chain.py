"""What comes from outside is never unpickled, evaluated or given to a shell, and what is installed has hashes."""

from __future__ import annotations

import ast
import hashlib
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
ROOMS = ("tasks", "judge", "archive", "search", "learner", "actors", "serving", "cluster", "configs")

EXCEPTIONS = {
    ("judge/runner.py", "exec"): "runs a candidate or its task: inside a jail, which is what the jail is for",
    ("judge/builder_runner.py", "exec"): "runs a task inside the builder's jail, to import the candidate beside it",
    ("cluster/generated_cpp.py", "exec"): "runs kernels that this project's own generator wrote, never a model's",
    ("tasks/duplicates.py", "exec"): "traces a task's file, which whoever names it to the command trusts",
    ("tasks/procedural/cuda_check.py", "exec"): "runs tasks and kernels of this project's own generator",
    ("learner/checkpoints.py", "torch.load"): "the run's own generators, with weights_only=True: no code can be in it",
    ("learner/checkpoints.py", "load_checkpoint"): (
        "DeepSpeed keeps optimizer state as a pickle and reads it as one. Only a run's own folder is read, after every "
        "file was compared with the SHA-256 of its manifest; a checkpoint from elsewhere is as trusted as its sender"
    ),
}
"""(file, what) -> why it is allowed."""

UNSAFE_MODULES = {"pickle", "cPickle", "dill", "marshal", "shelve", "joblib", "cloudpickle"}
UNSAFE_CALLS = {
    "eval",
    "exec",
    "os.system",
    "os.popen",
    "torch.load",
    "np.load",
    "numpy.load",
    "yaml.load",
    "pandas.read_pickle",
    "load_checkpoint",
}


def sources() -> Iterator[Path]:
    yield ROOT / "warpsmith.py"
    for room in ROOMS:
        yield from (path for path in (ROOT / room).rglob("*.py") if "suite" not in path.parts)


def unsafe(tree: ast.AST) -> Iterator[str]:
    """Names of unsafe modules, calls and arguments of a file."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name.split(".")[0] in UNSAFE_MODULES)
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in UNSAFE_MODULES:
            yield str(node.module)
        elif isinstance(node, ast.Call):
            name = ast.unparse(node.func)
            # model.eval() is a mode of torch's modules.
            last = name.rsplit(".", 1)[-1]
            if name in UNSAFE_CALLS or (last in UNSAFE_CALLS and last not in ("eval", "exec", "load")):
                yield name if name in UNSAFE_CALLS else last
            for keyword in node.keywords:
                harmless = isinstance(keyword.value, ast.Constant) and not keyword.value.value
                if keyword.arg in ("shell", "allow_pickle", "trust_remote_code") and not harmless:
                    yield "shell=True" if keyword.arg == "shell" else keyword.arg


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("import pickle", ["pickle"]),
        ("from cloudpickle import loads", ["cloudpickle"]),
        ("eval(text)", ["eval"]),
        ("model.eval()", []),
        ("torch.load(path)", ["torch.load"]),
        ("json.load(path)", []),
        ("subprocess.run(line, shell=True)", ["shell=True"]),
        ("subprocess.run(line, shell=False)", []),
        ("np.load(path, allow_pickle=True)", ["np.load", "allow_pickle"]),
        ("AutoModel.from_pretrained(p, trust_remote_code=yes)", ["trust_remote_code"]),
    ],
)
def test_the_search_sees_what_it_looks_for(text: str, found: list[str]) -> None:
    assert list(unsafe(ast.parse(text))) == found


def test_nothing_from_outside_is_unpickled_evaluated_or_given_to_a_shell() -> None:
    found = {(str(path.relative_to(ROOT)), what) for path in sources() for what in unsafe(ast.parse(path.read_text()))}
    assert found - EXCEPTIONS.keys() == set()
    assert EXCEPTIONS.keys() - found == set(), "an exception that nothing needs any more"
    assert "weights_only=True" in (ROOT / "learner" / "checkpoints.py").read_text()


def pins(name: str) -> dict[str, str]:
    lines = (ROOT / "requirements" / name).read_text().splitlines()
    found = (re.match(r"([A-Za-z0-9._-]+)==(\S+)", line) for line in lines)
    return {re.sub(r"[-_.]+", "-", match[1]).lower(): match[2] for match in found if match}


@pytest.mark.parametrize("name", ["cpu", "dev"])
def test_every_pin_but_torchs_has_hashes(name: str) -> None:
    lock, text = ROOT / "requirements" / f"{name}.lock", (ROOT / "requirements" / f"{name}.hashes").read_text()
    assert hashlib.sha256(lock.read_bytes()).hexdigest() in text.splitlines()[0], "run `make lock`"
    wanted = {package: version for package, version in pins(f"{name}.lock").items() if package != "torch"}
    hashed = pins(f"{name}.hashes")
    assert {package: hashed.get(package) for package in wanted} == wanted
    blocks = re.split(r"\n(?=\S)", text.strip())[1:]
    assert all(re.search(r"--hash=sha256:[0-9a-f]{64}", block) for block in blocks)
