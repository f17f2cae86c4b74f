from dataclasses import replace
from pathlib import Path

import pytest

from cotenant_common.bus.matching import compile_pattern
from cotenant_common.contracts import permissions
from cotenant_common.contracts.buckets import BUCKETS, LEASES
from cotenant_common.contracts.permissions import User, agent_user, may_publish, may_subscribe, service_user
from cotenant_common.contracts.server_config import Login, Tls, render_config, users_for
from cotenant_common.model.ids import InvalidNameError

USERS = users_for(["n1", "n2"], ["siem"])
AGENT = agent_user("n1")


def allows(user: User, subject: str) -> bool:
    return any(compile_pattern(allowed)(subject) for allowed in may_publish(user))


def hears(user: User, subject: str) -> bool:
    return any(compile_pattern(allowed)(subject) for allowed in may_subscribe(user))


def test_only_the_writer_may_write_a_bucket() -> None:
    for spec in BUCKETS:
        writers = {
            user.role if user.role is permissions.Role.AGENT else user.name
            for user in USERS
            if any(subject.startswith(f"$KV.{spec.bucket}.") for subject in may_publish(user))
        }
        services = set(permissions.SERVICES) - {"agent", "bridge"}
        assert writers == (services if spec is LEASES else set(spec.writer.split(", ")))


def test_an_agent_may_write_its_own_node_only() -> None:
    written = [subject for subject in may_publish(AGENT) if subject.startswith("$KV.")]
    assert written == [
        "$KV.cotenant-heartbeats.n1",
        "$KV.cotenant-nodes.n1",
        "$KV.cotenant-podstatus.announced.agent-n1",
        "$KV.cotenant-podstatus.n1.*",
    ]


def test_an_agent_tells_of_its_own_node_only() -> None:
    assert allows(AGENT, "cotenant.v1.evt.node.suppressed.n1")
    assert allows(AGENT, "cotenant.v1.evt.pod.started.default.web")
    assert not allows(AGENT, "cotenant.v1.evt.node.suppressed.n2")
    assert not allows(AGENT, "cotenant.v1.evt.pod.bound.default.web")


def test_the_dots_of_a_nodes_name_are_no_way_out() -> None:
    assert agent_user("n1.example").name == "agent-n1_example"
    with pytest.raises(InvalidNameError):
        agent_user("n1 >")


@pytest.mark.parametrize("user", [user for user in USERS if user != permissions.OPERATOR], ids=lambda user: user.name)
def test_nobody_but_the_operator_may_purge_or_delete_a_bucket(user: User) -> None:
    for call in ("PURGE", "DELETE", "MSG.DELETE", "SNAPSHOT", "RESTORE"):
        assert not any(allows(user, f"$JS.API.STREAM.{call}.{spec.stream}") for spec in BUCKETS)


def test_only_those_who_stand_for_users_may_change_a_stream() -> None:
    changers = {user.name for user in USERS if allows(user, "$JS.API.STREAM.UPDATE.KV_cotenant-specs")}
    assert changers == {"gateway", "operator"}
    assert not any(allows(service_user("quota"), f"$JS.API.STREAM.CREATE.{name}") for name in ("X", "KV_other"))


@pytest.mark.parametrize("user", USERS, ids=lambda user: user.name)
def test_nobody_listens_to_the_replies_of_another(user: User) -> None:
    others = [other for other in USERS if other != user]
    assert hears(user, f"{user.inbox}.a.b")
    assert not any(hears(user, f"{other.inbox}.a.b") for other in others)


def test_who_serves_a_question_may_answer_those_who_ask_it() -> None:
    assert allows(service_user("scheduler"), "_INBOX.descheduler.a.b")
    assert allows(service_user("gateway"), "_INBOX.agent-n1.a.b")
    assert allows(AGENT, "_INBOX.gateway.a.b")
    assert not allows(AGENT, "_INBOX.scheduler.a.b")


def test_an_observer_writes_nothing_but_its_place_in_the_events() -> None:
    (observer,) = (user for user in USERS if user.role is permissions.Role.OBSERVER)
    assert observer.name == "observer-siem"
    calls = [subject.removeprefix("$JS.API.") for subject in may_publish(observer)]
    assert all(call.startswith(("CONSUMER.", "STREAM.INFO.", "$JS.ACK.")) for call in calls)
    assert all(call.startswith("STREAM.INFO.") or "observer-siem" in call for call in calls)
    assert hears(observer, "cotenant.v1.evt.pod.bound.default.web")
    assert not hears(observer, "cotenant.v1.cmd.pod.evict")


def test_the_server_keeps_public_keys_and_the_paths_of_its_certificate() -> None:
    tls = Tls(Path("/c.pem"), Path("/k.pem"), Path("/ca.pem"), verify_clients=True)
    text = render_config("head", Login.NKEY, {AGENT: "UABC"}, tls)
    assert "nkey: UABC" in text
    assert 'cert_file: "/c.pem"' in text
    assert "verify: true" in text
    assert "verify" not in render_config("head", Login.NKEY, {AGENT: "UABC"}, replace(tls, verify_clients=False))
    assert "verify" not in render_config("head", Login.NKEY, {AGENT: "UABC"})
