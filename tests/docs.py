"""Running the blocks of documentation pages as a reader would: in order, in one folder, files written where named.

| block | what is done with it |
|---|---|
| `python` | runs; `wh`, `spark` and `folder` are there, and names stay for later blocks |
| `sh` | each line runs in the folder; `deferred …` in this process, on the Spark of the tests |
| `sql` without a title | runs by `wh.sql` |
| any with `title="FILE"` | is written to the file; a view file or configuration is read too |
| any below `<!-- not run: REASON -->` | does not run |

`<!-- setup: retail -->` in a page makes the tables of the demo and tracks them; `dbt` puts a compiled project there.
"""

from __future__ import annotations

import ast
import json
import re
import shlex
import shutil
import subprocess
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from deferred import cli, demo
from deferred.config import Settings
from deferred.sql.viewfile import read_view

_BLOCK = re.compile(
    r"^(?P<indent> *)(?:<!-- not run: (?P<reason>[^\n]+?) -->\n(?P=indent))?"
    r"```(?P<language>\w+)(?P<attributes>[^\n]*)\n(?P<text>.*?)^(?P=indent)```$",
    re.MULTILINE | re.DOTALL,
)
_COMMAND = re.compile(r"\s*(?:airflow|cd|cp|curl|deferred|docker|export|git|make|mkdir|pip|python|spark-submit) ")
_SETUP = re.compile(r"<!-- setup: (.+?) -->")


@dataclass(frozen=True)
class Block:
    """A block of code in a page."""

    language: str
    text: str
    line: int
    title: str | None = None
    reason: str | None = None
    """Why it is not run."""


def blocks(page: str) -> list[Block]:
    """The blocks of a page that say their language; others are output or diagrams.

    >>> blocks('Write it:\\n```sql title="a.sql"\\nSELECT 1\\n```\\n<!-- not run: slow -->\\n```sh\\nmake\\n```\\n')
    [Block(language='sql', text='SELECT 1\\n', line=2, title='a.sql', reason=None), \
Block(language='sh', text='make\\n', line=5, title=None, reason='slow')]
    """
    found = []
    for match in _BLOCK.finditer(page):
        title = re.search(r'title="([^"]+)"', match["attributes"])
        line = page.count("\n", 0, match.start()) + 1
        text = textwrap.dedent(match["text"])
        found.append(Block(match["language"], text, line, title[1] if title else None, match["reason"]))
    return found


def unmarked_commands(page: str) -> list[str]:
    """The commands in blocks that do not say their language, and so would never run.

    >>> unmarked_commands('```sh\\nmake\\n```\\n\\n```\\na ──► b\\nmake demo\\n```\\n')
    ['make demo']
    """
    found, language = [], None  # None outside a block
    for line in page.splitlines():
        if line.lstrip().startswith("```"):
            language = line.strip().removeprefix("```") if language is None else None
        elif language == "" and _COMMAND.match(line):
            found.append(line)
    return found


class Reader:
    """Somebody who follows a page in an empty folder."""

    def __init__(self, folder: Path, spark: Any, patch: pytest.MonkeyPatch) -> None:
        from deferred import Warehouse

        self.folder, self.spark = folder, spark
        for name in ("CONFIG", "PATH", "METADATA_URL", "SPARK_REMOTE", "SPARK_MASTER"):
            patch.delenv(f"DEFERRED_{name}", raising=False)
        self.patch = patch
        patch.chdir(folder)
        original = Warehouse.open.__func__  # type: ignore[attr-defined]
        opened = classmethod(lambda cls, config=None, **given: original(cls, config, **{**given, "spark": spark}))
        patch.setattr(Warehouse, "open", opened)
        self.names: dict[str, Any] = {"spark": spark, "folder": folder}

    def follow(self, page: str) -> None:
        for names in _SETUP.findall(page):
            for name in names.split(","):
                getattr(self, f"_{name.strip()}")()
        if any(re.search(r"\bwh\b", block.text) for block in blocks(page) if block.language == "python"):
            self._project()
        try:
            for block in blocks(page):
                if block.reason is None:
                    self._run(block)
        finally:
            if "wh" in self.names:
                self.names["wh"].close()

    def cells(self, notebook: Path) -> list[Any]:
        """Run the code cells of a notebook; returns what each would show: the value of its last expression."""
        shown = []
        for cell in json.loads(notebook.read_text(encoding="utf-8"))["cells"]:
            if cell["cell_type"] == "code":
                tree = ast.parse("".join(cell["source"]))
                last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
                exec(compile(tree, str(notebook), "exec"), self.names)
                value = eval(compile(ast.Expression(last.value), str(notebook), "eval"), self.names) if last else None
                shown.append(value)
        return shown

    def _run(self, block: Block) -> None:
        if block.title is not None:
            self._write(block.title, block.text)
        elif block.language == "python":
            exec(compile(block.text, f"line {block.line}", "exec"), self.names)
        elif block.language == "sh":
            for line in _lines(block.text):
                self._command(line)
        elif block.language == "sql":
            self.names["wh"].sql(block.text)
        else:
            raise AssertionError(f"line {block.line}: give the {block.language} block a title, or a reason not to run")

    def _write(self, title: str, text: str) -> None:
        file = self.folder / title
        file.parent.mkdir(parents=True, exist_ok=True)
        if file.suffix == ".toml":  # it may name hosts that are not there, so it is read and not kept
            file = file.with_suffix(".shown.toml")
        file.write_text(text)
        if file.suffix == ".toml":
            for name in re.findall(r"\$\{(\w+)\}", text):
                self.patch.setenv(name, "secret")
            Settings.resolve(file)
        elif file.parent.name == "views":
            read_view(file)

    def _command(self, line: str) -> None:
        words = shlex.split(line, comments=True)
        if words[:1] != ["deferred"]:
            subprocess.run(["bash", "-euc", line], cwd=self.folder, check=True)
            return
        with pytest.raises(SystemExit) as ended:
            cli.main(words[1:])
        assert not ended.value.code, line

    def _project(self) -> None:
        from deferred import Warehouse

        if "wh" not in self.names:
            self._command("deferred init")
            self.names["wh"] = Warehouse.open(self.folder / "conf" / "deferred.toml")

    def _retail(self) -> None:
        self._project()
        for name, schema in demo.SCHEMAS.items():
            rows = self.spark.read.csv(str(demo.examples() / "data" / f"{name}.csv"), schema=schema, header=True)
            rows.write.format("delta").save(str(self.folder / "tables" / name))
        self._command("deferred track --all tables")

    def _dbt(self) -> None:
        shutil.copytree(Path(__file__).parent / "fixtures" / "dbt", self.folder / "dbt")


def _lines(text: str) -> Iterator[str]:
    """The commands of a block: a backslash at the end of a line joins it with the next."""
    for line in re.sub(r"\\\n\s*", "", text).splitlines():
        if line.strip() and not line.lstrip().startswith("#"):
            yield line
