"""Tools that test and show the product: benchmarks, chaos, cluster, demo, test runner. Not in the wheel."""
