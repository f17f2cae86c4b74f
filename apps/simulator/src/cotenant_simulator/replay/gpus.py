"""GPUs as the replay knows them: whole ones, counted."""

from typing import Final

GPU: Final = "nvidia.com/gpu"
GPU_MODEL: Final = "nvidia.com/gpu.product"
"""The label that NVIDIA's own feature discovery puts on nodes."""
GPUS_PER_NODE: Final = 8
