import os

import pytest

# Before NumPy is loaded, and for processes below: the tests run on all cores already. Small
# matrices take ten times the CPU on two threads of BLAS, most of it spent on waiting.
os.environ |= {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}

# Asserts in helpers show their values too.
pytest.register_assert_rewrite("tests.support")
