# A kernel exported by warpsmith; it needs torch and a C++ compiler (g++, or CXX).
# task:      fused_gelu (4d7b67500e5eee9e)
# speedup:   win: 1.51x, 99% interval 1.41 to 1.61, against eager
# hardware:  cores: 1, cpu: AMD EPYC, threads: 1, torch: 2.13.0+cpu
# flags:     none
# record:    012a207ecfa2497c9f098d490aa40443 by template in run optimize-a80f84f18dd0, 2026-12-03T07:52:20.801273+00:00
# sha256:    edd4d528db81ae41d504f123f955c33244ff8539d432889240bbb96c1ab9f93c of the candidate as it was judged
# reference: task.py, variants default, tall, odd

# What the kernel below uses of the package warpsmith, made to stand alone.
from typing import Any


def _stand_in() -> Any:
    import ctypes
    import os
    import re
    import subprocess
    import tempfile
    from pathlib import Path
    from types import SimpleNamespace

    flags = ("-O3", "-march=native", "-fopenmp", "-std=c++17", "-fPIC", "-shared")
    dtypes = {"float": "float32", "double": "float64", "int": "int32", "int32_t": "int32", "long": "int64"}
    dtypes |= {"int64_t": "int64", "long long": "int64", "short": "int16", "int16_t": "int16", "int8_t": "int8"}
    dtypes |= {"signed char": "int8", "unsigned char": "uint8", "uint8_t": "uint8", "char": "uint8", "bool": "bool"}
    numbers: dict[str, Any] = {"float": ctypes.c_float, "double": ctypes.c_double, "bool": ctypes.c_bool}
    numbers |= {"char": ctypes.c_char, "short": ctypes.c_short, "int": ctypes.c_int, "unsigned": ctypes.c_uint}
    numbers |= {"unsigned int": ctypes.c_uint, "long": ctypes.c_long, "long int": ctypes.c_long}
    numbers |= {"unsigned long": ctypes.c_ulong, "long long": ctypes.c_longlong, "size_t": ctypes.c_size_t}
    numbers |= {"unsigned long long": ctypes.c_ulonglong, "ptrdiff_t": ctypes.c_ssize_t, "ssize_t": ctypes.c_ssize_t}
    numbers |= {f"{u}int{n}_t": getattr(ctypes, f"c_{u}int{n}") for u in ("", "u") for n in (8, 16, 32, 64)}

    def c_type(parameter: str) -> tuple[Any, str | None]:
        qualifiers = r"\b(const|volatile|restrict|__restrict__|__restrict|struct|register)\b|std::|[*\[\]]"
        words = re.sub(qualifiers, " ", parameter).split()
        name = " ".join(words[:-1] if len(words) > 1 else words)
        if "*" in parameter or "[" in parameter:
            return ctypes.c_void_p, dtypes.get(name)
        return numbers[name], None

    def convert(name: str, kind: Any, dtype: str | None, argument: Any) -> Any:
        if kind is not ctypes.c_void_p or argument is None:
            return float(argument) if kind in (ctypes.c_float, ctypes.c_double) else argument
        if not argument.is_contiguous() or argument.device.type != "cpu":
            raise ValueError(f"{name} takes contiguous CPU tensors")
        if dtype not in (None, str(argument.dtype).removeprefix("torch.")):
            raise TypeError(f"{name} takes a {dtype} tensor here, got {argument.dtype}")
        return argument.data_ptr()

    class Kernels:
        def __init__(self, source: str, library: Any) -> None:
            self._source = re.sub(r"//[^\n]*|/\*.*?\*/", " ", source, flags=re.S)
            self._library = library

        def __getattr__(self, name: str) -> Any:
            declared = re.search(rf"\b{re.escape(name)}\s*\(([^()]*)\)\s*\{{", self._source)
            if declared is None:
                raise AttributeError(f"the source defines no function {name}")
            parameters = [text for text in declared[1].split(",") if text.strip() not in ("", "void")]
            kinds = [c_type(text) for text in parameters]
            function = getattr(self._library, name)
            function.restype, function.argtypes = None, [kind for kind, _ in kinds]

            def call(*arguments: Any) -> None:
                if len(arguments) != len(kinds):
                    raise TypeError(f"{name} takes {len(kinds)} arguments, got {len(arguments)}")
                function(*[convert(name, *kind, given) for kind, given in zip(kinds, arguments, strict=True)])

            setattr(self, name, call)  # the next call finds it at once
            return call

    def load_cpp(source: str) -> Any:
        with tempfile.TemporaryDirectory() as folder:
            cpp, library = Path(folder, "kernel.cpp"), Path(folder, "kernel.so")
            cpp.write_text(source)
            subprocess.run([os.environ.get("CXX", "g++"), *flags, str(cpp), "-o", str(library)], check=True)
            return Kernels(source, ctypes.CDLL(str(library)))

    return SimpleNamespace(load_cpp=load_cpp)


warpsmith = _stand_in()


import torch
pass

kernel = warpsmith.load_cpp(r"""
#pragma GCC optimize("no-trapping-math", "no-math-errno")
#include <cmath>
static inline float fast_erf(float x) {
    const float u = x < -3.92f ? -3.92f : x > 3.92f ? 3.92f : x, s = u * u;
    const float p = 1.128379146f + s * (.1904047853f + s * (.0527484017f + s * (3.765513297e-3f
        + s * (2.84874985e-4f + s * 2.050031635e-6f))));
    const float q = 1.f + s * (.5020745899f + s * (.1141083249f + s * (.01496901947f
        + s * (1.162499938e-3f + s * 3.809072917e-5f))));
    return u * p / q;
}

extern "C" void k0(const float* __restrict__ x, const float* __restrict__ bias, const float* __restrict__ residual, float* __restrict__ out, long n0, long n1, float a0) {
    #pragma omp parallel for
    for (long i0 = 0; i0 < n0; i0++) {
        #pragma omp simd
        for (long i1 = 0; i1 < n1; i1++) {
            const float v0 = x[i0 * n1 + i1];
            const float v1 = bias[i1];
            const float v2 = v0 + v1;
            const float v3 = 0.5f * v2 * (1.f + fast_erf(v2 * 0.7071067812f));
            const float v4 = v3 * a0;
            const float v5 = residual[i0 * n1 + i1];
            const float v6 = v4 + v5;
            out[i0 * n1 + i1] = v6;
        }
    }
}
""")


class ModelNew(torch.nn.Module):
    def __init__(self, scale):
        super().__init__()
        self.scale = scale

    def forward(self, x, bias, residual):
        x = x.contiguous()
        bias = bias.contiguous()
        residual = residual.contiguous()
        out = torch.empty_like(x)
        kernel.k0(x, bias, residual, out, x.shape[0], x.shape[1], self.scale)
        return out
