"""Groups that each look like the whole population, without any training: for trials, A/B tests, or schedules of your own."""

import numpy as np

from fedgsp.plan import ICG, Balanced, Random, group_sums

rng = np.random.default_rng(0)
counts = np.stack([rng.multinomial(100, rng.dirichlet([0.3] * 10)) for _ in range(120)])  # 120 clients, 10 classes

for grouper in (Random(n_groups=12, random_state=0), ICG(n_groups=12, random_state=0), Balanced(n_groups=12, random_state=0)):
    labels = grouper.fit_predict(counts)
    held = group_sums(counts, labels, 12)
    apart = np.abs(held / held.sum(axis=1, keepdims=True) - counts.sum(axis=0) / counts.sum()).sum(axis=1)
    sizes = np.bincount(labels[labels >= 0])
    print(f"{type(grouper).__name__:9s} {sizes.min()} to {sizes.max()} clients a group, {apart.mean():.3f} from the population")
