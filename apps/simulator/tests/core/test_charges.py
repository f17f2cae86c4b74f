from cotenant_common.contracts.messages.state import Binding, SpecRecord
from cotenant_common.testing import builders
from cotenant_simulator.core.charges import used_by_quota

DEFAULT = "koordinator-default-quota"


def _quota(name: str, parent: str | None = None, *, is_parent: bool = False) -> SpecRecord:
    manifest = builders.quota_manifest(name, minimum={"cpu": 1}, maximum={"cpu": 8}, parent=parent, is_parent=is_parent)
    return builders.spec_record(manifest)


def _bound(uid: str, quota: str | None) -> Binding:
    return Binding(
        uid=uid, namespace="default", name=uid, node="n1", attempt=1, epoch=1, spec_digest="",
        requests={"cpu": 1000}, quota=quota, bound_ms=0,
    )  # fmt: skip


def _pod(uid: str, quota: str | None) -> SpecRecord:
    return builders.spec_record(builders.pod_manifest(uid, cpu=1, quota=quota), uid=uid)


def test_a_pod_is_charged_to_its_quota_and_all_above_it() -> None:
    specs = [_quota("p", is_parent=True), _quota("a", "p"), _pod("x", "a")]
    assert used_by_quota(specs, [_bound("x", "a")]) == {"a": {"cpu": 1000}, "p": {"cpu": 1000}}


def test_a_pod_that_was_bound_before_its_quota_existed_is_charged_to_it_now() -> None:
    pods = [_pod("x", "later"), _pod("y", None)]
    bound = [_bound("x", None), _bound("y", None)]
    assert used_by_quota(pods, bound) == {DEFAULT: {"cpu": 2000}}
    assert used_by_quota([*pods, _quota("later")], bound) == {"later": {"cpu": 1000}, DEFAULT: {"cpu": 1000}}


def test_a_pod_whose_object_is_gone_is_charged_to_what_its_binding_names() -> None:
    assert used_by_quota([_quota("a")], [_bound("x", "a")]) == {"a": {"cpu": 1000}}
