from cotenant_agent.core.transitions import Change, Watched, observe


def changes(levels, begin_after=3, end_after=2):
    state, found = Watched(), []
    for level in levels:
        state, change = observe(state, level, begin_after, end_after)
        found.append(change)
    return [change for change in found if change is not Change.NONE]


def test_only_a_lasting_change_is_told():
    assert changes([True, True, False, True, True]) == []
    assert changes([True, True, True]) == [Change.BEGAN]


def test_it_is_told_once_and_its_end_once():
    assert changes([True] * 9 + [False, True, False, False, False]) == [Change.BEGAN, Change.ENDED]
