"""Shaders with loops over registers against shaders without, by the clock of a GPU.

    pip install wgpu
    PYTHONPATH=. python experiments/webgpu_unrolled.py --out unrolled.json [KERNEL ...]

Every card's kernel whose WGSL changes with `d2ltvm.compiler.webgpu.UNROLL` is compiled both ways,
and checked against the plain kernel for the same computation. Then the two take turns, each sample
so many launches between two timestamps. Nothing else differs between them.

Predicted, before the first run on a GPU. An H200 under Vulkan, by wgpu: the convolution of 64
channels with virtual threads made 31 GFLOPS before, and makes 2,000 after. That is half of what
CUDA makes of the schedule, for indices are still checked, and shared memory is read one number at
a time. On a processor, by lavapipe: 1 to 3 times as fast, for an array in memory is in a cache.

Found on 2026-11-23: the convolution from 33 to 1,968 GFLOPS; with 128 channels from 66 to 3,971.
The kernels take turns, so their ratio holds. The chip's clock was not held: speeds of another run
were a fifth of these. Lavapipe: 0.95 to 3 times as fast.
"""

import argparse
import dataclasses
import json
import statistics
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import wgpu

from d2ltvm.compiler import webgpu
from d2ltvm.compiler.lowering import as_module
from d2ltvm.explore import catalog, kernels
from d2ltvm.explore.definition import definition, plain
from d2ltvm.explore.operations import OPERATIONS

SAMPLES = 7
SAMPLE_NS = 5e6  # how long a sample takes at least
USAGE = wgpu.BufferUsage.STORAGE | wgpu.BufferUsage.COPY_SRC | wgpu.BufferUsage.COPY_DST


def compiled(sch: Any, unrolled: bool) -> webgpu.Shader:
    """A schedule's shader, with its loops over registers unrolled or left as they are."""
    kept = webgpu.UNROLL, webgpu.LONGEST_SOURCE
    if not unrolled:
        webgpu.UNROLL, webgpu.LONGEST_SOURCE = {}, 2**62
    try:
        return webgpu._compile(as_module(sch))
    finally:
        webgpu.UNROLL, webgpu.LONGEST_SOURCE = kept


@dataclasses.dataclass
class Ready:
    """A shader with its pipeline and its bindings."""

    device: Any
    shader: webgpu.Shader
    buffers: dict[str, Any]

    def __post_init__(self) -> None:
        module = self.device.create_shader_module(code=self.shader.source)
        stage = {"module": module, "entry_point": self.shader.entry}
        self.pipeline = self.device.create_compute_pipeline(layout="auto", compute=stage)
        uniform = self.device.create_buffer_with_data(
            data=np.array([*self.shader.uniform, 0, 0, 0], "uint32"), usage=wgpu.BufferUsage.UNIFORM
        )
        bound = [*(self.buffers[name] for name in self.shader.bindings), uniform]
        self.group = self.device.create_bind_group(
            layout=self.pipeline.get_bind_group_layout(0),
            entries=[
                {"binding": k, "resource": {"buffer": each, "offset": 0, "size": each.size}}
                for k, each in enumerate(bound)
            ],
        )

    def nanoseconds(self, times: int) -> float:
        """How long so many launches take, by the device's timestamps."""
        stamps = self.device.create_query_set(type="timestamp", count=2)
        usage = wgpu.BufferUsage.QUERY_RESOLVE | wgpu.BufferUsage.COPY_SRC
        found = self.device.create_buffer(size=16, usage=usage)
        encoder = self.device.create_command_encoder()
        where = {"beginning_of_pass_write_index": 0, "end_of_pass_write_index": 1}
        work = encoder.begin_compute_pass(timestamp_writes={"query_set": stamps, **where})
        work.set_pipeline(self.pipeline)
        work.set_bind_group(0, self.group)
        for _ in range(times):
            work.dispatch_workgroups(*self.shader.dispatch)
        work.end()
        encoder.resolve_query_set(stamps, 0, 2, found, 0)
        self.device.queue.submit([encoder.finish()])
        start, end = np.frombuffer(self.device.queue.read_buffer(found), "uint64")
        return float(end) - float(start)

    def result(self) -> np.ndarray[Any, Any]:
        """What one launch computes."""
        (output,) = (p for p in self.shader.params if p.output)
        nothing = np.full(output.shape, np.nan, "float32")
        self.device.queue.write_buffer(self.buffers[output.name], 0, nothing)
        self.nanoseconds(1)
        return np.frombuffer(self.device.queue.read_buffer(self.buffers[output.name]), "float32")


def compared(device: Any, name: str, smallest: bool) -> Iterator[dict[str, Any]]:
    """Each variant of a card at its largest size, or its smallest: right, and how fast."""
    of = kernels.kernel(name)
    operation, size = OPERATIONS[of.computes], of.sizes[0 if smallest else -1]
    for variant in of.variants:
        sch = kernels.scheduled(of, size, variant)
        shaders = {unrolled: compiled(sch, unrolled) for unrolled in (False, True)}
        if shaders[False].source == shaders[True].source:
            continue
        named = operation.named(size, variant.options)
        tensors = operation.tensors(**named)
        rng = np.random.default_rng(0)
        buffers = {
            p.name: device.create_buffer_with_data(
                data=rng.random(p.shape, "float32") - np.float32(0.5), usage=USAGE
            )
            for p in shaders[True].params
        }
        want = Ready(device, webgpu.wgsl(plain(tensors)), buffers).result()
        ready = {key: Ready(device, shader, buffers) for key, shader in shaders.items()}
        # Numbers are below 1/2: of `terms` roundings each is of a sum of at most `terms` / 4.
        terms = definition(tensors)["terms"]
        worst = {key: float(abs(each.result() - want).max()) for key, each in ready.items()}
        times = timed(ready)
        flop = operation.flop(**named)
        yield {
            "kernel": name,
            "variant": variant.label,
            "size": operation.label.format(**named),
            "right": all(error <= 2 * terms * 2**-24 * terms / 4 for error in worst.values()),
            "bytes": [len(shaders[key].source) for key in (False, True)],
            "gflops": [flop / statistics.median(times[key]) for key in (False, True)],
            "ns": [times[False], times[True]],
        }


def timed(ready: dict[bool, Ready]) -> dict[bool, list[float]]:
    """Nanoseconds of a launch, of each shader several samples, in turns."""
    together = {key: 1 + int(SAMPLE_NS / each.nanoseconds(1)) for key, each in ready.items()}
    times: dict[bool, list[float]] = {key: [] for key in ready}
    for _ in range(SAMPLES):
        for key, each in ready.items():
            times[key].append(each.nanoseconds(together[key]) / together[key])
    return times


def main() -> None:
    """Compare the cards that are named, or all."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("kernels", nargs="*", default=list(catalog.BY_NAME))
    parser.add_argument(
        "--smallest", action="store_true", help="the smallest size, not the largest"
    )
    parser.add_argument("--out", type=Path, help="where to write what was found, as JSON")
    asked = parser.parse_args()
    adapter = wgpu.gpu.request_adapter_sync(power_preference="high-performance")
    device = adapter.request_device_sync(required_features=["timestamp-query"])
    print(adapter.summary)
    found = []
    for name in asked.kernels:
        for row in compared(device, name, asked.smallest):
            found.append(row)
            before, after = row["gflops"]
            print(
                f"{name:17} {row['variant']:16} {before:9.1f} {after:9.1f} GFLOPS, "
                f"{after / before:6.2f} times{'' if row['right'] else ', WRONG'}",
                flush=True,
            )
            if asked.out:
                told = {"adapter": adapter.summary, "samples": SAMPLES, "rows": found}
                asked.out.write_text(json.dumps(told))


if __name__ == "__main__":
    main()
