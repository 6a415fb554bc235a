"""Any PyTorch module as the model of a client.

Many small modules at once are one batched call (`torch.func.vmap`). Convolutions are the
exception: batched over parameters they become grouped convolutions, which are slow on a CPU, so
that clients take turns there; recurrent layers cannot be batched at all.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ebfed.models.base import Model, Named
from ebfed.models.losses import CrossEntropy, Loss
from ebfed.privacy.calibration import check_count

__all__ = ["Torch", "lenet"]


class Torch(Model):
    """A module of PyTorch (extra ``torch``), with parameters for each client.

    The module computes in the precision of its own parameters, as a rule 32 bits. Its parameters
    are what clients train, except those that do not require gradients: they and the buffers stay
    as they are in the module. The module itself is never changed.

    Each step copies rows and parameters to a device, and gradients back.

    Parameters
    ----------
    module : torch.nn.Module
        Turns rows into one output for each class, or into one number. It must treat rows one by
        one and the same every time: no batch normalization and no dropout in training mode.
    input_shape : tuple of int, optional
        How the features of a row are laid out, such as (1, 28, 28) for an image; by default as
        they come, (n_features,).
    classifies : bool
        Whether outputs are logits of classes, rather than a number.
    loss : callable, optional
        Function of outputs and responses of some rows, which returns the loss of each, (n,), or
        their mean, such as ``torch.nn.CrossEntropyLoss(label_smoothing=0.1)``. None: the
        cross-entropy of classes, or half the squared error of a number. Outputs have shape (n, k),
        or (n,) for a number; responses are numbers of classes, or numbers.
    pretrained : bool
        Whether training starts from the parameters of the module, rather than from random ones.
    device : str or torch.device, optional
        Where the module computes, such as ``"cuda"``. None: where its parameters are.

    Raises
    ------
    ImportError
        If PyTorch is not installed.
    ValueError
        If the module cannot be used, when it is bound to data of a given shape.

    Examples
    --------
    >>> digits = Torch(lenet(), input_shape=(1, 28, 28))  # doctest: +SKIP
    >>> digits.bind(n_features=784, n_outputs=10).size  # doctest: +SKIP
    44426
    """

    def __init__(
        self,
        module: Any,
        input_shape: tuple[int, ...] | None = None,
        classifies: bool = True,
        pretrained: bool = False,
        loss: Any = None,
        device: Any = None,
    ):
        _import_torch()
        self.module = module
        self.input_shape = input_shape
        self.classifies = classifies
        self.pretrained = pretrained
        self.loss = loss
        self.device = device

    def shapes(self, n_features: int, n_outputs: int) -> dict[str, tuple[int, ...]]:
        """Return the shape of each block of parameters; check that the module can be used."""
        torch = _import_torch()
        if not isinstance(self.module, torch.nn.Module):
            raise ValueError(
                f"module must be a torch.nn.Module, such as lenet(); got {self.module!r}."
            )
        trained = _trained(self.module)
        if not trained:
            raise ValueError("module must have parameters that require gradients; it has none.")
        self._try_out(n_features, n_outputs)
        return {name: tuple(value.shape) for name, value in trained.items()}

    def start(self, parameters: Named, rng: np.random.Generator) -> None:
        """Draw values with the layers of the module; other values are those of the module."""
        torch = _import_torch()
        module = copy.deepcopy(self.module)
        layers = [] if self.pretrained else module.modules()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(int(rng.integers(2**63)))
            for layer in layers:
                if hasattr(layer, "reset_parameters"):
                    layer.reset_parameters()
        for name, value in _trained(module).items():
            _write(parameters[name], value.detach()[None])

    def forward(self, parameters: Named, X: NDArray) -> tuple[NDArray, Any]:
        dtype = self._dtype()
        device = self._device()
        rows = _tensor(X, dtype, device).reshape(*X.shape[:2], *self._layout(X.shape[2]))
        # shared parameters have a gradient of each client too
        values = {
            name: _tensor(block, dtype, device).expand(len(X), *block.shape[1:])
            for name, block in parameters.items()
        }
        outputs, tape = (_in_turn if _takes_turns(self.module) else _at_once)(
            self._called(device), values, rows
        )
        return outputs.cpu().numpy().astype(X.dtype, copy=False), tape

    def backward(
        self, parameters: Named, X: NDArray, tape: Any, slope: NDArray, out: Named
    ) -> None:
        for name, gradient in tape(_tensor(slope, self._dtype(), self._device())).items():
            _write(out[name], gradient)

    def loss_of_outputs(self) -> Loss:
        """Return the loss of outputs, of the user or the default."""
        plain = super().loss_of_outputs()
        if self.loss is None:
            return plain
        if not callable(self.loss):
            raise ValueError(
                f"loss must be a function of outputs and responses; got {self.loss!r}."
            )
        return TorchLoss(self.loss, plain, self._dtype())

    def exported(self, parameters: Named) -> dict[str, Any]:
        """Return the module's ``state_dict``, with these parameters in it."""
        state = {name: value.detach().clone() for name, value in self.module.state_dict().items()}
        kind = self._dtype(), next(self.module.parameters()).device
        return state | {name: _tensor(value, *kind) for name, value in parameters.items()}

    def normalizing(self) -> list[str]:
        """Name the blocks of parameters of layers that normalise."""
        nn = _import_torch().nn
        kinds = (nn.modules.batchnorm._NormBase, nn.LayerNorm, nn.GroupNorm, nn.RMSNorm)
        layers = {name for name, layer in self.module.named_modules() if isinstance(layer, kinds)}
        return [name for name in _trained(self.module) if name.rpartition(".")[0] in layers]

    def _dtype(self) -> Any:
        """Return the precision of the module."""
        return next(self.module.parameters()).dtype

    def _device(self) -> Any:
        """Return where the module computes."""
        if self.device is None:
            return next(self.module.parameters()).device
        torch = _import_torch()
        try:
            device = torch.device(self.device)
            torch.empty(0, device=device)
        except (RuntimeError, TypeError, AssertionError) as error:
            raise ValueError(
                f"device must be one that PyTorch has here, such as 'cpu'; got {self.device!r}: "
                f"{error}"
            ) from error
        return device

    def _called(self, device: Any) -> Callable[[dict, Any], Any]:
        """Return a function of trained parameters and rows: the module's outputs on a device."""
        torch = _import_torch()
        state = (*self.module.named_parameters(), *self.module.named_buffers())
        trained = _trained(self.module)
        fixed = {name: value.to(device) for name, value in state if name not in trained}
        return lambda own, rows: torch.func.functional_call(self.module, own | fixed, (rows,))

    def _layout(self, n_features: int) -> tuple[int, ...]:
        """Return the shape of a row."""
        if self.input_shape is None:
            return (n_features,)
        try:
            layout = tuple(self.input_shape)
        except TypeError as error:
            raise ValueError(
                f"input_shape must be a tuple, such as (1, 28, 28); got {self.input_shape!r}."
            ) from error
        if math.prod(check_count("input_shape", size) for size in layout) != n_features:
            raise ValueError(
                f"input_shape {layout} holds {math.prod(layout)} numbers, but rows have "
                f"{n_features} features."
            )
        return layout

    def _try_out(self, n_features: int, n_outputs: int) -> None:
        """Check the outputs of a module for three random rows."""
        torch = _import_torch()
        module = copy.deepcopy(self.module).to(self._device())
        before = {name: value.clone() for name, value in module.named_buffers()}
        layout, dtype = self._layout(n_features), self._dtype()
        with torch.no_grad(), torch.random.fork_rng(devices=[]):
            rows = torch.rand(3, *layout, generator=torch.Generator().manual_seed(0))
            rows = rows.to(self._device(), dtype)
            state = torch.random.get_rng_state()
            try:
                outputs = module(rows)
                fewer = module(rows[:2])
            except Exception as error:
                raise ValueError(
                    f"module must accept rows of shape {layout}, as input_shape says, such as "
                    f"(1, 28, 28): {error}"
                ) from error
            random = not torch.equal(state, torch.random.get_rng_state())
        shape = tuple(getattr(outputs, "shape", ()))
        if shape != (3, n_outputs):
            what = "one for each class" if self.classifies else "the number that is predicted"
            raise ValueError(
                f"module must turn 3 rows into outputs of shape {(3, n_outputs)}, {what}; got "
                f"outputs of shape {shape}."
            )
        if random:
            raise ValueError(
                "module must give the same outputs every time, but it draws random numbers; leave "
                "dropout out, or call module.eval() first."
            )
        for name, value in module.named_buffers():
            if not torch.equal(before[name], value):
                raise ValueError(
                    f"module must not change when it is called, but its buffer {name!r} does; use "
                    "GroupNorm or LayerNorm in place of BatchNorm, or call module.eval() first."
                )
        if not torch.allclose(outputs[:2], fewer, rtol=1e-3, atol=1e-4, equal_nan=True):
            raise ValueError(
                "module must treat rows one by one, but outputs of a row depend on the rows beside "
                "it; use GroupNorm or LayerNorm in place of BatchNorm."
            )


class TorchLoss(Loss):
    """A loss that is a function of tensors, whose slopes are found by PyTorch.

    Parameters
    ----------
    function : callable
        Of outputs and responses of the rows of one client.
    plain : Loss
        Has the divergence and the mean of predictions.
    dtype : torch.dtype
    """

    def __init__(self, function: Callable[[Any, Any], Any], plain: Loss, dtype: Any):
        self._function, self._plain, self._dtype = function, plain, dtype

    def divergence(
        self, outputs: NDArray, reference: NDArray, weight: NDArray
    ) -> tuple[NDArray, NDArray, NDArray]:
        return self._plain.divergence(outputs, reference, weight)

    def mean(self, outputs: NDArray) -> NDArray:
        return self._plain.mean(outputs)

    def score(self, outputs: NDArray, y: NDArray, weight: NDArray) -> NDArray:
        return self._plain.score(outputs, y, weight)

    def of(self, outputs: NDArray, y: NDArray, weight: NDArray) -> tuple[NDArray, NDArray]:
        losses, slopes = np.zeros(len(outputs), outputs.dtype), np.zeros_like(outputs)
        for i, own in enumerate(weight):
            real = own > 0
            if real.any():
                losses[i], slopes[i, real] = self._client(outputs[i, real], y[i, real], own[real])
        return losses, slopes

    def _client(self, outputs: NDArray, y: NDArray, weight: NDArray) -> tuple[float, NDArray]:
        torch = _import_torch()
        with torch.enable_grad():
            given = _tensor(outputs, self._dtype).requires_grad_()
            classes = isinstance(self._plain, CrossEntropy)
            response = _tensor(y, torch.long if classes else self._dtype)
            value = self._function(given if classes else given[:, 0], response)
            shape = tuple(getattr(value, "shape", (None,)))
            if shape not in ((), (len(y),)):
                raise ValueError(
                    f"loss must return a number, or one for each of {len(y)} rows; got {shape}."
                )
            if shape == () and not np.allclose(weight, weight[0], rtol=1e-6):
                raise ValueError(
                    "loss must return a number for each row, as rows have sample_weight; got their "
                    "mean. Use reduction='none'."
                )
            # of a mean, all rows have the same weight
            each = _tensor(weight, self._dtype)
            whole = value * each.sum() if shape == () else (value * each).sum()
            (slope,) = torch.autograd.grad(whole, given)
        return float(whole.detach()), slope.numpy()


def lenet(n_outputs: int = 10, heads: int = 1) -> Any:
    """Make a convolutional network for images of 28 x 28 pixels.

    Two convolutions of 5 x 5 with 6 and 16 filters, a rectifier and a maximum over 2 x 2 after
    each, then fully connected layers of 256 x 120, 120 x 84 and 84 x `n_outputs`.

    Parameters
    ----------
    n_outputs : int
        Number of classes.
    heads : int
        How many output layers are averaged. With two, ``output`` and ``output_2`` after a
        ``trunk``, one may be shared and the other personal:
        ``PPSGD(personal=["output_2.weight", "output_2.bias"])``.

    Returns
    -------
    torch.nn.Module
        From rows of shape (n, 1, 28, 28) to logits of shape (n, n_outputs).

    Raises
    ------
    ImportError
        If PyTorch is not installed.

    References
    ----------
    LeCun, Bottou, Bengio and Haffner (1998), Gradient-based learning applied to document
    recognition; in these sizes, Ozkara, Girgis, Data and Diggavi (2023), A statistical framework
    for personalized federated learning and estimation, Appendix K. With two heads, as Huang and
    others (2023), Learning across data owners with joint differential privacy, section 4.

    Examples
    --------
    >>> sum(block.numel() for block in lenet().parameters())  # doctest: +SKIP
    44426
    """
    nn = _import_torch().nn
    n_outputs = check_count("n_outputs", n_outputs)
    names = ["output", *(f"output_{head}" for head in range(2, check_count("heads", heads) + 1))]
    trunk = (
        *(nn.Conv2d(1, 6, 5), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Flatten(), nn.Linear(256, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU()),
    )
    if heads == 1:
        return nn.Sequential(*trunk, nn.Linear(84, n_outputs))

    return _averaged()(nn.Sequential(*trunk), {name: nn.Linear(84, n_outputs) for name in names})


@cache
def _averaged() -> Any:
    """Return the class of modules whose output layers are averaged."""
    nn = _import_torch().nn

    class Averaged(nn.Module):  # type: ignore[name-defined]
        def __init__(self, trunk: Any, heads: dict[str, Any]):
            super().__init__()
            self.trunk, self.names = trunk, list(heads)
            for name, layer in heads.items():
                self.add_module(name, layer)

        def forward(self, rows: Any) -> Any:
            units = self.trunk(rows)
            return sum(getattr(self, name)(units) for name in self.names) / len(self.names)

    Averaged.__qualname__ = "Averaged"  # where pickles find it, by `__getattr__`
    return Averaged


def __getattr__(name: str) -> Any:
    if name == "Averaged":
        return _averaged()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def _import_torch() -> Any:
    """Import PyTorch, or raise an error that says how to install it."""
    try:
        import torch
    except ImportError as error:
        raise ImportError('models of PyTorch need it: pip install "ebfed[torch]"') from error
    return torch


def _trained(module: Any) -> dict[str, Any]:
    """Return parameters that require gradients, by name."""
    return {name: value for name, value in module.named_parameters() if value.requires_grad}


def _takes_turns(module: Any) -> bool:
    """Return whether a layer is slow, or impossible, in batches over clients."""
    nn = _import_torch().nn
    slow = (nn.modules.conv._ConvNd, nn.RNNBase, nn.MultiheadAttention)
    return any(isinstance(layer, slow) for layer in module.modules())


def _at_once(called: Callable, values: dict, rows: Any) -> tuple[Any, Callable[[Any], dict]]:
    """Return outputs of all clients in one call, and a function from their slopes to gradients."""
    torch = _import_torch()

    def outputs_of(values: dict) -> Any:
        return torch.func.vmap(called)(values, rows)

    outputs, back = torch.func.vjp(outputs_of, values)
    return outputs, lambda slope: back(slope)[0]


def _in_turn(called: Callable, values: dict, rows: Any) -> tuple[Any, Callable[[Any], dict]]:
    """Return the same, one client after the other."""
    torch = _import_torch()
    clients = []
    with torch.enable_grad():
        for i, own_rows in enumerate(rows):
            own = {name: value[i].requires_grad_() for name, value in values.items()}
            clients.append((called(own, own_rows), own))

    def back(slope: Any) -> dict:
        gradients = [
            torch.autograd.grad(
                outputs, list(own.values()), own_slope, retain_graph=True, materialize_grads=True
            )
            for (outputs, own), own_slope in zip(clients, slope, strict=True)
        ]
        columns = map(torch.stack, zip(*gradients, strict=True))
        return dict(zip(values, columns, strict=True))

    return torch.stack([outputs.detach() for outputs, _ in clients]), back


def _tensor(array: ArrayLike, dtype: Any, device: Any = "cpu") -> Any:
    """Copy an array, which may be read-only, into a tensor."""
    return _import_torch().tensor(np.ascontiguousarray(array), dtype=dtype, device=device)


def _write(out: NDArray, value: Any) -> None:
    """Copy a tensor into an array, which may be part of a larger one."""
    _import_torch().from_numpy(out).copy_(value)
