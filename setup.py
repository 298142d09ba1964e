"""Which packages the wheel has. Everything else stands in pyproject.toml; it cannot give a folder's packages other names."""

from setuptools import find_packages, setup

FOLDERS = {
    "spade_agentic": "spade_agentic",
    "spade_agentic_plugins": "plugins",
    "spade_agentic_sims": "tool_sims",
    "spade_agentic_configs": "configs",
}

setup(
    package_dir=FOLDERS,
    packages=[
        package
        for name, folder in FOLDERS.items()
        for package in [name, *(f"{name}.{child}" for child in find_packages(folder))]
    ],
)
