"""Plans as the bus and HTTP report them."""

from cotenant_common.contracts.messages.commands import ApplyResult
from cotenant_gateway.core.plan import Plan


def apply_results(planned: Plan) -> list[ApplyResult]:
    faulty = bool(planned.faults)
    results = []
    for item in planned.items:
        errors = [str(fault) for fault in item.faults()]
        if faulty and not errors:
            errors = ["not applied: another document of the request has errors"]
        results.append(
            ApplyResult(
                kind=item.kind.name if item.kind else str(item.document.data.get("kind") or ""),
                namespace=item.namespace,
                name=item.name,
                action="refused" if faulty else item.action,
                uid=None if faulty else item.uid,
                warnings=[str(problem) for problem in item.report.warnings],
                errors=errors,
            )
        )
    return results
