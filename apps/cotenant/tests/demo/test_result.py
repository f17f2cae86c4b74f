import dataclasses
import json

from cotenant.demo import result
from cotenant.demo.plan import Arm


def a_run(**changes):
    values = {
        "duration_s": 200.0,
        "machine": {"cores": 2},
        "knobs_written": 7,
        "knob_differences": (),
        "means": ["full"],
        "calibration": {"service_ms": 2.0},
    }
    return result.Run(**(values | changes))


def test_the_document_has_the_published_keys(build):
    found = json.loads(json.dumps(result.document(build.four_arms(), a_run())))

    assert set(found["arms"]) == {"alone", "uncontrolled", "weights", "cotenant"}
    published = {"busy", "p50_ms", "p99_ms", "p999_ms", "samples", "errors", "work_per_s", "work_share"}
    for arm in found["arms"].values():
        assert published <= set(arm)
        assert 0 <= arm["busy"] <= 1
    assert found["ratios"] == {
        "p99_cotenant_over_alone": 1.25,
        "p99_uncontrolled_over_cotenant": 8.0,
        "p99_weights_over_cotenant": 1.2,
    }
    assert found["knobs_restored"] is True
    assert found["duration_s"] == 200.0
    assert found["machine"] == {"cores": 2}


def test_one_difference_means_that_knobs_were_not_restored(build):
    found = result.document(build.four_arms(), a_run(knob_differences=["cpu.shares: was 1024, is 2"]))

    assert found["knobs_restored"] is False
    assert found["knob_differences"] == ["cpu.shares: was 1024, is 2"]


def test_the_arm_without_neighbours_did_no_work_and_says_so_with_zero(build):
    found = result.document(build.four_arms(), a_run())

    assert found["arms"]["alone"]["work_share"] == 0.0


def test_all_targets_met_is_said_in_words(build):
    arms = build.four_arms()

    assert all(target.met for target in result.targets(arms))
    assert result.verdict(arms, quick=False)[-1] == "every target of the project for a 2-core machine was met"


def test_a_missed_target_is_named_with_what_was_wanted_and_what_came(build):
    arms = build.four_arms() | {Arm.COTENANT: build.arm(Arm.COTENANT, [8.0] * 1000)}
    lines = result.verdict(arms, quick=False)

    assert "missed: service p99 with Cotenant over alone, wanted at most 1.3, got 2" in lines


def test_a_miss_beside_other_load_is_explained_by_it(build):
    noisy = build.arm(Arm.ALONE, [4.0] * 1000, busy_cpu_s=19.0)
    arms = build.four_arms() | {Arm.ALONE: noisy, Arm.COTENANT: build.arm(Arm.COTENANT, [8.0] * 1000)}

    assert "others used 1.00 cores" in result.verdict(arms, quick=False)[-1]


def test_a_quick_run_does_not_claim_that_its_figures_hold(build):
    arms = build.four_arms() | {Arm.COTENANT: build.arm(Arm.COTENANT, [5.0] * 10)}

    assert "too short" in result.verdict(arms, quick=True)[-1]


def test_unknown_is_not_zero_in_ratios(build):
    arms = build.four_arms()
    del arms[Arm.ALONE]

    assert result.ratios(arms)["p99_cotenant_over_alone"] is None


def test_a_run_that_ended_early_keeps_what_it_measured_and_claims_nothing(build):
    arms = {Arm.ALONE: build.four_arms()[Arm.ALONE]}
    found = result.document(arms, dataclasses.replace(a_run(), interrupted=True))

    assert list(found["arms"]) == ["alone"]
    assert found["targets"] == []
    assert found["interrupted"] is True
    assert "ended early" in result.verdict(arms, quick=False)[0]
