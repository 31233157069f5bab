"""Layers of real networks, and products, by which kernels for any shape are judged.

`layers()`, `products()` and `unseen()` are the sets that `python -m d2ltvm bench --set` runs.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from d2ltvm.hopper.any_conv import Conv, product
from d2ltvm.layouts import Pair


@dataclass(frozen=True)
class Case:
    """A layer or a product of a set.

    >>> layers()[0].title
    'ResNet-50, 1 image: 7 x 7, 3 to 64, 224 x 224, stride 2'

    Attributes:
        network: where it comes from.
        conv: its sizes; of a product, rows are images of one pixel.
        transposed: of a product: whether the second matrix is given as its transpose.
    """

    network: str
    conv: Conv
    transposed: bool | None = None

    @property
    def title(self) -> str:
        """What it is, in a line; titles of a set differ."""
        c = self.conv
        if self.transposed is not None:
            b = "Bᵀ" if self.transposed else "B"
            return f"{self.network}: {c.batch} x {c.oc} x {c.ic}, A {b}"
        images = f"{c.batch} image" + "s" * (c.batch > 1)
        text = f"{self.network}, {images}: {by(c.kernel)}, {c.ic} to {c.oc}, {by(c.size)}"
        if c.stride != (1, 1):
            text += f", stride {both(c.stride)}"
        if c.dilation != (1, 1):
            text += f", dilation {both(c.dilation)}"
        same = tuple(d * (k - 1) // 2 for d, k in zip(c.dilation, c.kernel, strict=True))
        return text if c.pad == same else text + f", padding {both(c.pad)}"


def by(pair: Pair) -> str:
    """Two sizes.

    >>> by((3, 5))
    '3 x 5'
    """
    return f"{pair[0]} x {pair[1]}"


def both(pair: Pair) -> str:
    """One size where both are the same.

    >>> both((2, 2)), both((2, 1))
    ('2', '2 x 1')
    """
    return str(pair[0]) if pair[0] == pair[1] else by(pair)


def conv(
    batch: int,
    size: int | Pair,
    ic: int,
    oc: int,
    kernel: int | Pair = 3,
    stride: int | Pair = 1,
    dilation: int = 1,
    pad: int | Pair | None = None,
) -> Conv:
    """Sizes of a layer, whose padding keeps the size of an image unless it is given.

    >>> conv(1, 56, 64, 128, stride=2).out
    (28, 28)
    """

    def pair(value: int | Pair) -> Pair:
        return value if isinstance(value, tuple) else (value, value)

    kernel, far = pair(kernel), pair(dilation)
    same = (far[0] * (kernel[0] - 1) // 2, far[1] * (kernel[1] - 1) // 2)
    return Conv(
        batch, pair(size), ic, oc, kernel, same if pad is None else pair(pad), pair(stride), far
    )


# Of ResNet-50, by size, channels in and out, kernel and stride: each of its layers, and the first.
# Source: He et al., Deep Residual Learning for Image Recognition, table 1; strides at 3 x 3.
RESNET_50 = (
    (224, 3, 64, 7, 2),
    (56, 64, 64, 1, 1),
    (56, 64, 64, 3, 1),
    (56, 64, 256, 1, 1),
    (56, 256, 128, 1, 1),
    (56, 128, 128, 3, 2),
    (56, 256, 512, 1, 2),
    (28, 128, 128, 3, 1),
    (28, 512, 128, 1, 1),
    (28, 256, 256, 3, 2),
    (14, 256, 256, 3, 1),
    (14, 256, 1024, 1, 1),
    (14, 1024, 256, 1, 1),
    (14, 512, 512, 3, 2),
    (14, 1024, 2048, 1, 2),
    (7, 512, 512, 3, 1),
    (7, 512, 2048, 1, 1),
    (7, 2048, 512, 1, 1),
)
OFTEN = (0, 2, 3, 5, 6, 7, 10, 15)  # of these, for more images


def layers() -> list[Case]:
    """The set of layers."""
    return [*_layers(), *_more_layers()]


def _layers() -> Iterator[Case]:
    for n, ic, oc, k, s in RESNET_50:
        yield Case("ResNet-50", conv(1, n, ic, oc, k, s))
    for batch in (8, 32, 256):
        for n, ic, oc, k, s in (RESNET_50[i] for i in OFTEN):
            yield Case("ResNet-50", conv(batch, n, ic, oc, k, s))
    for n, ic, oc, s in ((56, 64, 64, 1), (56, 64, 128, 2), (28, 128, 256, 2), (7, 512, 512, 1)):
        yield Case("ResNet-18", conv(16, n, ic, oc, 3, s))
    for n, ic, oc in ((224, 3, 64), (224, 64, 64), (112, 128, 128), (56, 256, 256), (28, 512, 512)):
        yield Case("VGG-16", conv(16, n, ic, oc))
    yield Case("ResNet-101", conv(8, (25, 38), 1024, 256, 1))
    # Source: Szegedy et al., Rethinking the Inception Architecture for Computer Vision.
    yield Case("Inception-v3", conv(32, 149, 32, 32, pad=0))
    yield Case("Inception-v3", conv(32, 73, 80, 192, pad=0))
    yield Case("Inception-v3", conv(32, 35, 48, 64, 5))
    yield Case("Inception-v3", conv(32, 35, 288, 384, stride=2, pad=0))
    yield Case("Inception-v3", conv(32, 17, 128, 128, (1, 7)))
    yield Case("Inception-v3", conv(32, 17, 192, 192, (7, 1)))
    yield Case("Inception-v3", conv(32, 17, 768, 192, 1))
    yield Case("Inception-v3", conv(32, 8, 448, 384))
    for n, ic, oc in ((112, 32, 16), (112, 16, 96), (56, 144, 24), (14, 576, 160), (7, 320, 1280)):
        yield Case("MobileNetV2", conv(32, n, ic, oc, 1))
    for n, ic, oc in ((28, 40, 240), (14, 672, 112), (7, 1152, 192)):
        yield Case("EfficientNet-B0", conv(32, n, ic, oc, 1))
    yield Case("ConvNeXt-T", conv(32, 224, 3, 96, 4, 4, pad=0))
    for n, c in ((56, 96), (28, 192), (14, 384)):
        yield Case("ConvNeXt-T", conv(32, n, c, 2 * c, 2, 2, pad=0))
    yield Case("ConvNeXt-T", conv(32, 56, 96, 384, 1))
    # Source: Rombach et al., High-Resolution Image Synthesis with Latent Diffusion Models.
    for batch in (2, 8):
        for n, ic, oc in ((64, 320, 320), (32, 640, 640), (16, 1280, 1280), (8, 1280, 1280)):
            yield Case("Diffusion U-Net", conv(batch, n, ic, oc))
    yield Case("Diffusion U-Net", conv(2, 64, 960, 320))
    yield Case("Diffusion U-Net", conv(2, 16, 2560, 1280))
    yield Case("Diffusion U-Net", conv(2, 32, 1920, 640, 1))
    yield Case("Diffusion U-Net", conv(2, 64, 320, 320, stride=2))
    yield Case("Diffusion U-Net", conv(2, 64, 4, 320))
    yield Case("Diffusion U-Net", conv(2, 64, 320, 4))
    for n, c in ((64, 512), (128, 512), (256, 256), (512, 128)):
        yield Case("VAE decoder", conv(1, n, c, c))
    yield Case("VAE decoder", conv(1, 512, 128, 3))
    for size in ((100, 152), (50, 76), (25, 38), (13, 19), (7, 10)):
        yield Case("RetinaNet", conv(2, size, 256, 256))
    yield Case("YOLOv5", conv(8, 640, 3, 32, 6, 2, pad=2))
    yield Case("YOLOv5", conv(8, 320, 32, 64, 3, 2))
    yield Case("YOLOv5", conv(8, 80, 128, 128))
    yield Case("DeepLab", conv(4, 65, 512, 512, dilation=2))
    yield Case("DeepLab", conv(4, 65, 512, 512, dilation=4))
    yield Case("DeepLab", conv(4, 65, 2048, 256, dilation=12))
    yield Case("text lines", conv(16, (32, 256), 64, 128, (3, 5), (2, 1)))
    yield Case("sound", conv(16, (1, 3000), 384, 384, (1, 3), (1, 2), pad=(0, 1)))


def _more_layers() -> list[Case]:
    """Layers that joined the set: at first the planner's constants were not fitted to them."""
    return [
        # Source: Huang et al., Densely Connected Convolutional Networks.
        *(Case("DenseNet-121", conv(16, n, 128, 32)) for n in (56, 28, 14, 7)),
        *(Case("DenseNet-121", conv(16, n, m, 128, 1)) for n, m in ((28, 480), (14, 992))),
        # Source: Szegedy et al., Going Deeper with Convolutions.
        Case("GoogLeNet", conv(32, 56, 64, 192)),
        Case("GoogLeNet", conv(32, 28, 32, 96, 5)),
        Case("GoogLeNet", conv(32, 14, 144, 288)),
        Case("GoogLeNet", conv(32, 7, 832, 384, 1)),
        # Source: Krizhevsky et al., ImageNet Classification with Deep Convolutional Networks.
        Case("AlexNet", conv(64, 27, 96, 256, 5)),
        Case("AlexNet", conv(64, 13, 384, 256)),
        # Source: Ronneberger et al., U-Net.
        *(Case("U-Net", conv(1, n, c, c, pad=0)) for n, c in ((570, 64), (282, 128), (66, 512))),
        Case("U-Net", conv(1, 56, 1024, 512, pad=0)),
        # Source: Wang et al., ESRGAN.
        *(Case("ESRGAN", conv(4, 128, 64 + 32 * k, 32)) for k in (0, 2)),
        Case("ESRGAN", conv(4, 128, 192, 64)),
        Case("wide ResNet-50", conv(32, 14, 512, 512)),
        Case("wide ResNet-50", conv(32, 28, 512, 512, 1)),
        *(Case("ResNet-34", conv(b, 14, 256, 256)) for b in (1, 4, 64)),
        Case("ResNet-34", conv(4, 28, 128, 256, stride=2)),
        Case("ResNet-50", conv(2, 14, 1024, 256, 1)),
        Case("ResNet-50", conv(128, 14, 1024, 512, 1)),
        Case("EfficientNet-B4", conv(16, 24, 336, 56, 1)),
        Case("EfficientNet-B4", conv(16, 12, 960, 272, 1)),
        Case("HRNet", conv(8, (128, 256), 48, 48)),
        Case("PSPNet", conv(2, 90, 512, 512, dilation=4)),
        Case("a stem", conv(16, (600, 800), 3, 32, 3, 2)),
        Case("SDXL", conv(2, 128, 320, 320)),
        Case("SDXL", conv(2, 64, 640, 640)),
    ]


def products() -> list[Case]:
    """The set of products."""
    cases = [
        Case("Llama 7B", product(rows, m, l), True)
        for rows in (1, 4, 16, 64, 256, 1024, 4096)
        for m, l in ((4096, 4096), (11008, 4096), (4096, 11008))
    ]
    cases += [Case("Llama 70B", product(rows, 28672, 8192), True) for rows in (1, 16, 8192)]
    cases += [Case("GPT-2", product(1024, m, l), False) for m, l in ((2304, 768), (768, 3072))]
    cases += [Case("a vocabulary", product(128, 32000, 4096), True)]
    sizes = (500, 512, 1000, 1024, 1500, 2000, 2048, 3000, 4096, 5000, 8192, 16384)
    cases += [Case("square", product(n, n, n), n % 1000 != 0) for n in sizes]
    cases += [Case("odd", product(n, n, n), True) for n in (1001, 2047)]
    cases += [
        Case("tall", product(100000, 64, 64), True),
        Case("tall", product(65536, 256, 512), False),
        Case("flat", product(64, 65536, 64), True),
        Case("flat", product(256, 50000, 512), False),
        Case("deep", product(256, 256, 65536), True),
        Case("deep", product(512, 512, 16384), False),
        Case("deep", product(1000, 1000, 10000), True),
    ]
    return cases + _more_products()


def _more_products() -> list[Case]:
    """Products that joined the set, likewise."""
    both_ways = ((384, 3072, 768), (2048, 768, 3072), (777, 1024, 512), (6000, 1536, 384))
    cases = [Case("BERT, T5", product(*sizes), t) for sizes in both_ways for t in (True, False)]
    for rows in (2, 8, 24, 48, 96, 192, 333, 768, 3000):
        cases.append(Case("Mistral 7B", product(rows, 14336, 4096), True))
    for rows in (5, 40, 512):
        cases.append(Case("Qwen 3B", product(rows, 2048, 11008), True))
    sizes = (640, 1200, 1736, 2500, 3584, 6144, 10000)
    cases += [Case("another square", product(n, n, n), n % 100 != 0) for n in sizes]
    cases.append(Case("a gradient", product(768, 3072, 8192), False))
    return cases


def unseen() -> list[Case]:
    """Layers and products of other networks: neither constants nor tiles were chosen for them."""
    cases = [
        # Source: Iandola et al., SqueezeNet.
        *(Case("SqueezeNet", conv(32, n, c, 4 * c)) for n, c in ((55, 16), (27, 32), (13, 64))),
        Case("SqueezeNet", conv(32, 13, 512, 64, 1)),
        # Source: Radosavovic et al., Designing Network Design Spaces (RegNetX-3.2GF).
        *(Case("RegNetX", conv(32, n, c, c, 1)) for n, c in ((28, 192), (14, 432), (7, 1008))),
        # Source: Redmon and Farhadi, YOLOv3.
        *(Case("YOLOv3", conv(4, n, c, 2 * c)) for n, c in ((104, 64), (52, 128), (13, 512))),
        Case("YOLOv3", conv(4, 26, 512, 256, 1)),
        # Source: He et al., Mask R-CNN.
        Case("Mask R-CNN", conv(1, (200, 304), 256, 256)),
        Case("Mask R-CNN", conv(100, 14, 256, 256)),
        # Source: Howard et al., Searching for MobileNetV3.
        Case("MobileNetV3", conv(64, 14, 184, 80, 1)),
        Case("MobileNetV3", conv(64, 28, 120, 40, 1)),
        # Source: Tan and Le, EfficientNetV2.
        Case("EfficientNetV2-S", conv(16, 75, 48, 192, 3, 2)),
        Case("EfficientNetV2-S", conv(16, 38, 256, 64, 1)),
        # Source: Long et al., Fully Convolutional Networks for Semantic Segmentation.
        Case("FCN", conv(1, 22, 512, 4096, 7, pad=0)),
        # Source: van den Oord et al., WaveNet.
        Case("WaveNet", conv(8, (1, 4000), 128, 256, (1, 3), dilation=4)),
        Case("ResNet-50", conv(20, 14, 256, 1024, 1)),
        Case("ResNet-50", conv(12, 28, 128, 128)),
    ]
    for rows in (1, 32, 300):
        for m, l in ((24576, 3072), (3072, 24576)):
            cases.append(Case("Gemma 7B", product(rows, m, l), True))
    for rows in (12, 128, 600):
        for m, l in ((2048, 7168), (7168, 2048)):
            cases.append(Case("DeepSeek-V3", product(rows, m, l), True))
    for m, l in ((4096, 1024), (1024, 4096), (3072, 1024)):
        cases.append(Case("ViT-L", product(3152, m, l), True))
    sizes = ((768, True), (1400, False), (1888, True), (2304, True), (4504, False), (7000, True))
    cases += [Case("a third square", product(n, n, n), transposed) for n, transposed in sizes]
    cases.append(Case("a gradient", product(1024, 4096, 3152), False))
    cases.append(Case("tall", product(30000, 96, 384), True))
    return cases
