"""The byte product on machines that are not this one: which instructions LLVM makes of it."""

from dataclasses import dataclass
from typing import Any

import llvmlite.binding as llvm
import pytest
from llvmlite import ir

from service.engine.kernels import instructions, vectors

BYTES = ir.IntType(8).as_pointer()
SUMS = ir.VectorType(ir.IntType(32), 8)


@dataclass(frozen=True)
class Machine:
    """What stands in for numba's code generator: the CPU that it compiles for."""

    name: str
    features: str

    def codegen(self) -> "Machine":
        return self

    def magic_tuple(self) -> tuple[str, str, str]:
        return "", self.name, self.features


def assembly(triple: str, features: str, cpu: str = "") -> str:
    """The machine code of a product of 128 bytes."""
    module = ir.Module()
    module.triple = triple
    kind = ir.FunctionType(ir.VoidType(), [BYTES, BYTES, SUMS.as_pointer()])
    function = ir.Function(module, kind, "multiply")
    builder: Any = ir.IRBuilder(function.append_basic_block())
    a, b, out = function.args
    total = instructions.multiply_bytes(Machine(cpu, features), builder, [a, b])
    vectors.store(builder, total, out)
    builder.ret_void()
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    machine = llvm.Target.from_triple(triple).create_target_machine(
        cpu=cpu, features=features, opt=3
    )
    parsed = llvm.parse_assembly(str(module))
    parsed.verify()
    return str(machine.emit_assembly(parsed))


@pytest.mark.parametrize(
    ("triple", "features", "instruction", "count"),
    [
        ("x86_64-linux-gnu", "+avx2", "vpmaddubsw", 4),
        ("x86_64-linux-gnu", "+avx2,+avxvnni", "vpdpbusd", 4),
        ("x86_64-linux-gnu", "+avx2,+avx512vnni,+avx512vl", "vpdpbusd", 4),
        ("aarch64-linux-gnu", "+neon,+dotprod", "sdot", 8),
    ],
)
def test_the_best_instruction_of_a_machine_is_used(
    triple: str, features: str, instruction: str, count: int
) -> None:
    words = assembly(triple, features).split()
    assert words.count(instruction) == count


@pytest.mark.parametrize("level", ["x86-64-v3", "x86-64-v4"])
def test_a_level_of_cpus_has_what_it_implies(level: str) -> None:
    """Images are compiled for a level, without a list of features."""
    assert assembly("x86_64-linux-gnu", "", level).split().count("vpmaddubsw") == 4


@pytest.mark.parametrize(
    ("triple", "features"), [("x86_64-linux-gnu", ""), ("aarch64-linux-gnu", "+neon")]
)
def test_machines_without_one_are_compiled_for(triple: str, features: str) -> None:
    assert "multiply" in assembly(triple, features)
