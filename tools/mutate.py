"""Break the package on purpose, in many small ways, and see that the tests notice.

    python tools/mutate.py                    every mutant
    python tools/mutate.py coalescing product  those of files with these words in their paths

Each mutant is one edit of one file, in a copy of the repository: a bound, a sign, a stride, a
barrier. The tests beside it are the ones of `make test` that are nearest; one of them has to fail.
They also run on a copy without an edit, where none may.
"""

import argparse
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import book
from d2ltvm.system import files

SECONDS = 400  # after which a mutant that waits for ever counts as noticed


@dataclass(frozen=True)
class Mutant:
    """An edit that breaks something: in `file`, `old` becomes `new`; `tests` are to notice it."""

    file: str
    old: str
    new: str
    tests: str

    def __str__(self) -> str:
        return f"{self.file}: {' '.join(self.old.split())} -> {' '.join(self.new.split())}"


# By file and tests: pairs of what stands there and what breaks it.
EDITS: dict[tuple[str, str], list[tuple[str, str]]] = {
    ("hopper/depthwise.py", "test_network_kernels.py -k 'depthwise or stay_behind'"): [
        ("y * sh - ph + r", "y * sh - ph - r"),
        ("x * sw - pw + q", "x * sw + q"),
        ("r - d * sh >= 0 and r - d * sh < kh", "r - d * sh >= 0 and r - d * sh <= kh - 2"),
        ("row[(a * sw + q) * width + v]", "row[(a + q) * width + v]"),
        ("acc[i] = acc[i] + bias[v]", "acc[i] = acc[i] + bias[0]"),
        ("T.min(acc[i], T.float32(6))", "T.min(acc[i], T.float32(16))"),
        ("(all_rows or y + d < oh)", "(y + d <= oh)"),
        ("        wait_without_shared_memory()\n", "        T.ptx.griddepcontrol.launch_dependents()\n"),
    ],
    ("hopper/strips.py", "test_network_kernels.py -k 'depthwise or max_pool or strip or refuse'"): [
        ("i // (groups * wide) % high * down", "i // (groups * wide) % high"),
        ("i // groups % wide * across", "i // groups % high * across"),
        ("math.ceil(high / down)", "high // down"),
        ("k > n + 2 * p", "k > n + p"),
    ],
    ("hopper/any_epilogue.py", "test_any_shape.py -k 'parts_of_an_epilogue'"): [
        ("if plan.relu or plan.relu6:", "if plan.relu:"),
        ("T.min(acc[j], T.float32(6))", "T.max(acc[j], T.float32(6))"),
    ],
    ("network/on_hopper.py", "test_network_on_hopper.py -k 'mobile or no_kernel'"): [
        ("wide = node.name == self.last", "wide = node is self.network.output"),
        ("[:, 0].transpose(1, 2, 0)", "[:, 0].transpose(2, 1, 0)"),
        ("1 < node.groups == shapes[0][1] == node.filters", "1 < node.groups"),
        ("if channels % 8:", "if channels % 4:"),
    ],
    ("network/on_hopper.py", "test_network_on_hopper.py -k 'weight_that'"): [
        ("    check_weights(network, weights)\n", ""),
    ],
    ("network/model.py", "test_network_model.py -k 'kept or anew or keys'"): [
        ("if cache.folder() is None or cc.get_cc() is None:", "if True:"),
        ("return \"network\", tvm.ir.save_json(module), options,", "return \"network\", options,"),
        ("options = str(target.export()), context.opt_level,", "options = context.opt_level,"),
        ("except (OSError, RuntimeError):", "except OSError:"),
    ],
    ("network/report.py", "test_network_run.py -k 'picture or draws'"): [
        ("per * seconds for seconds in found", "1e3 * seconds for seconds in found"),
        ("ylim=(len(names) - 0.4, -0.6)", "ylim=(-0.6, len(names) - 0.4)"),
        ("isinstance(node, Conv2d) and node.groups > 1", "False"),
    ],
    ("network/run.py", "test_network_run.py -k 'picture or draws or target or lacks'"): [
        ("\"cuda\" if devices.has_hopper() else \"llvm\"", "\"llvm\""),
        ("            _check_picture(options.picture)\n", "            pass\n"),
        ("problem = str(error)", "problem = None"),
    ],
    ("network/relax_program.py", "test_relax_program.py"): [
        ("relax.TupleGetItem(made, 1)", "relax.TupleGetItem(made, 0)"),
        ("f\"{PREFIX}.{next(_NUMBERS)}\"", "f\"{PREFIX}.{kernel}\""),
        ("if name != ROOM", "if True"),
    ],
    ("fleet/database.py", "test_fleet.py -k 'line or disk or process or twice'"): [
        ("os.fsync(self._file)\n        except OSError as error", "pass\n        except OSError as error"),
        ("with contextlib.suppress(OSError):\n                self._cut(before)", "pass"),
        ("if result.id in self.results", "if False"),
        ("*lines, rest = text.split(b\"\\n\")", "*lines, rest = [*text.splitlines(), b\"\"]"),
    ],
    ("fleet/keeper.py", "test_fleet.py -k 'keeps_ending'"): [
        ("self.quick + 1 if lived < SHORT else 0", "0"),
    ],
    ("fleet/measuring.py", "test_fleet.py -k 'crashes or right or wrong'"): [
        ("if len(candidate.lost) < ATTEMPTS:", "if len(candidate.lost) <= ATTEMPTS:"),
        ("for known in todo.keys() & database.results.keys():", "for known in ():"),
    ],
    ("analysis/coalescing.py", "test_access.py test_random_schedules.py -k 'not compiled'"): [
        ("self.valid = thread < threads", "self.valid = thread <= threads"),
        ("lanes = min(WARP, 4 * BANKS // max(width, WORD))", "lanes = WARP"),
        ("_pairs(first, active, 1) | _pairs(first, active, 2)", "_pairs(first, active, 1)"),
        ("(paired, 2 * lanes)", "(paired, lanes)"),
        ("np.maximum(groups - 1, 0)", "np.maximum(groups, 0)"),
        ("bank = words[new] % BANKS", "bank = words[new] % (BANKS // 2)"),
        ("prepend=-1) != 0) & (values >= 0)", "prepend=-1) != 0) & (values > 0)"),
        ("yield first[active] + lane", "yield first[active]"),
    ],
    ("analysis/index_exprs.py", "test_access.py test_random_schedules.py -k 'not compiled'"): [
        ("return a + b.times(-1)", "return a + b"),
        ("return base + _apply(\"Mul\"", "return _apply(\"Mul\""),
        ("args = [args[0] + args[1].times(-1), Sum()]", "args = [args[0] + args[1], Sum()]"),
        ("return -int(np.max(value)) - 1, -int(np.min(value)) + 1", "return -int(np.max(value)), -int(np.min(value))"),
        ("outer += whole.times(coefficient)", "outer += whole"),
    ],
    ("analysis/accesses.py", "test_access.py test_random_schedules.py -k 'not compiled'"): [
        ("self._where([_negated(met)], other)", "self._where([], other)"),
        ("self._loops = outer if many == 1 else (*outer, name)", "self._loops = outer"),
        ("self._writes[memory] = self._writes.get(memory, 0) + 1", "self._writes[memory] = 0"),
    ],
    ("analysis/sass_interpreter.py", "test_machine.py -k 'not nasty'"): [
        ("self.alive = np.tile(lane < threads, len(blocks))", "self.alive = np.tile(lane <= threads, len(blocks))"),
        ("active = here & (self.operands.predicate(name) ^ negated)", "active = here & self.operands.predicate(name)"),
        ("base.least + place.offset, base.most", "base.least, base.most"),
        ("return tensor, base, least % LINE", "return tensor, base, 0"),
    ],
    ("analysis/sass_arithmetic.py", "test_machine.py -k 'not nasty and not counters and not other'"): [
        ("return (U32(0) - self.value(operand[1:])).astype(U32)", "return self.value(operand[1:])"),
        ("byte = (byte >> U64(7)) * U64(0xFF)", "byte = (byte >> U64(6)) * U64(0xFF)"),
        ("np.minimum(a, b), np.maximum(a, b)", "np.maximum(a, b), np.minimum(a, b)"),
        ("found[results[1]] = join(~met, other)", "found[results[1]] = join(met, other)"),
    ],
    ("analysis/occupancy.py", "test_occupancy.py"): [
        ("chip.max_threads // WARP // warps", "chip.max_threads // WARP // threads"),
        ("// a_warp // WARP_PIECE * WARP_PIECE", "// a_warp"),
    ],
    ("layouts/arrays.py", "test_occupancy.py"): [
        ("return -(-number // piece) * piece", "return number // piece * piece"),
    ],
    ("analysis/emulator/tensorcores.py", "test_batched.py test_emulator.py test_layouts.py -k 'emulated or either'"): [
        ("row * int(self.value(stride)) + column", "row * int(self.value(stride)) + row"),
        ("if layout.value == \"col_major\":", "if layout.value == \"row_major\":"),
        ("[:, : 8 * many]", "[:, 32 - 8 * many :]"),
        ("first, 2 * many)[...]", "first, many)[...]"),
        ("if turned.value:", "if not turned.value:"),
    ],
    ("analysis/emulator/shared.py", "test_hopper_emulation.py"): [
        ("        view[places] = np.nan\n", ""),
        ("if not able and not self._deliver():", "if not self._deliver() and not able:"),
        ("stack.throw()  # ends those that still wait", "stack.switch()"),
        ("if self.missing == self.nbytes == 0:", "if self.missing == 0:"),
    ],
    ("compiler/frames.py", "test_frames.py"): [
        ("frame = frame.f_back", "frame = frame.f_back and frame.f_back.f_back"),
        ("sys._getframe(1)", "sys._getframe(2)"),
        ("module.inspect = Inspect()", "module.inspect = inspect"),
    ],
    ("layouts/fragments.py", "test_hopper.py test_batched.py -k 'wgmma or lane or emulated or box or put or swizzle or conflicts'"): [
        ("j % 8 // 2, j // 8 * 4 + i // 8 * 2 + j % 2", "j % 8 // 2, j // 8 * 4 + i // 8 + j % 2"),
        ("return (j // 8 + i // 4) % 2 * 8 + j % 8", "return (j // 8 + i // 8) % 2 * 8 + j % 8"),
    ],
    ("layouts/boxes.py", "test_hopper.py test_batched.py -k 'wgmma or lane or emulated or box or put or swizzle or conflicts'"): [
        ("return row * ROW + (column // EACH ^ row % 8) * EACH + column % EACH", "return row * ROW + (column // EACH ^ row % 4) * EACH + column % EACH"),
        ("slice(max(0, first), max(0, first + size))", "slice(max(0, first), max(0, first + size - 1))"),
    ],
    ("layouts/warpgroups.py", "test_hopper.py test_batched.py -k 'wgmma or lane or emulated or box or put or swizzle or conflicts'"): [
        ("return row // 16 * 32 + lane, column // 8 * 4 + register", "return row // 16 * 32 + lane, column // 8 * 2 + register"),
    ],
    ("compute/convolution.py", "test_convolution.py"): [
        ("(n - k + 2 * p) // s + 1", "(n - k + 2 * p + s - 1) // s + 1"),
        ("index[k] < sizes[k] + b", "index[k] <= sizes[k] + b"),
        ("i * sh + rkh, j * sw + rkw]\n        return te.sum(x * kernels", "i * sh + rkh, j * sh + rkw]\n        return te.sum(x * kernels"),
        ("K[oo * toc + oi, io * tic + ii, y, x]", "K[oo * toc + oi, io * tic + ii, x, y]"),
        ("return 2 * oc * ic * on * on * k * k / 1e9", "return oc * ic * on * on * k * k / 1e9"),
    ],
    ("compute/conv_batch.py", "test_batched.py -k 'hwcn or nhwcnc or layouts'"): [
        ("column >= p, column < n + p)", "column >= p, column <= n + p)"),
        ("transpose(0, 4, 3, 5, 1, 2)", "transpose(0, 4, 3, 5, 2, 1)"),
        ("PaddedX[y * s + rkh, x * s + rkw, ric, image]", "PaddedX[y * s + rkw, x * s + rkh, ric, image]"),
    ],
    ("compute/ops.py", "test_ops.py"): [
        ("tuple(0 if size == 1 else i", "tuple(0 if size <= 2 else i"),
    ],
    ("compute/ops.py", "test_matmul.py -k right"): [
        ("A[i, k] * B[k, j]", "A[i, k] * B[j, k]"),
    ],
    ("schedules/matmul.py", "test_matmul.py"): [
        ("if stages > 1:", "if stages > 2:"),
        ("    sch.pad_einsum(C, tile)\n", ""),
    ],
    ("schedules/conv.py", "test_conv_schedules.py"): [
        ("return max(size for size in range(1, most + 1) if length % size == 0)", "return most"),
        ("sch.storage_align(KK, 0, 2, 8, 4)", "sch.storage_align(KK, 0, 2, 8, 0)"),
    ],
    ("schedules/conv_batch.py", "test_batched.py"): [
        ("if size % tile:", "if size % tile > 1:"),
    ],
    ("schedules/strips.py", "test_strips.py -k 'norm or scales'"): [
        ('set_scope(stage, 0, "shared")', 'set_scope(stage, 0, "local")'),
        ("    sch.reverse_compute_at(shift, lane)\n", ""),
        ("sch.compute_at(stage, tile, preserve_unit_loops=True)", "sch.compute_at(stage, tile)"),
        ("_divisor(pixels, 2)", "_divisor(pixels, 4)"),
        ("256 // groups), groups)", "512 // groups), groups)"),
    ],
    ("schedules/tensor_intrinsics.py", "test_batched.py -k emulated"): [
        ("B.elem_offset + half * 128 + 4 * lane", "B.elem_offset + 4 * lane"),
        ("Out[lower * 8 + lane // 4, half * 8 + lane % 4 * 2 + k]", "Out[lower * 8 + lane // 4, half * 8 + lane % 4 + k]"),
    ],
    ("hopper/product.py", "test_hopper.py -k 'product or matmul'"): [
        ("ring.empty.wait(slot.stage, slot.phase ^ 1)", "ring.empty.wait(slot.stage, slot.phase)"),
        ("                    ring.full.wait(slot.stage, slot.phase)\n", ""),
    ],
    ("hopper/implicit.py", "test_hopper.py -k 'convolution'"): [
        ("                    ring.full.wait(slot.stage, slot.phase)\n", ""),
        ("kw: T.let[T.int32] = tile.first_kw + rkw", "kw: T.let[T.int32] = tile.first_kh + rkw"),
    ],
    ("hopper/tiles.py", "test_hopper.py -k 'product or matmul or convolution'"): [
        ("T.ptx.wgmma.wait_group.sync.aligned(1)", "T.ptx.wgmma.wait_group.sync.aligned(2)"),
        ("stage * (columns * 8) + i * 2", "stage * (columns * 8) + i"),
        ("T.ptx.pred(k + i > 0)", "T.ptx.pred(k + i >= 0)"),
        ("T.ptx[\"cvt.rn.f16x2.f32\"](pair[q], acc[i + 1], acc[i])", "T.ptx[\"cvt.rn.f16x2.f32\"](pair[q], acc[i], acc[i + 1])"),
    ],
    ("hopper/tuned.py", "test_tuned.py -k 'not planning and not run_and_right'"): [
        ("        sorted(device.items()),\n", ""),
        ("        _kernels(),\n", ""),
        ("        transposed,\n", ""),
    ],
    ("hopper/any_layer.py", "test_tuned.py -k 'not planning and not run_and_right'"): [
        ("return tuned_layer(conv, sms, **options), Layer", "return None, Layer"),
        ("or layer.plan.sms != sms:", "or layer.plan.sms < 0:"),
        ("        check(plan)\n        return replace", "        return replace"),
        ("asked |= {\"windows\"", "asked = {\"windows\""),
    ],
    ("hopper/planning.py", "test_hopper.py"): [
        ("math.ceil(p / (s * size))", "math.floor(p / (s * size))"),
        ("return max(d for d in range(1, min(down, most) + 1) if down % d == 0)", "return min(down, most)"),
        ("most = (SHARED_PER_BLOCK - 1024 - result) // slot", "most = SHARED_PER_BLOCK // slot"),
    ],
    ("hopper/ring.py", "test_ring.py"): [
        ("                    ring.full.wait(slot.stage, slot.phase)\n", ""),
    ],
    ("compiler/checks.py", "test_kernel.py test_lowering.py test_conv_schedules.py"): [
        ("if threads > MAX_THREADS_PER_BLOCK:", "if threads > 2 * MAX_THREADS_PER_BLOCK:"),
        ("if limit and needed > limit * 1024:", "if limit and needed > limit * 1024 + 4096:"),
    ],
    ("compiler/verify.py", "test_checking.py"): [
        ("bound = terms * (float(sums.eps) / 2 * most", "bound = terms * (float(sums.eps) * 4 * most"),
        ("if 2 * pass_as_zero > int(np.sum(some)):", "if False:"),
    ],
    ("bench/timing.py", "test_bench.py"): [
        ("made += calls", "made += 1"),
        ("_repeat(one_round, during)", "_repeat(one_round, during / 2)"),
        ("return cls(statistics.median(rounds), min(rounds), max(rounds))", "return cls(statistics.mean(rounds), min(rounds), max(rounds))"),
    ],
}  # fmt: skip


def mutants() -> list[Mutant]:
    """All of them."""
    return [
        Mutant(f"d2ltvm/{file}", old, new, tests)
        for (file, tests), edits in EDITS.items()
        for old, new in edits
    ]


def copy(folder: Path) -> None:
    """The repository as it stands, without what git ignores."""
    listed = subprocess.run(
        ["git", "ls-files"], cwd=book.ROOT, capture_output=True, text=True, check=True
    ).stdout
    for name in listed.splitlines():
        if (book.ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(book.ROOT / name, folder / name)


def run(tests: str, mutant: Mutant | None = None) -> str:
    """What the tests say of a copy with an edit: 'noticed' or 'passes'; 'stale' without a place."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        copy(folder)
        if mutant:
            text = (folder / mutant.file).read_text()
            if mutant.old not in text:
                return "stale"
            files.write(folder / mutant.file, text.replace(mutant.old, mutant.new))
        modules, _, chosen = tests.partition(" -k ")
        command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider"]
        command += [f"tests/{file}" for file in modules.split()]
        command += ["-k", chosen.strip("'")] if chosen else []
        try:
            done = subprocess.run(command, cwd=folder, capture_output=True, timeout=SECONDS)
        except subprocess.TimeoutExpired:
            return "noticed"
    return "noticed" if done.returncode else "passes"


def main(argv: list[str] | None = None) -> int:
    """Run them; the exit status is 1 where one was not noticed, or has lost its place."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("words", nargs="*", help="of the files to break; all by default")
    parser.add_argument("-n", type=int, default=2, help="how many at once")
    options = parser.parse_args(argv)
    chosen = [m for m in mutants() if not options.words or any(w in m.file for w in options.words)]
    jobs = [(tests, None) for tests in dict.fromkeys(m.tests for m in chosen)]
    jobs += [(m.tests, m) for m in chosen]
    counts, fine = Counter(), True
    with ThreadPoolExecutor(options.n) as pool:
        results = pool.map(lambda job: run(*job), jobs)
        for (tests, mutant), result in zip(jobs, results, strict=True):
            good = result == ("noticed" if mutant else "passes")
            fine = fine and good
            counts[result if mutant else "whole"] += 1
            if not good:
                print(f"{result}: {mutant or tests}", flush=True)
    print(", ".join(f"{number} {result}" for result, number in counts.items()))
    return 0 if fine else 1


if __name__ == "__main__":
    sys.exit(main())
