"""The search server: `rollbox retriever serve`."""
