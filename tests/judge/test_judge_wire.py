"""The wire: typed messages survive, everything else is refused."""

from __future__ import annotations

import contextlib
import socket
import time

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from judge import wire


def later(seconds: float = 5) -> float:
    return time.monotonic() + seconds


def test_messages_survive_the_trip() -> None:
    ours, theirs = socket.socketpair()
    spec = wire.TensorSpec(dtype="float32", shape=(2, 3), place=1 << 40)
    for reply in (wire.Done(), wire.Called(nonce=1 << 61, seconds=0.5, outputs=(spec,)), wire.Compile(source="é")):
        wire.send(theirs, reply)
        assert wire.receive_reply(ours, later()) == reply


@given(st.binary(min_size=1, max_size=200))
def test_any_bytes_are_a_message_or_a_wire_error(payload: bytes) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.sendall(len(payload).to_bytes(4, "big") + payload)
        with contextlib.suppress(wire.WireError):
            wire.receive_reply(ours, later())


@pytest.mark.parametrize("length", [0, wire.MAX_FRAME + 1, 0xFFFFFFFF])
def test_a_frame_over_the_cap_is_refused_before_it_is_read(length: int) -> None:
    ours, theirs = socket.socketpair()
    theirs.sendall(length.to_bytes(4, "big"))
    with pytest.raises(wire.WireError, match="a frame of"):
        wire.receive_reply(ours, later())


def test_silence_is_a_timeout_and_a_closed_end_a_hangup() -> None:
    ours, theirs = socket.socketpair()
    theirs.sendall(b"\0\0")
    with pytest.raises(TimeoutError):
        wire.receive_reply(ours, later(0.05))
    theirs.close()
    with pytest.raises(wire.HangupError):
        wire.receive_reply(ours, later())


def test_values_keep_their_kind() -> None:
    tensors: list[object] = []
    value = (1, 2.5, "x", None, True, [torch.ones(2), (3,)], {"a": torch.zeros(1)}, torch.float16)
    packed = wire.pack_value(value, tensors)
    back = wire.unpack_value(packed, tensors)
    assert back[:5] == value[:5]
    assert isinstance(back[5][1], tuple)
    assert torch.equal(back[5][0], torch.ones(2))
    assert back[6]["a"] is value[6]["a"]
    assert back[7] is torch.float16
    with pytest.raises(TypeError, match="cannot be passed"):
        wire.pack_value(lambda: 0, [])
