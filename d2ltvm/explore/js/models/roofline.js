/** What a GPU's memory and arithmetic allow at most, by the data sheet. */
import { CHIPS } from "../data/chips.js";

/**
 * TFLOPS of float32 that a kernel can reach, as `d2ltvm.analysis.roofline.attainable` says.
 * @param {string} gpu
 * @param {number} intensity FLOP per byte of device memory
 * @param {number} [sms] multiprocessors that have work; all by default
 */
export function attainable(gpu, intensity, sms = CHIPS[gpu].sms) {
  const chip = CHIPS[gpu];
  return Math.min(intensity * chip.bandwidth_tb_s, (chip.fp32_tflops * sms) / chip.sms);
}

/**
 * The bandwidth that loads under way make possible, as `d2ltvm.analysis.in_flight` says.
 * @param {string} gpu
 * @param {number} threads on a multiprocessor
 * @param {number} latency ns
 * @param {number} width bytes of a load
 * @param {number} loads of a thread that are under way
 * @param {number} [bandwidth] TB/s; the data sheet's by default
 * @returns {{bytes: number, needed: number, tb_s: number, wait: number}} bytes under way and
 *   needed on a multiprocessor, TB/s that follow, and ns from asking to having
 */
export function inFlight(gpu, threads, latency, width, loads, bandwidth = CHIPS[gpu].bandwidth_tb_s) {
  const { sms } = CHIPS[gpu];
  const bytes = threads * width * loads;
  const rate = (bandwidth * 1000) / sms;
  const attained = Math.min(rate, bytes / latency);
  return { bytes, needed: rate * latency, tb_s: (attained * sms) / 1000, wait: bytes / attained };
}
