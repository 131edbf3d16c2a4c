"""The documented ways to start a cluster: as far as they can be run here."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml  # type: ignore[import-untyped]

from tests.support import ray_clusters, tiny
from tests.support.waiting import until

EXAMPLES = Path(__file__).parents[4] / "examples" / "ray"


def test_ray_accepts_the_cluster_file() -> None:
    from ray.autoscaler._private.util import prepare_config, validate_config

    config = prepare_config(yaml.safe_load((EXAMPLES / "cluster.yaml").read_text()))
    validate_config(config)
    assert config["provider"]["type"] == "local"


def test_the_kuberay_manifest_runs_commands_that_there_are() -> None:
    job = yaml.safe_load((EXAMPLES / "kuberay.yaml").read_text())
    assert (job["apiVersion"], job["kind"]) == ("ray.io/v1", "RayJob")
    spec = job["spec"]["rayClusterSpec"]
    for group in (spec["headGroupSpec"], *spec["workerGroupSpecs"]):
        pod = group["template"]["spec"]
        assert {mount["name"] for mount in pod["containers"][0]["volumeMounts"]} <= {
            volume["name"] for volume in pod["volumes"]
        }
    run = job["spec"]["entrypoint"].split("else fedgsp run ")[1].split("; fi")[0].split()
    options = [word for word in run if word.startswith("--")]
    told = tiny.cli("run", "--help")
    assert all(option in told.stdout for option in options)


@pytest.mark.slow
def test_the_slurm_script_runs_and_goes_on(tmp_path: Path) -> None:
    """With stand-ins for Slurm's commands: both nodes are this machine."""
    stands_in = tmp_path / "bin"
    stands_in.mkdir()
    (stands_in / "scontrol").write_text("#!/bin/bash\necho node-a\necho node-b\n")
    (stands_in / "srun").write_text('#!/bin/bash\nwhile [[ "$1" == -* ]]; do [ "$1" = -w ] && shift; shift; done\nexec "$@"\n')
    (stands_in / "fedgsp").write_text(
        f"#!/bin/bash\nexec {sys.executable} -c 'from fedgsp.cli.main import main; main()' \"$@\"\n"
    )
    for command in stands_in.iterdir():
        command.chmod(0o755)
    environment = {
        **tiny.environment(),
        "PATH": os.pathsep.join([str(stands_in), str(Path(sys.executable).parent), os.environ["PATH"]]),
        "SLURM_JOB_NODELIST": "node-[a-b]", "SLURM_JOB_NUM_NODES": "2", "SLURM_CPUS_PER_TASK": "1", "RAY_PORT": "26390",
        "RAY_TMPDIR": (own := ray_clusters.own_folder()), "RAY_WAIT": "300",
    }  # fmt: skip
    run, sbatch = tmp_path / "run", ["bash", str(EXAMPLES / "slurm.sh"), str(tmp_path / "run")]
    options = ["--data", "glyphs:clients=8", "--rounds", "200"]
    history, result = run / "journal.jsonl", run / "result.json"
    try:
        with (tmp_path / "log").open("w") as log:
            script = subprocess.Popen([*sbatch, *options], env=environment, stdout=log, stderr=log)
            deadline = time.monotonic() + 600
            while not (history.exists() and history.read_text().count("\n") > 2):
                assert script.poll() is None, (tmp_path / "log").read_text()
                assert time.monotonic() < deadline, (tmp_path / "log").read_text()
                time.sleep(0.1)
            script.terminate()  # as Slurm does before its time limit
            assert script.wait(240) != 0
        assert json.loads(result.read_text())["status"] == "interrupted", (tmp_path / "log").read_text()
        until(lambda: not ray_clusters.left(own), 240, "what Ray's nodes started to end with them")
        done = subprocess.run([*sbatch, *options], env=environment, capture_output=True, text=True, timeout=600, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
    finally:
        ray_clusters.end(own)
    facts = json.loads(result.read_text())
    assert facts["status"] == "finished"
    assert {"worker 0", "worker 1"} <= facts["timings"]["peak_memory"].keys()
