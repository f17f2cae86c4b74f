"""As whom a workload runs. Never silently as root: the answer says where the user came from."""

import grp
import os
import pwd
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from cotenant_agent.runtime.launch import ContainerLaunch, LaunchError

NOGROUP_GID = 65534


class UserSource(StrEnum):
    MANIFEST = "runAsUser"
    SETTING = "default_user"
    SUDO = "the user who called sudo"
    AGENT = "the agent's own user"


@dataclass(frozen=True, slots=True)
class RunAs:
    """`switch` is False when the agent already is that user and has nothing to change."""

    uid: int
    gid: int
    groups: tuple[int, ...]
    user: str
    home: str
    source: UserSource
    switch: bool

    def __str__(self) -> str:
        return f"{self.user} (uid {self.uid}, gid {self.gid}; from {self.source})"


def resolve(container: ContainerLaunch, default_user: str | None, environ: Mapping[str, str]) -> RunAs:
    wanted, source = _wanted_user(container, default_user, environ)
    entry = _user_entry(wanted, source)
    uid = entry.pw_uid if entry else int(wanted)
    gid = _group(container, entry)
    _check_not_root(uid, source, container)
    _check_rights(uid, gid, container)
    switch = os.geteuid() == 0
    user = entry.pw_name if entry else str(uid)
    groups = _groups(container, user if entry else None, gid) if switch else tuple(os.getgroups())
    return RunAs(uid, gid, groups, user, entry.pw_dir if entry else "/", source, switch)


def _wanted_user(
    container: ContainerLaunch, default_user: str | None, environ: Mapping[str, str]
) -> tuple[int | str, UserSource]:
    if container.run_as_user is not None:
        return container.run_as_user, UserSource.MANIFEST
    if os.geteuid() == 0:
        if default_user is not None:
            return default_user, UserSource.SETTING
        if environ.get("SUDO_UID", "").isdigit():
            return int(environ["SUDO_UID"]), UserSource.SUDO
    return os.geteuid(), UserSource.AGENT


def _user_entry(wanted: int | str, source: UserSource) -> pwd.struct_passwd | None:
    """None for a bare number that no account has: Kubernetes allows those."""
    number = int(wanted) if isinstance(wanted, int) or wanted.isdigit() else None
    if number is not None and not 0 <= number < 2**32 - 1:
        raise LaunchError("runAsUser", f"{number} is not a user id (0 to {2**32 - 2})")
    try:
        return pwd.getpwnam(str(wanted)) if number is None else pwd.getpwuid(number)
    except KeyError:
        if number is None:
            raise LaunchError("runAsUser", f"this machine has no user {wanted!r} (from {source})") from None
    return None


def _group(container: ContainerLaunch, entry: pwd.struct_passwd | None) -> int:
    wanted = container.run_as_group
    if wanted is None:
        # Not 0, which is what a container engine would take: root's group owns files on a real machine.
        return entry.pw_gid if entry else NOGROUP_GID
    if isinstance(wanted, int) or wanted.isdigit():
        return int(wanted)
    try:
        return grp.getgrnam(wanted).gr_gid
    except KeyError:
        raise LaunchError("runAsGroup", f"this machine has no group {wanted!r}") from None


def _groups(container: ContainerLaunch, user: str | None, gid: int) -> tuple[int, ...]:
    own = os.getgrouplist(user, gid) if user is not None else [gid]
    return tuple(dict.fromkeys([*own, *container.supplemental_groups]))


def _check_not_root(uid: int, source: UserSource, container: ContainerLaunch) -> None:
    if uid == 0 and container.run_as_non_root:
        raise LaunchError("runAsNonRoot", f"it would run as uid 0 (from {source}); state a runAsUser other than 0")


def _check_rights(uid: int, gid: int, container: ContainerLaunch) -> None:
    if os.geteuid() == 0:
        return
    mine = os.geteuid()
    if uid != mine:
        raise LaunchError("runAsUser", f"running as uid {uid} needs root, and the agent runs as uid {mine}")
    if container.run_as_group is not None and gid != os.getegid():
        raise LaunchError("runAsGroup", f"running as gid {gid} needs root, and the agent runs as gid {os.getegid()}")
    foreign = sorted(set(container.supplemental_groups) - set(os.getgroups()))
    if foreign:
        raise LaunchError("supplementalGroups", f"joining the groups {foreign} needs root, and the agent is not root")
