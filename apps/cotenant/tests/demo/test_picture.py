from cotenant.demo.picture import binned, draw
from cotenant.demo.plan import Arm


def test_bins_with_too_few_requests_have_no_percentile(build):
    busy = build.samples([1.0] * 40)  # 0.4 s of one bin
    lonely = build.samples([9.0])

    assert binned(busy, 99.0, 10) == [(0.25, 1.0)]
    assert binned(lonely, 99.0, 10) == []


def test_a_picture_is_written_also_when_arms_are_missing(build, tmp_path):
    seen = [build.observation(0.5), build.observation(1.0, cap_milli=None)]
    segments = [build.segment(Arm.ALONE, {}), build.segment(Arm.COTENANT, started_s=12.0, observations=seen)]

    draw(segments, 2, "a machine", tmp_path / "demo.svg")

    text = (tmp_path / "demo.svg").read_text()
    assert text.startswith("<?xml")
    assert len(text) < 1_000_000
