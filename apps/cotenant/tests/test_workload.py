import pytest

from cotenant.errors import BadInputError
from cotenant.workload import CommandSpec, generated_name, manifest, parse_amount, parse_band, parse_qos
from cotenant_common.model.pod import parse_pod
from cotenant_common.model.qos import PriorityBand, QosClass


def test_batch_work_asks_for_batch_resources_only() -> None:
    pod = parse_pod(manifest(CommandSpec(("sort",), "sort-1", cpu_milli=1500, memory_bytes=1 << 30)), uid="u")
    assert pod.requests == {"kubernetes.io/batch-cpu": 1500, "kubernetes.io/batch-memory": 1 << 30}
    assert pod.limits == pod.requests
    assert pod.qos is QosClass.BE


def test_a_service_asks_for_native_resources() -> None:
    spec = CommandSpec(("serve",), "s", qos=QosClass.LS, band=PriorityBand.PROD, cpu_milli=500, memory_bytes=1 << 20)
    assert parse_pod(manifest(spec), uid="u").requests == {"cpu": 500, "memory": 1 << 20}


def test_free_work_asks_for_nothing() -> None:
    assert parse_pod(manifest(CommandSpec(("x",), "x", band=PriorityBand.FREE)), uid="u").requests == {}


def test_the_user_is_stated() -> None:
    pod = manifest(CommandSpec(("id",), "id-1", user_id=1000, group_id=100))
    assert pod["spec"]["containers"][0]["securityContext"] == {"runAsUser": 1000, "runAsGroup": 100}


def test_the_command_runs_as_it_was_typed() -> None:
    pod = manifest(CommandSpec(("sh", "-c", "echo $$ $(HOME)"), "x"))
    assert pod["spec"]["containers"][0]["command"][2] == "echo $$$$ $$(HOME)"


def test_units_make_a_job() -> None:
    job = manifest(CommandSpec(("x",), "x-1", units=8, parallelism=2))
    assert (job["kind"], job["spec"]["completions"], job["spec"]["parallelism"]) == ("Job", 8, 2)
    assert job["spec"]["template"]["spec"]["restartPolicy"] == "Never"


def test_names_come_from_the_command() -> None:
    assert generated_name(["/usr/bin/Sort_it.py", "-r"], "abc") == "sort-it-py-abc"
    assert generated_name(["///"], "abc") == "run-abc"


@pytest.mark.parametrize("text", ["SYSTEM", "gold", ""])
def test_a_qos_class_that_users_cannot_have_is_refused(text: str) -> None:
    with pytest.raises(BadInputError, match="--qos"):
        parse_qos(text)


def test_the_band_follows_the_class() -> None:
    assert parse_band(None, QosClass.BE) is PriorityBand.BATCH
    assert parse_band(None, QosClass.LSR) is PriorityBand.PROD
    assert parse_band("koord-mid", QosClass.BE) is PriorityBand.MID
    with pytest.raises(BadInputError, match="--priority"):
        parse_band("urgent", QosClass.BE)


def test_amounts_are_quantities() -> None:
    assert parse_amount("cpu", "1.5") == 1500
    with pytest.raises(BadInputError, match="--memory"):
        parse_amount("memory", "lots")
    with pytest.raises(BadInputError, match="256Mi"):
        parse_amount("memory", "256m")
