"""An index on disk: a folder that `rollbox retriever index` makes and `rollbox retriever serve` opens.

manifest.json    what is in it; written last, so that a folder without one is no index yet
bm25/            tantivy's files: the terms, and the passages themselves
dense/           vectors, where it was built with them
bad_lines.jsonl  records of the corpus that are no passages
building.json    while it is being built: of what, and the command that goes on
progress.jsonl   while it is being built: how far each commit came
"""
