"""A local web page to read the trajectories of a run."""
