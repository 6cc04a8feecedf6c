"""The pictures of docs/gallery.md, from the bundled model as it is.

    python scripts/gallery.py FOLDER

FOLDER takes the run (205 synthetic sounds of a seed that `nano` was not trained on); called again
it goes on where it was stopped. What the pictures were drawn from is noted in
docs/results/gallery.json.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from PIL import Image

from residual_audio.files import write_json
from residual_audio.pipeline import work
from residual_audio.pipeline.run_settings import RunSettings
from residual_audio.pipeline.steps import Steps, contents
from residual_audio.pipeline.workshop import Workshop
from residual_audio.progress import SILENT
from residual_audio.report.figures import draw_all

DOCS = Path(__file__).resolve().parents[1] / "docs"
FIGURES = DOCS / "images" / "figures"
WIDTH = 1000
"""Pixels; a page is not wider."""
MADE = {"n_clips": 205, "seed": 90_000}


def main(out: Path) -> None:
    names = re.findall(r"\(images/figures/(\w+)\.png\)", (DOCS / "gallery.md").read_text())
    at = Workshop(RunSettings("nano", "synthetic", out, data_options=MADE), SILENT)
    print(work.extract_store(at))
    store = contents(out / "store", "manifest.json")
    Steps(out).do("analyse", store, lambda: work.analyse_store(at))
    drawn = {path.stem: path for path in draw_all(out, names, formats=("png",))}
    missing = sorted(set(names) - set(drawn))
    if missing:
        raise SystemExit(f"could not be drawn: {', '.join(missing)}")
    for name in names:
        picture = Image.open(drawn[name])
        size = (WIDTH, round(picture.height * WIDTH / picture.width))
        picture.resize(size, Image.Resampling.LANCZOS).save(FIGURES / f"{name}.png", optimize=True)
    note = {
        "command": "python scripts/gallery.py FOLDER",
        "model": at.store.model_info.name,
        "sha256": at.store.model_info.sha256,
        "dataset": {"name": "synthetic", **MADE},
        "n_clips": len(at.store),
        "figures": names,
    }
    write_json(DOCS / "results" / "gallery.json", note)
    print(f"{len(names)} figures in {FIGURES}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
