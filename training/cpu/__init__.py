"""Training without a GPU: a platform, an inference server and the way of the weights to it.

Registered by the plugin; used when `VERL_PLATFORM=cpu` is set and `rollout.name=rollbox_cpu`.
"""
