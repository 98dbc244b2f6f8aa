"""The tools YAML files that ship with Rollbox."""
