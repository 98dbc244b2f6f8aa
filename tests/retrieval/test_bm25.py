"""The local index: what it finds, what it must not find, and which line of a corpus is wrong."""

import json
from pathlib import Path

import pytest

from rollbox.retrieval.bm25 import Bm25Index
from rollbox.retrieval.index.corpus_records import read_passages
from rollbox.retrieval.passages import Hit, Passage, split_contents
from rollbox.retrieval.shared_index import SHIPPED_CORPUS
from rollbox.schemas.errors import ConfigError

PASSAGES = [
    Passage("1", "Peru", "Lima is the capital of Perú, on the Pacific coast."),
    Passage("2", "", "東京は日本の首都です"),
    Passage("3", "The Who", "An English rock band formed in London."),
    Passage("4", "AC/DC", "An Australian rock band that plays running riffs."),
]


@pytest.fixture(scope="module")
def index() -> Bm25Index:
    return Bm25Index.of(PASSAGES)


@pytest.fixture(scope="module")
def facts() -> Bm25Index:
    return Bm25Index.from_jsonl(SHIPPED_CORPUS)


def test_a_hit_carries_its_passage_and_score(index: Bm25Index) -> None:
    (hit,) = index.search("capital of Peru", 3)
    assert (hit.id, hit.title, hit.text) == ("1", "Peru", PASSAGES[0].text)
    assert hit.score > 0
    assert isinstance(hit, Hit)


@pytest.mark.parametrize(
    ("query", "first"),
    [
        ("PERÚ", "1"),
        ("coasts", "1"),
        ("run", "4"),
        ("日本", "2"),
        ("首", "2"),
        ("the who", "3"),
        ('what is: "AC/DC"?', "4"),
        ("title:rock AND (band", "4"),
        ("\ud800 lima", "1"),
        ("peru\0", "1"),
        ("x" * 100_000 + " lima", "1"),
    ],
)
def test_queries_are_words_not_syntax(index: Bm25Index, query: str, first: str) -> None:
    found = [hit.id for hit in index.search(query, 2)]
    assert first in found


@pytest.mark.parametrize(
    "query", ["", "  ", "*", "?!", "NOT jazz", "unheard", "\ud800", "body:*", "[a TO z]", "^", "中国"]
)
def test_queries_without_known_words_find_nothing(index: Bm25Index, query: str) -> None:
    assert index.search(query, 3) == []


def test_stop_words_alone_make_no_hit(index: Bm25Index) -> None:
    assert index.search("the", 3)
    assert index.search("What is the zebra?", 3) == []


def test_top_k_bounds_the_hits(index: Bm25Index) -> None:
    assert len(index.search("rock band", 1)) == 1
    assert len(index.search("rock band", 10**9)) == 2
    assert index.search("rock band", 0) == []


def test_the_best_hit_comes_first(index: Bm25Index) -> None:
    hits = index.search("Australian rock band", 2)
    assert [hit.id for hit in hits] == ["4", "3"]
    assert hits[0].score > hits[1].score


def test_an_empty_index_finds_nothing() -> None:
    assert Bm25Index.of([]).search("anything", 3) == []


@pytest.mark.parametrize(
    ("contents", "parts"),
    [
        ('"Peru"\nLima is the capital.\nTwo lines.', ("Peru", "Lima is the capital.\nTwo lines.")),
        ("Peru\nLima.", ("Peru", "Lima.")),
        ("Only text.", ("", "Only text.")),
        ('"Only title"\n', ("", '"Only title"')),
    ],
)
def test_contents_split_into_title_and_text(contents: str, parts: tuple[str, str]) -> None:
    assert split_contents(contents) == parts


def test_both_line_formats_are_read(tmp_path: Path) -> None:
    path = tmp_path / "corpus.jsonl"
    lines = [
        {"id": 7, "contents": '"A"\nalpha'},
        {"id": "b", "title": "B", "text": " beta "},
        {"id": "c", "text": "gamma"},
    ]
    path.write_text("\n\n".join(json.dumps(line) for line in lines))
    assert list(read_passages(path)) == [
        Passage("7", "A", "alpha"),
        Passage("b", "B", "beta"),
        Passage("c", "", "gamma"),
    ]


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("{", "not JSON"),
        ("[1]", "must be an object"),
        ('{"contents": "x"}', "id: must be"),
        ('{"id": "", "contents": "x"}', "id: must be"),
        ('{"id": "1"}', "must be a string that is not blank"),
        ('{"id": "1", "contents": " "}', "must be a string that is not blank"),
        ('{"id": "1", "contents": ["x"]}', "must be a string that is not blank"),
        ('{"id": "1", "title": 3, "text": "x"}', "title: must be"),
    ],
)
def test_a_bad_line_is_named(tmp_path: Path, line: str, problem: str) -> None:
    path = tmp_path / "corpus.jsonl"
    path.write_text('{"id": "0", "contents": "fine"}\n\n' + line + "\n")
    with pytest.raises(ConfigError, match=problem) as caught:
        Bm25Index.from_jsonl(path)
    assert f"{path}:3" in str(caught.value)


@pytest.mark.parametrize("data", [b"", b"\n\n", b'{"id": "1", "contents": "\xff"}'])
def test_a_file_without_passages_is_refused(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "corpus.jsonl"
    path.write_bytes(data)
    with pytest.raises(ConfigError, match=r"corpus\.jsonl"):
        Bm25Index.from_jsonl(path)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"absent\.jsonl: cannot be read"):
        Bm25Index.from_jsonl(tmp_path / "absent.jsonl")


QUESTIONS = {
    "What is the capital of Peru?": "peru",
    "capital of Australia": "australia",
    "Which city is the capital of Mongolia?": "mongolia",
    "Which planet is the largest in the solar system?": "jupiter",
    "Who discovered Uranus?": "uranus",
    "What is the chemical symbol of gold?": "gold",
    "atomic number of lead": "lead",
    "Who proved Fermat's Last Theorem?": "fermat",
    "Who solved the Königsberg bridge problem?": "euler",
    "Konigsberg bridges": "euler",
    "How long is the Nile?": "nile",
    "longest river of Europe": "volga",
    "Who invented the telephone?": "telephone",
    "When was penicillin discovered?": "penicillin",
    "When did the Berlin Wall open?": "berlin-wall",
    "In which year did Constantinople fall?": "constantinople",
    "How many metres are in a mile?": "mile",
    "How many centimetres are there in an inch?": "inch",
    "Who was the first human in space?": "gagarin",
    "speed of light in metres per second": "speed-of-light",
}


@pytest.mark.parametrize(("question", "passage_id"), QUESTIONS.items())
def test_the_shipped_corpus_answers(facts: Bm25Index, question: str, passage_id: str) -> None:
    assert passage_id in [hit.id for hit in facts.search(question, 3)]


def test_the_shipped_corpus_is_sound() -> None:
    passages = list(read_passages(SHIPPED_CORPUS))
    assert len(passages) >= 120
    assert len({passage.id for passage in passages}) == len(passages)
    assert len({passage.title for passage in passages}) == len(passages)
    assert all(passage.title and len(passage.text) > 40 for passage in passages)
