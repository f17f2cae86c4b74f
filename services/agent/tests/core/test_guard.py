from cotenant_agent.core.guard import GuardSettings, GuardState, LatencySignal, breach_of, step

SETTINGS = GuardSettings()
CAPACITY = 2_000
SLOW = LatencySignal("default/web", wait_ms_per_slice=9.0, slices=500)
FINE = LatencySignal("default/web", wait_ms_per_slice=0.1, slices=500)


def after(state, signal, rounds, be_milli=1_500):
    for _ in range(rounds):
        state = step(state, [signal], be_milli, CAPACITY, SETTINGS)
    return state


def test_one_bad_sample_changes_nothing():
    assert after(GuardState(), SLOW, 2).cap_milli is None


def test_a_lasting_breach_cuts_best_effort_in_proportion_to_what_it_uses():
    state = after(GuardState(), SLOW, 3)
    assert state.cap_milli == 1_050
    assert "9.0 ms" in state.message


def test_cuts_multiply_down_to_the_floor():
    assert after(GuardState(), SLOW, 40).cap_milli == CAPACITY // 10


def test_recovery_waits_and_then_adds():
    capped = after(GuardState(), SLOW, 3)
    assert after(capped, FINE, 4).cap_milli == 1_050
    assert after(capped, FINE, 5).cap_milli == 1_150
    assert after(capped, FINE, 30).cap_milli is None


def test_a_breach_without_best_effort_load_is_not_its_fault():
    assert after(GuardState(), SLOW, 10, be_milli=50).cap_milli is None


def test_a_cap_that_does_not_help_is_given_back_and_rests():
    state = GuardState()
    for _ in range(300):
        state = step(state, [SLOW], 1_500, CAPACITY, SETTINGS)
        if state.resting:
            break
    assert state.cap_milli is None
    assert state.resting > 0
    assert step(state, [SLOW], 1_500, CAPACITY, SETTINGS).resting == state.resting - 1


def test_few_schedulings_say_nothing():
    assert breach_of(LatencySignal("a/b", wait_ms_per_slice=50.0, slices=3), SETTINGS) is None


def test_a_missed_target_is_a_breach_whatever_the_kernel_says():
    signal = LatencySignal("a/b", wait_ms_per_slice=0.0, slices=500, latency_ms=12.0, target_ms=10.0)
    assert breach_of(signal, SETTINGS) == "a/b answers in 12.0 ms, its target is 10.0 ms"


def test_nothing_measured_is_no_breach():
    assert breach_of(LatencySignal("a/b"), SETTINGS) is None


def test_silence_of_the_pod_it_acts_for_is_no_all_clear():
    state = GuardState(cap_milli=1_000, pod="default/web", message="waits")
    silent = [LatencySignal("default/web")]
    for _ in range(20):
        state = step(state, silent, 500, 4_000, GuardSettings())
    assert state.cap_milli == 1_000
    for _ in range(80):
        state = step(state, [LatencySignal("default/other")], 500, 4_000, GuardSettings())
    assert state.cap_milli is None
