"""Turn the sources of the chapters into executed notebooks: book/src/dp.md -> book/dp.ipynb (exercises/src likewise).

The result depends on the source, the library and the pins alone: cell ids come from the contents, and there are no
times, no kernel version and no widget state in it, so two runs give the same bytes. What was executed from which
contents is remembered in .cache, and only what changed is executed again.

    python -m tools.notebooks             execute what changed
    python -m tools.notebooks dp budget   only these
    python -m tools.notebooks --check     say which notebooks do not belong to their sources (executes nothing)
    python -m tools.notebooks --verify    execute everything and compare with what is stored, writing nothing
"""

from __future__ import annotations

import argparse
import hashlib
import json
import multiprocessing
import os
import re
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = ("book", "exercises")
MEMORY = ROOT / ".cache" / "notebooks.json"
CELL_SECONDS = 120
WORKERS = 2
# What every notebook depends on, beside its own source.
COMMON = (
    "constraints.txt", "book/matplotlibrc", "tools/notebooks.py",
    "scaling_lib/**/*.py", "scaling_lib/data/*", "exercises/bank/*.py",
)  # fmt: skip
PRIVATE_FOLDERS = ("IPYTHONDIR", "JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR")
FIXED_SETTINGS = {"JUPYTER_PREFER_ENV_PATH": "1", "PYTHONHASHSEED": "0", "SOURCE_DATE_EPOCH": "0"}
NUMBER_TIE = re.compile(r"<!--[=~].*?-->", re.DOTALL)
ADDRESS = re.compile(r"\b0x[0-9a-f]{7,}\b")


class Trouble(Exception):
    """Something the author has to mend; its text says where."""


@dataclass(frozen=True)
class Job:
    """One source and the notebook made of it."""

    source: Path
    target: Path

    @property
    def name(self) -> str:
        """Return the path of the notebook as it is written in messages."""
        return self.target.relative_to(ROOT).as_posix()


def jobs(wanted: list[str] | None = None) -> list[Job]:
    """Return the sources that exist, or those with the wanted stems."""
    found = []
    for folder in FOLDERS:
        base = ROOT / folder / "src"
        for source in sorted(base.rglob("*.md")):
            found.append(Job(source, (ROOT / folder / source.relative_to(base)).with_suffix(".ipynb")))
    unknown = set(wanted or ()) - {job.source.stem for job in found}
    if unknown:
        known = ", ".join(job.source.stem for job in found)
        raise Trouble(f"There is no source named {', '.join(sorted(unknown))}. There are: {known}")
    return [job for job in found if not wanted or job.source.stem in wanted]


def unexecuted(job: Job) -> Any:
    """Read a source as a notebook with content-derived cell ids and without the tails that tie numbers to code."""
    import jupytext
    import nbformat

    notebook = jupytext.reads(job.source.read_text(encoding="utf-8"), fmt="md:myst")
    seen: Counter[str] = Counter()
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            cell.source = NUMBER_TIE.sub("", cell.source)
        digest = hashlib.sha256(f"{cell.cell_type}\n{cell.source}".encode()).hexdigest()[:12]
        seen[digest] += 1
        cell.id = digest if seen[digest] == 1 else f"{digest}-{seen[digest]}"
    notebook.metadata = nbformat.from_dict(
        {
            "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
            "language_info": {"name": "python"},
        }
    )
    notebook.nbformat, notebook.nbformat_minor = 4, 5
    return notebook


def execute(job: Job) -> str:
    """Run a source from the start in a new kernel and return the text of its notebook."""
    import nbclient
    import nbclient.output_widget
    import nbformat
    from jupyter_client.kernelspec import NoSuchKernel

    # A race in the syncing of Output widgets lets a cell hang until its time limit; no widget state is stored anyway.
    setattr(nbclient.output_widget.OutputWidget, "sync_state", lambda self: None)  # noqa: B010
    notebook = unexecuted(job)
    client = nbclient.NotebookClient(
        notebook,
        timeout=CELL_SECONDS,
        startup_timeout=CELL_SECONDS,
        kernel_name="python3",
        resources={"metadata": {"path": str(job.target.parent)}},
        record_timing=False,
        store_widget_state=False,
        extra_arguments=["--IPKernelApp.log_level=40"],
    )
    try:
        client.execute()
    except nbclient.exceptions.CellExecutionError as error:
        raise Trouble(describe(job, notebook, f"{error.ename}: {error.evalue}")) from None
    except nbclient.exceptions.CellTimeoutError:
        raise Trouble(describe(job, notebook, f"it ran longer than {CELL_SECONDS} s")) from None
    except nbclient.exceptions.DeadKernelError:
        raise Trouble(describe(job, notebook, "the kernel died")) from None
    except NoSuchKernel:
        raise Trouble("No Jupyter kernel named python3 is installed here: run this through `make notebooks`") from None
    normalise(job, notebook)
    return f"{nbformat.writes(notebook)}\n"


def describe(job: Job, notebook: Any, what: str) -> str:
    """Say which cell failed: the last one that was started."""
    code = [i for i, cell in enumerate(notebook.cells) if cell.cell_type == "code"]
    failed = [i for i in code if any(o.output_type == "error" for o in notebook.cells[i].outputs)]
    waiting = [i for i in code if notebook.cells[i].execution_count is None]
    index = (failed[-1:] or waiting or code[-1:])[0]
    return complaint(job, notebook, index, what)


def complaint(job: Job, notebook: Any, index: int, what: str) -> str:
    """Return a message with the place in the source, the reason and the code of the cell."""
    cell = notebook.cells[index]
    number = sum(c.cell_type == "code" for c in notebook.cells[: index + 1])
    code = "\n".join(f"    | {line}" for line in cell.source.splitlines())
    place = f"{job.source.relative_to(ROOT).as_posix()}:{line_of(job, notebook, index)}"
    return f"{place}: code cell {number}: {what}\n{code}"


def line_of(job: Job, notebook: Any, index: int) -> int:
    """Return the line of the source at which the code of a cell starts."""
    text, at = job.source.read_text(encoding="utf-8"), 0
    for cell in notebook.cells[: index + 1]:
        if cell.cell_type == "code":
            at = max(text.find(cell.source, at), 0)
    return text.count("\n", 0, at) + 1


def normalise(job: Job, notebook: Any) -> None:
    """Take out of the outputs what differs from run to run, and refuse what must not be stored."""
    for index, cell in enumerate(notebook.cells):
        cell.metadata.pop("execution", None)
        if cell.cell_type != "code":
            continue
        cell.outputs = merged(cell.outputs)
        for output in cell.outputs:
            if output.output_type == "stream" and output.name == "stderr":
                raise Trouble(complaint(job, notebook, index, f"it writes to stderr: {output.text.strip()[:300]}"))
            if output.output_type == "error":
                output.traceback = [f"{output.ename}: {output.evalue}"]
            data = output.get("data", {})
            data.pop("application/vnd.jupyter.widget-view+json", None)  # names a model of a kernel that is gone
            if "image/svg+xml" in data:
                data["image/svg+xml"] = re.sub(r"\s*<dc:date>.*?</dc:date>", "", data["image/svg+xml"])
            for text in (output.get("text", ""), *(v for k, v in data.items() if k.startswith("text/"))):
                if address := ADDRESS.search(text):
                    raise Trouble(complaint(job, notebook, index, f"it shows a memory address ({address[0]})"))
        cell.outputs = [o for o in cell.outputs if "data" not in o or o["data"]]
    notebook.metadata.pop("widgets", None)
    notebook.metadata.language_info = {"name": "python"}


def merged(outputs: list[Any]) -> list[Any]:
    """Join neighbouring pieces of one stream: how a kernel cuts them is chance."""
    result: list[Any] = []
    for output in outputs:
        last = result[-1] if result else None
        if output.output_type == "stream" and last and last.output_type == "stream" and last.name == output.name:
            last.text += output.text
        else:
            result.append(output)
    return result


def belongs(job: Job) -> bool:
    """Tell whether the stored notebook has the cells of its source, leaving the outputs aside."""
    import nbformat

    if not job.target.is_file():
        return False
    stored = nbformat.read(job.target, as_version=4)

    def cells(notebook: Any) -> list[Any]:
        return [(c.cell_type, c.source, c.get("id"), dict(c.metadata)) for c in notebook.cells]

    return cells(stored) == cells(unexecuted(job))


def stale() -> list[str]:
    """Return one line for each notebook that does not belong to its source."""
    every = jobs()
    lines = [f"{job.name} is not what its source says: make notebooks" for job in every if not belongs(job)]
    made = {job.target for job in every}
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).glob("*.ipynb")):
            if (ROOT / folder / "src").is_dir() and path not in made:
                lines.append(f"{path.relative_to(ROOT).as_posix()} has no source in {folder}/src: delete it or add one")
    return lines


def digest(data: bytes) -> str:
    """Return the SHA-256 of some bytes."""
    return hashlib.sha256(data).hexdigest()


def common() -> str:
    """Return one digest of all that every notebook depends on."""
    files = sorted({p for pattern in COMMON for p in ROOT.glob(pattern) if p.is_file()})
    lines = [sys.version, *(f"{p.relative_to(ROOT)} {digest(p.read_bytes())}" for p in files)]
    return digest("\n".join(lines).encode())


def remembered() -> dict[str, list[str]]:
    """Return, for each notebook made here, the digest of its causes and of its bytes."""
    try:
        memory = json.loads(MEMORY.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return memory if isinstance(memory, dict) else {}


def write(path: Path, text: str) -> None:
    """Replace a file in one step, so that it is never half written."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    draft.write_text(text, encoding="utf-8")
    draft.replace(path)


def make(wanted: list[str], force: bool = False, verify: bool = False) -> bool:
    """Execute what is out of date, or everything; return whether all went well."""
    memory, base, todo = remembered(), common(), []
    for job in jobs(wanted):
        cause = digest(job.source.read_bytes() + base.encode())
        result = digest(job.target.read_bytes()) if job.target.is_file() else ""
        if force or verify or memory.get(job.name) != [cause, result]:
            todo.append((job, cause))
    if not todo:
        print("All notebooks are up to date.")
        return True
    print(f"Executing {len(todo)} notebook{'s' * (len(todo) > 1)}.", flush=True)
    start, good = time.monotonic(), True
    with private_settings(), ProcessPoolExecutor(WORKERS, multiprocessing.get_context("spawn")) as pool:
        futures = {pool.submit(execute, job): (job, cause) for job, cause in todo}
        for done, future in enumerate(as_completed(futures), 1):
            job, cause = futures[future]
            try:
                state = keep(job, future.result(), verify)
                good &= state != "DIFFERS"
                if not verify:
                    memory[job.name] = [cause, digest(job.target.read_bytes())]
                    write(MEMORY, json.dumps(memory, indent=1, sort_keys=True))
            except Trouble as trouble:
                good, state = False, f"FAILED\n{trouble}"
            print(f"  {time.monotonic() - start:4.0f} s  {done}/{len(todo)}  {job.name}  {state}", flush=True)
    return good


def keep(job: Job, text: str, verify: bool) -> str:
    """Store an executed notebook, or only compare it, and return what became of it."""
    same = job.target.is_file() and job.target.read_text(encoding="utf-8") == text
    if not verify and not same:
        write(job.target, text)
    return "unchanged" if same else "DIFFERS" if verify else "written"


@contextmanager
def private_settings() -> Iterator[None]:
    """Keep a reader's own Jupyter, IPython and matplotlib settings out of what is executed."""
    with tempfile.TemporaryDirectory() as folder:
        own = {name: str(Path(folder, name)) for name in PRIVATE_FOLDERS} | FIXED_SETTINGS
        before = {name: os.environ.get(name) for name in own}
        os.environ.update(own)
        try:
            yield
        finally:
            for name, value in before.items():
                if value is None:
                    del os.environ[name]
                else:
                    os.environ[name] = value


def main() -> int:
    """Make, check or verify the notebooks."""
    parser = argparse.ArgumentParser(description="Turn book/src/*.md into executed notebooks.")
    parser.add_argument("stems", nargs="*", help="only these chapters")
    parser.add_argument("--check", action="store_true", help="compare cells with sources; execute and write nothing")
    parser.add_argument("--verify", action="store_true", help="execute all, compare with what is stored; write nothing")
    parser.add_argument("--force", action="store_true", help="execute also what has not changed")
    options = parser.parse_args()
    try:
        if options.check:
            lines = stale()
            print("\n".join(lines) or "Every notebook belongs to its source.")
            return 1 if lines else 0
        return 0 if make(options.stems, options.force, options.verify) else 1
    except Trouble as trouble:
        print(trouble, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\nStopped. Finished notebooks are kept; the same command does the rest.", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())
