# SPDX-License-Identifier: Apache-2.0
"""Translation of functional aten ops on images [N, C, H, W]."""

from __future__ import annotations

from typing import Any, Dict, List, Optional, Sequence, Tuple

from cgpipe.torch.graph import Value
from cgpipe.torch.layout import BATCH, Axis, Layout
from cgpipe.torch.moves import padded
from cgpipe.torch.registry import need, new_axes, op, pair
from cgpipe.torch.resample import adaptive_average, nearest
from cgpipe.torch.translator import Parameter, Translator, shape_of

__all__ = ["grouping", "image_op"]


def image(t: Translator, x: Any) -> Tuple[int, Layout]:
    """Return a tensor [N, C, H, W] with memory order [H, W, C]."""
    x = t.whole(x)
    need(len(x.layout.dims) == 4, "images [N, C, H, W]")
    dims = x.layout.dims
    number = t.graph.arrange(x, [dims[2], dims[3], dims[1]])
    return number, Layout(dims, [*dims[2], *dims[3], *dims[1]])


def images(shape: Sequence[int], channels: Optional[Tuple[Axis, ...]] = None) -> Layout:
    """Return the layout of an op's images [N, C, H, W]; ``shape`` is the shape [H, W, C] of a
    sample."""
    h, w = new_axes(shape[0]), new_axes(shape[1])
    c = new_axes(shape[2]) if channels is None else channels
    return Layout([(BATCH,), c, h, w], [*h, *w, *c])


def image_op(t: Translator, x: Any, name: str, attributes: Optional[Dict[str, Any]] = None,
             size: Optional[Sequence[int]] = None, parameters: Sequence[int] = (),
             states: Sequence[str] = (), channels: Optional[int] = None) -> Value:
    """Add a node on images; ``size`` is the height and width of the result."""
    number, layout = image(t, x)
    shape = t.graph.shape(number)
    made = [*(size or shape[:2]), channels or shape[2]]
    y = t.graph.add(name, [number], made, attributes, parameters, states)
    return Value(y, layout if made == shape else images(made, None if channels else layout.dims[1]))


@op("feature_dropout")
def feature_dropout(t: Translator, x: Any, p: float, train: bool) -> Any:
    if not train or p == 0:
        return x
    need(t.training, "dropout in the mode, train or eval, of the whole module")
    x = t.value(x)
    need(p < 1 and len(x.layout.dims) == 4, "feature_dropout of images [N, C, H, W]")
    t.has_dropout = True
    return image_op(t, x, "dropout2d", {"p": p})


def result_size(t: Translator) -> List[int]:
    """Return the height and width of the op's result, or of its first result if there are several.
    A sequence has height 1."""
    value = t.node.meta["val"]
    shape = shape_of((value[0] if isinstance(value, (list, tuple)) else value).shape)
    return [1] * (4 - len(shape)) + [size for _, size in shape[2:]]


def _padding(value: Any) -> List[int]:
    h, w = pair(value)
    return [h, h, w, w]


def grouping(groups: int, dilation: Any) -> Dict[str, Any]:
    """Return the attributes for groups and dilation. A graph omits an attribute that is 1."""
    found: Dict[str, Any] = {"groups": groups} if groups > 1 else {}
    if pair(dilation) != [1, 1]:
        found["dilation"] = pair(dilation)
    return found


@op("conv2d")
def conv2d(t: Translator, x: Any, weight: Any, bias: Any = None, stride: Any = 1, padding: Any = 0,
           dilation: Any = 1, groups: int = 1) -> Value:
    need(isinstance(weight, Parameter) and len(weight.shape) == 4, "conv2d of a parameter")
    out, inner, kh, kw = weight.shape
    if isinstance(padding, str):
        need(padding in ("valid", "same"), "conv2d with padding in numbers")
        down, across = (d * (k - 1) for d, k in zip(pair(dilation), (kh, kw)))
        sides = ([down // 2, down - down // 2, across // 2, across - across // 2]
                 if padding == "same" else [0] * 4)
    else:
        sides = _padding(padding)
    named = [t.parameter(weight, [kh, kw, inner, out], order=(3, 2, 0, 1))]
    if bias is not None:
        named.append(t.parameter(bias, [out], decays=False))
    attributes = {"size": out, "bias": bias is not None, "kernel": [kh, kw], "stride": pair(stride),
                  "padding": sides, **grouping(groups, dilation)}
    return image_op(t, x, "conv2d", attributes, result_size(t), named, channels=out)


@op("conv_transpose2d")
def conv_transpose2d(t: Translator, x: Any, weight: Any, bias: Any = None, stride: Any = 1,
                     padding: Any = 0, output_padding: Any = 0, groups: int = 1,
                     dilation: Any = 1) -> Value:
    need(isinstance(weight, Parameter) and len(weight.shape) == 4,
         "conv_transpose2d of a parameter")
    inner, per_group, kh, kw = weight.shape
    out = per_group * groups
    named = [t.parameter(weight, [kh, kw, per_group, inner], order=(3, 2, 0, 1))]
    if bias is not None:
        named.append(t.parameter(bias, [out], decays=False))
    attributes = {"size": out, "bias": bias is not None, "kernel": [kh, kw], "stride": pair(stride),
                  "padding": _padding(padding), "output_padding": pair(output_padding),
                  **grouping(groups, dilation)}
    return image_op(t, x, "conv_transpose2d", attributes, result_size(t), named, channels=out)


@op("convolution")
def convolution(t: Translator, x: Any, weight: Any, bias: Any, stride: Any, padding: Any,
                dilation: Any, transposed: bool, output_padding: Any, groups: int) -> Value:
    rank = len(getattr(weight, "shape", ())) - 2
    if rank in (1, 3):
        name = f"conv_transpose{rank}d" if transposed else f"conv{rank}d"
        need(name != "conv_transpose3d", "convolution of sequences and images, transposed")
        rest = [output_padding, groups, dilation] if transposed else [dilation, groups]
        return t.apply(name, x, weight, bias, stride, padding, *rest)
    if transposed:
        return conv_transpose2d(t, x, weight, bias, stride, padding, output_padding, groups,
                                dilation)
    return conv2d(t, x, weight, bias, stride, padding, dilation, groups)


def _windows(t: Translator, x: Any, kernel: Any, stride: Any, sides: Sequence[int],
             ceil_mode: bool) -> Dict[str, Any]:
    """Return the attributes of a pool. With ``ceil_mode``, the last window may extend past the
    image. If it does, padding is added at that end; the pool ignores this padding."""
    kernels, strides, padding = pair(kernel), pair(stride or kernel), list(sides)
    height_and_width = t.value(x).layout.sizes()[2:]
    for i, (size, made) in enumerate(zip(height_and_width, result_size(t))):
        more = (made - 1) * strides[i] + kernels[i] - size - padding[2 * i] - padding[2 * i + 1]
        if ceil_mode and more > 0:
            padding[2 * i + 1] += more
    return {"kernel": kernels, "stride": strides, "padding": padding}


@op("max_pool2d")
def max_pool2d(t: Translator, x: Any, kernel: Any, stride: Any = (), padding: Any = 0,
               dilation: Any = 1, ceil_mode: bool = False) -> Value:
    need(pair(dilation) == [1, 1], "max_pool2d without dilation")
    attributes = _windows(t, x, kernel, stride, _padding(padding), ceil_mode)
    return image_op(t, x, "max_pool", attributes, result_size(t))


@op("avg_pool2d")
def avg_pool2d(t: Translator, x: Any, kernel: Any, stride: Any = (), padding: Any = 0,
               ceil_mode: bool = False, count_include_pad: bool = True,
               divisor: Any = None) -> Value:
    need(divisor is None, "avg_pool2d without divisor_override")
    size, sides = result_size(t), _padding(padding)
    if count_include_pad and any(sides):
        number, layout = image(t, x)
        shape = t.graph.shape(number)
        x = image_op(t, x, "pad", {"kernel": [1, 1], "stride": [1, 1], "padding": sides},
                     [shape[0] + sides[0] + sides[1], shape[1] + sides[2] + sides[3]])
        sides = [0] * 4
    attributes = {"global": False, **_windows(t, x, kernel, stride, sides, ceil_mode)}
    return image_op(t, x, "average_pool", attributes, size)


@op("adaptive_avg_pool2d")
def adaptive_avg_pool2d(t: Translator, x: Any, size: Any) -> Value:
    x = t.value(x)
    height, width = result_size(t)
    number, layout = image(t, x)
    h, w, c = t.graph.shape(number)
    if (height, width) == (h, w):
        return t.value(x)
    if (height, width) == (1, 1):
        y = t.graph.add("average_pool", [number], [c],
                        {"global": True, "kernel": [0, 0], "stride": [0, 0], "padding": [0] * 4})
        return Value(y, Layout([(BATCH,), layout.dims[1], (), ()], layout.dims[1]))
    if h % height or w % width:
        return adaptive_average(t, x)
    kernel = [h // height, w // width]
    return image_op(t, x, "average_pool",
                    {"global": False, "kernel": kernel, "stride": kernel, "padding": [0] * 4},
                    [height, width])


@op("upsample_nearest2d")
def upsample_nearest2d(t: Translator, x: Any, *arguments: Any) -> Value:
    number, _layout = image(t, x)
    h, w, _c = t.graph.shape(number)
    height, width = result_size(t)
    if height % h or width % w:
        return nearest(t, x, *arguments)
    return image_op(t, x, "upsample", {"stride": [height // h, width // w]}, [height, width])


@op("pad", "constant_pad_nd")
def pad(t: Translator, x: Any, sides: Sequence[int], mode: Any = "constant",
        value: Any = None) -> Value:
    number = mode if isinstance(mode, (int, float)) else value
    need(mode == "constant" or isinstance(mode, (int, float)), "pad with mode constant")
    need(not number, "pad with zeros")
    y = t.value(x)
    if not any(sides):
        return y
    left, right, top, bottom = [*sides, 0, 0][:4]
    if len(sides) not in (2, 4) or len(y.layout.dims) != 4 or min(sides) < 0:
        for i in range(0, len(sides), 2):
            y = padded(t, y, -1 - i // 2, sides[i], sides[i + 1])
        return y
    return image_op(t, x, "pad",
                    {"kernel": [1, 1], "stride": [1, 1], "padding": [top, bottom, left, right]},
                    result_size(t))
