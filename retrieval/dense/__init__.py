"""Passages by meaning: embedding models, and the nearest of their vectors by faiss (extra `dense`).

An index folder with a dense part holds `dense/`: the vectors of all passages in row order, one float32 after another
(`vectors.f32`), for the kinds `ivf` and `hnsw` also a faiss index, and `manifest.json`, which is written last.
"""
