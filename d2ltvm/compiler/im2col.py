"""TMA's im2col mode: tensor maps that walk over an image, which TVM 0.27 does not encode itself.

In this mode TMA copies so many pixels, one behind the other: along a row, on to the next row, on
to the next image. It goes by the strides of the convolution, inside of a bounding box, which may
reach beyond the image on all sides. An instruction says where it begins, and by how far the pixels
that it reads lie from those that it walks over: the tap. What is outside of the image is zero.

The host code of a kernel calls `ENCODE` before the launch, with what `Walk.arguments` gives.
"""

import ctypes
import functools
from typing import Any

import tvm_ffi

from d2ltvm.errors import MissingError
from d2ltvm.layouts import Walk

ENCODE = "d2ltvm.encode_im2col"  # the function of the host code, by TVM's registry
FLOAT16 = 6  # CU_TENSOR_MAP_DATA_TYPE_FLOAT16
SWIZZLE_OF_BYTES = {16: 0, 32: 1, 64: 2, 128: 3}  # by bytes of a pixel's channels; 0 is none
L2_PROMOTION = 2  # CU_TENSOR_MAP_L2_PROMOTION_L2_128B


@tvm_ffi.register_global_func(ENCODE, override=True)
def encode(tensor_map: Any, data: Any, *arguments: int) -> None:
    """Write a tensor map of 128 bytes. The kernel's host code calls it, not you.

    Raises:
        MissingError: there is no driver.
        RuntimeError: the driver refuses the map.
    """
    walk = Walk.of(tuple(map(int, arguments)))
    code = _driver().cuTensorMapEncodeIm2col(
        ctypes.c_void_p(_address(tensor_map)),
        FLOAT16,
        4,
        ctypes.c_void_p(_address(data)),
        (ctypes.c_uint64 * 4)(*walk.shape[::-1]),
        (ctypes.c_uint64 * 3)(*walk.strides[::-1]),
        (ctypes.c_int * 2)(*walk.lower[::-1]),
        (ctypes.c_int * 2)(*walk.upper[::-1]),
        walk.channels,
        walk.pixels,
        (ctypes.c_uint32 * 4)(1, *walk.steps[::-1], 1),
        0,
        SWIZZLE_OF_BYTES[2 * walk.channels],
        L2_PROMOTION,
        0,
    )
    if code:
        raise RuntimeError(f"cuTensorMapEncodeIm2col failed with {code}: {walk}")


def _address(pointer: Any) -> int:
    return int(getattr(pointer, "value", pointer) or 0)


@functools.cache
def _driver() -> Any:
    try:
        return ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        raise MissingError(
            "there is no NVIDIA driver", "the emulator", "a machine with an H100 or H200"
        ) from error
