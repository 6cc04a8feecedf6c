"""An example for every command, shown at the end of its help; the tests parse each of them."""

from __future__ import annotations

EXAMPLES: dict[str, tuple[str, ...]] = {
    "": ("demo", "classify street.wav --labels 'a siren, rain, someone snoring'"),
    "demo": ("demo", "demo --data my-sounds"),
    "run": (
        "run --root my-sounds --out runs/mine",
        "run -m hf:laion/clap-htsat-unfused -d esc50 --root ESC-50 --out runs/esc50",
    ),
    "atlas": ("atlas runs/mine --open", "atlas runs/before runs/after"),
    "report": ("report runs/mine",),
    "models": ("models", "models show nano"),
    "models show": ("models show nano",),
    "models check": ("models check nano --sounds",),
    "models convert": ("models convert laion:checkpoint.pt --out clap-folder",),
    "units": ("units nano 's3.*.h*'",),
    "datasets": ("datasets", "datasets show esc50"),
    "datasets show": ("datasets show esc50",),
    "datasets check": ("datasets check esc50 --root ESC-50 --decode",),
    "datasets make": ("datasets make synthetic --out sounds --n 200",),
    "doctor": ("doctor",),
    "classify": ("classify street.wav --labels 'a siren, rain, someone snoring'",),
    "embed": ("embed a.wav b.flac --out vectors.npz",),
    "extract": ("extract --root my-sounds --out runs/mine --capture heads,direct",),
    "store": ("store info runs/mine",),
    "store info": ("store info runs/mine",),
    "store verify": ("store verify runs/mine",),
    "store export": ("store export runs/mine --to heads.h5",),
    "analyse": ("analyse runs/mine", "analyse --from-table heads.csv"),
    "ablate": (
        "ablate runs/mine",
        "ablate runs/mine --unit s2.b5.h11 --method exact --root my-sounds",
    ),
    "patch": (
        "patch --limit 40 --out runs/order",
        "patch -d compa-order --root CompA --method exact --method attribution --out runs/compa",
    ),
    "compare-runs": ("compare-runs runs/esc50 runs/orchestra -o compared",),
    "timemap": ("timemap street.wav 'a siren' 'rain' --out maps",),
    "reweight": (
        "reweight compare runs/mine",
        "reweight fit runs/mine --path network --root my-sounds --out gains",
    ),
    "reweight compare": (
        "reweight compare runs/mine --fold 1 --fold 2",
        "reweight compare runs/clotho --by captions",
    ),
    "reweight fit": ("reweight fit runs/mine --path network --root my-sounds --out gains",),
    "reweight front": ("reweight front runs/mine --keep runs/reference",),
    "reweight trade": ("reweight trade runs/mine", "reweight trade runs/mine --bounds -1,4"),
    "reweight protocol": (
        "reweight protocol paolini runs/esc50 --root ESC-50",
        "reweight protocol arcioni runs/tinysol --root TinySOL --n 200",
    ),
    "reweight retention": ("reweight retention runs/mine --root my-sounds",),
    "reweight rule": ("reweight rule retain runs/mine --number share=0.5 --out gains",),
    "reweight exit": ("reweight exit runs/mine --root my-sounds",),
    "reweight transfer": ("reweight transfer gains runs/other",),
    "reweight sliders": ("reweight sliders demo s3=0.5 s3.b0.h0=1,0 --out gains",),
    "sweep": ("sweep runs/mine --trials 30",),
    "adapt": (
        "adapt -d manifest --root pairs.csv --how lora --out runs/pairs",
        "adapt --root my-sounds --out runs/adapted",
    ),
    "export": (
        "export --gains gains --out adapted --to hf",
        "export -m hf:clap-folder --gains gains --out adapter --to peft --push me/adapter",
    ),
    "evaluate": (
        "evaluate -d esc50 --root ESC-50 --fold 4",
        "evaluate -m nano -m laion:630k.pt -d clotho --root Clotho --task retrieval",
    ),
    "compa": ("compa -m nano -d synthetic --items 200",),
    "probe": ("probe runs/mine", "probe -m nano -d esc50 --root ESC-50"),
    "probe measure": ("probe measure runs/mine", "probe measure audio.npy --text text.npy"),
    "probe study": ("probe study results", "probe study --from-table cells.csv"),
    "compare": ("compare nano laion:630k.pt -d esc50 --root ESC-50",),
    "fad": ("fad real-music generated-music",),
    "music": ("music real-midi generated-midi", "music clap-score generated --prompts prompts.csv"),
    "music symbolic": ("music symbolic real-midi generated-midi",),
    "music clap-score": ("music clap-score generated --prompts prompts.csv",),
    "music report": ("music report study.json",),
    "mushra": ("mushra ratings.csv --scale 0,100 --reference reference",),
    "train": ("train nano --root data --out train",),
    "bench": ("bench encode",),
    "bench encode": ("bench encode --clips 24",),
    "bench analyse": ("bench analyse --no-growth",),
    "bench intervene": ("bench intervene --clips 8",),
    "bench capture": ("bench capture --capture heads,direct",),
    "bench onnx": ("bench onnx --batch-size 1",),
    "bench atlas": ("bench atlas demo", "bench atlas large --clips 2000"),
    "bench demo": ("bench demo",),
    "bench kill": ("bench kill --kills 5",),
    "bench faults": (
        "bench faults --quick",
        "bench faults --campaign damage --keep outcomes --json",
    ),
    "bench leaks": ("bench leaks --embeddings 200",),
    "bench memory": ("bench memory --clips 100,1000",),
    "bench growth": ("bench growth --clips 1000,10000", "bench growth --part store --json"),
    "bench run": ("bench run --clips 100", "bench run --out runs/bench --json"),
    "bench page": ("bench page docs/results --out speed.md",),
}


def epilog(command: str) -> str | None:
    """What stands under the options of a command."""
    lines = EXAMPLES.get(command, ())
    shown = "\n".join(f"  residual-audio {line}" for line in lines)
    title = "Example:" if len(lines) == 1 else "Examples:"
    # \b: not to be wrapped
    return f"\b\n{title}\n{shown}" if lines else None
