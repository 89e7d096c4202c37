"""The engine of all workers, which claims, renews, reports and stops, and the executor of functions."""
