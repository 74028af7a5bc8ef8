"""scpo: steerable, multi-group reward models, and an honest account of whom they serve."""

__version__ = "0.1.0"
