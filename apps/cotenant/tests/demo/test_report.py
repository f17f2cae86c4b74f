import io

from rich.console import Console

from cotenant.demo import report
from cotenant.demo.result import Run


def shown(arms, **changes):
    values = {
        "duration_s": 200.0,
        "machine": {},
        "knobs_written": 12,
        "knob_differences": (),
        "means": [],
        "calibration": {},
    }
    console = Console(file=io.StringIO(), width=160)
    report.show(console, arms, Run(**(values | changes)), [])
    return console.file.getvalue()


def test_the_table_has_a_row_per_arm_and_what_was_restored(build):
    text = shown(build.four_arms())

    for words in ("alone", "uncontrolled", "minimal weight", "Cotenant", "12 knobs written; restored: 0 differences"):
        assert words in text


def test_differences_are_listed_one_by_one(build):
    text = shown(build.four_arms(), knob_differences=["/x/cpu.shares: was 1024, is 2"])

    assert "restored: 1 difference\n" in text
    assert "/x/cpu.shares: was 1024, is 2" in text


def test_nothing_measured_shows_no_table_and_still_says_what_was_restored():
    text = shown({}, knobs_written=0, interrupted=True)

    assert "machine busy" not in text
    assert "restored: 0 differences" in text
