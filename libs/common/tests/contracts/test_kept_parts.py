import pytest

from cotenant_common.contracts import codec
from cotenant_common.contracts.messages.state import QuotaLoan, QuotaRuntime, QuotaTreeStatus


def _status(*used: int) -> QuotaTreeStatus:
    return QuotaTreeStatus(
        tree="t",
        generation=1,
        specs_revision=1,
        bindings_revision=1,
        nodes_revision=1,
        total={"cpu": 9},
        quotas=[QuotaRuntime(name=f"q{index}", used={"cpu": amount}) for index, amount in enumerate(used)],
        loans=[QuotaLoan(lender="a", borrower="b", resource="cpu", amount=1)],
        computed_ms=0,
    )


def test_what_did_not_change_is_read_once_and_equals_what_was_written() -> None:
    first = codec.decode(QuotaTreeStatus, codec.encode(_status(1, 2, 3)))
    second = codec.decode(QuotaTreeStatus, codec.encode(_status(1, 5, 3)))
    assert (first, second) == (_status(1, 2, 3), _status(1, 5, 3))
    assert [one is other for one, other in zip(first.quotas, second.quotas, strict=True)] == [True, False, True]


def test_what_no_message_repeats_is_forgotten() -> None:
    first = codec.decode(QuotaTreeStatus, codec.encode(_status(0)))
    for used in range(3_000):
        assert codec.decode(QuotaTreeStatus, codec.encode(_status(used))) == _status(used)
    again = codec.decode(QuotaTreeStatus, codec.encode(_status(0)))
    assert again.quotas[0] is not first.quotas[0], "it would be kept for ever"
    assert again.loans[0] is first.loans[0], "every message repeated it"


@pytest.mark.parametrize(
    "data",
    [
        b"",
        codec.encode(_status(1)) + b"x",
        codec.encode(_status(1))[:-3],
        codec.pack({"tree": "t", "quotas": [{"name": 1}]}),
        codec.pack({"quotas": 7}),
        codec.pack([1]),
    ],
)
def test_what_cannot_be_read_is_told_like_everywhere(data: bytes) -> None:
    with pytest.raises(codec.DecodeError):
        codec.decode(QuotaTreeStatus, data)


def test_the_field_at_fault_is_named() -> None:
    broken = {**_status(1).model_dump(), "quotas": [{"name": "q", "used": {"cpu": "many"}}]}
    with pytest.raises(codec.DecodeError, match=r"QuotaTreeStatus: quotas\.0\.used\.cpu"):
        codec.decode(QuotaTreeStatus, codec.pack(broken))
