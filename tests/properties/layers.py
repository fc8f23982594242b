"""Random networks of convolutions and products with scales, biases, casts and blocks of space around them: what the
passes that fold scales, flatten dilated convolutions, share casts and choose precisions look for, and what just misses it.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

import numpy as np


@dataclass(frozen=True, slots=True)
class Network:
    """The text of a module and arguments of its main."""

    text: str
    args: tuple[Any, ...]
    weights: dict[str, np.ndarray]  # parameters that are to be constants: a pass knows their signs


@dataclass
class _Writer:
    source: random.Random
    last: bool  # whether channels come last
    size: int = 6  # of both axes of space
    channels: int = 3
    names: int = 0
    params: dict[str, np.ndarray] = field(default_factory=dict)
    lines: list[str] = field(default_factory=list)

    def param(self, *shape: int, positive: bool = False) -> str:
        """A parameter, at times one that is there; or a constant, where it is a vector."""
        known = [
            n for n, v in self.params.items() if v.shape == shape and (v > 0).all() == positive
        ]
        if known and self.source.random() < 0.2:
            return self.source.choice(known)
        rng = np.random.default_rng(self.source.randrange(2**31))
        values = rng.uniform(0.5, 1.5, shape) if positive else rng.uniform(-0.5, 0.5, shape)
        name = f"%w{len(self.params)}"
        self.params[name] = values.astype("float32")
        return name

    def let(self, value: str) -> str:
        self.names += 1
        name = f"%v{self.names}"
        self.lines.append(f"let {name} = {value};")
        return name

    def vector(self, positive: bool) -> str:
        """Of the channels, in a shape that broadcasts along them."""
        shape = (self.channels,) if self.last else (self.channels, 1, 1)
        return self.param(*shape, positive=positive)

    def convolution(self, value: str) -> str:
        kernel, deep = self.source.choice((1, 3)), self.source.random() < 0.3
        groups = self.channels if deep else 1
        out = self.channels if deep else self.source.randint(1, 4)
        inner = 1 if deep else self.channels
        if self.last:
            shape = (kernel, kernel, self.channels, 1) if deep else (kernel, kernel, inner, out)
            layouts = f', data_layout="NHWC", kernel_layout="{"HWOI" if deep else "HWIO"}"'
        else:
            shape, layouts = (out, inner, kernel, kernel), ""
        self.channels = out
        weight = self.param(*shape)
        pad = kernel // 2
        return (
            f"nn.conv2d({value}, {weight}, padding=[{pad}, {pad}, {pad}, {pad}], groups={groups}, channels={out}, "
            f"kernel_size=[{kernel}, {kernel}]{layouts})"
        )

    def atrous(self, value: str) -> str:
        """A convolution of blocks of space, whose paddings a dilated one has or not. Blocks want channels last."""
        if not self.last:
            return self.convolution(value)
        more = self.source.choice((2, 2, 0))
        paddings = f"[[{more}, {more}], [{more}, {more}]]"
        space = self.let(f"nn.space_to_batch_nd({value}, block_shape=[2, 2], paddings={paddings})")
        weight = self.param(3, 3, self.channels, 2)
        pad = 0 if more else 1
        self.channels = 2
        made = self.let(
            f"nn.conv2d({space}, {weight}, padding=[{pad}, {pad}, {pad}, {pad}], channels=2, kernel_size=[3, 3], "
            'data_layout="NHWC", kernel_layout="HWIO")'
        )
        return f"nn.batch_to_space_nd({made}, block_shape=[2, 2], crops=[[0, 0], [0, 0]])"

    def scale(self, value: str) -> str:
        op = self.source.choice(("multiply", "multiply", "divide"))
        if self.source.random() < 0.3:
            return f"{op}({value}, {self.source.choice(('0.5f', '2f', '1.25f'))})"
        factor = self.vector(self.source.random() < 0.7 or op == "divide")
        return f"{op}({value}, {factor})"

    def bias(self, value: str) -> str:
        if self.source.random() < 0.5:
            return f"add({value}, {self.vector(False)})"
        return f"nn.bias_add({value}, {self.param(self.channels)}, axis={-1 if self.last else 1})"

    def plain(self, value: str) -> str:
        forms = [
            "nn.relu({})",
            "nn.leaky_relu({}, alpha=0.1f)",
            "tanh({})",
            "add({0}, nn.relu({0}))",
            "abs({})",
        ]
        return self.source.choice(forms).format(value)

    def pool(self, value: str) -> str:
        layout = ', layout="NHWC"' if self.last else ""
        name = self.source.choice(("max", "avg"))
        return f"nn.{name}_pool2d({value}, pool_size=[3, 3], padding=[1, 1, 1, 1]{layout})"

    def casts(self, value: str) -> str:
        """A narrow tensor whose wide form two operators read."""
        axis = self.size
        shape = (1, axis, axis, 1) if self.last else (1, 1, axis, axis)
        wide = self.let(
            f'cast(cast({self.param(*shape, positive=True)}, dtype="int8"), dtype="float32")'
        )
        return f"multiply(add({value}, {wide}), exp({wide} * -1f))"

    def branch(self, value: str) -> str:
        return f"if (%c) {{ {self.plain(value)} }} else {{ let %b{self.names} = {self.scale(value)}; %b{self.names} }}"

    def around(self, value: str) -> str:
        """A scale on either side of a convolution, with what only a positive one passes between."""
        parts = [
            self.convolution,
            self.source.choice(("nn.relu({})", "nn.leaky_relu({}, alpha=0.1f)")).format,
            self.scale,
        ]
        for part in parts if self.source.random() < 0.5 else reversed(parts):
            value = part(value)
        return value

    def called(self, value: str) -> str:
        """A function of the network's own: it takes and gives a tensor of the type that is there."""
        self.names += 1
        dims = (
            ("?n", "6", "6", str(self.channels))
            if self.last
            else ("?n", str(self.channels), "6", "6")
        )
        body = self.plain(self.scale(f"%q{self.names}"))
        return f"(fn (%q{self.names}: Tensor[({', '.join(dims)}), float32]) {{ {body} }})({value})"

    def step(self, value: str) -> str:
        """Operators around a convolution come in numbers: scales are folded over them."""
        forms = (
            [self.convolution] * 4
            + [self.around] * 4
            + [self.scale] * 4
            + [self.bias] * 2
            + [self.plain] * 2
        )
        return self.source.choice(
            [*forms, self.atrous, self.pool, self.casts, self.branch, self.called]
        )(value)


def network(source: random.Random) -> Network:
    """Some steps, of which results at times are used again at the end."""
    writer = _Writer(source, last=source.random() < 0.5)
    text, parts = "%x", list[str]()
    axes = ("?n", "6", "6", "3") if writer.last else ("?n", "3", "6", "6")
    for _ in range(source.randint(3, 9)):
        made = writer.step(text)
        text = writer.let(made) if "if (" in made or source.random() < 0.6 else made
        if source.random() < 0.1:
            text = writer.let(text)
            parts.append(text)
    result = f"({', '.join([text, *parts])})" if parts else text
    params = [f"%x: Tensor[({', '.join(axes)}), float32]", "%c: bool"]
    params += [
        f"{n}: Tensor[{v.shape}, float32]".replace(",)", ")") for n, v in writer.params.items()
    ]
    body = "\n".join(f"  {line}" for line in writer.lines)
    text = f'#[version = "0.0.5"]\ndef @main({", ".join(params)}) {{\n{body}\n  {result}\n}}\n'
    weights = {n.removeprefix("%"): v for n, v in writer.params.items() if source.random() < 0.6}
    given = [v for n, v in writer.params.items() if n.removeprefix("%") not in weights]
    rng = np.random.default_rng(source.randrange(2**31))
    x = rng.uniform(-1, 1, [2 if a == "?n" else int(a) for a in axes]).astype("float32")
    return Network(text, (x, np.bool_(source.random() < 0.5), *given), weights)
