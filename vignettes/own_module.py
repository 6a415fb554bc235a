# %% [markdown]
# # A module of your own
#
# A network of PyTorch, with a loss of your own, is trained by clients that share no rows. Each
# holds a fifth of its rows back. Before every fifth round clients evaluate their predictors on
# these, and the fit ends when three evaluations in a row were no better than the best before.
#
# This needs `pip install ".[torch]"`.

# %%
import torch

import ebfed as eb

digits = eb.datasets.load_digits()
owner, _ = eb.datasets.partition_classes(digits.target, 40, 3, random_state=0)
rows = owner >= 0


def focal(outputs, classes):
    """Loss of each row, which is small where the class is nearly certain (Lin et al. 2017)."""
    loss = torch.nn.functional.cross_entropy(outputs, classes, reduction="none")
    return (1 - torch.exp(-loss)) * loss


layers = torch.nn.Linear(64, 32), torch.nn.LayerNorm(32), torch.nn.ReLU(), torch.nn.Linear(32, 10)
model = eb.models.Torch(torch.nn.Sequential(*layers), loss=focal)
stopping = {"validation_fraction": 0.2, "evaluate_every": 5, "early_stopping": 3}
rate = eb.learning.RateSchedule(0.5, "cosine", warm_up=5)
est = eb.learning.FedBN(model, n_rounds=200, learning_rate=rate, random_state=0, **stopping)
est.fit(digits.data[rows], digits.target[rows], groups=owner[rows])
seen = est.history_[["round", "loss", "validation"]].dropna()
print(seen.tail(5).round(3))

# %%
axes = seen.plot("round", "validation", marker="o", legend=False)
axes.set_ylabel("right predictions of rows held back")

# %% [markdown]
# Each client keeps scales and offsets of its `LayerNorm`. `est.export(group)` is the `state_dict`
# of a client's own module.

# %%
own = torch.nn.Sequential(*layers)
own.load_state_dict(est.export(0))
print(own[1].weight[:5])
