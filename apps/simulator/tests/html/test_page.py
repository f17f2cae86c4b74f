import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest

from cotenant_simulator.comparison import compared
from cotenant_simulator.html.page import page
from cotenant_simulator.html.svg import Chart, Line, draw, nice_top

EVIL = '<script>alert("x")</script>&'


class Balanced(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append(tag)
        self.attributes += attrs
        if tag != "meta":
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append(tag)
        self.attributes += attrs

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def parsed(text: str) -> Balanced:
    parser = Balanced()
    parser.feed(text)
    assert parser.open == []
    return parser


def test_nothing_that_comes_from_a_file_can_run(result):
    evil = {"scenario": EVIL, "source": EVIL, "arm": EVIL}
    one = result(1, ok=False, **evil)
    one.expectations[0]["pod"] = EVIL
    one.expectations[0]["got"] = {"phase": EVIL}
    one.series.evictions[-1][EVIL] = 1
    text = page(compared([one, result(2, **evil)]), [(EVIL, EVIL)])
    parser = parsed(text)
    assert "script" not in parser.seen
    assert not [name for name, _ in parser.attributes if name.startswith("on")]
    assert "&lt;script&gt;" in text


def test_the_page_needs_nothing_from_outside(result):
    text = page(compared([result(1)]), [("s.yaml", "kind: Scenario")])
    assert not re.search(r"https?://|url\(|@import|<link|<img", text)
    assert "Content-Security-Policy" in text


def test_every_plot_is_there_for_each_policy_on_one_scale(result):
    runs = [result(seed, pressure=1.0, arm=arm) for arm in ("none", "tight") for seed in (1, 2)]
    runs[-1].series.evictions[-1]["NodeHot"] = 3
    text = page(compared(runs), [])
    for title in (
        "CPU in use",
        "Memory in use",
        "Waiting for a node",
        "Evictions so far",
        "Quota loans",
        "Services under",
    ):
        assert text.count(f"<figcaption>{title}") == 2
    evictions = re.findall(r"<figcaption>Evictions.*?</figure>", text, re.DOTALL)
    tops = [re.findall(r'text-anchor="end">([\d.]+)</text>', one) for one in evictions]
    assert tops[0] == tops[1]
    assert 'class="band' in text, "two seeds lie apart"


def test_without_a_series_there_is_still_a_report(result):
    parsed(page(compared([replace(result(1), series=None)]), []))


def chart(*lines: Line, **more: object) -> Chart:
    filled = {"kind": "line", "times_s": [0.0, 1.0, 2.0], "end_s": 3.0, "empty": "nothing", **more}
    return Chart("Title", "pods", lines=lines, **filled)


def test_what_is_not_known_is_a_gap_and_not_zero():
    picture = draw(chart(Line("a", [1.0, None, 2.0])))
    path = re.search(r'class="line k0" d="([^"]+)"', picture)
    assert path is not None
    assert path[1].count("M") == 2
    assert "a: not known" in picture


def test_a_chart_without_lines_says_why():
    assert "nothing" in draw(chart())
    assert "<svg" not in draw(chart())


@pytest.mark.parametrize(("value", "top"), [(0, 1), (1, 1), (3, 3), (5, 8), (13, 16), (41, 60), (100, 120)])
def test_counts_have_ticks_at_whole_numbers(value: float, top: float):
    assert nice_top(value, whole=True) == top


def test_axes_reach_above_what_they_show():
    for value in (0.003, 0.7, 9.9, 11, 99, 101, 12345):
        assert value <= nice_top(value) <= 1.7 * value
