"""Pods of Alibaba's GPU cluster of 2023 (openb): whole GPUs are counted; pods with a share of one are left out."""

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Final

from cotenant_common.model.resources import CPU, MEMORY
from cotenant_simulator.replay.family import Family
from cotenant_simulator.replay.gpus import GPU, GPU_MODEL
from cotenant_simulator.replay.model import Band, Defaults, Item, Job, Machine, Site
from cotenant_simulator.replay.tables import LeftOutError, Row, converted, header_of, label

PODS: Final = ("cpu_milli", "memory_mib", "num_gpu", "gpu_milli")
NODES: Final = ("sn", "cpu_milli", "memory_mib", "gpu", "model")
TIMES: Final = ("creation_time", "scheduled_time", "deletion_time")
_WHOLE: Final = 1_000
_DAY_MS: Final = 86_400_000
_MIB: Final = 1 << 20
_SEQUENCE_STEP_MS: Final = 1_000


def read(path: Path, site: Site) -> Iterator[Item]:
    header = header_of(path)
    if set(NODES) <= set(header):
        yield from converted(path, NODES, site.left_out, _machine)
    elif set(TIMES) <= set(header):
        yield from converted(path, ("name", "gpu_spec", "qos", *PODS, *TIMES), site.left_out, _timed)
    else:
        name = "pod" if "idx" in header else "name"
        yield from converted(path, (name, *PODS), site.left_out, partial(_in_order, name, "gpu_spec" in header))


def _machine(row: Row) -> Machine:
    capacity = {CPU: row.whole("cpu_milli", 1), MEMORY: row.whole("memory_mib", 1) * _MIB}
    gpus = row.whole("gpu")
    if gpus == 0:
        return Machine(label(row.text("sn"), "node"), capacity)
    model = {GPU_MODEL: row.text("model")} if row.text("model") else {}
    return Machine(label(row.text("sn"), "node"), {**capacity, GPU: gpus}, model)


def _requests(row: Row) -> dict[str, int]:
    """Raise LeftOutError for a share: counting it as a whole GPU, or as none, would be another experiment."""
    gpus = row.whole("num_gpu")
    if gpus and row.whole("gpu_milli") < _WHOLE:
        raise LeftOutError("shares of a GPU are not modelled yet")
    native = {CPU: row.whole("cpu_milli"), MEMORY: row.whole("memory_mib") * _MIB}
    return native | ({GPU: gpus} if gpus else {})


def _models(text: str) -> tuple[str, Sequence[str]] | None:
    return (GPU_MODEL, tuple(text.split("|"))) if text else None


def _timed(row: Row) -> Job:
    created_ms, scheduled_ms, deleted_ms = (row.optional_ms(column) for column in TIMES)
    if created_ms is None or scheduled_ms is None or deleted_ms is None:
        raise LeftOutError("never scheduled, so how long it would run is unknown")
    band: Band = "batch" if row.text("qos") == "BE" else "prod"
    return Job(
        name=label(row.text("name"), "pod"),
        submit_ms=created_ms,
        duration_ms=max(0, deleted_ms - scheduled_ms),
        requests=_requests(row),
        band=band,
        one_of_labels=_models(row.text("gpu_spec")),
        told_wait_ms=max(0, scheduled_ms - created_ms),
    )


def _in_order(name: str, has_models: bool, row: Row) -> Job:
    """The published experiment: one by one in this order, and nobody leaves."""
    at = row.whole("idx") if "idx" in row.cells else row.line - 2
    return Job(
        name=label(row.text(name), "pod"),
        submit_ms=at * _SEQUENCE_STEP_MS,
        duration_ms=None,
        requests=_requests(row),
        band="prod",
        one_of_labels=_models(row.text("gpu_spec")) if has_models else None,
    )


def _default_mix(files: Sequence[Path]) -> Sequence[Path]:
    wanted = ("openb_node_list_gpu_node", "openb_pod_list_default")
    found = [file for file in files if file.name.startswith(wanted)]
    return found or [file for file in files if file.name.startswith("default_seed42")] or files[:1]


FAMILY: Final = Family(
    "alibaba-openb-gpu-2023",
    (frozenset(PODS), frozenset(NODES)),
    read,
    Defaults(
        nodes=16,
        node_cpu_milli=96_000,
        node_memory_bytes=384 << 30,
        limit=200,
        from_ms=115 * _DAY_MS,  # a single pod before day 111
        devices={GPU: 8},
    ),
    choose=_default_mix,
    notes=("pods with a share of a GPU are left out: shares are not modelled yet",),
)
