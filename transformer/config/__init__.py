"""Every setting of the program, as frozen dataclasses.

A setting's docstring is its help text on the command line. Values are checked
when a dataclass is built, so a `Config` that exists is a valid one.
"""

from transformer.config.data import DataConfig
from transformer.config.decoding import DecodeConfig
from transformer.config.experiment import SCORES, Config, from_dict, head_of, load, to_dict
from transformer.config.generation import GenerateConfig, SamplingConfig
from transformer.config.hosts import HostsConfig
from transformer.config.mesh import MeshConfig
from transformer.config.model import Head, ModelConfig
from transformer.config.training import OptimizerConfig, TrainConfig

__all__ = [
    "SCORES",
    "Config",
    "DataConfig",
    "DecodeConfig",
    "GenerateConfig",
    "Head",
    "HostsConfig",
    "MeshConfig",
    "ModelConfig",
    "OptimizerConfig",
    "SamplingConfig",
    "TrainConfig",
    "from_dict",
    "head_of",
    "load",
    "to_dict",
]
