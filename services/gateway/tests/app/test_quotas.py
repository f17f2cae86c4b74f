from contextlib import asynccontextmanager

from cotenant_common.contracts import buckets, codec
from cotenant_common.contracts.messages.state import QuotaLoan, QuotaRuntime, QuotaTreeStatus
from cotenant_common.testing.builders import pod_manifest, quota_manifest
from cotenant_common.testing.virtual_loop import in_virtual_time
from cotenant_gateway.testing import stage

STATUS = QuotaTreeStatus(
    tree="default",
    generation=1,
    specs_revision=1,
    bindings_revision=1,
    nodes_revision=1,
    total={"cpu": 8000},
    quotas=[
        QuotaRuntime(name="a", min={"cpu": 4000}, max={"cpu": 8000}, used={"cpu": 0}, runtime={"cpu": 4000}),
        QuotaRuntime(name="b", max={"cpu": 8000}, used={"cpu": 8000}, runtime={"cpu": 4000}, over_since_ms=1),
    ],
    loans=[QuotaLoan(borrower="b", lender="a", resource="cpu", amount=4000)],
    computed_ms=0,
)


@asynccontextmanager
async def lending():
    """A gateway that was told of the loan, with a pod that waits in the quota of the lender."""
    async with stage() as s:
        quotas = [quota_manifest(name, maximum={"cpu": "8"}) for name in "ab"]
        await s.apply(*quotas, pod_manifest("p", cpu=4, quota="a"))
        await (await s.bus.bucket(buckets.QUOTASTATUS)).put("default", codec.encode(STATUS))
        await s.settle()
        yield s.service


@in_virtual_time
async def test_explain_says_who_holds_what_a_waiting_pods_quota_is_owed():
    async with lending() as service:
        story = await service.reading.explain("default", "p")
        assert story["quota"]["sentences"] == ["b uses 4 cpu that belong to a and has to give them back"]
        assert story["quota"]["lent"] == [{"borrower": "b", "lender": "a", "resource": "cpu", "amount": 4000}]


@in_virtual_time
async def test_a_quota_is_shown_with_what_it_has_now():
    async with lending() as service:
        found = {
            item["metadata"]["name"]: item["status"] for item in service.reading.objects("ElasticQuota", None, None)
        }
        assert (found["a"]["runtime"], found["b"]["state"]) == ({"cpu": "4"}, "Over")


@in_virtual_time
async def test_top_quotas_say_who_lends_to_whom():
    async with lending() as service:
        a, b = service.reading.top("quotas")
        assert (a["lends_to"], b["borrows_from"]) == ({"b": {"cpu": 4000}}, {"a": {"cpu": 4000}})
