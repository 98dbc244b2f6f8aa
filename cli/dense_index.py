"""The dense part of `rollbox retriever index`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from ..schemas.errors import ConfigError, InfraError
from ..schemas.validation import validated
from ..serving.interrupt import STOPPED, run_to_its_end

if TYPE_CHECKING:  # numpy is no part of the extra `search`
    from ..retrieval.dense.embedder import EmbedderConfig
    from ..retrieval.dense.nearest import Kind


@dataclass(frozen=True, slots=True)
class DenseRequest:
    """What is to be built: the model, and the kind of index."""

    embedder: EmbedderConfig
    kind: Kind


def dense_request(embedder: dict[str, Any], kind: str) -> DenseRequest:
    """
    Raises:
        ConfigError: an option is wrong, the model is not on this machine, or the extra `dense` is not installed.
    """
    try:
        from ..retrieval.dense.embedder import EmbedderConfig
        from ..retrieval.dense.nearest import KINDS, import_faiss
        from ..retrieval.dense.sentence_model import local_files
    except ImportError as error:
        raise ConfigError(f"--dense: {error}; install it with: pip install 'rollbox[dense]'") from error
    if not embedder.get("model"):
        raise ConfigError("--dense-url: needs --dense MODEL too, the name by which the server knows the model")
    if kind not in KINDS:
        raise ConfigError(f"--dense-kind: must be one of {', '.join(KINDS)} (got {kind!r})")
    import_faiss()
    [known] = [each for each in KINDS if each == kind]
    config = validated(EmbedderConfig, embedder, "retriever index: --dense")
    if config.url is None:
        local_files(config.model)  # before hours of indexing
    return DenseRequest(config, known)


def add_dense(corpus: Sequence[str], out: Path, request: DenseRequest) -> None:
    """Build the dense part of the finished index `out`, or go on with it.

    Raises:
        ConfigError: `out` is of another corpus; or as `build_dense` and `open_embedder`.
    """
    from ..retrieval.index.lock import sole_builder

    with sole_builder(out):
        _add_dense(corpus, out, request)


def _add_dense(corpus: Sequence[str], out: Path, request: DenseRequest) -> None:
    from ..retrieval.dense.build import build_dense
    from ..retrieval.dense.embedder import open_embedder
    from ..retrieval.index.corpus_files import corpus_files
    from ..retrieval.index.manifest import DENSE
    from ..retrieval.index.opened import open_index

    index = open_index(out)
    if [str(path.resolve()) for path in corpus_files(corpus, out)] != [file.path for file in index.manifest.corpus]:
        raise ConfigError(f"index {out}: is there already, and of another corpus; --restart builds it again")
    if index.corpus == "changed":
        raise ConfigError(f"index {out}: {index.corpus_changes[0]}; build it again with --restart")
    embedder = open_embedder(request.embedder)
    columns = (TextColumn("embedding"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console()) as bar:
        task = bar.add_task("", total=index.manifest.passages)

        async def build() -> Any:
            try:
                return await build_dense(
                    out / DENSE,
                    index.bm25,
                    request.embedder,
                    embedder,
                    request.kind,
                    lambda done, total: bar.update(task, completed=done, total=total),
                )
            finally:
                await embedder.aclose()

        try:
            manifest = run_to_its_end(build())
        except InfraError as error:
            raise ConfigError(f"{error}; the same command goes on from here") from error
        except STOPPED:
            typer.echo(f"stopped; the same command goes on from the last vectors in {out / DENSE}", err=True)
            raise
    built = manifest.embedder
    prefixes = f"query prefix {built.query_prefix!r}, passage prefix {built.passage_prefix!r}"
    typer.echo(f"{manifest.passages} vectors of {manifest.dimension} numbers ({request.kind}), {prefixes}")
