"""Does a candidate's kernel do its work? A candidate that would win is called once more with its kernels emptied.

Each source that it compiles is replaced by one that defines the same names and does nothing. If every output is right
all the same, the answer comes from elsewhere, from a library's calls mostly, and the candidate brings no kernel of its
own, whatever its text says. Attribution is by what was compiled and not by names; one that looks whether its kernels
were emptied gains no more than it would without this test.
"""

from __future__ import annotations

from judge.c_declarations import parse_functions
from judge.errors import SignatureError
from judge.wire import Compile

RIGHT_WITHOUT_KERNELS = "right without its kernels"
"""Flag of such a candidate."""


def emptied(order: Compile) -> Compile:
    """The order to compile the same functions with nothing in them. (How they are called is read from the original
    source, so they need not take parameters.) Raises SignatureError: the source declares none."""
    if order.language == "cuda":
        from judge.load_cuda import parse_kernels

        names = parse_kernels(order.source)
        form = 'extern "C" __global__ void {}() {{}}'
    else:
        names = parse_functions(order.source)
        form = 'extern "C" long long {}() {{ return 0; }}'
    if not names:
        raise SignatureError('the source defines no extern "C" function')
    return Compile(
        source="\n".join(form.format(name) for name in names), language=order.language, options=order.options
    )
