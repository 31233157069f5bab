/** One kernel on the GPU: its pipeline, its buffers, its launches. */
import { overLimit } from "./problems.js";

/**
 * @typedef {object} Launch what Python tells of a kernel
 * @property {string} source WGSL
 * @property {string} entry
 * @property {number[]} dispatch
 * @property {number[]} block
 * @property {number} shared bytes of workgroup memory
 * @property {number[]} uniform
 * @property {string[]} bindings names of tensors by binding number; the uniform's is the next
 * @property {{name: string, shape: number[], dtype: string, output: boolean}[]} tensors
 */

// Of GPUBufferUsage, by the WebGPU specification.
const USAGE = { mapRead: 1, copySrc: 4, copyDst: 8, uniform: 64, storage: 128 };

/** @param {number[]} shape */
export function size(shape) {
  return shape.reduce((product, each) => product * each, 1);
}

/**
 * Throws where a device allows less than a launch takes.
 * @param {any} device
 * @param {Launch} launch
 */
function checkLimits({ limits }, launch) {
  const threads = size(launch.block);
  const bytes = Math.max(...launch.tensors.map(({ shape }) => 4 * size(shape)));
  for (const [what, taken, most] of [
    [`${threads} threads a block`, threads, limits.maxComputeInvocationsPerWorkgroup],
    [`${launch.shared} bytes of shared memory a block`, launch.shared, limits.maxComputeWorkgroupStorageSize],
    [`${bytes} bytes in one tensor`, bytes, limits.maxStorageBufferBindingSize],
    [`${Math.max(...launch.dispatch)} blocks along one dimension`, Math.max(...launch.dispatch), limits.maxComputeWorkgroupsPerDimension],
  ]) {
    if (taken > most) throw overLimit(what, most);
  }
}

/**
 * A buffer for each tensor of a launch, by name. What else is given is kept.
 * @param {any} device
 * @param {Launch} launch
 * @returns {Record<string, any>}
 */
export function buffersFor(device, launch) {
  const usage = USAGE.storage | USAGE.copySrc | USAGE.copyDst;
  return Object.fromEntries(
    launch.tensors.map(({ name, shape }) => [name, device.createBuffer({ size: 4 * size(shape), usage })]),
  );
}

/**
 * A kernel that is ready to be launched on some buffers.
 * @param {any} device
 * @param {Launch} launch
 * @param {Record<string, any>} buffers
 * @returns {Promise<(pass: any, times?: number) => void>} puts so many launches into a pass
 */
export async function ready(device, launch, buffers) {
  checkLimits(device, launch);
  const module = device.createShaderModule({ code: launch.source });
  const compute = { module, entryPoint: launch.entry };
  const pipeline = await device.createComputePipelineAsync({ layout: "auto", compute });
  const uniform = device.createBuffer({ size: 16, usage: USAGE.uniform | USAGE.copyDst });
  device.queue.writeBuffer(uniform, 0, new Uint32Array([...launch.uniform, 0, 0, 0].slice(0, 4)));
  const bound = [...launch.bindings.map((name) => buffers[name]), uniform];
  const group = device.createBindGroup({
    layout: pipeline.getBindGroupLayout(0),
    entries: bound.map((buffer, binding) => ({ binding, resource: { buffer } })),
  });
  return (pass, times = 1) => {
    pass.setPipeline(pipeline);
    pass.setBindGroup(0, group);
    const [x, y, z] = launch.dispatch;
    for (let k = 0; k < times; k += 1) pass.dispatchWorkgroups(x, y, z);
  };
}

/**
 * Launch once.
 * @param {any} device
 * @param {(pass: any) => void} encode
 */
export function once(device, encode) {
  const encoder = device.createCommandEncoder();
  const pass = encoder.beginComputePass();
  encode(pass);
  pass.end();
  device.queue.submit([encoder.finish()]);
}

/**
 * What is in a buffer, as float32.
 * @param {any} device
 * @param {any} buffer
 */
export async function fetched(device, buffer) {
  const staging = device.createBuffer({ size: buffer.size, usage: USAGE.mapRead | USAGE.copyDst });
  const encoder = device.createCommandEncoder();
  encoder.copyBufferToBuffer(buffer, 0, staging, 0, buffer.size);
  device.queue.submit([encoder.finish()]);
  try {
    await staging.mapAsync(1);
    return new Float32Array(staging.getMappedRange().slice(0));
  } finally {
    staging.destroy();
  }
}
