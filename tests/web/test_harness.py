"""The fixtures see what goes wrong in a page, and where there is no browser one line says so."""

import subprocess
import sys

import browser as chromium
import pytest
from playwright.sync_api import Page

PLANTED = {
    "console": ("console.log('hello')", "console.log: hello"),
    "an error": ("setTimeout(() => { throw new Error('planted') })", "error: planted"),
    "outside": ("fetch('http://example.invalid/a.js').catch(() => 0)", "outside: http://ex"),
    "missing": ("fetch('nowhere.js').then(r => r.text())", "404: "),
}


@pytest.mark.parametrize("fault", PLANTED)
def test_a_fault_in_a_page_is_noted(fault: str, page: Page, site: str, faults: list[str]) -> None:
    page.goto(f"{site}/search.html")
    faults.clear()
    script, noted = PLANTED[fault]
    page.evaluate(f"void {script}" if fault == "console" else f"() => {{ {script}; }}")
    page.wait_for_timeout(300)
    assert any(noted in fault for fault in faults), faults
    faults.clear()


def test_the_gpu_adds_two_numbers(gpu_page: Page, faults: list[str]) -> None:
    faults.clear()
    assert gpu_page.evaluate(ADD, [20, 22]) == 42


ADD = """async ([a, b]) => {
  const device = await (await navigator.gpu.requestAdapter()).requestDevice();
  const code = `@group(0) @binding(0) var<storage, read_write> x: array<i32>;
    @compute @workgroup_size(1) fn main() { x[0] = x[0] + x[1]; }`;
  const compute = {module: device.createShaderModule({code}), entryPoint: "main"};
  const pipeline = device.createComputePipeline({layout: "auto", compute});
  const {STORAGE, COPY_DST, COPY_SRC, MAP_READ} = GPUBufferUsage;
  const buffer = device.createBuffer({size: 8, usage: STORAGE | COPY_DST | COPY_SRC});
  const out = device.createBuffer({size: 8, usage: MAP_READ | COPY_DST});
  device.queue.writeBuffer(buffer, 0, new Int32Array([a, b]));
  const layout = pipeline.getBindGroupLayout(0);
  const group = device.createBindGroup({layout, entries: [{binding: 0, resource: {buffer}}]});
  const encoder = device.createCommandEncoder();
  const pass = encoder.beginComputePass();
  pass.setPipeline(pipeline); pass.setBindGroup(0, group); pass.dispatchWorkgroups(1); pass.end();
  encoder.copyBufferToBuffer(buffer, 0, out, 0, 8);
  device.queue.submit([encoder.finish()]);
  await out.mapAsync(GPUMapMode.READ);
  return new Int32Array(out.getMappedRange())[0];
}"""


def test_without_a_browser_one_line_says_how_to_get_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CHROMIUM", "/nowhere/chromium")
    assert chromium.executable() is None
    done = subprocess.run([sys.executable, chromium.__file__], capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1 and "apt-get install chromium" in done.stderr
