from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cotenant_common.model.quantity import (
    QuantityError,
    ceil,
    cpu_milli,
    format_bytes,
    format_cpu,
    parse_quantity,
    whole,
)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0", Fraction(0)),
        ("1", Fraction(1)),
        ("+1", Fraction(1)),
        ("-2", Fraction(-2)),
        (".5", Fraction(1, 2)),
        ("5.", Fraction(5)),
        ("0.1", Fraction(1, 10)),
        ("100n", Fraction(1, 10**7)),
        ("1u", Fraction(1, 10**6)),
        ("500m", Fraction(1, 2)),
        ("1k", Fraction(1000)),
        ("1.5Gi", Fraction(3, 2) * 2**30),
        ("2Ei", Fraction(2**61)),
        ("1E", Fraction(10**18)),
        ("1e3", Fraction(1000)),
        ("1E3", Fraction(1000)),
        ("12e-1", Fraction(12, 10)),
        ("1e+2", Fraction(100)),
        (7, Fraction(7)),
    ],
)
def test_the_grammar_is_parsed_exactly(text: str | int, value: Fraction) -> None:
    assert parse_quantity(text) == value


@pytest.mark.parametrize(
    "text",
    [
        "",
        " 1",
        "1 ",
        "1\n",
        "1kb",
        "1K",
        "1ki",
        "Gi",
        "1Gi2",
        "0x10",
        "1_000",
        "١",
        "1e",
        "1e3Gi",
        "1e9999",
        "NaN",
        "inf",
        "--1",
        "1" * 65,
        True,
        "1,5",
        "1.2.3",
        ".",
    ],
)
def test_what_is_outside_the_grammar_is_refused(text: str) -> None:
    with pytest.raises(QuantityError, match="expected a quantity"):
        parse_quantity(text)


def test_256m_of_memory_is_a_quarter_of_a_byte_and_rounds_up() -> None:
    assert parse_quantity("256m") == Fraction(256, 1000)
    assert whole("256m") == 1


def test_cpu_rounds_up_to_a_milli_core() -> None:
    assert [cpu_milli(text) for text in ("1", "0.1", "100m", "1n", "1.0001", "0")] == [1000, 100, 100, 1, 1001, 0]


@pytest.mark.parametrize("read", [cpu_milli, whole])
def test_a_negative_amount_of_a_resource_is_refused(read: object) -> None:
    with pytest.raises(QuantityError, match="not negative"):
        read("-1")  # type: ignore[operator]


def test_formats_choose_the_largest_exact_unit() -> None:
    assert [format_cpu(value) for value in (2000, 1500, 0)] == ["2", "1500m", "0"]
    assert [format_bytes(value) for value in (0, 1023, 1024, 3 << 29, 1 << 60)] == ["0", "1023", "1Ki", "1536Mi", "1Ei"]


@given(st.integers(min_value=0, max_value=2**62))
def test_formatted_values_parse_back(value: int) -> None:
    assert whole(format_bytes(value)) == value
    assert cpu_milli(format_cpu(value)) == value


@given(st.decimals(allow_nan=False, allow_infinity=False, min_value=-(10**9), max_value=10**9, places=6))
def test_any_plain_decimal_is_exact(value: object) -> None:
    assert parse_quantity(f"{value:f}") == Fraction(f"{value:f}")


SUFFIXES = ["", "n", "u", "m", "k", "M", "G", "T", "P", "E", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei", "e3", "E-2"]
TEXTS = st.builds(
    lambda sign, whole, part, suffix: f"{sign}{whole}{part}{suffix}",
    st.sampled_from(["", "", "", "+", "-"]),
    st.one_of(st.integers(0, 10**20).map(str), st.integers(0, 999).map(lambda n: f"{n:06}")),
    st.sampled_from(["", "", ".", ".5", ".001"]),
    st.sampled_from(SUFFIXES),
)


@given(TEXTS)
def test_the_short_way_for_whole_numbers_says_what_the_exact_arithmetic_says(text: str) -> None:
    value = parse_quantity(text)
    for read, exact in ((cpu_milli, ceil(value * 1000)), (whole, ceil(value))):
        if exact < 0:
            with pytest.raises(QuantityError):
                read(text)
        else:
            assert read(text) == exact


@pytest.mark.parametrize("text", ["٣", "2\n", " 2", "2 Gi", "1_000", "0x10", "250mm", ""])
def test_no_short_way_takes_what_the_grammar_refuses(text: str) -> None:
    for read in (cpu_milli, whole):
        with pytest.raises(QuantityError):
            read(text)
