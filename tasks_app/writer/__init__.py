"""One coalescing writer per process: batches, waiting claims, neighbours, housekeeping."""
