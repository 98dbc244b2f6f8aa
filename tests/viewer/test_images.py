"""Images of a run on its pages: those that it wrote, and nothing else that a line may name."""

from __future__ import annotations

import http.client
from collections.abc import Iterator
from pathlib import Path

import pytest
from PIL import Image

from rollbox.rollout.vision.picture import write_png
from rollbox.schemas.trajectory import TrajectoryImage

from .made_trajectories import as_line, call, trajectory
from .page_client import Viewer, viewing

FILE, LINK, TEXT = (f"images/{digit * 32}.png" for digit in "abc")
HOSTILE = ["../secret.png", "images/../secret.png", "https://example.org/x.png", '"><script>alert(1)</script>', 7, None]


@pytest.fixture(scope="module")
def viewer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Viewer]:
    directory = tmp_path_factory.mktemp("run") / "run"
    directory.mkdir()
    write_png(Image.new("RGB", (40, 20), (200, 30, 30)), directory / FILE)
    (directory.parent / "secret.png").write_bytes((directory / FILE).read_bytes())
    (directory / LINK).symlink_to(directory.parent / "secret.png")
    (directory / TEXT).write_text("<script>no picture</script>")
    made = trajectory([("I draw.", [(call(0, 0, images=1, images_left_out=1), "drawn")]), ("7", [])])
    shown = [{"type": "image", "image": FILE}, {"type": "text", "text": "drawn"}]
    made.messages[2]["content"] = shown
    made.messages[0]["content"] = made.sample.messages[0]["content"] = [*shown[:1], {"type": "text", "text": "What?"}]
    made.images = [TrajectoryImage(file=FILE, width=40, height=20, start=2, end=4)]
    odd = trajectory([("a", [(call(0, 0), "x")])])
    odd.messages[2]["content"] = [{"type": "image", "image": name} for name in HOSTILE]
    with (directory / "trajectories.jsonl").open("wb") as file:
        file.writelines(map(as_line, [made, odd]))
    with viewing(directory) as running:
        running.get_whole("/")
        yield running


def fetched(viewer: Viewer, path: str) -> tuple[int, str | None, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", viewer.port, timeout=60)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.getheader("Content-Type"), answer.read()
    finally:
        connection.close()


def test_prompt_and_output_show_their_image(viewer: Viewer) -> None:
    page = viewer.get("/t/1")
    assert page.text.count(f'<img src="/t/1/{FILE}"') == 2
    assert "1 image left out" in page.text
    status, kind, data = fetched(viewer, f"/t/1/{FILE}")
    assert (status, kind) == (200, "image/png")
    assert data.startswith(b"\x89PNG")


def test_other_names_are_no_images(viewer: Viewer) -> None:
    page = viewer.get("/t/2")
    assert (page.status, "<img" in page.text, "<script>alert" in page.text) == (200, False, False)


@pytest.mark.parametrize(
    "path",
    [
        "/t/1/images/../secret.png",
        "/t/1/images/..%2fsecret.png",
        "/t/1/images/%2e%2e%2f%2e%2e%2fsecret.png",
        "/t/1/images/trajectories.jsonl",
        f"/t/1/{LINK}",
        f"/t/1/{TEXT}",
        f"/t/99/{FILE}",
        f"/t/1/images/{'d' * 32}.png",
    ],
)
def test_nothing_but_the_runs_own_images_is_served(viewer: Viewer, path: str) -> None:
    status, _, data = fetched(viewer, path)
    assert status == 404
    assert not data.startswith(b"\x89PNG")


def test_the_same_pixels_are_written_once(tmp_path: Path) -> None:
    image = Image.new("RGB", (4, 4))
    write_png(image, tmp_path / "images" / "a.png")
    written = (tmp_path / "images" / "a.png").stat().st_mtime_ns
    write_png(image, tmp_path / "images" / "a.png")
    assert [path.name for path in (tmp_path / "images").iterdir()] == ["a.png"]
    assert (tmp_path / "images" / "a.png").stat().st_mtime_ns == written
