"""Break a training run a hundred times and compare what is left with a run that nobody broke.

    python benchmarks/chaos.py                      # 100 faults, about five minutes on 2 cores
    python benchmarks/chaos.py --faults 20 --seed 3 --only node_lost,learner_killed

benchmarks/loop/breaking.py says what is done and what is compared.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import sys
import tempfile
from pathlib import Path

# In place of this folder, whose search.py would hide the package of that name.
sys.path[0] = str(Path(__file__).parent / "loop")

from breaking import chaos, schedule  # noqa: E402


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--faults", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--nodes", type=int, default=3)
    parser.add_argument("--only", default="", help="kinds of faults, with commas between")
    parser.add_argument("--pause", type=float, nargs=2, default=(0.3, 1.5), help="seconds between faults")
    parser.add_argument("--keep", action="store_true", help="keep the folder")
    parser.add_argument("--seconds", type=float, default=3600.0, help="nothing is broken after that")
    arguments = parser.parse_args()
    root = Path(tempfile.mkdtemp(prefix="chaos-", dir="/tmp"))
    faults = schedule(
        arguments.faults, random.Random(arguments.seed), tuple(kind for kind in arguments.only.split(",") if kind)
    )
    report = chaos(
        root,
        faults,
        seed=arguments.seed,
        nodes=arguments.nodes,
        pause=tuple(arguments.pause),
        seconds=arguments.seconds,
    )
    print(json.dumps(report, indent=1))
    if arguments.keep or report["wrong"]:
        print(f"kept: {root}")
    else:
        shutil.rmtree(root, ignore_errors=True)
    return 1 if report["wrong"] else 0


if __name__ == "__main__":
    sys.exit(main())
