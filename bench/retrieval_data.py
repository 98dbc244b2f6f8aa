"""Makes the passages and questions of bench/retrieval.py from real text: Debian's package descriptions and WordNet.

    .venv/bin/python bench/retrieval_data.py --out /tmp/retrieval [--sizes 200000,1000000] [--items 10000]

Needs a Debian machine: apt-get fetches the descriptions and the package `wordnet-base`, into --out alone.

    corpus-N.jsonl     N passages of about 100 words: sentences of the descriptions and glosses, drawn anew for each
                       passage (most of one text together, the rest from anywhere), with the title of one of them
    queries.txt        1,000 synopses and definitions, to ask these
    debian.jsonl, wordnet.jsonl with debian.queries.jsonl, wordnet.queries.jsonl
                       known items: a package's long description is asked for by its synopsis, a WordNet entry (words,
                       examples, further definitions, its hypernym) by its first definition, which the entry leaves out
"""

from __future__ import annotations

import argparse
import json
import random
import re
import subprocess
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

WORDS = 100
QUERIES = 1000
_SENTENCE = re.compile(r"(?<=[.!?;])\s+")


@dataclass(frozen=True, slots=True)
class Item:
    """One text. `query` describes it and is no part of it."""

    id: str
    title: str
    text: str
    query: str


def fetch(out: Path) -> None:
    lists, cache = out / "apt" / "lists", out / "apt" / "cache"
    for folder in (lists / "partial", cache / "archives" / "partial"):
        folder.mkdir(parents=True, exist_ok=True)
    options = ["-qq", "-o", "Acquire::Languages=en", "-o", f"Dir::State::lists={lists}", "-o", f"Dir::Cache={cache}"]
    subprocess.run(["apt-get", "update", *options], check=True)
    subprocess.run(["apt-get", "download", *options, "wordnet-base"], check=True, cwd=out)
    [package] = out.glob("wordnet-base_*.deb")
    subprocess.run(["dpkg-deb", "-x", package, out / "wordnet"], check=True)


def debian_items(out: Path) -> list[Item]:
    items: dict[str, Item] = {}
    for path in sorted((out / "apt" / "lists").glob("*_Translation-en*")):
        text = subprocess.run(["/usr/lib/apt/apt-helper", "cat-file", path], check=True, capture_output=True).stdout
        for stanza in text.decode().split("\n\n"):
            head, _, body = stanza.partition("\nDescription-en: ")
            synopsis, _, long = body.partition("\n")
            long = " ".join(long.replace("\n .\n", "\n").split())
            name = head.partition("\n")[0].removeprefix("Package: ")
            if len(long.split()) >= 20:
                # Binary packages of one source share their description: one of them is enough.
                items.setdefault(long[:200], Item(f"deb:{name}", name, long, synopsis))
    return _unique_queries(items.values())


def wordnet_items(out: Path) -> list[Item]:
    folder = out / "wordnet" / "usr" / "share" / "wordnet"
    synsets = {synset.key: synset for part in ("noun", "verb") for synset in _synsets(folder / f"data.{part}")}
    items = []
    for synset in synsets.values():
        definition, *more = synset.gloss
        above = [synsets[key] for key in synset.hypernyms if key in synsets]
        if more and above and len(definition.split()) >= 4:
            kind = " ".join(f"A kind of {', '.join(each.words)}: {each.gloss[0]}." for each in above[:2])
            text = f"{', '.join(synset.words)}. {' '.join(more)} {kind}"
            items.append(Item(f"wn:{synset.key}", synset.words[0], text, definition))
    return _unique_queries(items)


@dataclass(frozen=True, slots=True)
class _Synset:
    key: str
    words: list[str]
    hypernyms: list[str]
    gloss: list[str]


def _synsets(path: Path) -> Iterator[_Synset]:
    """See wndb(5WN): offset, file, type, count of words (hexadecimal), words, count of pointers, pointers, gloss."""
    for line in path.read_text(encoding="utf-8").splitlines():
        if line.startswith(" "):
            continue
        data, _, gloss = line.partition(" | ")
        fields = data.split()
        count = int(fields[3], 16)
        words = [word.replace("_", " ") for word in fields[4 : 4 + 2 * count : 2]]
        pointers = fields[5 + 2 * count :]
        starts = (start for start in range(0, len(pointers) - 3, 4) if pointers[start] == "@")
        hypernyms = [f"{pointers[start + 2]}{pointers[start + 1]}" for start in starts]
        yield _Synset(f"{fields[2]}{fields[0]}", words, hypernyms, [part.strip() for part in gloss.split(";")])


def _unique_queries(items: Iterable[Item]) -> list[Item]:
    found: dict[str, Item] = {}
    for item in items:
        found.setdefault(item.query, item)
    return list(found.values())


def recombined(items: Sequence[Item], count: int, seed: int = 0) -> Iterator[dict[str, str]]:
    source = random.Random(seed)
    sentences = [[part for part in _SENTENCE.split(item.text) if part] for item in items]
    for number in range(count):
        chosen = source.randrange(len(items))
        parts = list(sentences[chosen])
        words = sum(len(part.split()) for part in parts)
        while words < WORDS:
            part = source.choice(sentences[source.randrange(len(sentences))])
            parts.append(part)
            words += len(part.split())
        text = " ".join(" ".join(parts).split()[: WORDS + source.randrange(-15, 16)])
        yield {"id": str(number), "contents": f'"{items[chosen].title}"\n{text}'}


def write_lines(path: Path, records: Iterator[dict[str, str]]) -> None:
    with path.open("w", encoding="utf-8") as file:
        for record in records:
            file.write(json.dumps(record, ensure_ascii=False) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--sizes", default="200000,1000000")
    parser.add_argument("--items", type=int, default=10_000)
    arguments = parser.parse_args()
    out: Path = arguments.out
    fetch(out)
    tasks = {"debian": debian_items(out), "wordnet": wordnet_items(out)}
    source = random.Random(0)
    everything = [item for items in tasks.values() for item in items]
    for name, items in tasks.items():
        chosen = source.sample(items, min(arguments.items, len(items)))
        asked = source.sample(chosen, min(QUERIES, len(chosen)))
        write_lines(out / f"{name}.jsonl", ({"id": item.id, "title": item.title, "text": item.text} for item in chosen))
        write_lines(out / f"{name}.queries.jsonl", ({"query": item.query, "id": item.id} for item in asked))
        print(f"{name}: {len(chosen)} of {len(items)} items, {len(asked)} questions", flush=True)
    queries = [item.query for item in source.sample(everything, QUERIES)]
    (out / "queries.txt").write_text("\n".join(queries) + "\n", encoding="utf-8")
    for size in map(int, filter(None, arguments.sizes.split(","))):
        write_lines(out / f"corpus-{size}.jsonl", recombined(everything, size))
        print(f"corpus-{size}.jsonl: {(out / f'corpus-{size}.jsonl').stat().st_size / 2**20:.0f} MB", flush=True)


if __name__ == "__main__":
    main()
