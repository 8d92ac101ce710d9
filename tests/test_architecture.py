"""The direction of the imports, read from the source so that no import can hide."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]

ENGINE_LIBRARIES = {"numpy", "numba", "PIL", "safetensors"}


def sources(package: str) -> list[str]:
    """Every module below a package, as a path from the root."""
    return sorted(str(path.relative_to(ROOT)) for path in (ROOT / package).rglob("*.py"))


def module_name(source: str) -> str:
    return source.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def absolute(node: ast.ImportFrom, source: str) -> str:
    """The module that `from … import` names, dots resolved."""
    if not node.level:
        return node.module or ""
    package = module_name(source).split(".")
    depth = node.level - source.endswith("__init__.py")
    parents = package[: len(package) - depth]
    return ".".join([*parents, *([node.module] if node.module else [])])


def imports(source: str) -> Iterator[str]:
    """Every module that a source imports, at its top or inside a function.

    `from package import name` yields package.name, which may be a module or not.
    """
    for node in ast.walk(ast.parse((ROOT / source).read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            module = absolute(node, source)
            yield from (f"{module}.{alias.name}" for alias in node.names)


def inside(module: str, package: str) -> bool:
    return f"{module}.".startswith(f"{package}.")


def test_the_sources_are_found() -> None:
    assert "service/engine/pipeline.py" in sources("service")


@pytest.mark.parametrize("source", sources("service/engine"))
def test_the_engine_imports_nothing_else_of_service(source: str) -> None:
    ours = [module for module in imports(source) if inside(module, "service")]
    assert [module for module in ours if not inside(module, "service.engine")] == []


@pytest.mark.parametrize("source", sources("service/engine"))
def test_the_engine_needs_four_libraries_only(source: str) -> None:
    allowed = ENGINE_LIBRARIES | sys.stdlib_module_names | {"service"}
    assert {module.partition(".")[0] for module in imports(source)} <= allowed


@pytest.mark.parametrize("source", sources("service"))
def test_the_service_never_imports_the_trainer(source: str) -> None:
    assert [module for module in imports(source) if inside(module, "trainer")] == []


@pytest.mark.parametrize("source", sources("service/loadtest"))
def test_the_load_test_imports_the_engine_and_errors_only(source: str) -> None:
    allowed = ("service.engine", "service.errors", "service.loadtest", "service.__version__")
    modules = list(imports(source))
    ours = [module for module in modules if inside(module, "service")]
    assert [name for name in ours if not any(inside(name, part) for part in allowed)] == []
    assert {name.partition(".")[0] for name in modules}.isdisjoint({"fastapi", "starlette"})


@pytest.mark.parametrize("source", sources("trainer"))
def test_the_trainer_imports_the_engine_only(source: str) -> None:
    ours = [module for module in imports(source) if inside(module, "service")]
    assert [module for module in ours if not inside(module, "service.engine")] == []


@pytest.mark.parametrize("source", [*sources("service"), *sources("trainer")])
def test_the_product_never_imports_its_tests(source: str) -> None:
    assert [module for module in imports(source) if inside(module, "tests")] == []


@pytest.mark.parametrize("source", sources("service/engine/kernels"))
def test_a_kernel_does_no_input_or_output(source: str) -> None:
    names = {module.partition(".")[0] for module in imports(source)}
    assert names <= {"numpy", "numba", "service", "collections", "typing"}


def test_relative_imports_are_resolved() -> None:
    node = ast.parse("from ..pool import x").body[0]
    assert isinstance(node, ast.ImportFrom)
    assert absolute(node, "service/routes/classify.py") == "service.pool"
    assert absolute(node, "service/routes/__init__.py") == "service.pool"


def newly_imported(statement: str) -> set[str]:
    """The modules that a statement loads into a fresh interpreter."""
    program = f"import sys; before = set(sys.modules); {statement}; print(*set(sys.modules)-before)"
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
    return set(done.stdout.split())


def test_importing_service_imports_nothing() -> None:
    assert newly_imported("import service") == {"service"}


def test_importing_the_engine_loads_no_web_framework_and_no_trainer() -> None:
    loaded = {module.partition(".")[0] for module in newly_imported("import service.engine")}
    assert loaded.isdisjoint({"fastapi", "starlette", "uvicorn", "pydantic", "trainer", "sklearn"})
