"""Rollbox: the tool-execution runtime for agentic RL."""

__version__ = "0.1.0"
