#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs experiments as an array of Slurm jobs, one shard each:
#   sbatch --array=1-8 examples/sweeps/slurm.sh 8 'minuet/*' --backend cuda
# A job that ended early goes on where it stopped: sbatch --array=3 examples/sweeps/slurm.sh 8 ...
# When all have ended:
#   voxconv experiment --merge results/shard-* --out results/all && voxconv report results/all
#SBATCH --job-name=voxconv
#SBATCH --gpus=1
#SBATCH --cpus-per-task=8
set -euo pipefail
shards=$1
shift
exec voxconv experiment "$@" --shard "$SLURM_ARRAY_TASK_ID/$shards" \
  --out "${RESULTS:-results}/shard-$SLURM_ARRAY_TASK_ID"
