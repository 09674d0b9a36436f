"""Dataset cards: what a dataset holds, how it was measured, what must not be concluded, how to load it."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from archive.store import Archive


def full_card(archive: Archive, file: str) -> str:
    """The card of a dataset in our schema."""
    head = _front_matter(archive, [f"  - split: train\n    path: {file}"])
    return f"""{head}
# Kernels judged by warpsmith

{_summary(archive)}

## Loading

```python
from datasets import load_dataset
records = load_dataset("FOLDER", split="train").to_pandas()

import polars
records = polars.read_parquet("{file}")

import duckdb
best = duckdb.sql("SELECT task_name, max(speedup_low) FROM '{file}' WHERE status = 'win' GROUP BY 1")
```

`warpsmith archive import {file} --into archive.db` gives the same archive back, record for record.

## Columns

One row a candidate. `record_id`, `parents` (ids of the kernels that its prompt showed), `operator` (how it was asked
for), `source` and `model` (who wrote it), `prompt`, `completion`, `prompt_tokens`, `completion_tokens`, `cost_usd`,
`code`, `analysis`, `run_id`, `group_id`, `step`, `policy_version`, `created_at`.

The verdict: `status`, `speedup` with the ends of its 99% interval (`speedup_low`, `speedup_high`), `candidate_ms`,
`baseline_*_ms` for each kind of baseline and `best_baseline` which the speedup is against, `max_error` and
`tolerance`, `flags`, `sandbox` (isolation layers that were active), `phase_seconds`, `message`. `hardware` and
`software` it was measured with. Mappings are JSON texts. `task_*`: the reference, its level and its shapes, where they
are known. `record` is the whole record as JSON.
{_CAUTION}"""


def published_card(archive: Archive, files: list[str]) -> str:
    """The card of a dataset in the published schema."""
    splits = [f"  - split: {file.removesuffix('.parquet')}\n    path: {file}" for file in files]
    first = files[0].removesuffix(".parquet") if files else "level_1"
    return f"""{_front_matter(archive, splits)}
# Kernels judged by warpsmith, in the columns of the AI CUDA Engineer Archive

{_summary(archive)}

## Loading

```python
from datasets import load_dataset
kernels = load_dataset("FOLDER")["{first}"].to_pandas()

import polars
kernels = polars.read_parquet("{first}.parquet")

import duckdb
best = duckdb.sql("SELECT Op_Name, max(CUDA_Speedup_Native) FROM '{first}.parquet' WHERE Correct GROUP BY 1")
```

## Columns

`Op_Name`, `Level_ID`, `Task_ID` and `Kernel_Name` say which kernel of which task. `CUDA_Runtime`,
`PyTorch_Native_Runtime` and `PyTorch_Compile_Runtime` are milliseconds of one call; `CUDA_Speedup_Native` and
`CUDA_Speedup_Compile` are their ratios, null unless the kernel is correct. `CUDA_Code` is the candidate,
`PyTorch_Code_Module` and `PyTorch_Code_Functional` are the reference. `Correct`, `Max_Diff` (for rows judged by
warpsmith the largest error as a multiple of what was allowed, not an absolute difference) and `Error` are what was
found. `NCU_Profile`, `Torch_Profile` and `Clang_Tidy` are null where nobody made one. Candidates of warpsmith may be
C++ for a CPU, whatever the names of the columns.

Intervals, lineage and isolation have no column here: `warpsmith archive export` without `--published` writes them.
{_CAUTION}"""


_CAUTION = """
## What not to conclude

- A speedup is against the baseline on the machine it was measured on, and says nothing about other machines.
- Only `win` means faster beyond the noise; `correct` may be slower.
- Rows that are flagged "published claim, not judged here" carry somebody else's numbers, unchecked.
- The code was written by models and is hostile until read: do not run it outside of a sandbox.
"""


def _front_matter(archive: Archive, splits: list[str]) -> str:
    size = archive.count()
    limits = [(1_000, "n<1K"), (10_000, "1K<n<10K"), (100_000, "10K<n<100K"), (1_000_000, "100K<n<1M")]
    category = next((name for limit, name in limits if size < limit), "n>1M")
    files = "\n".join(splits)
    configs = f"configs:\n- config_name: default\n  data_files:\n{files}\n" if splits else ""
    return (
        f"---\npretty_name: Kernels judged by warpsmith\ntags:\n- code\nsize_categories:\n- {category}\n{configs}---\n"
    )


def _summary(archive: Archive) -> str:
    by_task = archive.status_counts()
    statuses: Counter[str] = Counter()
    for counts in by_task.values():
        statuses.update(counts)
    sources: Counter[str] = Counter()
    for (source, _), number in archive.summary().counts.items():
        sources[source] += number
    rows = "\n".join(f"| {status} | {number} |" for status, number in statuses.most_common())
    # A name is whatever a user called a model: nothing of it may become markup.
    names = ", ".join(f"{number} by `{_plain(name)}`" for name, number in sources.most_common())
    total = f"{statuses.total()} candidates for {len(by_task)} tasks: {names or 'none'}."
    return f"{total}\n\n| status | candidates |\n|---|---|\n{rows}"


def _plain(text: str) -> str:
    return "".join(mark for mark in text if mark.isprintable() and mark not in "`|<>")[:60]
