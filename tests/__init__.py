import pytest

# Asserts in helpers show their values too.
pytest.register_assert_rewrite("tests.support")
