"""Which plugins decide, with what arguments: the ConfigMap's where there is one, the settings' otherwise."""

from typing import Final

from cotenant_common.runtime.settings import SettingsError
from cotenant_common.telemetry.logging import Logger
from cotenant_scheduler.adapters import plugins
from cotenant_scheduler.adapters.configuration import profile_arguments
from cotenant_scheduler.adapters.state import ClusterState
from cotenant_scheduler.arguments import ProfileArguments
from cotenant_scheduler.config import SchedulerSettings
from cotenant_scheduler.core.engine import Engine
from cotenant_scheduler.core.plugins.registry import default_plugins
from cotenant_scheduler.core.profile import Profile
from cotenant_scheduler.core.warm import warm

_KERNEL_NODES: Final = 500
"""Below, vectors cost little more than machine code, and that would double the memory of a small stack."""


class Profiles:
    def __init__(self, settings: SchedulerSettings, log: Logger) -> None:
        self._settings = settings
        self._log = log
        self._installed = plugins.installed()
        self._fused = False
        """Machine code for large clusters; decided once, before leading."""
        self.wanted: Profile | None = None
        """Is to replace the present one as soon as nothing is in flight."""

    def of_settings(self) -> Profile:
        try:
            return self._usable(self._settings.arguments())
        except ValueError as error:
            raise SettingsError(f"scheduler: {error}") from error

    def _usable(self, arguments: ProfileArguments) -> Profile:
        """Raise ValueError for a plugin that nobody knows or that cannot be built."""
        profile = arguments.profile(self._installed)
        plugins.build(profile.plugins.outside, self._installed)
        return profile

    def make_engine(self, profile: Profile) -> Engine:
        outside = plugins.build(profile.plugins.outside, self._installed)
        chosen = default_plugins(profile.plugins, outside)
        return Engine(chosen, profile.load, seed=self._settings.seed, fused=self._fused)

    def choose_kernel(self, nodes: int) -> None:
        """Before the lease is asked for: compiling may take longer than a lease lives."""
        wanted = self._settings.fused_kernel
        if wanted == "on" or (wanted == "auto" and nodes >= _KERNEL_NODES):
            self._fused = warm()
            self._log.info("kernel_chosen", fused=self._fused, nodes=nodes)

    def read(self, state: ClusterState) -> Profile:
        """A bad one changes nothing."""
        try:
            return self._usable(profile_arguments(state.all_specs(), self._settings.arguments()))
        except ValueError as error:
            self._log.warning("configuration_ignored", error=str(error))
            return state.profile

    def look_again(self, state: ClusterState) -> bool:
        """Whether another profile is wanted from now on."""
        profile = self.read(state)
        if profile == state.profile:
            return False
        self._log.info("profile_changed", profile=repr(profile))
        self.wanted = profile
        return True
