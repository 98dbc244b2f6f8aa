"""What a person reads of a finished run: numbers, a chart, and a trajectory as text."""
