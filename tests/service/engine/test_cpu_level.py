"""Kernels that were compiled for a level of CPUs are not run on an older one."""

from pathlib import Path

import pytest

from service.engine.cpu_level import require_cpu_level
from service.engine.errors import UnsuitableCpuError

V2 = "cx16 lahf_lm popcnt pni ssse3 sse4_1 sse4_2"
V3 = f"{V2} avx avx2 bmi1 bmi2 f16c fma abm movbe xsave"


@pytest.fixture
def cpu(tmp_path: Path) -> Path:
    return tmp_path / "cpuinfo"


def describe(path: Path, flags: str) -> None:
    """What Linux says about a machine of two such CPUs."""
    one = f"processor\t: 0\nmodel name\t: Some CPU\nflags\t\t: fpu sse2 {flags}\n\n"
    path.write_text(one * 2)


@pytest.mark.parametrize(("level", "flags"), [("x86-64-v3", V3), ("x86-64-v2", V3), ("x86-64", "")])
def test_a_cpu_that_has_the_level_is_accepted(cpu: Path, level: str, flags: str) -> None:
    describe(cpu, flags)
    require_cpu_level({"NUMBA_CPU_NAME": level}, cpu)


def test_an_older_cpu_is_rejected_with_what_it_lacks_and_what_to_do(cpu: Path) -> None:
    describe(cpu, V3.replace("avx2 ", "").replace("bmi2 ", ""))
    with pytest.raises(UnsuitableCpuError) as raised:
        require_cpu_level({"NUMBA_CPU_NAME": "x86-64-v3"}, cpu)
    assert str(raised.value) == (
        "the kernels are compiled for CPUs of level x86-64-v3 (NUMBA_CPU_NAME), this one lacks "
        "avx2, bmi2; set NUMBA_CPU_NAME=x86-64-v2 and NUMBA_CACHE_DIR to a folder that can be "
        "written, or build the image with --build-arg AMD64_CPU=x86-64-v2"
    )


@pytest.mark.parametrize("level", [None, "generic", "znver3"])
def test_a_cpu_without_a_level_to_compare_is_accepted(cpu: Path, level: str | None) -> None:
    describe(cpu, "")
    require_cpu_level({"NUMBA_CPU_NAME": level} if level else {}, cpu)


def test_a_system_that_does_not_describe_its_cpu_is_accepted(cpu: Path) -> None:
    require_cpu_level({"NUMBA_CPU_NAME": "x86-64-v3"}, cpu)
    cpu.write_text("processor\t: 0\nFeatures\t: fp asimd\n")
    require_cpu_level({"NUMBA_CPU_NAME": "x86-64-v3"}, cpu)
