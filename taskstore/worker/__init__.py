"""The engine of all workers, which claims tasks, renews leases, reports and stops, and the executor of functions."""
