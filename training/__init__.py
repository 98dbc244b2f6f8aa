"""Training with verl; the only part of Rollbox that imports it.

`plugin` registers what we add to verl. `agent_loop` runs trajectories, `reward_manager` scores them, `replay_buffer`
counts them, `cpu` trains without a GPU, `launch` starts a run.
"""
