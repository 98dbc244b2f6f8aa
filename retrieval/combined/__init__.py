"""Several retrievers as one: fused by rank, sharded, or replicas of each other."""
