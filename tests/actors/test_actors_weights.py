"""One contract for every way in which weights reach an engine: a folder, memory of the machine, memory of the GPU."""

from __future__ import annotations

import dataclasses
import multiprocessing
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch

from actors.errors import ActorError
from actors.weights import model_shapes, read_weights
from learner.lending import Lender, checksum
from learner.publishing import publish
from learner.types import WeightsVersion

Tensors = dict[str, torch.Tensor]
Shapes = dict[str, tuple[int, ...]]


def tensors(seed: int = 0) -> Tensors:
    generator = torch.Generator().manual_seed(seed)
    shapes = {"model.norm.weight": (7,), "model.a.weight": (5, 3), "lm_head.weight": (11, 4)}
    return {name: torch.randn(shape, generator=generator).bfloat16() for name, shape in shapes.items()}


def shapes_of(weights: Tensors) -> Shapes:
    return {name: tuple(tensor.shape) for name, tensor in weights.items()}


def read_copies(version: WeightsVersion, expected: Shapes) -> Tensors:
    """What an engine would read, on the CPU. Runs in a process of its own, as an engine does."""
    return {name: tensor.detach().cpu().clone() for name, tensor in read_weights(version, expected).items()}


class Channel:
    """Publishes by one of the ways, and reads in another process."""

    def __init__(self, kind: str, folder: Path, reader: ProcessPoolExecutor) -> None:
        self.kind, self._folder, self._reader, self.lender = kind, folder, reader, Lender()

    def publish(self, weights: Tensors, number: int = 1) -> WeightsVersion:
        if self.kind == "file":
            model = self._folder / "model"
            model.mkdir(exist_ok=True)
            (model / "config.json").write_text("{}")
            return publish(weights.items(), model, self._folder / "weights", number, keep=2)
        device = "cuda" if self.kind == "cuda" else "cpu"
        return self.lender.lend([(name, tensor.to(device)) for name, tensor in weights.items()], number)

    def read(self, version: WeightsVersion, expected: Shapes) -> Tensors:
        return self._reader.submit(read_copies, version, expected).result(timeout=120)


@pytest.fixture(scope="module")
def reader() -> Iterator[ProcessPoolExecutor]:
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as executor:
        yield executor


@pytest.fixture(params=["file", "host", pytest.param("cuda", marks=pytest.mark.gpu)])
def channel(request: pytest.FixtureRequest, tmp_path: Path, reader: ProcessPoolExecutor) -> Iterator[Channel]:
    one = Channel(request.param, tmp_path, reader)
    yield one
    one.lender.close()


def test_what_was_published_is_what_is_read_version_after_version(channel: Channel) -> None:
    for number in (1, 2, 3):
        weights = tensors(number)
        version = channel.publish(weights, number)
        assert version.policy_version == number
        found = channel.read(version, shapes_of(weights))
        assert found.keys() == weights.keys()
        assert all(torch.equal(found[name], weights[name]) for name in weights)


def test_two_versions_never_have_the_same_hash_unless_they_are_the_same(channel: Channel) -> None:
    one, other, again = (channel.publish(tensors(seed)).sha256 for seed in (1, 2, 1))
    assert one == again != other


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (lambda shapes: shapes.update(extra=(2,)), "lacks extra"),
        (lambda shapes: shapes.pop("lm_head.weight"), "has lm_head.weight, which the model does not"),
        (
            lambda shapes: shapes.update({"model.a.weight": (3, 5)}),
            r"model.a.weight is \[5, 3\], in the model \[3, 5\]",
        ),
    ],
)
def test_names_and_shapes_are_compared_with_the_engines(
    channel: Channel, change: Callable[[Shapes], Any], complaint: str
) -> None:
    expected = shapes_of(tensors())
    change(expected)
    with pytest.raises(ActorError, match=complaint):
        channel.read(channel.publish(tensors()), expected)


def test_other_content_than_was_published_is_refused(channel: Channel) -> None:
    weights = tensors()
    version = channel.publish(weights)
    if channel.kind == "file":
        file = Path(version.path) / "model.safetensors"
        content = bytearray(file.read_bytes())
        content[-1] ^= 1
        file.write_bytes(content)
    else:
        channel.publish(tensors(9), 2)  # the buffer holds the next version now
    with pytest.raises(ActorError, match="is not what was published"):
        channel.read(version, shapes_of(weights))


def test_a_version_that_is_gone_is_one_clear_line(channel: Channel) -> None:
    version = channel.publish(tensors())
    if channel.kind == "file":
        version = dataclasses.replace(version, path=version.path + "x")
    elif channel.kind == "host":
        channel.lender.close()
    else:
        version = dataclasses.replace(version, loan=dataclasses.replace(version.loan, handle=bytes(64)))
    with pytest.raises(ActorError, match=r"cannot be (read|reached)") as caught:
        channel.read(version, shapes_of(tensors()))
    assert "\n" not in str(caught.value)


def test_a_checksum_sees_changed_and_moved_values() -> None:
    values = torch.tensor([1.0, 2.0, 3.0, 0.0]).bfloat16()
    # bit patterns 0x3f80, 0x4000, 0x4040 at the odd weights 1, 3, 5
    assert checksum(values) == 0x3F80 * 1 + 0x4000 * 3 + 0x4040 * 5
    assert checksum(values[[1, 0, 2, 3]]) != checksum(values)
    assert checksum(-values) != checksum(values)


def test_the_shapes_of_a_model_are_those_of_its_file(channel: Channel) -> None:
    if channel.kind == "file":
        assert model_shapes(Path(channel.publish(tensors()).path)) == shapes_of(tensors())
