import pytest

from cotenant_scheduler import bench


@pytest.mark.parametrize("mix", ["one", "templates", "distinct"])
def test_every_pod_is_placed(mix):
    result = bench.run(20, 60, mix)
    assert result["placed"] == 60
    assert result["pods_per_s"] > 0


def test_the_noisy_case_places_them_too(monkeypatch):
    monkeypatch.setattr(bench, "NOISY_WAITING", 50)
    assert bench.run(20, 60, noisy=True)["placed"] == 60
