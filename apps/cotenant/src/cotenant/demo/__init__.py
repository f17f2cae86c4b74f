"""Co-location on this machine in four arms, measured: `run_demo` is the whole of it."""

from cotenant.demo.options import DemoOptions
from cotenant.demo.run import run_demo

__all__ = ["DemoOptions", "run_demo"]
