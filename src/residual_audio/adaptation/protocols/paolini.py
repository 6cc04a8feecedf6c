"""Paolini (2025): one basis and one λ a stage, all of its attention outputs, inside the network."""

from __future__ import annotations

from dataclasses import replace

from residual_audio.adaptation.protocols.protocol_recipe import (
    ProtocolRecipe,
    PublishedProtocol,
    Training,
)

PUBLISHED = ProtocolRecipe(
    variant="as published",
    level="stage",
    prompt="A sound of {}",
    training=Training(0.01, 30, "last epoch", batch_size=64),
    keep_mean=False,
    own_temperature=False,
    linear="five epochs",
)
CORRECTED = replace(
    PUBLISHED,
    variant="corrected",
    training=Training(0.01, 30, "held-out loss", batch_size=64),
    keep_mean=True,
    own_temperature=True,
    linear="chosen strength",
)
PAOLINI = PublishedProtocol(
    "paolini",
    PUBLISHED,
    CORRECTED,
    stage_sets=((0,), (1,), (2,), (3,), (2, 3), (0, 1, 2, 3)),
    sweep_rates=(0.001, 0.003, 0.01),
    sweep_epochs=(10, 30, 50),
    differences=(
        "mean: the published formula drops the mean of a stage's attention, so that λ = 1 is not "
        "the model; corrected keeps it, and λ = 1 is the model to the bit",
        "temperature: published, the loss is of cosines as they are (scale 1), which hardly tells "
        "classes apart; corrected takes the model's own",
        "epochs: published, always the last; corrected, the epoch with the least loss on whole "
        "held-out groups of the training part, the unchanged model among them",
        "set (and rate): published, the best by accuracy on the folds it is reported on; "
        "corrected, in every fold the one with the least held-out loss (the row `chosen`)",
        "linear: published, five epochs of AdamW at 0.01; corrected, to convergence with its "
        "strength chosen",
        "not repeated: the published code runs every edited block twice, leaves dropout on while "
        "it trains λ, and caps the rank of its bases by the windows of the first batch",
    ),
)
