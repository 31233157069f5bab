"""A network, compiled: TVM's virtual machine with the weights, to call and to time."""

import statistics
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import tvm
from tvm import relax

from d2ltvm.compiler import cache
from d2ltvm.compute.convolution import Array
from d2ltvm.errors import shown
from d2ltvm.network.graph import Network
from d2ltvm.network.relaxed import NodeKernel, to_relax
from d2ltvm.network.weights import check_weights
from d2ltvm.system import devices, threads


class Model:
    """A compiled network with its weights; call it with images.

    Attributes:
        network: the `Network`.
        module: the module of Relax that was compiled.
        kernels: by name of a node the `NodeKernel` that computes it.
    """

    def __init__(
        self,
        network: Network,
        weights: Mapping[str, Array],
        kernels: Mapping[str, NodeKernel] | None = None,
        target: Any = None,
        every: bool = False,
        keep: bool = False,
    ) -> None:
        """Compile; `compile_network` says the arguments."""
        self.network, self.kernels = network, dict(kernels or {})
        self.module = to_relax(network, self.kernels, every)
        self._every = every
        self._check(weights)
        threads.use_all_cores()
        target = target or devices.as_target("llvm")
        self._device = tvm.cuda(0) if target.kind.name == "cuda" else tvm.cpu()
        # What depends on weights alone, such as a transposed one, is computed here and once.
        lifted = relax.transform.LiftTransformParams()(self.module)
        compiled = _kept(lifted, target) if keep else _compile(lifted, target)
        self._machine = relax.VirtualMachine(compiled, self._device)
        given = [self._on_device(weights[name]) for name in network.parameters]
        self._arrays = self._machine["main_transform_params"](given)
        # Which node an address belongs to, for `seconds_by_layer`. What was transformed has another
        # address, and its old one will be somebody else's.
        addresses = dict(zip(network.parameters, map(_address, given), strict=True))
        kept = set(map(_address, self._arrays))
        self._owners = {
            addresses[name]: node.name
            for node in network
            for name in node.parameters(*network.given(node))
            if addresses[name] in kept
        }

    def __call__(self, images: Array) -> Any:
        """The result of the last node; with `every`, of all nodes, by name.

        Args:
            images: float32 array of the shape of the network's input.

        Raises:
            ValueError: it has another shape or dtype.
        """
        result = self.bind(images)()
        if not self._every:
            return result.numpy()
        names = (node.name for node in self.network.nodes[1:])
        return {name: array.numpy() for name, array in zip(names, result, strict=True)}

    def bind(self, images: Array) -> Callable[[], Any]:
        """A function without arguments that runs the network and returns TVM's array.

        Args:
            images: as for a call; they are on the device already when the function runs.
        """
        images = np.asarray(images)
        if images.shape != self.network.input.size or images.dtype != np.float32:
            raise ValueError(
                f"images has shape {shown(images.shape)} and dtype {images.dtype}; expected "
                f"{self.network.input.size} and float32"
            )
        data, main = self._on_device(images), self._machine["main"]
        return lambda: main(data, *self._arrays)

    def seconds_by_layer(
        self,
        images: Array,
        rounds: int = 5,
        of: Callable[[list[float]], float] = statistics.median,
    ) -> dict[str, float]:
        """Seconds that the host waits for each node, by name.

        A call of the virtual machine belongs to the node whose weight it takes; one that takes none
        has the name of its function. On the CPU alone a call returns when the work is done.

        Args:
            images: as for a call.
            rounds: how often to run the network.
            of: what to take of a node's times; `min` where other programs disturb.
        """
        totals: list[dict[str, float]] = []
        begun = [0.0]

        def watch(_function: Any, name: str, before: bool, _result: Any, *arguments: Any) -> int:
            if before:
                begun[0] = time.perf_counter()
                return 0
            passed = time.perf_counter() - begun[0]
            if not name.startswith("vm.builtin."):
                owners = (self._owners.get(_address(a)) for a in arguments)
                owner = next(filter(None, owners), name)
                totals[-1][owner] = totals[-1].get(owner, 0.0) + passed
            return 0

        run = self.bind(images)
        self._machine.set_instrument(watch)
        try:
            for _ in range(rounds):
                totals.append({})
                run()
        finally:
            self._machine.set_instrument(lambda *_: 0)
        return {name: float(of([t[name] for t in totals])) for name in totals[0]}

    def _on_device(self, array: Array) -> Any:
        return tvm.runtime.tensor(np.ascontiguousarray(array), self._device)

    def _check(self, weights: Mapping[str, Array]) -> None:
        """The weights are there, in the form that the kernels want."""
        forms = {
            name: (node, *form)
            for node, kernel in self.kernels.items()
            for name, form in kernel.parameters.items()
        }
        plain = {k: v for k, v in weights.items() if k not in forms}
        stand_ins = {name: np.empty(self.network.parameters[name], "b") for name in forms}
        check_weights(self.network, plain | stand_ins)
        for name, (node, shape, dtype) in forms.items():
            found = weights.get(name)
            if found is None or found.shape != shape or found.dtype != dtype:
                what = "missing" if found is None else f"{found.dtype} of shape {found.shape}"
                raise ValueError(
                    f"{node}: weight {name!r} is {what}; expected {dtype} of shape {shape}"
                )


def compile_network(
    network: Network,
    weights: Mapping[str, Array],
    kernels: Mapping[str, NodeKernel] | None = None,
    target: Any = None,
    every: bool = False,
    keep: bool = False,
) -> Model:
    """Compile a network with TVM's own pipeline, for its virtual machine.

    >>> net = d2ltvm.network.load("mobilenet", size=32)
    >>> model = compile_network(net, d2ltvm.network.random_weights(net))  # doctest: +SKIP
    >>> model(d2ltvm.network.random_images(1, 32)).shape  # doctest: +SKIP
    (1, 1000)

    Args:
        network: a `Network`, as imported or fused.
        weights: an array for each of its parameters, float32; in another form where a kernel says.
        kernels: by name of a node a `NodeKernel` that computes it in place of TVM.
        target: of TVM; this machine's processor by default.
        every: whether the model returns the results of all nodes.
        keep: whether what is compiled stays on disk, for the next time: see `compiler.cache`.

    Returns:
        A `Model`.

    Raises:
        ValueError: a weight is absent or has another form, or a node cannot be computed.
    """
    return Model(network, weights, kernels, target, every, keep)


def _compile(module: Any, target: Any) -> Any:
    """A module of Relax for the virtual machine."""
    return tvm.compile(module, target, relax_pipeline=relax.get_default_pipeline(target))


def _kept(module: Any, target: Any) -> Any:
    """The same as a shared library that the cache has, or gets.

    Weights are arguments, and in no library. Without a cache or a linker, nothing is kept.
    """
    from tvm.support import cc

    if cache.folder() is None or cc.get_cc() is None:
        return _compile(module, target)
    try:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "network.so")

            def exported() -> bytes:
                _compile(module, target).export_library(str(path))
                return path.read_bytes()

            path.write_bytes(cache.remember(exported, *_key(module, target)))
            return tvm.runtime.load_module(str(path))
    except (OSError, RuntimeError):  # of the linker, or a folder from which nothing is loaded
        return _compile(module, target)


def _key(module: Any, target: Any) -> tuple[object, ...]:
    """What a library follows from: the module, with its kernels and constants, and the tools."""
    context, llvm = tvm.transform.PassContext.current(), tvm.target.codegen
    options = str(target.export()), context.opt_level, str(context.config)
    tools = llvm.llvm_get_system_triple(), llvm.llvm_version_major()
    versions = cache.package_versions("apache-tvm", "apache-tvm-ffi")
    text = cache.hash_of_text(Path(__file__).parent, "model.py")
    return "network", tvm.ir.save_json(module), options, tools, versions, text


def _address(array: Any) -> int:
    """Where an array lies in memory; 0 for what is none."""
    return array.data_ptr() if isinstance(array, tvm.runtime.Tensor) else 0
