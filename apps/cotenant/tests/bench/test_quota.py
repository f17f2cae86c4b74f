from cotenant.bench import quota


def test_the_result_has_the_figures_that_are_asked_for() -> None:
    found = quota.measure(12, 2, 2, runs=2, admissions=20, say=lambda _text: None)
    asked = {"quotas", "dimensions", "levels", "recompute_ms", "p99_ms", "admissions_per_s", "rss_mib", "runs", "rig"}
    assert asked <= set(found)
    assert (found["quotas"], len(found["runs"])) == (12, 2)
