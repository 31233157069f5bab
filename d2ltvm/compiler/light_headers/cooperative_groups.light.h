#pragma once
namespace cooperative_groups {
struct thread_block {
  static unsigned int thread_rank() {
    return threadIdx.z * blockDim.y * blockDim.x + threadIdx.y * blockDim.x + threadIdx.x;
  }
};
inline thread_block this_thread_block() { return {}; }
}
