"""`rollbox retriever …`: build an index of passages, and serve it."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from ..schemas.errors import ConfigError
from ..schemas.redacted import redacted
from ..schemas.validation import validated
from ..serving.interrupt import STOPPED, Interrupt
from .dense_index import add_dense, dense_request

retriever = typer.Typer(name="retriever", help="Build and serve an index of passages.", no_args_is_help=True)


@retriever.command()
def index(
    corpus: Annotated[
        list[str], typer.Argument(help="JSONL, JSON or Parquet files (text also .gz, .zst), folders, globs.")
    ],
    out: Annotated[Path, typer.Option(help="Folder of the index. One that is unfinished is gone on with.")],
    max_bad: Annotated[float, typer.Option(min=0, max=1, help="Share of records that may be no passages.")] = 0.01,
    commit_every: Annotated[int, typer.Option(min=1, help="Passages that a kill can cost at most.")] = 50_000,
    memory_mb: Annotated[int, typer.Option(min=16, max=4000, help="MiB in which terms are gathered.")] = 128,
    threads: Annotated[int, typer.Option(min=1, max=8, help="Threads that gather them.")] = 1,
    restart: Annotated[bool, typer.Option("--restart", help="Throw away what --out holds.")] = False,
    dense: Annotated[str, typer.Option(metavar="MODEL", help="Embed too: a folder, or a cached model's name.")] = "",
    dense_url: Annotated[str, typer.Option(help="Embed by a server, such as http://host:8000/v1/embeddings.")] = "",
    dense_kind: Annotated[str, typer.Option(help="flat (exact), ivf or hnsw.")] = "flat",
    dense_batch: Annotated[int, typer.Option(min=1, max=4096, help="Texts embedded at a time.")] = 32,
    query_prefix: Annotated[
        str | None, typer.Option(help="Before each query; default: what the model asks for.")
    ] = None,
    passage_prefix: Annotated[str | None, typer.Option(help="Before each passage; likewise.")] = None,
    device: Annotated[str | None, typer.Option(help="Where the model runs; default: a GPU if there is one.")] = None,
) -> None:
    """Index passages: records with `id`, and `contents` or `title` and `text`. --dense adds vectors, also later."""
    from ..retrieval.index.build import BuildOptions, BuildState, build_index
    from ..retrieval.index.manifest import BAD_LINES, MANIFEST
    from ..retrieval.index.progress import BuildProgress

    arguments = [argument for argument in sys.argv[1:] if argument != "--restart"]
    command = redacted(shlex.join(["rollbox", *arguments]))  # it is written down
    embedder = {
        "model": dense,
        "url": dense_url or None,
        "batch_size": dense_batch,
        "query_prefix": query_prefix,
        "passage_prefix": passage_prefix,
        "device": device,
    }
    request = dense_request(embedder, dense_kind) if dense or dense_url else None
    options = BuildOptions(corpus, out, command, max_bad, commit_every, memory_mb, threads, restart)
    if request is None or restart or not (out / MANIFEST).exists():
        try:
            with Interrupt() as interrupt, BuildProgress(Console()) as progress:

                def report(state: BuildState) -> None:
                    progress.advance(state)
                    interrupt.check()

                manifest = build_index(options, report)
        except STOPPED:
            typer.echo(f"stopped; the same command goes on from the last commit in {out}", err=True)
            raise
        files = f"{len(manifest.corpus)} file" + "s" * (len(manifest.corpus) != 1)
        typer.echo(f"{manifest.passages} passages of {files} in {out}")
        if manifest.bad_records:
            typer.echo(f"{manifest.bad_records} records were left out; {out / BAD_LINES} says which and why")
    if request is not None:
        add_dense(corpus, out, request)


@retriever.command()
def serve(
    sources: Annotated[list[str], typer.Argument(metavar="INDEX", help="Folder of an index, or addresses to ask.")],
    backend: Annotated[
        str, typer.Option(help="bm25, dense, hybrid, remote, shards, elasticsearch, qdrant; default: what fits INDEX.")
    ] = "",
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port; 0 takes a free one.")] = 8081,
    slots: Annotated[int, typer.Option(help="Requests in work at a time.")] = 64,
    queue: Annotated[int, typer.Option(help="Requests that may wait; one more is answered with 429.")] = 1024,
    max_per_client: Annotated[int, typer.Option(help="Requests that one client may have at a time; 0: no cap.")] = 0,
    timeout_s: Annotated[float, typer.Option(help="Seconds that an answer may take.")] = 30.0,
    max_queries: Annotated[int, typer.Option(help="Queries in a request at most.")] = 4096,
    max_top_k: Annotated[int, typer.Option(help="Passages per query at most.")] = 100,
    max_query_chars: Annotated[int, typer.Option(help="Characters of a query at most.")] = 32_768,
    max_hits: Annotated[int, typer.Option(help="Queries times passages per query at most.")] = 50_000,
    max_body_mb: Annotated[int, typer.Option(help="The largest request body, in MiB.")] = 16,
    cache_hits: Annotated[int, typer.Option(help="Passages of answers that are kept in memory; 0: none.")] = 100_000,
    cache_ttl_s: Annotated[float, typer.Option(help="Seconds that a remote service's answer is kept.")] = 3600.0,
    threads: Annotated[int | None, typer.Option(help="Searches at a time; default: one per core.")] = None,
    connections: Annotated[int, typer.Option(help="Requests at a time to a remote service.")] = 64,
    strict: Annotated[bool, typer.Option("--strict", help="Refuse an index whose corpus has changed.")] = False,
    verify: Annotated[bool | None, typer.Option(help="Compare checksums first; default: of up to 1 GiB.")] = None,
    embedding_model: Annotated[str | None, typer.Option(help="The model, if not where the index was built.")] = None,
    embedding_url: Annotated[str | None, typer.Option(help="Its server, likewise.")] = None,
    device: Annotated[str | None, typer.Option(help="Where a model in this process runs.")] = None,
    query_prefix: Annotated[str | None, typer.Option(help="qdrant: before each query.")] = None,
    vector: Annotated[str | None, typer.Option(help="qdrant: the name of the vectors.")] = None,
    weights: Annotated[list[float] | None, typer.Option(help="hybrid: one for each part, in order.")] = None,
    rank_constant: Annotated[float | None, typer.Option(help="hybrid: k of the fusion; default: 10.")] = None,
    merge: Annotated[str | None, typer.Option(help="shards: by score or by rrf.")] = None,
    probe: Annotated[str | None, typer.Option(help="What a remote service must find something to.")] = None,
    token_file: Annotated[str, typer.Option(help="File with the token; default: $ROLLBOX_RETRIEVER_TOKEN.")] = "",
    insecure: Annotated[bool, typer.Option("--insecure", help="No token even beyond loopback.")] = False,
    drain_s: Annotated[int, typer.Option(help="Seconds that SIGTERM leaves requests in work.")] = 10,
) -> None:
    """Serve an index over HTTP: POST /retrieve as Search-R1, and /v1/search."""
    given: dict[str, Any] = dict(locals())
    try:
        from ..retrieval.backend import BackendOptions
        from ..retrieval.server.serve import serve as serve_retriever
        from ..retrieval.server.settings import RetrieverSettings
    except ImportError as error:
        raise ConfigError(f"retriever serve: {error}; install it with: pip install 'rollbox[server,search]'") from error
    of_backend = {name: given.pop(name) for name in BackendOptions.model_fields}
    given["options"] = {name: value for name, value in of_backend.items() if value is not None}
    serve_retriever(validated(RetrieverSettings, given, "retriever serve"))
