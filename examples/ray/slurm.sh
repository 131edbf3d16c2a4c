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

mapfile -t nodes < <(scontrol show hostnames "$SLURM_JOB_NODELIST")
head=${nodes[0]}
address=$(srun --nodes=1 --ntasks=1 -w "$head" hostname -I | cut -d ' ' -f 1):${RAY_PORT:-6379}
export RAY_USAGE_STATS_ENABLED=0 OMP_NUM_THREADS=1

# One Ray on every node; each ends with its srun, that is with the job.
srun --nodes=1 --ntasks=1 -w "$head" \
  ray start --head --port="${address##*:}" --num-cpus="$SLURM_CPUS_PER_TASK" --include-dashboard=false --block &
nodes_up() { timeout -k 5 60 ray status --address "$address" 2> /dev/null | grep -c '^ *1 node_' || true; }
wait_for() { # nodes
  until [ "$(nodes_up)" -ge "$1" ]; do
    if [ $SECONDS -gt "${RAY_WAIT:-600}" ]; then
      echo "slurm.sh: of $SLURM_JOB_NUM_NODES nodes, $(nodes_up) have a Ray after $SECONDS s; RAY_WAIT sets the limit." >&2
      end_rays
      exit 1
    fi
    sleep 1
  done
}
end_rays() { # and wait until their ports are free again
  kill $(jobs -p) 2> /dev/null || true
  wait || true
}
wait_for 1
if [ "$SLURM_JOB_NUM_NODES" -gt 1 ]; then
  srun --nodes=$((SLURM_JOB_NUM_NODES - 1)) --ntasks=$((SLURM_JOB_NUM_NODES - 1)) --exclude="$head" \
    ray start --address="$address" --num-cpus="$SLURM_CPUS_PER_TASK" --block &
fi
wait_for "$SLURM_JOB_NUM_NODES"

# Two minutes before the limit Slurm says TERM: the run comes to a whole end, with a checkpoint.
if [ -e "$run/config.toml" ]; then
  fedgsp resume "$run" --engine ray --address "$address" &
else
  fedgsp run --engine ray --address "$address" --out "$run" "$@" &
fi
training=$!
trap 'kill -TERM $training' TERM
wait $training && ended=0 || ended=$?
if kill -0 $training 2> /dev/null; then wait $training && ended=0 || ended=$?; fi # the trap broke the first wait off
end_rays
exit $ended
