"""What a builder's jail left behind, taken over: plain files only, within limits, readable by everybody, changed by
nobody."""

from __future__ import annotations

import os
import shutil
import stat
from pathlib import Path

from judge.extension_builds import EXTENSIONS, TRITON
from judge.process import ForeignFailure
from judge.types import Status

MAX_BYTES = 256 << 20
MAX_FILES = 4096


def keep_products(scratch: Path, target: Path) -> int:
    """Copy the products from a builder's folder; returns their bytes.

    Triton notes full paths of its files in its index: they are made those of the target.

    Raises ForeignFailure: more than MAX_BYTES or MAX_FILES.
    """
    total = count = 0
    target.mkdir(mode=0o755)
    for name in (EXTENSIONS, TRITON):
        for folder, subfolders, files in os.walk(scratch / name, followlinks=False):
            place = target / Path(folder).relative_to(scratch)
            place.mkdir(mode=0o755, parents=True, exist_ok=True)
            subfolders[:] = [sub for sub in subfolders if not (Path(folder) / sub).is_symlink()]
            for file in files:
                source = Path(folder) / file
                state = source.lstat()
                if not stat.S_ISREG(state.st_mode):
                    continue
                total, count = total + state.st_size, count + 1
                if total > MAX_BYTES or count > MAX_FILES:
                    shutil.rmtree(target, ignore_errors=True)
                    raise ForeignFailure(
                        Status.REJECTED, f"it built more than {MAX_BYTES >> 20} MiB or {MAX_FILES} files"
                    )
                if file.startswith("__grp__"):
                    text = source.read_text("utf-8", errors="replace")
                    (place / file).write_text(text.replace(str(scratch), str(target)), "utf-8")
                else:
                    shutil.copyfile(source, place / file)
                (place / file).chmod(0o555)
    return total
