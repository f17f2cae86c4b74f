import json
from fractions import Fraction
from typing import Any

import pytest

from cotenant_simulator.core.annotations import AnnotationError, read_sim_usage
from cotenant_simulator.core.courses import TraceRef
from cotenant_simulator.core.scenario import Demand

TRACE = {"trace": "d.csv", "column": "web", "interval": "5m"}


def test_fixed_and_traced_stand_side_by_side():
    usage = read_sim_usage(
        json.dumps({"cpu": TRACE | {"unit": "40m", "repeat": True, "offset": "6h"}, "memory": "1Gi"})
    )
    assert usage.fixed == Demand(None, 1 << 30)
    assert usage.traced == {
        "cpu": TraceRef("d.csv", "web", Fraction(40), None, 300_000, offset_ms=21_600_000, repeat=True)
    }


def test_one_stands_for_a_core_or_a_byte_unless_a_unit_is_given():
    usage = read_sim_usage(json.dumps({"cpu": TRACE, "memory": TRACE}))
    assert (usage.traced["cpu"].unit_of_one, usage.traced["memory"].unit_of_one) == (1_000, 1)


@pytest.mark.parametrize(
    ("cpu", "says"),
    [
        ({"trace": "d.csv", "column": "web"}, "either interval"),
        (TRACE | {"time": "t_s"}, "either interval"),
        (TRACE | {"interval": "0s"}, "above zero"),
        (TRACE | {"interval": "5"}, "expected a duration"),
        (TRACE | {"colum": "x"}, "cpu.colum: unknown field"),
        (TRACE | {"column": ""}, "cpu.column: expected text"),
        (TRACE | {"unit": "0"}, "above zero"),
        (TRACE | {"unit": "m"}, "cpu.unit"),
        (TRACE | {"repeat": "yes"}, "true or false"),
        (TRACE | {"trace": "/etc/passwd"}, "in or below the scenario's folder"),
        (TRACE | {"trace": "../other/d.csv"}, "in or below the scenario's folder"),
        (TRACE | {"trace": "https://example.org/d.csv"}, "in or below the scenario's folder"),
        (["6"], "expected a quantity, or a trace"),
        (None, "expected a quantity, or a trace"),
        (True, "expected a quantity, or a trace"),
        ("much", "cpu: "),
    ],
)
def test_a_trace_that_cannot_be_used_says_which_field(cpu: Any, says: str):
    with pytest.raises(AnnotationError, match="sim-usage") as caught:
        read_sim_usage(json.dumps({"cpu": cpu}))
    assert says in caught.value.message


@pytest.mark.parametrize("text", ["6", "[]", "{", '{"cpu": "1", "gpu": "1"}'])
def test_what_is_no_usage_is_refused(text: str):
    with pytest.raises(AnnotationError):
        read_sim_usage(text)
