"""One importer per family of traces; the first whose columns a file has is the one."""

from typing import Final

from cotenant_simulator.replay.families import (
    alibaba_batch,
    azure_llm,
    columns,
    dlrm,
    genai,
    hpc,
    nab,
    openb,
    philly,
    spot,
    wide,
)

OURS: Final = (
    alibaba_batch.FAMILY,
    dlrm.FAMILY,
    openb.FAMILY,
    spot.FAMILY,
    hpc.FAMILY,
    philly.FAMILY,
    azure_llm.FAMILY,
    genai.FAMILY,
    nab.FAMILY,
    wide.PLANETLAB,
    wide.GCD,
    columns.FAMILY,
)
