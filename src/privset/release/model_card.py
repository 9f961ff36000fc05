"""How to use a published classifier: with privset, and, if it is a plain stack of layers, with PyTorch alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from privset.release.certificate import Certificate
from privset.release.replanning import architecture_of
from privset.release.sections import ClassifierContents

_LAYERS: dict[type[nn.Module], Callable[[Any], str]] = {
    nn.Conv2d: lambda x: f"Conv2d({x.in_channels}, {x.out_channels}, {x.kernel_size}, padding={x.padding})",
    nn.GroupNorm: lambda x: f"GroupNorm({x.num_groups}, {x.num_channels})",
    nn.Linear: lambda x: f"Linear({x.in_features}, {x.out_features})",
    nn.AvgPool2d: lambda x: f"AvgPool2d({x.kernel_size})",
    nn.MaxPool2d: lambda x: f"MaxPool2d({x.kernel_size})",
    nn.ReLU: lambda _: "ReLU()",
    nn.Flatten: lambda _: "Flatten()",
}
"""How each layer is made, as far as networks here use it; spelled by hand, so that no version of torch changes it."""

_PLAIN = ("convnet", "lenet", "alexnet", "vgg11", "mlp")
"""Networks that are nothing but their features and then their head, all of such layers."""


def loading(certificate: Certificate, contents: ClassifierContents) -> str:
    """The section of the card, in Markdown."""
    parts = [
        "## How to use it\n\n`images` are 8-bit pixels, or floats in [0, 1], as torchvision's `ToTensor` gives them. "
        f"With privset installed:\n\n```python\n{in_privset(certificate)}\n```"
    ]
    if is_plain(contents):
        parts.append(f"With PyTorch alone:\n\n```python\n{in_torch(certificate, contents)}\n```")
    return "\n\n".join(parts)


def is_plain(contents: ClassifierContents) -> bool:
    """Whether PyTorch's own layers are all it takes."""
    return contents.network in _PLAIN


def in_privset(certificate: Certificate) -> str:
    """Python that classifies a blank image, beside the release's files."""
    return f"""\
import privset
import torch

release = privset.load(".")
{_blank(certificate)}
labels = release.predict(images)
network = release.classifier()  # a torch.nn.Module, for normalised images"""


def in_torch(certificate: Certificate, contents: ClassifierContents) -> str:
    """The same without privset, for a network that is a plain stack of layers."""
    facts = certificate.facts
    with torch.device("meta"):
        network = architecture_of(contents).build(certificate.public_facts())
    return f"""\
import torch
from safetensors.torch import load_file
from torch import nn

network = nn.Sequential()
network.features = {_spell(network.get_submodule("features"))}
network.head = {_spell(network.get_submodule("head"))}
network.load_state_dict(load_file("classifier.safetensors"))

{_blank(certificate)}
mean = torch.tensor({list(facts.mean)}).view(-1, 1, 1)
std = torch.tensor({list(facts.std)}).view(-1, 1, 1)
with torch.no_grad():
    labels = network.eval()((images.float() / 255 - mean) / std).argmax(dim=1)"""


def _blank(certificate: Certificate) -> str:
    facts = certificate.facts
    return (
        f"images = torch.zeros(1, {facts.channels}, {facts.height}, {facts.width}, dtype=torch.uint8)  # yours instead"
    )


def _spell(module: nn.Module) -> str:
    """Python that makes the layers, a line each."""
    if not isinstance(module, nn.Sequential):
        return f"nn.{_LAYERS[type(module)](module)}"
    return "\n".join(["nn.Sequential(", *(f"    nn.{_LAYERS[type(layer)](layer)}," for layer in module), ")"])
