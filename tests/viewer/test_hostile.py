"""Nothing that a model or a program wrote acts on the page, hides on it or makes it huge; no other site reads it."""

from __future__ import annotations

import socket
from html.parser import HTMLParser

import pytest

from rollbox.schemas.trajectory import Trajectory
from rollbox.viewer.shown_text import folded, shown

from .conftest import ORDINARY
from .made_trajectories import HOSTILE
from .page_client import Viewer

PAGES = ("/t/{}", "/t/{}/tokens", "/t/{}?q=%3Cscript%3E", "/diff?a={}&b=1")


class Elements(HTMLParser):
    """What a browser would make of a page: its elements, and the text outside of them."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data


def check_harmless(text: str) -> Elements:
    elements = Elements(text)
    assert [attributes for tag, attributes in elements.found if tag == "script"] == [
        {"src": "/static/viewer.js", "defer": None}
    ]
    for tag, attributes in elements.found:
        assert tag not in ("img", "iframe", "object", "embed", "base", "style")
        assert not any(name.startswith("on") or name == "style" for name in attributes)
        for name in ("src", "href", "action"):
            address = attributes.get(name) or "/"
            assert address[0] in "/#?", address
            assert not address.startswith("//")
    odd = [char for char in text if (ord(char) < 0x20 and char not in "\n\t") or "\u202a" <= char <= "\u202e"]
    assert odd == []
    return elements


@pytest.mark.parametrize("page", PAGES)
def test_every_page_of_every_odd_trajectory_is_harmless(
    viewer: Viewer, made: dict[int, Trajectory], unreadable_lines: list[int], page: str
) -> None:
    for line in [*range(ORDINARY + 1, max(made) + 1), *unreadable_lines]:
        answer = viewer.get(page.format(line))
        assert answer.status == 200 or (line in unreadable_lines and page != "/t/{}")
        assert len(answer.text) < 1_000_000
        check_harmless(answer.text)


@pytest.mark.parametrize(
    "path",
    ["/?page=201", "/questions?page=26", "/question?id=s0", "/?q=%3Cscript%3E", "/?tool=%3Cscript%3E", "/%3Cb%3E"],
)
def test_the_lists_with_them_are_harmless(viewer: Viewer, path: str) -> None:
    page = viewer.get(path)
    check_harmless(page.text)
    assert page.headers["content-type"] == "text/html; charset=utf-8"


def test_markup_is_shown_as_it_was_written(viewer: Viewer) -> None:
    elements = check_harmless(viewer.get(f"/t/{ORDINARY + 1}").text)
    assert elements.text.count(HOSTILE[0]) >= 4


def test_a_template_in_a_text_is_only_text(viewer: Viewer) -> None:
    assert "{{ 7 * 7 }} {% raw %}" in viewer.get(f"/t/{ORDINARY + 5}").text


def test_a_raw_line_is_plain_text(viewer: Viewer) -> None:
    page = viewer.get(f"/t/{ORDINARY + 1}/raw")
    assert page.headers["content-type"] == "text/plain; charset=utf-8"
    assert page.headers["x-content-type-options"] == "nosniff"
    assert Trajectory.model_validate_json(page.text).messages[0]["content"] == HOSTILE[0]


@pytest.mark.parametrize("path", ["/", "/t/1", "/t/1/raw", "/static/viewer.js", "/nowhere", "/?page=x"])
def test_every_answer_is_confined(viewer: Viewer, path: str) -> None:
    headers = viewer.get(path).headers
    policy = headers["content-security-policy"]
    assert policy.startswith("default-src 'none'")
    assert "unsafe" not in policy
    assert "http" not in policy
    assert "frame-ancestors 'none'" in policy
    assert headers["cache-control"] == "no-store"


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "LOCALHOST:8765", "[::1]:8765", "192.168.0.7:80"])
def test_a_host_that_is_no_other_site_is_served(viewer: Viewer, host: str) -> None:
    assert viewer.get("/t/1", host=host).status == 200


@pytest.mark.parametrize(
    "host",
    ["evil.example", "evil.example:8765", "localhost.evil.example", "127.0.0.1.evil.example", "a:b", "[::1", "@"],
)
def test_a_site_that_was_pointed_here_is_refused(viewer: Viewer, host: str) -> None:
    for path in ("/", "/t/1/raw", "/static/viewer.js"):
        page = viewer.get(path, host=host)
        assert page.status == 421
        assert "trajector" not in page.text


def test_only_this_machine_is_listened_to(viewer: Viewer) -> None:
    with socket.socket() as elsewhere:
        elsewhere.bind(("127.0.0.2", 0))
        with pytest.raises(ConnectionRefusedError), socket.create_connection(("127.0.0.3", viewer.port), timeout=5):
            pass


@pytest.mark.parametrize(
    ("text", "sign"),
    [
        ("\x1b[31m", "ESC"),
        ("\x00", "NUL"),
        ("\x7f", "DEL"),
        ("\r", "CR"),
        ("\x85", "U+0085"),
        ("\u202e", "U+202E"),
        ("\u2066", "U+2066"),
        ("\u200b", "U+200B"),
        ("\ufeff", "U+FEFF"),
        ("\u2028", "U+2028"),
    ],
)
def test_what_cannot_be_seen_gets_a_sign(text: str, sign: str) -> None:
    said = str(shown(f"a{text}b"))
    assert f">{sign}</span>" in said
    assert text[0] not in said


def test_many_of_them_get_one_sign() -> None:
    assert ">NUL×1,000</span>" in shown("\0" * 1000)
    assert len(shown("\0" * 1_000_000)) < 200


def test_usual_text_stays_as_it_is() -> None:
    text = "Zürich, 東京, שלום\n\tnaïve 🙂 e\u0301 👩\u200d🚀"
    assert str(shown(text)) == text


def test_long_texts_fold_after_whole_lines_and_add_up() -> None:
    text = "".join(f"line {number}\n" for number in range(1000))
    fold = folded(text)
    assert fold.more is not None
    assert fold.head + fold.more == text
    assert fold.head.endswith("\n")
    assert fold.head.count("\n") <= 24
    assert fold.more_lines > 900
    assert folded("short\n" * 3).more is None


def test_a_megabyte_is_cut_and_says_so() -> None:
    fold = folded("x" * 1_000_000)
    assert fold.more is not None
    assert len(fold.head) + len(fold.more) + fold.cut_chars == 1_000_000
    assert len(fold.more) < 100_000


def test_a_few_words_are_not_folded_away() -> None:
    assert folded("x" * 1700).more is None
