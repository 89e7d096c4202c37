"""The worker: it claims tasks, renews their leases while functions run, and commits the results."""
