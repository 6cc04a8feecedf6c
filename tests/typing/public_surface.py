"""The whole public surface as people write it; a type checker reads this, nobody runs it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt

import residual_audio as ra


def inside(model: ra.Model, files: list[Path]) -> ra.Cache:
    cache = model.run(files, keep=["s2.b5.h11", "maps"], on_error="skip")
    head: npt.NDArray[np.floating] = cache["s2.b5.h11"]
    maps = cache["maps"]
    print(head.shape, [value.shape for value in maps.values()], cache.maps("s2.b5").shape)
    print(cache.time_frequency("s2.b5.h11").mean(), cache.contributions().total(), cache.clips)
    one: ra.Cache = cache.clip(0)
    return one


def edits(model: ra.Model, files: list[str], cache: ra.Cache, gains: ra.Gains) -> None:
    model.embed_audio(files, edit={"s2.b5.h11": ra.zero(), "s3": ra.scale(0.5)})
    model.embed_audio(files, edit={"s2.b5.h11": ra.mean(cache), "s0": lambda x: x})
    model.embed_audio(files, edit=ra.patch(cache))
    model.embed_audio([np.zeros(16_000)], sample_rate=16_000, edit=gains)
    with model.edited({"s3": ra.patch(cache)}) as edited:
        name: str = edited.name
    print(name, model.with_edit(gains).units("head"))


def from_run_to_checkpoint(sounds: ra.Dataset, out: Path) -> ra.Result:
    model = ra.load_model("nano")
    run: ra.Run = ra.extract(model, sounds, out, capture=("heads", "direct"), limit=100)
    store: ra.Store = ra.open_store(out)
    analysis: ra.Analysis = ra.analyse(run)
    table: ra.Table = analysis.heads.top("fisher_trace", 10)
    effects: ra.Table = ra.ablate(run, "s2.b5.h11", model=model, mode="mean")
    methods = (ra.ResiDual(stages=(2, 3)), ra.LinearProbe(), ra.LoRA(), ra.Rule("fisher"))
    fitted: ra.Adapted = ra.adapt(run, methods[0], model=model)
    score: ra.Score = fitted.score
    print(len(store), table, effects, score.value, methods)
    if fitted.gains is None:
        raise ra.ResidualAudioError("no gains")
    saved = ra.save_gains(fitted.gains, out / "gains")
    folded: ra.FoldedModel = ra.fold(model, ra.load_gains(saved))
    folded.save("adapter", to="peft", licence="mit")
    told: ra.CaptionsAdapted = ra.adapt_captions(run, ra.ResiDual(stages=(3,)), model=model)
    print(told.score("t2a", 5), told.gains)
    published: ra.ProtocolResult = ra.protocol("paolini", run, n=200)
    print(published.table, published.differences)
    gain: ra.Score = ra.adapt_pairs(model, ["a.wav"], "out", labels=["a"], how="lora").gain
    widths = [batch.shape[1] for batch in ra.token_stream(model, ["a.wav"], "s2.b5.mlp")]
    print(gain, widths)
    folded.save(out / "adapted", to="hf")
    print(
        ra.atlas(run).open(), ra.probe(run).scores, ra.ClapEmbedder().fit_transform(["a.wav"]).shape
    )
    return ra.evaluate(model, "esc50", root="ESC-50", gains=fitted.gains, folds=4)


def nouns() -> None:
    clip, head = ra.Clip("a"), ra.Head(2, 5, 11)
    site = ra.Site(2, 5, "attention", 16, 24, 384)
    spectrum = ra.Spectrum(np.zeros(12), np.eye(12), np.ones(12), 100)
    gains = ra.Gains({str(head): np.ones(12)}, {str(head): spectrum})
    print(clip, site, gains, ra.load_dataset("synthetic", n_clips=8), ra.__version__)


def causes(model: ra.Model, a: Path, b: Path) -> None:
    print(ra.patching(model, a, b, units="s3.*.h0"), ra.time_map(model, a, "a dog"))


def words(model: ra.Model, files: list[Path], sounds: ra.Dataset) -> None:
    labels: ra.Table = ra.classify(model, files, ["a dog", "rain"])
    cards: ra.ModelCards = ra.compare([model, "nano"], sounds, limit=40)
    labels.plot("score").savefig("labels.png")
    ra.evaluate(model, sounds, sample=40).plot("top1")
    print(cards.table, model.run(files, keep="s2.b5.h11").plot("s2.b5.h11", clip=0))


def side_by_side(one: ra.Run, other: ra.Run) -> None:
    print(ra.compare_runs({"one": one, "other": other}, n=40).places)
