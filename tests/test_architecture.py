"""The direction of the imports, read from the source so that no import can hide."""

import ast
import subprocess
import sys
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

import pytest

from service import engine

ROOT = Path(__file__).resolve().parents[1]

ENGINE_LIBRARIES = {"numpy", "numba", "PIL", "pillow_heif", "safetensors"}


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


@cache
def imports(source: str) -> tuple[str, ...]:
    """Every module that a source imports, at its top or inside a function.

    `from package import name` gives package.name, which may be a module or not.
    """
    return tuple(_imports(source))


def _imports(source: str) -> Iterator[str]:
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


# What each part of the product may import of the product, beside itself. Parts are folders
# and single modules; a longer name is more specific than a shorter one.
_BOTTOM = ("service.engine", "service.errors")
_OBSERVED = ("service.pool.job", "service.pool.state")
_MIDDLE = ("service.settings", "service.repository", "service.formats")
_ROUTES = (
    *(*_BOTTOM, *_MIDDLE, "service.pool", "service.observability", "service.http"),
    "service.siblings",
)
RULES: dict[str, tuple[str, ...]] = {
    "service/engine": (),
    "service/errors.py": ("service.engine",),
    "service/settings.py": _BOTTOM,
    "service/settings_table.py": ("service.settings",),
    "service/repository.py": _BOTTOM,
    "service/formats": _BOTTOM,
    "service/pool": (*_BOTTOM, *_MIDDLE),
    "service/observability": (*_BOTTOM, *_OBSERVED),
    "service/http": (*_BOTTOM, "service.observability", "service.settings"),
    "service/routes": _ROUTES,
    "service/siblings.py": (*_BOTTOM, "service.pool.state", "service.repository"),
    "service/client": (),
    "service/loadtest": _BOTTOM,
    "service/examples": (),
    "service/reload.py": (*_ROUTES, "service.routes"),
    "service/app.py": (*_ROUTES, "service.routes", "service.reload"),
    "service/health.py": (*_BOTTOM, "service.settings", "service.http"),
    "service/hangup.py": (),
    "service/huge_pages.py": (),
    "service/pid_file.py": _BOTTOM,
    "service/server.py": (
        *(*_ROUTES, "service.routes", "service.reload", "service.app"),
        *("service.hangup", "service.huge_pages", "service.pid_file"),
    ),
    "service/front_ends": (
        *(*_ROUTES, "service.app", "service.server", "service.hangup", "service.pid_file"),
    ),
    "service/setting_flags.py": ("service.settings",),
    "service/model_choice.py": (*_BOTTOM, "service.settings", "service.repository"),
    "service/serve_command.py": (
        *(*_ROUTES, "service.server", "service.front_ends"),
        *("service.model_choice", "service.setting_flags"),
    ),
    "service/capacity": (*(*_BOTTOM, "service.pool", "service.loadtest", "service.serve_command"),),
    "service/terminal": (
        *(*_BOTTOM, "service.settings", "service.repository", "service.setting_flags"),
        *("service.model_choice", "service.observability.logs", "service.formats"),
        *("service.pool.cores", "service.pool.warmup"),
    ),
    "service/cli.py": ("service",),
    "service/__main__.py": ("service.cli",),
    "service/__init__.py": (),
    "trainer": ("service.engine",),
}
# The number of the release is everybody's.
_EVERYBODY = "service.__version__"


def part_of(source: str) -> str:
    """The part that a source belongs to."""
    owners = [part for part in RULES if source == part or source.startswith(f"{part}/")]
    assert len(owners) == 1, f"{source} belongs to {owners or 'no part'}; see RULES"
    return owners[0]


def forbidden(source: str, modules: Iterable[str]) -> list[str]:
    """The modules among those that a source imports which its part may not."""
    part = part_of(source)
    allowed = (module_name(part), *RULES[part], _EVERYBODY)
    ours = [name for name in modules if inside(name, "service") or inside(name, "trainer")]
    return [name for name in ours if not any(inside(name, package) for package in allowed)]


@pytest.mark.parametrize("source", [*sources("service"), *sources("trainer")])
def test_a_part_imports_only_what_its_rule_allows(source: str) -> None:
    assert forbidden(source, imports(source)) == []


@pytest.mark.parametrize(
    ("source", "module"),
    [
        ("service/engine/tree.py", "service.errors"),
        ("service/pool/pool.py", "service.observability.logs.start_logging"),
        ("service/http/body.py", "service.pool.pool.Pool"),
        ("service/observability/metrics.py", "service.pool.pool"),
        ("service/routes/classify.py", "service.app.create_app"),
        ("service/settings.py", "service.pool.cores"),
        ("service/client/calls.py", "service.errors"),
        ("service/cli.py", "trainer.fit"),
        ("service/terminal/classify.py", "service.server"),
        ("trainer/fit.py", "service.repository"),
    ],
)
def test_the_rules_forbid(source: str, module: str) -> None:
    assert forbidden(source, [module]) == [module]


@pytest.mark.parametrize("source", [*sources("service/pool"), *sources("service/formats")])
def test_the_pool_and_the_formats_know_no_web_framework(source: str) -> None:
    frameworks = {"fastapi", "starlette", "uvicorn"}
    assert {module.partition(".")[0] for module in imports(source)}.isdisjoint(frameworks)


@pytest.mark.parametrize("source", sources("service/engine"))
def test_the_engine_needs_four_libraries_only(source: str) -> None:
    allowed = ENGINE_LIBRARIES | sys.stdlib_module_names | {"service"}
    assert {module.partition(".")[0] for module in imports(source)} <= allowed


@pytest.mark.parametrize("source", [*sources("service"), *sources("trainer")])
def test_the_product_never_imports_its_tests(source: str) -> None:
    assert [module for module in imports(source) if inside(module, "tests")] == []


@pytest.mark.parametrize("source", sources("service/engine/kernels"))
def test_a_kernel_does_no_input_or_output(source: str) -> None:
    names = {module.partition(".")[0] for module in imports(source)}
    # Of `time` the number of a clock.
    assert names <= {"numpy", "numba", "service", "collections", "typing", "time"}


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


def test_the_command_line_and_the_front_end_load_no_kernel_and_no_decoder() -> None:
    loaded = {
        name.partition(".")[0]
        for name in newly_imported("import service.cli, service.server; service.cli._parser()")
    }
    assert "service" in loaded
    assert loaded.isdisjoint({"numba", "llvmlite", "PIL", "scipy", "sklearn", "trainer"})


def test_the_command_health_loads_neither_arrays_nor_the_load_test() -> None:
    loaded = newly_imported("import service.cli; service.cli._parser('health')")
    assert "service.health" in loaded
    assert loaded.isdisjoint({"numpy", "service.loadtest", "service.repository", "fastapi"})


def test_every_name_of_the_engine_can_be_imported_and_no_other() -> None:
    assert [name for name in engine.__all__ if not hasattr(engine, name)] == []
    with pytest.raises(AttributeError, match="no attribute 'Motor'"):
        _ = engine.Motor  # type: ignore[attr-defined]


def test_importing_the_engine_loads_no_web_framework_and_no_trainer() -> None:
    loaded = {module.partition(".")[0] for module in newly_imported("import service.engine")}
    assert loaded.isdisjoint({"fastapi", "starlette", "uvicorn", "pydantic", "trainer", "sklearn"})
