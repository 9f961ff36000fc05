"""How to load the set in other people's tools: in the folder of the release, all but one snippet without privset."""

from __future__ import annotations

from privset.release import Certificate, card, model_card
from privset.release.sections import ClassifierContents, SetContents
from privset.report.markup import Markup, join, tag

_DISTIL = "privset distil FOLDER --per-class 50 --out SET"


def snippets(certificate: Certificate) -> dict[str, str]:
    """Python by the name of the tool, each complete; statistics have none."""
    contents = certificate.contents
    if isinstance(contents, ClassifierContents):
        plain = {"PyTorch": model_card.in_torch(certificate, contents)} if model_card.is_plain(contents) else {}
        return plain | {"privset": model_card.in_privset(certificate)}
    if not isinstance(contents, SetContents):
        return {}
    arrays = card.in_numpy(certificate, contents)
    shown = "images" if contents.pixel_form == "8-bit" else "pixels"
    channel = f"{shown}[:, 0]" if certificate.facts.channels == 1 else f"{shown}.transpose(0, 2, 3, 1)"
    return {
        "PyTorch": f"""\
{card.in_torch(certificate, contents)}
dataset = torch.utils.data.TensorDataset(inputs, labels)""",
        "NumPy": arrays,
        "scikit-learn": f"""\
from sklearn.linear_model import LogisticRegression

{arrays}
rows = inputs.reshape(len(inputs), -1)
model = LogisticRegression(max_iter=1000).fit(rows, labels)""",
        "Hugging Face": f"""\
import json
from pathlib import Path

from datasets import ClassLabel, Dataset, Features, Image

{arrays}
certificate = json.loads(Path("certificate.json").read_text())
names = certificate["facts"]["classes"]
features = {{"image": Image(), "label": ClassLabel(names=names)}}
columns = {{"image": list({channel}), "label": labels}}
dataset = Dataset.from_dict(columns, features=Features(features))""",
        "privset": """\
import privset

release = privset.load(".")
dataset = release.dataset(normalised=True)  # for PyTorch
rows, labels = release.to_numpy(normalised=True)  # for scikit-learn""",
    }


def loading(certificate: Certificate) -> Markup:
    """The snippets, or for statistics the command that makes a set from them."""
    found = snippets(certificate)
    if not found:
        return join(
            [
                tag("p", "These statistics hold no image. With privset installed, and no data, make a set from them:"),
                tag("pre", tag("code", _DISTIL), tabindex="0"),
                tag("p", "As often as you like, of any size: it costs no privacy."),
            ]
        )
    blocks = [
        tag("div", tag("h4", name), tag("pre", tag("code", text), tabindex="0"), class_="snippet")
        for name, text in found.items()
    ]
    return tag("div", blocks, class_="snippets")
