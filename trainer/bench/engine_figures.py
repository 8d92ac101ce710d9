"""The ratios that the engine is judged by, one function each.

Both sides of a ratio are timed in turns on the same cores; the ratio is taken in every
round and its median counts. A figure keeps the seconds that it was made of.
`ENGINE_FIGURES` says what each must reach, at the least (`floor`) and at best (`aim`), and
what the paper has. Those of the running service are in `service_figures`.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from service.engine import Engine
from service.engine.arrays import Float32Array
from service.engine.config import STEPS
from service.engine.sift import describe, locate
from trainer.bench.engine_bench import EngineBench, each_of, in_turns
from trainer.bench.engine_processes import measure_throughput
from trainer.bench.goals import Figure, Goal
from trainer.bench.machine import pinned, separate_cores
from trainer.bench.peers import blas_product, opencv_sift, sklearn_omp, spams_omp
from trainer.bench.settings import ModelSize
from trainer.bench.spread import Spread
from trainer.recipes import RecipeName

__all__ = ["ENGINE_FIGURES"]


def coding_vs_gemm(bench: EngineBench) -> Figure:
    """Compare coding with the bare product of descriptors and dictionary."""
    engine = bench.models.load()
    timings = bench.compare(
        {
            "blas_product": blas_product(bench.vectors, engine.coder.dictionary),
            "coding": lambda: engine.encode(bench.vectors),
        }
    )
    return Figure.ratio(timings, "blas_product", "coding")


def coding_vs_spams(bench: EngineBench) -> Figure:
    """Compare coding with exact greedy pursuit by SPAMS in the same precision."""
    return _coding_vs_spams(bench, np.float32)


def coding_vs_spams_float64(bench: EngineBench) -> Figure:
    """Compare coding with SPAMS in float64, the precision of its own examples."""
    return _coding_vs_spams(bench, np.float64)


def _coding_vs_spams(bench: EngineBench, precision: type[np.floating[Any]]) -> Figure:
    engine = bench.models.load()
    dictionary, nonzeros = engine.coder.dictionary, bench.settings.nonzeros
    timings = bench.compare(
        {
            "spams_omp": spams_omp(bench.vectors, dictionary, nonzeros, precision),
            "coding": lambda: engine.encode(bench.vectors),
        }
    )
    return Figure.ratio(timings, "spams_omp", "coding")


def coding_vs_sklearn(bench: EngineBench) -> Figure:
    """Compare coding with scikit-learn's pursuit, for fewer descriptors on both sides."""
    engine = bench.models.load()
    few = bench.vectors[: bench.settings.sklearn_vectors]
    dictionary, nonzeros = engine.coder.dictionary, bench.settings.nonzeros
    timings = bench.compare(
        {
            "sklearn_omp": sklearn_omp(few, dictionary, nonzeros),
            "coding": lambda: engine.encode(few),
        }
    )
    return Figure.ratio(timings, "sklearn_omp", "coding")


def coding_k_independence(bench: EngineBench) -> Figure:
    """Compare coding with the usual dictionary and with the large one."""
    few, many = bench.models.load(), bench.models.load(bench.settings.large)
    timings = bench.compare(
        {
            "few_atoms": lambda: few.encode(bench.vectors),
            "many_atoms": lambda: many.encode(bench.vectors),
        }
    )
    return Figure.ratio(timings, "few_atoms", "many_atoms")


def pipeline_vs_gemm(bench: EngineBench) -> Figure:
    """Compare the pipeline with the product of the image's descriptors and the dictionary."""
    engine, images = bench.models.load(), bench.images
    grid = engine.describe(engine.decode(images[0]))
    product = blas_product(grid.reshape(-1, grid.shape[2]), engine.coder.dictionary)
    pipelines = each_of("pipeline", engine.classify, images)
    timings = bench.compare({"blas_product": product, **pipelines})
    return Figure.ratio(timings.averaged(), "blas_product", "pipeline")


def sift_vs_opencv(bench: EngineBench) -> Figure:
    """Compare dense SIFT as the pipeline uses it with OpenCV's on the same grid.

    Descriptors stay where they lie in the feature map; their norms belong to coding.
    """
    return _sift_vs_opencv(bench, lambda gray: locate(gray, "fast-sift", STEPS["fast-sift"]))


def sift_laid_out_vs_opencv(bench: EngineBench) -> Figure:
    """Compare normalised descriptors, laid out in memory as OpenCV's are, with OpenCV's."""
    return _sift_vs_opencv(bench, lambda gray: describe(gray, "fast-sift", STEPS["fast-sift"]))


def _sift_vs_opencv(bench: EngineBench, sift: Callable[[Float32Array], object]) -> Figure:
    gray = bench.models.load().decode(bench.images[0])
    pixels = np.round(gray * 255).astype(np.uint8)
    timings = bench.compare({"opencv_sift": opencv_sift(pixels), "sift": lambda: sift(gray)})
    return Figure.ratio(timings, "opencv_sift", "sift")


def scaling_2(bench: EngineBench) -> Figure:
    """Compare images a second of two processes on two cores with one on one."""
    throughput = measure_throughput(
        bench.models.bundle(),
        bench.images,
        separate_cores(2),
        # More and shorter rounds: two cores are rarely undisturbed at once for long.
        2 * bench.settings.rounds,
        bench.duration.seconds / 4,
    )
    pairs = list(zip(throughput.alone, throughput.together, strict=True))
    return Figure(
        Spread.of(together / alone for alone, together in pairs),
        {
            "alone": Spread.of(1 / alone for alone, _ in pairs),
            "together": Spread.of(1 / together for _, together in pairs),
        },
    )


def threads_2(bench: EngineBench) -> Figure:
    """Compare the time of one image by one thread with that by two."""
    with pinned(separate_cores(2)):  # threads may start with the engine, and inherit it
        one, two = bench.models.load(), bench.models.load(threads=2)
    sides = {"one_thread": one.classify, "two_threads": two.classify}
    timings = bench.compare_elapsed(in_turns(sides, bench.images), cores=2)
    return Figure.ratio(timings.averaged(), "one_thread", "two_threads")


def recipe_cost(bench: EngineBench) -> Figure:
    """Compare the recipe `best` with the paper's pipeline, from the bytes of JPEGs to labels."""
    return _recipe_cost(bench, "best")


def fast_recipe_cost(bench: EngineBench) -> Figure:
    """Compare the recipe `fast` with the paper's pipeline."""
    return _recipe_cost(bench, "fast")


def _recipe_cost(bench: EngineBench, name: RecipeName) -> Figure:
    ours, paper = bench.models.load_recipe(name), bench.models.load_recipe("paper")
    images = [path.read_bytes() for path in bench.photographs.caltech]
    sides: dict[str, Callable[[bytes], object]] = {name: ours.classify, "paper": paper.classify}
    timings = bench.compare(in_turns(sides, images))
    return Figure.ratio(timings.averaged(), name, "paper")


def frames_per_second(bench: EngineBench) -> Figure:
    """Count photographs a second on one core, with twice the atoms as in the paper's figure."""
    return _frames_per_second(bench, bench.models.load(_doubled(bench)), bench.images)


def caltech_frames_per_second(bench: EngineBench) -> Figure:
    """Count images of Caltech 101 a second on one core, at most 300 pixels wide and high."""
    engine = bench.models.load(_doubled(bench), max_side=300)
    images = [path.read_bytes() for path in bench.photographs.caltech]
    return _frames_per_second(bench, engine, images)


def _frames_per_second(bench: EngineBench, engine: Engine, images: list[bytes]) -> Figure:
    timings = bench.compare_elapsed(each_of("pipeline", engine.classify, images)).averaged()
    return Figure(timings.rate("pipeline"), {"pipeline": timings.seconds("pipeline")})


def _doubled(bench: EngineBench) -> ModelSize:
    size = bench.settings.size
    return ModelSize(size.depth, 2 * size.atoms, size.nonzeros)


ENGINE_FIGURES: dict[str, Goal[EngineBench]] = {
    "coding_vs_gemm": Goal(coding_vs_gemm, "BLAS product / our coding", 15, 18, "8.6"),
    "coding_vs_spams": Goal(coding_vs_spams, "SPAMS OMP / our coding", 85, 110, "50 (four cores)"),
    "coding_vs_spams_float64": Goal(
        coding_vs_spams_float64, "SPAMS OMP in float64 / our coding", None, None, "50 (four cores)"
    ),
    "coding_vs_sklearn": Goal(coding_vs_sklearn, "scikit-learn OMP / our coding"),
    "coding_k_independence": Goal(
        coding_k_independence, "coding with few atoms / with many", 0.93, 0.97, ".94 (pipeline)"
    ),
    "pipeline_vs_gemm": Goal(pipeline_vs_gemm, "BLAS product / our whole pipeline", 13, 16),
    "sift_vs_opencv": Goal(sift_vs_opencv, "OpenCV's dense SIFT / ours", 300, 500),
    "sift_laid_out_vs_opencv": Goal(
        sift_laid_out_vs_opencv, "the same, our descriptors laid out and normalised"
    ),
    "recipe_cost": Goal(recipe_cost, "the recipe best / the paper's pipeline", ceiling=2.0),
    "fast_recipe_cost": Goal(
        fast_recipe_cost, "the recipe fast / the paper's pipeline", ceiling=1.0
    ),
    "scaling_2": Goal(scaling_2, "images a second, two processes / one", 1.85, 1.95),
    "threads_2": Goal(threads_2, "seconds of one image, one thread / two", 1.7, 1.8, "3.1 (four)"),
    "frames_per_second": Goal(
        frames_per_second, "photographs to labels, a second", 120, 150, "6.8"
    ),
    "caltech_frames_per_second": Goal(
        caltech_frames_per_second, "Caltech 101 to labels, a second", None, None, "32 (four)"
    ),
}
