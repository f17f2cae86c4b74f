"""The report as one HTML page. Everything that came from a file is escaped, and nothing on the page can run."""

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any

import yaml

from cotenant_simulator import comparison
from cotenant_simulator.comparison import ArmOf, Compared
from cotenant_simulator.core import durations
from cotenant_simulator.html import charts, svg
from cotenant_simulator.html.style import CSS

_POLICY = "default-src 'none'; style-src 'unsafe-inline'"
"""What a browser lets the page do: show itself."""


def page(found: Sequence[Compared], texts: Sequence[tuple[str, str]]) -> str:
    """``texts`` are the files by name, to be folded away at the end."""
    title = f"Simulation of {found[0].scenario}" if len(found) == 1 else f"Simulation of {len(found)} scenarios"
    parts = [
        f"<h1>{escape(title)}</h1>",
        _paragraph(_what_ran(found)),
        *([_contents(found)] if len(found) > 1 else []),
        *(_section(at, one) for at, one in enumerate(found)),
        "<h2>What was run</h2>",
        *(f"<details><summary>{escape(name)}</summary><pre>{escape(text)}</pre></details>" for name, text in texts),
        *(_paragraph(f"{name.capitalize()}: {text}.") for name, text in comparison.METHOD.items()),
        _paragraph("Bands in the charts reach from the least to the greatest seed; stacks show means."),
    ]
    head = (
        '<meta charset="utf-8"><meta name="viewport" content="width=device-width,initial-scale=1">'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
        f"<title>{escape(title)}</title><style>{CSS}</style>"
    )
    body = "\n".join(parts)
    return f'<!doctype html>\n<html lang="en"><head>{head}</head>\n<body><main>\n{body}\n</main></body></html>\n'


def _paragraph(text: str) -> str:
    return f'<p class="soft">{escape(text)}</p>'


def _what_ran(found: Sequence[Compared]) -> str:
    arms = found[0].arms
    seeds = len(arms[0].results)
    policies = f", policies {' and '.join(arm.name for arm in arms)}" if len(arms) > 1 else ""
    return f"The production services in virtual time; {seeds} {'seed' if seeds == 1 else 'seeds'} each{policies}."


def _contents(found: Sequence[Compared]) -> str:
    rows = (
        (
            f'<a href="#s{at}">{escape(one.scenario)}</a>',
            *(_held(arm) for arm in one.arms),
            *([str(sum(each.notable for each in one.differences.values()))] if one.differences else []),
        )
        for at, one in enumerate(found)
    )
    arms = [arm.name for arm in found[0].arms]
    names = [f"expectations held, {arm}" for arm in arms] if len(arms) > 1 else ["expectations held"]
    more = ["figures that differ"] if any(one.differences for one in found) else []
    return _table(["scenario", *names, *more], rows)


def _table(header: Iterable[str], rows: Iterable[Sequence[str]]) -> str:
    """``rows`` are HTML already."""
    titles = "".join(f"<th>{escape(name)}</th>" for name in header)
    body = "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>" for row in rows)
    return f'<div class="wide"><table><thead><tr>{titles}</tr></thead><tbody>{body}</tbody></table></div>'


def _section(at: int, one: Compared) -> str:
    length = durations.show(one.arms[0].results[0].virtual_ms)
    seeds = ", ".join(str(result.seed) for result in one.arms[0].results)
    return "\n".join(
        [
            f'<h2 id="s{at}">{escape(one.scenario)}</h2>',
            _paragraph(f"{one.source}; {length} of virtual time; seeds {seeds}"),
            _plots(one),
            "<h3>Summary</h3>",
            _figures(one),
            _expectations(one),
        ]
    )


def _plots(one: Compared) -> str:
    drawn = charts.on_one_scale([charts.charts(arm.results) for arm in one.arms])
    if len(drawn) == 1:
        return f'<div class="single">{"".join(svg.draw(chart) for chart in drawn[0])}</div>'
    columns = (
        f'<div class="arm"><h3>{escape(arm.name)}</h3>{"".join(svg.draw(chart) for chart in found)}</div>'
        for arm, found in zip(one.arms, drawn, strict=True)
    )
    return f'<div class="arms">{"".join(columns)}</div>'


def _figures(one: Compared) -> str:
    names = comparison.known(one.arms)
    arms = [arm.name for arm in one.arms]
    header = ["figure", *arms] if len(arms) > 1 else ["figure", "value"]
    if one.differences:
        header += [f"{arms[1]} less {arms[0]}", ""]
    return _table(header, (_figure_row(one, name) for name in names))


def _figure_row(one: Compared, name: str) -> list[str]:
    row = [escape(name), *(_number(comparison.shown(arm.figures[name])) for arm in one.arms)]
    if one.differences:
        difference = one.differences.get(name)
        said = comparison.verdict(difference)
        shown = f"<strong>{escape(said)}</strong>" if difference is not None and difference.notable else escape(said)
        row += [_number(comparison.shown_difference(difference)), shown]
    return row


def _number(text: str) -> str:
    return f'<span class="num">{escape(text)}</span>'


def _held(arm: ArmOf) -> str:
    good = "good" if arm.held == arm.expected else "bad"
    return f'<span class="{good}">{arm.held} of {arm.expected}</span>' if arm.expected else "none written"


def _expectations(one: Compared) -> str:
    first = one.arms[0].results[0].expectations
    if not first:
        return _paragraph("Nothing was expected.")
    rows = (
        (
            f"{escape(str(expectation['line']))}",
            f"<code>{escape(_written(expectation))}</code>",
            *(_outcome(arm, at) for arm in one.arms),
        )
        for at, expectation in enumerate(first)
    )
    names = [f"held, {arm.name}" for arm in one.arms] if len(one.arms) > 1 else ["held"]
    return "<h3>Expectations</h3>" + _table(["line", "expected", *names], rows)


def _written(expectation: Mapping[str, Any]) -> str:
    kept = {name: value for name, value in expectation.items() if name not in ("ok", "got", "line")}
    text: str = yaml.safe_dump(kept, default_flow_style=True, sort_keys=False, allow_unicode=True, width=10_000)
    return text.strip()


def _outcome(arm: ArmOf, at: int) -> str:
    held = sum(result.expectations[at]["ok"] for result in arm.results)
    count = len(arm.results)
    if held == count:
        return f'<span class="good">{held} of {count}</span>'
    failed = next(result for result in arm.results if not result.expectations[at]["ok"])
    got = f"seed {failed.seed} got {failed.expectations[at]['got']!r}"
    return f'<span class="bad">{held} of {count}</span> <span class="soft">{escape(got)}</span>'
