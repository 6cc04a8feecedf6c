# ruff: noqa: E501
"""The claims of the five documents, as data: where each stands, what was published, how it is read.

A claim of the shape of one encoder is read from every run (`RunClaim`); one that needs a study of
its own is read from its result file (`StudyClaim`); one that nothing here can decide says why
(`OpenClaim`). The documents: 000 the Arcioni report, 001 its README, 002 the Paolini report, 003
two posts (embedding geometry of CLAP; evaluation of generated music), 004 the pipeline note.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import claims_readings as read
import claims_study_readings as study
from claims_measured import Measured

Holds = bool | None
"""None: these clips cannot tell."""


@dataclass(frozen=True)
class Claim:
    """One sentence of a document."""

    id: str
    source: str
    text: str
    published: str


@dataclass(frozen=True)
class RunClaim(Claim):
    """Read from any run."""

    show: Callable[[Measured], str]
    holds: Callable[[Measured], Holds]
    staged: bool = False
    ablated: bool = False
    """Read from blocks taken out, which may have had fewer clips."""
    """Needs an encoder of stages: says nothing of a plain transformer."""


@dataclass(frozen=True)
class StudyClaim(Claim):
    """Read from a result file of its own."""

    result: str
    """File stem below docs/results/claims."""
    show: Callable[[Mapping[str, Any]], str]
    holds: Callable[[Mapping[str, Any]], Holds]


@dataclass(frozen=True)
class OpenClaim(Claim):
    """Nothing here can decide it."""

    reason: str


def _stage(metric: str, digits: int = 1) -> Callable[[Measured], str]:
    return lambda m: read.arrow(read.means(m, metric), digits)


DIMENSIONS: Sequence[Claim] = (
    RunClaim("pca99-grows", "000 §4.1.1, Table 1",
             "PCA 99% dimension grows from stage to stage",
             "4.8 → 16.1 → 21.8 → 23.0 of 24", _stage("pca_99"), read.rises("pca_99")),
    RunClaim("pca90-grows", "000 Table 1", "PCA 90% dimension grows from stage to stage",
             "2.0 → 7.8 → 14.5 → 16.3", _stage("pca_90"), read.rises("pca_90")),
    RunClaim("twonn-grows", "000 Table 1; 001", "TwoNN grows from stage to stage",
             "5.5 → 7.4 → 8.9 → 9.0", _stage("twonn"), read.rises("twonn")),
    RunClaim("mle-grows", "000 §4.1.4", "MLE grows in parallel with TwoNN",
             "parallel trends", _stage("mle"), read.rises("mle")),
    RunClaim("mle-above-twonn", "000 §4.1.4", "MLE gives slightly higher values than TwoNN",
             "slightly higher", lambda m: f"MLE {read.arrow(read.means(m, 'mle'))} against TwoNN "
             f"{read.arrow(read.means(m, 'twonn'))}", read.mle_above),
    RunClaim("pr-grows", "000 Table 1", "Participation ratio grows from stage to stage",
             "1.7 → 5.6 → 11.7 → 13.2", _stage("pr"), read.rises("pr")),
    RunClaim("effrank-grows", "000 Table 1", "Effective rank grows from stage to stage",
             "2.2 → 8.1 → 15.3 → 17.0", _stage("eff_rank"), read.rises("eff_rank")),
    RunClaim("growth-factor", "000 §4.1.1", "PCA 99% grows 4.8-fold from first to last stage",
             "4.8×", read.growth, read.growth_is(3.0), True),
    RunClaim("exceeds-capacity", "000 §4.1.1",
             "Its growth exceeds the growth in capacity (said to be 2×; stage widths grow 8×)",
             "4.8× > 2×", read.growth_against_width, read.exceeds_width, True),
    RunClaim("saturation", "000 §4.1.1, A.2",
             "The last stage adds little: the step of PCA 99% is the smallest",
             "+11.3, +5.7, +1.2", read.steps, read.last_step_smallest, True),
    RunClaim("small-last-step", "000 A.2", "The last step is below 2 dimensions of 24 (8% of d_head)",
             "< 2.0", read.last_step, read.last_step_small, True),
    RunClaim("first-jump", "000 A.2", "The largest step is from the first to the second stage",
             "+9.1 to +10.1, CV 0.06", read.steps, read.first_step_largest, True),
    RunClaim("stage2-block-growth", "000 §4.1.2",
             "Within stage 2 the linear dimension grows from block to block",
             "19.4 → 22.6, +16.4%", read.within_stage(2), read.grows_within(2), True),
    RunClaim("boundary-jumps", "000 §4.1.2",
             "Stage boundaries are sharp: +100%, +38%, +3% from block to block",
             "+100%, +38%, +3%", read.boundaries, read.boundaries_fall, True),
    RunClaim("stage3-plateau", "000 §4.1.2", "Dimension falls slightly within the last stage",
             "23.3 → 22.6", read.within_stage(3), read.falls_within(3), True),
    RunClaim("l0-range", "000 §4.1.4", "First-stage heads spread widely (CV above the last stage's)",
             "2–10 of 24; L3 19–24", read.ranges, read.first_spreads_more, True),
    RunClaim("cv", "000 §4.3", "Heads of stage 1 differ more than those of stage 3 (CV 0.19, 0.04)",
             "0.19 against 0.04", read.cvs, read.cv_falls, True),
    RunClaim("anova", "000 Table 6", "Stages differ in every metric (ANOVA, p < 0.001)",
             "F 32 to 335", read.anova, read.anova_clear),
    RunClaim("pairs", "000 Table 7", "All pairs of stages differ in PCA 99% (Bonferroni)",
             "p < 0.001, d 0.78 to 8.94", read.pairs, read.pairs_clear, True),
    RunClaim("large-effects", "000 A.3", "All effect sizes are large (|d| > 0.8; its own table has 0.78)",
             "all > 0.8", read.effects, read.effects_large, True),
)  # fmt: skip

SPECTRA: Sequence[Claim] = (
    RunClaim("evr-falls", "000 §4.1.1", "The share of the first component falls with depth",
             "0.791 → 0.354 → 0.190 → 0.173", _stage("evr_pc1", 3), read.falls("evr_pc1")),
    RunClaim("evr-l0", "000 §4.1.1; 001", "First-stage heads are dominated by one direction",
             "79% (73% in §5.1, 69% in A.2)", lambda m: f"{read.means(m, 'evr_pc1')[0]:.0%}",
             lambda m: read.means(m, "evr_pc1")[0] > 0.5),
    RunClaim("evr-below-half", "000 A.4",
             "89% of the last stage's heads have EVR1 below 0.5; only 2 heads of the first do",
             "2 heads; 89%", read.below_half, read.below_half_split, True),
    RunClaim("ln-grows", "000 §4.1.1", "L/N grows with depth", "0.87 → 2.56",
             _stage("ln_ratio", 2), read.rises("ln_ratio")),
    RunClaim("ln-final", "000 A.2", "L/N of the last stage is 2.6 to 2.7 on every data set",
             "2.56 (2.6 to 2.7 in A.2)", lambda m: f"{read.means(m, 'ln_ratio')[-1]:.2f}",
             lambda m: 2.4 <= read.means(m, "ln_ratio")[-1] <= 2.9),
    RunClaim("ln-underestimates", "000 §4.1.1; 001",
             "A high L/N shows that PCA underestimates the dimension",
             "stated", lambda m: f"PCA 99% {read.means(m, 'pca_99')[-1]:.1f} > TwoNN "
             f"{read.means(m, 'twonn')[-1]:.1f}",
             lambda m: read.means(m, "pca_99")[-1] < read.means(m, "twonn")[-1]),
    RunClaim("ln-early", "000 §4.1.2", "The first block has L/N below 1", "0.59",
             lambda m: f"{m['blocks']['L/N'][0]:.2f}", lambda m: m["blocks"]["L/N"][0] < 1),
    RunClaim("entropy-pca", "000 §4.2.1", "Spectral entropy goes with PCA 99% over heads",
             "ρ = 0.900", read.entropy_pca, lambda m: read.rho(m, "pca_99~shannon_entropy") > 0.7),
    RunClaim("pr-effrank", "000 §4.1.4", "PR and effective rank measure nearly the same",
             "high correlation", read.pr_effrank, lambda m: read.rho(m, "pr~eff_rank") > 0.9),
    RunClaim("k16", "000 §4.3", "Two thirds of the components (16 of 24) keep 99% of the variance",
             "k ≈ 16 keeps 99%", read.kept, read.kept_99),
    RunClaim("early-pruning", "000 §4.1.2", "Two or three components keep 90% in the first blocks",
             "top 2–3 keep > 90%", lambda m: f"PCA 90% {read.means(m, 'pca_90')[0]:.1f}",
             lambda m: read.means(m, "pca_90")[0] <= 3),
    RunClaim("similarity", "000 §4.2.2", "Spectra are alike within stages and little less across",
             "0.973, 0.948, ratio 1.03", read.similarity, read.similarity_high, True),
    RunClaim("l0-stripe", "000 §4.2.2", "First-stage spectra are the ones unlike all others",
             "L0 stripe", read.l0_similarity, read.l0_apart, True),
)  # fmt: skip

CLASSES: Sequence[Claim] = (
    RunClaim("fisher-late", "001", "The Fisher ratio is highest in stages 2 and 3",
             "stages 2–3", _stage("fisher_trace", 2), read.fisher_late, True),
    RunClaim("fisher-probe", "001", "The Fisher ratio says how well a head separates classes (a probe)",
             "assumed", lambda m: read.association(m, "probe"), read.goes_with("probe")),
    RunClaim("fisher-ablation", "001", "The Fisher ratio goes with ablation importance",
             "being assessed", lambda m: read.association(m, "ablation"), read.goes_with("ablation")),
    RunClaim("probe-late", "001", "Classes can be read better from later stages (linear probe)",
             "expected", read.probes, read.rises("probe_accuracy")),
    RunClaim("block0", "000 §4.2.3", "The first block is by far the most critical",
             "+5 points (100 clips)", read.ablation_first, read.first_block_most, True, True),
    RunClaim("stage2-beneficial", "000 §4.2.3", "Blocks of stage 2 are mildly beneficial or neutral",
             "0 to +2 points", read.ablation_stage(2), read.stage_not_harmful(2), True, True),
    RunClaim("stage3-neutral", "000 §4.2.3", "Blocks of the last stage are neutral: over-parameterised",
             "0, 0 points", read.ablation_stage(3), read.stage_neutral(3), True, True),
    RunClaim("block2-harmful", "000 §4.2.3", "One block of stage 1 does harm", "−2 points (block 2)",
             read.ablation_stage(1), read.stage_harmful(1), True, True),
    RunClaim("entropy-importance", "000 Figure 6b",
             "Over blocks, entropy and importance go against each other, but not significantly",
             "r = −0.49, p = 0.104", read.entropy_importance, read.entropy_importance_negative, True, True),
    RunClaim("attention-falls", "002 §5.2",
             "Participation ratio of attention maps falls with depth, but for a peak in stage 1",
             "peak in layer 1, then falls", read.attention_pr, read.attention_peak, True),
    RunClaim("attention-converges", "002 §4", "Early stages' heads have more diverse maps than late ones",
             "wide early, alike late", read.attention_std, read.attention_converges, True),
)  # fmt: skip

ADAPTATION: Sequence[Claim] = (
    StudyClaim("residual-helps", "000 §5.3", "Reweighting gives 8–12% relative improvement (here fitted on labels, from a baseline near chance)",
               "8–12% relative (preliminary)", "adapted_orchestra",
               study.gain_of("heads-0123"), study.gain_clear("heads-0123")),
    StudyClaim("residual-fails", "002 Table 1", "ResiDual does not improve, a linear probe does by far",
               "0.8685 against 0.8790; probe 0.9775", "adapted_orchestra",
               study.residual_and_probe, study.residual_below_probe),
    StudyClaim("first-layer-best", "002 §5.3", "ResiDual in the first stage alone is best",
               "highest median of the sweep", "adapted_orchestra", study.stage_sets, study.first_best),
    StudyClaim("all-layers-worst", "002 §5.3", "All stages together are the worst choice",
               "lowest median", "adapted_orchestra", study.stage_sets, study.all_worst),
    StudyClaim("late-best", "000 (later folds)", "Stages 2 and 3 are the best target",
               "93.85 → 96.20 on ESC-50", "adapted_orchestra", study.stage_sets, study.late_best),
    StudyClaim("rules", "000 §4.1.2",
               "Pruning early, amplifying middle or suppressing late components helps without labels",
               "proposed", "adapted_orchestra", study.rules, study.rules_help),
    StudyClaim("curved", "000 §4.3", "Deep heads are curved, so that linear reweighting is suboptimal",
               "L/N > 2.5", "curved", study.curvature, study.curved_late),
    StudyClaim("early-exit", "000 §5.2", "The last stage is over-parameterised: clips can leave early",
               "proposed", "early_exit", study.exits, study.exit_free),
    OpenClaim("wider-early", "000 §5.2", "Wider early stages improve fine discrimination", "proposed",
              "audio.encoder.widths gives every stage a width of its own; no such training was finished"),
    StudyClaim("contrastive", "000 §5.3",
               "Contrastive training shapes dimension unlike class labels (one short run each)",
               "proposed", "objectives", study.objectives, study.one_run_each),
)  # fmt: skip

GEOMETRY: Sequence[Claim] = (
    StudyClaim("rankme-text", "003 Table 4", "RankMe of the text side predicts H over cells",
               "ρ = +0.94 (6 cells)", "cells", study.cell("rank_me_text"), study.cell_sign("rank_me_text", 1)),
    StudyClaim("rankme-audio", "003 Table 4", "RankMe of the audio side predicts H",
               "ρ = +0.83", "cells", study.cell("rank_me_audio"), study.cell_sign("rank_me_audio", 1)),
    StudyClaim("angle", "003 Table 4", "A small angle between the modalities predicts H",
               "ρ = −0.89", "cells", study.cell("modality_angle_deg"),
               study.cell_sign("modality_angle_deg", -1)),
    StudyClaim("rankme-text-caused", "003",
               "A model taught to compose, and nothing else, has a text side of higher RankMe",
               "argued", "seeds", study.told("rank_me_text"), study.told_sign("rank_me_text", 1)),
    StudyClaim("angle-caused", "003", "… and a smaller angle between the modalities",
               "argued", "seeds", study.told("modality_angle_deg"), study.told_sign("modality_angle_deg", -1)),
    StudyClaim("rankme-audio-caused", "003", "… and an audio side of higher RankMe",
               "argued", "seeds", study.told("rank_me_audio", 2), study.told_sign("rank_me_audio", 1)),
    StudyClaim("within-benchmarks", "003 Table 4",
               "These correlations hold within benchmarks too (recomputed from its own tables)",
               "not asked", "cells", study.within_published, study.within_clear),
    StudyClaim("compa-chance", "003", "Chance for H is about 1/40 (full pool)",
               "0.025", "cells", study.chance_levels, lambda s: False),
    StudyClaim("bag-of-words", "003", "CLAP models are bags of words: captions exchanged score as much (nano was trained on order)",
               "LAION 0.028, 0.030", "cells", study.exchanged, study.exchanged_holds),
    OpenClaim("mga-best", "003 Table 2", "MGA-CLAP has the best H on both benchmarks",
              "0.140, 0.102", "its weights and CompA's audio are not to be had here"),
    OpenClaim("l2-gap", "003 Table 4", "The l2 gap does not predict H, the angle does", "ρ = −0.20",
              "the composition study kept no l2 gap"),
    OpenClaim("twonn-text", "003 Table 3", "TwoNN of the text side is 1 to 2.4 for caption pairs",
              "1.0 to 2.4", "a property of pairs that share their words; the study kept no TwoNN"),
    OpenClaim("audio-not-bottleneck", "003", "Audio-side collapse is not the main bottleneck", "argued",
              "six cells of three models cannot separate causes"),
)  # fmt: skip

STRUCTURE: Sequence[Claim] = (
    StudyClaim("no-merge", "004", "There is no patch merging between stages 2 and 3",
               "256 tokens in stage 3", "architecture", study.merging, lambda s: s["merges"] == 2),
    StudyClaim("merge-spatial", "000 Figure 1", "Stage 4 omits patch merging to keep resolution",
               "64 × 768 after it", "architecture", study.last_merge, lambda s: False),
    StudyClaim("ceiling", "001", "Projected heads have a ceiling of 96 … 768 dimensions by stage",
               "min(n, D)", "architecture", study.ceiling, lambda s: s["projected_rank"] > s["d_head"]),
    StudyClaim("exact-sum", "001", "Heads sum exactly to the attention output", "exact",
               "architecture", lambda s: f"largest error {s['head_sum_error']:.1e} of 1",
               lambda s: s["head_sum_error"] < 1e-4),
    StudyClaim("heads-184", "000 §3.1", "There are 184 heads, (4, 8, 16, 32) in (2, 2, 6, 2) blocks",
               "184", "architecture", lambda s: str(s["n_heads"]), lambda s: s["n_heads"] == 184),
    StudyClaim("tinysol-size", "000 §3.2", "TinySOL has 2,071 samples of 14 instruments",
               "2,071", "architecture", lambda s: f"{s['tinysol']:,} clips in its official index",
               lambda s: s["tinysol"] == 2071),
)  # fmt: skip

CROSS: Sequence[Claim] = (
    StudyClaim("consistent", "000 §4.1.3", "Dimension patterns are the same on other data sets",
               "jump CV 0.06 over 3 data sets", "compared_datasets", study.data_sets, study.consistent),
    StudyClaim("architecture-driven", "000 §4.1.3",
               "So they come from the architecture (then random weights must show them)",
               "concluded", "compared_random", study.trained_random, study.random_alike),
    StudyClaim("single-architecture", "000 §5.3", "Other encoders show the same growth",
               "asked", "compared_whisper", study.whisper_growth, study.whisper_grows),
)  # fmt: skip

MUSIC: Sequence[Claim] = (
    OpenClaim("fad-abstract", "003", "FAD fails to reflect structure and expression", "argued",
              "needs systems that listeners have rated; `music report` correlates them"),
    OpenClaim("mushra-gold", "003", "Listening tests are indispensable", "argued", "no measurement"),
    OpenClaim("unified", "003", "Objective and listening measures together tell more", "argued",
              "`music report` puts both in one table; it takes six rated systems or more"),
)  # fmt: skip

SECTIONS: Mapping[str, Sequence[Claim]] = {
    "Dimension with depth": DIMENSIONS,
    "Spectra": SPECTRA,
    "Data sets, encoders, random weights": CROSS,
    "Classes, ablation, attention": CLASSES,
    "Reweighting": ADAPTATION,
    "Geometry and composition": GEOMETRY,
    "Architecture and data": STRUCTURE,
    "Generated music": MUSIC,
}
