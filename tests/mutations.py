"""Breaks the code on purpose, one small fault at a time, and sees whether the tests notice.

    python tests/mutations.py            all faults (part of `make test-all`)
    python tests/mutations.py 3 17       some of them

Faults are applied to a copy of src/; the working tree is not touched. A fault that no test notices is a missing test.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]


@dataclass(frozen=True)
class Fault:
    """A text in a file of src/fedgsp that is replaced, and the tests that should notice."""

    file: str
    old: str
    new: str
    tests: str


PATIENCE = 300.0
"""Seconds after which tests that should notice a fault count as hanging."""

FAULTS = (
    Fault("plan/growth.py", "return floor(alpha * (round_ - 1) + 1)", "return floor(alpha * round_ + 1)",
          "plan/test_growth.py"),
    Fault("plan/growth.py", "Decimal(round_).ln() + 1)", "Decimal(round_).ln())", "plan/test_growth.py"),
    Fault("plan/growth.py", "max(1, min(wanted, clients))", "max(1, wanted)", "plan/test_growth.py"),
    Fault("plan/planner.py", "floor(as_written(self.kappa) * groups)", "floor(self.kappa * groups)", "plan/test_planner.py"),
    Fault("plan/planner.py", "(len(formed)), replace=False", "(len(formed)), replace=True", "plan/test_planner.py"),
    Fault("plan/planner.py", '== "shuffled" else as_formed', '== "fixed" else as_formed', "plan/test_planner.py"),
    Fault("plan/planner.py", "profiles.clients[rows[begin:end]]", "rows[begin:end]", "plan/test_planner.py"),
    Fault("plan/planner.py", "int((labels < 0).sum())", "0", "plan/test_planner.py"),
    Fault("plan/groupers.py", 'the first round."""\n        return 1', 'the first round."""\n        return round_',
          "plan/test_groupers.py"),
    Fault("plan/groupers.py", "return rng.permutation(np.arange", "return np.asarray(np.arange", "plan/test_groupers.py"),
    Fault("plan/icg.py", "clusters = clients // n_groups", "clusters = -(-clients // n_groups)", "plan/test_icg.py"),
    Fault("plan/icg.py", "shuffled = rng.permuted(members, axis=1)", "shuffled = members", "plan/test_icg.py"),
    Fault("plan/icg.py", "- 2 * size * (points @ sums.T)", "+ 2 * size * (points @ sums.T)", "plan/test_icg.py"),
    Fault("plan/icg.py", "converged = np.array_equal(updated, sums)", "converged = True", "plan/test_icg.py"),
    Fault("plan/divergence.py", "np.abs(", "np.square(", "plan/test_divergence.py"),
    Fault("server/mean.py", 'weight = result.samples if self.weights == "samples" else 1', "weight = 1",
          "server/test_mean.py"),
    Fault("server/mean.py", '"uniform"] = "samples"', '"uniform"] = "uniform"', "server/test_mean.py"),
    Fault("server/rule.py", "if not borrows(update):", "if False:", "server/test_rule.py"),
    Fault("server/rule.py", "vars(owner).get(", "getattr(type(update), ", "server/test_rule.py"),
    Fault("server/combine.py", "for index in sorted(self._results)]", "for index in self._results]", "server/test_combine.py"),
    Fault("server/combine.py", "self._state, clone(combined))", "self._state, combined)", "server/test_combine.py"),
    Fault("run/trial.py", "return replace(state, round=round_)", "return state", "run/test_trial.py"),
    Fault("run/trial.py", "state = _apart(state)", "pass", "run/test_trial.py"),
    Fault("run/loop.py", "settled(trained if may_wait else None)", "pass", "run/test_trial.py"),
    Fault("run/first_batch.py", "differentiable and not value.requires_grad", "False", "run/test_first_batch.py"),
    Fault("server/mean.py", "round=self.round", "round=self.state.round", "server/test_mean.py"),
    Fault("server/hand_on.py", "order = seeds.route(plan.round).permutation(len(busy))", "order = range(len(busy))",
          "server/test_hand_on.py"),
    Fault("server/clustered.py", "math.sqrt((1 - self.gamma) / 2)", "(1 - self.gamma) / 2", "server/test_clustered.py"),
    Fault("server/clustered.py", "and mean_norm < self.eps1", "and mean_norm > self.eps1", "server/test_clustered.py"),
    Fault("plan/superclients.py", ">= self.least_samples or", "> self.least_samples or", "plan/test_superclients.py"),
    Fault("prepare/share.py", "rest = np.setdiff1d(clients, aside)", "rest = clients", "prepare/test_share.py"),
    Fault("prepare/faug.py", "np.flatnonzero(counts < middle)", "np.flatnonzero(counts <= middle)", "prepare/test_faug.py"),
    Fault("engine/walk.py", "replace(report, bytes_down=0, bytes_up=0)", "report", "prepare/test_pool.py"),
    Fault("client/distill.py", "if int(visit.state[ROUND]) == int(visit.shared[ROUND]):", "if True:", "client/test_distill.py"),
    Fault("core/chain.py", "max(best.get(hop.client, 0), hop.samples)", "best.get(hop.client, 0) + hop.samples",
          "core/test_chain.py"),
    Fault("core/chain.py", "hop.bytes_down + hop.bytes_up", "hop.bytes_up", "core/test_chain.py"),
    Fault("core/chain.py", "Stop(visit * len(self.clients) + position,", "Stop(position,", "core/test_chain.py"),
    Fault("core/seeds.py", "return generator(self.seed, Purpose.BATCHES, round_, client, visit, epoch)",
          "return generator(self.seed, Purpose.BATCHES, round_, client, epoch, epoch)", "core/test_seeds.py"),
    Fault("core/seeds.py", "[seed, int(purpose), *key]", "[seed, *key]", "core/test_seeds.py"),
    Fault("core/sums.py", "self.coarse[part] += rounded", "self.coarse[part] += rest", "core/test_sums.py"),
    Fault("core/sums.py", "if not largest <= grid.limit:", "if largest > grid.limit:",
          "core/test_sums.py"),
    Fault("core/sums.py", "self._weight += weight", "self._weight += 1", "core/test_sums.py"),
    Fault("core/sums.py", "self._coarse += rounded.sum(0)", "self._coarse += rounded[0]", "core/test_sums.py"),
    Fault("core/sums.py", "return kept.zero_()", "return kept", "core/test_sums.py"),
    Fault("fast/kernels.c", "to[k] /= from->divisor", "to[k] *= from->divisor", "fast/test_rows.py"),
    Fault("core/state.py", '("slots", self.slots), ', "", "core/test_state.py"),
    Fault("study/units.py", 'table["data"]["source"] = fingerprint', 'table["data"].pop("source")', "study/test_units.py"),
    Fault("study/noise.py", "/ (len(p_values) - rank)", "", "study/test_noise.py"),
    Fault("run/metrics.py", "not _better(target, figures[metric], metric)", "_better(figures[metric], target, metric)",
          "run/test_metrics.py"),
    Fault("run/metrics.py", "rounds - width + 1", "rounds - width", "run/test_metrics.py"),
    Fault("run/metrics.py", " or found[-1:]", "", "run/test_metrics.py"),
    Fault("study/table.py", "if rounds is not None]", "]", "study/test_studies.py"),
    Fault("client/scaffold.py", "(visit.steps * visit.lr)", "visit.lr", "client/test_scaffold.py"),
    Fault("client/dyn.py", "visit.state[MEMORY + name] - alpha", "visit.state[MEMORY + name] + alpha",
          "client/test_dyn.py"),
    Fault("client/moon.py", "softplus(away - towards)", "softplus(towards - away)", "client/test_moon.py"),
    Fault("client/dyn.py", "w + visit.state[MEMORY + name] / alpha", "w", "client/test_dyn.py"),
    Fault("client/scaffold.py", "control[name] - own", "control[name]", "client/test_scaffold.py"),
    Fault("fast/fused.py", "else slopes.add_(more)", "else slopes", "fast/test_watched.py"),
    Fault("fast/kernels.c", " | (ivec)(other != other)", "", "fast/test_border.py"),
    Fault("fast/structure.py", "if hooks_of(module):", "if False:", "fast/test_border.py"),
    Fault("client/proof.py", "ROUNDING = 2.0**-15", "ROUNDING = 2.0**-5", "fast/test_proof.py"),
    Fault("client/proof.py", "range(2 if keeps else 1)", "range(1)", "fast/test_proof.py"),
    Fault("client/proof.py", "outcome.change >= VISIBLE:", "outcome.change >= 0:", "fast/test_proof.py"),
    Fault("client/batching.py", "begin = samples - self.size - 1", "begin = samples - self.size", "fast/test_border.py"),
    Fault("models/split.py", "((False, example), (True, pair))", "((False, example),)", "fast/test_border.py"),
    Fault("run/replay.py", 'else bookmark.numerics.get("kernel")', "else None", "fast/test_border.py"),
    Fault("fast/fused.py", "parameter.sub_(gradient, alpha=way.lr)", "pass", "fast/test_watched.py"),
    Fault("fast/kernels.c", "shrink != 0.f || o->aw;", "shrink != 0.f;", "fast/test_watched.py"),
    Fault("client/uga.py", "in reversed(visit.memo", "in list(visit.memo", "client/test_uga.py"),
    Fault("client/per_fedavg.py", "cut = (len(y) + 1) // 2", "cut = len(y) // 2", "client/test_per_fedavg.py"),
    Fault("client/keep.py", "self.marks.get(client) or self._kept", "self._kept", "client/test_keep.py"),
    Fault("server/controls.py", "1 / self.state.extra[CLIENTS]", "1.0", "client/test_scaffold.py"),
    Fault("server/nova.py", "weight / steps, f", "weight, f", "server/test_nova.py"),
    Fault("server/exp.py", "spread / (2 * (", "spread / (1 * (", "server/test_exp.py"),
    Fault("run/directory.py", "retire(self._before, self.committed.kept)", "retire(self.committed.kept, state.kept)",
          "run/test_keeping.py"),
    Fault("run/directory.py", "self._store.sweep(referred)", "pass", "run/test_keeping.py"),
    Fault("watch/guard.py", "if name not in self.names and name != _bracketed(reached):", "if not name:", "watch"),
    Fault("watch/guard.py", "return held is not None and self.matches(held.value)", "return held is not None", "watch"),
    Fault("watch/live.py", "fresh = epoch == run.epoch and last <=", "fresh = last <=", "watch"),
    Fault("report/tail.py", "self._at > 0 and file.read(len(self._before)) != self._before", "False", "report/test_runview.py"),
    Fault("report/page.py", '.replace("<", "\\\\u003c")', "", "report/test_page.py"),
    Fault("engine/flower/guard.py", "if length <= self.factor * median", "if length >= 0 * median",
          "engine/flower/test_wire.py"),
    Fault("engine/flower/guard.py", "known[(len(known) - 1) // 2]", "known[-1]", "engine/flower/test_wire.py"),
    Fault("engine/flower/pace.py", "max(self._overheads) + speed * samples", "speed * samples", "engine/flower/test_wire.py"),
    Fault("engine/flower/records.py", "not bool(tensor.isfinite().all())", "False", "engine/flower/test_wire.py"),
    Fault("engine/flower/sheet.py", 'if ":" in inner and inner not in site.methods', "if False",
          "engine/flower/test_client_app.py"),
    Fault("engine/flower/histogram.py", 'if kept["setting"] == setting', "if False", "engine/flower/test_site.py"),
    Fault("engine/flower/dialect.py", "if told != (announced, steps)", "if told[1] != steps", "deploy/test_faults.py"),
    Fault("deploy/roster.py", "trained >= self.settings.quorum * planned", "trained >= 0", "deploy/test_faults.py"),
    Fault("plan/unknown.py", "labels[others] = dealt(len(others), groups, rng)", "labels[others] = 0", "plan/test_unknown.py"),
    Fault("core/sums.py", "if other.keys != self._keys or", "if False and", "core/test_sums.py"),
    Fault("core/sums.py", "self._account(other.weight, other.count)", "self._account(other.weight, 1)", "core/test_sums.py"),
    Fault("engine/walk.py", "self.trainer.load(start if carried is None else carried)", "self.trainer.load(start)",
          "engine/ray/test_worker.py"),
    Fault("engine/walk.py", "trained = carried is not None", "trained = False", "engine/ray/test_worker.py"),
    Fault("engine/ray/worker.py", "(*leg.before, *hops)", "hops", "engine/ray/test_worker.py"),
    Fault("engine/ray/worker.py", "bag.sent, bag.marks = unpack(baton.sent), dict(baton.marks)", "pass",
          "engine/ray/test_worker.py"),
    Fault("engine/ray/worker.py", "self._sum[0] != task.round", "False", "engine/ray/test_worker.py"),
    Fault("engine/ray/holdings.py", "and _proof(path) == self.proof", "", "engine/ray/test_holdings.py"),
    Fault("engine/ray/holdings.py", "sizes = np.where(there, part.sizes, 0)", "sizes = part.sizes",
          "engine/ray/test_holdings.py"),
    Fault("engine/ray/round.py", "walk.hops, walk.next = (*walk.hops, *hops), walk.end",
          "walk.hops, walk.next = hops, walk.end", "engine/ray/test_engine.py"),
    Fault("core/wide.py", "same &= bits_of(values) == bits_of(first)", "same &= values == first", "core/test_wide.py"),
    Fault("core/wide.py", "self._odds().bitwise_or_(kinds.to", "kinds.bitwise_or_(kinds.to", "core/test_wide.py"),
    Fault("core/wide.py", "same &= torch.from_numpy(other.same.copy())", "pass", "core/test_wide.py"),
    Fault("core/wide.py", "        if not weight:\n            return\n", "", "core/test_wide.py"),
    Fault("core/wide.py", "rest.sub_(rounded)", "rest.zero_()", "core/test_wide.py"),
    Fault("server/ida.py", "center = {name: mean[name] for name in trained}", "center = mean", "server/test_ida.py"),
    Fault("server/mean.py", "most, state.trained)", "most)", "run/test_untrained.py"),
    Fault("run/loop.py", "state = replace(state, trained=setup.first.trained)", "pass", "run/test_untrained.py"),
    Fault("run/result.py", "return state if name == GLOBAL else", "return state if True else", "server/test_exp.py"),
    Fault("client/per_fedavg.py", "self.alpha * bent[name]", "0 * bent[name]", "client/test_per_fedavg.py"),
    Fault("client/scaffold.py", "change * weighs", "change", "client/test_scaffold.py"),
    Fault("client/dyn.py", "self.alpha / (visit.weighs() or 1.0)", "self.alpha", "client/test_dyn.py"),
    Fault("client/moon.py", "if new and visit.round > 1 else", "if new else", "client/test_moon.py"),
    Fault("client/moon.py", "if new and visit.round > 1 else", "if visit.round > 1 else", "client/test_moon.py"),
    Fault("prepare/once.py", " or self._last[0] != asked", "", "prepare/test_once.py"),
    Fault("core/blame.py", 'ORDER = ("theirs", "installed", "ours",', 'ORDER = ("ours", "theirs", "installed",',
          "core/test_blame.py"),
    Fault("core/blame.py", "if not is_theirs(error):", "if False:", "core/test_blame.py"),
    Fault("core/children.py", "sys.path[:] = {standard_first(path)!r}", "sys.path[:] = {path!r}", "core/test_children.py"),
    Fault("engine/patience.py", "max(self.floor, TIMES * usual)", "TIMES * usual",
          "engine/test_patience.py::test_usual_is_what_was_learned_and_noise_never_counts"),
    Fault("engine/crew.py", "if self.ended:", "if False:",
          "engine/test_crew.py::test_workers_that_cannot_start_end_in_a_sentence_and_leave_nothing"),
    Fault("engine/flower/client_app.py", "place_of(error, named)", "place_of(error)", "engine/flower/test_client_app.py"),
)  # fmt: skip


def survives(fault: Fault, scratch: Path) -> bool | None:
    """Whether the tests pass with the fault in place; None where the text it replaces is not there exactly once."""
    source = scratch / "src"
    shutil.rmtree(source, ignore_errors=True)
    shutil.copytree(ROOT / "src", source, ignore=shutil.ignore_patterns("__pycache__"))
    path = source / "fedgsp" / fault.file
    text = path.read_text()
    if fault.old not in text:
        return None
    path.write_text(text.replace(fault.old, fault.new, 1))
    environment = {**os.environ, "PYTHONPATH": str(source), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-m", "not slow", "-p", "no:cacheprovider", f"tests/{fault.tests}"]
    try:
        done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, check=False, timeout=PATIENCE)
    except subprocess.TimeoutExpired:  # a fault that makes the tests hang is noticed, too
        return False
    return done.returncode == 0


def main(chosen: list[int]) -> int:
    """Try the faults; the exit code is 1 if one survives."""
    missed = []
    if unknown := [number for number in chosen if number >= len(FAULTS)]:
        sys.exit(f"there are {len(FAULTS)} faults, no {unknown[0]}")
    with tempfile.TemporaryDirectory() as folder:
        for number, fault in enumerate(FAULTS):
            if chosen and number not in chosen:
                continue
            verdict = survives(fault, Path(folder))
            word = {True: "SURVIVES", False: "caught", None: "NOT FOUND"}[verdict]
            print(f"{number:>3} {word:<10} {fault.file}: {fault.old.splitlines()[-1].strip()}", flush=True)
            if verdict is not False:
                missed.append(number)
    print(f"{len(chosen or FAULTS) - len(missed)} of {len(chosen or FAULTS)} faults caught")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main([int(text) for text in sys.argv[1:]]))
