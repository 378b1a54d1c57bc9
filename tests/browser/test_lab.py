"""The chapters in JupyterLab: run all, move a slider, and the numbers of the picture change."""

from __future__ import annotations

import os
import re
import secrets
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import nbformat
import pytest
from playwright.sync_api import Browser, Page

from tests.browser.conftest import screenshots

pytestmark = pytest.mark.browser
ROOT = Path(__file__).parents[2]
TINY = """
import ipywidgets
def picture(n): return f'<div class="explorer"><svg width="150" height="30"><text y="20">{n * n}</text></svg></div>'
slider, face = ipywidgets.IntSlider(3, 0, 99, description="n"), ipywidgets.HTML(picture(3))
slider.observe(lambda change: setattr(face, "value", picture(change["new"])), names="value")
ipywidgets.VBox([slider, face])
"""
RUN_ALL = """async () => {
  const late = new Promise((_, fail) => setTimeout(() => fail(new Error("not run within 100 s")), 100000));
  const run = async () => {
    const app = window.jupyterapp; await app.restored;
    const widget = app.shell.currentWidget; await widget.context.ready; await widget.sessionContext.ready;
    while (!widget.sessionContext.session?.kernel) await new Promise(done => setTimeout(done, 100));
    await widget.sessionContext.session.kernel.info;
    return app.commands.execute("notebook:run-all-cells");
  };
  return Promise.race([run(), late]);
}"""
# Off-screen cells must exist for the test to find them, and nothing may ask for news.
SETTINGS = {
    "apputils-extension/notification": '{"fetchNews": "false", "checkForUpdates": false}',
    "notebook-extension/tracker": '{"windowingMode": "none"}',
}


# Opening JupyterLab takes a quarter of a minute a notebook. The other explorers differ from these in their function
# alone, and that is compared with the library for every one of them in tests/test_explorers.py.
EXPLORERS = ("budget", "dp", "pp")


@pytest.fixture(scope="module")
def lab(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Start JupyterLab with settings of its own over a copy of the chapters."""
    home = tmp_path_factory.mktemp("lab")
    work = home / "book"
    shutil.copytree(ROOT / "book", work, ignore=shutil.ignore_patterns("_*", "src"))
    kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    tiny = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(TINY)], metadata=kernel)
    nbformat.write(tiny, work / "tiny.ipynb")
    for name, text in SETTINGS.items():
        path = home / "settings" / "@jupyterlab" / f"{name}.jupyterlab-settings"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    folders = {"JUPYTER_CONFIG_DIR": "config", "JUPYTER_DATA_DIR": "data", "JUPYTER_RUNTIME_DIR": "runtime"}
    folders |= {"JUPYTERLAB_SETTINGS_DIR": "settings", "JUPYTERLAB_WORKSPACES_DIR": "spaces", "IPYTHONDIR": "ipython"}
    environ = {**os.environ, **{name: str(home / folder) for name, folder in folders.items()}}
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    token = secrets.token_hex(16)
    command = [sys.executable, "-m", "jupyterlab", "--allow-root", "--no-browser", f"--ServerApp.root_dir={work}"]
    command += ["--ServerApp.ip=127.0.0.1", f"--ServerApp.port={port}", f"--IdentityProvider.token={token}"]
    log = (home / "lab.log").open("w")
    server = subprocess.Popen([*command, "--LabApp.expose_app_in_browser=True"], env=environ, stdout=log, stderr=log)
    try:
        wait_for(f"http://127.0.0.1:{port}/api?token={token}", server, home / "lab.log")
        yield f"http://127.0.0.1:{port}/lab/tree/{{}}.ipynb?token={token}&reset"
    finally:
        server.terminate()
        server.wait(20)
        log.close()


def wait_for(address: str, server: subprocess.Popen[bytes], log: Path) -> None:
    """Wait until JupyterLab answers, or say why it does not."""
    for _ in range(240):
        if server.poll() is not None:
            break
        try:
            with urllib.request.urlopen(address, timeout=2):
                return
        except OSError:
            time.sleep(0.25)
    pytest.fail(f"JupyterLab did not start:\n{log.read_text()[-2000:]}")


def run_all(page: Page, address: str) -> None:
    """Open a notebook and run it from the top."""
    page.goto(address)
    page.locator(".jp-Notebook .jp-CodeCell").first.wait_for(timeout=90_000)
    assert page.evaluate(RUN_ALL), "a cell failed"


@pytest.mark.parametrize("name", ["tiny", *EXPLORERS])
def test_a_slider_changes_the_numbers(browser: Browser, lab: str, name: str) -> None:
    page = browser.new_page(viewport={"width": 1280, "height": 1000})
    try:
        run_all(page, lab.format(name))
        faces = page.locator(".jp-OutputArea-output:has(.widget-slider):has(.explorer)")
        faces.first.wait_for(timeout=60_000)
        for index in range(faces.count()):
            face = faces.nth(index)
            picture = face.locator(".explorer").first
            before = picture.inner_html()
            handle = face.locator(".noUi-handle").first
            handle.scroll_into_view_if_needed()
            box, track = handle.bounding_box(), face.locator(".noUi-target").first.bounding_box()
            assert box is not None
            assert track is not None
            start = box["x"] + box["width"] / 2
            middle = track["x"] + track["width"] / 2
            # towards the farther end, so that there is room to move
            goal = track["x"] + track["width"] * (0.15 if start > middle else 0.85)
            height = box["y"] + box["height"] / 2
            page.mouse.move(start, height)
            page.mouse.down()
            page.mouse.move(goal, height, steps=8)
            page.mouse.up()
            # the picture is replaced as a whole, so it is looked up anew each time
            for _ in range(100):
                if picture.inner_html() != before:
                    break
                page.wait_for_timeout(100)
            after = picture.inner_html()
            assert re.findall(r"[\d.]+", after) != re.findall(r"[\d.]+", before), f"explorer {index + 1} did not move"
            assert page.locator(".explorer-error").count() == 0
        page.screenshot(path=str(screenshots() / f"lab-{name}.png"))
    finally:
        page.close()
