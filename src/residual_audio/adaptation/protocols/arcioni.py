"""Arcioni (2026): a basis and a λ for each head before W_O, inside the network, by sets of stages.

The report that this project starts from leaves its training open; numbers are those of the tables
and the notation of its later edition.
"""

from __future__ import annotations

from dataclasses import replace

from residual_audio.adaptation.protocols.protocol_recipe import (
    ProtocolRecipe,
    PublishedProtocol,
    Training,
)

PUBLISHED = ProtocolRecipe(
    variant="as published",
    level="head",
    prompt="this is the sound of {}",
    training=Training(0.005, 40, "training accuracy", batch_size=16, weight_decay=0.05),
    keep_mean=False,
    own_temperature=False,
    torn_groups=True,
    variance=0.95,
    basis_clips=250,
)
CORRECTED = replace(
    PUBLISHED,
    variant="corrected",
    training=Training(0.005, 40, "held-out loss", batch_size=16),
    keep_mean=True,
    own_temperature=True,
    torn_groups=False,
    variance=None,
    basis_clips=None,
    linear="chosen strength",
)
ARCIONI = PublishedProtocol(
    "arcioni",
    PUBLISHED,
    CORRECTED,
    stage_sets=((3,), (2, 3), (0, 1, 2, 3)),
    samples=(("esc50", 2000), ("tinysol", 2071), ("vocalsound", 1200)),
    seed=42,
    differences=(
        "folds: published, drawn clip by clip and class by class, so that cuts of one recording "
        "and notes of one player are on both sides; corrected, official or grouped folds",
        "mean and start: published drops the mean and starts components beyond 95% of the variance "
        "at 0; corrected keeps the mean and starts at 1, which is the model to the bit",
        "stopping: published, at the best accuracy on the clips that λ is trained on; corrected, "
        "at the least loss on whole held-out groups, the unchanged model among them",
        "weight decay: published, AdamW pulls λ to 0, which takes the head away; corrected, none",
        "temperature: published, cosines as they are (scale 1); corrected, the model's own",
        "basis: published, from up to 250 clips that λ is then not trained on; corrected, from the "
        "whole training part",
        "set: published, the best by accuracy on the folds it is reported on; corrected, in every "
        "fold the one with the least held-out loss (the row `chosen`); a linear probe beside it",
        "samples: the report draws 2,000 of ESC-50, 2,071 of TinySOL and 1,200 of VocalSound, "
        "class by class (its appendix says 1,000, its later tables 1,744 of TinySOL and 2,000)",
    ),
)
