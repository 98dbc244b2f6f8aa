"""Read the logs of a training run, and flag what spoils runs."""
