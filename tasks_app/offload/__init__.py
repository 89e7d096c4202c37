"""Work that would hold up the event loop: a helper process for large bodies, threads for long lists."""
