"""What proves the product: benchmarks, chaos, cluster, demo, test runner, documentation. Not in the wheel."""
