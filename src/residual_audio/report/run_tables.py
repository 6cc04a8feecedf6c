"""What figures are drawn from: the files below `tables/` of a run, read when first asked for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from residual_audio.errors import InputError
from residual_audio.files import read_json
from residual_audio.report.table_files import read_parquet
from residual_audio.seals import prove_file
from residual_audio.table import Table, read_csv


class MissingTable(InputError):
    """A figure asks for a table or column that this run does not have."""


class Tables:
    """Tables of a run by name."""

    def __init__(self, run: Path) -> None:
        self.folder = run / "tables"
        if not self.folder.is_dir():
            raise InputError(
                f"'{run}' has no tables: make them with `residual-audio analyse {run}`"
            )
        self._read: dict[str, Table] = {}
        self._statistics: dict[str, Any] | None = None

    def __getitem__(self, name: str) -> Table:
        if name not in self._read:
            if (self.folder / f"{name}.csv").is_file():
                self._read[name] = read_csv(prove_file(self.folder / f"{name}.csv"))
            elif (self.folder / f"{name}.parquet").is_file():
                self._read[name] = read_parquet(prove_file(self.folder / f"{name}.parquet"))
            else:
                raise MissingTable(f"no table '{name}' in this run")
        return self._read[name]

    def need(self, name: str, *columns: str) -> Table:
        """A table that has these columns with at least one number in each."""
        table = self[name]
        for column in columns:
            if column not in table:
                raise MissingTable(f"table '{name}' has no column '{column}'")
        if not len(table):
            raise MissingTable(f"table '{name}' is empty")
        return table

    @property
    def statistics(self) -> dict[str, Any]:
        if self._statistics is None:
            path = self.folder / "statistics.json"
            self._statistics = read_json(prove_file(path)) if path.is_file() else {}
        return self._statistics

    def note(self, table: str) -> str:
        """What the analysis noted about a table, as one line."""
        return "; ".join(self.statistics.get("notes", {}).get(table, []))
