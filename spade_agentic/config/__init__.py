"""The configuration of a run: its schema, and loading it from YAML."""

from .load import load_config, resolve_model, shipped_configs
from .schema import PluginRef, RunConfig, SamplingConfig

__all__ = ["PluginRef", "RunConfig", "SamplingConfig", "load_config", "resolve_model", "shipped_configs"]
