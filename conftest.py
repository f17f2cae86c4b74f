"""Settings shared by every package's tests."""

from hypothesis import HealthCheck, settings

# A test must not depend on the speed of the machine it runs on; a failure must be repeatable from what it prints.
settings.register_profile(
    "cotenant", deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow], derandomize=False
)
settings.load_profile("cotenant")
