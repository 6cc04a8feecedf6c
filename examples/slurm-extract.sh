#!/bin/bash
# Extraction as a SLURM job array: one task plans, the array makes the shards, one task finishes.
#
#   MODEL=hf:laion/clap-htsat-unfused DATA="-d esc50 --root /data/ESC-50" OUT=/data/runs/esc50 \
#       bash examples/slurm-extract.sh 16
#
# /data is a disk that all nodes see. Any task may be run again at will: what is there stays.
# Exit code 3 of a part means that some clips were skipped, each with its reason in the store.
set -euo pipefail
parts=${1:?how many parts?}
: "${OUT:?the folder of the run}" "${DATA:=-d synthetic}" "${MODEL:=nano}"
extract="residual-audio extract -m $(printf %q "$MODEL") $DATA --out $(printf %q "$OUT") --quiet"
accept="|| test \$? = 3"

plan=$(sbatch --parsable --job-name plan --cpus-per-task 2 --wrap "$extract --plan")
made=$(sbatch --parsable --job-name parts --dependency "afterok:$plan" --array "1-$parts" \
    --cpus-per-task 4 ${GPU:+--gpus-per-task 1} --requeue \
    --wrap "$extract --part \$SLURM_ARRAY_TASK_ID/$parts $accept")
sbatch --job-name finish --dependency "afterok:$made" --cpus-per-task 2 \
    --wrap "$extract --finish $accept"
