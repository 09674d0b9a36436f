"""The dashboard asks for numbers that are there, and for all of them."""

from __future__ import annotations

import json
import re
from pathlib import Path

from actors.gauges import POOL_COUNTERS, POOL_GAUGES, TRAIN_GAUGES

DASHBOARD = json.loads((Path(__file__).parents[2] / "deploy" / "grafana.json").read_text())


def test_every_number_that_ray_is_given_is_on_the_dashboard_and_no_other() -> None:
    asked = set()
    for panel in DASHBOARD["panels"]:
        for target in panel["targets"]:
            asked |= set(re.findall(r"ray_warpsmith_\w+", target["expr"]))
    # Prometheus's clients add _total to counters, Ray adds ray_ to all.
    there = {f"ray_{name}" for name in (*POOL_GAUGES, *TRAIN_GAUGES)} | {f"ray_{name}_total" for name in POOL_COUNTERS}
    assert asked == there


def test_panels_have_places_that_do_not_overlap_and_say_what_they_mean() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in DASHBOARD["panels"]:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken
        taken |= cells
        assert panel["description"].endswith(".")
    assert len({panel["id"] for panel in DASHBOARD["panels"]}) == len(DASHBOARD["panels"])
