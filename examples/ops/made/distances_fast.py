# A kernel exported by warpsmith; it needs torch and a C++ compiler (g++, or CXX).
# task:      distances (67fd4bac5b5d58f3)
# speedup:   win: 1.69x, 99% interval 1.49 to 1.92, against eager
# hardware:  cores: 1, cpu: AMD EPYC, threads: 1, torch: 2.13.0+cpu
# flags:     none
# record:    f0ca015a5643462890d2f68f7d7852c7 by template in run optimize-65946191dc1f, 2026-12-03T07:50:56.045970+00:00
# sha256:    0f3501fe07f18763440b8f4fd189e39854cc528d09a1089c01e6b93b01268a6c of the candidate as it was judged
# reference: distances.py, variants default, few, odd

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
static inline float fast_exp(float x) {  // 2^n * 2^f; the rest is taken with ln 2 in two parts, so that f is exact
    const float u = x < -87.f ? -87.f : x > 87.f ? 87.f : x;
    union { float v; int i; } n = {u * 1.44269504f + 12582912.f};  // rounds
    const float k = n.v - 12582912.f;
    const float f = (u - k * .693145752f - k * 1.42860677e-6f) * 1.44269504f;
    n.i = (n.i + 127) << 23;
    return n.v * (1.f + f * (.69314698f + f * (.24022242f + f * (.05550734f + f * (.00967151f + f * .00132647f)))));
}

extern "C" void k0(const float* __restrict__ x, const float* __restrict__ centres, float* __restrict__ t0, long n0, long n1, long n2) {
    #pragma omp parallel for collapse(2)
    for (long i0 = 0; i0 < n0; i0++)
        for (long i1 = 0; i1 < n1; i1++) {
            float s0 = 0.f;
            #pragma omp simd reduction(+:s0)
            for (long i2 = 0; i2 < n2; i2++) {
                const float v1 = x[i0 * n2 + i2];
                const float v2 = centres[i1 * n2 + i2];
                const float v3 = v1 - v2;
                const float v4 = v3 * v3;
                s0 += v4;
            }
            const float v5 = -s0;
            t0[i0 * n1 + i1] = v5;
        }
}
extern "C" void k1(const float* __restrict__ t0, float* __restrict__ out, long n0, long n1) {
    #pragma omp parallel for
    for (long i0 = 0; i0 < n0; i0++) {
        float s0 = -INFINITY;
        #pragma omp simd reduction(max:s0)
        for (long i1 = 0; i1 < n1; i1++)
            s0 = s0 < t0[i0 * n1 + i1] ? t0[i0 * n1 + i1] : s0;
        float s1 = 0.f;
        #pragma omp simd reduction(+:s1)
        for (long i1 = 0; i1 < n1; i1++) {
            const float v2 = t0[i0 * n1 + i1];
            const float v3 = v2 - s0;
            const float v4 = fast_exp(v3);
            s1 += v4;
            out[i0 * n1 + i1] = v4;
        }
        #pragma omp simd
        for (long i1 = 0; i1 < n1; i1++) {
            const float v5 = out[i0 * n1 + i1] / s1;
            out[i0 * n1 + i1] = v5;
        }
    }
}
""")


class ModelNew(torch.nn.Module):
    def forward(self, x, centres):
        x = x.contiguous()
        centres = centres.contiguous()
        t0 = x.new_empty((x.shape[0], centres.shape[0]))
        kernel.k0(x, centres, t0, x.shape[0], centres.shape[0], x.shape[1])
        out = x.new_empty((x.shape[0], centres.shape[0]))
        kernel.k1(t0, out, t0.shape[0], t0.shape[1])
        return out
