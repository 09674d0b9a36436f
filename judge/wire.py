"""What the judge and its jailed processes say to each other: length-prefixed msgpack of typed messages, never pickle.

A frame is a 4-byte big-endian length and that many bytes of msgpack, decoded strictly into one of the Structs below:
an unknown tag, a wrong type or a frame above the cap is a WireError, and the process that sent it is done for.
Tensors do not travel here, only where they lie.

Calls are timed from outside, so their requests are shorter still: a mark in the place of the length, and a nonce. What
the runner does between them and forward counts against a candidate.
"""

from __future__ import annotations

import array
import socket
import struct
import time
from dataclasses import dataclass
from typing import Any

import msgspec

MAX_FRAME = 1 << 20
"""Largest frame a jailed process may send."""
MAX_REQUEST = 1 << 24
"""Largest frame the judge sends (source text, mostly)."""
_LENGTH = struct.Struct(">I")
_SHORT = struct.Struct(">IQ")
_CALL = 0xFFFFFFFF


class WireError(Exception):
    """The other side sent what is no message, or hung up."""


class HangupError(WireError):
    """The other side closed its end: it is dead or dying."""


class TensorSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Where a tensor lies: at an address of the sender's, or at an offset of a shared memory."""

    dtype: str
    shape: tuple[int, ...]
    place: int
    handle: bytes = b""
    """On a GPU: the CUDA IPC handle (64 bytes) of the allocation that ``place`` is an offset of."""


# --- judge -> jailed process ---


class LoadTask(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag=True):
    """Run a task file with some of its top-level constants replaced (a variant)."""

    source: str
    where: str
    constants: dict[str, Any]
    compiled: bool = False
    """Have Model compiled by torch.compile when it is built: a baseline."""
    backward: bool = False
    """Calls give gradients too (judge/gradients.py)."""


class LoadCandidate(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag=True):
    code: str
    products: str = ""
    """Folder of what the builder built for it."""


class Rehearse(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag=True):
    """Builder only: call the loaded candidate on inputs of these variants, so that it builds what it builds late."""

    source: str
    variants: tuple[dict[str, Any], ...]


class MakeInit(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag=True):
    """Reference only: call get_init_inputs and construct Model under a seed; answered with Made."""

    seed: int


class MakeInputs(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag=True):
    """Reference only: get_inputs under a seed, redrawn, then the float64 truth and the honest run; gives Made."""

    seed: int
    distribution: str


class MakeCases(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag=True):
    """Reference on a GPU only: MakeInputs for each seed with the inputs as given, and no truth; gives MadeCases."""

    seeds: tuple[int, ...]


class Construct(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag=True):
    """Build Model or ModelNew and give it the reference's parameters, which lie in the memory sent along."""

    arguments: Any
    tensors: tuple[TensorSpec, ...]
    names: tuple[str, ...]
    """state_dict names of the last len(names) tensors; those before belong to the arguments."""
    size: int
    handle: bytes = b""
    """On a GPU, in place of a file descriptor."""
    backward: bool = False
    """Calls give gradients too (judge/gradients.py)."""
    guarded: bool = False
    """Calls make their tensors between guard bands (judge/guards.py)."""


class MapInputs(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag=True):
    """The call's arguments; their tensors lie in the memory sent along, whose contents change before each call."""

    arguments: Any
    tensors: tuple[TensorSpec, ...]
    size: int
    strided: bool = False
    """Calls are given copies with the last two dimensions laid out the other way round."""


class MapSlots(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag=True):
    """GPU: memory for the arguments of several calls of a batch, whose contents change before each batch."""

    arguments: Any
    slots: tuple[tuple[TensorSpec, ...], ...]
    handle: bytes
    strided: bool = False


class Capture(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag=True):
    """GPU: make one CUDA graph of a call for each slot; from then on a batch of all of them is a replay."""


class CallBatch(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag=True):
    """GPU: one call for each of the first ``count`` slots, then wait for all of them; answered with CalledBatch."""

    nonce: int
    count: int
    replay: bool
    """Replay the graph instead."""


class Compiled(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag=True):
    """Answer to Compile: the path of the shared object, or why there is none."""

    path: str
    error: str


Request = (
    LoadTask
    | LoadCandidate
    | Rehearse
    | MakeInit
    | MakeInputs
    | MakeCases
    | Construct
    | MapInputs
    | MapSlots
    | Capture
    | CallBatch
    | Compiled
)

# --- jailed process -> judge ---


class Ready(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag=True):
    """Sent before any foreign code ran."""

    layers: tuple[str, ...]
    missing: dict[str, str]


class Done(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag=True):
    pass


class Made(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag=True):
    """Values with their tensors at the sender's addresses."""

    arguments: Any
    tensors: tuple[TensorSpec, ...]
    names: tuple[str, ...] = ()
    truth: tuple[TensorSpec, ...] = ()
    honest: tuple[TensorSpec, ...] = ()
    flops: int = 0
    """Of the honest run's products and convolutions; 0 when they were not counted."""


class MadeCases(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag=True):
    cases: tuple[Made, ...]


class Captured(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag=True):
    """Answer to Capture: where every replay leaves the outputs of each call."""

    outputs: tuple[tuple[TensorSpec, ...], ...]


class CalledBatch(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag=True):
    nonce: int
    seconds: float
    """Between two events of the sender's, before the first and after the last call."""
    outputs: tuple[tuple[TensorSpec, ...], ...] = ()
    """Of each call; after a replay none, they lie where Captured said."""


class Called(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag=True):
    nonce: int
    seconds: float
    """The sender's own clock."""
    outputs: tuple[TensorSpec, ...]


class Compile(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag=True):
    source: str
    language: str = "cpp"
    options: tuple[str, ...] = ()


class Failed(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag=True):
    """The foreign code raised, or returned what is no tensor."""

    kind: str
    """"syntax", "compile", "exception", "outputs"."""
    message: str
    line: int = 0
    """In the foreign file; 0 where unknown."""


Reply = Ready | Done | Made | MadeCases | Called | Captured | CalledBatch | Compile | Failed

_encoder = msgspec.msgpack.Encoder()
_request_decoder = msgspec.msgpack.Decoder(Request)
_reply_decoder = msgspec.msgpack.Decoder(Reply)


def send(sock: socket.socket, message: Request | Reply, fd: int | None = None) -> None:
    """Send one frame, with a file descriptor when given. Raises WireError when the other side is gone or stuffed."""
    payload = _encoder.encode(message)
    frame = _LENGTH.pack(len(payload)) + payload
    try:
        if fd is None:
            sock.sendall(frame)
            return
        sent = sock.sendmsg([frame], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [fd]))])
        sock.sendall(frame[sent:])
    except OSError as error:
        raise WireError(f"could not send: {error}") from None


@dataclass(frozen=True)
class Call:
    """Call the model; answered with Called."""

    nonce: int


def send_call(sock: socket.socket, call: Call) -> None:
    """Raises WireError when the other side is gone or stuffed."""
    try:
        sock.sendall(_SHORT.pack(_CALL, call.nonce))
    except OSError as error:
        raise WireError(f"could not send: {error}") from None


def receive_request(sock: socket.socket) -> tuple[Request | Call, int | None]:
    """Jailed side: the next request and the file descriptor that came with it."""
    head, fd = _receive_with_fd(sock, _SHORT.size)
    mark, nonce = _SHORT.unpack(head)
    if mark == _CALL:
        return Call(nonce), fd
    length = _check_length(head[: _LENGTH.size], MAX_REQUEST)
    payload = head[_LENGTH.size :]
    return _request_decoder.decode(payload + _receive_exactly(sock, length - len(payload), None)), fd


def receive_reply(sock: socket.socket, deadline: float) -> Reply:
    """Judge side: the next reply before ``deadline`` (time.monotonic seconds).

    Raises TimeoutError, HangupError, or WireError for anything that is no message.
    """
    head = _receive_exactly(sock, _LENGTH.size, deadline)
    return decode_reply(_receive_exactly(sock, _check_length(head, MAX_FRAME), deadline))


def receive_bytes(sock: socket.socket, deadline: float) -> bytes:
    """Judge side: one frame's payload before ``deadline``, to be decoded when time is no matter.

    Raises as receive_reply, also when more than one frame has come.
    """
    data = _receive_some(sock, 1 << 16, deadline)
    while len(data) < _LENGTH.size:
        data += _receive_some(sock, 1 << 16, deadline)
    whole = _LENGTH.size + _check_length(data[: _LENGTH.size], MAX_FRAME)
    if len(data) < whole:
        data += _receive_exactly(sock, whole - len(data), deadline)
    if len(data) > whole:
        raise WireError("more than one answer to a call")
    return data[_LENGTH.size :]


def decode_reply(payload: bytes) -> Reply:
    """Raises WireError for anything that is no message."""
    try:
        return _reply_decoder.decode(payload)
    except (msgspec.MsgspecError, RecursionError, ValueError, UnicodeError) as error:
        raise WireError(f"not a message: {str(error)[:100]}") from None


def _check_length(head: bytes, cap: int) -> int:
    (length,) = _LENGTH.unpack(head)
    if not 0 < length <= cap:
        raise WireError(f"a frame of {length} bytes, at most {cap} are allowed")
    return int(length)


def _receive_exactly(sock: socket.socket, count: int, deadline: float | None) -> bytes:
    parts, missing = [], count
    while missing > 0:
        part = _receive_some(sock, min(missing, 1 << 16), deadline)
        parts.append(part)
        missing -= len(part)
    return b"".join(parts)


def _receive_some(sock: socket.socket, most: int, deadline: float | None) -> bytes:
    if deadline is not None:
        left = deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError
        sock.settimeout(left)
    try:
        part = sock.recv(most)
    except TimeoutError:
        raise
    except OSError as error:
        raise HangupError(str(error)) from None
    if not part:
        raise HangupError("the process hung up")
    return part


def _receive_with_fd(sock: socket.socket, count: int) -> tuple[bytes, int | None]:
    data, ancillary, _, _ = sock.recvmsg(count, socket.CMSG_SPACE(4))
    if not data:
        raise HangupError("the judge hung up")
    fds = array.array("i")
    for level, kind, payload in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            fds.frombytes(payload[: len(payload) - len(payload) % fds.itemsize])
    if len(data) < count:
        data += _receive_exactly(sock, count - len(data), None)
    return data, fds[0] if fds else None


def pack_value(value: Any, tensors: list[Any]) -> Any:
    """A Python value as msgpack-able data; tensors are moved to ``tensors`` and leave their index.

    Raises TypeError for what cannot cross a process border (functions, modules, ...).
    """
    if hasattr(value, "data_ptr"):
        tensors.append(value)
        return {"tensor": len(tensors) - 1}
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, tuple):
        return {"tuple": [pack_value(item, tensors) for item in value]}
    if isinstance(value, list):
        return [pack_value(item, tensors) for item in value]
    if isinstance(value, dict):
        return {"dict": [[pack_value(k, tensors), pack_value(v, tensors)] for k, v in value.items()]}
    if type(value).__name__ == "dtype" and str(value).startswith("torch."):
        return {"dtype": str(value).removeprefix("torch.")}
    raise TypeError(f"a {type(value).__name__} cannot be passed: use numbers, strings, lists, tuples, dicts, tensors")


def unpack_value(packed: Any, tensors: list[Any]) -> Any:
    """The inverse of pack_value, given the tensors."""
    if isinstance(packed, list):
        return [unpack_value(item, tensors) for item in packed]
    if isinstance(packed, dict):
        ((kind, content),) = packed.items()
        if kind == "tensor":
            return tensors[content]
        if kind == "tuple":
            return tuple(unpack_value(item, tensors) for item in content)
        if kind == "dict":
            return {unpack_value(k, tensors): unpack_value(v, tensors) for k, v in content}
        import torch

        return getattr(torch, content)
    return packed
