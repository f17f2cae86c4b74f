"""Elastic quotas as their owners write them: what gateway and quota service must read and judge alike."""
