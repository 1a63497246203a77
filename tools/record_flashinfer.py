"""Records the signatures of the flashinfer functions that Pando calls, so that tests can bind every
call to them without flashinfer.

    pip download --no-deps flashinfer-python==0.7.0 -d wheels
    python tools/record_flashinfer.py wheels/*.whl

Reads the wheels' source without importing it. Run it with the first and the last version of the
range that pyproject.toml allows, whenever that range changes.
"""

import argparse
import ast
import json
from collections.abc import Iterable
from pathlib import Path, PurePosixPath
from zipfile import ZipFile

RECORD = Path(__file__).parents[1] / "tests/worker/cuda/flashinfer/signatures.json"
FUNCTIONS = {
    "flashinfer": [
        "append_paged_kv_cache",
        "apply_rope_with_cos_sin_cache",
        "apply_rope_with_cos_sin_cache_inplace",
        "fused_add_rmsnorm",
        "gelu_tanh_and_mul",
        "gemma_fused_add_rmsnorm",
        "gemma_rmsnorm",
        "merge_state",
        "rmsnorm",
        "silu_and_mul",
    ],
    "flashinfer.comm": ["allreduce_fusion", "create_allreduce_fusion_workspace"],
    "flashinfer.sampling": ["top_p_renorm_probs"],
    "flashinfer.gemm": ["fp8_blockscale_gemm_sm90", "gemm_fp8_nt_groupwise"],
}
METHODS = ("__init__", "reset_workspace_buffer", "plan", "run")
CLASSES = {
    "flashinfer.BatchDecodeWithPagedKVCacheWrapper": METHODS,
    "flashinfer.BatchPrefillWithPagedKVCacheWrapper": METHODS,
    "flashinfer.attention.BatchAttentionWithAttentionSinkWrapper": METHODS,
    "flashinfer.mla.BatchMLAPagedAttentionWrapper": ("__init__", "plan", "run"),
    "flashinfer.mla.MLAPlanMetadata": ("csr",),
}
# The method that names the keywords which another one passes on.
PASSED_ON = {"plan": "_plan_impl"}

Signature = list[list[str | bool]]  # of each parameter: name, kind, whether it has a default


class Wheel:
    def __init__(self, path: Path) -> None:
        self._zip = ZipFile(path)
        self._names = set(self._zip.namelist())
        self.version = path.name.split("-")[1]

    def find(self, module: str, name: str) -> tuple[str, ast.stmt]:
        """The module that defines a name which `module` has, and its definition: the last one, as
        earlier ones are overloads.

        Raises:
            LookupError
        """
        file, is_package = self._file(module)
        body = ast.parse(self._zip.read(file)).body
        defined = [
            node
            for node in body
            if isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name == name
        ]
        if defined:
            return module, defined[-1]
        for node in body:
            if not isinstance(node, ast.ImportFrom):
                continue
            for alias in node.names:
                if (alias.asname or alias.name) == name:
                    return self.find(_absolute(module, is_package, node), alias.name)
                if alias.name == "*" and name in self._all(_absolute(module, is_package, node)):
                    return self.find(_absolute(module, is_package, node), name)
        raise LookupError(f"{module} of flashinfer {self.version} has no {name}")

    def method(self, module: str, owner: str, name: str) -> ast.FunctionDef:
        """A method of a class or of its bases."""
        module, node = self.find(module, owner)
        assert isinstance(node, ast.ClassDef)
        defined = [n for n in node.body if isinstance(n, ast.FunctionDef) and n.name == name]
        if defined:
            return defined[-1]
        for base in node.bases:
            if isinstance(base, ast.Name):
                return self.method(module, base.id, name)
        raise LookupError(f"{owner} of flashinfer {self.version} has no {name}")

    def _all(self, module: str) -> set[str]:
        """The names that a module defines or imports."""
        file, _ = self._file(module)
        found = set()
        for node in ast.parse(self._zip.read(file)).body:
            if isinstance(node, ast.FunctionDef | ast.ClassDef):
                found.add(node.name)
            elif isinstance(node, ast.ImportFrom):
                found |= {alias.asname or alias.name for alias in node.names}
        return found

    def _file(self, module: str) -> tuple[str, bool]:
        path = PurePosixPath(*module.split("."))
        if (package := f"{path}/__init__.py") in self._names:
            return package, True
        return f"{path}.py", False


def _absolute(module: str, is_package: bool, node: ast.ImportFrom) -> str:
    """The module that an import names."""
    if not node.level:
        return node.module or ""
    parts = module.split(".")
    parts = parts[: len(parts) - node.level + is_package]
    return ".".join([*parts, node.module] if node.module else parts)


def signature(node: ast.stmt) -> Signature:
    assert isinstance(node, ast.FunctionDef)
    given = node.args
    positional = given.posonlyargs + given.args
    if any(isinstance(one, ast.Name) and one.id == "classmethod" for one in node.decorator_list):
        positional = positional[1:]
    first_default = len(positional) - len(given.defaults)
    found: Signature = [
        [argument.arg, "POSITIONAL_OR_KEYWORD", index >= first_default]
        for index, argument in enumerate(positional)
    ]
    if given.vararg:
        found.append([given.vararg.arg, "VAR_POSITIONAL", False])
    for argument, default in zip(given.kwonlyargs, given.kw_defaults, strict=True):
        found.append([argument.arg, "KEYWORD_ONLY", default is not None])
    if given.kwarg:
        found.append([given.kwarg.arg, "VAR_KEYWORD", False])
    return found


def signatures(wheel: Wheel) -> dict[str, Signature]:
    found = {
        f"{module}.{name}": signature(wheel.find(module, name)[1])
        for module, names in FUNCTIONS.items()
        for name in names
    }
    for full_name, methods in CLASSES.items():
        module, _, owner = full_name.rpartition(".")
        for name in methods:
            node = wheel.method(module, owner, name)
            if node.args.kwarg:
                node = wheel.method(module, owner, PASSED_ON[name])
            found[f"{full_name}.{name}"] = signature(node)
    return found


def main(wheels: Iterable[Path]) -> None:
    record = {wheel.version: signatures(wheel) for wheel in map(Wheel, sorted(wheels))}
    text = [
        f' "{version}": {{\n'
        + ",\n".join(f"  {json.dumps(name)}: {json.dumps(found)}" for name, found in names.items())
        + "\n }"
        for version, names in record.items()
    ]
    RECORD.write_text("{\n" + ",\n".join(text) + "\n}\n")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("wheels", type=Path, nargs="+", help="of flashinfer-python")
    main(parser.parse_args().wheels)
