"""Functions that users give (tools, scores): how they are called, so that a bad one harms nothing else."""
