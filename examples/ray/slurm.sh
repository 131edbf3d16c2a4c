#!/bin/bash
# A run on several nodes of a Slurm cluster:
#   sbatch examples/ray/slurm.sh RUN_DIRECTORY [options of `fedgsp run`]
# RUN_DIRECTORY is on shared storage. Submitted again, after the time limit say, the run goes on from its last checkpoint.
#SBATCH --job-name=fedgsp
#SBATCH --nodes=4
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=16
#SBATCH --time=24:00:00
#SBATCH --signal=B:TERM@120
set -euo pipefail
run=${1:?usage: sbatch slurm.sh RUN_DIRECTORY [options of fedgsp run]}
shift

head=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
address=$(srun --nodes=1 --ntasks=1 -w "$head" hostname -I | cut -d ' ' -f 1):${RAY_PORT:-6379}
export RAY_USAGE_STATS_ENABLED=0 OMP_NUM_THREADS=1

# One Ray on every node; each ends with its srun, that is with the job.
srun --nodes=1 --ntasks=1 -w "$head" \
  ray start --head --port="${address##*:}" --num-cpus="$SLURM_CPUS_PER_TASK" --include-dashboard=false --block &
nodes_up() { ray status --address "$address" 2> /dev/null | grep -c '^ *1 node_' || true; }
until [ "$(nodes_up)" -ge 1 ]; do sleep 1; done
if [ "$SLURM_JOB_NUM_NODES" -gt 1 ]; then
  srun --nodes=$((SLURM_JOB_NUM_NODES - 1)) --ntasks=$((SLURM_JOB_NUM_NODES - 1)) --exclude="$head" \
    ray start --address="$address" --num-cpus="$SLURM_CPUS_PER_TASK" --block &
fi
until [ "$(nodes_up)" -ge "$SLURM_JOB_NUM_NODES" ]; do sleep 1; done

# Two minutes before the limit Slurm says TERM: the run comes to a whole end, with a checkpoint.
if [ -e "$run/config.toml" ]; then
  fedgsp resume "$run" --engine ray --address "$address" &
else
  fedgsp run --engine ray --address "$address" --out "$run" "$@" &
fi
training=$!
trap 'kill -TERM $training; wait $training' TERM
wait $training
kill $(jobs -p) 2> /dev/null || true
