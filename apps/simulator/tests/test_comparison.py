from cotenant_simulator.comparison import as_data, as_text, compared


def test_a_figure_is_told_with_its_median_and_interval(result):
    (found,) = compared([result(seed, pressure=value) for seed, value in enumerate((1.0, 2.0, 9.0))])
    estimate = found.arms[0].figures["pressure_minutes"]
    assert (estimate.value, estimate.low, estimate.high, estimate.count) == (2, 1, 9, 3)
    assert found.differences == {}
    text = as_text([found])
    assert "pressure_minutes   2 [1, 9]" in text
    assert "expectations held  3 of 3" in text
    assert "waiting.prod.p95_s" not in text, "nobody knows it"


def test_policies_are_compared_on_the_same_seeds(result):
    runs = [result(seed, pressure=float(10 * seed)) for seed in range(1, 6)]
    runs += [result(seed, pressure=10.0 * seed - 3 - seed / 100, arm="tight") for seed in range(1, 6)]
    (found,) = compared(runs)
    difference = found.differences["pressure_minutes"]
    assert difference.notable, "the seeds lie far apart, the pairs do not"
    assert difference.high < -2.9
    assert "-3.03 [" in as_text([found])
    assert "differs" in as_text([found])


def test_figures_that_no_run_knows_have_no_difference(result):
    (found,) = compared([result(1), result(1, arm="tight")])
    assert "pressure_minutes" not in found.differences
    assert "waiting.all.count" in found.differences


def test_failed_expectations_are_named_with_line_policy_and_seeds(result):
    text = as_text(compared([result(1), result(2, ok=False), result(1, arm="tight", ok=False), result(2, arm="tight")]))
    assert "FAILED s.yaml:7, policy none, seed 2\n" in text
    assert "FAILED s.yaml:7, policy tight, seed 1" in text


def test_scenarios_stand_beside_each_other(result):
    found = compared([result(1, pressure=1.0), result(1, pressure=2.5, source="t.yaml", scenario="other")])
    lines = [line.split() for line in as_text(found).splitlines()]
    assert lines[0] == ["FIGURE", "story", "other"]
    assert ["pressure_minutes", "1", "2.5"] in lines


def test_the_data_says_how_it_was_made_and_keeps_unknown_apart_from_zero(result):
    data = as_data(compared([result(1)]))
    (scenario,) = data["scenarios"]
    (policy,) = scenario["policies"]
    assert scenario["differences"] is None
    assert policy["expectations"] == {"held": 1, "of": 1}
    assert policy["figures"]["pressure_minutes"] is None
    assert policy["figures"]["evictions.total"]["value"] == 0
    assert policy["runs"][0]["seed"] == 1
    assert "bootstrap" in data["method"]["interval"]
