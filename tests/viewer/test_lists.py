"""Lists over 10,000 trajectories: filters give the right sets, counts add up, orders hold."""

from __future__ import annotations

import html
import re
from collections import Counter
from collections.abc import Callable
from urllib.parse import quote

import pytest

from rollbox.schemas.trajectory import Trajectory

from .page_client import Viewer

Made = dict[int, Trajectory]


def outcome(made: Trajectory) -> str:
    if made.infra_failed:
        return "infra"
    if made.rewards is None:
        return "unscored"
    return "right" if made.rewards.correct else "wrong"


def kinds(made: Trajectory) -> set[str]:
    return {record.error_kind.value for record in made.records if record.error_kind}


def found(viewer: Viewer, query: str) -> tuple[int, list[int]]:
    """How many the list says there are, and the lines of its first page."""
    page = viewer.get(f"/?{query}")
    assert page.status == 200
    number = re.search(r"<h1>([\d,]+) (?:trajector|line)", page.text)
    assert number
    return int(number[1].replace(",", "")), page.lines()


FILTERS: list[tuple[str, Callable[[Trajectory], bool]]] = [
    ("outcome=right", lambda made: outcome(made) == "right"),
    ("outcome=wrong", lambda made: outcome(made) == "wrong"),
    ("outcome=infra", lambda made: outcome(made) == "infra"),
    ("outcome=unscored", lambda made: outcome(made) == "unscored"),
    ("stop=max_turns", lambda made: made.stop_reason == "max_turns"),
    ("error=timeout", lambda made: "timeout" in kinds(made)),
    ("error=any", lambda made: bool(kinds(made))),
    ("error=infra", lambda made: "infra" in kinds(made)),
    ("tool=python", lambda made: any(record.tool == "python" for record in made.records)),
    ("sample=question-7", lambda made: made.sample.sample_id == "question-7"),
    ("q=QUESTION%207:", lambda made: "question 7:" in str(made.messages).lower()),
    ("q=step%2042,", lambda made: any("step 42," in text for text in made.assistant_texts)),
    ("outcome=wrong&tool=search&error=user_code", lambda made: outcome(made) == "wrong" and "user_code" in kinds(made)
     and any(record.tool == "search" for record in made.records)),
    ("q=no+such+words+anywhere", lambda made: False),
]  # fmt: skip


@pytest.mark.parametrize(("query", "fits"), FILTERS)
def test_a_filter_lists_what_fits_and_nothing_else(
    viewer: Viewer, made: Made, query: str, fits: Callable[[Trajectory], bool]
) -> None:
    expected = [line for line, trajectory in made.items() if fits(trajectory)]
    assert found(viewer, query) == (len(expected), expected[:50])


def test_unreadable_lines_are_listed(viewer: Viewer, unreadable_lines: list[int]) -> None:
    assert found(viewer, "outcome=unreadable") == (len(unreadable_lines), unreadable_lines)


def test_every_page_of_a_list_together_is_the_list(viewer: Viewer, made: Made) -> None:
    expected = [line for line, trajectory in made.items() if "timeout" in kinds(trajectory)]
    listed = []
    for page in range(1, -(-len(expected) // 50) + 1):
        listed += viewer.get(f"/?error=timeout&page={page}").lines()
    assert listed == expected


def counts(text: str, title: str) -> dict[str, int]:
    section = text.split(f"<h2>{title}</h2>", 1)[1].split("</section>", 1)[0]
    names = re.findall(r'class="name">(.*?)</span><span class="count">([\d,]+)', section)
    return {html.unescape(name): int(number.replace(",", "")) for name, number in names}


def test_counts_say_what_a_filter_would_list(viewer: Viewer, made: Made) -> None:
    wrong = [trajectory for trajectory in made.values() if outcome(trajectory) == "wrong"]
    text = viewer.get("/?outcome=wrong").text
    assert counts(text, "Ended by") == Counter(trajectory.stop_reason.value for trajectory in wrong)
    assert counts(text, "Call errors") == Counter(kind for trajectory in wrong for kind in kinds(trajectory))
    tools = Counter(tool for trajectory in wrong for tool in {record.tool for record in trajectory.records} if tool)
    assert counts(text, "Tool called") == tools
    # What the outcome could be instead is counted without the outcome's own filter.
    everything = Counter(outcome(trajectory) for trajectory in made.values())
    assert {**counts(text, "Outcome"), "unreadable": 0} == {**everything, "unreadable": 0}


@pytest.mark.parametrize(
    ("sort", "key"),
    [
        ("turns", lambda made: made.num_turns),
        ("calls", lambda made: len(made.records)),
        ("errors", lambda made: sum(record.error_kind is not None for record in made.records)),
        ("tokens", lambda made: len(made.response_ids)),
        ("reward", lambda made: made.rewards.total),
    ],
)
@pytest.mark.parametrize("order", ["asc", "desc"])
def test_orders_hold_and_lines_break_ties(
    viewer: Viewer, made: Made, sort: str, key: Callable[[Trajectory], float], order: str
) -> None:
    some = {line: trajectory for line, trajectory in made.items() if outcome(trajectory) == "wrong"}
    sign = -1 if order == "desc" else 1
    expected = sorted(some, key=lambda line: (sign * key(some[line]), line))
    assert viewer.get(f"/?outcome=wrong&sort={sort}&order={order}").lines() == expected[:50]


def test_unscored_ones_come_last_whichever_way_rewards_are_sorted(viewer: Viewer, made: Made) -> None:
    for order in ("asc", "desc"):
        page = viewer.get(f"/?sort=reward&order={order}")
        assert all(made[line].rewards is not None for line in page.lines())


def test_next_and_previous_follow_the_list_that_one_came_from(viewer: Viewer, made: Made) -> None:
    wrong = [line for line, trajectory in made.items() if outcome(trajectory) == "wrong"]
    text = viewer.get(f"/t/{wrong[5]}?outcome=wrong").text
    assert f'rel="prev" href="/t/{wrong[4]}?outcome=wrong"' in text
    assert f'rel="next" href="/t/{wrong[6]}?outcome=wrong"' in text
    assert f"6 of {len(wrong):,}" in text
    assert 'rel="prev"' not in viewer.get(f"/t/{wrong[0]}?outcome=wrong").text


def test_questions_are_grouped_with_what_their_samples_made_of_them(viewer: Viewer, made: Made) -> None:
    groups: dict[str, list[str]] = {}
    for trajectory in made.values():
        groups.setdefault(trajectory.sample.sample_id, []).append(outcome(trajectory))
    mixed = [name for name, group in groups.items() if {"right", "wrong"} <= set(group)]
    page = viewer.get("/questions?kind=mixed")
    assert f"<h1>{len(mixed):,} questions</h1>" in page.text
    listed = [html.unescape(name) for name in re.findall(r'href="/question\?id=([^"]+)"', page.text)]
    assert listed == [quote(name, safe="/") for name in mixed[:50]]


def test_a_question_shows_its_samples_side_by_side(viewer: Viewer, made: Made) -> None:
    page = viewer.get("/question?id=question-12")
    expected = [line for line, trajectory in made.items() if trajectory.sample.sample_id == "question-12"]
    assert page.lines() == expected
    chosen = [int(line) for line in re.findall(r'value="(\d+)" checked', page.text)]
    assert {outcome(made[line]) for line in chosen} == {"right", "wrong"}


@pytest.mark.parametrize(
    ("path", "status", "said"),
    [
        ("/?page=0", 400, "page: Input should be greater than or equal to 1"),
        ("/?page=x", 400, "page: Input should be a valid integer"),
        ("/?page=99999999999999999999999999", 400, "page: "),
        ("/?sort=length", 400, "sort: Input should be"),
        ("/?outcome=good", 400, "outcome: Input should be"),
        ("/?error=none", 400, "error"),
        ("/?colour=red", 400, "colour: Extra inputs are not permitted"),
        ("/?page=5000", 200, "There is no page 5,000"),
        ("/?q=no+such+words+anywhere", 200, "No trajectory fits these filters"),
        ("/t/0", 404, "Trajectory 0 is not there"),
        ("/t/99999", 404, "Trajectory 99999 is not there"),
        ("/t/-1", 404, "There is no such trajectory"),
        ("/t/f1", 404, "Trajectory f1 is not there"),
        ("/t/1%0A", 404, "There is no such trajectory"),
        ("/t/%D9%A1", 404, "There is no such trajectory"),
        ("/t/" + "9" * 5000, 404, "There is no such trajectory"),
        ("/t/1/tokens?part=9", 200, "There is no part 9"),
        ("/t/99999/raw", 404, "Trajectory 99999 is not there"),
        ("/question?id=nobody", 404, "No trajectory has this sample_id"),
        ("/question", 400, "id: Field required"),
        ("/diff?a=1", 400, "b: Field required"),
        ("/diff?a=1&b=-1", 400, "b: String should match pattern"),
        ("/diff?a=1&b=99999", 404, "Trajectory 99999 is not there"),
        ("/nowhere", 404, "There is no such page"),
        ("/docs", 404, "There is no such page"),
        ("/static/../serve.py", 404, "There is no such page"),
    ],
)
def test_what_is_not_there_is_said(viewer: Viewer, path: str, status: int, said: str) -> None:
    page = viewer.get(path)
    assert page.status == status
    assert said in html.unescape(page.text)


def test_only_reading_is_possible(viewer: Viewer) -> None:
    assert viewer.get("/", method="POST").status == 405


def test_an_unreadable_line_has_a_page_of_its_own(viewer: Viewer, unreadable_lines: list[int]) -> None:
    for line in unreadable_lines:
        page = viewer.get(f"/t/{line}")
        assert page.status == 200
        assert f"Line {line} (" in page.text
        assert viewer.get(f"/diff?a={line}&b=1").status == 404
