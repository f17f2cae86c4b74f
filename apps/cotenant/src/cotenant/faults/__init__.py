"""Real processes, killed, paused and cut off at random while pods come and go; afterwards nothing may be wrong."""
