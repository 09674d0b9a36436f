"""The ragged batch that the flash kernel is given, against attention written out, and the kernel itself on a GPU."""

import pytest
import torch

from learner.attention import _by_flash, _by_segment, _flash_serves, plan
from learner.packing import Segment

SEGMENTS = (
    Segment(prompt=4, completions=(3, 0, 2)),
    Segment(prompt=1),
    Segment(prompt=6, completions=(1,)),
)
LENGTH = sum(segment.length for segment in SEGMENTS)


def qkv(device: str = "cpu", dtype: torch.dtype = torch.float32) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(3)
    shapes = [(1, 6, LENGTH, 64), (1, 2, LENGTH, 64), (1, 2, LENGTH, 64)]
    return [torch.randn(shape, generator=generator).to(device, dtype) for shape in shapes]


def visible() -> torch.Tensor:
    """[T, T] bool: who sees whom, from the rule itself and nothing else."""
    mark: list[tuple[int, int, int]] = []  # (segment, completion or -1, place)
    for number, segment in enumerate(SEGMENTS):
        mark += [(number, -1, place) for place in range(segment.prompt)]
        for index, length in enumerate(segment.completions):
            mark += [(number, index, segment.prompt + place) for place in range(length)]
    return torch.tensor([[s == t and d in (-1, c) and q <= p for t, d, q in mark] for s, c, p in mark])


def by_mask(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, scale: float) -> torch.Tensor:
    key, value = (x.repeat_interleave(3, dim=1) for x in (key, value))
    scores = (query @ key.transpose(2, 3) * scale).masked_fill(~visible(), float("-inf"))
    return (scores.softmax(-1) @ value).transpose(1, 2)


def test_each_segment_by_itself_is_the_masked_attention() -> None:
    query, key, value = qkv()
    found = _by_segment(query, key, value, SEGMENTS, 0.1, 0.0)
    torch.testing.assert_close(found, by_mask(query, key, value, 0.1))


def test_the_ragged_batch_gives_every_query_the_keys_of_the_mask() -> None:
    ragged = plan(SEGMENTS, torch.device("cpu"))
    seen = torch.zeros(LENGTH, LENGTH, dtype=torch.bool)
    for number in range(len(ragged.query_starts) - 1):
        first, last = ragged.query_starts[number : number + 2].tolist()
        begin, end = ragged.key_starts[number : number + 2].tolist()
        assert last - first <= ragged.longest_query
        assert end - begin <= ragged.longest_key
        for row in range(first, last):
            hidden = last - 1 - row  # counted from the end of both, as the kernel's causal mask does
            seen[row, ragged.key_rows[begin : end - hidden]] = True
    assert torch.equal(seen, visible())


@pytest.mark.gpu
def test_the_flash_kernel_gives_values_and_gradients_of_the_segments() -> None:
    assert _flash_serves(torch.device("cuda", 0), torch.bfloat16, 9, 3, 64), "torch's flash kernel is not used"
    whole, parts = ([x.requires_grad_() for x in qkv("cuda", torch.bfloat16)] for _ in range(2))
    one = _by_flash(*whole, SEGMENTS, 0.1)
    other = _by_segment(*parts, SEGMENTS, 0.1, 0.0)
    torch.testing.assert_close(one, other, rtol=0.02, atol=0.02)
    for out in (one, other):
        out.float().square().sum().backward()
    for a, b in zip(whole, parts, strict=True):
        assert float((a.grad - b.grad).norm()) < 0.02 * float(b.grad.norm())
