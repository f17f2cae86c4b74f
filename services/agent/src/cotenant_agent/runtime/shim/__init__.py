"""The shim of one container: starts its command, keeps its output and exit status, outlives the agent.

Every container pays for one, so it imports little: no pathlib, subprocess, typing, asyncio or logging, and of our own
nothing outside this folder. `spawn.compile_shim` lays the folder out for an interpreter without site-packages.
"""
