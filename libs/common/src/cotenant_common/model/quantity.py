"""Kubernetes quantities, parsed exactly.

The grammar is the one of ``k8s.io/apimachinery/pkg/api/resource``: a signed decimal number followed by nothing,
a binary suffix (``Ki`` … ``Ei``), a decimal suffix (``n u m k M G T P E``) or an exponent (``e3``, ``E-2``).
Nothing here passes through a float: ``0.1`` is one tenth.
"""

import re
from decimal import Decimal
from fractions import Fraction
from typing import Final

_QUANTITY: Final = re.compile(
    r"^(?P<sign>[+-]?)(?P<number>\d+(?:\.\d*)?|\.\d+)"
    r"(?:(?P<suffix>[KMGTPE]i|[numkMGTPE])|[eE](?P<exponent>[+-]?\d{1,3}))?\Z",
    re.ASCII,
)
_BINARY: Final = {"Ki": 1, "Mi": 2, "Gi": 3, "Ti": 4, "Pi": 5, "Ei": 6}
_DECIMAL: Final = {"n": -9, "u": -6, "m": -3, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_MAX_LENGTH: Final = 64
_PLAIN: Final = re.compile(r"(\d{1,18})([kMGT]|[KMGT]i)?\Z", re.ASCII)
_UNIT: Final[dict[str | None, int]] = {
    None: 1,
    **{suffix: 10 ** _DECIMAL[suffix] for suffix in "kMGT"},
    **{suffix: 1024 ** _BINARY[suffix] for suffix in ("Ki", "Mi", "Gi", "Ti")},
}
_MILLI: Final = re.compile(r"(\d{1,18})(m?)\Z", re.ASCII)


class QuantityError(ValueError):
    """The text is no Kubernetes quantity, or its value cannot be used where it stands."""


def parse_quantity(text: str | int) -> Fraction:
    """Return the exact value. Raise QuantityError for anything outside the grammar."""
    source = str(text)
    if isinstance(text, bool) or len(source) > _MAX_LENGTH:
        raise QuantityError(f"expected a quantity such as 500m, 2 or 1.5Gi, got {source[:_MAX_LENGTH]!r}")
    match = _QUANTITY.match(source)
    if match is None:
        raise QuantityError(f"expected a quantity such as 500m, 2 or 1.5Gi, got {source!r}")
    value = Fraction(Decimal(match["number"]))
    if match["exponent"] is not None:
        value *= _power_of_ten(int(match["exponent"]))
    elif (suffix := match["suffix"]) in _BINARY:
        value *= 1024 ** _BINARY[suffix]
    elif suffix is not None:
        value *= _power_of_ten(_DECIMAL[suffix])
    return -value if match["sign"] == "-" else value


def _power_of_ten(exponent: int) -> Fraction:
    return Fraction(10) ** exponent


def ceil(value: Fraction) -> int:
    """Round up, away from what would give a user less than was asked for."""
    return -(-value.numerator // value.denominator)


def cpu_milli(text: str | int) -> int:
    """CPU in milli-cores, rounded up as Kubernetes does. Raise QuantityError when negative or malformed."""
    # Nearly all are written as 250m or 2: whole numbers need none of the exact arithmetic, at a twentieth of its cost.
    if type(text) is str and (plain := _MILLI.match(text)) is not None:
        return int(plain[1]) if plain[2] else 1000 * int(plain[1])
    return _non_negative(ceil(parse_quantity(text) * 1000), text)


def whole(text: str | int) -> int:
    """Bytes or counted units, rounded up. Raise QuantityError when negative or malformed."""
    if type(text) is str and (plain := _PLAIN.match(text)) is not None:
        return int(plain[1]) * _UNIT[plain[2]]
    return _non_negative(ceil(parse_quantity(text)), text)


def _non_negative(value: int, text: str | int) -> int:
    if value < 0:
        raise QuantityError(f"expected a quantity that is not negative, got {text!r}")
    return value


def format_cpu(milli: int) -> str:
    """``2`` or ``1500m``."""
    return str(milli // 1000) if milli % 1000 == 0 else f"{milli}m"


def format_bytes(value: int) -> str:
    """The largest binary unit that shows the value exactly, plain bytes otherwise."""
    for suffix in ("Ei", "Pi", "Ti", "Gi", "Mi", "Ki"):
        unit = 1024 ** _BINARY[suffix]
        if value and value % unit == 0:
            return f"{value // unit}{suffix}"
    return str(value)
